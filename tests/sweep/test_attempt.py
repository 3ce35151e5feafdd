"""One attempt on the real programs: what it leaves, and what happens when a part of it dies."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time

import polars as pl
import pytest

from sweep.cluster.messages import Lease, Task
from sweep.run.attempt import AttemptControl, run_attempt
from tests.sweep.runs import (
    BOUNDS,
    descendants,
    kill,
    open_task,
    point,
    require_local_testbed,
    wait_until,
)


@pytest.fixture(autouse=True)
def programs():
    require_local_testbed()


def in_background(task):
    """Start an attempt in a thread; returns its control and a function that gives its report."""
    control, reports = AttemptControl(task.point), []
    thread = threading.Thread(target=lambda: reports.append(run_attempt(task, control)))
    thread.start()

    def report(timeout_s: float = 60.0):
        thread.join(timeout_s)
        assert not thread.is_alive(), "the attempt did not end"
        return reports[0]

    return control, report


def no_testbed_processes():
    names = ("haproxy", "prometheus", "gunicorn", "valkey-server", "k6")
    return not [p for name in names for p in descendants(os.getpid(), name)]


def test_a_complete_run_leaves_consistent_files_and_no_process(tmp_path):
    run = point(
        "model=baseline/threshold",
        "mode=none",
        "duration_s=14",
        "controller.interval_s=2",
        "model.params.persist_intervals=1",
        "model.params.halvings_before_drain=0",
    )
    task, paths = open_task(tmp_path, run)
    control = AttemptControl(run)
    report = run_attempt(task, control)
    assert report.outcome == "complete", report

    summary = json.loads(paths.summary.read_text())
    requests = pl.read_parquet(paths.requests)
    counters = pl.read_parquet(paths.counters)
    steps = [json.loads(line) for line in paths.steps.read_text().splitlines()]

    # The client's own record, the load generator's count and HAProxy's agree.
    assert requests.height == summary["load"]["requests"] > 500
    assert requests.select("vu", "iteration").n_unique() == requests.height
    client_5xx = requests.filter(pl.col("status") == 500).height
    assert client_5xx == summary["load"]["http_5xx"] > 0
    last = counters.filter(pl.col("ts_us") == pl.col("ts_us").max())
    assert last.height == 3
    assert last["http_5xx_total"].sum() == client_5xx
    # Ground truth is the one slot with errors, and the rule found it and drained it.
    (faulty,) = last.filter(pl.col("http_5xx_total") > 0)["slot"].to_list()
    assert summary["ground_truth"] == {"faulty_slots": [faulty], "expected": 1, "matches": True}
    drains = [r["action"]["server"] for s in steps for r in s["results"] if r["ok"]]
    assert faulty in drains
    assert last.filter(pl.col("slot") == faulty)["admin_state"].to_list() == ["drain"]
    assert len(steps) == summary["steps"]["completed"] == 7
    assert [s["scheduled_s"] for s in steps] == [0, 2, 4, 6, 8, 10, 12]
    # Times add up, and the phases are all there.
    assert summary["phases_s"]["total"] == pytest.approx(
        summary["phases_s"]["overhead"] + 14, abs=0.01
    )
    assert {"testbed_start", "load", "collect", "teardown"} <= summary["phases_s"].keys()
    assert requests["ts_us"].min() >= summary["t0_us"] - 1000
    # The window was not full, and the record says so.
    assert not steps[-1]["snapshot"]["window"]["full"]
    assert no_testbed_processes()


@pytest.mark.parametrize("victim", ["haproxy", "prometheus", "valkey-server", "k6", "gunicorn"])
def test_a_part_that_dies_makes_the_attempt_an_infrastructure_failure(victim, tmp_path):
    run = point("model=static", "mode=error_on", "duration_s=60")
    task, paths = open_task(tmp_path, run)
    control, report = in_background(task)
    wait_until(lambda: control.progress().step >= 1, 40, "the first step")
    kill(descendants(os.getpid(), victim)[0])
    killed_at = time.monotonic()
    ended = report()
    assert ended.outcome == "infrastructure", ended
    assert time.monotonic() - killed_at < 20
    assert not paths.summary.exists(), "a failed attempt has no summary: it can't be counted"
    assert (paths.logs / "error.txt").exists()
    assert no_testbed_processes()


def test_a_run_that_is_interrupted_says_so_and_stops_everything(tmp_path):
    run = point("model=static", "mode=error_on", "duration_s=60")
    task, paths = open_task(tmp_path, run)
    control, report = in_background(task)
    wait_until(lambda: control.progress().step >= 1, 40, "the first step")
    control.interrupt()
    assert report().outcome == "interrupted"
    assert not paths.summary.exists()
    assert no_testbed_processes()


def test_an_interrupt_before_the_start_ends_the_attempt_too(tmp_path):
    run = point("model=static", "mode=error_on", "duration_s=60")
    task, _ = open_task(tmp_path, run)
    control = AttemptControl(run)
    control.interrupt()
    assert run_attempt(task, control).outcome == "interrupted"
    assert no_testbed_processes()


def test_a_model_endpoint_that_is_gone_condemns_the_server_not_the_model(tmp_path):
    run = point("model=local/smollm2-135m", "mode=none", "duration_s=30")
    task, _ = open_task(tmp_path, run)
    nobody = Lease(1, "http://127.0.0.1:9/v1", "key", "smollm2-135m")
    ended = run_attempt(Task(run, task.store, task.number, nobody, BOUNDS), AttemptControl(run))
    assert (ended.outcome, ended.server_lost) == ("infrastructure", True), ended


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small file system")
def test_a_full_disk_is_told_as_such(tmp_path):
    store = tmp_path / "small"
    store.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(store)], check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can't be mounted here")
    try:
        run = point("model=static", "mode=error_on", "duration_s=30")
        task, _ = open_task(store, run)
        ended = run_attempt(task, AttemptControl(run))
        assert ended.outcome == "storage", ended
        assert "can't be written" in ended.reason
        assert no_testbed_processes()
    finally:
        subprocess.run(["umount", "-l", str(store)], check=True)


def test_progress_is_told_by_phase_and_step(tmp_path):
    run = point("model=static", "mode=error_on", "duration_s=30")
    control = AttemptControl(run)
    assert (control.progress().phase, control.progress().steps) == ("preparing", 3)
    control.enter("load")
    control.on_step({"step": 1, "snapshot": {"errors_per_s_total": 1.5}})
    progress = control.progress()
    assert (progress.phase, progress.step, progress.errors_per_s) == ("load", 2, 1.5)
