"""Figure 4: what availability costs in tail latency (paper, §5.4)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sweep.report.figures import labels
from sweep.report.figures.style import (
    ARCHITECTURES,
    FILLINGS,
    GREEN,
    INK,
    RED,
    SOFT,
    empty,
    family_colours,
    family_label,
    family_markers,
)
from sweep.report.tables.context import Context, by_size

CAPTION = (
    "Figure 4. Availability and tail latency: one marker per model, median over its error-on runs "
    "of 100 x (1 - 5xx rate) against median client p95. Colour and shape: family; filling: "
    "architecture (full: dense, left half: MoE, lower half: efficient-sparse, none: not a model, "
    "or not told). Cross: doing nothing; star: the error-free fleet. Dashed: the frontier that no "
    "policy beats on both axes. The inset enlarges the cluster of the best."
)


SMALLEST_SPAN = 0.1
"""Least range of an axis, in ms and percentage points."""


@dataclass(frozen=True)
class Point:
    """One policy: p95 in ms, availability in percent."""

    title: str
    x: float
    y: float
    colour: str
    marker: str
    fill: str = "full"


def points(context: Context) -> list[Point]:
    """Medians over runs of every policy with requests; the static error-on runs are one of them."""
    runs = by_size(context.deciding.filter(pl.col("requests") > 0))
    groups = runs.partition_by("title", maintain_order=True)
    families = [g["family"][0] for g in groups]
    colours, markers = family_colours(families), family_markers(families)
    made = []
    for group, family in zip(groups, families, strict=True):
        fill = FILLINGS.get(group["architecture"][0], FILLINGS[None])
        made.append(_point(group, colours[family], markers[family], fill=fill))
    nothing = context.static("error_on").filter(pl.col("requests") > 0)
    if nothing.height:
        made.append(_point(nothing, RED, "X", title="Static, error-on"))
    return made


def _point(
    runs: pl.DataFrame, colour: str, marker: str, fill: str = "full", title: str | None = None
) -> Point:
    rate, p95 = runs["rate_5xx"].median(), runs["p95_ms"].median()
    return Point(
        title or runs["title"][0],
        float(p95),  # type: ignore[arg-type]
        100 * (1 - float(rate)),  # type: ignore[arg-type]
        colour,
        marker,
        fill,
    )


def frontier(made: list[Point]) -> list[Point]:
    """Points that no other beats on both axes, by ascending p95."""
    best: list[Point] = []
    for point in sorted(made, key=lambda p: (p.x, -p.y)):
        if not best or point.y > best[-1].y:
            best.append(point)
    return best


def draw(context: Context) -> Figure:
    """The scatter, its frontier and, where points crowd, an inset."""
    made = points(context)
    floor = context.static("error_off").filter(pl.col("requests") > 0)
    if not made:
        return empty("No policy has any requests.")
    figure = Figure(figsize=(8, 5.2), layout="constrained")
    axes = figure.subplots()
    edge = frontier(made)
    axes.plot([p.x for p in edge], [p.y for p in edge], "--", color=SOFT, linewidth=1, zorder=1)
    _scatter(axes, made)
    stars = []
    if floor.height:
        star = _point(floor, GREEN, "*", title="Static, error-off")
        axes.plot(star.x, star.y, "*", color=GREEN, markersize=14, markeredgecolor=INK, zorder=4)
        stars.append(star)
    axes.set_xlabel("Median client p95 latency (ms)")
    axes.set_ylabel("Median client availability (%)")
    everything = made + stars
    _limits(axes, everything)
    _legend(axes, context, made)  # takes room, so before any label finds its place
    crowd = _crowd(made)
    line = _along(edge)
    if crowd:
        inset = axes.inset_axes(_free_box(axes, everything))
        inset.plot([p.x for p in edge], [p.y for p in edge], "--", color=SOFT, linewidth=1)
        _scatter(inset, crowd)
        _limits(inset, crowd, 0.18)
        inset.tick_params(labelsize=7)
        inset.set_facecolor("#fbfcfd")
        axes.indicate_inset_zoom(inset, edgecolor=SOFT)
        inside = [(x, y) for x, y in line if _within(inset, x, y)]
        labels.place(inset, [(p.x, p.y) for p in crowd], [p.title for p in crowd], 7, inside)
    outside = [p for p in everything if p not in crowd]
    labels.place(
        axes,
        [(p.x, p.y) for p in outside],
        [p.title for p in outside],
        7.5,
        [*((p.x, p.y) for p in crowd), *line],
    )
    return figure


def _along(edge: list[Point], steps: int = 60) -> list[tuple[float, float]]:
    """Points on the line through `edge`, close enough that no label fits between them."""
    return [
        (a.x + (b.x - a.x) * i / steps, a.y + (b.y - a.y) * i / steps)
        for a, b in pairwise(edge)
        for i in range(1, steps)
    ]


def _within(axes: Axes, x: float, y: float) -> bool:
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    return left <= x <= right and bottom <= y <= top


def _scatter(axes: Axes, made: list[Point]) -> None:
    for point in made:
        hollow = point.fill == "none"
        axes.plot(
            point.x,
            point.y,
            point.marker,
            color=point.colour,
            fillstyle=point.fill,
            markerfacecoloralt="white",
            markersize=8,
            # A hollow marker shows its colour at the edge.
            markeredgecolor=point.colour if hollow else INK,
            markeredgewidth=1.8 if hollow else 0.8,
            zorder=3,
        )


def _limits(axes: Axes, made: list[Point], margin: float = 0.1) -> None:
    for values, setter in (
        ([p.x for p in made], axes.set_xlim),
        ([p.y for p in made], axes.set_ylim),
    ):
        span = max(values) - min(values)
        # Points that are all but equal stay in the middle of a range that can be read.
        pad = max(margin * span, SMALLEST_SPAN / 2 if span < SMALLEST_SPAN else 0)
        setter(min(values) - pad, max(values) + pad)
    axes.ticklabel_format(useOffset=False)


def _crowd(made: list[Point]) -> list[Point]:
    """Points that lie close together near the top, if they are many; they get the inset."""
    top, bottom = max(p.y for p in made), min(p.y for p in made)
    width = max(p.x for p in made) - min(p.x for p in made)
    high = sorted((p for p in made if p.y >= top - 0.22 * (top - bottom)), key=lambda p: p.x)
    groups: list[list[Point]] = []
    for point in high:
        if groups and point.x - groups[-1][-1].x < 0.15 * width:
            groups[-1].append(point)
        else:
            groups.append([point])
    crowd = max(groups, key=len, default=[])
    return crowd if len(crowd) >= 4 and len(crowd) < len(made) else []


def _free_box(axes: Axes, made: list[Point]) -> tuple[float, float, float, float]:
    """The largest place for an inset (axes fractions) that covers no point, or the fewest."""
    spots = [
        axes.transAxes.inverted().transform(axes.transData.transform((p.x, p.y))) for p in made
    ]

    def covered(box: tuple[float, float, float, float]) -> int:
        left, bottom, width, height = box
        # Labels reach to the right of their points, the inset's own tick labels to its left.
        return sum(
            left - 0.16 <= x <= left + width + 0.02 and bottom - 0.07 <= y <= bottom + height + 0.03
            for x, y in spots
        )

    boxes = [
        (left / 100, bottom / 100, width, height)
        for width, height in ((0.55, 0.48), (0.46, 0.40), (0.38, 0.33))
        for bottom in range(9, int(95 - 100 * height), 6)
        for left in range(int(96 - 100 * width), 8, -6)
    ]
    return min(boxes, key=covered)


def _legend(axes: Axes, context: Context, made: list[Point]) -> None:
    runs = context.deciding
    markers = family_markers(runs["family"])
    handles = [
        Line2D(
            [],
            [],
            marker=markers[family],
            linestyle="",
            color=colour,
            markeredgecolor=INK,
            markeredgewidth=0.8,
            label=family_label(family, runs),
        )
        for family, colour in family_colours(runs["family"]).items()
    ]
    # Those of the static runs are told by their labels.
    fills = {p.fill for p in made if p.marker in markers.values()}
    handles += [
        Line2D(
            [],
            [],
            marker="o",
            linestyle="",
            color=SOFT,
            fillstyle=fill,
            markerfacecoloralt="white",
            markeredgecolor=INK,
            markeredgewidth=0.8,
            label=ARCHITECTURES[name],
        )
        for name, fill in FILLINGS.items()
        if fill in fills
    ]
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=5,
        columnspacing=1.0,
        handletextpad=0.2,
    )
