"""The containers of a docker testbed, from nothing to ready, and to nothing again."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path

import httpx
import redis
from docker.errors import APIError

from testbed.api import Addresses, DataPlaneAddress, TestbedSpec
from testbed.docker import configs, cpus, images, labels, leftovers, network, plan
from testbed.docker.containers import Containers
from testbed.docker.engine import Engine, connect, container_user
from testbed.docker.images import Images
from testbed.docker.settings import DockerSettings
from testbed.docker.warden import Warden
from testbed.docker.watch import Watch
from testbed.errors import ComponentDied, OutputFailed
from testbed.load.sources import RedisSource, redis_client
from testbed.readiness import dataplane_answers, fleet_seen, slots_up
from testbed.waiting import All, Probe, wait_for
from testbed.workdir import WorkDir

_log = logging.getLogger(__name__)

_LATE_OBJECTS_S = 10.0
"""How long to look for objects that an engine makes although it did not answer in time."""


class Launch:
    """What one testbed consists of; used once: `start`, then `ends`."""

    def __init__(self, spec: TestbedSpec, interrupted: threading.Event) -> None:
        self._spec = spec
        self._interrupted = interrupted
        self.settings = DockerSettings.from_options(spec.options)
        self.http = httpx.Client(timeout=5.0, trust_env=False)
        self.engine: Engine | None = None
        self.images: Images | None = None
        self.workdir: WorkDir | None = None
        self.containers: Containers | None = None
        self.watch: Watch | None = None
        self.redis: redis.Redis | None = None
        self.addresses: Addresses | None = None
        self.cpu_plan: cpus.CpuPlan | None = None
        self.phases_s: dict[str, float] = {}
        """How long each phase of the start and the stop took, in s."""
        self._phase_began = time.monotonic()
        self._cpu_lease = cpus.CpuLease()
        self._warden: Warden | None = None
        self._secrets = plan.Secrets(secrets.token_hex(16), dataplane=secrets.token_hex(16))

    # --- start ---------------------------------------------------------------------------------

    def start(self, foreground: bool) -> Addresses:
        """Start everything but the load; return when it is ready."""
        deadline = time.monotonic() + self._spec.start_timeout_s
        self._phase_began = time.monotonic()
        self.engine = connect(self.settings.engine_timeout_s)
        self.images = images.resolve(self.engine, self.settings)
        dataplane = images.require_dataplane(self.settings, self.images)
        with suppress(APIError):  # another sweep may be at it; its turn comes again
            leftovers.sweep_leftovers(self.engine)
        self._end_phase("prepare")
        self._create_containers(self.engine, self.images, foreground, dataplane)
        self._end_phase("containers")
        addresses = self._read_addresses(dataplane)
        self._await_slots(addresses, deadline)
        self._end_phase("slots_up")
        slots = self._spec.fleet.backends
        self._wait(fleet_seen(self.http, addresses.prometheus_url, slots), deadline)
        self._end_phase("scraped")
        self.addresses = addresses
        return addresses

    def _create_containers(
        self, engine: Engine, found: Images, foreground: bool, dataplane: bool
    ) -> None:
        spec, settings = self._spec, self.settings
        self.workdir = workdir = WorkDir.create("docker", spec.run_id, foreground)
        require_space(workdir.path, settings.least_free_disk_mib)
        leftovers.LIVE.add(workdir.name)
        # Before anything is made that it would have to remove.
        self._warden = Warden(workdir.name, workdir.path)
        self._warden.watch()
        user = container_user(engine)
        configs.write(workdir.path, spec, self._secrets, user)
        owner = workdir.owner()
        assert owner is not None, "the folder was made by this process"
        marks = labels.labels_of(
            workdir.name, str(workdir.path), owner, labels.Origin(**spec.origin)
        )
        name = f"drainbench-{workdir.name}"
        prefix = network.prefix_for(plan.all_containers(spec, dataplane))
        pool = IPv4Network(settings.subnet_pool)
        network_id, _ = network.lease(engine, name, marks, pool, prefix)
        self._end_phase("network")
        self._lease_cpus()
        self.watch = Watch(engine, workdir.name, network_id, settings.memory_mib)
        self.containers = Containers(
            engine=engine,
            images=found.references,
            network=name,
            folder=str(workdir.path),
            user=user,
            marks=marks,
            settings=settings,
            cpus=self.cpu_plan,
            interrupted=self._interrupted,
        )
        plans = plan.service_plans(dataplane, found.prometheus_version)
        plans += plan.backend_plans(spec)
        if spec.load.telemetry == "redis":
            plans.append(self.load_plan())
        self.containers.start(plans)

    def load_plan(self) -> plan.ContainerPlan:
        """The container of k6."""
        return plan.load_plan(self._spec, self._secrets)

    def _lease_cpus(self) -> None:
        if not self.settings.cpusets:
            return
        backends = self._spec.fleet.backends
        available = sorted(os.sched_getaffinity(0))
        taken = self._cpu_lease.take(available, cpus.cores_wanted(backends))
        self.cpu_plan = cpus.plan(taken, backends)
        if self.cpu_plan is None:
            self._cpu_lease.release()

    def _read_addresses(self, dataplane: bool) -> Addresses:
        assert self.workdir is not None
        published = self._published
        redis_port = published("redis", plan.REDIS_PORT)
        self.redis = redis_client(redis_port, self._secrets.redis)
        plane = None
        if dataplane:
            plane = DataPlaneAddress(
                url=f"http://127.0.0.1:{published('dataplane', plan.DATAPLANE_PORT)}",
                user=self._secrets.dataplane_user,
                password=self._secrets.dataplane,
            )
        return Addresses(
            frontend_url=f"http://127.0.0.1:{published('haproxy', plan.FRONTEND_PORT)}",
            prometheus_url=f"http://127.0.0.1:{published('prometheus', plan.PROMETHEUS_PORT)}",
            runtime_socket=str(self.workdir.path / "run" / plan.SOCKET_NAME),
            redis_url=f"redis://:{self._secrets.redis}@127.0.0.1:{redis_port}",
            dataplane=plane,
        )

    def _published(self, component: str, port: int) -> int:
        assert self.containers is not None
        found = self.containers.published(component, port)
        if found is None:
            self.check()  # most likely it has ended, and this says how
            raise ComponentDied(f"{component}: the engine did not publish port {port}")
        return found

    def _await_slots(self, addresses: Addresses, deadline: float) -> None:
        assert self.containers is not None and self.redis is not None
        client, slots = self.redis, self._spec.fleet.backends
        conditions = [slots_up(addresses.runtime_socket, slots)]
        if self._spec.load.telemetry == "redis":
            # k6's setup() talks to Redis at once.
            answers = Probe("Redis to answer", lambda: (bool(client.ping()), ""), "its log")
            self._wait(answers, deadline)
            self.containers.release("k6")
            source = RedisSource(client)
            waits = Probe(
                "k6 to wait in its setup()",
                lambda: (source.waiting(), "k6 is not in its setup() yet"),
                "its log",
            )
            conditions.append(waits)
        if addresses.dataplane is not None:
            conditions.append(dataplane_answers(self.http, addresses.dataplane, slots))
        self._wait(All(conditions), deadline)

    def _wait(self, condition: All | Probe, deadline: float) -> None:
        wait_for(condition, deadline, self._interrupted, self.check, self._evidence)

    def _evidence(self) -> str:
        assert self.watch is not None and self.containers is not None
        said = {name: self.watch.last_words(c) for name, c in self.containers.running().items()}
        return "; ".join(f"{name}: {line[-200:]}" for name, line in said.items() if line)

    # --- while it is up ------------------------------------------------------------------------

    def check(self, load_began: bool = False) -> None:
        """Raise `ComponentDied` when a component is gone; k6 may end once the load has begun."""
        if self.containers is None or self.watch is None:
            return
        expected = self.containers.running()
        if load_began:
            expected.pop("k6", None)
        self.watch.check(expected)
        if self._warden is not None:
            self._warden.watch()

    # --- end -----------------------------------------------------------------------------------

    def ends(self) -> list[Callable[[], None]]:
        """Steps that remove everything, in order; each may fail on its own and be repeated."""
        self._phase_began = time.monotonic()
        steps: list[Callable[[], None]] = [self._remove_objects, self.http.close]
        steps += [self._remove_folder, self._cpu_lease.release]
        if self.redis is not None:
            steps.insert(0, self.redis.close)
        return steps

    def _remove_objects(self) -> None:
        if self.workdir is None or self.engine is None:
            return
        late = self.containers is not None and self.containers.unanswered
        self.containers = self.watch = None
        # From here on it is a leftover: whatever stays now goes when the next testbed starts.
        leftovers.LIVE.discard(self.workdir.name)
        gone = leftovers.remove_testbed(
            self.engine, self.workdir.name, settle_s=_LATE_OBJECTS_S if late else 0.0
        )
        if gone and self._warden is not None:
            self._warden.dismiss()
        elif not gone:
            # Its warden stays, and tries when this process has ended.
            _log.error("testbed %s is not removed completely; gc will try", self.workdir.name)
        self._warden = None
        self._end_phase("stop")

    def _remove_folder(self) -> None:
        if self.workdir is not None:
            self.workdir.remove()
            self.workdir = None
        if self.engine is not None:
            self.engine.close()

    def _end_phase(self, name: str) -> None:
        now = time.monotonic()
        self.phases_s[name] = round(now - self._phase_began, 3)
        self._phase_began = now


def require_space(folder: Path, least_mib: int) -> None:
    """Raise `OutputFailed` when the disk of `folder` is nearly full."""
    with suppress(FileNotFoundError):
        free_mib = shutil.disk_usage(folder).free // 2**20
        if free_mib < least_mib:
            raise OutputFailed(
                f"{folder} has {free_mib} MiB free, less than testbed.least_free_disk_mib="
                f"{least_mib}: free some, or lower it"
            )
