"""Which guardrails a step's raw plan trips (paper, Table 13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from controller.guardrails import GuardrailLimits

PAPER_LIMITS = GuardrailLimits()
"""One drain, three actions, a weight change of 50 (paper, §3.1): those of a run, unless its own
configuration says otherwise."""

RAILS = ("drain_cap", "action_cap", "weight_clamp", "weight_range")
"""The rails that Table 13 counts; `weight_range` never fired in the paper."""


def rails_tripped(
    record: Mapping[str, Any], limits: GuardrailLimits = PAPER_LIMITS
) -> frozenset[str]:
    """Rails that one step record trips; `rejected` stands for unknown servers and invalid actions.

    Drain cap: the raw plan proposes more drains than `limits` allow (one). Action cap: more actions
    (three), no_op not counted. Weight clamp: a larger weight change (50) against the weights of the
    snapshot, also of an action that a cap drops: that one is clamped no more, and yet was proposed.
    The guardrails' own log of the step counts as well.
    """
    plan = record.get("raw_plan") or ()
    tripped = set()
    if sum(a["kind"] == "drain" for a in plan) > limits.max_drains:
        tripped.add("drain_cap")
    if sum(a["kind"] != "no_op" for a in plan) > limits.max_actions:
        tripped.add("action_cap")
    if _clamp_needed(plan, record.get("snapshot") or {}, limits):
        tripped.add("weight_clamp")
    for intervention in record.get("interventions") or ():
        rail = intervention["rail"]
        tripped.add(rail if rail in RAILS else "rejected")
    return frozenset(tripped)


def _clamp_needed(plan: Any, snapshot: Mapping[str, Any], limits: GuardrailLimits) -> bool:
    weights = {s["server"]: s["weight"] for s in snapshot.get("servers") or ()}
    return any(
        a["kind"] == "set_weight"
        and isinstance(a.get("weight"), int)
        and a["server"] in weights
        and abs(a["weight"] - weights[a["server"]]) > limits.max_weight_delta
        for a in plan
    )


def firing_counts(steps: pl.DataFrame) -> dict[str, int]:
    """Number of steps on which each rail fired, and `any` of `RAILS` (columns: STEPS_SCHEMA)."""
    counts = {f"fired_{rail}": int(steps[rail].sum()) for rail in (*RAILS, "rejected")}
    any_rail = sum(map(any, zip(*(steps[rail] for rail in RAILS), strict=True)))
    return {**counts, "fired_any": any_rail}
