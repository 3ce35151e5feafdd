"""The control arms of the paper's latency tables, and their pooled latencies (§5.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sweep.metrics import DEFINITIONS_VERSION
from sweep.metrics.intervals import Interval
from sweep.metrics.latency import Pool, latency_summary
from sweep.metrics.pooled import histogram, quantile_interval_over_runs
from sweep.report.load import THRESHOLD_B, Loaded, decided
from sweep.report.memo import Intervals

ARMS = {
    "healthy": "Static · healthy floor",
    "uncontrolled": "Static · uncontrolled",
    "sub": f"LLM · <{THRESHOLD_B:g}B active",
    "supra": f"LLM · ≥{THRESHOLD_B:g}B active",
    "unsized": "LLM · size unknown",
    "rule": "Rule",
}
"""Arms by key, in the order in which they are printed."""


def with_arm(runs: pl.DataFrame) -> pl.DataFrame:
    """Add the column `arm` (a key of `ARMS`; null for what belongs to none)."""
    error_on = pl.col("error_mode") == "error_on"
    static, llm = pl.col("policy") == "static", (pl.col("policy") == "llm") & decided()
    size = pl.col("active_params_b")
    return runs.with_columns(
        arm=pl.when(static & ~error_on)
        .then(pl.lit("healthy"))
        .when(static)
        .then(pl.lit("uncontrolled"))
        .when(llm & error_on & size.is_null())
        .then(pl.lit("unsized"))
        .when(llm & error_on & (size < THRESHOLD_B))
        .then(pl.lit("sub"))
        .when(llm & error_on)
        .then(pl.lit("supra"))
        .when((pl.col("policy") == "rule") & error_on & decided())
        .then(pl.lit("rule"))
    )


@dataclass(frozen=True)
class PooledLatency:
    """Latency of the pooled requests of several runs; ms."""

    runs: int
    requests: int
    summary: dict[str, float | int | None]
    """As `latency_summary`: exact percentiles, intervals over requests."""
    over_runs: dict[str, Interval]
    """Intervals over whole runs, of the statistics that were asked for."""


def pooled_latency(
    loaded: Loaded,
    iv: Intervals,
    runs: pl.DataFrame,
    over_runs: Sequence[str] = ("mean", "p50", "p95", "p99"),
) -> PooledLatency | None:
    """Pool the requests of `runs`; None when none of them has any.

    `over_runs` are the statistics that get an interval over whole runs: `mean`, `p95` and the like.
    Reads the exact value counts of one run at a time, and only where the result is not known yet.
    """
    usable = runs.filter(pl.col("latency_n") > 0).sort("run_id")
    if not usable.height:
        return None
    percentiles = [int(name[1:]) for name in over_runs if name != "mean"]
    key = [
        DEFINITIONS_VERSION,
        percentiles,
        usable.select("run_id", "latency_n", "mean_ms", "p95_ms", "p99_ms").rows(),
    ]
    made = iv.remember("pooled latency", key, _maker(loaded, usable, percentiles))
    if made is None:
        return None
    found = {k: Interval(*v) for k, v in made["over_runs"].items()}
    if "mean" in over_runs:
        n, means = usable["latency_n"].to_list(), usable["mean_ms"].to_list()
        found["mean"] = iv.bootstrap_ratio([m * k for m, k in zip(means, n, strict=True)], n)
    return PooledLatency(made["runs"], made["requests"], made["summary"], found)


def _maker(
    loaded: Loaded, usable: pl.DataFrame, percentiles: Sequence[int]
) -> Callable[[], dict[str, Any] | None]:
    def make() -> dict[str, Any] | None:
        pool, shapes = Pool(), []
        for run_id in usable["run_id"]:
            counts = loaded.latency_counts(run_id)
            if counts is not None and counts.n:
                pool.add(counts)
                shapes.append(histogram(counts))
        if not shapes:
            return None
        total = pool.total()
        over_runs = {}
        for p in percentiles:
            found = quantile_interval_over_runs(shapes, p / 100)
            ends = [None if e is None else e / 1000 for e in (found.low, found.high)]
            over_runs[f"p{p}"] = [*ends, found.method, found.n, found.note]
        return {
            "runs": pool.runs,
            "requests": total.n,
            "summary": latency_summary(total),
            "over_runs": over_runs,
        }

    return make
