"""The docker driver's life: start, load, stop (paper, §4.1 to §4.3)."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import redis

from testbed.api import Addresses, ComponentUsage, LoadResult, TestbedSpec
from testbed.docker import images, plan
from testbed.docker.containers import Containers
from testbed.docker.engine import connect, infrastructure
from testbed.docker.launch import Launch, require_space
from testbed.docker.usage import Meter
from testbed.docker.versions import versions_of
from testbed.docker.watch import Watch
from testbed.errors import Interrupted, LoadFailed, OutputFailed, TestbedError
from testbed.load.session import LoadSession
from testbed.load.sources import FileSource, RedisSource, TelemetrySource

_log = logging.getLogger(__name__)

_WATCH_EVERY_S = 1.0
"""Each look costs the engine CPU time that the fleet needs."""

_LOGGED_CONFIGS = ("haproxy/haproxy.cfg", "prometheus/prometheus.yml")


class DockerTestbed:
    """A `Testbed` of containers on a network of its own; see `testbed.api.Testbed`."""

    __test__ = False

    def __init__(self, spec: TestbedSpec, foreground: bool = False) -> None:
        """`foreground` marks a testbed made by hand, for `python -m testbed down`."""
        self._spec = spec
        self._foreground = foreground
        self._interrupted = threading.Event()
        self._launch = Launch(spec, self._interrupted)
        self._session: LoadSession | None = None
        self._meter: Meter | None = None
        self._watched_s = 0.0

    @property
    def phases_s(self) -> dict[str, float]:
        """How long each phase of the start and the stop took, in s."""
        return self._launch.phases_s

    def start(self) -> Addresses:
        """Start everything but the load; return when all N slots are UP in Prometheus' eyes.

        k6 is started too, but waits in its setup() for the word to go.
        """
        try:
            with infrastructure("starting a testbed"):
                return self._launch.start(self._foreground)
        except OSError as error:
            self.stop()
            raise TestbedError(f"the testbed can't be started: {error}") from error
        except BaseException:
            self.stop()
            raise

    def start_load(self, out_dir: Path) -> int:
        """Let the virtual users go; return the unix time in µs at which they were."""
        launch = self._launch
        if launch.addresses is None or launch.containers is None:
            raise TestbedError("start_load() before start()")
        assert launch.workdir is not None and launch.redis is not None
        assert launch.watch is not None and launch.engine is not None
        out_dir = Path(out_dir)
        require_space(out_dir, launch.settings.least_free_disk_mib)
        folder = launch.workdir.path / "load"
        source: TelemetrySource = RedisSource(launch.redis)
        if self._spec.load.telemetry == "file":
            source = FileSource(folder / Path(plan.TELEMETRY_FILE).name, launch.redis)
            with infrastructure("starting k6"):
                launch.containers.start([launch.load_plan()])
                launch.containers.release("k6")
        generator = _K6(launch.containers, launch.watch)
        summary = folder / Path(plan.SUMMARY_FILE).name
        self._session = LoadSession(self._spec.load, generator, source, summary, out_dir)
        self._meter = Meter(launch.engine, launch.cpu_plan)
        try:
            with infrastructure("the load began"):
                self._meter.sample(launch.containers.running())
                return self._session.go(self._guard, self._interrupted, self._spec.start_timeout_s)
        except redis.RedisError as error:
            self._settle()
            raise LoadFailed(f"Redis does not answer: {error}") from error

    def wait_load(self, on_tick: Callable[[], None] | None = None) -> LoadResult:
        """Wait until the load has ended; see `testbed.api.Testbed`."""
        if self._session is None:
            raise TestbedError("wait_load() before start_load()")

        def tick() -> None:
            if self._meter is not None and self._launch.containers is not None:
                self._meter.sample(self._launch.containers.running())
            if on_tick is not None:
                on_tick()

        try:
            with infrastructure("the load ran"):
                return self._session.wait(self._guard, self._interrupted, tick)
        except LoadFailed:
            self._settle()
            raise

    def _settle(self) -> None:
        """What failed may only be the first sign of a component that is going down."""
        for _ in range(4):
            self.check()
            time.sleep(0.25)

    def check(self) -> None:
        """Raise `ComponentDied` when any component is gone; k6 may end once the load runs."""
        self._launch.check(load_began=self._session is not None)

    def _guard(self) -> None:
        now = time.monotonic()
        if now - self._watched_s >= _WATCH_EVERY_S:
            self._watched_s = now
            self.check()

    def hold(self) -> None:
        """Keep a started testbed up; ends by `Interrupted` or `ComponentDied`."""
        while not self._interrupted.wait(_WATCH_EVERY_S):
            self.check()
        raise Interrupted("asked to end")

    def usage(self) -> dict[str, ComponentUsage]:
        """Resources used so far, by component; the backends are one."""
        if self._meter is None:
            return {}
        if self._launch.containers is not None:
            with infrastructure("reading the containers' counters"):
                self._meter.sample(self._launch.containers.running(), ask_engine=True)
        return self._meter.usage()

    def versions(self) -> dict[str, str]:
        """Version of every program, of the engine, and the images' ids."""
        launch = self._launch
        engine = launch.engine or connect(launch.settings.engine_timeout_s)
        with infrastructure("asking for versions"):
            found = launch.images or images.resolve(engine, launch.settings)
            return versions_of(engine, found, launch.addresses, launch.http)

    def collect_logs(self, out_dir: Path) -> None:
        """Copy the components' logs and configurations into `out_dir`. Raises `OutputFailed`."""
        launch = self._launch
        if launch.workdir is None:
            return
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
            for name in _LOGGED_CONFIGS:
                source = launch.workdir.path / name
                if source.exists():
                    shutil.copyfile(source, out_dir / source.name)
            if launch.containers is not None:
                with infrastructure("collecting logs"):
                    launch.containers.save_logs(out_dir)
        except OSError as error:
            raise OutputFailed(f"{out_dir} can't be written: {error}") from error

    def interrupt(self) -> None:
        """Make a `start` or `wait_load` in another thread end with `Interrupted`, soon."""
        self._interrupted.set()

    def stop(self) -> None:
        """Stop everything and remove what it used. Idempotent; never raises."""
        session = [] if self._session is None else [self._session.abandon]
        for step in [*session, *self._launch.ends()]:
            try:
                step()
            except Exception:
                _log.exception("a testbed was not stopped cleanly")


class _K6:
    """The k6 container as a `testbed.load.session.Generator`."""

    def __init__(self, containers: Containers, watch: Watch) -> None:
        self._containers = containers
        self._watch = watch
        self._container = containers.running()["k6"]
        self._asked_s = 0.0
        self._code: int | None = None

    def exit_code(self) -> int | None:
        now = time.monotonic()
        if self._code is None and now - self._asked_s >= _WATCH_EVERY_S / 2:
            self._asked_s = now
            self._code = self._containers.exit_code("k6")
        return self._code

    def last_words(self) -> str:
        return self._watch.last_words(self._container)
