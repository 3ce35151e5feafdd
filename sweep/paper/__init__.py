"""The paper's own numbers, as data with their sources; never computed from, only compared with.

Read off the tables and the text of "Benchmarking LLM-Guided Control-Plane Policies for Backend
Fault Isolation in HAProxy". Keys of rows and columns are those of our tables.
"""

from __future__ import annotations

from sweep.paper.tables import TABLES
from sweep.paper.text import HEADLINES

__all__ = ["HEADLINES", "LLM_RUNS", "SCALES", "TABLES", "TITLES", "value"]

TITLES = tuple(TABLES["6"].rows)
"""Titles of the paper's 15 models, in ascending total-parameter order."""

SCALES = tuple(TABLES["5"].rows)
"""The paper's fleet sizes, as text."""

LLM_RUNS = 224
"""LLM runs that the paper pools (§3.5)."""


def value(table: str, row: str, column: str) -> float | None:
    """The paper's value of a cell; None where the paper has none."""
    return TABLES[table].rows.get(row, {}).get(column)
