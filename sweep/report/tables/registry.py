"""All tables, in the order in which they are printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sweep.report.cells import Table
from sweep.report.tables import latency, localization, overview, reasoning
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
PAPER_TABLES: Mapping[str, Callable[[Context], Table]] = {
    "5": localization.table5,
    "6": localization.table6,
    "7": localization.table7,
    "8": latency.table8,
    "9": latency.table9,
    "10": localization.table10,
    "11": localization.table11,
    "12": localization.table12,
    "13": localization.table13,
    "14": reasoning.table14,
    "pooled": reasoning.headlines,
}

ALL: Mapping[str, Callable[[Context], Table]] = {**RUN_TABLES, **MODEL_TABLES, **PAPER_TABLES}
