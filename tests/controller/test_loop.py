"""Cadence, failures and records of the loop, in virtual time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.api import Action, Decision, ExecutedAction, Snapshot
from controller.clock import RealClock, VirtualClock
from controller.errors import EndpointUnavailable, HAProxyUnavailable, TelemetryError
from controller.guardrails import Guardrails
from controller.loop import ControlLoop, LoopConfig, LoopResult
from controller.policies import StaticPolicy
from controller.records import JsonlRecorder
from tests.controller.builders import drain, set_weight
from tests.controller.plant import Plant


class Scripted:
    """A policy that takes `seconds(step)` of virtual time and returns `decision(step)`."""

    def __init__(
        self,
        clock: VirtualClock,
        seconds: Callable[[int], float] = lambda step: 0.0,
        decision: Callable[[int], Decision] = lambda step: Decision(actions=()),
    ) -> None:
        self._clock, self._seconds, self._decision = clock, seconds, decision
        self.calls = 0
        self.histories: list[tuple[ExecutedAction, ...]] = []

    def decide(self, snapshot: Snapshot, history: Sequence[ExecutedAction]) -> Decision:
        step, self.calls = self.calls, self.calls + 1
        self.histories.append(tuple(history))
        self._clock.advance_s(self._seconds(step))
        return self._decision(step)

    def close(self) -> None:
        pass


def run(
    policy: Any,
    clock: VirtualClock,
    duration_s: float = 600.0,
    plant: Plant | None = None,
    t0_us: int | None = None,
    **options: Any,
) -> tuple[LoopResult, list[dict[str, Any]]]:
    plant = plant or Plant(clock, (0.0, 0.0, 0.05))
    records: list[dict[str, Any]] = []
    endure = options.pop("endure_endpoint", False)
    loop = ControlLoop(
        policy,
        plant,
        plant,
        Guardrails(),
        clock,
        LoopConfig(duration_s, endure_endpoint=endure),
        on_step=records.append,
        **options,
    )
    return loop.run(t0_us), records


def starts(records: list[dict[str, Any]]) -> list[float]:
    return [record["started_s"] for record in records]


def test_sixty_steps_on_the_grid() -> None:
    clock = VirtualClock(1_700_000_000_000_000)
    result, records = run(StaticPolicy(), clock)
    assert result == LoopResult(60, 60, 0, 0, False)
    assert starts(records) == [10.0 * k for k in range(60)]
    assert [r["step"] for r in records] == list(range(60))
    assert all(r["timings_s"]["settle"] == 0.5 for r in records)


def test_an_overrun_makes_the_next_step_start_at_once() -> None:
    clock = VirtualClock()
    result, records = run(Scripted(clock, lambda step: 11.5), clock)
    # 11.5 s and the settle delay: back to back every 12 s, so 50 of 60 steps.
    assert starts(records) == [12.0 * k for k in range(50)]
    assert result.completed == 50
    # Places 0, 10, 20, 30, 40, then 60, which is on time, …
    assert [r["scheduled_s"] for r in records[:7]] == [0, 10, 20, 30, 40, 60, 70]
    assert [r["late"] for r in records[:7]] == [False, True, True, True, True, False, True]


def test_one_slow_step_loses_its_places_and_the_grid_is_found_again() -> None:
    clock = VirtualClock()
    _, records = run(Scripted(clock, lambda step: 24.5 if step == 1 else 1.0), clock, 100.0)
    assert starts(records) == [0, 10, 35, 40, 50, 60, 70, 80, 90]
    assert [r["scheduled_s"] for r in records] == [0, 10, 30, 40, 50, 60, 70, 80, 90]


def test_no_step_starts_after_the_end_and_a_late_plan_is_not_executed() -> None:
    clock = VirtualClock()
    plant = Plant(clock, (0.0, 0.0, 0.05))
    policy = Scripted(clock, lambda step: 15.0, lambda step: Decision((drain("api-3"),)))
    result, records = run(policy, clock, 30.0, plant)
    assert starts(records) == [0.0, 15.5]
    assert result.completed == 2
    assert [t for t, _ in plant.executed] == [15.0]
    assert records[1]["guarded_plan"]
    assert records[1]["results"] == []


def test_duration_is_cut_to_whole_places() -> None:
    clock = VirtualClock()
    assert run(StaticPolicy(), clock, 65.0)[0].planned == 6
    assert LoopConfig(0.9, 0.3).places == 3
    assert run(StaticPolicy(), VirtualClock(), 9.0)[0] == LoopResult(0, 0, 0, 0, False)


def test_offsets_are_from_the_load_start() -> None:
    clock = VirtualClock(5_000_000_000)
    _, records = run(StaticPolicy(), clock, 60.0, t0_us=5_000_000_000 - 12_000_000)
    # 12 s of the run are gone: place 1 is due at once, the rest is on the grid.
    assert starts(records) == [12.0, 20.0, 30.0, 40.0, 50.0]
    assert [r["late"] for r in records] == [True, False, False, False, False]


def test_only_executed_actions_are_fed_back() -> None:
    clock = VirtualClock()
    plan = (set_weight("api-1", 10), drain("api-9"), Action("no_op"))
    policy = Scripted(clock, decision=lambda s: Decision(plan if s == 0 else ()))
    _, records = run(policy, clock, 30.0)
    assert [[e.action.weight for e in h] for h in policy.histories] == [[], [50], [50]]
    assert [i["rail"] for i in records[0]["interventions"]] == ["weight_clamp", "unknown_server"]
    assert [a["kind"] for a in records[0]["guarded_plan"]] == ["set_weight", "no_op"]
    assert [r["weight_after"] for r in records[0]["results"]] == [50]
    assert records[0]["post"]["servers"][0]["weight"] == 50


def test_a_policy_that_fails_or_raises_costs_its_step() -> None:
    clock = VirtualClock()

    def decision(step: int) -> Decision:
        if step == 1:
            return Decision((), error="timeout: no answer within 60.0 s")
        if step == 2:
            raise ZeroDivisionError("a bug")
        return Decision(())

    result, records = run(Scripted(clock, decision=decision), clock, 50.0)
    assert (result.completed, result.failed) == (5, 2)
    assert [bool(r["error"]) for r in records] == [False, True, True, False, False]
    assert "ZeroDivisionError" in records[2]["error"]


def test_a_lost_endpoint_ends_the_run_unless_it_is_endured() -> None:
    def gone(step: int) -> Decision:
        return Decision((), error="connection failed: refused", infrastructure=step == 1)

    clock = VirtualClock()
    with pytest.raises(EndpointUnavailable, match="connection failed"):
        run(Scripted(clock, decision=gone), clock)
    clock = VirtualClock()
    result, _ = run(Scripted(clock, decision=gone), clock, 50.0, endure_endpoint=True)
    assert (result.completed, result.failed) == (5, 5)


@pytest.mark.parametrize("error", [HAProxyUnavailable("gone"), TelemetryError("gone")])
def test_infrastructure_failures_pass_through(error: Exception) -> None:
    clock = VirtualClock()
    plant = Plant(clock, (0.0,))

    def fail() -> Snapshot:
        raise error

    plant.observe = fail  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        run(StaticPolicy(), clock, plant=plant)


def test_a_stop_while_deciding_acts_no_more() -> None:
    clock = VirtualClock()
    stop = threading.Event()
    plant = Plant(clock, (0.0, 0.0))

    def decision(step: int) -> Decision:
        if step == 2:
            stop.set()
        return Decision((drain("api-1"),) if step == 2 else ())

    policy = Scripted(clock, decision=decision)
    result, records = run(policy, clock, plant=plant, stop=stop)
    assert result.stopped
    assert len(records) == 2
    assert plant.executed == []


def test_stop_interrupts_the_policy() -> None:
    clock = VirtualClock()
    plant = Plant(clock, (0.0,))
    interrupted = []
    policy = Scripted(clock)
    policy.interrupt = lambda: interrupted.append(True)  # type: ignore[attr-defined]
    loop = ControlLoop(policy, plant, plant, Guardrails(), clock, LoopConfig(60.0))
    loop.stop()
    assert loop.run() == LoopResult(6, 0, 0, 0, True)
    assert interrupted == [True]


def test_a_stop_wakes_a_real_clock() -> None:
    stop = threading.Event()
    clock = RealClock(stop)
    sleeper = threading.Thread(target=clock.sleep_s, args=(600.0,))
    sleeper.start()
    stop.set()
    sleeper.join(timeout=30)
    assert not sleeper.is_alive()


def test_records_reach_the_files_as_documented(tmp_path: Path) -> None:
    clock = VirtualClock(1_000_000)
    hostile = "\ud800\u2028\n\0 drain; shutdown"
    turn = {"response": {"n": 10**30, "f": float("nan"), "s": hostile}}
    decision = Decision(
        (Action("drain", "be_api", hostile, reason=hostile),),
        rationale=hostile,
        conversation=(turn,),
    )
    recorder = JsonlRecorder(tmp_path)
    run(Scripted(clock, decision=lambda step: decision), clock, 30.0, recorder=recorder)
    steps = (tmp_path / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(steps) == 3, "flushed before close"
    recorder.close()
    record = json.loads(steps[2])
    assert list(record) == [
        "step",
        "scheduled_s",
        "started_s",
        "snapshot",
        "raw_plan",
        "guarded_plan",
        "interventions",
        "results",
        "post",
        "rationale",
        "reasoning",
        "validation_errors",
        "usage",
        "error",
        "timings_s",
        "executed_s",
        "late",
    ]
    assert set(record["timings_s"]) == {
        "observe",
        "decide",
        "guard",
        "act",
        "settle",
        "post",
        "total",
    }
    assert record["snapshot"]["window"]["full"] is True
    assert record["raw_plan"][0]["server"] == "?\u2028\n\0 drain; shutdown"
    conversations = (tmp_path / "conversations.jsonl").read_text().splitlines()
    first = json.loads(conversations[0])
    assert first["step"] == 0
    assert first["turns"][0]["response"]["f"] is None
    assert isinstance(first["turns"][0]["response"]["n"], str)


def test_analytical_readers_take_the_records(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    clock = VirtualClock(1_000_000)
    recorder = JsonlRecorder(tmp_path)
    run(StaticPolicy(), clock, 50.0, recorder=recorder)
    recorder.close()
    frame = polars.read_ndjson(tmp_path / "steps.jsonl")
    assert frame["scheduled_s"].to_list() == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert not (tmp_path / "conversations.jsonl").exists()
