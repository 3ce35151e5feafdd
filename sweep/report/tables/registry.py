"""All tables, in the order in which they are printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sweep.report.cells import Table
from sweep.report.tables import overview
from sweep.report.tables.context import Context

RUN_TABLES: Mapping[str, Callable[[Context], Table]] = {
    "runs-client": overview.runs_client,
    "runs-decisions": overview.runs_decisions,
    "runs-latency": overview.runs_latency,
    "runs-cost": overview.runs_cost,
}
MODEL_TABLES: Mapping[str, Callable[[Context], Table]] = {
    "models-outcome": overview.models_outcome,
    "models-behaviour": overview.models_behaviour,
    "models-cost": overview.models_cost,
}
PAPER_TABLES: Mapping[str, Callable[[Context], Table]] = {}

ALL: Mapping[str, Callable[[Context], Table]] = {**RUN_TABLES, **MODEL_TABLES, **PAPER_TABLES}
