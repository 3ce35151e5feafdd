"""Figure 5: guardrail firing (paper, §5.5.4)."""

from __future__ import annotations

import polars as pl
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sweep.report.figures.style import BLUE, GREY, INK, ORANGE, PINK, SKY, SOFT, empty, few_bars
from sweep.report.tables.context import Context, by_size, policy_label
from sweep.report.tables.localization import THINKING

CAPTION = (
    "Figure 5. Guardrail firing in percent of decision steps. Left: LLM runs (rules where there "
    "are none) by fleet size, by rail (a step that trips two rails counts in both). Right: by "
    "policy and reasoning mode; policies that never trip a rail are named below."
)
THINKING_ENDS = tuple(f" {mode}" for mode in THINKING)
RAILS = (
    ("fired_drain_cap", "drain cap", BLUE, ""),
    ("fired_action_cap", "action cap", ORANGE, "...."),
    ("fired_weight_clamp", "weight clamp", SKY, "////"),
    ("fired_weight_range", "weight range", PINK, "xx"),
)


def draw(context: Context) -> Figure:
    """Stacked bars by fleet size, plain bars by policy and mode."""
    runs = context.deciding.filter(pl.col("steps") > 0)
    if not runs.height:
        return empty("No policy that decides has any steps.")
    groups = [
        (policy_label(g.row(0, named=True)), g)
        for g in by_size(runs).partition_by("model", "mode", maintain_order=True)
    ]
    rates = [(name, _rate(g, "fired_any"), g.height) for name, g in groups]
    firing = sorted((r for r in rates if r[1] > 0), key=lambda r: r[1])
    quiet = [name for name, rate, _ in rates if not rate]
    height = max(3.4, 1.5 + 0.21 * len(firing) + 0.14 * (len(quiet) // 3))
    figure = Figure(figsize=(9, height), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    # The left panel is Table 13's: rules would dilute what is said of models.
    pooled = runs.filter(policy="llm") if (runs["policy"] == "llm").any() else runs
    scales = sorted(pooled["scale"].unique())
    for x, scale in enumerate(scales):
        group, bottom = pooled.filter(scale=scale), 0.0
        for key, label, colour, hatch in RAILS:
            rate = _rate(group, key)
            if rate or key != "fired_weight_range":
                left.bar(
                    x,
                    rate,
                    bottom=bottom,
                    width=0.62,
                    color=colour,
                    hatch=hatch,
                    edgecolor=INK,
                    linewidth=0.6,
                    label=label if label not in left.get_legend_handles_labels()[1] else None,
                )
            bottom += rate
        steps = int(group["steps"].sum())
        left.text(x, bottom, f"{steps:,}\nsteps", ha="center", va="bottom", fontsize=7, color=SOFT)
    left.margins(y=0.18)
    left.set_ylim(0, max(0.5, left.get_ylim()[1]))
    few_bars(left, len(scales))
    left.set_xticks(range(len(scales)), [f"N = {s}" for s in scales])
    left.set_ylabel("Steps on which a rail fires (%)")
    left.grid(False, axis="x")
    left.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=2, columnspacing=1.0)
    for y, (name, rate, _) in enumerate(firing):
        thinks = name.endswith(THINKING_ENDS)
        right.barh(
            y,
            rate,
            height=0.68,
            color=ORANGE if thinks else GREY,
            hatch="////" if thinks else None,
            edgecolor=INK,
            linewidth=0.6,
        )
    if not firing:
        right.axis("off")
        right.text(0.5, 0.5, "no policy trips any rail", ha="center", color=SOFT)
        return figure
    right.legend(
        handles=[
            Patch(facecolor=ORANGE, edgecolor=INK, hatch="////", label="with reasoning"),
            Patch(facecolor=GREY, edgecolor=INK, label="without"),
        ],
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=2,
    )
    # Room around a few bars, so that they stay bars.
    right.set_ylim(min(-0.6, len(firing) / 2 - 3.5), max(len(firing) - 0.4, len(firing) / 2 + 2.5))
    right.set_yticks(range(len(firing)), [r[0] for r in firing], fontsize=7.5)
    right.set_xlabel("Steps on which any rail fires (%)")
    right.grid(False, axis="y")
    if quiet:
        figure.text(0.995, -0.01, _never(quiet), ha="right", va="top", fontsize=7.5, color=SOFT)
    return figure


def _rate(runs: pl.DataFrame, column: str) -> float:
    return 100 * int(runs[column].sum()) / int(runs["steps"].sum())


def _never(names: list[str]) -> str:
    lines, line = [], "never: "
    for name in names:
        if len(line) + len(name) > 110:
            lines.append(line)
            line = ""
        line += f"{name}, "
    return "\n".join([*lines, line]).rstrip(", ")
