"""Tables of our own: every policy and mode at a glance."""

from __future__ import annotations

from typing import Any

import polars as pl

from sweep.report.cells import Cell, Column, Row, Table
from sweep.report.tables.columns import (
    BUDGET,
    COST_EFFECTIVENESS,
    RAILS_HIT,
    REDUCTION,
    RUNS,
    SCORES,
)
from sweep.report.tables.context import (
    Context,
    budget,
    by_size,
    firing_rate,
    policy_label,
)

MODELS_OUTCOME = (
    RUNS,
    Column("rate_5xx", "5xx rate", "%, median", 2),
    REDUCTION,
    *SCORES,
)
MODELS_BEHAVIOUR = (
    RUNS,
    Column("time_to_action_s", "To action", "s, median", 1),
    Column("time_to_resolution_s", "To resol.", "s, median", 1),
    Column("flips", "Flips", "mean", 2),
    Column("end_state_correct", "End ok", "share", 2),
    RAILS_HIT,
    Column("p95_ms", "p95", "ms, median", 1),
)
MODELS_COST = (RUNS, *BUDGET, COST_EFFECTIVENESS)


def models_outcome(context: Context) -> Table:
    """Outcome and localization of every policy and mode."""

    def cells(runs: pl.DataFrame) -> tuple[Cell, ...]:
        return (
            Cell(runs.height, n=runs.height),
            context.median(runs, "rate_5xx", factor=100),
            context.median(runs, "reduction_pct"),
            *context.micro(runs, {}),
        )

    return _models_table(
        context,
        "models-outcome",
        "Policies: outcome and localization",
        "Medians over runs and micro scores pooled over runs, with bootstrap intervals over whole "
        "runs; exact match with a Wilson interval.",
        MODELS_OUTCOME,
        cells,
    )


def models_behaviour(context: Context) -> Table:
    """Speed and steadiness of every policy and mode."""

    def cells(runs: pl.DataFrame) -> tuple[Cell, ...]:
        return (
            Cell(runs.height, n=runs.height),
            context.median(runs, "time_to_action_s"),
            context.median(runs, "time_to_resolution_s"),
            context.mean(runs, "flips"),
            context.share(runs, "end_state_correct"),
            firing_rate(context, runs),
            context.median(runs, "p95_ms"),
        )

    return _models_table(
        context,
        "models-behaviour",
        "Policies: speed, steadiness and the tail they cost",
        "Times over the runs in which they are defined; p95 of a run is exact, the median is over "
        "runs. Bootstrap intervals over whole runs, Wilson for shares of runs.",
        MODELS_BEHAVIOUR,
        cells,
    )


def models_cost(context: Context) -> Table:
    """Tokens, cadence and return on spend of every LLM and mode."""

    def cells(runs: pl.DataFrame) -> tuple[Cell, ...]:
        return (
            Cell(runs.height, n=runs.height),
            *budget(context, runs),
            context.median(runs, "cost_eff"),
        )

    return _models_table(
        context,
        "models-cost",
        "Policies: what decisions cost",
        "Completion tokens of the median step and of the mean run; cadence is the median time "
        "between steps; failed requests avoided per 1,000 completion tokens, median over runs.",
        MODELS_COST,
        cells,
        context.llm,
    )


def _models_table(
    context: Context,
    key: str,
    title: str,
    caption: str,
    columns: tuple[Column, ...],
    cells: Any,
    runs: pl.DataFrame | None = None,
) -> Table:
    chosen = by_size(context.deciding if runs is None else runs)
    rows = tuple(
        Row((policy_label(group.row(0, named=True)),), cells(group))
        for group in chosen.partition_by("model", "mode", maintain_order=True)
    )
    return Table(key, title, caption, ("Policy",), columns, rows)
