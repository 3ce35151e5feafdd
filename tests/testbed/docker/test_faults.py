"""What can go wrong with an engine, on a real one."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docker.errors import NotFound

from testbed.api import LoadResult, TestbedSpec
from testbed.docker import labels, leftovers
from testbed.docker.driver import DockerTestbed
from testbed.docker.engine import connect
from testbed.errors import ComponentDied, OutputFailed, TestbedUnavailable
from testbed.factory import check
from tests.requirements import require
from tests.testbed import builders
from tests.testbed.conformance import eventually
from tests.testbed.docker.proxy import SlowEngine
from tests.testbed.docker.rig import DockerRig, wardens_of

SOCKET = "/var/run/docker.sock"


def small(**options: object) -> TestbedSpec:
    """A fleet of one under a load that outlasts the test."""
    return builders.spec(1, builders.load(vus=4, duration_s=120), options=options)


# --- before anything is started --------------------------------------------------------------


def test_a_missing_image_is_named_with_the_way_to_get_it(rig: DockerRig) -> None:
    spec = small(image_names={"redis": "drainbench/none:1", "k6": "drainbench/neither:2"})
    (problem,) = check("docker", spec)
    assert "drainbench/none:1: docker pull" in problem and "drainbench/neither:2" in problem
    with pytest.raises(TestbedUnavailable, match="missing Docker images"):
        rig.create(spec).start()
    assert rig.traces(spec.run_id) == set()


def test_a_key_that_means_nothing_is_found_before_a_sweep(rig: DockerRig) -> None:
    assert check("docker", small(image="debian"))[0].startswith("testbed.image is no key")
    assert check("docker", small()) == []


def test_a_pool_that_no_fleet_fits_in_is_found_before_a_sweep(rig: DockerRig) -> None:
    assert check("docker", small(subnet_pool="10.213.0.0/28")) == []
    (problem,) = check("docker", small(subnet_pool="10.213.0.0/31"))
    assert problem.startswith("testbed.subnet_pool=10.213.0.0/31 is too small")


def test_no_engine_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    (problem,) = check("docker", small())
    assert problem.startswith("Docker is not running") and "testbed=local" in problem


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming nobody takes root")
def test_no_permission_is_one_line(rig: DockerRig, tmp_path: Path) -> None:
    # A fork, for nobody may not read the interpreter's files.
    said = tmp_path / "said"
    said.touch()
    said.chmod(0o666)
    tmp_path.chmod(0o777)
    pid = os.fork()
    if pid == 0:
        try:
            text = said.open("w")
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                connect()
            except TestbedUnavailable as error:
                text.write(str(error))
            text.close()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert re.search(
        r"^no permission to use Docker: .*testbed=local needs no Docker$", said.read_text()
    )


def test_a_disk_that_is_nearly_full_is_refused(rig: DockerRig) -> None:
    spec = small(least_free_disk_mib=10**9)
    with pytest.raises(OutputFailed, match=r"MiB free, less than testbed\.least_free_disk_mib"):
        rig.create(spec).start()
    assert rig.traces(spec.run_id) == set()


def test_a_pool_that_is_in_use_is_refused(rig: DockerRig) -> None:
    taken = rig.engine.client.networks.create(
        f"drainbench-test-{uuid.uuid4().hex[:8]}",
        ipam={"Config": [{"Subnet": "10.251.247.0/28"}]},
    )
    spec = small(subnet_pool="10.251.247.0/28")
    try:
        with pytest.raises(TestbedUnavailable, match=r"no free /2\d is left in 10\.251\.247\.0/28"):
            rig.create(spec).start()
    finally:
        taken.remove()
    assert rig.traces(spec.run_id) == set()


# --- while it starts -------------------------------------------------------------------------


def test_a_container_that_ends_at_once_shows_its_last_words(rig: DockerRig) -> None:
    spec = builders.spec(1, algorithm="fairest")
    with pytest.raises(
        ComponentDied, match=r"haproxy ended .*exit code 1.*balance only supports"
    ) as caught:
        rig.create(spec).start()
    assert "\n" not in str(caught.value)
    assert rig.traces(spec.run_id) == set()


def test_a_creation_that_timed_out_is_found_and_removed(
    rig: DockerRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "slow.sock"
    # The engine makes the container; only the answer comes too late.
    slow = SlowEngine(path, b"/containers/create?name=", 30.0, SOCKET)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    spec = small(engine_timeout_s=4.0)
    try:
        with pytest.raises(ComponentDied, match=r"took more than 4 s for creating"):
            rig.create(spec).start()
    finally:
        slow.close()
    assert slow.held > 0
    assert rig.containers(spec.run_id) == {}
    assert rig.traces(spec.run_id) == set()


# --- while the load runs ---------------------------------------------------------------------


def under_load(
    rig: DockerRig, spec: TestbedSpec, out_dir: Path, act: Callable[[], None]
) -> LoadResult:
    """Do `act` to a testbed after a moment of load; raises what the testbed raises."""
    testbed = rig.create(spec)
    try:
        testbed.start()
        testbed.start_load(out_dir)
        timer = threading.Timer(1.0, act)
        timer.start()
        try:
            return testbed.wait_load()
        finally:
            timer.join()
    finally:
        testbed.stop()


def test_out_of_memory_is_said(rig: DockerRig, tmp_path: Path) -> None:
    spec = small(memory_mib={"backend": 128})

    def eat() -> None:
        backend = rig.containers(spec.run_id)["backend-1"]
        command = ["python3", "-c", "x = b'x' * (400 << 20)"]
        made = rig.engine.api.exec_create(backend, command)
        rig.engine.api.exec_start(made["Id"])

    with pytest.raises(ComponentDied, match=r"^backend-1 .*out of memory.*128 MiB"):
        under_load(rig, spec, tmp_path, eat)
    assert rig.traces(spec.run_id) == set()


def test_a_network_that_is_removed_ends_the_run(rig: DockerRig, tmp_path: Path) -> None:
    spec = small()

    def cut() -> None:
        (network,) = rig.networks(spec.run_id)
        for container in rig.containers(spec.run_id).values():
            rig.engine.api.disconnect_container_from_network(container, network, force=True)
        rig.engine.api.remove_network(network)

    with pytest.raises(ComponentDied, match=r"can't be reached \(its network was removed\)"):
        under_load(rig, spec, tmp_path, cut)
    assert rig.traces(spec.run_id) == set()


def test_an_engine_that_is_restarted_ends_the_run(rig: DockerRig, tmp_path: Path) -> None:
    restart = os.environ.get("DRAINBENCH_DOCKER_RESTART")

    def find() -> None:
        if not restart:
            raise FileNotFoundError("DRAINBENCH_DOCKER_RESTART names no command that restarts it")

    require("docker-restart", find)
    assert restart is not None
    spec = small()

    def act() -> None:
        subprocess.run(shlex.split(restart), check=True, timeout=120, stdout=subprocess.DEVNULL)

    with pytest.raises(ComponentDied):
        under_load(rig, spec, tmp_path, act)
    assert rig.traces(spec.run_id) == set()


# --- owners that die -------------------------------------------------------------------------


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that owns a testbed under load, and the run's id."""
    run_id = builders.spec().run_id
    arguments = [sys.executable, "-m", "tests.testbed.owner", "docker", run_id, str(tmp_path)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "loaded"
    yield process, run_id
    process.kill()
    process.wait()


def test_a_testbed_stops_itself_when_its_owner_is_killed(
    rig: DockerRig, owner: tuple[subprocess.Popen[str], str]
) -> None:
    process, run_id = owner
    traces = rig.traces(run_id)
    assert {trace.split()[0] for trace in traces} == {"container", "network", "folder", "warden"}
    process.send_signal(signal.SIGKILL)
    assert eventually(lambda: rig.remaining(traces) == set(), 30), rig.remaining(traces)


def test_without_its_warden_the_next_sweep_removes_it(
    rig: DockerRig, owner: tuple[subprocess.Popen[str], str]
) -> None:
    process, run_id = owner
    (info,) = [i for i in leftovers.list_testbeds(rig.engine) if i.run_id == run_id]
    assert info.owner_alive and info.owner.pid == process.pid
    first = wardens_of(info.id)
    os.kill(first[0], signal.SIGKILL)
    # It is harmless: the owner starts another one.
    assert eventually(lambda: bool(set(wardens_of(info.id)) - set(first)), 20)
    process.send_signal(signal.SIGSTOP)
    traces = rig.traces(run_id)
    os.kill(wardens_of(info.id)[-1], signal.SIGKILL)
    rig.sweep()
    assert {t for t in traces if "warden" not in t} <= rig.remaining(traces), "its owner lives"
    process.kill()
    process.wait()
    assert info.id in leftovers.sweep_leftovers(rig.engine)
    assert rig.remaining(traces) == set()


def test_only_what_is_surely_ours_and_dead_is_removed(rig: DockerRig) -> None:
    me = leftovers.Process.myself()
    from testbed import procfs
    from testbed.workdir import Owner

    def marks(name: str, process: object, boot: str) -> dict[str, str]:
        owner = Owner(process, boot, procfs.pid_namespace(), "docker", "old", False, time.time())
        return labels.labels_of(name, f"/tmp/drainbench-{name}", owner, labels.Origin())

    names = [f"test{uuid.uuid4().hex[:8]}" for _ in range(4)]
    half = {labels.TESTBED: names[0]}
    earlier = marks(names[1], leftovers.Process(os.getpid(), me.ticks), "another boot")
    reused = marks(names[2], leftovers.Process(os.getpid(), me.ticks - 1), procfs.boot_id())
    living = marks(
        names[3], leftovers.Process(os.getppid(), _ticks(os.getppid())), procfs.boot_id()
    )
    made = [
        rig.engine.client.networks.create(f"drainbench-{name}", labels=label)
        for name, label in zip(names, (half, earlier, reused, living), strict=True)
    ]
    try:
        removed = leftovers.sweep_leftovers(rig.engine)
        assert set(names) & set(removed) == {names[1], names[2]}
        shown = {info.id: info.owner_alive for info in leftovers.list_testbeds(rig.engine)}
        assert names[0] not in shown
        assert shown[names[3]] is True
    finally:
        for network in made:
            try:
                network.remove()
            except NotFound:
                continue


def _ticks(pid: int) -> int:
    from testbed import procfs

    return procfs.start_ticks(pid) or 0


def test_stop_is_safe_at_any_time(rig: DockerRig) -> None:
    testbed = rig.create(builders.spec(1))
    assert isinstance(testbed, DockerTestbed)
    testbed.stop()
    testbed.interrupt()
    testbed.stop()
    assert testbed.usage() == {}
