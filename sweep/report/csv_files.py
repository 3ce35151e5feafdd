"""Tables as CSV files: one a table, one line a cell, and the frame of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from sweep.report.cells import Cell, Column, Table
from sweep.report.load import Loaded

CELL_SCHEMA = {
    "table": pl.String,
    "row": pl.String,
    "column": pl.String,
    "unit": pl.String,
    "value": pl.String,
    "n": pl.Int64,
    "low": pl.Float64,
    "high": pl.Float64,
    "method": pl.String,
    "low2": pl.Float64,
    "high2": pl.Float64,
    "method2": pl.String,
    "paper": pl.Float64,
    "difference": pl.Float64,
    "note": pl.String,
}
"""Columns of a table's file. `low2`, `high2`, `method2`: a second interval of the same value."""


def write_csv(folder: Path, loaded: Loaded, tables: Sequence[Table]) -> list[Path]:
    """Write `table<number>.csv` or `<name>.csv`, `runs.csv` and `left_out.csv`; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for table in tables:
        path = folder / (
            f"table{int(table.key):02}.csv" if table.key.isdigit() else f"{table.key}.csv"
        )
        cells_frame(table).write_csv(path)
        written.append(path)
    lists = [c for c, kind in loaded.runs.schema.items() if kind == pl.List(pl.String)]
    flat = loaded.runs.with_columns(pl.col(c).list.join(" ") for c in lists)
    flat.write_csv(folder / "runs.csv")
    left_out = [(i.run_id, i.kind, i.reason) for i in loaded.left_out]
    schema = {"run_id": pl.String, "kind": pl.String, "reason": pl.String}
    pl.DataFrame(left_out, schema=schema, orient="row").write_csv(folder / "left_out.csv")
    return [*written, folder / "runs.csv", folder / "left_out.csv"]


def cells_frame(table: Table) -> pl.DataFrame:
    """All cells of a table, full precision, as `CELL_SCHEMA`."""
    lines = [
        _line(table, " · ".join(row.labels), column, cell)
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
    ]
    return pl.DataFrame(lines, schema=CELL_SCHEMA, orient="row")


def _line(table: Table, row: str, column: Column, cell: Cell) -> tuple[object, ...]:
    first, second = cell.interval, cell.second
    value = None if cell.value is None else str(cell.value)
    return (
        table.key,
        row,
        column.title,
        column.unit,
        value,
        cell.n,
        first and first.low,
        first and first.high,
        first and first.method,
        second and second.low,
        second and second.high,
        second and second.method,
        cell.paper,
        cell.difference,
        cell.note or (first.note if first else "") or None,
    )
