"""One self-contained HTML file: all tables, all figures, what was left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from sweep.metrics import DEFINITIONS_VERSION
from sweep.report.cells import (
    PAPER_LEGEND,
    Cell,
    Column,
    Row,
    Table,
    against_paper,
    brackets,
    said,
    shown,
)
from sweep.report.load import Loaded


def write_html(
    path: Path, loaded: Loaded, tables: Sequence[Table], figures: Mapping[str, tuple[str, str]]
) -> None:
    """Write the report; `figures` are (caption, SVG text) by name. Raises OSError."""
    environment = _environment()
    page = environment.get_template("report.html.j2").render(
        loaded=loaded,
        runs=loaded.runs,
        papers=[t for t in tables if t.key.isdigit() or t.key == "pooled"],
        policies=[t for t in tables if t.key.startswith("models")],
        singles=[t for t in tables if t.key.startswith("runs")],
        figures={k: (caption, Markup(embeddable(svg, k))) for k, (caption, svg) in figures.items()},
        legend=PAPER_LEGEND,
        definitions=DEFINITIONS_VERSION,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def table_html(table: Table) -> str:
    """One table as a piece of HTML with its own style, for notebooks."""
    environment = _environment()
    style = environment.get_template("style.css.j2").render()
    body = environment.get_template("table.html.j2").module.show(table)  # type: ignore[attr-defined]
    scoped = f".drainbench {{ {style.replace(':root', '&')} }}"
    return f'<style>{scoped}</style><div class="drainbench">{body}</div>'


def _environment() -> Environment:
    environment = Environment(loader=PackageLoader("sweep.report", "templates"), autoescape=True)
    environment.globals |= {
        "shown": shown,
        "brackets": brackets,
        "states_n": states_n,
        "against_paper": against_paper,
        "interval_methods": interval_methods,
    }
    return environment


def embeddable(svg: str, name: str) -> str:
    """An SVG file as an element of a page: no prologue, and ids that no other figure has."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    return re.sub(r'href="#', f'href="#{name}-', body)


def states_n(table: Table, row: Row, cell: Cell, column: Column) -> bool:
    """Whether a cell without an interval has an n that its row does not state anyway."""
    if cell.n is None or cell.value is None or brackets(cell, column):
        return False
    # Tables of single runs name what their counts are of.
    return cell.n not in said(table, row) and not table.key.startswith("runs-")


def interval_methods(table: Table) -> str:
    """`P, R, F1: bootstrap over runs; Exact: Wilson`."""
    by_method: dict[str, list[str]] = {}
    for index, column in enumerate(table.columns):
        for method in _methods(table.rows, index):
            by_method.setdefault(method, []).append(column.title)
    return "; ".join(f"{', '.join(titles)}: {method}" for method, titles in by_method.items())


def _methods(rows: Sequence[Row], index: int) -> list[str]:
    found: dict[str, None] = {}
    for row in rows:
        cell = row.cells[index]
        for interval in (cell.interval, cell.second):
            if interval is not None and interval.low is not None:
                found[interval.method] = None
    return list(found)
