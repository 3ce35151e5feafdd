"""What every table is made from, and the cells that most of them need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import polars as pl

from sweep import paper
from sweep.metrics.intervals import Interval, as_percent_of
from sweep.metrics.localization import Counts, scores
from sweep.report.cells import EMPTY, Cell, scaled
from sweep.report.load import Loaded, decided
from sweep.report.memo import Intervals


class Context:
    """The frame of runs, its usual selections, and intervals that remember themselves."""

    def __init__(self, loaded: Loaded, intervals: Intervals) -> None:
        self.loaded = loaded
        self.runs = loaded.runs
        self.iv = intervals

    @cached_property
    def llm(self) -> pl.DataFrame:
        """Runs of LLM policies with the error profile active (paper, §5)."""
        return self._deciding("llm")

    @cached_property
    def rules(self) -> pl.DataFrame:
        """Runs of classical rules with the error profile active."""
        return self._deciding("rule")

    @cached_property
    def deciding(self) -> pl.DataFrame:
        """LLM and rule runs together."""
        return pl.concat([self.llm, self.rules])

    def _deciding(self, policy: str) -> pl.DataFrame:
        error_on = pl.col("error_mode") == "error_on"
        return self.runs.filter((pl.col("policy") == policy) & error_on & decided())

    def static(self, error_mode: str) -> pl.DataFrame:
        """Static runs of one error mode."""
        return self.runs.filter(
            (pl.col("policy") == "static") & (pl.col("error_mode") == error_mode)
        )

    def papers(self, table: str, row: str) -> Mapping[str, float]:
        """The paper's row of a table that pools LLM runs; empty where it can't be compared.

        A store without any of the paper's models says nothing about the paper's pools.
        """
        return paper.TABLES[table].rows.get(row, {}) if self.comparable else {}

    @cached_property
    def comparable(self) -> bool:
        """Whether the store has LLM runs of any model of the paper."""
        return not set(paper.TITLES).isdisjoint(self.llm["title"])

    # --- cells -------------------------------------------------------------------------------

    def median(
        self, runs: pl.DataFrame, column: str, paper: float | None = None, factor: float = 1.0
    ) -> Cell:
        """Median over runs with a bootstrap interval; runs without a value do not count."""
        return self._over_runs(runs, column, "median", paper, factor)

    def mean(
        self, runs: pl.DataFrame, column: str, paper: float | None = None, factor: float = 1.0
    ) -> Cell:
        """Mean over runs with a bootstrap interval; runs without a value do not count."""
        return self._over_runs(runs, column, "mean", paper, factor)

    def _over_runs(
        self, runs: pl.DataFrame, column: str, statistic: Any, paper: float | None, factor: float
    ) -> Cell:
        if not runs.height:
            return Cell(None, n=0, paper=paper, note=EMPTY.note)
        # Sorted, so that the order of runs can't reach even the last bit of a mean.
        values = runs[column].cast(pl.Float64).drop_nulls().sort(multithreaded=False)
        if not values.len():
            return Cell(None, n=0, paper=paper)
        value = values.median() if statistic == "median" else values.mean()
        interval = scaled(self.iv.bootstrap(values.to_list(), statistic), factor)
        return Cell(float(value) * factor, values.len(), interval, paper=paper)  # type: ignore[arg-type]

    def share(
        self, runs: pl.DataFrame, column: str, paper: float | None = None, factor: float = 1.0
    ) -> Cell:
        """Share of runs in which a boolean holds, with a Wilson interval over runs."""
        if not runs.height:
            return Cell(None, n=0, paper=paper, note=EMPTY.note)
        values = runs[column].drop_nulls()
        n, hits = values.len(), int(values.sum())
        if not n:
            return Cell(None, n=0, paper=paper)
        return Cell(factor * hits / n, n, scaled(self.iv.wilson(hits, n), factor), paper=paper)

    def micro(self, runs: pl.DataFrame, papers: Mapping[str, float | None]) -> tuple[Cell, ...]:
        """Micro precision, recall and F1, bootstrapped over runs, and the exact-match rate."""
        keys = ("precision", "recall", "f1", "exact")
        usable = runs.filter(pl.col("tp").is_not_null())
        if not usable.height:
            return tuple(Cell(None, n=0, paper=papers.get(k), note=EMPTY.note) for k in keys)
        tp, fp, fn = (usable[c].to_list() for c in ("tp", "fp", "fn"))
        pooled = scores(Counts(sum(tp), sum(fp), sum(fn)))
        parts = {
            "precision": (tp, _add(tp, fp)),
            "recall": (tp, _add(tp, fn)),
            "f1": ([2 * t for t in tp], _add(_add(tp, tp), _add(fp, fn))),
        }
        cells = []
        for key, (top, bottom) in parts.items():
            value = getattr(pooled, key)
            interval = None if value is None else self.iv.bootstrap_ratio(top, bottom)
            cells.append(Cell(value, usable.height, interval, paper=papers.get(key)))
        return (*cells, self.share(usable, "exact", papers.get("exact")))

    def difference(self, run: Mapping[str, Any]) -> Interval | None:
        """Newcombe interval of a run's absolute reduction, baseline - run, as rates."""
        if run["reduction_abs"] is None:
            return None
        return self.iv.newcombe(
            run["baseline_5xx"], run["baseline_requests"], run["http_5xx"], run["requests"]
        )

    def percent(self, run: Mapping[str, Any]) -> Interval | None:
        """`difference` in percent of the baseline's rate, cut at 100%."""
        interval = self.difference(run)
        if interval is None or run["reduction_pct"] is None:
            return None
        return as_percent_of(interval, run["baseline_5xx"] / run["baseline_requests"])


