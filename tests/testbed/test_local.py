"""The local driver passes the suite, and what is only true of processes."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import polars as pl
import psutil
import pytest

from testbed import leftovers, ports, programs
from testbed.api import BACKEND_NAME, Addresses, Testbed, TestbedSpec
from testbed.errors import ComponentDied, OutputFailed, ProgramMissing, StartTimeout
from testbed.factory import create
from testbed.runtime_socket import ask, servers
from testbed.workdir import WorkDir
from tests.requirements import require
from tests.testbed import builders
from tests.testbed.conformance import Rig, Slots, TestbedConformance


class LocalRig(Rig):
    """Folders and processes."""

    kind = "local"

    def create(self, spec: TestbedSpec) -> Testbed:
        return create("local", spec)

    def ask(self, addresses: Addresses, command: str) -> str:
        return ask(addresses.runtime_socket, command)

    def slots(self, addresses: Addresses) -> Slots:
        return servers(addresses.runtime_socket, BACKEND_NAME)

    def traces(self, run_id: str) -> set[str]:
        found = set()
        for path in self._folders(run_id):
            found.add(str(path))
            for process in psutil.process_iter():
                try:
                    if Path(process.cwd()) == path:
                        found.add(f"{process.pid} {process.create_time()} {process.name()}")
                except psutil.Error:
                    continue
        return found

    def remaining(self, traces: set[str]) -> set[str]:
        return {trace for trace in traces if self._exists(trace)}

    def kill(self, run_id: str, component: str) -> None:
        (path,) = self._folders(run_id)
        os.kill(WorkDir(path).children()[component].pid, signal.SIGKILL)

    def sweep(self) -> None:
        leftovers.sweep_leftovers()

    @staticmethod
    def _folders(run_id: str) -> list[Path]:
        return [info.path for info in leftovers.list_testbeds() if info.run_id == run_id]

    @staticmethod
    def _exists(trace: str) -> bool:
        if trace.startswith("/"):
            return Path(trace).exists()
        pid, created, _ = trace.split(" ", 2)
        try:
            process = psutil.Process(int(pid))
            return (
                str(process.create_time()) == created and process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.Error:
            return False


@pytest.fixture(scope="module")
def rig() -> LocalRig:
    for name in programs.NEEDED:
        require({"redis": "valkey"}.get(name, name), lambda name=name: programs.find(name))
    return LocalRig()


class TestLocal(TestbedConformance):
    """The suite."""

    __test__ = True


def test_a_ramp_through_a_file(rig: LocalRig, tmp_path: Path) -> None:
    ramp = builders.load(
        vus=20,
        duration_s=4,
        profile="ramp",
        telemetry="file",
        start_rate_rps=20,
        stages=((2.0, 100.0), (2.0, 100.0)),
    )
    spec = builders.spec(2, ramp)
    testbed = rig.create(spec)
    try:
        testbed.start()
        started_us = testbed.start_load(tmp_path)
        result = testbed.wait_load()
    finally:
        testbed.stop()
    rows = pl.read_parquet(tmp_path / "requests.parquet")
    # 2 s from 20 to 100 per second, 2 s at 100: 320 arrivals, less those nobody was free for.
    assert result.requests + result.dropped_iterations == pytest.approx(320, abs=15)
    assert result.rows == result.requests == len(rows) > 100
    assert result.expected_rate_rps is None
    assert result.started_at_us == started_us
    assert rows.select("vu", "iteration").is_unique().all()


def test_a_dead_worker_ends_its_backend(rig: LocalRig, tmp_path: Path) -> None:
    spec = builders.spec(1, builders.load(vus=2, duration_s=60))
    testbed = rig.create(spec)
    try:
        testbed.start()
        testbed.start_load(tmp_path)
        (path,) = rig._folders(spec.run_id)
        master = psutil.Process(WorkDir(path).children()["backend-1"].pid)
        (worker,) = master.children()
        worker.kill()
        with pytest.raises(ComponentDied, match="backend-1 ended on its own"):
            testbed.wait_load()
    finally:
        testbed.stop()


@pytest.mark.parametrize("component", ["haproxy", "backend-1"])
def test_a_stopped_component_ends_the_load_although_it_goes_on(
    rig: LocalRig, tmp_path: Path, component: str
) -> None:
    """What waited meanwhile must not pass as slow requests of a run that counts."""
    spec = builders.spec(1, builders.load(vus=2, duration_s=8))
    testbed = rig.create(spec)
    try:
        testbed.start()
        testbed.start_load(tmp_path)
        (path,) = rig._folders(spec.run_id)
        stopped = psutil.Process(WorkDir(path).children()[component].pid)
        stopped = (stopped.children() or [stopped])[0]
        stopped.suspend()
        resume = threading.Timer(3, stopped.resume)
        resume.start()
        with pytest.raises(ComponentDied, match=f"{component} was stopped by a signal"):
            testbed.wait_load()
    finally:
        testbed.stop()
        resume.cancel()


def test_a_taken_port_a_bad_out_dir_and_a_dead_master(
    rig: LocalRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three faults on one testbed: a start takes 5 s."""
    spec = builders.spec(1)
    (tmp_path / "taken").write_text("")
    testbed = rig.create(spec)
    try:
        with ports.listening_socket() as other:
            taken = int(ports.address(other).split(":")[1])
            offered = [taken, taken, ports.free_port()]
            monkeypatch.setattr(ports, "free_port", lambda: offered.pop(0))
            addresses = testbed.start()
        assert offered == []
        assert not addresses.redis_url.endswith(f":{taken}")
        with pytest.raises(OutputFailed, match="can't be written"):
            testbed.start_load(tmp_path / "taken")
        (path,) = rig._folders(spec.run_id)
        master = psutil.Process(WorkDir(path).children()["backend-1"].pid)
        workers = master.children()
        master.kill()
        gone, alive = psutil.wait_procs(workers, timeout=15)
        assert gone and not alive
        with pytest.raises(ComponentDied, match="backend-1"):
            testbed.check()
    finally:
        testbed.stop()


def test_everything_missing_is_said_at_once(tmp_path: Path) -> None:
    paths = {name: str(tmp_path / name) for name in ("haproxy", "k6")}
    with pytest.raises(ProgramMissing) as caught:
        create("local", builders.spec(programs=paths)).start()
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines if "no executable" in line] == ["haproxy", "k6"]


def test_a_start_that_takes_too_long_explains_itself(rig: LocalRig) -> None:
    spec = builders.spec(1, start_timeout_s=0.2)
    with pytest.raises(StartTimeout, match=r"waited .* last seen: .* try: "):
        rig.create(spec).start()
    assert rig.traces(spec.run_id) == set()


def test_a_component_that_can_not_start_is_named(rig: LocalRig, tmp_path: Path) -> None:
    broken = tmp_path / "prometheus"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "prometheus, version 2.42.0"\nexit 3\n'
    )
    broken.chmod(0o755)
    spec = builders.spec(1, programs={"prometheus": str(broken)})
    with pytest.raises(ComponentDied, match=r"prometheus ended on its own \(exit code 3\)"):
        rig.create(spec).start()
    assert rig.traces(spec.run_id) == set()
