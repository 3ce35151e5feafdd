"""The docker driver: containers on a network of their own (paper, §4.1 to §4.3)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from testbed.api import Addresses, ComponentUsage, TestbedSpec
from testbed.docker import images, plan
from testbed.docker.containers import Containers
from testbed.docker.engine import connect, infrastructure
from testbed.docker.launch import Launch, require_space
from testbed.docker.usage import Meter
from testbed.docker.versions import versions_of
from testbed.docker.watch import Watch
from testbed.errors import OutputFailed, TestbedError
from testbed.life import Life
from testbed.load.session import LoadSession
from testbed.load.sources import FileSource, RedisSource, TelemetrySource

_WATCH_EVERY_S = 1.0
"""Each look costs the engine CPU time that the fleet needs."""

_LOGGED_CONFIGS = ("haproxy/haproxy.cfg", "prometheus/prometheus.yml")


class DockerTestbed(Life):
    """A `Testbed` of containers on a network of its own; see `testbed.api.Testbed`."""

    hold_s = _WATCH_EVERY_S
    settle_s = 3.0  # a busy engine notices late that a process has ended

    def __init__(self, spec: TestbedSpec, foreground: bool = False) -> None:
        """`foreground` marks a testbed made by hand, for `python -m testbed down`."""
        super().__init__(spec)
        self._foreground = foreground
        self._launch = Launch(spec, self._interrupted)
        self._meter: Meter | None = None
        self._watched_s = 0.0

    @property
    def phases_s(self) -> dict[str, float]:
        """How long each phase of the start and the stop took, in s."""
        return self._launch.phases_s

    def _boundary(self, doing: str) -> AbstractContextManager[None]:
        return infrastructure(doing)

    def _bring_up(self) -> Addresses:
        return self._launch.start(self._foreground)

    def _open_load(self, out_dir: Path) -> LoadSession:
        launch = self._launch
        if launch.addresses is None or launch.containers is None:
            raise TestbedError("start_load() before start()")
        assert launch.workdir is not None and launch.redis is not None
        assert launch.watch is not None and launch.engine is not None
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
        self._meter = Meter(launch.engine, launch.cpu_plan)
        return LoadSession(self._spec.load, generator, source, summary, out_dir)

    def _sample(self) -> None:
        if self._meter is not None and self._launch.containers is not None:
            self._meter.sample(self._launch.containers.running())

    def check(self) -> None:
        """Raise `ComponentDied` when any component is gone; k6 may end once the load runs."""
        self._launch.check(load_began=self._session is not None)

    def _guard(self) -> None:
        now = time.monotonic()
        if now - self._watched_s >= _WATCH_EVERY_S:
            self._watched_s = now
            self.check()

    def backends(self) -> dict[str, str]:
        """Which backend is at which address, as HAProxy sees it: asked of the engine."""
        if self._launch.containers is None:
            return {}
        with infrastructure("asking for the backends' addresses"):
            found = self._launch.containers.addresses()
        return {
            f"{address}:{plan.BACKEND_PORT}": component
            for address, component in found.items()
            if component.startswith(plan.BACKEND_PREFIX)
        }

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

    def _ends(self) -> Iterable[Callable[[], None]]:
        return self._launch.ends()


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
