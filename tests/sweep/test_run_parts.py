"""The parts of an attempt that need no testbed: counters, judgement, errors that cross Ray."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import subprocess
import sys
import time

import polars as pl
import pytest

import sweep.errors
from sweep.cluster.guard import TOKEN, clear, members
from sweep.cluster.messages import Lease, Progress, Report
from sweep.errors import InfrastructureError
from sweep.progress import counted, duration_text
from sweep.run.attempt import require_complete
from sweep.run.counters import CounterRecorder, faulty_slots
from sweep.run.phases import Phases
from sweep.run.validity import Bounds, Evidence, invalid_reasons, warnings
from testbed.api import LoadResult
from tests.sweep.runs import wait_until

BOUNDS = Bounds(min_rate_ratio=0.9, max_load_cpu=0.95)
GOOD = Evidence(
    achieved_rate_rps=750.0,
    expected_rate_rps=760.0,
    load_cpu_s=20.0,
    load_duration_s=60.0,
    load_cpus=2,
    haproxy_cpu_s=7.0,
    dropped_iterations=0,
    transport_errors=0,
    requests=45_000,
    slots_changed=False,
    faulty_found=1,
    faulty_expected=1,
)


def reasons(**changes):
    return invalid_reasons(dataclasses.replace(GOOD, **changes), BOUNDS)


def test_a_good_run_is_valid_and_without_warnings():
    assert reasons() == []
    assert warnings(GOOD) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"achieved_rate_rps": 683.0}, "too slow: 683.0 requests/s, closed-loop expectation 760.0"),
        ({"load_cpu_s": 115.0}, "load generator saturated: 96% of 2 cores"),
        ({"haproxy_cpu_s": 58.2}, "HAProxy saturated: 97% of its one thread"),
        ({"dropped_iterations": 3}, "dropped 3 iterations"),
        ({"slots_changed": True}, "a slot changed its address"),
    ],
)
def test_what_makes_a_run_invalid_is_named_with_its_numbers(changes, reason):
    (only,) = reasons(**changes)
    assert reason in only


def test_the_bounds_themselves_are_still_valid():
    assert reasons(achieved_rate_rps=684.0) == []
    assert reasons(load_cpu_s=114.0) == []
    assert reasons(haproxy_cpu_s=57.0) == []


def test_an_open_loop_has_no_expected_rate():
    assert reasons(expected_rate_rps=None, achieved_rate_rps=1.0) == []


def test_a_mismatch_of_faulty_slots_is_told_and_does_not_void_the_run():
    evidence = dataclasses.replace(GOOD, faulty_found=0, transport_errors=2)
    assert invalid_reasons(evidence, BOUNDS) == []
    assert warnings(evidence) == [
        "0 slots returned 5xx, expected 1",
        "2 of 45000 requests got no HTTP answer",
    ]


# --- counters -------------------------------------------------------------------------------------


def row(slot, address="127.0.0.1:1", errors=0, ts_us=0):
    return {
        "ts_us": ts_us,
        "slot": slot,
        "address": address,
        "status": "UP",
        "admin_state": "ready",
        "weight": 100,
        "sessions": 1,
        "requests_total": 10,
        "http_5xx_total": errors,
    }


def load_result(**changes):
    values = dict.fromkeys((field.name for field in dataclasses.fields(LoadResult)), 0)
    return LoadResult(**{**values, "requests": 7620, "rows": 7620, **changes})


def test_every_request_must_be_one_row():
    require_complete(load_result())
    require_complete(load_result(rows=7623, duplicate_rows=3))


@pytest.mark.parametrize(
    ("rows", "duplicates", "kept"), [(7619, 0, 7619), (7621, 0, 7621), (7620, 1, 7619)]
)
def test_rows_that_are_missing_or_too_many_are_an_infrastructure_failure(rows, duplicates, kept):
    with pytest.raises(InfrastructureError, match=f"{kept} different rows of 7620 requests"):
        require_complete(load_result(rows=rows, duplicate_rows=duplicates))


def test_counters_are_sampled_until_closed_and_the_last_sample_counts(tmp_path):
    taken = 0

    def read():
        nonlocal taken
        n, taken = taken, taken + 1
        return [row("api-1", ts_us=n), row("api-2", errors=n, ts_us=n)]

    recorder = CounterRecorder(read, tmp_path / "c.parquet", interval_s=0.01, rows_per_group=4)
    recorder.start()
    wait_until(lambda: taken > 10, 60, "some samples")
    last = recorder.close()
    frame = pl.read_parquet(tmp_path / "c.parquet")
    assert frame.height == 2 * taken
    newest = frame.filter(pl.col("ts_us") == frame["ts_us"].max())
    assert newest["http_5xx_total"].to_list() == [0, last[1]["http_5xx_total"]]
    assert faulty_slots(last) == ["api-2"]
    assert not recorder.slots_changed
    assert [p.name for p in tmp_path.iterdir()] == ["c.parquet"]


def test_a_slot_that_moves_is_noticed(tmp_path):
    addresses = iter(["127.0.0.1:1", "127.0.0.1:2"])
    recorder = CounterRecorder(
        lambda: [row("api-1", next(addresses))], tmp_path / "c.parquet", interval_s=100
    )
    recorder.start()
    recorder.close()
    assert recorder.slots_changed
    assert recorder.addresses == {"api-1": "127.0.0.1:1"}


def test_a_reading_that_fails_in_the_background_is_raised_and_leaves_no_complete_file(tmp_path):
    calls = iter([True, False])

    def read():
        if not next(calls):
            raise ConnectionError("HAProxy is gone")
        return [row("api-1")]

    recorder = CounterRecorder(read, tmp_path / "c.parquet", interval_s=0.01)
    recorder.start()
    recorder._thread.join(10)
    with pytest.raises(ConnectionError, match="HAProxy is gone"):
        recorder.close()
    assert not (tmp_path / "c.parquet").exists()


# --- small things ---------------------------------------------------------------------------------


def test_phases_add_up_and_overhead_is_all_but_the_measured_time():
    entered = []
    phases = Phases(entered.append)
    for name in ("start", "load", "load"):
        with phases(name):
            time.sleep(0.01)
    seconds = phases.seconds(duration_s=0.015)
    assert entered == ["start", "load", "load"]
    assert seconds["load"] >= 0.02
    assert seconds["overhead"] == pytest.approx(seconds["total"] - 0.015, abs=0.002)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.6, "1 min 00 s"), (3661, "1 h 01 min"), (90061, "1 d 1 h"), (-3, "0 s")],
)
def test_durations_are_readable(seconds, text):
    assert duration_text(seconds) == text


def test_counts_have_their_number():
    assert [counted(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def errors():
    kinds = inspect.getmembers(sweep.errors, inspect.isclass)
    return [kind for _, kind in kinds if issubclass(kind, Exception)]


@pytest.mark.parametrize("kind", errors())
def test_errors_cross_processes_whole(kind):
    error = pickle.loads(pickle.dumps(kind("a message")))
    assert (type(error), str(error)) == (kind, "a message")


def test_messages_cross_processes_and_do_not_print_the_key():
    lease = Lease(1, "http://127.0.0.1:1/v1", "secret-key", "m")
    assert pickle.loads(pickle.dumps(lease)) == lease
    assert "secret-key" not in repr(lease)
    for message in (Report("complete", notes=("x",)), Progress("run", "load", 1, 6)):
        assert pickle.loads(pickle.dumps(message)) == message


# --- the guard ------------------------------------------------------------------------------------


def test_the_guard_kills_what_is_marked_and_only_that():
    sleep = [sys.executable, "-c", "import time; time.sleep(60)"]
    token = "test-token-of-this-test"
    ours = subprocess.Popen(sleep, env={TOKEN: token}, start_new_session=True)
    other = subprocess.Popen(sleep, env={TOKEN: "another"}, start_new_session=True)
    try:
        wait_until(lambda: ours.pid in set(members(2**30, token)), 10, "the mark to show")
        assert set(members(2**30, token)) == {ours.pid}
        killed = clear(2**30, token)
        assert killed[0] == ours.pid
        assert ours.wait(5) == -9
        assert other.poll() is None
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


def test_the_guard_finds_ray_by_its_open_session_files(tmp_path):
    session = tmp_path / "session_2026-01-02_03-04-05_678901_424242"
    session.mkdir()
    script = "import sys, time; f = open(sys.argv[1], 'w'); print(1, flush=True); time.sleep(60)"
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(session / "log")], stdout=subprocess.PIPE
    )
    try:
        process.stdout.readline()
        assert process.pid in set(members(424242, "no-such-token"))
        assert process.pid not in set(members(42424, "no-such-token"))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
