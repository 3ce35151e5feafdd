"""What each container of a testbed is given: pure, from the spec to the engine's arguments.

Everything is read-only, without capabilities, as an ordinary user; what a program must write goes
to tmpfs, to the private socket folder, or (k6) to the load's own folder (paper, §4.1 to §4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.api import TestbedSpec
from testbed.backend.settings import to_environment
from testbed.docker import labels
from testbed.docker.cpus import CpuPlan
from testbed.docker.images import Role
from testbed.docker.settings import DockerSettings
from testbed.load.command import k6_arguments, k6_environment

FLEET_ALIAS = "api"
"""One name for all backends: HAProxy and Prometheus find the fleet by it."""

BACKEND_PREFIX = "backend-"
"""Containers are `backend-1` … `backend-N`; HAProxy's slots have other names, in another order."""

FRONTEND_PORT = 8080
EXPORTER_PORT = 8404
BACKEND_PORT = 8000
PROMETHEUS_PORT = 9090
REDIS_PORT = 6379
DATAPLANE_PORT = 5555

CONFIG_DIR = "/etc/drainbench"
SOCKET_DIR = "/run/drainbench"
LOAD_DIR = "/load"
SCRIPT_DIR = Path(CONFIG_DIR)
SOCKET_NAME = "haproxy.sock"
TELEMETRY_FILE = f"{LOAD_DIR}/telemetry.csv"
SUMMARY_FILE = f"{LOAD_DIR}/summary.json"
_TMP_OPTIONS = "rw,noexec,nosuid,nodev,mode=1777"


@dataclass(frozen=True)
class ContainerPlan:
    """One container. `mounts` maps a folder of the testbed's own to (place in it, read-only)."""

    component: str
    """`haproxy`, `backend-3`, …: the last part of the container's name."""
    role: Role
    command: tuple[str, ...]
    alias: str
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    ports: tuple[int, ...] = ()
    """Published on this host's loopback, at a port that the engine chooses."""
    tmp_mib: int = 16
    cpuset_key: str = "side"
    held: bool = False
    """Only created at first: it is started when what it needs answers."""


@dataclass(frozen=True)
class Secrets:
    """Minted for one testbed."""

    redis: str = field(repr=False)
    dataplane_user: str = "drainbench"
    dataplane: str = field(default="", repr=False)


def backend_command(spec: TestbedSpec) -> tuple[str, ...]:
    """How a backend is started: gunicorn with threads, its number from its own name (§4.2)."""
    return (
        *("python3", "-m", "gunicorn", "--config", "python:testbed.backend.gunicorn_conf"),
        *("--bind", f"0.0.0.0:{BACKEND_PORT}"),
        *("--workers", str(spec.fleet.workers), "--threads", str(spec.fleet.threads)),
        "testbed.backend.app:create_app()",
    )


def backend_plans(spec: TestbedSpec) -> list[ContainerPlan]:
    """The fleet: replicas that differ in nothing but their name."""
    env = to_environment(spec.fleet)
    if spec.fleet.workers > 1:
        env["PROMETHEUS_MULTIPROC_DIR"] = "/tmp"
    return [
        ContainerPlan(
            component=f"{BACKEND_PREFIX}{instance}",
            role="backend",
            command=backend_command(spec),
            alias=FLEET_ALIAS,
            env=env,
            cpuset_key="backends",
        )
        for instance in range(1, spec.fleet.backends + 1)
    ]


