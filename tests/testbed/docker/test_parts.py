"""The driver's parts that need no engine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import requests.exceptions
import yaml
from docker.errors import DockerException

from testbed.api import ComponentUsage
from testbed.docker import cgroups, debian, images, labels, usage
from testbed.docker.engine import connect, unavailable
from testbed.docker.settings import MEMORY_MIB, DockerSettings
from testbed.docker.versions import haproxy_version
from testbed.docker.warden import wait_for_end
from testbed.docker.watch import Loss, find_losses
from testbed.errors import TestbedError, TestbedUnavailable
from testbed.workdir import Owner, Process

ROOT = Path(__file__).parents[3]


# --- labels and owners -----------------------------------------------------------------------


def owner() -> Owner:
    """This process."""
    from testbed import procfs

    return Owner(
        Process.myself(), procfs.boot_id(), procfs.pid_namespace(), "docker", "run", True, 12.5
    )


def test_labels_carry_the_owner_there_and_back() -> None:
    marks = labels.labels_of("id", "/folder", owner(), labels.Origin("main", "2"))
    assert labels.owner_in(marks) == owner()
    assert marks[labels.SWEEP] == "main" and marks[labels.ATTEMPT] == "2"
    assert all(isinstance(value, str) for value in marks.values())


@pytest.mark.parametrize("lost", [labels.OWNER_PID, labels.BOOT_ID, labels.CREATED])
def test_half_a_set_of_labels_names_nobody(lost: str) -> None:
    marks = labels.labels_of("id", "/folder", owner(), labels.Origin())
    del marks[lost]
    assert labels.owner_in(marks) is None
    assert labels.owner_in({**marks, lost: "x"} if lost != labels.BOOT_ID else {}) is None


def test_who_is_dead_and_who_can_not_be_judged() -> None:
    me = owner()
    assert me.alive()
    assert not replace(me, process=replace(me.process, ticks=1)).alive()
    assert not replace(me, boot="another").alive()
    assert replace(me, namespace="pid:[1]", process=Process(2**30, 1)).alive()


def test_a_warden_waits_for_the_very_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ticks = Process(child.pid, 0)
    began = time.monotonic()
    wait_for_end(ticks)  # the pid lives, but it is not that process
    wait_for_end(Process(2**22 + 1, 1))
    assert time.monotonic() - began < 10
    from testbed import procfs

    real = Process(child.pid, procfs.start_ticks(child.pid) or 0)
    child.send_signal(signal.SIGKILL)
    wait_for_end(real)  # returns although nobody has waited for the child yet
    assert child.wait() == -9


# --- losses ----------------------------------------------------------------------------------


def listed(name: str, state: str = "running", network: str = "net") -> dict[str, object]:
    networks = {"n": {"NetworkID": network}} if network else {}
    return {
        "Id": name,
        "State": state,
        "Status": "Exited (1)",
        "NetworkSettings": {"Networks": networks},
    }


def test_losses_are_named_with_their_reason() -> None:
    expected = {name: name for name in ("fine", "gone", "ended", "cut", "elsewhere")}
    seen = [
        listed("fine"),
        listed("ended", "exited"),
        listed("cut", network=""),
        listed("elsewhere", network="other"),
        listed("stranger", "exited"),
    ]
    assert find_losses(expected, seen, "net") == [
        Loss("gone", "its container was removed"),
        Loss("ended", "its container is exited: Exited (1)"),
        Loss("cut", "its network was removed"),
        Loss("elsewhere", "its network was removed"),
    ]


# --- usage -----------------------------------------------------------------------------------


def test_engine_statistics_of_both_versions() -> None:
    cpu = {
        "cpu_usage": {"total_usage": 2_500_000_000},
        "throttling_data": {"throttled_time": 10**8},
    }
    first = {"usage": 300, "max_usage": 999, "stats": {"total_inactive_file": 100}}
    second = {"usage": 300, "stats": {"inactive_file": 50}}
    assert usage.parse_stats({"cpu_stats": cpu, "memory_stats": first}) == ComponentUsage(
        2.5, 200, 0.1
    )
    found = usage.parse_stats({"cpu_stats": cpu, "memory_stats": second})
    assert found is not None and found.max_rss_bytes == 250
    ended = {"cpu_stats": {"cpu_usage": {"total_usage": 0}}, "memory_stats": {}}
    assert usage.parse_stats(ended) is None


def test_backends_are_one_component() -> None:
    parts = [
        ("backend-1", ComponentUsage(1.0, 10, 0.5)),
        ("backend-2", ComponentUsage(2.0, 20, 0.25)),
        ("k6", ComponentUsage(4.0, 40, 0.0)),
    ]
    assert usage.total(parts) == {
        "backends": ComponentUsage(3.0, 30, 0.75),
        "k6": ComponentUsage(4.0, 40, 0.0),
    }


def test_control_groups_of_both_versions(tmp_path: Path) -> None:
    first = "11:cpu,cpuacct:/docker/a\n4:memory:/docker/a\n1:name=systemd:/docker/a\n"
    assert cgroups.parse_membership(first)["cpuacct"] == "/docker/a"
    assert cgroups.parse_membership("0::/system.slice/docker-a.scope\n") == {
        "": "/system.slice/docker-a.scope"
    }
    me = os.getpid()
    v1, v2 = tmp_path / "v1", tmp_path / "v2"
    for folder in (v1, v2):
        folder.mkdir()
        (folder / "cgroup.procs").write_text(f"{me}\n")
    (v1 / "cpuacct.usage").write_text("1500000000\n")
    (v1 / "cpu.stat").write_text("nr_periods 4\nnr_throttled 1\nthrottled_time 250000000\n")
    (v2 / "cpu.stat").write_text("usage_usec 1500000\nthrottled_usec 250000\n")
    for folder in (v1, v2):
        found = cgroups.Cgroup(folder, folder, folder).usage()
        assert found is not None
        assert (found.cpu_s, found.throttled_s) == (1.5, 0.25)
        assert found.max_rss_bytes > 10 << 20
    assert cgroups.Cgroup(tmp_path, tmp_path, tmp_path).usage() is None


# --- settings, images, versions --------------------------------------------------------------


def test_defaults_are_the_configuration_file() -> None:
    text = (ROOT / "conf" / "testbed" / "docker.yaml").read_text()
    config = yaml.safe_load(text)
    driver = {k: v for k, v in config.items() if k not in NOT_THE_DRIVERS}
    assert DockerSettings.from_options(driver) == DockerSettings()
    assert config["kind"] == "docker"


NOT_THE_DRIVERS = ("kind", "start_timeout_s", "programs")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"image": "debian"}, "testbed.image is no key"),
        ({"images": "alpine"}, "testbed.images=alpine: one of debian, official"),
        ({"subnet_pool": "8.8.0.0/16"}, "no private range"),
        ({"subnet_pool": "10.0.0.0/99"}, "10.0.0.0/99"),
        ({"memory_mib": {"redis": 1}}, "testbed.memory_mib.redis=1"),
        ({"memory_mib": {"cache": 64}}, "testbed.memory_mib.cache"),
        ({"memory_mib": "x"}, "testbed.memory_mib=x: values by name"),
        ({"image_names": ["x"]}, "testbed.image_names="),
        ({"dataplane": "maybe"}, "testbed.dataplane=maybe"),
        ({"memory_mib": {"redis": "abc"}}, "testbed.memory_mib.redis=abc: at least 8 MiB"),
        ({"cpusets": "maybe"}, "testbed.cpusets=maybe: true or false"),
        ({"log_max_mib": 0}, "testbed.log_max_mib=0: whole MiB, 1 at least"),
        ({"least_free_disk_mib": None}, "testbed.least_free_disk_mib=None"),
        ({"engine_timeout_s": -1}, "testbed.engine_timeout_s=-1: a number, 1 s at least"),
    ],
)
def test_settings_that_mean_nothing_are_named(options: dict[str, object], words: str) -> None:
    with pytest.raises(TestbedError, match=re.escape(words)):
        DockerSettings.from_options(options)


def test_some_limits_keep_the_others() -> None:
    limits = DockerSettings.from_options({"memory_mib": {"k6": 4096}}).memory_mib
    assert limits == {**MEMORY_MIB, "k6": 4096}


def test_official_images_are_pinned_and_the_papers_where_it_names_one() -> None:
    names = images.references(DockerSettings(images="official"))
    assert names["prometheus"] == "prom/prometheus:v3.8.1"
    assert names["k6"] == "grafana/k6:1.4.2"
    assert names["dataplane"] == names["haproxy"]
    assert all(re.search(r":v?\d+\.\d+\.\d+|:[0-9a-f]{12}$", name) for name in names.values())


def test_other_references_replace_ours() -> None:
    settings = DockerSettings(images="official", image_names={"k6": "mirror/k6:1"})
    assert images.references(settings)["k6"] == "mirror/k6:1"
    # As on the command line: every role is a key of the configuration file, null by default.
    roles = {"haproxy", "prometheus", "redis", "k6", "backend"}
    text = (ROOT / "conf" / "testbed" / "docker.yaml").read_text()
    assert yaml.safe_load(text)["image_names"] == dict.fromkeys(roles)
    given = DockerSettings.from_options({"image_names": {**dict.fromkeys(roles), "redis": "r:1"}})
    assert given.image_names == {"redis": "r:1"}
    with pytest.raises(TestbedUnavailable, match="image_names: cache"):
        images.references(DockerSettings(image_names={"cache": "x"}))


def test_the_data_plane_api_is_the_one_beside_the_haproxy_in_use() -> None:
    mirrored = "mirror.example:5000/haproxytech/haproxy-debian:3.2.7"
    for name, has in ((mirrored, True), ("haproxy:3.2.7", False)):
        settings = DockerSettings(images="official", image_names={"haproxy": name})
        names = images.references(settings)
        assert names["dataplane"] == name
        found = images.Images(names, dict.fromkeys(names, ""), {role: {} for role in names})
        assert found.dataplane is has


def test_missing_images_are_named_with_one_command_each() -> None:
    ours, mine = images.debian_image(), images.backend_image()
    assert images.how_to_get(ours).startswith("python -m testbed build-image (or --load FILE")
    text = images.missing_text(["prom/prometheus:v3.8.1", mine, "other/k6:1"])
    assert text.startswith(
        f"missing Docker images: prom/prometheus:v3.8.1, {mine}: "
        "python -m testbed build-image --set official (or --load FILE"
    )
    assert text.endswith("; other/k6:1: docker pull other/k6:1")


def test_the_images_lock_is_the_projects() -> None:
    whole = pins((ROOT / "requirements.lock").read_text())
    for name in ("requirements.lock", "programs.lock"):
        part = pins((images.SOURCES / name).read_text())
        assert part and part.items() <= whole.items(), name
    assert "flask" in pins((images.SOURCES / "requirements.lock").read_text())


def pins(lock: str) -> dict[str, tuple[str, frozenset[str]]]:
    """Version and hashes by package of a lock file."""
    found = {}
    for block in re.split(r"(?m)^(?=[A-Za-z0-9])", lock):
        head = re.match(r"([\w.-]+)==(\S+)", block)
        if head:
            found[head[1]] = (head[2], frozenset(re.findall(r"sha256:[0-9a-f]{64}", block)))
    return found


def test_versions_of_debian_packages_are_upstreams() -> None:
    status = (
        "Package: haproxy\nStatus: install ok installed\nVersion: 2.6.12-1+deb12u4\n"
        "Description: proxy\n Version: none\n\n"
        "Package: redis-server\nVersion: 5:7.0.15-1~deb12u10\n\n"
        "Package: prometheus\nVersion: 2.42.0+ds-5+deb12u1\n\nPackage: tar\nVersion: 1.34\n"
    )
    assert debian.parse_versions(status) == {
        "haproxy": "2.6.12",
        "redis": "7.0.15",
        "prometheus": "2.42.0",
    }


def test_haproxys_own_version() -> None:
    assert haproxy_version("Name: HAProxy\nVersion: 2.6.12-1+deb12u4\n") == "2.6.12"
    with pytest.raises(ValueError, match="no version"):
        haproxy_version("Name: HAProxy\n")


# --- no engine -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (DockerException("PermissionError(13, 'Permission denied')"), "no permission"),
        (DockerException("FileNotFoundError(2, 'No such file or directory')"), "not running"),
        (DockerException("ConnectionRefusedError(111, 'Connection refused')"), "not running"),
        (requests.exceptions.ReadTimeout("Read timed out."), "does not answer"),
        (DockerException("something\nelse"), "something else"),
    ],
)
def test_an_engine_that_can_not_be_used_says_why_on_one_line(error: Exception, words: str) -> None:
    text = unavailable(error)
    assert words in text
    assert "testbed=local" in text
    assert "\n" not in text


def test_no_engine_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with pytest.raises(TestbedUnavailable, match=r"not running.*testbed=local"):
        connect()


def test_an_engine_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2376")
    with pytest.raises(TestbedUnavailable, match="not an engine of this host"):
        connect()
