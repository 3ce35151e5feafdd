"""What decisions cost: tokens, cadence and steps (paper, §3.4 and Table 14)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import polars as pl

TIMER_SLACK_S = 0.1
"""A median cadence this little above the interval is the timer's jitter, not a slipping loop."""


@dataclass(frozen=True)
class Tokens:
    """Token usage of one run, summed over its steps."""

    prompt: int
    completion: int
    total: int
    cached: int
    turns: int
    actions: int
    """Actions proposed in raw plans, no_op not counted."""


def tokens(steps: pl.DataFrame) -> Tokens:
    """Totals of a run (columns: STEPS_SCHEMA)."""
    return Tokens(
        prompt=int(steps["prompt_tokens"].sum()),
        completion=int(steps["completion_tokens"].sum()),
        total=int(steps["total_tokens"].sum()),
        cached=int(steps["cached_tokens"].sum()),
        turns=int(steps["turns"].sum()),
        actions=int(steps["actions"].sum()),
    )


def completion_per_step(steps: pl.DataFrame) -> list[int]:
    """Completion tokens of every step in which a model answered (at least one turn)."""
    pairs = zip(steps["turns"], steps["completion_tokens"], strict=True)
    return [tokens for turns, tokens in pairs if turns > 0]


def cadence_s(steps: pl.DataFrame) -> float | None:
    """Median wall-clock time between the starts of consecutive steps; None below two steps."""
    between = [later - earlier for earlier, later in pairwise(steps["started_s"])]
    return median(between) if between else None


def over_budget(cadence: float | None, interval_s: float) -> bool | None:
    """Whether the loop fell behind: its median cadence exceeds the interval (Table 14)."""
    return None if cadence is None else cadence > interval_s + TIMER_SLACK_S
