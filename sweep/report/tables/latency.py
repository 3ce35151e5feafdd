"""Tables 8 and 9: client latency by control arm (paper, §5.4)."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from sweep import paper
from sweep.metrics.intervals import Interval
from sweep.report.arms import ARMS, PooledLatency, pooled_latency, with_arm
from sweep.report.cells import EMPTY, Cell, Column, Row, Table
from sweep.report.tables.context import Context
from sweep.report.tables.localization import ALGORITHMS, scales


def table8(context: Context) -> Table:
    """Client latency by control arm."""
    columns = (
        Column("runs", "Runs", digits=0, count=True),
        Column("requests", "Requests", digits=0, count=True),
        Column("mean_ms", "Mean", "ms", 3),
        *(Column(f"p{p}_ms", f"p{p}", "ms", 1) for p in (50, 95, 99)),
    )
    runs = with_arm(context.runs)
    rows = []
    for arm, title in ARMS.items():
        chosen = runs.filter(pl.col("arm") == arm)
        pooled = pooled_latency(context.loaded, context.iv, chosen)
        if pooled is not None:
            rows.append(Row((title,), _arm_cells(pooled, _papers(context, "8", arm, arm))))
    return Table(
        "8",
        "Client latency by control arm",
        "Over all answered requests of an arm, pooled across scales and algorithms; percentiles "
        "are exact. The mean has two intervals: the paper's, which takes requests as independent "
        "(Student t), and one over whole runs (bootstrap), as the percentiles have it.",
        ("Arm",),
        columns,
        tuple(rows),
    )


def _papers(context: Context, table: str, row: str, arm: str) -> Mapping[str, float]:
    if arm in ("healthy", "uncontrolled"):
        return paper.TABLES[table].rows.get(row, {})
    return context.papers(table, row)


def _arm_cells(pooled: PooledLatency, papers: Mapping[str, float]) -> tuple[Cell, ...]:
    found, runs = pooled.summary, pooled.over_runs
    over_requests = Interval(
        found["mean_low_ms"], found["mean_high_ms"], "Student t", pooled.requests
    )
    return (
        Cell(pooled.runs, pooled.runs, paper=papers.get("runs")),
        Cell(pooled.requests, pooled.runs, paper=papers.get("requests")),
        Cell(found["mean_ms"], pooled.requests, over_requests, runs["mean"], papers.get("mean_ms")),
        *(
            Cell(found[f"{p}_ms"], pooled.runs, runs[p], paper=papers.get(f"{p}_ms"))
            for p in ("p50", "p95", "p99")
        ),
    )


def table9(context: Context) -> Table:
    """p95 by fleet size, algorithm and arm."""
    runs = with_arm(context.runs).filter(pl.col("error_mode") == "error_on")
    present = set(runs["arm"].drop_nulls())
    arms = [a for a in ("sub", "supra", "unsized", "rule", "uncontrolled") if a in present]
    columns = tuple(Column(a, ARMS[a], "ms", 1) for a in arms)
    rows = []
    for scale in scales(runs):
        for algorithm in sorted(set(runs["algorithm"]) | set(ALGORITHMS)):
            cells = []
            for arm in arms:
                chosen = runs.filter(arm=arm, scale=scale, algorithm=algorithm)
                value = _papers(context, "9", f"{scale} {algorithm}", arm).get(arm)
                pooled = pooled_latency(context.loaded, context.iv, chosen, ("p95",))
                if pooled is None:
                    cells.append(Cell(None, n=0, paper=value, note=EMPTY.note))
                    continue
                p95 = pooled.summary["p95_ms"]
                cells.append(Cell(p95, pooled.runs, pooled.over_runs["p95"], paper=value))
            rows.append(Row((str(scale), algorithm), tuple(cells)))
    return Table(
        "9",
        "Client latency p95 by fleet size, algorithm and arm",
        "Exact, over the pooled requests of the runs of a cell; bootstrap over runs.",
        ("N", "LB"),
        columns,
        tuple(rows),
    )
