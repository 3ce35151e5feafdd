"""The local driver's life: start, load, stop (paper, §4)."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import redis

from testbed.api import Addresses, ComponentUsage, LoadResult, TestbedSpec
from testbed.errors import Interrupted, LoadFailed, OutputFailed, TestbedError
from testbed.load.session import LoadSession
from testbed.load.sources import FileSource, RedisSource, TelemetrySource
from testbed.local.launch import Processes
from testbed.processes import Child

_log = logging.getLogger(__name__)


class LocalTestbed:
    """A `Testbed` of child processes on loopback; see `testbed.api.Testbed` for its methods."""

    __test__ = False

    def __init__(self, spec: TestbedSpec, foreground: bool = False) -> None:
        """`foreground` marks a testbed made by hand, for `python -m testbed down`."""
        self._spec = spec
        self._foreground = foreground
        self._interrupted = threading.Event()
        self._processes = Processes(spec, self._interrupted)
        self._session: LoadSession | None = None

    def start(self) -> Addresses:
        """Start everything but the load; return when all N slots are UP in Prometheus' eyes.

        k6 is started too, but waits in its setup() for the word to go.
        """
        try:
            return self._processes.start(self._foreground)
        except OSError as error:
            self.stop()
            raise TestbedError(f"the testbed can't be started: {error}") from error
        except BaseException:
            self.stop()
            raise

    def start_load(self, out_dir: Path) -> int:
        """Let the virtual users go; return the unix time in µs at which they were."""
        addresses = self._processes.addresses
        if addresses is None:
            raise TestbedError("start_load() before start()")
        layout = self._processes.layout
        source: TelemetrySource = RedisSource(self._processes.redis)
        if self._spec.load.telemetry == "file":
            source = FileSource(layout.telemetry, self._processes.redis)
            self._processes.spawn_k6(addresses.frontend_url, addresses.redis_url)
        self._session = LoadSession(
            self._spec.load, _K6(self._processes.k6), source, layout.summary, Path(out_dir)
        )
        try:
            return self._session.go(self.check, self._interrupted, self._spec.start_timeout_s)
        except redis.RedisError as error:
            self._settle()
            raise LoadFailed(f"Redis does not answer: {error}") from error

    def wait_load(self, on_tick: Callable[[], None] | None = None) -> LoadResult:
        """Wait until the load has ended; see `testbed.api.Testbed`."""
        if self._session is None:
            raise TestbedError("wait_load() before start_load()")

        def tick() -> None:
            self._processes.sample()
            if on_tick is not None:
                on_tick()

        try:
            return self._session.wait(self.check, self._interrupted, tick)
        except LoadFailed:
            self._settle()
            raise

    def _settle(self) -> None:
        """What failed may only be the first sign of a component that is going down."""
        for _ in range(10):
            self.check()
            time.sleep(0.05)

    def check(self) -> None:
        """Raise `ComponentDied` when any component is gone; k6 may end once the load runs."""
        self._processes.check(load_began=self._session is not None)

    def hold(self) -> None:
        """Keep a started testbed up; ends by `Interrupted` or `ComponentDied`."""
        while not self._interrupted.wait(0.2):
            self.check()
        raise Interrupted("asked to end")

    def usage(self) -> dict[str, ComponentUsage]:
        """Resources used so far, by component; the backends are one."""
        return self._processes.usage()

    def versions(self) -> dict[str, str]:
        """Version of every program, by program name."""
        return self._processes.versions()

    def collect_logs(self, out_dir: Path) -> None:
        """Copy the components' logs and configurations into `out_dir`. Raises `OutputFailed`."""
        if self._processes.addresses is None:
            return
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
            for path in self._processes.layout.collectable():
                if path.exists():
                    shutil.copyfile(path, out_dir / path.name)
        except OSError as error:
            raise OutputFailed(f"{out_dir} can't be written: {error.strerror}") from error

    def interrupt(self) -> None:
        """Make a `start` or `wait_load` in another thread end with `Interrupted`, soon."""
        self._interrupted.set()

    def stop(self) -> None:
        """Stop everything and remove what it used. Idempotent; never raises."""
        session = [] if self._session is None else [self._session.abandon]
        for step in [*session, *self._processes.ends()]:
            try:
                step()
            except Exception:
                _log.exception("a testbed was not stopped cleanly")


class _K6:
    """The k6 child as a `testbed.load.session.Generator`."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def exit_code(self) -> int | None:
        return self._child.poll()

    def last_words(self) -> str:
        return self._child.log_tail()
