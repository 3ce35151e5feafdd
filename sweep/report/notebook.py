"""What the notebooks call: a store, its tables, its figures, one run's steps."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from sweep.report.cells import Table
from sweep.report.figures.registry import FIGURES, run_timeline, svg
from sweep.report.figures.style import styled
from sweep.report.html import table_html
from sweep.report.load import load
from sweep.report.memo import FILE, Intervals
from sweep.report.steps import read_conversations, read_steps
from sweep.report.tables.context import Context
from sweep.report.tables.registry import ALL
from sweep.store.paths import RunStore

STORE_VARIABLE = "DRAINBENCH_STORE"

_CHECKOUT = Path(__file__).resolve().parents[2]


def open_store(default: str | Path) -> Context:
    """The run store named by the environment's DRAINBENCH_STORE, or the default.

    A notebook runs in its own folder, but whoever starts it may stand in the checkout's: a relative
    path is looked for in both. Raises `NotAStore` where there is none.
    """
    store = RunStore(Path(os.environ.get(STORE_VARIABLE, default)))
    from_checkout = RunStore(_CHECKOUT / store.root)
    if from_checkout.is_store() and not store.is_store():
        store = from_checkout
    return Context(load(store), Intervals(store.root / FILE))


class Shown:
    """A table that a notebook displays."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def _repr_html_(self) -> str:
        return table_html(self.table)

    def __repr__(self) -> str:
        return self.table.heading


def table(context: Context, key: str) -> Shown:
    """A table by its key, such as `6` or `models-outcome`."""
    made = Shown(ALL[key](context))
    context.iv.save()
    return made


class Drawing:
    """A figure that a notebook displays as SVG."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure

    def _repr_svg_(self) -> str:
        return svg(self.figure)


def figure(context: Context, key: str) -> Drawing:
    """A figure by its key, such as `figure1`."""
    with styled():
        return Drawing(FIGURES[key].draw(context))


def timeline(context: Context, run_id: str) -> Drawing:
    """The timeline of one run."""
    return Drawing(run_timeline(context.loaded, run_id))


def steps(context: Context, run_id: str) -> list[dict[str, Any]]:
    """Step records of one run, in order."""
    return read_steps(context.loaded.store.run(run_id))


def conversations(context: Context, run_id: str) -> dict[int, dict[str, Any]]:
    """Conversation records of one run by step."""
    return read_conversations(context.loaded.store.run(run_id))
