"""A fleet in virtual time: requests split by weight, 5xx rates over a growing 2 m window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.api import (
    Action,
    ActionResult,
    AdminState,
    ServerStat,
    Snapshot,
)
from controller.clock import VirtualClock
from tests.controller.builders import snapshot, view


@dataclass
class _Slot:
    name: str
    error_rate: float
    weight: int = 100
    admin_state: AdminState = "ready"
    requests: float = 0.0
    errors: float = 0.0
    past: list[tuple[float, float]] = field(default_factory=list)


class Plant:
    """Telemetry and actuator of a simulated fleet of `error_rates`, at `rps` in all.

    Errors are expectations, not draws; time passes whenever the clock is read.
    """

    def __init__(
        self, clock: VirtualClock, error_rates: Sequence[float], rps: float = 750.0
    ) -> None:
        self.slots = [_Slot(f"api-{n}", rate) for n, rate in enumerate(error_rates, start=1)]
        self.executed: list[tuple[float, Action]] = []
        self._clock = clock
        self._rps = rps
        self._now_s = clock.monotonic_s()

    def observe(self) -> Snapshot:
        self._advance()
        now_s = self._now_s
        views = []
        for slot in self.slots:
            # As Prometheus does: increase over the window, divided by the whole window.
            slot.past = [(t, e) for t, e in slot.past if t >= now_s - 120]
            rate = (slot.errors - slot.past[0][1]) / 120 if len(slot.past) > 1 else None
            views.append(
                view(slot.name, rate, weight=slot.weight, admin_state=slot.admin_state, sessions=3)
            )
        return snapshot(*views, time_s=now_s)

    def execute(self, actions: Sequence[Action]) -> list[ActionResult]:
        self._advance()
        results = []
        for action in actions:
            if action.kind == "no_op":
                continue
            slot = next(s for s in self.slots if s.name == action.server)
            before = slot.weight
            if action.kind == "set_weight":
                assert action.weight is not None
                slot.weight = action.weight
            else:
                slot.admin_state = "drain" if action.kind == "drain" else "ready"
            self.executed.append((self._now_s, action))
            results.append(ActionResult(action, True, "", before, slot.weight, slot.admin_state))
        return results

    def read(self) -> list[ServerStat]:
        return [
            ServerStat(
                "be_api",
                s.name,
                "127.0.0.1:1",
                "UP" if s.admin_state == "ready" else "DRAIN",
                s.admin_state,
                s.weight,
                3,
                round(s.requests),
                round(s.errors),
            )
            for s in self.slots
        ]

    def close(self) -> None:
        pass

    @property
    def client_error_rate(self) -> float:
        self._advance()
        return sum(s.errors for s in self.slots) / sum(s.requests for s in self.slots)

    def _advance(self) -> None:
        elapsed_s = self._clock.monotonic_s() - self._now_s
        self._now_s = self._clock.monotonic_s()
        total = sum(s.weight for s in self.slots if s.admin_state == "ready")
        for slot in self.slots:
            if slot.admin_state == "ready" and total:
                requests = self._rps * elapsed_s * slot.weight / total
                slot.requests += requests
                slot.errors += requests * slot.error_rate
            slot.past.append((self._now_s, slot.errors))
