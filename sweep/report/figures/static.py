"""Figure 2: the static baseline with and without faults (paper, §5.2)."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sweep.report.arms import pooled_latency
from sweep.report.figures.style import GREEN, GREY, INK, empty, few_bars, only_y_grid
from sweep.report.tables.context import Context

CAPTION = (
    "Figure 2. Static baseline with and without the fleet's error profile, averaged over both "
    "algorithms. Left: client 5xx rate (Wilson intervals; the dash is the floor by construction). "
    "Right: mean client latency (bootstrap intervals over runs)."
)
ARMS = (("error_off", "no error", GREEN, ""), ("error_on", "with error", GREY, "////"))


def draw(context: Context) -> Figure:
    """Two panels of paired bars by fleet size."""
    arms = {mode: context.static(mode) for mode, *_ in ARMS}
    scales = sorted({s for runs in arms.values() for s in runs["scale"]})
    if not scales:
        return empty("No static runs in the store.")
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for offset, (mode, label, colour, hatch) in zip((-0.2, 0.2), ARMS, strict=True):
        for x, scale in enumerate(scales):
            runs = arms[mode].filter(scale=scale)
            style = {"color": colour, "hatch": hatch, "edgecolor": INK, "linewidth": 0.6}
            first = label if label not in left.get_legend_handles_labels()[1] else None
            failed, requests = int(runs["http_5xx"].sum()), int(runs["requests"].sum())
            if requests:
                interval = context.iv.wilson(failed, requests)
                _bar(
                    left,
                    x + offset,
                    100 * failed / requests,
                    (100 * (interval.low or 0), 100 * (interval.high or 0)),
                    first,
                    style,
                )
            pooled = pooled_latency(context.loaded, context.iv, runs, ("mean",))
            if pooled is not None:
                ends = (pooled.over_runs["mean"].low or 0, pooled.over_runs["mean"].high or 0)
                _bar(right, x + offset, float(pooled.summary["mean_ms"] or 0), ends, first, style)
    name: str | None = "floor by construction"
    for x, scale in enumerate(scales):
        built = arms["error_on"].filter(scale=scale)["floor_rate"].drop_nulls().unique()
        if built.len() == 1:
            floor = 100 * built[0]
            left.plot(
                [x - 0.42, x + 0.42], [floor, floor], "--", color=INK, linewidth=1, label=name
            )
            name = None
    left.set_ylabel("Client 5xx rate (%)")
    right.set_ylabel("Mean client latency (ms)")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.set_xticks(range(len(scales)), [f"N = {s}" for s in scales])
        only_y_grid(axes)
        few_bars(axes, len(scales))
    left.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3)
    return figure


def _bar(
    axes: Axes, x: float, value: float, ends: tuple[float, float], label: str | None, style: dict
) -> None:
    axes.bar(x, value, width=0.36, label=label, **style)
    axes.plot([x, x], ends, color=INK, linewidth=1.1)
    axes.plot([x, x], ends, "_", color=INK, markersize=6)
