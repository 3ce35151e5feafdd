"""What a synthetic run is to contain, and the metrics that must come out of it.

The truth is worked out from the script of drains alone, by other means than `sweep.metrics`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

T0_US = 1_767_323_045_678_000
"""Run start of every synthetic run: 2026-01-02T03:04:05.678Z."""

ACT_DELAY_S = 0.25
"""Time between the start of a step and the moment its actions had been executed."""


@dataclass(frozen=True)
class Model:
    """The `model` record of summary.json."""

    name: str
    title: str
    policy: str = "llm"
    family: str | None = None
    active_params_b: float | None = None
    total_params_b: float | None = None
    architecture: str | None = None


STATIC = Model("static", "Static", policy="static")
THRESHOLD = Model("threshold", "Threshold rule", policy="rule")


@dataclass(frozen=True)
class SyntheticRun:
    """One run. Slots are `api-1` … `api-<scale>`."""

    model: Model
    mode: str
    algorithm: str = "leastconn"
    scale: int = 3
    seed: int = 42
    error_mode: str = "error_on"
    duration_s: float = 600.0
    interval_s: float = 10.0
    testbed: str = "docker"
    requests: int = 2_000
    http_5xx: int = 30
    transport_errors: int = 0
    toggles: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By slot: the steps at which it is drained, enabled, drained again, …"""
    trips: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """By step: the rails that its raw plan trips. `drain_cap` only where a slot is drained."""
    cadence_s: float = 10.0
    steps: int | None = None
    """Completed steps; None: as many as the cadence allows."""
    completion_tokens: int = 150
    """Of one step; 0 for policies without a model."""
    base_ms: float = 11.5
    tail_ms: float = 30.0
    """Added to the requests in the tail, whose share grows with the drained share of the fleet."""
    valid: bool = True
    invalid_reasons: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        """The run's id."""
        name = self.model.name.replace("/", "-")
        return f"{name}-{self.mode}_{self.algorithm}_n{self.scale}_s{self.seed}"

    @property
    def slots(self) -> tuple[str, ...]:
        """All slots."""
        return tuple(f"api-{i}" for i in range(1, self.scale + 1))

    @property
    def faulty(self) -> tuple[str, ...]:
        """Faulty slots: as many as Table 5 says, at places shuffled by the run's id."""
        if self.error_mode == "error_off":
            return ()
        count = sum(i % 3 == 2 for i in range(1, self.scale + 1))
        return tuple(sorted(random.Random(self.run_id).sample(self.slots, count)))

    @property
    def healthy(self) -> tuple[str, ...]:
        """The other slots."""
        return tuple(s for s in self.slots if s not in self.faulty)

    @property
    def vus(self) -> int:
        """Virtual users, ten a backend (paper, Table 5)."""
        return 10 * self.scale

    @property
    def step_count(self) -> int:
        """Completed steps."""
        if self.steps is not None:
            return self.steps
        return int(self.duration_s / max(self.cadence_s, self.interval_s) + 1e-9)

    def executed_s(self, step: int) -> float:
        """When the actions of a step had been executed."""
        return step * max(self.cadence_s, self.interval_s) + ACT_DELAY_S

    def truth(self) -> dict[str, object]:
        """Metrics of this run that follow from its script."""
        first = {slot: self.executed_s(steps[0]) for slot, steps in self.toggles.items() if steps}
        flips = {slot: max(0, len(steps) - 1) for slot, steps in self.toggles.items()}
        end = {slot for slot, steps in self.toggles.items() if len(steps) % 2}
        hit = [first[s] for s in self.faulty if s in first]
        return {
            "requests": self.requests,
            "http_5xx": self.http_5xx,
            "tp": len(hit),
            "fp": sum(s in first for s in self.healthy),
            "fn": len(self.faulty) - len(hit),
            "exact": set(first) == set(self.faulty),
            "time_to_action_s": min(hit) if hit else None,
            "time_to_resolution_s": (max(hit) if hit and len(hit) == len(self.faulty) else None),
            "flips": sum(flips.values()),
            "oscillating_servers": sum(f >= 2 for f in flips.values()),
            "end_state_correct": end == set(self.faulty),
            "steps": self.step_count,
            "fired_drain_cap": sum("drain_cap" in t for t in self.trips.values()),
            "fired_action_cap": sum("action_cap" in t for t in self.trips.values()),
            "fired_weight_clamp": sum("weight_clamp" in t for t in self.trips.values()),
            "fired_any": sum(bool(t) for t in self.trips.values()),
            "completion_tokens": self.completion_tokens * self.step_count,
        }
