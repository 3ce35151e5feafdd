"""Labels beside points, so that they cover neither each other nor the points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.transforms import Bbox

_PLACES = [
    (dx * r, dy * r)
    for r, (dx, dy) in product(
        (7, 12, 19, 28, 40, 54),
        ((1, 0), (1, 0.8), (1, -0.8), (-1, 0), (-1, 0.8), (-1, -0.8), (0, 1), (0, -1)),
    )
]
"""Offsets in points, nearest first."""


def place(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    size: float = 7.5,
    obstacles: Sequence[tuple[float, float]] = (),
) -> None:
    """Label every point (data coordinates); a thin line leads to labels that had to move away.

    Greedy: the first place that is free, points with most neighbours last. `obstacles` are further
    points that no label may cover. Axes limits and legends have to be final.
    """
    figure = axes.figure
    FigureCanvasAgg(figure).draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    pixel = figure.dpi / 72
    frame = axes.get_window_extent(renderer)
    marks = [axes.transData.transform(p) for p in (*points, *obstacles)]
    taken = [Bbox.from_bounds(x - 4 * pixel, y - 4 * pixel, 8 * pixel, 8 * pixel) for x, y in marks]
    for point, text in sorted(zip(points, texts, strict=True), key=lambda item: -item[0][1]):
        best: tuple[float, tuple[float, float], Bbox] | None = None
        for rank, (dx, dy) in enumerate(_PLACES):
            label = _annotate(axes, point, text, (dx, dy), size)
            box = label.get_window_extent(renderer).padded(1.0)
            label.remove()
            cost = rank * 0.05 + 50 * _outside(box, frame)
            cost += 5 * sum(_overlap(box, other) for other in taken)
            if best is None or cost < best[0]:
                best = cost, (dx, dy), box
            if cost < 0.05 * (rank + 1):
                break
        assert best is not None
        _, (dx, dy), box = best
        line = max(abs(dx), abs(dy)) > 15
        _annotate(axes, point, text, (dx, dy), size, line)
        taken.append(box)


def _annotate(axes, point, text, offset, size, line=False):  # type: ignore[no-untyped-def]
    dx, dy = offset
    return axes.annotate(
        text,
        point,
        xytext=offset,
        textcoords="offset points",
        fontsize=size,
        ha="left" if dx > 0 else "right" if dx < 0 else "center",
        va="bottom" if dx == 0 and dy > 0 else "top" if dx == 0 else "center",
        arrowprops={"arrowstyle": "-", "color": "#9aa3af", "lw": 0.6, "shrinkB": 3}
        if line
        else None,
        annotation_clip=False,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.65, "pad": 0.4},
        zorder=2.5,
    )


def _overlap(a: Bbox, b: Bbox) -> float:
    """Share of the smaller box that the other covers."""
    both = Bbox.intersection(a, b)
    if both is None:
        return 0.0
    return both.width * both.height / max(1e-9, min(a.width * a.height, b.width * b.height))


def _outside(box: Bbox, frame: Bbox) -> float:
    inside = Bbox.intersection(box, frame)
    area = 0.0 if inside is None else inside.width * inside.height
    return 1 - area / max(1e-9, box.width * box.height)
