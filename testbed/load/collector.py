"""A thread that moves telemetry from its source into requests.parquet while the load runs."""

from __future__ import annotations

import threading
from pathlib import Path

import redis

from testbed.errors import LoadFailed, TestbedError
from testbed.load.requests import RequestsWriter, RowCounts
from testbed.load.sources import TelemetrySource

DRAIN_EVERY_S = 1.0


class Collector:
    """Runs from `start` to `complete` or `abandon`."""

    def __init__(self, source: TelemetrySource, folder: Path) -> None:
        self._source = source
        self._writer = RequestsWriter(folder)
        self._stop = threading.Event()
        self._error: TestbedError | None = None
        self._thread = threading.Thread(target=self._run, name="drainbench-telemetry", daemon=True)

    def start(self) -> None:
        """Begin to drain."""
        self._thread.start()

    def check(self) -> None:
        """Raise what went wrong, if anything: `OutputFailed` or `LoadFailed`."""
        if self._error is not None:
            raise self._error

    def complete(self) -> RowCounts:
        """Drain what is left and complete the file. Call it when the load has ended."""
        self._halt()
        self.check()
        while self._drain():
            pass
        self.check()
        return self._writer.complete()

    def abandon(self) -> None:
        """Stop without completing anything. Idempotent."""
        self._halt()
        self._writer.abandon()

    def _halt(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while self._error is None and not self._stop.wait(DRAIN_EVERY_S):
            self._drain()

    def _drain(self) -> bool:
        try:
            blob = self._source.drain()
            self._writer.add(blob)
        except TestbedError as error:
            self._error = error
        except redis.RedisError as error:
            self._error = LoadFailed(f"telemetry can't be read from Redis: {error}")
        except Exception as error:
            self._error = LoadFailed(f"telemetry can't be collected: {error!r}")
        return self._error is None and bool(blob)
