"""Whole sweeps from the command line, on the real programs and Ray, and every way to end them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import ClassVar

import psutil
import pytest

from sweep.store.paths import RunStore
from tests.requirements import require
from tests.sweep.runs import descendants, kill, require_local_testbed, wait_until

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def programs():
    require_local_testbed()
    yield
    while Sweep.started:
        Sweep.started.pop().process.kill()


class Sweep:
    """A `python -m sweep` under test; every process below it is known, so that none can hide."""

    started: ClassVar[list[Sweep]] = []

    def __init__(self, store: Path, *overrides: str) -> None:
        self.mark = uuid.uuid4().hex
        self.store = RunStore(store)
        self.seen: dict[int, float] = {}
        self.process = subprocess.Popen(
            [
                sys.executable,
                *("-m", "sweep", "-m", "algorithm=leastconn", f"sweep.dir={store}"),
                *("sweep.dashboard=false", "sweep.min_rate_ratio=0.01", "sweep.max_load_cpu=2"),
                *overrides,
            ],
            cwd=ROOT,
            env={**os.environ, "DRAINBENCH_TEST_MARK": self.mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        Sweep.started.append(self)

    def look(self) -> None:
        """Remember every process below the driver."""
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                self.seen[process.pid] = process.create_time()
            except psutil.NoSuchProcess:
                continue

    def steps(self) -> int:
        """Control steps recorded by attempts under way; fails when the sweep has ended."""
        if self.process.poll() is not None:
            pytest.fail(f"the sweep ended: {self.end()}")
        self.look()
        return sum(
            len(a.paths.steps.read_text().splitlines())
            for a in self.store.all_attempts()
            if a.paths.steps.exists() and a.paths.owner.exists()
        )

    def end(self, timeout_s: float = 300) -> tuple[int, str]:
        """Wait for the end; exit code and all output."""
        out, _ = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out

    def left(self) -> list[str]:
        """Processes of this sweep that are still there."""
        found = []
        for process in psutil.process_iter(["pid", "create_time", "name", "status"]):
            known = self.seen.get(process.info["pid"]) == process.info["create_time"]
            try:
                marked = process.environ().get("DRAINBENCH_TEST_MARK") == self.mark
            except psutil.Error:
                marked = False
            if (known or marked) and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(f"{process.info['pid']} {process.info['name']}")
        return found


def static(*more: str) -> list[str]:
    return ["model=static", "mode=error_on", *more]


def test_a_part_that_dies_costs_one_attempt_and_the_store_says_so(tmp_path):
    sweep = Sweep(tmp_path / "s", *static("duration_s=10", "controller.interval_s=2"))
    wait_until(lambda: sweep.steps() >= 1, 180, "the first step")
    (haproxy,) = descendants(sweep.process.pid, "haproxy")
    assert haproxy.nice() == psutil.Process(sweep.process.pid).nice(), "measured at low priority"
    kill(haproxy)
    code, out = sweep.end()
    assert code == 0, out
    assert "failed" in out and "(try 2)" in out
    run_id = "static-error_on_leastconn_n3_s42"
    assert sweep.store.complete_ids() == [run_id]
    assert sweep.store.read_summary(run_id)["attempt"] == 2
    (failure,) = sweep.store.read_failures()
    assert failure["outcome"] == "infrastructure"
    assert "haproxy" in failure["reason"]
    assert (sweep.store.root / failure["logs"] / "haproxy.cfg").exists()
    wait_until(lambda: not sweep.left(), 15, f"the end of {sweep.left()}")

    again = Sweep(tmp_path / "s", *static("duration_s=10", "controller.interval_s=2"))
    code, out = again.end()
    assert (code, "Nothing to do" in out) == (0, True), out

    other = Sweep(tmp_path / "s", *static("duration_s=20", "controller.interval_s=2"))
    code, out = other.end()
    assert code == 2, out
    assert "duration_s: 10 -> 20" in out and "on_mismatch" in out
    assert "Traceback" not in out


def test_a_run_that_can_not_succeed_is_given_up_and_does_not_stop_the_others(tmp_path):
    """A testbed that can't be ready in no time is tried twice, and then the next run goes on."""
    sweep = Sweep(
        tmp_path / "s",
        "model=static",
        "mode=error_on,error_off",
        "duration_s=4",
        "controller.interval_s=2",
        "testbed.start_timeout_s=0.5",
    )
    code, out = sweep.end()
    assert code == 1, out
    assert out.count("gave up") == 2
    assert "logs: " in out
    assert [f["attempt"] for f in sweep.store.read_failures()] == [1, 2, 1, 2]
    assert sweep.store.complete_ids() == []
    wait_until(lambda: not sweep.left(), 15, f"the end of {sweep.left()}")


