"""How all figures look: colours that survive colour blindness, shapes that survive grey print."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager

import matplotlib
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with any kind of colour vision.
BLUE, SKY, GREEN, ORANGE, RED, PINK, YELLOW, GREY = (
    "#0072B2",
    "#56B4E9",
    "#009E73",
    "#E69F00",
    "#D55E00",
    "#CC79A7",
    "#F0E442",
    "#8C8C8C",
)
INK = "#1c2330"
SOFT = "#5b6575"

FAMILY_COLOURS = {
    "Qwen3": BLUE,
    "Qwen3.5": SKY,
    "Gemma 4": GREEN,
    "Granite": GREY,
    "GPT-OSS": ORANGE,
}
OTHER_COLOURS = (PINK, RED, YELLOW)

FAMILY_MARKERS = {
    "Qwen3": "o",
    "Qwen3.5": "s",
    "Gemma 4": "D",
    "Granite": "^",
    "GPT-OSS": "P",
}
OTHER_MARKERS = ("v", "p", "<", "h", ">")
"""As many as have no common factor with the colours: pairs of both repeat late."""

ARM_STYLES = {
    "healthy": (GREEN, ":"),
    "uncontrolled": (GREY, "-."),
    "sub": (SKY, "--"),
    "supra": (BLUE, "-"),
    "unsized": (PINK, "--"),
    "rule": (RED, (0, (5, 1, 1, 1))),
}
"""Colour and line style by arm: lines differ without colour too."""

FILLINGS = {"dense": "full", "moe": "left", "efficient_sparse": "bottom", None: "none"}
"""Which part of a marker is filled, by architecture; nothing where there is none to tell."""

ARCHITECTURES = {
    "dense": "dense",
    "moe": "MoE",
    "efficient_sparse": "efficient-sparse",
    None: "none, or not told",
}

RC = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e7ec",
    "grid.linewidth": 0.7,
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
    "svg.hashsalt": "drainbench",
    "figure.dpi": 100,
}


@contextmanager
def styled():  # type: ignore[no-untyped-def]
    """Draw in the report's style, whatever the user's own settings are."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(RC)
        yield


def family_colours(families: Iterable[str | None]) -> dict[str | None, str]:
    """A colour for every family; families outside the paper take what is left, in order."""
    colours: dict[str | None, str] = {}
    known = sorted(set(families), key=lambda family: str(family).lower())
    others = [f for f in known if f not in FAMILY_COLOURS]
    for family in known:
        if family in FAMILY_COLOURS:
            colours[family] = FAMILY_COLOURS[family]
        else:
            colours[family] = OTHER_COLOURS[others.index(family) % len(OTHER_COLOURS)]
    return colours


def family_markers(families: Iterable[str | None]) -> dict[str | None, str]:
    """A marker shape for every family, as `family_colours`: they differ without colour too."""
    known = sorted(set(families), key=lambda family: str(family).lower())
    others = [f for f in known if f not in FAMILY_MARKERS]
    return {
        family: FAMILY_MARKERS[family]
        if family in FAMILY_MARKERS
        else OTHER_MARKERS[others.index(family) % len(OTHER_MARKERS)]
        for family in known
    }


def family_label(family: str | None, runs: pl.DataFrame) -> str:
    """Name of a family in a legend; what has none is a rule, or a model that doesn't say."""
    if family is not None:
        return family
    policies = runs.filter(pl.col("family").is_null())["policy"].unique()
    return "rule" if set(policies) == {"rule"} else "no family"


def only_y_grid(axes: Axes) -> None:
    """Grid lines where values are read, none between categories."""
    axes.grid(False, axis="x")


def few_bars(axes: Axes, count: int) -> None:
    """Room beside one or two bars, so that they stay bars."""
    if count < 3:
        middle = (count - 1) / 2
        axes.set_xlim(middle - 1.6, middle + 1.6)


def empty(message: str) -> Figure:
    """A figure that says why there is nothing to draw."""
    figure = Figure(figsize=(7, 1.2), layout="constrained")
    axes = figure.subplots()
    axes.axis("off")
    axes.text(0.5, 0.5, message, ha="center", va="center", color=SOFT)
    return figure
