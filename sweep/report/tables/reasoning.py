"""Table 14 and the pooled numbers of the paper's text (§5.3, §5.6)."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from sweep import paper
from sweep.report.cells import Cell, Column, Row, Table
from sweep.report.tables.columns import BUDGET, COST_EFFECTIVENESS, REDUCTION, RUNS
from sweep.report.tables.context import Context, budget, firing_rate
from sweep.report.tables.localization import THINKING, beyond_paper

PAPER_CONFIGURATIONS = tuple(paper.TABLES["14"].rows)


def with_configuration(runs: pl.DataFrame) -> pl.DataFrame:
    """Add the column `configuration` as Table 14 groups runs.

    `think` and `nothink` pool all families; any other mode is named with its family.
    """
    family = pl.col("family").fill_null(pl.col("title"))
    return runs.with_columns(
        configuration=pl.when(pl.col("mode").is_in(["think", "nothink"]))
        .then(pl.col("mode"))
        .otherwise(pl.concat_str([family, pl.col("mode")], separator=" "))
    )


def configurations(runs: pl.DataFrame) -> list[str]:
    """Configurations of the runs, those of the paper first and in its order."""
    own = set(with_configuration(runs)["configuration"])
    known = [c for c in PAPER_CONFIGURATIONS if c in own]
    return known + sorted(own - set(known))


def table14(context: Context) -> Table:
    """Inference budget by reasoning configuration."""
    columns = (RUNS, *BUDGET, REDUCTION, COST_EFFECTIVENESS)
    runs = with_configuration(context.llm)
    rows = []
    for name in configurations(context.llm):
        group = runs.filter(configuration=name)
        known = context.papers("14", name)
        rows.append(
            Row(
                (name,),
                (
                    Cell(group.height, group.height),
                    *budget(context, group, known),
                    context.median(group, "reduction_pct", known.get("reduction_pct")),
                    context.median(group, "cost_eff", known.get("cost_eff")),
                ),
            )
        )
    return Table(
        "14",
        "Inference budget by reasoning configuration",
        "LLM runs. Completion tokens of the median step and of the mean run; cadence: median time "
        "between steps; over budget: runs whose median cadence exceeds the interval; cost-eff: "
        "failed requests avoided per 1,000 completion tokens, median over runs. Bootstrap over "
        "runs, Wilson for shares.",
        ("Configuration",),
        columns,
        tuple(rows),
        beyond_paper(context.llm),
    )


def headlines(context: Context) -> Table:
    """The pooled numbers that the paper gives in its text."""
    runs = context.llm.filter(pl.col("tp").is_not_null())
    column = (Column("value", "All LLM runs", digits=1),)
    head = {
        key: item.value if context.comparable else None for key, item in paper.HEADLINES.items()
    }
    rows: list[Row] = []

    def add(label: str, cell: Cell, digits: int | None = None) -> None:
        chosen = cell if digits is None else replace(cell, digits=digits)
        rows.append(Row((label,), (chosen,)))

    if runs.height:
        for key, label in (
            ("tp", "True positives"),
            ("fp", "False positives"),
            ("fn", "False negatives"),
        ):
            add(
                f"{label}, slots",
                Cell(int(runs[key].sum()), runs.height, paper=head[key], digits=0),
            )
        exact = runs.filter("exact").with_columns(reverted=~pl.col("end_state_correct"))
        derived = runs.with_columns(
            oscillating=pl.col("oscillating_servers") > 0,
            acted=pl.col("time_to_action_s").is_not_null(),
            resolved=pl.col("time_to_resolution_s").is_not_null(),
        )
        for key, label, group in (
            ("exact", "Ever-drained set is exact", runs),
            ("end_state_correct", "Final drained set is exact", runs),
            ("reverted", "… of the exact ones, reverted by the end", exact),
            ("oscillating", "At least one oscillating server", derived),
            ("acted", "Drained at least one faulty server", derived),
            ("resolved", "Drained all of them", derived),
        ):
            add(f"{label}, % of runs", context.share(group, key, head[key], 100))
        for key, label in (("faulty", "faulty"), ("healthy", "healthy")):
            name = f"{key}_flip_rate"
            add(f"Flips per {label} slot, mean", context.mean(runs, name, head[name]), 3)
        add("Rails hit, % of steps", firing_rate(context, runs, head["fired_pct"]), 2)
        thinks = pl.col("mode").is_in(THINKING)
        sizes = context.llm.filter(pl.col("active_params_b") >= 3)
        add(
            "Reduction of models ≥3B active, %, median",
            context.median(sizes, "reduction_pct", head["supra_reduction_pct"]),
        )
        # The paper's shares only add up to its 68 of 224 with 112 runs each: 43 and 25. So models
        # without reasoning support count as without reasoning here.
        for key, label, group in (
            ("think", "with reasoning", runs.filter(thinks)),
            ("nothink", "without reasoning", runs.filter(~thinks)),
        ):
            name = f"end_state_correct_{key}"
            add(
                f"Final set exact, {label}, % of runs",
                context.share(group, "end_state_correct", head[name], 100),
            )
            add(
                f"Flips per run, {label}, mean",
                context.mean(group, "flips", head[f"flips_{key}"]),
                2,
            )
    return Table(
        "pooled",
        "Pooled over all LLM runs",
        "Numbers that the paper gives in the text of §5: localization, stability, reach of the "
        "controller, guardrails.",
        ("Quantity",),
        column,
        tuple(rows),
        beyond_paper(context.llm),
    )