def test_ctrl_c_stops_cleanly_says_how_to_resume_and_a_second_sweep_is_refused(tmp_path):
    sweep = Sweep(tmp_path / "s", *static("duration_s=60"))
    wait_until(lambda: sweep.steps() >= 1, 180, "the first step")
    second = Sweep(tmp_path / "s", *static("duration_s=60"))
    code, out = second.end()
    assert code == 2, out
    assert f"pid {sweep.process.pid} on" in out
    sweep.process.send_signal(signal.SIGINT)
    code, out = sweep.end(30)
    assert code == 130, out
    assert "Run the same command again" in out
    assert "Traceback" not in out
    assert sweep.store.complete_ids() == []
    wait_until(lambda: not sweep.left(), 15, f"the end of {sweep.left()}")


@pytest.mark.parametrize("moment", ["at the start", "while it loads", "at random"])
def test_sigkill_of_the_driver_leaves_nothing_and_the_next_start_completes(moment, tmp_path):
    overrides = static("duration_s=8", "controller.interval_s=2")
    sweep = Sweep(tmp_path / "s", *overrides)
    if moment == "while it loads":
        wait_until(lambda: sweep.steps() >= 2, 180, "the second step")
    elif moment == "at the start":
        wait_until(lambda: sweep.store.all_attempts(), 180, "an attempt")
    else:
        time.sleep(random.uniform(5, 15))
    if sweep.process.poll() is None:
        sweep.look()
    sweep.process.kill()
    killed_s = time.monotonic()
    sweep.process.wait()
    wait_until(lambda: not sweep.left(), 15, f"the end of {sweep.left()}")
    assert time.monotonic() - killed_s <= 15
    done_before = sweep.store.complete_ids()

    again = Sweep(tmp_path / "s", *overrides)
    code, out = again.end()
    assert code == 0, out
    assert again.store.complete_ids() == ["static-error_on_leastconn_n3_s42"]
    attempts = [f for f in again.store.read_failures() if f["outcome"] == "orphaned"]
    assert len(attempts) == (0 if done_before else len(again.store.all_attempts()))
    wait_until(lambda: not again.left(), 15, f"the end of {again.left()}")


def test_a_killed_model_server_is_replaced_and_the_run_made_again(tmp_path):
    require("llama-server")
    sweep = Sweep(
        tmp_path / "s",
        "model=local/smollm2-135m",
        "duration_s=20",
        "controller.interval_s=5",
        "load.vus_per_backend=1",
        "model.modes.none.max_tokens=16",
    )
    wait_until(lambda: sweep.steps() >= 1, 180, "the first step")
    kill(descendants(sweep.process.pid, "llama-server")[0])
    code, out = sweep.end()
    assert code == 0, out
    run_id = "smollm2-135m-none_leastconn_n3_s42"
    summary = sweep.store.read_summary(run_id)
    assert summary["attempt"] == 2
    assert summary["serving"]["epoch"] == 2
    assert summary["steps"]["completed"] >= 1
    conversations = sweep.store.run(run_id).conversations.read_text().splitlines()
    first = json.loads(conversations[0])["turns"][0]
    assert first["request"]["messages"][0]["role"] == "system"
    assert "leastconn" in first["request"]["messages"][0]["content"]
    wait_until(lambda: not sweep.left(), 15, f"the end of {sweep.left()}")
