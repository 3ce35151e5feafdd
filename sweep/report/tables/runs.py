"""Tables of our own: every run at a glance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from sweep.metrics.intervals import Interval
from sweep.report.cells import Cell, Column, Row, Table, scaled
from sweep.report.tables.context import Context, by_size, policy_label

CLIENT = (
    Column("requests", "Requests", digits=0),
    Column("rate_5xx", "5xx rate", "%", 3),
    Column("reduction_abs", "Abs. red.", "% points", 3),
    Column("reduction_pct", "Reduction", "%", 1),
    Column("avoided", "Avoided", "requests", 0),
)
DECISIONS = (
    Column("precision", "P", digits=3),
    Column("recall", "R", digits=3),
    Column("f1", "F1", digits=3),
    Column("exact", "Exact"),
    Column("time_to_action_s", "To action", "s", 1),
    Column("time_to_resolution_s", "To resol.", "s", 1),
    Column("flips", "Flips", digits=0),
    Column("end_state_correct", "End ok"),
)
LATENCY = (
    Column("mean_ms", "Mean", "ms", 2),
    Column("p50_ms", "p50", "ms", 2),
    Column("p95_ms", "p95", "ms", 2),
    Column("p99_ms", "p99", "ms", 2),
)
COST = (
    Column("steps", "Steps", digits=0),
    Column("failed_steps", "Failed", "steps", 0),
    Column("cadence_s", "Cadence", "s", 1),
    Column("decide_p50_s", "Decide p50", "s", 2),
    Column("prompt_tokens", "Prompt", "tokens", 0),
    Column("completion_tokens", "Completion", "tokens", 0),
    Column("completion_per_step", "per step", "tokens", 0),
    Column("fired_any", "Rails hit", "steps", 0),
)

RUN_LABELS = ("Policy", "LB", "N")


def runs_client(context: Context) -> Table:
    """Client outcome of every run."""

    def cells(run: Mapping[str, Any]) -> tuple[Cell, ...]:
        rate, interval = run["rate_5xx"], None
        if rate is not None:
            interval = scaled(
                Interval(run["rate_low"], run["rate_high"], "Wilson", run["requests"]), 100
            )
        return (
            Cell(run["requests"], n=1),
            Cell(None if rate is None else 100 * rate, run["requests"], interval),
            *_reductions(context, run),
            Cell(run["avoided"], n=1),
        )

    return _runs_table(
        context,
        "runs-client",
        "Runs: what the clients saw",
        "Client 5xx rate over the full run with its Wilson interval; reductions against the "
        "matched static error-on run: difference of the rates with its Newcombe interval, and "
        "both as a share of the baseline's rate, cut at 100%.",
        CLIENT,
        cells,
    )


def _reductions(context: Context, run: Mapping[str, Any]) -> tuple[Cell, Cell]:
    """Absolute and relative reduction of the 5xx rate."""
    note = "undefined"
    if run["policy"] == "static" or run["error_mode"] != "error_on":
        note = "reference"
    elif run["steps"] == 0:
        note = "no steps"
    elif run["baseline_run_id"] is None:
        note = "unmatched"
    interval = context.difference(run)
    if interval is None or run["baseline_run_id"] is None:
        return Cell(None, note=note), Cell(None, note=note)
    absolute = Cell(100 * run["reduction_abs"], run["requests"], scaled(interval, 100))
    if run["reduction_pct"] is None:
        return absolute, Cell(None, note=note)
    return absolute, Cell(run["reduction_pct"], run["requests"], context.percent(run))


def runs_decisions(context: Context) -> Table:
    """Decisions of every run that could make any."""
    could = (pl.col("policy") != "static") & (pl.col("error_mode") == "error_on")

    def cells(run: Mapping[str, Any]) -> tuple[Cell, ...]:
        return tuple(Cell(run[c.key], n=1) for c in DECISIONS)

    return _runs_table(
        context,
        "runs-decisions",
        "Runs: what the policies decided",
        "Servers ever drained (or weighted to zero) against the faulty slots; seconds from run "
        "start; flips are changes between drained and active after the first.",
        DECISIONS,
        cells,
        context.runs.filter(could),
    )


def runs_latency(context: Context) -> Table:
    """Client latency of every run."""

    def cells(run: Mapping[str, Any]) -> tuple[Cell, ...]:
        out = []
        for column in LATENCY:
            name = column.key.removesuffix("_ms")
            method = "Student t" if name == "mean" else "order statistics"
            low, high = run[f"{name}_low_ms"], run[f"{name}_high_ms"]
            interval = Interval(low, high, method, run["latency_n"] or 0)
            out.append(Cell(run[column.key], run["latency_n"], interval))
        return tuple(out)

    return _runs_table(
        context,
        "runs-latency",
        "Runs: client latency",
        "All answered requests of the run; intervals are over its requests.",
        LATENCY,
        cells,
    )


def runs_cost(context: Context) -> Table:
    """Steps, cadence, tokens and guardrail firings of every run."""

    def cells(run: Mapping[str, Any]) -> tuple[Cell, ...]:
        free = run["policy"] != "llm"
        return tuple(
            Cell(None if free and "token" in c.unit else run[c.key], n=run["steps"]) for c in COST
        )

    return _runs_table(
        context,
        "runs-cost",
        "Runs: steps, tokens, guardrails",
        "Cadence is the median time between the starts of steps; rails hit counts steps whose raw "
        "plan broke a guardrail.",
        COST,
        cells,
    )


def _runs_table(
    context: Context,
    key: str,
    title: str,
    caption: str,
    columns: tuple[Column, ...],
    cells: Any,
    runs: pl.DataFrame | None = None,
) -> Table:
    chosen = context.runs if runs is None else runs
    ordered = pl.concat(
        [by_size(chosen.filter(pl.col("policy") == p)) for p in ("llm", "rule", "static")]
    )
    extra = [c for c in ("seed", "duration_s") if chosen[c].n_unique() > 1]
    rows = tuple(
        Row(
            (
                policy_label(run),
                run["algorithm"],
                str(run["scale"]),
                *(f"{run[c]:g}" for c in extra),
            ),
            cells(run),
        )
        for run in ordered.iter_rows(named=True)
    )
    titles = {"seed": "Seed", "duration_s": "s"}
    return Table(key, title, caption, (*RUN_LABELS, *(titles[c] for c in extra)), columns, rows)
