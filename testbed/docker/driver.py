"""The docker driver's life: start, load, stop (paper, §4.1 to §4.3)."""

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

from testbed.api import Addresses, ComponentUsage, DataPlaneAddress, LoadResult, TestbedSpec
from testbed.docker import configs, cpus, images, labels, leftovers, network, plan
from testbed.docker.containers import Fleet
from testbed.docker.dataplane import dataplane_answers
from testbed.docker.engine import Engine, connect, infrastructure
from testbed.docker.images import Images
from testbed.docker.settings import DockerSettings
from testbed.docker.usage import Meter
from testbed.docker.versions import versions_of
from testbed.docker.warden import Warden
from testbed.docker.watch import Watch
from testbed.errors import Interrupted, LoadFailed, OutputFailed, TestbedError
from testbed.load.session import LoadSession
from testbed.load.sources import FileSource, RedisSource, TelemetrySource
from testbed.readiness import fleet_seen, slots_up
from testbed.waiting import All, Probe, wait_for
from testbed.workdir import WorkDir

_log = logging.getLogger(__name__)

_WATCH_EVERY_S = 0.5
_LATE_OBJECTS_S = 10.0


class DockerTestbed:
    """A `Testbed` of containers on a network of its own; see `testbed.api.Testbed`."""

    __test__ = False

    def __init__(self, spec: TestbedSpec, foreground: bool = False) -> None:
        """`foreground` marks a testbed made by hand, for `python -m testbed down`."""
        self._spec = spec
        self._settings = DockerSettings.from_options(spec.options)
        self._foreground = foreground
        self._engine: Engine | None = None
        self._images: Images | None = None
        self._workdir: WorkDir | None = None
        self._warden: Warden | None = None
        self._fleet: Fleet | None = None
        self._watch: Watch | None = None
        self._network_id: str | None = None
        self._cpu_lease = cpus.CpuLease()
        self._cpu_plan: cpus.CpuPlan | None = None
        self._secrets = plan.Secrets(secrets.token_hex(16), dataplane=secrets.token_hex(16))
        self._meter: Meter | None = None
        self._watched_s = 0.0
        self._session: LoadSession | None = None
        self._redis: redis.Redis | None = None
        self._http = httpx.Client(timeout=5.0, trust_env=False)
        self._interrupted = threading.Event()
        self._addresses: Addresses | None = None
        self.phases_s: dict[str, float] = {}
        """How long each phase of the start and the stop took, in s."""

    # --- start ---------------------------------------------------------------------------------

    def start(self) -> Addresses:
        """Start everything but the load; return when all N slots are UP and all targets scraped.

        k6 is started too, but waits in its setup() for the word to go.
        """
        try:
            with infrastructure("starting a testbed"):
                self._addresses = self._start()
        except BaseException:
            self.stop()
            raise
        return self._addresses

    def _start(self) -> Addresses:
        spec, settings = self._spec, self._settings
        deadline = time.monotonic() + spec.start_timeout_s
        phase = _Phases(self.phases_s)
        self._engine = engine = connect(settings.engine_timeout_s)
        self._images = found = images.resolve(engine, settings)
        dataplane = images.require_dataplane(settings, found)
        with suppress(APIError):  # another sweep may be at it; its turn comes again
            leftovers.sweep_leftovers(engine)
        phase.end("prepare")

        self._workdir = workdir = WorkDir.create("docker", spec.run_id, self._foreground)
        _require_space(workdir.path, settings.least_free_disk_mib)
        leftovers.LIVE.add(workdir.name)
        self._warden = Warden(workdir.name, workdir.path)
        self._warden.watch()
        user = container_user(engine)
        configs.write(workdir.path, spec, self._secrets, user)
        owner = workdir.owner()
        assert owner is not None
        origin = labels.Origin(**spec.origin)
        marks = labels.labels_of(workdir.name, str(workdir.path), owner, origin)
        name = f"drainbench-{workdir.name}"
        prefix = network.prefix_for(plan.all_containers(spec, dataplane))
        pool = IPv4Network(settings.subnet_pool)
        self._network_id, subnet = network.lease(engine, name, marks, pool, prefix)
        phase.end("network")

        self._lease_cpus()
        self._fleet = fleet = Fleet(
            engine=engine,
            images=found.references,
            network=name,
            folder=str(workdir.path),
            user=user,
            marks=marks,
            settings=settings,
            cpus=self._cpu_plan,
            interrupted=self._interrupted,
        )
        self._watch = Watch(engine, workdir.name, self._network_id, settings.memory_mib)
        plans = plan.service_plans(dataplane, found.prometheus_version)
        plans += plan.backend_plans(spec)
        if spec.load.telemetry == "redis":
            plans.append(plan.load_plan(spec, self._secrets))
        fleet.start(plans)
        phase.end("containers")

        addresses = self._read_addresses(dataplane)
        self._await_ready(addresses, deadline, phase)
        _log.debug("testbed %s is up on %s: %s", workdir.name, subnet, self.phases_s)
        return addresses

    def _lease_cpus(self) -> None:
        if not self._settings.cpusets:
            return
        backends = self._spec.fleet.backends
        taken = self._cpu_lease.take(sorted(os.sched_getaffinity(0)), cpus.cores_wanted(backends))
        self._cpu_plan = cpus.plan(taken, backends)
        if self._cpu_plan is None:
            self._cpu_lease.release()

    def _read_addresses(self, dataplane: bool) -> Addresses:
        assert self._fleet is not None and self._workdir is not None
        published = self._fleet.published
        socket = self._workdir.path / "run" / plan.SOCKET_NAME
        redis_port = published("redis", plan.REDIS_PORT)
        self._redis = redis.Redis(port=redis_port, password=self._secrets.redis, socket_timeout=10)
        return Addresses(
            frontend_url=f"http://127.0.0.1:{published('haproxy', plan.FRONTEND_PORT)}",
            prometheus_url=f"http://127.0.0.1:{published('prometheus', plan.PROMETHEUS_PORT)}",
            runtime_socket=str(socket),
            redis_url=f"redis://:{self._secrets.redis}@127.0.0.1:{redis_port}",
            dataplane=DataPlaneAddress(
                url=f"http://127.0.0.1:{published('dataplane', plan.DATAPLANE_PORT)}",
                user=self._secrets.dataplane_user,
                password=self._secrets.dataplane,
            )
            if dataplane
            else None,
        )

    def _await_ready(self, addresses: Addresses, deadline: float, phase: _Phases) -> None:
        slots = self._spec.fleet.backends

        def k6_waits() -> tuple[bool, str]:
            return RedisSource(self._client()).waiting(), "k6 is not in its setup() yet"

        if self._spec.load.telemetry == "redis":
            # Its setup() talks to Redis at once.
            self._wait(Probe("Redis to answer", self._redis_answers, "its log"), deadline)
            self._running().release("k6")
        conditions = [slots_up(addresses.runtime_socket, slots)]
        if self._spec.load.telemetry == "redis":
            conditions.append(Probe("k6 to wait in its setup()", k6_waits, "its log"))
        if addresses.dataplane is not None:
            conditions.append(dataplane_answers(self._http, addresses.dataplane, slots))
        self._wait(All(conditions), deadline)
        phase.end("slots_up")
        self._wait(fleet_seen(self._http, addresses.prometheus_url, slots), deadline)
        phase.end("scraped")

    def _redis_answers(self) -> tuple[bool, str]:
        return bool(self._client().ping()), "an answer"

    def _wait(self, condition: All | Probe, deadline: float) -> None:
        wait_for(condition, deadline, self._interrupted, self._guard, self._evidence)

    def _evidence(self) -> str:
        assert self._watch is not None and self._fleet is not None
        said = {name: self._watch.last_words(c) for name, c in self._fleet.running().items()}
        return "; ".join(f"{name}: {line[-200:]}" for name, line in said.items() if line)

    # --- load ----------------------------------------------------------------------------------

    def start_load(self, out_dir: Path) -> int:
        """Let the virtual users go; return the unix time in µs at which they were."""
        if self._workdir is None or self._fleet is None or self._addresses is None:
            raise TestbedError("start_load() before start()")
        out_dir = Path(out_dir)
        _require_space(out_dir, self._settings.least_free_disk_mib)
        folder = self._workdir.path / "load"
        source: TelemetrySource = RedisSource(self._client())
        if self._spec.load.telemetry == "file":
            source = FileSource(folder / Path(plan.TELEMETRY_FILE).name, self._client())
            with infrastructure("starting k6"):
                self._fleet.start([plan.load_plan(self._spec, self._secrets)])
                self._fleet.release("k6")
        generator = _K6(self._fleet, self._watcher())
        summary = folder / Path(plan.SUMMARY_FILE).name
        self._session = LoadSession(self._spec.load, generator, source, summary, out_dir)
        self._meter = Meter(self._engine_(), self._cpu_plan)
        self._meter.sample(self._fleet.running())
        try:
            return self._session.go(self._guard, self._interrupted, self._spec.start_timeout_s)
        except redis.RedisError as error:
            self.check()
            raise LoadFailed(f"Redis does not answer: {error}") from error

    def wait_load(self, on_tick: Callable[[], None] | None = None) -> LoadResult:
        """Wait until the load has ended; see `testbed.api.Testbed`."""
        if self._session is None:
            raise TestbedError("wait_load() before start_load()")

        def tick() -> None:
            if self._meter is not None and self._fleet is not None:
                self._meter.sample(self._fleet.running())
            if on_tick is not None:
                on_tick()

        try:
            with infrastructure("the load ran"):
                return self._session.wait(self._guard, self._interrupted, tick)
        except LoadFailed:
            # What failed may only be the first sign of a component that is going down.
            for _ in range(4):
                self.check()
                time.sleep(0.25)
            raise

    def check(self) -> None:
        """Raise `ComponentDied` when any component is gone; k6 may end once the load runs."""
        if self._fleet is None or self._watch is None:
            return
        expected = self._fleet.running()
        if self._session is not None:
            expected.pop("k6", None)
        self._watch.check(expected)
        if self._warden is not None:
            self._warden.watch()

    def _guard(self) -> None:
        """`check`, but not at every call: each one costs the engine CPU that the fleet needs."""
        now = time.monotonic()
        if now - self._watched_s >= _WATCH_EVERY_S:
            self._watched_s = now
            self.check()

    def hold(self) -> None:
        """Keep a started testbed up; ends by `Interrupted` or `ComponentDied`."""
        while not self._interrupted.wait(_WATCH_EVERY_S):
            self.check()
        raise Interrupted("asked to end")

    # --- accounts ------------------------------------------------------------------------------

    def usage(self) -> dict[str, ComponentUsage]:
        """Resources used so far, by component; the backends are one."""
        if self._meter is None:
            return {}
        if self._fleet is not None:
            with infrastructure("reading the containers' counters"):
                self._meter.sample(self._fleet.running(), ask_engine=True)
        return self._meter.usage()

    def versions(self) -> dict[str, str]:
        """Version of every program, of the engine, and the images' ids."""
        engine = self._engine or connect(self._settings.engine_timeout_s)
        with infrastructure("asking for versions"):
            found = self._images or images.resolve(engine, self._settings)
            return versions_of(engine, found, self._addresses, self._http)

    def collect_logs(self, out_dir: Path) -> None:
        """Copy the components' logs and configurations into `out_dir`. Raises `OutputFailed`."""
        if self._workdir is None:
            return
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
            for name in ("haproxy/haproxy.cfg", "prometheus/prometheus.yml"):
                source = self._workdir.path / name
                if source.exists():
                    shutil.copyfile(source, out_dir / source.name)
            if self._fleet is not None:
                self._fleet.save_logs(out_dir)
        except OSError as error:
            raise OutputFailed(f"{out_dir} can't be written: {error.strerror}") from error

    # --- end -----------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Make a `start` or `wait_load` in another thread end with `Interrupted`, soon."""
        self._interrupted.set()

    def stop(self) -> None:
        """Stop everything and remove what it used. Idempotent; never raises."""
        phase = _Phases(self.phases_s)
        for step in (
            self._end_load,
            self._remove_objects,
            self._http.close,
            self._remove_folder,
            self._cpu_lease.release,
        ):
            try:
                step()
            except Exception:
                _log.exception("a testbed was not stopped cleanly")
        phase.end("stop")

    def _end_load(self) -> None:
        if self._session is not None:
            self._session.abandon()
        if self._redis is not None:
            self._redis.close()

    def _remove_objects(self) -> None:
        if self._workdir is None or self._engine is None:
            return
        late = self._fleet is not None and self._fleet.unanswered
        self._fleet = self._watch = None
        # From here on it is a leftover: whatever stays now goes when the next testbed starts.
        leftovers.LIVE.discard(self._workdir.name)
        gone = leftovers.remove_testbed(
            self._engine, self._workdir.name, settle_s=_LATE_OBJECTS_S if late else 0.0
        )
        if gone and self._warden is not None:
            self._warden.dismiss()
        elif not gone:
            # Its warden stays, and tries when this process has ended.
            _log.error("testbed %s is not removed completely; gc will try", self._workdir.name)
        self._warden = None

    def _remove_folder(self) -> None:
        if self._workdir is not None:
            self._workdir.remove()
            self._workdir = None
        if self._engine is not None:
            self._engine.close()

    def _engine_(self) -> Engine:
        assert self._engine is not None, "the engine is there from start() on"
        return self._engine

    def _running(self) -> Fleet:
        assert self._fleet is not None, "containers are there from start() on"
        return self._fleet

    def _watcher(self) -> Watch:
        assert self._watch is not None, "a started testbed is watched"
        return self._watch

    def _client(self) -> redis.Redis:
        assert self._redis is not None, "Redis is started before it is asked"
        return self._redis


