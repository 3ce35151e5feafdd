"""Per-slot HAProxy counters over time: `counters.parquet` and the ground truth (paper, §3.4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [
        ("ts_us", pa.int64()),
        ("slot", pa.string()),
        ("address", pa.string()),
        ("status", pa.string()),
        ("admin_state", pa.string()),
        ("weight", pa.int32()),
        ("sessions", pa.int32()),
        ("requests_total", pa.int64()),
        ("http_5xx_total", pa.int64()),
    ]
)
"""Columns of `counters.parquet` (docs/run-store.md)."""

Sample = Sequence[Mapping[str, Any]]
"""One reading of all slots, as rows of `SCHEMA`."""


class CounterRecorder:
    """Samples all slots about once a second into Parquet, in a thread of its own.

    `read` takes one sample; an exception from it ends the recording and is raised by `close`.
    """

    def __init__(
        self,
        read: Callable[[], Sample],
        path: Path,
        *,
        interval_s: float = 1.0,
        rows_per_group: int = 2048,
    ) -> None:
        self._read = read
        self._path = path
        self._interval_s = interval_s
        self._rows_per_group = rows_per_group
        self._rows: list[Mapping[str, Any]] = []
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._writer: pq.ParquetWriter | None = None
        self._thread = threading.Thread(target=self._record, name="counters", daemon=True)
        self.addresses: dict[str, str] = {}
        """Slot to address:port at the first sample."""
        self.slots_changed = False
        """Whether a slot ever had another address (pitfall 3)."""

    def start(self) -> None:
        """Take the first sample now, the others in the background."""
        self._writer = pq.ParquetWriter(self._temporary, SCHEMA, compression="zstd")
        self._sample()
        self._thread.start()

    def close(self) -> Sample:
        """Take the last sample, complete the file and return that sample.

        Raises what reading raised, also earlier in the background.
        """
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            self.abandon()
            raise self._error
        last = self._sample()
        self._flush()
        assert self._writer is not None
        self._writer.close()
        self._writer = None
        self._temporary.rename(self._path)
        return last

    def abandon(self) -> None:
        """Stop without completing the file; idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @property
    def _temporary(self) -> Path:
        return self._path.with_name(f"{self._path.name}.partial")

    def _record(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self._sample()
            except Exception as error:  # handed to whoever closes
                self._error = error
                return

    def _sample(self) -> Sample:
        rows = self._read()
        for row in rows:
            known = self.addresses.setdefault(row["slot"], row["address"])
            self.slots_changed |= known != row["address"]
        self._rows.extend(rows)
        if len(self._rows) >= self._rows_per_group:
            self._flush()
        return rows

    def _flush(self) -> None:
        assert self._writer is not None
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(list(self._rows), schema=SCHEMA))
            self._rows.clear()


def faulty_slots(last: Sample) -> list[str]:
    """Slots with a positive cumulative 5xx count: the ground truth G (paper, §3.4)."""
    return sorted(row["slot"] for row in last if row["http_5xx_total"] > 0)