def _add(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


def policy_label(run: Mapping[str, Any]) -> str:
    """Title and mode of a policy, such as `Qwen3 4B think`; `Static error-on`."""
    mode = run["mode"]
    if mode in ("none", "", None):
        return str(run["title"])
    return f"{run['title']} {str(mode).replace('_', '-')}"


EFFORTS = {"low": 0, "medium": 1, "high": 2}
"""Reasoning efforts in ascending order; other modes go by name."""


def by_size(runs: pl.DataFrame) -> pl.DataFrame:
    """Runs in ascending order of total, then active parameters, as the paper lists models."""
    return runs.sort(
        pl.col("total_params_b").fill_null(float("inf")),
        pl.col("active_params_b").fill_null(float("inf")),
        "title",
        pl.col("mode").replace_strict(EFFORTS, default=-1, return_dtype=pl.Int8),
        "mode",
        "algorithm",
        "scale",
        "seed",
        "run_id",
    )


def firing_rate(context: Context, runs: pl.DataFrame, paper: float | None = None) -> Cell:
    """Percent of steps on which any rail fired, bootstrapped over runs."""
    usable = runs.filter(pl.col("steps") > 0)
    if not usable.height:
        return Cell(None, n=0, paper=paper, note="no steps")
    fired, steps = usable["fired_any"].to_list(), usable["steps"].to_list()
    interval = scaled(context.iv.bootstrap_ratio(fired, steps), 100)
    return Cell(100 * sum(fired) / sum(steps), sum(steps), interval, paper=paper)


def budget(
    context: Context, runs: pl.DataFrame, papers: Mapping[str, float] = MappingProxyType({})
) -> tuple[Cell, ...]:
    """What the decisions of the runs took: the cells of `columns.BUDGET`."""
    return (
        tokens_per_step(context, runs, papers.get("completion_per_step")),
        context.mean(runs, "completion_tokens", papers.get("completion_tokens")),
        context.median(runs, "cadence_s", papers.get("cadence_s")),
        context.median(runs, "steps", papers.get("steps")),
        context.share(runs, "over_budget", papers.get("over_budget"), 100),
    )


def tokens_per_step(context: Context, runs: pl.DataFrame, paper: float | None = None) -> Cell:
    """Median completion tokens over all steps of the runs in which a model answered."""
    used: list[int] = []
    for run_id in runs["run_id"]:
        used += context.loaded.aggregates[run_id].completion_tokens
    if not used:
        return Cell(None, n=0, paper=paper, note="no steps")
    value = pl.Series(used).median()
    return Cell(value, n=len(used), paper=paper)  # type: ignore[arg-type]