def service_plans(dataplane: bool, prometheus_version: tuple[int, ...]) -> list[ContainerPlan]:
    """HAProxy, Prometheus, Redis and, where the image has it, the Data Plane API."""
    # Hidden flag: without it the first scrape may come after 10 s instead of 5.
    known = prometheus_version >= (2, 40)
    sooner = ("--scrape.discovery-reload-interval=100ms",) if known else ()
    plans = [
        ContainerPlan(
            component="prometheus",
            role="prometheus",
            command=(
                *("prometheus", f"--config.file={CONFIG_DIR}/prometheus.yml"),
                *("--storage.tsdb.path=/tmp/tsdb", "--storage.tsdb.retention.time=1d"),
                f"--web.listen-address=0.0.0.0:{PROMETHEUS_PORT}",
                *sooner,
            ),
            alias="prometheus",
            mounts={"prometheus": (CONFIG_DIR, True)},
            ports=(PROMETHEUS_PORT,),
            tmp_mib=512,
        ),
        ContainerPlan(
            component="haproxy",
            role="haproxy",
            command=("haproxy", "-db", "-f", f"{CONFIG_DIR}/haproxy.cfg"),
            alias="haproxy",
            mounts={"haproxy": (CONFIG_DIR, True), "run": (SOCKET_DIR, False)},
            ports=(FRONTEND_PORT,),
            cpuset_key="haproxy",
        ),
        ContainerPlan(
            component="redis",
            role="redis",
            command=("redis-server", f"{CONFIG_DIR}/redis.conf"),
            alias="redis",
            mounts={"redis": (CONFIG_DIR, True)},
            ports=(REDIS_PORT,),
        ),
    ]
    if dataplane:
        plans.append(
            ContainerPlan(
                component="dataplane",
                role="dataplane",
                command=("dataplaneapi", "-f", f"{CONFIG_DIR}/dataplaneapi.yml"),
                alias="dataplane",
                # A copy of HAProxy's configuration: whatever the API does, HAProxy's own stays.
                mounts={"dataplane": (CONFIG_DIR, False), "run": (SOCKET_DIR, False)},
                ports=(DATAPLANE_PORT,),
                tmp_mib=64,
            )
        )
    return plans


def load_plan(spec: TestbedSpec, secrets: Secrets) -> ContainerPlan:
    """The load generator, inside the network: its requests cross no published port."""
    env = k6_environment(
        spec.load,
        spec.run_id,
        frontend_url=f"http://haproxy:{FRONTEND_PORT}",
        redis_url=f"redis://:{secrets.redis}@redis:{REDIS_PORT}",
        summary=SUMMARY_FILE,
    )
    arguments = k6_arguments("k6", spec.load, scripts=SCRIPT_DIR, telemetry=TELEMETRY_FILE)
    return ContainerPlan(
        component="k6",
        role="k6",
        command=tuple(arguments),
        alias="k6",
        env={**env, "HOME": "/tmp"},
        mounts={"k6": (CONFIG_DIR, True), "load": (LOAD_DIR, False)},
        cpuset_key="k6",
        held=True,
    )


def all_containers(spec: TestbedSpec, dataplane: bool) -> int:
    """How many containers share the network."""
    return spec.fleet.backends + 4 + dataplane


def create_arguments(
    plan: ContainerPlan,
    *,
    prefix: str,
    image: str,
    network: str,
    folder: str,
    user: str,
    marks: Mapping[str, str],
    settings: DockerSettings,
    cpus: CpuPlan | None,
) -> dict[str, Any]:
    """Arguments of the SDK's `client.containers.create` for `plan`.

    `prefix` makes its name unique on this engine, `folder` is the testbed's on this host.
    """
    memory = f"{settings.memory_mib[plan.role]}m"
    arguments: dict[str, Any] = {
        "image": image,
        "name": f"{prefix}-{plan.component}",
        "hostname": plan.component,
        "entrypoint": [plan.command[0]],
        "command": list(plan.command[1:]),
        "environment": dict(plan.env),
        "labels": {**marks, labels.COMPONENT: plan.component},
        "network": network,
        "ports": {f"{port}/tcp": ("127.0.0.1", None) for port in plan.ports},
        "volumes": {
            f"{folder}/{source}": {"bind": target, "mode": "ro" if read_only else "rw"}
            for source, (target, read_only) in plan.mounts.items()
        },
        "user": user,
        "read_only": True,
        "tmpfs": {"/tmp": f"{_TMP_OPTIONS},size={plan.tmp_mib}m"},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": 512,
        "mem_limit": memory,
        # The same as the memory limit: no swap, so that a leak is an error and not a slow run.
        "memswap_limit": memory,
        "restart_policy": {"Name": "no"},
        "log_config": {
            "type": "json-file",
            "config": {"max-size": f"{settings.log_max_mib}m", "max-file": "1"},
        },
    }
    if cpus is not None:
        arguments["cpuset_cpus"] = cpus.of(plan.cpuset_key)
    return arguments
