"""The life that every driver gives its testbed: start, load, stop (paper, §4)."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import redis

from testbed.api import Addresses, LoadResult, TestbedSpec
from testbed.errors import Interrupted, LoadFailed, TestbedError
from testbed.load.session import LoadSession

_log = logging.getLogger(__name__)


class Life(ABC):
    """The order of things, and what becomes of errors; a driver says what each thing is.

    Its public methods are those of `testbed.api.Testbed`.
    """

    __test__ = False

    hold_s = 0.2
    """How often `hold` looks whether all components live."""
    settle_s = 0.5
    """How long a component that is going down may take to show it, after its first sign."""

    def __init__(self, spec: TestbedSpec) -> None:
        self._spec = spec
        self._interrupted = threading.Event()
        self._session: LoadSession | None = None

    # --- what a driver gives ---------------------------------------------------------------------

    @abstractmethod
    def _bring_up(self) -> Addresses:
        """Start everything but the load; what was started may be left to `_ends`."""

    @abstractmethod
    def _open_load(self, out_dir: Path) -> LoadSession:
        """A load that is ready to go. Raises `TestbedError` before `start`."""

    @abstractmethod
    def _sample(self) -> None:
        """Take note of the resources used so far."""

    @abstractmethod
    def check(self) -> None:
        """Raise `ComponentDied` when any component is gone; k6 may end once the load runs."""

    @abstractmethod
    def _ends(self) -> Iterable[Callable[[], None]]:
        """Steps that remove everything, in order; each may fail on its own and be repeated."""

    def _guard(self) -> None:
        """`check`, as often as the load asks for it: some twenty times a second."""
        self.check()

    def _boundary(self, doing: str) -> AbstractContextManager[None]:
        """Turns foreign errors into this room's."""
        return nullcontext()

    # --- the life --------------------------------------------------------------------------------

    def start(self) -> Addresses:
        """Start everything but the load; return when all N slots are UP in Prometheus' eyes.

        k6 is started too, but waits in its setup() for the word to go.
        """
        try:
            with self._boundary("starting a testbed"):
                return self._bring_up()
        except OSError as error:
            self.stop()
            raise TestbedError(f"the testbed can't be started: {error}") from error
        except BaseException:
            self.stop()
            raise

    def start_load(self, out_dir: Path) -> int:
        """Let the virtual users go; return the unix time in µs at which they were."""
        self._session = self._open_load(Path(out_dir))
        try:
            with self._boundary("the load began"):
                self._sample()
                return self._session.go(self._guard, self._interrupted, self._spec.start_timeout_s)
        except redis.RedisError as error:
            self._settle()
            raise LoadFailed(f"Redis does not answer: {error}") from error

    def wait_load(self, on_tick: Callable[[], None] | None = None) -> LoadResult:
        """Wait until the load has ended; see `testbed.api.Testbed`."""
        if self._session is None:
            raise TestbedError("wait_load() before start_load()")

        def tick() -> None:
            self._sample()
            if on_tick is not None:
                on_tick()

        try:
            with self._boundary("the load ran"):
                return self._session.wait(self._guard, self._interrupted, tick)
        except LoadFailed:
            self._settle()
            raise

    def _settle(self) -> None:
        """What failed may only be the first sign of a component that is going down."""
        deadline = time.monotonic() + self.settle_s
        while time.monotonic() < deadline:
            self.check()
            time.sleep(self.settle_s / 10)

    def hold(self) -> None:
        """Keep a started testbed up; ends by `Interrupted` or `ComponentDied`."""
        while not self._interrupted.wait(self.hold_s):
            self.check()
        raise Interrupted("asked to end")

    def interrupt(self) -> None:
        """Make a `start` or `wait_load` in another thread end with `Interrupted`, soon."""
        self._interrupted.set()

    def stop(self) -> None:
        """Stop everything and remove what it used. Idempotent; never raises."""
        session = [] if self._session is None else [self._session.abandon]
        for step in [*session, *self._ends()]:
            try:
                step()
            except Exception:
                _log.exception("a testbed was not stopped cleanly")
