"""Telemetry on its way into requests.parquet."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import redis

from testbed.errors import LoadFailed, OutputFailed
from testbed.load.collector import Collector
from testbed.load.requests import SCHEMA, RequestsWriter
from testbed.load.sources import FileSource


def line(vu: int, iteration: int, status: int = 200) -> bytes:
    values = (1_700_000_000_000_000, vu, iteration, status, 11_900, 0, 31, 0, 11_700, 42)
    return (",".join(map(str, values)) + "\n").encode()


def test_values_and_types_arrive_as_they_were_sent(tmp_path: Path) -> None:
    writer = RequestsWriter(tmp_path)
    writer.add(line(1, 0) + line(2, 0, 500))
    writer.add(line(1, 1, 0))
    counts = writer.complete()
    rows = pl.read_parquet(tmp_path / "requests.parquet")
    assert rows.schema == pl.Schema(SCHEMA)
    assert rows.row(1, named=True) == {
        "ts_us": 1_700_000_000_000_000,
        "vu": 2,
        "iteration": 0,
        "status": 500,
        "duration_us": 11_900,
        "dns_us": 0,
        "connect_us": 31,
        "tls_us": 0,
        "ttfb_us": 11_700,
        "download_us": 42,
    }
    assert rows["status"].to_list() == [200, 500, 0]
    assert (counts.rows, counts.duplicates, counts.http_5xx) == (3, 0, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["requests.parquet"]


def test_the_file_has_no_name_until_it_is_complete(tmp_path: Path) -> None:
    writer = RequestsWriter(tmp_path, row_group_bytes=1)
    writer.add(line(1, 0))
    writer.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["requests.parquet.part"]


def test_rows_are_written_in_groups_as_they_come(tmp_path: Path) -> None:
    writer = RequestsWriter(tmp_path, row_group_bytes=200)
    for iteration in range(20):
        writer.add(line(1, iteration))
    writer.complete()
    metadata = pq.read_metadata(tmp_path / "requests.parquet")
    assert metadata.num_rows == 20
    assert metadata.num_row_groups > 3


def test_duplicates_are_counted_and_dropped_across_row_groups(tmp_path: Path) -> None:
    writer = RequestsWriter(tmp_path, row_group_bytes=1)
    writer.add(line(1, 0) + line(1, 1) + line(1, 1, 500))
    writer.add(line(2, 0) + line(1, 0, 500))
    writer.add(line(1, 1) + line(3, 0, 503))
    counts = writer.complete()
    rows = pl.read_parquet(tmp_path / "requests.parquet")
    assert rows.select("vu", "iteration", "status").rows() == [
        (1, 0, 200),
        (1, 1, 200),
        (2, 0, 200),
        (3, 0, 503),
    ]
    assert (counts.rows, counts.duplicates, counts.http_5xx) == (7, 3, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["requests.parquet"]


def test_a_load_without_rows_is_an_empty_file(tmp_path: Path) -> None:
    counts = RequestsWriter(tmp_path).complete()
    assert counts.rows == 0
    assert pl.read_parquet(tmp_path / "requests.parquet").schema == pl.Schema(SCHEMA)


@pytest.mark.parametrize("blob", [b"a,b,c\n", b"1,2,3\n", line(1, 0) + b"1,1,x,200,1,1,1,1,1,1\n"])
def test_a_line_that_is_not_the_scripts_is_refused(tmp_path: Path, blob: bytes) -> None:
    writer = RequestsWriter(tmp_path)
    writer.add(blob)
    with pytest.raises(LoadFailed, match="line of telemetry"):
        writer.complete()
    assert not (tmp_path / "requests.parquet").exists()


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / "requests.parquet.part").symlink_to("/dev/full")
    with pytest.raises(OutputFailed, match=r"can't be written: .*No space left"):
        writer = RequestsWriter(tmp_path, row_group_bytes=1)
        writer.add(line(1, 0))
        writer.complete()


def test_a_folder_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(OutputFailed, match="can't be written"):
        RequestsWriter(tmp_path / "taken" / "out")


class Fake:
    """A source that gives what it was given, then raises."""

    def __init__(self, *blobs: bytes, error: Exception | None = None) -> None:
        self.blobs = list(blobs)
        self.error = error

    def release(self) -> None: ...

    def started(self) -> None: ...

    def drain(self) -> bytes:
        if not self.blobs and self.error:
            raise self.error
        return self.blobs.pop(0) if self.blobs else b""


def test_what_is_left_at_the_end_is_collected(tmp_path: Path) -> None:
    collector = Collector(Fake(line(1, 0), line(1, 1), line(1, 2)), tmp_path)
    collector.start()
    assert collector.complete().rows == 3


def test_a_redis_that_is_gone_fails_the_load(tmp_path: Path) -> None:
    collector = Collector(Fake(error=redis.ConnectionError("refused")), tmp_path)
    collector.start()
    with pytest.raises(LoadFailed, match="can't be read from Redis: refused"):
        collector.complete()
    collector.abandon()


def test_a_file_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    shared: dict[str, str] = {}

    class Client:
        def set(self, key: str, value: str) -> None:
            shared[key] = value

    source = FileSource(path, Client(), piece_bytes=60)  # type: ignore[arg-type]
    assert source.started() is None
    path.write_bytes(b'#{"run_id": "r", "started_')
    assert source.started() is None
    path.write_bytes(b'#{"run_id": "r", "started_at_ms": 5}\n')
    assert source.started() == {"run_id": "r", "started_at_ms": 5}
    assert shared == {"run:id": "r"}
    assert source.drain() == b""
    with path.open("ab") as stream:
        stream.write(line(1, 0) + line(1, 1) + line(1, 2)[:20])
    assert source.drain() == line(1, 0)
    assert source.drain() == line(1, 1)
    assert source.drain() == b""
    with path.open("ab") as stream:
        stream.write(line(1, 2)[20:])
    assert source.drain() == line(1, 2)


def test_a_full_run_fits_into_400_mb(tmp_path: Path) -> None:
    """1.3 million requests, a second's worth at a time, in a process of their own."""
    code = f"""
        import re
        from pathlib import Path
        from testbed.load.requests import RequestsWriter
        writer = RequestsWriter(Path({str(tmp_path)!r}))
        for second in range(600):
            writer.add(b"".join(
                b"17000000%08d,%d,%d,200,11900,0,31,0,11700,42\\n" % (second, vu, second * 25 + i)
                for vu in range(1, 91) for i in range(25)
            ))
        counts = writer.complete()
        # Not ru_maxrss: that of a child begins with the memory of the process it was forked from.
        peak_kb = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
        print(counts.rows, int(peak_kb) // 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    rows, peak_mb = map(int, done.stdout.split())
    assert rows == 1_350_000
    assert peak_mb <= 400
