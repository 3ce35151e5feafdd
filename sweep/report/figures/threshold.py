"""Figure 1: median reduction by model (paper, §5.1)."""

from __future__ import annotations

from typing import Any

import polars as pl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sweep.report.cells import MINUS
from sweep.report.figures.style import (
    INK,
    SOFT,
    empty,
    family_colours,
    family_label,
    family_markers,
    few_bars,
    only_y_grid,
)
from sweep.report.load import THRESHOLD_B
from sweep.report.tables.context import Context, by_size

CAPTION = (
    "Figure 1. Median client 5xx reduction against the matched static error-on run, one bar per "
    "model, ordered by total, then active parameters; colour and sign above: family, hatching: "
    "MoE. Caps: 95% bootstrap intervals over runs (scale x LB x reasoning), n below each name. "
    "Shaded: up to 3B total parameters, below the paper's capability threshold. A triangle marks "
    "what goes on below the axis."
)
LOWEST = -60.0
"""The axis ends here: a run that multiplies errors would flatten all others."""

SIGN_AT = 109.0
"""Where the sign of a bar's family is, in %: above all that a reduction can reach."""


def draw(context: Context) -> Figure:
    """One bar per model that has a reduction."""
    runs = by_size(context.deciding.filter(pl.col("reduction_pct").is_not_null()))
    groups = runs.partition_by("title", maintain_order=True)
    if not groups:
        return empty("No run has a reduction: it takes a matched static error-on run with errors.")
    figure = Figure(figsize=(max(5.0, 1.6 + 0.58 * len(groups)), 4.3), layout="constrained")
    axes = figure.subplots()
    families = [g["family"][0] for g in groups]
    colours, markers = family_colours(families), family_markers(families)
    cells = [context.median(g, "reduction_pct") for g in groups]
    shaded = sum((g["total_params_b"][0] or 1e9) <= THRESHOLD_B for g in groups)
    if 0 < shaded < len(groups):
        axes.axvspan(-2, shaded - 0.5, color="#eef0f3", zorder=0)
        axes.text(
            0.01,
            1.01,
            "up to 3B total",
            transform=axes.transAxes,
            color=SOFT,
            fontsize=8,
        )
    for x, (group, cell) in enumerate(zip(groups, cells, strict=True)):
        value = float(cell.value or 0)
        moe = group["architecture"][0] == "moe"
        axes.bar(
            x,
            max(value, LOWEST),
            width=0.74,
            color=colours[group["family"][0]],
            edgecolor=INK,
            linewidth=0.6,
            hatch="////" if moe else None,
            zorder=2,
        )
        axes.plot(x, SIGN_AT, markers[group["family"][0]], **_sign(colours[group["family"][0]]))
        if cell.interval is not None and cell.interval.low is not None:
            low, high = max(cell.interval.low, LOWEST), max(cell.interval.high or 0, LOWEST)
            axes.plot([x, x], [low, high], color=INK, linewidth=1.1, zorder=3)
            axes.plot([x, x], [low, high], "_", color=INK, markersize=7, zorder=3)
            if cell.interval.low < LOWEST:
                axes.plot(x, LOWEST, "v", color=INK, markersize=5, zorder=4, clip_on=False)
        if value < LOWEST:
            axes.annotate(
                f"{value:,.0f}%".replace("-", MINUS),
                (x, LOWEST),
                (0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=7.5,
                zorder=5,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
            )
    axes.axhline(0, color=INK, linewidth=0.8)
    lowest = min(0.0, *(c.interval.low for c in cells if c.interval and c.interval.low is not None))
    axes.set_ylim(max(LOWEST, lowest - 6), 116)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    few_bars(axes, len(groups))
    names = [f"{g['title'][0]}\nn = {c.n}" for g, c in zip(groups, cells, strict=True)]
    axes.set_xticks(range(len(groups)), names, rotation=55, ha="right", rotation_mode="anchor")
    axes.set_ylabel("Median client 5xx reduction (%)")
    only_y_grid(axes)
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker=markers[f], label=family_label(f, runs), **_sign(colours[f]))
        for f in dict.fromkeys(families)
    ]
    if any(g["architecture"][0] == "moe" for g in groups):
        handles.append(Patch(facecolor="white", edgecolor=INK, hatch="////", label="MoE"))
    axes.legend(handles=handles, ncols=7, loc="lower right", bbox_to_anchor=(1, 1.0))
    return figure


def _sign(colour: str) -> dict[str, Any]:
    """Looks of a family's sign, whose shape tells families apart in grey print, too."""
    return {
        "color": colour,
        "linestyle": "",
        "markersize": 7,
        "markeredgecolor": INK,
        "markeredgewidth": 0.8,
    }
