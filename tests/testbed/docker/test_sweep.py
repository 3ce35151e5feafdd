"""A whole sweep on docker testbeds: the same command, the same records."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import polars as pl
import pytest

from testbed.docker import labels
from tests.testbed.conformance import eventually
from tests.testbed.docker.rig import DockerRig

RUNS = {
    f"static-{mode}_{algorithm}_n2_s42"
    for mode in ("error_on", "error_off")
    for algorithm in ("leastconn", "roundrobin")
}


@pytest.fixture(scope="module")
def store(rig: DockerRig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run store of a sweep of four short runs, two at a time."""
    folder = tmp_path_factory.mktemp("sweep") / f"docker-{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "sweep", "-m", "testbed=docker", "model=static", "scale=2"]
    command += ["duration_s=10", "controller.interval_s=5", "sweep.testbeds=2"]
    command += [f"sweep.dir={folder}", "sweep.dashboard=false", "testbed.start_timeout_s=240"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_all_runs_are_complete(store: Path) -> None:
    assert {path.name for path in (store / "runs").iterdir()} == RUNS


@pytest.mark.parametrize("run_id", sorted(RUNS))
def test_a_run_has_the_records_of_any_testbed(store: Path, run_id: str) -> None:
    folder = store / "runs" / run_id
    summary = json.loads((folder / "summary.json").read_text())
    rows = pl.read_parquet(folder / "requests.parquet")
    assert summary["testbed"] == "docker"
    assert summary["load"]["rows"] == summary["load"]["requests"] == len(rows) > 50
    assert summary["ground_truth"]["matches"] is True
    assert summary["ground_truth"]["expected"] == (1 if "error_on" in run_id else 0)
    assert summary["steps"]["completed"] >= 1
    assert set(summary["slots"]) == {"api-1", "api-2"}
    assert all(address.endswith(":8000") for address in summary["slots"].values())
    assert sorted(summary["slot_backends"].values()) == ["backend-1", "backend-2"]
    faulty = [summary["slot_backends"][slot] for slot in summary["ground_truth"]["faulty_slots"]]
    assert faulty == (["backend-2"] if "error_on" in run_id else [])
    usage = summary["usage"]
    assert {"k6", "haproxy", "prometheus", "redis", "backends"} <= usage.keys()
    assert all(used["cpu_s"] > 0 and used["throttled_s"] is not None for used in usage.values())
    assert summary["versions"]["docker"]


def test_nothing_outlives_a_killed_driver(rig: DockerRig, tmp_path: Path) -> None:
    name = f"docker-{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "sweep", "testbed=docker", "model=static", "scale=1"]
    command += ["mode=error_on", "duration_s=120", f"sweep.dir={tmp_path / name}"]
    command += ["sweep.dashboard=false", "testbed.start_timeout_s=240"]
    log = (tmp_path / "log").open("w")
    driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        assert eventually(lambda: len(ours(rig, name)) >= 6, 120), (tmp_path / "log").read_text()
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    assert eventually(lambda: ours(rig, name) == [], 30), ours(rig, name)


def ours(rig: DockerRig, sweep: str) -> list[str]:
    """Ids of containers and networks of a sweep."""
    mark = {"label": f"{labels.SWEEP}={sweep}"}
    found = rig.engine.api.containers(all=True, filters=mark) + rig.engine.api.networks(
        filters=mark
    )
    return [item["Id"] for item in found]


def test_the_sweep_left_nothing(store: Path, rig: DockerRig) -> None:
    assert ours(rig, store.name) == []
