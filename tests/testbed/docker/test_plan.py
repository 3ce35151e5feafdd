"""What the containers are given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.docker import configs, images, labels, plan
from testbed.docker.cpus import CpuPlan
from testbed.docker.settings import DockerSettings
from tests.testbed import builders

ROOT = Path(__file__).parents[3]
SECRETS = plan.Secrets("hush", dataplane="quiet")
SPEC = builders.spec(9)
CPUS = CpuPlan((0,), (1,), (3, 4), (2,))


def everything(dataplane: bool = True) -> list[plan.ContainerPlan]:
    services = plan.service_plans(dataplane, (3, 8, 1))
    return [*services, *plan.backend_plans(SPEC), plan.load_plan(SPEC, SECRETS)]


def arguments(one: plan.ContainerPlan, cpus: CpuPlan | None = CPUS) -> dict[str, Any]:
    return plan.create_arguments(
        one,
        prefix="drainbench-x",
        image="image",
        network="net",
        folder="/folder",
        user="65534:65534",
        marks={labels.TESTBED: "x"},
        settings=DockerSettings(),
        cpus=cpus,
    )


@pytest.mark.parametrize("one", everything(), ids=lambda one: one.component)
def test_no_container_has_more_than_it_needs(one: plan.ContainerPlan) -> None:
    given = arguments(one)
    assert given["read_only"] is True
    assert given["cap_drop"] == ["ALL"]
    assert given["security_opt"] == ["no-new-privileges"]
    assert given["user"] == "65534:65534"
    assert given["restart_policy"] == {"Name": "no"}
    assert given["log_config"]["config"] == {"max-size": "16m", "max-file": "1"}
    assert given["mem_limit"] == given["memswap_limit"] == f"{given['mem_limit'][:-1]}m"
    assert "privileged" not in given and "network_mode" not in given
    assert all(host == ("127.0.0.1", None) for host in given["ports"].values())
    assert given["labels"] == {labels.TESTBED: "x", labels.COMPONENT: one.component}


def test_only_what_the_controller_needs_is_published() -> None:
    published = {one.component: one.ports for one in everything() if one.ports}
    assert published == {
        "haproxy": (8080,),
        "prometheus": (9090,),
        "redis": (6379,),
        "dataplane": (5555,),
    }


def test_backends_are_replicas_that_differ_in_their_name_alone() -> None:
    fleet = plan.backend_plans(SPEC)
    assert [one.component for one in fleet] == [f"backend-{i}" for i in range(1, 10)]
    same = [
        {k: v for k, v in arguments(one).items() if k not in ("name", "hostname", "labels")}
        for one in fleet
    ]
    assert all(given == same[0] for given in same)
    assert {one.alias for one in fleet} == {"api"}
    assert "INSTANCE" not in fleet[0].env


def test_cpu_sets_are_the_plans() -> None:
    found = {one.component: arguments(one)["cpuset_cpus"] for one in everything()}
    assert found["k6"] == "0" and found["haproxy"] == "1" and found["backend-7"] == "3,4"
    assert {found[name] for name in ("redis", "prometheus", "dataplane")} == {"2"}
    assert "cpuset_cpus" not in arguments(everything()[0], cpus=None)


def test_the_network_has_room_for_all() -> None:
    for dataplane in (True, False):
        assert plan.all_containers(SPEC, dataplane) == len(everything(dataplane))


def test_the_load_stays_inside_the_network() -> None:
    env = plan.load_plan(SPEC, SECRETS).env
    assert json.loads(env["LOAD_SPEC"])["url"] == "http://haproxy:8080/work"
    assert env["LOAD_REDIS_URL"] == "redis://:hush@redis:6379"


def test_old_prometheus_gets_no_flag_that_it_does_not_know() -> None:
    for version, known in (((2, 39, 0), False), ((), False), ((2, 42, 0), True)):
        command = plan.service_plans(False, version)[0].command
        assert any("discovery-reload-interval" in word for word in command) is known


def test_only_what_the_vendors_images_have_is_called() -> None:
    # docs/docker.md: the programs on the PATH of the images that carry each role.
    programs = {"haproxy", "dataplaneapi", "prometheus", "redis-server", "k6", "python3"}
    assert {one.command[0] for one in everything()} == programs
    table = (ROOT / "docs" / "docker.md").read_text()
    for reference in images.OFFICIAL.values():
        assert f"`{reference}`" in table
    for given in map(arguments, everything()):
        # Their entrypoints do other things (change user, write to their own folders).
        assert len(given["entrypoint"]) == 1
        assert given["entrypoint"][0] in programs


def test_the_official_prometheus_is_asked_to_discover_at_once() -> None:
    names = images.references(DockerSettings(images="official"))
    found = images.Images(names, dict.fromkeys(names, ""), {role: {} for role in names})
    assert found.prometheus_version == (3, 8, 1)
    assert found.dataplane


def test_slots_come_from_dns() -> None:
    text = configs.haproxy_text(SPEC)
    assert "server-template api- 9 api:8000 weight 100 resolvers dns" in text
    assert "init-addr none" in text
    assert "nameserver docker 127.0.0.11:53" in text
    assert "balance leastconn" in text


def test_secrets_do_not_show_in_logs() -> None:
    assert "hush" not in repr(SECRETS) and "quiet" not in repr(SECRETS)
