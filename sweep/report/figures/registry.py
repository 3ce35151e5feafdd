"""All figures of a store, and how they are saved."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

import polars as pl
from matplotlib.figure import Figure

from sweep.report.errors import ReportError
from sweep.report.figures import (
    cost,
    coverage,
    guardrails,
    over_time,
    pareto,
    static,
    threshold,
    timeline,
)
from sweep.report.figures.style import empty, styled
from sweep.report.load import Loaded
from sweep.report.steps import read_steps
from sweep.report.tables.context import Context

FIGURES: Mapping[str, ModuleType] = {
    "figure1": threshold,
    "figure2": static,
    "figure3": over_time,
    "figure4": pareto,
    "figure5": guardrails,
    "figure6": cost,
    "coverage": coverage,
}
DPI = 200
SAVE = {"bbox_inches": "tight", "pad_inches": 0.06, "facecolor": "white"}


def drawn(context: Context, run_id: str | None = None) -> Iterator[tuple[str, str, Figure]]:
    """(name, caption, figure) of every figure; the timeline of `run_id`, or of a telling run."""
    with styled():
        for name, module in FIGURES.items():
            yield name, module.CAPTION, module.draw(context)
        chosen = run_id or telling_run(context)
        if chosen is not None:
            try:
                figure = run_timeline(context.loaded, chosen)
            except (ReportError, OSError, pl.exceptions.PolarsError) as error:
                figure = empty(f"No timeline of {chosen}: {str(error).splitlines()[0]}")
            yield "timeline", timeline.CAPTION.format(run_id=chosen), figure


def telling_run(context: Context) -> str | None:
    """The run with most flips, then most rails hit: there is most to see in it."""
    runs = context.deciding.drop_nulls(["flips", "requests", "steps"])
    if not runs.height:
        return None
    ordered = runs.sort("flips", "fired_any", "run_id", descending=[True, True, False])
    return ordered["run_id"][0]


def run_timeline(loaded: Loaded, run_id: str) -> Figure:
    """The timeline of one run. Raises `ReportError`, `polars.exceptions.PolarsError`, OSError."""
    paths = loaded.store.run(run_id)
    with styled():
        return timeline.draw(
            paths, loaded.summaries[run_id], loaded.aggregates[run_id], read_steps(paths)
        )


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write `<name>.svg` and `<name>.png`; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with styled():
        for kind in ("svg", "png"):
            metadata = {"Date": None} if kind == "svg" else None
            figure.savefig(folder / f"{name}.{kind}", dpi=DPI, metadata=metadata, **SAVE)
    return [folder / f"{name}.svg", folder / f"{name}.png"]


def svg(figure: Figure) -> str:
    """The figure as SVG text."""
    buffer = io.StringIO()
    with styled():
        figure.savefig(buffer, format="svg", metadata={"Date": None}, **SAVE)
    return buffer.getvalue()
