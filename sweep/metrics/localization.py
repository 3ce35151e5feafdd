"""Fault localization as a comparison of sets (paper, §3.4)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True)
class Counts:
    """Slots of one run, or pooled over several."""

    tp: int
    """Faulty and drained."""
    fp: int
    """Healthy and drained."""
    fn: int
    """Faulty and never drained."""


@dataclass(frozen=True)
class Scores:
    """Precision, recall and F1; None where the quotient is undefined (nothing drained: P)."""

    precision: float | None
    recall: float | None
    f1: float | None


def compare(drained: Collection[str], faulty: Collection[str]) -> Counts:
    """True and false positives and false negatives of the prediction `drained`."""
    p, g = set(drained), set(faulty)
    return Counts(tp=len(p & g), fp=len(p - g), fn=len(g - p))


def scores(counts: Counts) -> Scores:
    """Micro scores of pooled counts. A policy that never drains has F1 = 0 and no precision."""
    tp, fp, fn = counts.tp, counts.fp, counts.fn
    return Scores(
        precision=tp / (tp + fp) if tp + fp else None,
        recall=tp / (tp + fn) if tp + fn else None,
        f1=2 * tp / (2 * tp + fp + fn) if tp + fp + fn else None,
    )
