"""Numbers that the paper gives in its text only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Headline:
    """One number and the section that gives it."""

    value: float
    source: str


HEADLINES: Mapping[str, Headline] = {
    "tp": Headline(355, "§5.3.1"),
    "fp": Headline(34, "§5.3.1"),
    "fn": Headline(93, "§5.3.1"),
    "precision": Headline(0.913, "§5.3"),
    "recall": Headline(0.792, "§5.3"),
    "f1": Headline(0.848, "§5.3"),
    "exact": Headline(66.5, "§5.3"),
    "end_state_correct": Headline(30.4, "§5.3.1"),
    "reverted": Headline(55.7, "§5.3.1"),
    "oscillating": Headline(80.4, "§5.3.1"),
    "faulty_flip_rate": Headline(4.12, "§5.3.1"),
    "healthy_flip_rate": Headline(0.066, "§5.3.1"),
    "acted": Headline(87.0, "§5.5.2"),
    "resolved": Headline(75.0, "§5.5.2"),
    "fired_pct": Headline(1.63, "§5.3.2"),
    "supra_reduction_pct": Headline(88.0, "§5.1"),
    "end_state_correct_think": Headline(38.4, "§5.6.1"),
    "end_state_correct_nothink": Headline(22.3, "§5.6.1"),
    "flips_think": Headline(8.64, "§5.6.1"),
    "flips_nothink": Headline(6.07, "§5.6.1"),
}
