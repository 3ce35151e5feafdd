"""The files of a synthetic run."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

from testbed.cli import PAPER_PROFILES
from tests.synthetic.run import ACT_DELAY_S, T0_US, SyntheticRun

BACKEND = "be_api"


def write_store(root: Path, runs: Iterable[SyntheticRun], **options: Any) -> Path:
    """Write a run store at `root`; options are those of `write_run`."""
    (root / "runs").mkdir(parents=True, exist_ok=True)
    (root / "attempts").mkdir(exist_ok=True)
    for run in runs:
        write_run(root, run, **options)
    return root


def write_run(root: Path, run: SyntheticRun, row_group_size: int = 100_000) -> Path:
    """Write one complete run below `root`; returns its folder."""
    folder = root / "runs" / run.run_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "logs").mkdir(exist_ok=True)
    requests_frame(run).write_parquet(
        folder / "requests.parquet", row_group_size=row_group_size, statistics=False
    )
    counters_frame(run).write_parquet(folder / "counters.parquet")
    _write_lines(folder / "steps.jsonl", (step_record(run, i) for i in range(run.step_count)))
    if run.model.policy == "llm":
        _write_lines(
            folder / "conversations.jsonl", (conversation(run, i) for i in range(run.step_count))
        )
    (folder / "load_summary.json").write_text("{}\n")
    (folder / "config.yaml").write_text(
        yaml.safe_dump({"fingerprint": "synthetic", "config": config(run)})
    )
    (folder / "summary.json").write_text(json.dumps(summary(run), indent=1))
    return folder


def _write_lines(path: Path, records: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(r) + "\n" for r in records))


def _rng(run: SyntheticRun) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(run.run_id.encode()))


def _drained(run: SyntheticRun, slots: Iterable[str], times_s: np.ndarray) -> np.ndarray:
    """How many of `slots` are drained at each time."""
    total = np.zeros(times_s.size, np.int32)
    for slot in slots:
        moments = [run.executed_s(step) for step in run.toggles.get(slot, ())]
        total += (np.searchsorted(moments, times_s, side="right") % 2).astype(np.int32)
    return total


def requests_frame(run: SyntheticRun) -> pl.DataFrame:
    """All requests, with exactly `http_5xx` failures, while a faulty slot is in rotation if any."""
    rng, n = _rng(run), run.requests
    ms = np.sort(rng.integers(0, max(1, int(run.duration_s * 1000)), n))
    # Arrival order is not quite time order.
    ms = np.concatenate([rng.permutation(part) for part in np.array_split(ms, max(1, n // 64))])
    times_s = ms / 1000
    exposed = len(run.faulty) - _drained(run, run.faulty, times_s)
    ranked = np.argsort(rng.random(n) - (exposed > 0), kind="stable")
    status = np.full(n, 200, np.int16)
    status[ranked[: run.http_5xx]] = 500
    # A share of requests queues behind others, the larger the fewer servers are left.
    tail = 0.01 + 0.8 * _drained(run, run.slots, times_s) / run.scale
    queued = rng.random(n) < tail
    duration = rng.normal(run.base_ms, 1.9, n).clip(7.0) + queued * rng.gamma(3, run.tail_ms / 3, n)
    duration_us = (duration * 1000).astype(np.int32)
    if run.transport_errors:
        lost = ranked[-run.transport_errors :]
        status[lost], duration_us[lost] = 0, 0
    order = np.arange(n)
    return pl.DataFrame(
        {
            "ts_us": ms.astype(np.int64) * 1000 + T0_US,
            "vu": (order % run.vus + 1).astype(np.int32),
            "iteration": (order // run.vus).astype(np.int32),
            "status": status,
            "duration_us": duration_us,
            "dns_us": np.zeros(n, np.int32),
            "connect_us": np.full(n, 90, np.int32),
            "tls_us": np.zeros(n, np.int32),
            "ttfb_us": (duration_us - 120).clip(0).astype(np.int32),
            "download_us": np.full(n, 40, np.int32),
        }
    )


def counters_frame(run: SyntheticRun, period_s: float = 1.0) -> pl.DataFrame:
    """Cumulative counters of every slot; a faulty slot always counts at least one 5xx."""
    times = np.append(np.arange(0, run.duration_s, period_s), run.duration_s + 0.5)
    frames = []
    for index, slot in enumerate(run.slots):
        faulty = slot in run.faulty
        drained = _drained(run, [slot], times) > 0
        active = np.cumsum(np.append(0, ~drained[:-1]))
        share = active / max(1, active[-1])
        errors = max(1, run.http_5xx // len(run.faulty)) if faulty else 0
        frames.append(
            pl.DataFrame(
                {
                    "ts_us": (times * 1e6).astype(np.int64) + T0_US,
                    "slot": slot,
                    "address": f"10.0.0.{index + 2}:8000",
                    "status": np.where(drained, "DRAIN", "UP"),
                    "admin_state": np.where(drained, "drain", "ready"),
                    "weight": np.full(times.size, 100, np.int32),
                    "sessions": np.where(drained, 0, 5).astype(np.int32),
                    "requests_total": (share * run.requests / run.scale).astype(np.int64),
                    "http_5xx_total": np.ceil(share * errors).astype(np.int64),
                }
            )
        )
    return pl.concat(frames).sort("ts_us", "slot")


def _state(run: SyntheticRun, slot: str, before_step: int) -> bool:
    """Whether `slot` is drained when `before_step` starts."""
    return sum(step < before_step for step in run.toggles.get(slot, ())) % 2 == 1


def _action(kind: str, server: str, weight: int | None = None) -> dict[str, Any]:
    reason = f"{kind} {server}" if kind != "no_op" else "nothing to do"
    return {"kind": kind, "backend": BACKEND, "server": server, "weight": weight, "reason": reason}


def step_record(run: SyntheticRun, step: int) -> dict[str, Any]:
    """One line of steps.jsonl."""
    raw, guarded, interventions, results = _plan(run, step)
    started = step * max(run.cadence_s, run.interval_s)
    servers = []
    for slot in run.slots:
        drained = _state(run, slot, step)
        rate = 1.2 if slot in run.faulty and not drained else 0.0
        servers.append(
            {
                "backend": BACKEND,
                "server": slot,
                "up": True,
                "weight": 100,
                "sessions": 0 if drained else 5,
                "errors_per_s": rate,
                "admin_state": "drain" if drained else "ready",
                "series": {"5xx_rate": {"times_s": [-15.0, 0.0], "values": [rate, rate]}},
            }
        )
    post = [
        {
            "server": slot,
            "status": "DRAIN" if _state(run, slot, step + 1) else "UP",
            "admin_state": "drain" if _state(run, slot, step + 1) else "ready",
            "weight": 100,
            "sessions": 5,
            "requests_total": 100 * step,
            "http_5xx_total": int(slot in run.faulty) * step,
            "address": f"10.0.0.{index + 2}:8000",
        }
        for index, slot in enumerate(run.slots)
    ]
    is_llm = run.model.policy == "llm"
    observed = min(120.0, started)
    decide = max(0.0, run.cadence_s - 1.0) if is_llm and run.cadence_s > 10 else 0.2
    return {
        "step": step,
        "scheduled_s": step * run.interval_s,
        "started_s": started,
        "snapshot": {
            "time_us": T0_US + int(started * 1e6),
            "algorithm": run.algorithm,
            "sessions_total": sum(s["sessions"] for s in servers),
            "errors_per_s_total": sum(s["errors_per_s"] for s in servers),
            "servers_up": run.scale,
            "servers_total": run.scale,
            "servers": servers,
            "window": {
                "lookback_s": 180,
                "resolution_s": 15,
                "rate_window_s": 120,
                "observed_s": observed,
                "full": observed >= 120,
            },
            "addresses": {slot: f"10.0.0.{i + 2}:8000" for i, slot in enumerate(run.slots)},
        },
        "raw_plan": raw,
        "guarded_plan": guarded,
        "interventions": interventions,
        "results": results,
        "post": {"servers": post},
        "rationale": "The faulty server keeps failing; traffic moves away from it." if raw else "",
        "reasoning": "",
        "validation_errors": [],
        "usage": {
            "prompt_tokens": 900 if is_llm else 0,
            "completion_tokens": run.completion_tokens if is_llm else 0,
            "total_tokens": 900 + run.completion_tokens if is_llm else 0,
            "cached_tokens": 600 if is_llm else 0,
            "turns": (2 if raw else 1) if is_llm else 0,
        },
        "error": None,
        "timings_s": {
            "observe": 0.02,
            "decide": decide,
            "guard": 0.001,
            "act": 0.002,
            "settle": 0.5,
            "post": 0.01,
            "total": 0.533 + decide,
        },
        "executed_s": started + ACT_DELAY_S,
        "late": started > step * run.interval_s + 0.5,
    }


def _plan(run: SyntheticRun, step: int) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
    raw, guarded, interventions, results = [], [], [], []

    def execute(action: dict[str, Any], weight: int, admin: str) -> None:
        guarded.append(action)
        results.append(
            {
                "action": action,
                "ok": True,
                "message": "",
                "weight_before": 100,
                "weight_after": weight,
                "admin_state_after": admin,
            }
        )

    for slot in run.slots:
        if step in run.toggles.get(slot, ()):
            drained = _state(run, slot, step)
            raw.append(_action("enable" if drained else "drain", slot))
            execute(raw[-1], 100, "ready" if drained else "drain")
    tripped = run.trips.get(step, ())
    if "drain_cap" in tripped:
        spare = next(s for s in run.slots if step not in run.toggles.get(s, ()))
        raw.append(_action("drain", spare))
        interventions.append(_verdict("drain_cap", "dropped", len(raw) - 1))
    if "weight_clamp" in tripped:
        slot = next(s for s in run.slots if not _state(run, s, step + 1))
        raw.append(_action("set_weight", slot, 20))
        interventions.append(_verdict("weight_clamp", "clamped", len(raw) - 1))
        execute(_action("set_weight", slot, 50), 50, "ready")
    if "action_cap" in tripped:
        slot = next(s for s in run.slots if not _state(run, s, step + 1))
        while len(raw) < 4:
            raw.append(_action("set_weight", slot, 100))
        interventions.append(_verdict("action_cap", "dropped", len(raw) - 1))
    if not raw:
        raw.append(_action("no_op", ""))
    return raw, guarded, interventions, results


def _verdict(rail: str, verdict: str, index: int) -> dict[str, Any]:
    return {"rail": rail, "verdict": verdict, "index": index, "reason": f"{rail} {verdict}"}


def conversation(run: SyntheticRun, step: int) -> dict[str, Any]:
    """One line of conversations.jsonl: request and answer of each turn."""
    text = f"Synthetic rationale of step {step}."
    answer = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    turn = {"request": {"messages": []}, "response": answer, "status": 200, "text": text}
    return {"step": step, "started_s": step * run.interval_s, "turns": [turn]}


def config(run: SyntheticRun) -> dict[str, Any]:
    """The part of a resolved config that is about the world around the policy."""
    return {
        "scale": run.scale,
        "fleet": {"profiles": [asdict(p) for p in PAPER_PROFILES], "workers": 1, "threads": 4},
        "load": {"profile": "steady", "vus_per_backend": 10},
        "testbed": {"kind": run.testbed},
    }


def summary(run: SyntheticRun) -> dict[str, Any]:
    """summary.json."""
    faulty = list(run.faulty)
    rate = run.requests / run.duration_s
    return {
        "schema_version": 1,
        "run_id": run.run_id,
        "fingerprint": "synthetic",
        "attempt": 1,
        "valid": run.valid,
        "invalid_reasons": list(run.invalid_reasons),
        "warnings": [],
        "point": {
            "model": run.model.name,
            "mode": run.mode,
            "algorithm": run.algorithm,
            "scale": run.scale,
            "seed": run.seed,
        },
        "model": dict(vars(run.model)),
        "error_mode": run.error_mode,
        "testbed": run.testbed,
        "duration_s": run.duration_s,
        "interval_s": run.interval_s,
        "started_at": "2026-01-02T03:04:05.678+00:00",
        "t0_us": T0_US,
        "load": {
            "vus": run.vus,
            "requests": run.requests,
            "http_5xx": run.http_5xx,
            "transport_errors": run.transport_errors,
            "rows": run.requests,
            "duplicate_rows": 0,
            "iterations": run.requests,
            "dropped_iterations": 0,
            "achieved_rate_rps": rate,
            "expected_rate_rps": rate,
            "exit_code": 0,
            "telemetry": "redis",
        },
        "ground_truth": {"faulty_slots": faulty, "expected": len(faulty), "matches": True},
        "slots": {slot: f"10.0.0.{i + 2}:8000" for i, slot in enumerate(run.slots)},
        "slots_changed": False,
        "steps": {
            "planned": int(run.duration_s / run.interval_s),
            "completed": run.step_count,
            "failed": 0,
            "late": 0,
        },
        "phases_s": {
            "testbed_start": 2.0,
            "load": run.duration_s,
            "collect": 0.5,
            "teardown": 0.7,
            "overhead": 3.2,
            "total": run.duration_s + 3.2,
        },
        "usage": {"k6": {"cpu_s": 10.0, "max_rss_bytes": 10**8, "throttled_s": None}},
        "versions": {"haproxy": "2.8.25"},
        "host": {"name": "synthetic", "cpus": 2, "memory_bytes": 2**34},
        "metrics": {},
    }