class _K6:
    """The k6 container as a `testbed.load.session.Generator`."""

    def __init__(self, fleet: Fleet, watch: Watch) -> None:
        self._fleet = fleet
        self._watch = watch
        self._container = fleet.running()["k6"]
        self._asked_s = 0.0
        self._code: int | None = None

    def exit_code(self) -> int | None:
        now = time.monotonic()
        if self._code is None and now - self._asked_s >= 0.25:
            self._asked_s = now
            self._code = self._fleet.exit_code("k6")
        return self._code

    def last_words(self) -> str:
        return self._watch.last_words(self._container)


class _Phases:
    """Writes down how long each phase took."""

    def __init__(self, into: dict[str, float]) -> None:
        self._into = into
        self._since = time.monotonic()

    def end(self, name: str) -> None:
        now = time.monotonic()
        self._into[name] = round(now - self._since, 3)
        self._since = now


def container_user(engine: Engine) -> str:
    """`uid:gid` for all containers: never root of this host.

    Without root the containers are this user, so that it can use their socket and remove their
    files; under a rootless engine this user is root inside.
    """
    if engine.rootless():
        return "0:0"
    if os.geteuid() == 0:
        return "65534:65534"
    return f"{os.geteuid()}:{os.getegid()}"


def _require_space(folder: Path, least_mib: int) -> None:
    """Raise `OutputFailed` when the disk of `folder` is nearly full."""
    with suppress(FileNotFoundError):
        free_mib = shutil.disk_usage(folder).free // 2**20
        if free_mib < least_mib:
            raise OutputFailed(
                f"{folder} has {free_mib} MiB free, less than testbed.least_free_disk_mib="
                f"{least_mib}: free some, or lower it"
            )
