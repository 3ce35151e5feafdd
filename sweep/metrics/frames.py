"""Step records (docs/run-store.md, steps.jsonl) as two small frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from controller.guardrails import GuardrailLimits
from sweep.metrics.guardrails import PAPER_LIMITS, rails_tripped

STEPS_SCHEMA = pl.Schema(
    {
        "step": pl.Int32,
        "started_s": pl.Float64,
        "executed_s": pl.Float64,
        "decide_s": pl.Float64,
        "failed": pl.Boolean,
        "late": pl.Boolean,
        "actions": pl.Int32,
        "turns": pl.Int32,
        "prompt_tokens": pl.Int64,
        "completion_tokens": pl.Int64,
        "total_tokens": pl.Int64,
        "cached_tokens": pl.Int64,
        "drain_cap": pl.Boolean,
        "action_cap": pl.Boolean,
        "weight_clamp": pl.Boolean,
        "weight_range": pl.Boolean,
        "rejected": pl.Boolean,
    }
)
"""One row a step. Times are seconds from run start; `actions` counts what the raw plan proposes
other than no_op; the last five are the rails that the step trips (`guardrails.rails_tripped`)."""

STATES_SCHEMA = pl.Schema({"time_s": pl.Float64, "server": pl.String, "drained": pl.Boolean})
"""One row for every executed action, in order: the state in which it left its server."""


def steps_frame(
    records: Iterable[Mapping[str, Any]], limits: GuardrailLimits = PAPER_LIMITS
) -> pl.DataFrame:
    """Steps in the order of their numbers, as `STEPS_SCHEMA`; `limits` are those of the run."""
    rows = []
    for record in records:
        usage = record.get("usage") or {}
        rails = rails_tripped(record, limits)
        rows.append(
            {
                "step": record["step"],
                "started_s": float(record["started_s"]),
                "executed_s": record.get("executed_s"),
                "decide_s": (record.get("timings_s") or {}).get("decide"),
                "failed": record.get("error") is not None,
                "late": bool(record.get("late")),
                "actions": sum(a["kind"] != "no_op" for a in record.get("raw_plan") or ()),
                "turns": usage.get("turns", 0),
                "prompt_tokens": usage.get("prompt_tokens", 0),
                "completion_tokens": usage.get("completion_tokens", 0),
                "total_tokens": usage.get("total_tokens", 0),
                "cached_tokens": usage.get("cached_tokens", 0),
                **{name: name in rails for name in STEPS_SCHEMA.names()[-5:]},
            }
        )
    rows.sort(key=lambda row: row["step"])
    return pl.DataFrame(rows, schema=STEPS_SCHEMA)


def states_frame(records: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """Executed actions in order, as `STATES_SCHEMA`.

    What HAProxy was seen to do counts, not what was asked for: a server is drained when it is in
    drain (or maintenance) or its weight is 0. Only where nothing was read back does the kind of a
    successful action decide.
    """
    rows = []
    for record in sorted(records, key=lambda r: r["step"]):
        time_s = record.get("executed_s")
        time_s = float(record["started_s"] if time_s is None else time_s)
        for result in record.get("results") or ():
            drained = _drained_after(result)
            if drained is not None:
                rows.append((time_s, result["action"]["server"], drained))
    return pl.DataFrame(rows, schema=STATES_SCHEMA, orient="row")


def _drained_after(result: Mapping[str, Any]) -> bool | None:
    """State of the server after an action; None when the action says nothing about one."""
    kind = result["action"]["kind"]
    if kind == "no_op" or not result["action"].get("server"):
        return None
    admin, weight = result.get("admin_state_after"), result.get("weight_after")
    if admin is not None or weight is not None:
        return admin in ("drain", "maint") or weight == 0
    if not result.get("ok"):
        return None
    if kind == "set_weight":
        return result["action"].get("weight") == 0
    return kind == "drain"
