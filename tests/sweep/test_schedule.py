"""The scheduler, driven by hand and by random histories; no Ray, no clock."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sweep.grid import RunPoint
from sweep.schedule import (
    GiveUp,
    ReplaceTestbed,
    RunEnded,
    Scheduler,
    ServerFailed,
    ServerReady,
    ServerStopped,
    Started,
    StartRun,
    StartServer,
    StopAsked,
    StopServer,
    TestbedReady,
)


def point(run_id: str, model: str | None = None) -> RunPoint:
    return RunPoint(
        run_id=run_id,
        model=model or "static",
        mode="none",
        algorithm="leastconn",
        scale=3,
        seed=42,
        policy="llm" if model else "static",
        fingerprint="1-0",
        config={},
    )


def test_baselines_first_then_each_model_is_loaded_once():
    points = [point("s1"), point("a1", "a"), point("a2", "a"), point("b1", "b")]
    scheduler = Scheduler(points, testbeds=1, max_attempts=2)
    assert scheduler.handle(Started()) == [StartRun("s1", 0, 1, None)]
    assert scheduler.handle(RunEnded("s1", "complete")) == [StartServer("a")]
    assert scheduler.handle(ServerReady("a", 1)) == [StartRun("a1", 0, 1, "a")]
    assert scheduler.handle(RunEnded("a1", "complete")) == [StartRun("a2", 0, 1, "a")]
    assert scheduler.handle(RunEnded("a2", "complete")) == [StopServer("a")]
    assert scheduler.handle(ServerStopped("a")) == [StartServer("b")]
    assert scheduler.handle(ServerReady("b", 1)) == [StartRun("b1", 0, 1, "b")]
    assert scheduler.handle(RunEnded("b1", "complete")) == [StopServer("b")]
    assert not scheduler.finished
    assert scheduler.handle(ServerStopped("b")) == []
    assert scheduler.finished
    assert scheduler.complete == ["s1", "a1", "a2", "b1"]


def test_an_infrastructure_failure_is_tried_again_on_the_warm_model_and_then_given_up():
    scheduler = Scheduler([point("a1", "a"), point("a2", "a")], testbeds=1, max_attempts=2)
    assert scheduler.handle(Started()) == [StartServer("a")]
    scheduler.handle(ServerReady("a", 1))
    assert scheduler.handle(RunEnded("a1", "infrastructure", "redis died")) == [
        StartRun("a1", 0, 2, "a")
    ]
    assert scheduler.handle(RunEnded("a1", "infrastructure", "redis died")) == [
        GiveUp("a1", "redis died"),
        StartRun("a2", 0, 1, "a"),
    ]
    assert scheduler.failed == {"a1": "redis died"}


def test_a_failure_of_the_run_itself_is_not_tried_again():
    scheduler = Scheduler([point("s1")], testbeds=1, max_attempts=5)
    scheduler.handle(Started())
    assert scheduler.handle(RunEnded("s1", "fatal", "bug")) == [GiveUp("s1", "bug")]
    assert scheduler.finished


def test_a_lost_server_is_replaced_before_the_next_try():
    scheduler = Scheduler([point("a1", "a")], testbeds=1, max_attempts=2)
    scheduler.handle(Started())
    scheduler.handle(ServerReady("a", 1))
    assert scheduler.handle(RunEnded("a1", "infrastructure", "gone", server_lost=True)) == [
        StopServer("a")
    ]
    assert scheduler.handle(ServerStopped("a")) == [StartServer("a")]
    assert scheduler.handle(ServerReady("a", 1)) == [StartRun("a1", 0, 2, "a")]


def test_a_lost_testbed_is_replaced_and_not_used_meanwhile():
    scheduler = Scheduler([point("s1"), point("s2")], testbeds=1, max_attempts=2)
    scheduler.handle(Started())
    out = scheduler.handle(RunEnded("s1", "infrastructure", "worker died", testbed_lost=True))
    assert out == [ReplaceTestbed(0)]
    assert scheduler.handle(TestbedReady(0)) == [StartRun("s1", 0, 2, None)]


def test_a_server_that_never_starts_fails_its_runs_and_no_others():
    scheduler = Scheduler(
        [point("a1", "a"), point("a2", "a"), point("b1", "b")], testbeds=1, max_attempts=2
    )
    assert scheduler.handle(Started()) == [StartServer("a")]
    assert scheduler.handle(ServerFailed("a", "out of memory", retryable=True)) == [
        StartServer("a")
    ]
    assert scheduler.handle(ServerFailed("a", "out of memory", retryable=True)) == [
        GiveUp("a1", "model server: out of memory"),
        GiveUp("a2", "model server: out of memory"),
        StartServer("b"),
    ]


def test_a_permanent_server_failure_is_not_tried_again():
    scheduler = Scheduler([point("a1", "a")], testbeds=1, max_attempts=3)
    scheduler.handle(Started())
    assert scheduler.handle(ServerFailed("a", "no weights", retryable=False)) == [
        GiveUp("a1", "model server: no weights")
    ]


def test_slots_limit_the_runs_that_share_a_model():
    points = [point(f"a{i}", "a") for i in range(4)]
    scheduler = Scheduler(points, testbeds=3, max_attempts=1)
    scheduler.handle(Started())
    started = scheduler.handle(ServerReady("a", 2))
    assert started == [StartRun("a0", 0, 1, "a"), StartRun("a1", 1, 1, "a")]


def test_no_model_is_loaded_while_a_run_is_measured():
    scheduler = Scheduler([point("s1"), point("a1", "a")], testbeds=2, max_attempts=1)
    assert scheduler.handle(Started()) == [StartRun("s1", 0, 1, None)]


def test_nothing_starts_after_a_stop():
    scheduler = Scheduler([point("s1"), point("s2")], testbeds=1, max_attempts=2)
    scheduler.handle(Started())
    assert scheduler.handle(StopAsked()) == []
    assert scheduler.handle(RunEnded("s1", "interrupted")) == []
    assert scheduler.finished
    assert scheduler.complete == []


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_every_run_ends_once_and_the_rules_hold(seed):
    """A random world answers every instruction in random order with random outcomes."""
    rng = random.Random(seed)
    points = [point(f"s{i}") for i in range(rng.randrange(4))]
    for model in "abc"[: rng.randrange(4)]:
        points += [point(f"{model}{i}", model) for i in range(1, 1 + rng.randrange(1, 4))]
    testbeds, slots = rng.randrange(1, 4), rng.randrange(1, 3)
    scheduler = Scheduler(points, testbeds=testbeds, max_attempts=rng.randrange(1, 4))
    pending = []
    tries = Counter()
    pending += scheduler.handle(Started())
    busy = {i.run_id for i in pending if isinstance(i, StartRun)}
    for _ in range(1000):
        if not pending:
            break
        instruction = pending.pop(rng.randrange(len(pending)))
        match instruction:
            case StartServer(model):
                assert not busy, "a model is loaded only when nothing is measured"
                failed = rng.random() < 0.2
                event = (
                    ServerFailed(model, "x", rng.random() < 0.7)
                    if failed
                    else ServerReady(model, slots)
                )
            case StopServer(model):
                event = ServerStopped(model)
            case ReplaceTestbed(testbed):
                event = TestbedReady(testbed)
            case StartRun(run_id, testbed, attempt, _):
                tries[run_id] += 1
                assert attempt == tries[run_id] <= scheduler.max_attempts
                outcome = rng.choice(["complete", "complete", "infrastructure", "fatal"])
                lost = outcome == "infrastructure" and rng.random() < 0.5
                event = RunEnded(run_id, outcome, "x", lost, lost and rng.random() < 0.5)
            case GiveUp():
                continue
        if isinstance(event, RunEnded):
            busy.discard(event.run_id)
        new = scheduler.handle(event)
        for started in (i for i in new if isinstance(i, StartRun)):
            assert started.run_id not in busy
            busy.add(started.run_id)
        assert len(busy) <= testbeds
        assert len({i.testbed for i in pending + new if isinstance(i, StartRun)}) == len(busy)
        pending += new
    assert scheduler.finished
    ended = [*scheduler.complete, *scheduler.failed]
    assert sorted(ended) == sorted(p.run_id for p in points)
