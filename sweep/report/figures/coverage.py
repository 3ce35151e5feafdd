"""Which grid points of the sweep are complete, invalid, failed, missing."""

from __future__ import annotations

import re
from dataclasses import dataclass

from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from sweep.report.figures.style import BLUE, INK, ORANGE, RED, SOFT, empty
from sweep.report.load import asked_runs
from sweep.report.tables.context import Context, by_size, policy_label

CAPTION = (
    "Coverage of the sweep: one cell per grid point. Complete (of these, dots mark what lacks a "
    "part, such as a matched baseline), invalid or unreadable (!), failed for good (x), asked for "
    "and not yet run (·)."
)
RUN_ID = re.compile(r"^(?P<policy>.+)_(?P<lb>[a-z]+)_n(?P<n>\d+)_s(?P<seed>-?\d+)$")
STATES = ("complete", "invalid", "failed", "missing")
COLOURS = {"complete": BLUE, "invalid": ORANGE, "failed": RED, "missing": "#ffffff"}
SIGNS = {"complete": "", "invalid": "!", "failed": "x", "missing": "·"}


@dataclass(frozen=True)
class Grid:
    """State of every grid point by row (policy and mode) and column (N, algorithm, seed)."""

    rows: list[str]
    columns: list[tuple[int, str, int]]
    states: dict[tuple[str, tuple[int, str, int]], str]
    partial: set[tuple[str, tuple[int, str, int]]]


def grid(context: Context) -> Grid:
    """All grid points that the store knows of, whatever became of them."""
    labels: dict[str, str] = {}
    states: dict[str, str] = dict.fromkeys(asked_runs(context.loaded.store), "missing")
    for run in by_size(context.runs).iter_rows(named=True):
        states[run["run_id"]] = "complete"
        if match := RUN_ID.match(run["run_id"]):
            labels[match["policy"]] = policy_label(run)
    partial = set()
    for item in context.loaded.left_out:
        if item.kind in ("invalid", "unreadable", "old version"):
            states[item.run_id] = "invalid"
        elif item.kind == "failed":
            states[item.run_id] = "failed"
        else:
            partial.add(item.run_id)
    cells, rows, columns, marked = {}, dict.fromkeys(labels.values()), set(), set()
    for run_id, state in states.items():
        if match := RUN_ID.match(run_id):
            row = labels.get(match["policy"], match["policy"])
            column = (int(match["n"]), match["lb"], int(match["seed"]))
            rows.setdefault(row)
            columns.add(column)
            cells[row, column] = state
            if run_id in partial:
                marked.add((row, column))
    return Grid(list(rows), sorted(columns), cells, marked)


def draw(context: Context) -> Figure:
    """The grid as a map."""
    found = grid(context)
    if not found.states:
        return empty("The store knows of no grid point.")
    figure = Figure(
        figsize=(max(5.0, 2.9 + 0.5 * len(found.columns)), 1.3 + 0.22 * len(found.rows)),
        layout="constrained",
    )
    axes = figure.subplots()
    numbers = {state: i for i, state in enumerate((*STATES, "none"))}
    table = [
        [numbers[found.states.get((row, column), "none")] for column in found.columns]
        for row in found.rows
    ]
    colours = ListedColormap([*(COLOURS[s] for s in STATES), "#eef0f3"])
    # A mesh stays a drawing in SVG, where an image would become pixels.
    axes.pcolormesh(
        table, cmap=colours, vmin=-0.5, vmax=len(STATES) + 0.5, edgecolors="white", linewidth=1.2
    )
    axes.set_ylim(len(found.rows), 0)
    for y, row in enumerate(found.rows):
        for x, column in enumerate(found.columns):
            state = found.states.get((row, column))
            text = "•" if (row, column) in found.partial else SIGNS.get(state or "", "")
            if text:
                dark = state in ("complete", "failed")
                axes.text(
                    x + 0.5,
                    y + 0.5,
                    text,
                    ha="center",
                    va="center_baseline",
                    fontsize=9,
                    color="white" if dark else INK,
                )
    seeds = len({c[2] for c in found.columns}) > 1
    names = [f"N = {n}\n{lb}" + (f"\ns {seed}" if seeds else "") for n, lb, seed in found.columns]
    middles = [x + 0.5 for x in range(len(names))]
    axes.set_xticks(middles, names, fontsize=6.5)
    axes.set_yticks([y + 0.5 for y in range(len(found.rows))], found.rows, fontsize=7.5)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    handles = []
    for state in STATES:
        count = sum(s == state for s in found.states.values())
        handles.append(Patch(facecolor=COLOURS[state], edgecolor=SOFT, label=f"{state} ({count})"))
    figure.legend(handles=handles, loc="outside upper center", ncols=4)
    return figure
