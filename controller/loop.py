"""Observe, decide, act, once per interval (paper, §4.3).

Steps start on a grid of `interval_s` from t0. A step that overruns makes the next one start at
once; the grid places it missed are gone, so a slow policy completes fewer steps. Two steps never
overlap, and none starts after `duration_s`.

A policy's failure costs its step. A failure of the telemetry, of HAProxy or of the model's endpoint
raises: the run then says nothing about the policy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from controller.api import (
    Actuator,
    Clock,
    Decision,
    ExecutedAction,
    GuardedPlan,
    Policy,
    Recorder,
    Snapshot,
    Telemetry,
)
from controller.errors import EndpointUnavailable
from controller.guardrails import Guardrails
from controller.records import NullRecorder, post_json, snapshot_json, to_json

LATE_S = 0.1
"""A step counts as late when it begins this long after its place on the grid."""


@dataclass(frozen=True)
class LoopConfig:
    """Cadence (paper, §3.2.3 and §4.3)."""

    duration_s: float
    interval_s: float = 10.0
    settle_s: float = 0.5
    """Between the last action and the reading of the post-action state."""
    endure_endpoint: bool = False
    """Go on when the model's endpoint is gone, losing the step; for a controller that is attached
    to a load balancer in service. A benchmark's run must end instead."""

    @property
    def places(self) -> int:
        """Places on the grid: 60 for 600 s at 10 s."""
        # The small term forgives binary fractions such as 0.3 / 0.1.
        return int(self.duration_s / self.interval_s + 1e-9)


@dataclass(frozen=True)
class LoopResult:
    """What a run of the loop came to."""

    planned: int
    """Places on the grid."""
    completed: int
    """Steps that were carried out, lost ones included."""
    failed: int
    """Steps that the policy lost."""
    late: int
    stopped: bool
    """Whether the loop was asked to end before its time."""


def next_place(done: int, elapsed_s: float, interval_s: float) -> int:
    """The place of the step after place `done`: the latest one due, never one twice."""
    return max(done + 1, int(elapsed_s / interval_s + 1e-9))


