"""Fault localization as a comparison of sets (paper, §3.4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Counts:
    """Slots of one run, or pooled over several."""

    tp: int
    """Faulty and drained."""
    fp: int
    """Healthy and drained."""
    fn: int
    """Faulty and never drained."""


@dataclass(frozen=True)
class Scores:
    """Precision, recall and F1; None where the quotient is undefined (nothing drained: P)."""

    precision: float | None
    recall: float | None
    f1: float | None


def compare(drained: Collection[str], faulty: Collection[str]) -> Counts:
    """True and false positives and false negatives of the prediction `drained`."""
    p, g = set(drained), set(faulty)
    return Counts(tp=len(p & g), fp=len(p - g), fn=len(g - p))


def scores(counts: Counts) -> Scores:
    """Micro scores of pooled counts. A policy that never drains has F1 = 0 and no precision."""
    tp, fp, fn = counts.tp, counts.fp, counts.fn
    return Scores(
        precision=tp / (tp + fp) if tp + fp else None,
        recall=tp / (tp + fn) if tp + fn else None,
        f1=2 * tp / (2 * tp + fp + fn) if tp + fp + fn else None,
    )


def pooled(runs: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Micro scores and exact-match rate of groups of runs.

    `runs` has one row a run with tp, fp, fn, exact. Returns the columns of `by` and n, tp, fp, fn,
    exact_runs, precision, recall, f1, exact; quotients with a zero denominator are null.
    """
    sums = [
        pl.len().alias("n"),
        *(pl.col(c).sum().cast(pl.Int64) for c in ("tp", "fp", "fn")),
        pl.col("exact").sum().cast(pl.Int64).alias("exact_runs"),
    ]
    table = runs.group_by(list(by)).agg(sums) if by else runs.select(sums)
    tp, fp, fn = pl.col("tp"), pl.col("fp"), pl.col("fn")
    return table.with_columns(
        precision=pl.when(tp + fp > 0).then(tp / (tp + fp)),
        recall=pl.when(tp + fn > 0).then(tp / (tp + fn)),
        f1=pl.when(tp + fp + fn > 0).then(2 * tp / (2 * tp + fp + fn)),
        exact=pl.when(pl.col("n") > 0).then(pl.col("exact_runs") / pl.col("n")),
    )
