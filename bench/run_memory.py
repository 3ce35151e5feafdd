"""Peak memory of a run's process at 1.3 million requests (600 s at N=9).

In one process: what an attempt imports, the telemetry of 600 s written as it would arrive,
and the aggregates that are computed when the run completes. Beside it: the same rows as Python
dictionaries, which is what would happen if requests became objects one by one. Exit code 1 where
the target is missed.

    python bench/run_memory.py
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
TARGET_MB = 400
REQUESTS = 1_300_000


def _peak_mb() -> int:
    # Not ru_maxrss: that of a child begins with the memory of the process it was forked from.
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) // 1024


def run_process(root: Path) -> None:
    """What the process of an attempt does with its requests."""
    import sweep.run.attempt  # noqa: F401 - its imports are part of the memory
    from sweep.metrics.aggregate import write_run_aggregates
    from testbed.load.requests import RequestsWriter

    imported = _peak_mb()
    (run,) = (root / "runs").iterdir()
    lines = b"17000000%08d,%d,%d,200,11900,0,31,0,11700,42\n"
    writer = RequestsWriter(root)
    per_vu = REQUESTS // 600 // 90
    for second in range(600):
        writer.add(
            b"".join(
                lines % (second, vu, second * per_vu + i)
                for vu in range(1, 91)
                for i in range(per_vu)
            )
        )
    rows = writer.complete().rows
    written = _peak_mb()
    metrics = write_run_aggregates(run)
    print(
        f"{rows:,} rows written, {metrics['requests']:,} aggregated; peak memory: "
        f"{imported} MB imported, {written} MB written, {_peak_mb()} MB aggregated"
    )
    met = _peak_mb() <= TARGET_MB
    print(f"target {TARGET_MB} MB: {'met' if met else 'missed'}")
    if not met:
        raise SystemExit(1)


def objects() -> None:
    """The same rows as Python objects."""
    names = ("ts_us", "vu", "iteration", "status", "duration_us", "dns", "connect", "ttfb", "down")
    rows = [
        dict(zip(names, (n * 1000, n % 90, n, 200, 11_900 + n, 0, 31, 11_700, 42), strict=True))
        for n in range(REQUESTS)
    ]
    print(f"{len(rows):,} rows as Python dictionaries: {_peak_mb()} MB")


def main() -> None:
    """Measure both, each in a process of its own; exit code 1 where the target is missed."""
    if sys.argv[1:2] == ["run"]:
        return run_process(Path(sys.argv[2]))
    if sys.argv[1:2] == ["objects"]:
        return objects()
    from tests.synthetic.demo import demo_runs
    from tests.synthetic.write import write_store

    with tempfile.TemporaryDirectory() as folder:
        write_store(Path(folder), demo_runs(duration_s=600.0, requests=REQUESTS)[:1])
        me = [sys.executable, str(Path(__file__).resolve())]
        measured = subprocess.run([*me, "run", folder], check=False)
        subprocess.run([*me, "objects"], check=True)
    raise SystemExit(measured.returncode)


if __name__ == "__main__":
    main()
