"""Tables in the terminal."""

from __future__ import annotations

import os
import sys

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from sweep.report.cells import Cell, Column, Table, against_paper, brackets, said, shown

PIPE_WIDTH = 100
"""Width of the output when it goes to a file or a pipe and COLUMNS is not set."""


def console() -> Console:
    """A console for tables: as wide as the terminal, or `PIPE_WIDTH`."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPE_WIDTH if piped else None, highlight=False)


def print_table(out: Console, table: Table) -> None:
    """Print a table, its caption and its notes; one too wide is printed in parts."""
    out.print()
    out.print(Text(table.heading, style="bold"))
    out.print(Text(table.caption, style="dim"))
    if not table.rows:
        out.print(Text("  no runs of this kind in the store", style="yellow"))
    for index, part in enumerate(_parts(out, table) if table.rows else ()):
        if index:
            out.print(Text("… continued", style="dim"))
        out.print(part)
    for note in table.notes:
        out.print(Padding(Text(note, style="dim"), (0, 0, 0, 2), expand=False))


def _parts(out: Console, table: Table) -> list[RichTable]:
    """The table as one grid, or as few as fit, with about as many columns each."""
    total = len(table.columns)
    for count in range(1, total + 1):
        size = -(-total // count)
        edges = [(start, min(start + size, total)) for start in range(0, total, size)]
        parts = [_rich(table, *edge) for edge in edges]
        if all(_width(out, part) <= out.width for part in parts):
            break
    return parts


def _width(out: Console, grid: RichTable) -> int:
    """Width that the grid would like to have."""
    return Measurement.get(out, out.options.update(max_width=10_000), grid).maximum


def _rich(table: Table, start: int, end: int) -> RichTable:
    """Columns `start` to `end` (exclusive) behind all labels."""
    grid = RichTable(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False, collapse_padding=True
    )
    for title in table.label_titles:
        grid.add_column(title, no_wrap=True)
    for column in table.columns[start:end]:
        heading = f"{column.title}\n{column.unit}" if column.unit else column.title
        grid.add_column(heading, justify="right", no_wrap=True)
    previous: tuple[str, ...] = ()
    for index, row in enumerate(table.rows):
        labels = _without_repetition(row.labels, () if row.section else previous)
        known = said(table, row)
        single = table.key.startswith("runs-")
        pairs = list(zip(row.cells, table.columns, strict=True))[start:end]
        following = table.rows[index + 1 : index + 2]
        grid.add_row(
            *labels,
            *(_cell(cell, column, known, single) for cell, column in pairs),
            end_section=bool(following and following[0].section),
        )
        previous = row.labels
    return grid


def _without_repetition(labels: tuple[str, ...], previous: tuple[str, ...]) -> list[str]:
    """Leading labels that are those of the row above stay empty."""
    shown = list(labels)
    for i in range(len(labels) - 1):
        if labels[: i + 1] != previous[: i + 1]:
            break
        shown[i] = ""
    return shown


def _cell(cell: Cell, column: Column, known: set[int], single: bool) -> Text:
    """The value, its intervals and their n, unless the row has said it (`known`) elsewhere.

    Rows of a single run (`single`) say each n only once: all of its cells have the same.
    """
    missing = cell.value is None and bool(cell.note)
    text = Text(shown(cell, column), style="dim" if missing else "")
    for line, n in brackets(cell, column):
        text.append(f"\n{line}", style="dim")
        if n not in known:
            text.append(f"\nn = {n:,}", style="dim")
        if single:
            known.add(n)
    if beside := against_paper(cell, column):
        text.append(f"\n{beside}", style="cyan")
    return text
