"""All tables from raw requests at the paper's size, beside the same queries in DuckDB.

    python bench/report_scale.py                      240 runs, 197 million requests
    python bench/report_scale.py --share 0.025        a fortieth of it
    python bench/report_scale.py --store DIR --keep   use, or make and keep, the store at DIR

Every measurement is a process of its own, so that imports count and peak memory is its own. Needs
about 8 bytes a request of disk while it runs. Writes a summary to the terminal, JSON with --json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

REPORT_BOUND_S = 3.0
MEMORY_BOUND_GB = 0.5


@dataclass(frozen=True)
class Measured:
    """One process: wall time, CPU time of all its threads, peak resident memory."""

    name: str
    wall_s: float
    cpu_s: float
    peak_gb: float
    output: str = ""


def measure(name: str, arguments: list[str]) -> Measured:
    """Run a Python process to its end; raises RuntimeError when it fails."""
    with tempfile.TemporaryFile() as out:
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=out, cwd=ROOT, env={**os.environ, "COLUMNS": "120"}
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - started
        out.seek(0)
        text = out.read().decode()
    if process.returncode:
        raise RuntimeError(f"{name} ended with {process.returncode}")
    return Measured(name, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024**2, text)


def make_store(store: Path, share: float) -> None:
    """Write the synthetic store, one run at a time."""
    from rich.progress import track

    from tests.synthetic.paper import paper_runs
    from tests.synthetic.write import write_run

    for run in track(paper_runs(share), description="writing runs"):
        write_run(store, run)
    (store / "attempts").mkdir(exist_ok=True)


def queries_ours(store: Path) -> None:
    """Per-run counts, quantiles and 10 s windows, and the pooled quantiles of every arm."""
    from concurrent.futures import ThreadPoolExecutor

    from sweep.metrics.latency import Pool, quantile
    from sweep.metrics.requests import read_requests, request_stats
    from sweep.store.paths import RunStore

    runs = RunStore(store)

    def one(run_id: str):  # type: ignore[no-untyped-def]
        summary = runs.read_summary(run_id)
        frame = read_requests(runs.run(run_id).requests)
        return arm(summary), request_stats(frame, summary["t0_us"], summary["duration_s"])

    pools: dict[str, Pool] = {}
    answer: dict[str, list[float | None]] = {}
    checks = [0, 0, 0.0]
    with ThreadPoolExecutor(2) as workers:
        for name, stats in workers.map(one, runs.complete_ids()):
            pools.setdefault(name, Pool()).add(stats.latency)
            checks[0] += stats.errors.requests
            checks[1] += stats.errors.http_5xx
            checks[2] += sum(v or 0 for v in stats.windows.p95_us)
            for q in (0.5, 0.95, 0.99):
                quantile(stats.latency, q)
    for name, pool in pools.items():
        total = pool.total()
        answer[name] = [quantile(total, q) for q in (0.5, 0.95, 0.99)]
    print(json.dumps({"arms": answer, "checks": checks}))


def queries_duckdb(store: Path) -> None:
    """The same in DuckDB: quantiles by group, pooled quantiles by counts."""
    import duckdb

    from sweep.store.paths import RunStore

    runs = RunStore(store)
    known = [(str(runs.run(r).requests), runs.read_summary(r)) for r in runs.complete_ids()]
    connection = duckdb.connect()
    connection.execute("create table runs (filename varchar, arm varchar, t0 bigint)")
    connection.executemany(
        "insert into runs values (?, ?, ?)", [(f, arm(s), s["t0_us"]) for f, s in known]
    )
    source = f"read_parquet({[f for f, _ in known]}, filename = true)"
    per_run = connection.execute(
        f"""select filename, count(*), sum((status >= 500)::int), avg(duration_us),
                   quantile_cont(duration_us, [0.5, 0.95, 0.99])
            from {source} group by filename"""
    ).fetchall()
    windows = connection.execute(
        f"""select filename, least(greatest((ts_us - t0) // 10000000, 0), 60) as w, count(*),
                   sum((status >= 500)::int), avg(duration_us),
                   quantile_cont(duration_us, [0.5, 0.95, 0.99])
            from {source} join runs using (filename) group by filename, w"""
    ).fetchall()
    # quantile_cont over a hundred million values would hold them all; counts are as exact.
    pooled = connection.execute(
        f"""with counts as (
                select arm, duration_us as v, count(*) as c
                from {source} join runs using (filename) group by arm, v),
            ranked as (
                select arm, v, sum(c) over (partition by arm order by v) as upto,
                       sum(c) over (partition by arm) as n from counts)
            select arm, q, min(v) filter (upto > floor(q * (n - 1))) as low,
                   min(v) filter (upto > ceil(q * (n - 1))) as high, any_value(n) as n
            from ranked, (values (0.5), (0.95), (0.99)) as quantiles(q) group by arm, q"""
    ).fetchall()
    answer: dict[str, dict[float, float]] = {}
    for name, q, low, high, n in pooled:
        rank = float(q) * (int(n) - 1)
        answer.setdefault(name, {})[float(q)] = low + (rank - int(rank)) * (high - low)
    checks = [
        sum(row[1] for row in per_run),
        int(sum(row[2] for row in per_run)),
        sum(row[5][1] for row in windows),
    ]
    arms = {name: [by_q[q] for q in sorted(by_q)] for name, by_q in answer.items()}
    print(json.dumps({"arms": arms, "checks": checks}))


def arm(summary: dict) -> str:  # type: ignore[type-arg]
    """The control arm of a run (paper, Table 8)."""
    if summary["model"]["policy"] == "static":
        return summary["error_mode"]
    return "supra" if summary["model"]["active_params_b"] >= 3 else "sub"


def same(ours: str, theirs: str) -> bool:
    """Whether both gave the same numbers."""
    a, b = json.loads(ours), json.loads(theirs)
    pairs = [
        (x, y) for name in a["arms"] for x, y in zip(a["arms"][name], b["arms"][name], strict=True)
    ]
    pairs += list(zip(a["checks"], b["checks"], strict=True))
    return set(a["arms"]) == set(b["arms"]) and all(
        abs(x - y) <= 1e-6 * max(1.0, abs(y)) for x, y in pairs
    )


def main() -> int:
    """Measure and print; exit code 1 when a bound is missed or the answers differ."""
    parser = argparse.ArgumentParser(description="Time the report at the paper's size.")
    parser.add_argument("--share", type=float, default=1.0, help="of the paper's requests")
    parser.add_argument("--store", type=Path, help="where the store is, or is to be made")
    parser.add_argument("--keep", action="store_true", help="leave the store where it is")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    parser.add_argument("--query", choices=["ours", "duckdb"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.query:
        {"ours": queries_ours, "duckdb": queries_duckdb}[args.query](args.store)
        return 0
    store = args.store or Path(tempfile.mkdtemp(prefix="report-scale-"))
    made = not (store / "runs").is_dir()
    try:
        if made:
            make_store(store, args.share)
        return _measure_all(store, args.json)
    finally:
        if made and not args.keep:
            shutil.rmtree(store, ignore_errors=True)


def _measure_all(store: Path, target: Path | None) -> int:
    from rich.console import Console
    from rich.table import Table

    here = str(Path(__file__).resolve())
    query = [here, "--store", str(store), "--query"]
    # Read once, so that nobody pays for a cold page cache.
    for path in store.glob("runs/*/*.parquet"):
        path.read_bytes()
    ours = measure("requests, ours", [*query, "ours"])
    duckdb = measure("requests, DuckDB", [*query, "duckdb"])
    (store / "report_cache.json").unlink(missing_ok=True)
    raw = measure("all tables from raw", ["-m", "sweep.report", str(store), "--from-raw"])
    cached = [
        measure("all tables from caches", ["-m", "sweep.report", str(store)]) for _ in range(3)
    ]
    best = min(cached, key=lambda m: m.wall_s)
    requests = json.loads(ours.output)["checks"][0]
    table = Table(title=f"{requests:,} requests, {os.cpu_count()} cores")
    for heading in ("what", "wall s", "CPU s", "peak GB"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for m in (ours, duckdb, raw, best):
        table.add_row(m.name, f"{m.wall_s:.2f}", f"{m.cpu_s:.2f}", f"{m.peak_gb:.2f}")
    Console().print(table)
    checks = {
        "same answers as DuckDB": same(ours.output, duckdb.output),
        "same queries faster than DuckDB": ours.wall_s < duckdb.wall_s,
        "all tables from raw faster than DuckDB's queries": raw.wall_s < duckdb.wall_s,
        f"peak memory from raw <= {MEMORY_BOUND_GB} GB": raw.peak_gb <= MEMORY_BOUND_GB,
        f"from caches <= {REPORT_BOUND_S} s": best.wall_s <= REPORT_BOUND_S,
    }
    for what, good in checks.items():
        print(f"{'ok    ' if good else 'MISSED'} {what}")
    if requests < 100e6:
        print("at less than the paper's size fixed costs (imports, resampling) weigh more")
    if target is not None:
        found = [
            {k: v for k, v in asdict(m).items() if k != "output"} for m in (ours, duckdb, raw, best)
        ]
        target.write_text(json.dumps({"requests": requests, "measured": found, "checks": checks}))
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
