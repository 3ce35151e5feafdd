"""Lines of telemetry on their way into requests.parquet, as blobs and columns, never as objects."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from testbed.errors import LoadFailed, OutputFailed

SCHEMA = {
    "ts_us": pl.Int64,
    "vu": pl.Int32,
    "iteration": pl.Int32,
    "status": pl.Int16,
    "duration_us": pl.Int32,
    "dns_us": pl.Int32,
    "connect_us": pl.Int32,
    "tls_us": pl.Int32,
    "ttfb_us": pl.Int32,
    "download_us": pl.Int32,
}
"""Columns of requests.parquet, in the order of the fields of a line (docs/run-store.md)."""

# About 60,000 rows: large enough to compress and scan well, small enough to hold.
ROW_GROUP_BYTES = 4 << 20

_UNIQUE_KEY = pl.col("vu").cast(pl.Int64) * (1 << 32) + pl.col("iteration")


@dataclass(frozen=True)
class RowCounts:
    """What became of the lines."""

    rows: int
    """Lines that arrived, duplicates included."""
    duplicates: int
    """Lines whose (vu, iteration) had come before; they are not in the file."""
    http_5xx: int
    """Rows in the file with a status of 500 or more."""


class RequestsWriter:
    """Writes `folder/requests.parquet` in row groups, under another name until it is complete.

    Every method raises `OutputFailed` when the folder can't be written or is full, and `LoadFailed`
    when a line is not what the script writes.
    """

    def __init__(self, folder: Path, row_group_bytes: int = ROW_GROUP_BYTES) -> None:
        self._final = folder / "requests.parquet"
        self._draft = folder / "requests.parquet.part"
        self._row_group_bytes = row_group_bytes
        self._blobs: list[bytes] = []
        self._held = 0
        self._rows = 0
        self._schema: pa.Schema = pl.DataFrame(schema=SCHEMA).to_arrow().schema
        with _mapping_os_errors(self._draft):
            folder.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._draft, self._schema, compression="zstd")

    def add(self, blob: bytes) -> None:
        """Take whole lines, each ended by a newline."""
        if blob:
            self._blobs.append(blob)
            self._held += len(blob)
        if self._held >= self._row_group_bytes:
            self._flush()

    def _flush(self) -> None:
        blob = b"".join(self._blobs)
        self._blobs, self._held = [], 0
        if not blob:
            return
        try:
            frame = pl.read_csv(io.BytesIO(blob), has_header=False, schema=SCHEMA)
        except pl.exceptions.PolarsError as error:
            said = str(error).splitlines()[0]
            raise LoadFailed(f"a line of telemetry can't be read: {said}") from error
        if frame.null_count().sum_horizontal().item():
            raise LoadFailed("a line of telemetry has too few fields")
        self._rows += len(frame)
        with _mapping_os_errors(self._draft):
            self._writer.write_table(frame.to_arrow())

    def complete(self) -> RowCounts:
        """Write what is held, drop duplicates, move the file to its name."""
        self._flush()
        with _mapping_os_errors(self._draft):
            self._writer.close()
            duplicates = self._drop_duplicates()
            descriptor = os.open(self._draft, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._draft.replace(self._final)
        errors = pl.scan_parquet(self._final).select((pl.col("status") >= 500).sum()).collect()
        return RowCounts(self._rows, duplicates, int(errors.item()))

    def abandon(self) -> None:
        """Close the file as it is; it keeps its draft name."""
        with suppress(Exception):
            self._writer.close()

    def _drop_duplicates(self) -> int:
        scan = pl.scan_parquet(self._draft)
        unique = scan.select(_UNIQUE_KEY.n_unique()).collect(engine="streaming").item()
        duplicates = self._rows - unique
        if duplicates == 0:
            return 0
        repeated = scan.group_by(_UNIQUE_KEY.alias("key")).len().filter(pl.col("len") > 1)
        keys = repeated.select("key").collect(engine="streaming")["key"]
        seen: set[int] = set()
        second = self._draft.with_suffix(".dedup")
        source = pq.ParquetFile(self._draft)
        with pq.ParquetWriter(second, self._schema, compression="zstd") as writer:
            for index in range(source.num_row_groups):
                frame = pl.from_arrow(source.read_row_group(index))
                writer.write_table(_without(frame, keys, seen).to_arrow())
        second.replace(self._draft)
        return duplicates


def _without(frame: pl.DataFrame, repeated: pl.Series, seen: set[int]) -> pl.DataFrame:
    """`frame` without rows whose key is in `seen`; keys of `repeated` found in it are added."""
    keyed = frame.with_columns(_UNIQUE_KEY.alias("key")).unique(
        "key", keep="first", maintain_order=True
    )
    keyed = keyed.filter(~pl.col("key").is_in(list(seen)))
    seen.update(keyed.filter(pl.col("key").is_in(repeated.implode()))["key"])
    return keyed.drop("key")


@contextmanager
def _mapping_os_errors(path: Path) -> Iterator[None]:
    """Where the system's errors about the output folder become this room's."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputFailed(f"{path.parent} can't be written: {reason}") from error
