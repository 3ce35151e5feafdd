"""All tables, in the order in which they are printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sweep.report.cells import Table
from sweep.report.tables import latency, localization, policies, reasoning, runs, scaling
from sweep.report.tables.context import Context

RUN_TABLES: Mapping[str, Callable[[Context], Table]] = {
    "runs-client": runs.runs_client,
    "runs-decisions": runs.runs_decisions,
    "runs-latency": runs.runs_latency,
    "runs-cost": runs.runs_cost,
}
MODEL_TABLES: Mapping[str, Callable[[Context], Table]] = {
    "models-outcome": policies.models_outcome,
    "models-behaviour": policies.models_behaviour,
    "models-cost": policies.models_cost,
}
PAPER_TABLES: Mapping[str, Callable[[Context], Table]] = {
    "5": localization.table5,
    "6": localization.table6,
    "7": localization.table7,
    "8": latency.table8,
    "9": latency.table9,
    "10": scaling.table10,
    "11": scaling.table11,
    "12": scaling.table12,
    "13": scaling.table13,
    "14": reasoning.table14,
    "pooled": reasoning.headlines,
}

ALL: Mapping[str, Callable[[Context], Table]] = {**RUN_TABLES, **MODEL_TABLES, **PAPER_TABLES}