class ControlLoop:
    """The loop over one backend. `run` is called once.

    `on_step` is given each step's record, for progress. `stop` ends the loop soon: no step starts
    after it is set, and one that is deciding acts no more.
    """

    def __init__(
        self,
        policy: Policy,
        telemetry: Telemetry,
        actuator: Actuator,
        guardrails: Guardrails,
        clock: Clock,
        config: LoopConfig,
        recorder: Recorder | None = None,
        on_step: Callable[[dict[str, Any]], None] | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._policy = policy
        self._telemetry = telemetry
        self._actuator = actuator
        self._guardrails = guardrails
        self._clock = clock
        self._config = config
        self._recorder = recorder or NullRecorder()
        self._on_step = on_step
        self._stop = stop or threading.Event()
        self._history: list[ExecutedAction] = []
        self._t0_s = 0.0

    def run(self, t0_us: int | None = None) -> LoopResult:
        """Run for `duration_s` from `t0_us` (unix µs; now when None).

        Raises `HAProxyError`, `TelemetryError` and `EndpointUnavailable` as infrastructure
        failures; records written until then are whole.
        """
        self._t0_s = self._clock.monotonic_s()
        if t0_us is not None:
            self._t0_s -= (self._clock.time_us() - t0_us) / 1e6
        interval_s = self._config.interval_s
        completed = failed = late = 0
        place = max(0, next_place(-1, self._elapsed_s(), interval_s))
        while place < self._config.places and not self._stop.is_set():
            self._clock.sleep_s(place * interval_s - self._elapsed_s())
            if self._stop.is_set() or self._elapsed_s() >= self._config.duration_s:
                break
            record = self._step(completed, place * interval_s)
            if record is None:
                break
            completed += 1
            failed += record["error"] is not None
            late += record["late"]
            place = next_place(place, self._elapsed_s(), interval_s)
        return LoopResult(self._config.places, completed, failed, late, self._stop.is_set())

    def stop(self) -> None:
        """End the loop soon; from any thread. A policy that can be interrupted is."""
        self._stop.set()
        interrupt = getattr(self._policy, "interrupt", None)
        if interrupt is not None:
            interrupt()

    def _elapsed_s(self) -> float:
        return self._clock.monotonic_s() - self._t0_s

    def _step(self, number: int, scheduled_s: float) -> dict[str, Any] | None:
        """One step; its record, or None when the loop was asked to stop meanwhile."""
        started_s = self._elapsed_s()
        timings: dict[str, float] = {}
        with self._timed(timings, "observe"):
            snapshot = self._telemetry.observe()
        with self._timed(timings, "decide"):
            decision = self._decide(snapshot)
        if self._stop.is_set() or self._cut_off(decision):
            self._record_conversation(number, started_s, decision)
            return None
        with self._timed(timings, "guard"):
            guarded = self._guardrails.apply(decision.actions, snapshot)
        # The load has ended by then: acting on it would only blur the run's end state.
        actions = guarded.actions if self._elapsed_s() < self._config.duration_s else ()
        with self._timed(timings, "act"):
            results = self._actuator.execute(actions)
        executed_s = self._elapsed_s()
        now_us = self._clock.time_us()
        self._history += [ExecutedAction(now_us, r.action) for r in results if r.ok]
        with self._timed(timings, "settle"):
            self._clock.sleep_s(self._config.settle_s)
        with self._timed(timings, "post"):
            post = self._actuator.read()
        timings["total"] = round(self._elapsed_s() - started_s, 6)
        record = {
            "step": number,
            "scheduled_s": scheduled_s,
            "started_s": round(started_s, 6),
            "snapshot": snapshot_json(snapshot),
            **_plan_json(decision, guarded),
            "results": to_json(results),
            "post": post_json(post),
            "rationale": to_json(decision.rationale),
            "reasoning": to_json(decision.reasoning),
            "validation_errors": to_json(decision.validation_errors),
            "usage": to_json(decision.usage),
            "error": to_json(decision.error),
            "timings_s": timings,
            "executed_s": round(executed_s, 6),
            "late": started_s - scheduled_s > LATE_S,
        }
        self._record(record, decision)
        return record

    def _cut_off(self, decision: Decision) -> bool:
        """Whether the run ended while the policy was deciding: that is no step, nor a lost one."""
        return decision.error is not None and self._elapsed_s() >= self._config.duration_s

    def _decide(self, snapshot: Snapshot) -> Decision:
        try:
            return self._policy.decide(snapshot, tuple(self._history))
        except Exception as error:
            # A policy is somebody else's code: whatever breaks in it costs its step, not the run.
            reason = f"policy raised {type(error).__name__}: {str(error)[:200]}"
            return Decision(actions=(), error=reason)

    def _record(self, record: dict[str, Any], decision: Decision) -> None:
        self._recorder.step(record)
        self._record_conversation(record["step"], record["started_s"], decision)
        if self._on_step is not None:
            self._on_step(record)
        if decision.infrastructure and not self._config.endure_endpoint:
            raise EndpointUnavailable(decision.error or "the model's endpoint is gone")

    def _record_conversation(self, step: int, started_s: float, decision: Decision) -> None:
        if decision.conversation:
            turns: Sequence[Any] = to_json(decision.conversation)
            self._recorder.conversation(
                {"step": step, "started_s": round(started_s, 6), "turns": turns}
            )

    @contextmanager
    def _timed(self, timings: dict[str, float], phase: str) -> Any:
        before = self._clock.monotonic_s()
        yield
        timings[phase] = round(self._clock.monotonic_s() - before, 6)


def _plan_json(decision: Decision, guarded: GuardedPlan) -> dict[str, Any]:
    return {
        "raw_plan": to_json(decision.actions),
        "guarded_plan": to_json(guarded.actions),
        "interventions": to_json(guarded.interventions),
    }
