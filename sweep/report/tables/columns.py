"""Columns that several tables have, as the paper heads them."""

from __future__ import annotations

from sweep.report.cells import Column

RUNS = Column("n", "Runs", digits=0, count=True)

SCORES = (
    Column("precision", "P", "micro", 3),
    Column("recall", "R", "micro", 3),
    Column("f1", "F1", "micro", 3),
    Column("exact", "Exact", "share", 3),
)
"""Those of `Context.micro` (paper, Tables 6 and 10)."""

REDUCTION = Column("reduction_pct", "Reduction", "%, median", 1)

BUDGET = (
    Column("completion_per_step", "Comp/step", "tokens", 0),
    Column("completion_tokens", "Comp/run", "tok., mean", 0),
    Column("cadence_s", "Cadence", "s, median", 1),
    Column("steps", "Steps", "median", 1),
    Column("over_budget", "Over budget", "% of runs", 0),
)
"""Those of `context.budget` (paper, Table 14)."""

COST_EFFECTIVENESS = Column("cost_eff", "Cost-eff", "/1k tokens", 0)

RAILS_HIT = Column("fired_pct", "Rails hit", "% of steps", 2)
