"""Tables 10, 11, 12, 13: what changes as the fleet grows (paper, §5.5)."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from sweep.report.cells import EMPTY, Cell, Column, Row, Table
from sweep.report.tables.columns import RAILS_HIT, RUNS, SCORES
from sweep.report.tables.context import Context, firing_rate
from sweep.report.tables.localization import (
    ALGORITHMS,
    absent_scales,
    at,
    beyond_paper,
    scales,
)


def table10(context: Context) -> Table:
    """Fault localization and guardrail firing by fleet size."""
    rows = []
    for scale in scales(context.llm):
        runs, label = at(context.llm, scale=scale), str(scale)
        papers = context.papers("10", label)
        rows.append(
            Row(
                (label,),
                (
                    Cell(runs.height, runs.height, paper=56 if papers else None),
                    *context.micro(runs, papers),
                    firing_rate(context, runs, papers.get("fired_pct")),
                ),
            )
        )
    return Table(
        "10",
        "Fault localization and guardrail firing by fleet size",
        "LLM runs. Scores as in Table 6; the last column is the share of decision steps on which "
        "any guardrail fired, bootstrap over runs.",
        ("N",),
        (RUNS, *SCORES, RAILS_HIT),
        tuple(rows),
        beyond_paper(context.llm) + absent_scales(context.llm),
    )


def table11(context: Context) -> Table:
    """Time to action and to resolution by fleet size and algorithm."""
    columns = (
        RUNS,
        Column("time_to_action_s", "To action", "s, median", 1),
        Column("acted", "Acted", "runs", 0),
        Column("time_to_resolution_s", "To resolution", "s, median", 1),
        Column("resolved", "Resolved", "runs", 0),
    )
    rows = []
    for scale, algorithm in _grid(context.llm):
        runs = at(context.llm, scale=scale, algorithm=algorithm)
        cells = [Cell(runs.height, runs.height)]
        scored = runs.filter(pl.col("tp").is_not_null())
        for key in ("time_to_action_s", "time_to_resolution_s"):
            value = context.papers("11", f"{scale} {algorithm}").get(key)
            cells.append(context.median(runs, key, value))
            reached = scored[key].drop_nulls().len()
            cells.append(Cell(reached, scored.height) if scored.height else EMPTY)
        rows.append(Row((str(scale), algorithm), tuple(cells)))
    return Table(
        "11",
        "Time to action and to resolution",
        "LLM runs; seconds from run start. Action: first drain of any faulty server. Resolution: "
        "every faulty server drained at least once. Medians over the runs that got there, "
        "bootstrap over runs.",
        ("N", "LB"),
        columns,
        tuple(rows),
        beyond_paper(context.llm) + absent_scales(context.llm),
    )


def _grid(runs: pl.DataFrame) -> Iterable[tuple[int, str]]:
    if not runs.height:
        return []
    own = sorted(set(runs["algorithm"]) | set(ALGORITHMS))
    return [(scale, algorithm) for scale in scales(runs) for algorithm in own]


def table12(context: Context) -> Table:
    """Median reduction by fleet size and algorithm."""
    rows = []
    for scale in scales(context.llm):
        runs, label = at(context.llm, scale=scale), str(scale)
        cells = [Cell(runs.height, runs.height)]
        for algorithm in ALGORITHMS:
            value = context.papers("12", label).get(algorithm)
            cells.append(context.median(at(runs, algorithm=algorithm), "reduction_pct", value))
        rows.append(Row((label,), tuple(cells)))
    return Table(
        "12",
        "Median client 5xx reduction by fleet size and algorithm",
        "LLM runs against the matched static error-on run; bootstrap over runs.",
        ("N",),
        (RUNS, *(Column(a, a, "%, median", 1) for a in ALGORITHMS)),
        tuple(rows),
        beyond_paper(context.llm) + absent_scales(context.llm),
    )


def table13(context: Context) -> Table:
    """Guardrail firing by fleet size and rail."""
    counted = ("steps", "fired_drain_cap", "fired_action_cap", "fired_weight_clamp")
    own = ("fired_weight_range", "fired_rejected")
    columns = (
        RUNS,
        Column("steps", "Steps", digits=0),
        Column("fired_drain_cap", "Drain cap", "steps", 0),
        Column("fired_action_cap", "Action cap", "steps", 0),
        Column("fired_weight_clamp", "Weight clamp", "steps", 0),
        Column("fired_weight_range", "Weight range", "steps", 0),
        Column("fired_rejected", "Rejected", "steps", 0),
        Column("fired_pct", "Any", "% of steps", 2),
    )
    rows = []
    for scale in scales(context.llm):
        runs, label = at(context.llm, scale=scale), str(scale)
        papers = context.papers("13", label)
        cells = [Cell(runs.height, runs.height)]
        steps = int(runs["steps"].sum())
        for key in (*counted, *own):
            known = runs[key].drop_nulls()
            value = int(known.sum()) if known.len() else None
            cells.append(
                Cell(value, steps, paper=papers.get(key), note="" if runs.height else EMPTY.note)
            )
        cells.append(firing_rate(context, runs, papers.get("fired_pct")))
        rows.append(Row((label,), tuple(cells)))
    return Table(
        "13",
        "Guardrail firing by fleet size",
        "LLM runs. A step fires when its raw plan has more than one drain, more than three "
        "actions, or a weight change of more than 50 (or what the run's own guardrails allow). "
        "Rejected (unknown servers, invalid actions) "
        "is ours and does not count in Any, which is bootstrapped over runs.",
        ("N",),
        columns,
        tuple(rows),
        beyond_paper(context.llm) + absent_scales(context.llm),
    )
