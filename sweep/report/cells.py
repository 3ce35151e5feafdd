"""What a table is made of, before anyone decides how to print it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sweep.metrics.intervals import ALL_EQUAL, ONE_RUN, Interval

NOTHING = "—"
"""Printed for a value that is undefined."""

NO_RUNS = "no runs"

MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Column:
    """A column of values: its heading, unit and number of decimals."""

    key: str
    title: str
    unit: str = ""
    digits: int = 3
    signed: bool = False
    count: bool = False
    """How much there was: the paper's value is shown, a difference to it says nothing."""


@dataclass(frozen=True)
class Cell:
    """One value with all that is known of it. Numbers are in the unit of their column."""

    value: float | int | str | bool | None
    n: int | None = None
    """Units that the value is drawn from (runs, unless the column says requests or steps)."""
    interval: Interval | None = None
    second: Interval | None = None
    """Another interval of the same value, with other units."""
    paper: float | None = None
    """The paper's value, never mixed with ours."""
    note: str = ""
    digits: int | None = None
    """Decimals, where they differ from the column's."""

    @property
    def difference(self) -> float | None:
        """Our value minus the paper's."""
        if self.paper is None or isinstance(self.value, str | bool) or self.value is None:
            return None
        return self.value - self.paper


EMPTY = Cell(None, n=0, note=NO_RUNS)


@dataclass(frozen=True)
class Row:
    """A row: its labels (one for every label column), its cells (one for every column)."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]
    section: bool = False
    """Draw a rule above it."""


@dataclass(frozen=True)
class Table:
    """A table of the report."""

    key: str
    """`6` for Table 6 of the paper; a word for a table of our own."""
    title: str
    caption: str
    label_titles: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def heading(self) -> str:
        """Title with the paper's number, where it has one."""
        return f"Table {self.key}. {self.title}" if self.key.isdigit() else self.title


def shown(cell: Cell, column: Column) -> str:
    """The value of a cell as it is printed; why there is none, in its place."""
    if cell.value is None and cell.note:
        return cell.note
    return number(cell.value, format_of(cell, column))


def format_of(cell: Cell, column: Column) -> Column:
    """The column with the decimals of the cell."""
    return column if cell.digits is None else replace(column, digits=cell.digits)


def number(value: float | int | str | bool | None, column: Column) -> str:
    """A value as it is printed in its column."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    sign = "+" if column.signed else ""
    text = f"{value:{sign},.{column.digits}f}"
    # -0.000 and +0.000 say nothing that 0.000 doesn't.
    return text.lstrip("+-") if float(text.replace(",", "")) == 0 else _minus(text)


def brackets(cell: Cell, column: Column) -> list[tuple[str, int]]:
    """The intervals of a cell, each as one line, and the units that it is drawn from."""
    column = format_of(cell, column)
    intervals = [i for i in (cell.interval, cell.second) if i is not None]
    return [(text, i.n) for i in intervals if (text := bracket(i, column))]


SAID = ("n", "runs", "requests", "steps")
"""Columns that say how much a row is made of."""


def said(table: Table, row: Row) -> set[int]:
    """Numbers of units that the row states in columns of their own."""
    pairs = zip(row.cells, table.columns, strict=True)
    return {c.value for c, column in pairs if column.key in SAID and isinstance(c.value, int)}


def bracket(interval: Interval | None, column: Column) -> str:
    """An interval as it is printed below its value; what is degenerate about it in its place."""
    if interval is None or interval.low is None or interval.high is None:
        return ""
    if interval.note in (ONE_RUN, ALL_EQUAL):
        return f"({interval.note})"
    return f"[{number(interval.low, column)}, {number(interval.high, column)}]"


def against_paper(cell: Cell, column: Column) -> str:
    """`† 0.984 (+0.016)`: the paper's value and our difference to it; empty without one."""
    if cell.paper is None:
        return ""
    column = format_of(cell, column)
    text = f"† {number(cell.paper, column)}"
    if cell.difference is None or column.count:
        return text
    return f"{text} ({number(cell.difference, replace(column, signed=True))})"


PAPER_LEGEND = "† the paper's value, and in brackets our value minus the paper's"


def scaled(interval: Interval, factor: float) -> Interval:
    """The interval in another unit."""
    return Interval(
        None if interval.low is None else interval.low * factor,
        None if interval.high is None else interval.high * factor,
        interval.method,
        interval.n,
        interval.note,
    )


def methods(tables: Sequence[Table]) -> list[str]:
    """Names of all interval methods that the tables use, in order of appearance."""
    seen: dict[str, None] = {}
    for table in tables:
        for row in table.rows:
            for cell in row.cells:
                for interval in (cell.interval, cell.second):
                    if interval is not None and interval.low is not None:
                        seen[interval.method] = None
    return list(seen)


def _minus(text: str) -> str:
    return text.replace("-", MINUS)
