"""Figure 6: what inference costs and what it buys (paper, §5.6)."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sweep.report.cells import MINUS
from sweep.report.figures.style import GREEN, GREY, INK, ORANGE, PINK, SKY, SOFT, empty, few_bars
from sweep.report.load import THRESHOLD_B
from sweep.report.tables.context import Context, tokens_per_step
from sweep.report.tables.reasoning import configurations, with_configuration

CAPTION = (
    "Figure 6. Left: completion tokens of the median step by reasoning configuration, log scale. "
    "Right: completion tokens of a run, log scale, against its 5xx reduction; one marker a run, "
    "filled from 3B active parameters, crosses where the size is unknown, triangles at the lower "
    "edge for runs below it."
)
LOWEST = -100.0


def draw(context: Context) -> Figure:
    """Bars by configuration, scatter of runs."""
    runs = with_configuration(context.llm)
    names = configurations(context.llm)
    cells = [(n, tokens_per_step(context, runs.filter(configuration=n))) for n in names]
    known = [(n, float(c.value)) for n, c in cells if c.value]  # type: ignore[arg-type]
    if not known:
        return empty("No LLM run has any tokens.")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
    for x, (name, value) in enumerate(known):
        reasoning = name == "think" or name.endswith(("low", "medium", "high"))
        left.bar(
            x,
            value,
            width=0.66,
            color=ORANGE if reasoning else SKY,
            edgecolor=INK,
            linewidth=0.6,
            hatch="////" if reasoning else None,
        )
        left.text(x, value * 1.06, f"{value:,.0f}", ha="center", va="bottom", fontsize=8)
    left.legend(
        handles=[
            Patch(facecolor=ORANGE, edgecolor=INK, hatch="////", label="with reasoning"),
            Patch(facecolor=SKY, edgecolor=INK, label="without"),
        ],
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=2,
    )
    few_bars(left, len(known))
    left.set_yscale("log")
    left.margins(y=0.12)
    left.set_xticks(
        range(len(known)), [n for n, _ in known], rotation=35, ha="right", rotation_mode="anchor"
    )
    left.set_ylabel("Completion tokens per step, median")
    left.grid(False, axis="x")
    spent = runs.filter((pl.col("completion_tokens") > 0) & pl.col("reduction_pct").is_not_null())
    size = pl.col("active_params_b")
    for label, chosen, style in (
        (
            f"≥{THRESHOLD_B:g}B active",
            spent.filter(size >= THRESHOLD_B),
            {"markerfacecolor": GREEN, "markeredgecolor": INK},
        ),
        (
            f"<{THRESHOLD_B:g}B active",
            spent.filter(size < THRESHOLD_B),
            {"markerfacecolor": "none", "markeredgecolor": GREY},
        ),
        (
            "size unknown",
            spent.filter(size.is_null()),
            {"markerfacecolor": PINK, "markeredgecolor": INK, "marker": "P"},
        ),
    ):
        if not chosen.height:
            continue
        inside = chosen.filter(pl.col("reduction_pct") >= LOWEST)
        below = chosen.filter(pl.col("reduction_pct") < LOWEST)
        right.plot(
            inside["completion_tokens"],
            inside["reduction_pct"],
            linestyle="",
            markersize=5,
            markeredgewidth=0.8,
            label=f"{label} ({chosen.height} {'run' if chosen.height == 1 else 'runs'})",
            **{"marker": "o", **style},
        )
        if below.height:
            # Without data an unclipped line has no extent, and the layout collapses.
            right.plot(
                below["completion_tokens"],
                [LOWEST] * below.height,
                linestyle="",
                markersize=7,
                clip_on=False,
                **{**style, "marker": "v"},
            )
    worst = spent.filter(pl.col("reduction_pct") < LOWEST)
    for run in worst.iter_rows(named=True):
        right.annotate(
            f"{run['reduction_pct']:,.0f}%".replace("-", MINUS),
            (run["completion_tokens"], LOWEST),
            (0, 7),
            textcoords="offset points",
            ha="center",
            fontsize=7,
        )
    if not spent.height:
        right.axis("off")
        right.text(0.5, 0.5, "no run has both tokens and a reduction", ha="center", color=SOFT)
        return figure
    right.axhline(0, color=INK, linewidth=0.8)
    right.set_xscale("log")
    lowest = max(LOWEST, float(spent["reduction_pct"].min()) - 5)  # type: ignore[arg-type]
    right.set_ylim(min(-5.0, lowest), 105)
    right.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3)
    right.set_xlabel("Completion tokens of the run")
    right.set_ylabel("Client 5xx reduction (%)")
    return figure
