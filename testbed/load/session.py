"""One load from the word to go to its result, whatever k6 runs in."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from testbed.api import LoadResult, LoadSpec
from testbed.errors import ComponentDied, Interrupted, LoadFailed, OutputFailed, StartTimeout
from testbed.load.collector import Collector
from testbed.load.result import SUMMARY_NAME, planned_s, read_summary, result
from testbed.load.sources import TelemetrySource

TICK_S = 1.0
_POLL_S = 0.05
_START_POLL_S = 0.005

# k6 lets iterations end for 30 s; a request can take its time-out on top.
_OVERTIME_S = 60.0


class Generator(Protocol):
    """A k6 that was started."""

    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""

    def last_words(self) -> str:
        """The end of its log, on one line."""


class LoadSession:
    """Used once: `go`, then `wait`, or `abandon`."""

    def __init__(
        self,
        load: LoadSpec,
        generator: Generator,
        source: TelemetrySource,
        summary: Path,
        out_dir: Path,
    ) -> None:
        """`summary` is where the script's `handleSummary` writes. Raises `OutputFailed`."""
        self._load = load
        self._generator = generator
        self._source = source
        self._summary = summary
        self._out_dir = out_dir
        self._collector = Collector(source, out_dir)
        self._began = time.monotonic()

    def go(self, guard: Callable[[], None], interrupted: threading.Event, timeout_s: float) -> int:
        """Let the virtual users go; return the unix time in µs at which they were.

        `guard` may raise. Raises `ComponentDied`, `StartTimeout`, `Interrupted`.
        """
        self._source.release()
        deadline = time.monotonic() + timeout_s
        while (started := self._source.started()) is None:
            guard()
            if (code := self._generator.exit_code()) is not None:
                said = self._generator.last_words()
                raise ComponentDied(f"k6 ended before the load began ({code}); last words: {said}")
            if interrupted.wait(_START_POLL_S):
                raise Interrupted("interrupted while the load began")
            if time.monotonic() > deadline:
                said = self._generator.last_words()
                raise StartTimeout(
                    f"waited {timeout_s:.0f} s for k6's setup(); last seen: {said or 'nothing'};"
                    " try: a longer testbed.start_timeout_s, or fewer testbeds at a time"
                )
        self._began = time.monotonic()
        self._collector.start()
        return int(started["started_at_ms"]) * 1000

    def wait(
        self,
        guard: Callable[[], None],
        interrupted: threading.Event,
        on_tick: Callable[[], None] | None = None,
    ) -> LoadResult:
        """Wait until k6 has ended, complete the files in `out_dir`, return the result.

        `guard` is called about twenty times a second and may raise, `on_tick` about once a second.
        Raises `LoadFailed`, `OutputFailed`, `Interrupted` and what the callbacks raise.
        """
        deadline = self._began + planned_s(self._load) + _OVERTIME_S
        next_tick = time.monotonic()
        while (code := self._generator.exit_code()) is None:
            guard()
            self._collector.check()
            now = time.monotonic()
            if on_tick is not None and now >= next_tick:
                next_tick = now + TICK_S
                on_tick()
            if now > deadline:
                raise LoadFailed(f"k6 still ran {_OVERTIME_S:.0f} s after its time")
            if interrupted.wait(_POLL_S):
                raise Interrupted("interrupted while the load ran")
        guard()
        if code < 0:
            said = self._generator.last_words()
            raise ComponentDied(f"k6 was killed by signal {-code}; last words: {said or 'none'}")
        return self._finish(code)

    def abandon(self) -> None:
        """End without a result; requests.parquet keeps its draft name. Idempotent."""
        self._collector.abandon()

    def _finish(self, code: int) -> LoadResult:
        summary, raw = read_summary(self._summary, code, self._generator.last_words())
        counts = self._collector.complete()
        outcome = result(self._load, summary, raw, code, counts)
        try:
            (self._out_dir / SUMMARY_NAME).write_text(json.dumps(raw, indent=1))
        except OSError as error:
            raise OutputFailed(f"{self._out_dir} can't be written: {error.strerror}") from error
        return outcome
