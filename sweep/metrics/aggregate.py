"""All metrics of one run, computed once from its raw files (and cached, see `cache`).

Whatever of a run's files can't be used is named in `problems` and costs the metrics that need it,
never the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml
from pydantic_core import from_json

from controller.guardrails import GuardrailLimits
from sweep.metrics import WINDOW_S
from sweep.metrics.cache import RunAggregates, write_cache
from sweep.metrics.frames import states_frame, steps_frame
from sweep.metrics.ground_truth import GroundTruth, expected_faulty, ground_truth
from sweep.metrics.guardrails import firing_counts
from sweep.metrics.intervals import wilson
from sweep.metrics.latency import ValueCounts, latency_summary
from sweep.metrics.localization import compare, scores
from sweep.metrics.requests import RequestStats, Windows, read_requests, request_stats
from sweep.metrics.setting import Setting, read_setting
from sweep.metrics.spending import cadence_s, completion_per_step, over_budget, tokens
from sweep.metrics.timeline import (
    ever_drained,
    final_drained,
    per_server,
    stability,
    time_to_action_s,
    time_to_resolution_s,
)
from sweep.store.paths import RunPaths


class Unusable(Exception):
    """A file of the run can't be used; the message names it and says why."""


def write_run_aggregates(run_dir: Path, summary: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Compute and cache all metrics of the run in `run_dir`; return the metrics.

    `summary` is what will become summary.json (`point`, `error_mode`, `duration_s`, `interval_s`,
    `t0_us`); without it summary.json is read. Raises OSError where the folder can't be written.
    """
    paths = RunPaths(run_dir)
    if summary is None:
        summary = json.loads(paths.summary.read_text(encoding="utf-8"))
    aggregates, counts = compute(paths, summary)
    write_cache(paths, aggregates, counts)
    return dict(aggregates.metrics)


def compute(
    paths: RunPaths, summary: Mapping[str, Any]
) -> tuple[RunAggregates, ValueCounts | None]:
    """All metrics of one run from its raw files, and its exact latency counts."""
    problems: list[str] = []
    metrics: dict[str, Any] = {}
    interval_s = float(summary.get("interval_s") or WINDOW_S)
    stats = truth = steps = states = setting = None
    try:
        stats = _request_stats(paths, summary)
    except Unusable as error:
        problems.append(str(error))
    try:
        truth = _ground_truth(paths, summary)
    except Unusable as error:
        problems.append(str(error))
    try:
        setting = _setting(paths, summary)
    except Unusable as error:
        problems.append(str(error))
    limits = GuardrailLimits() if setting is None else setting.limits
    try:
        records = _step_records(paths)
        steps, states = steps_frame(records, limits), states_frame(records)
        if not steps.height:
            problems.append(f"{paths.steps.name}: no steps")
            states = None  # a policy that never got to decide is not scored for what it did not do
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        pl.exceptions.PolarsError,
    ) as error:
        problems.append(f"{paths.steps.name}: unexpected shape: {_one_line(error)}")
        steps = states = None
    except Unusable as error:
        problems.append(str(error))

    metrics |= _setting_metrics(setting)
    metrics |= _client_metrics(stats)
    metrics |= _truth_metrics(truth)
    metrics |= _decision_metrics(states, truth)
    metrics |= _spending_metrics(steps, interval_s)
    if truth is not None and not truth.matches:
        problems.append(
            f"ground truth: {len(truth.faulty)} faulty slots, {truth.expected} expected"
        )
        # A set that fails its check can't score anybody (paper, §3.4).
        metrics |= dict.fromkeys(TRUTH_KEYS)
    return (
        RunAggregates(
            metrics=metrics,
            windows={} if stats is None else _window_columns(stats.windows),
            completion_tokens=() if steps is None else tuple(completion_per_step(steps)),
            problems=tuple(problems),
        ),
        None if stats is None else stats.latency,
    )


def _request_stats(paths: RunPaths, summary: Mapping[str, Any]) -> RequestStats:
    try:
        t0_us, duration_s = int(summary["t0_us"]), float(summary["duration_s"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Unusable(f"summary.json: {_one_line(error)}") from error
    if not 0 < duration_s < inf:
        raise Unusable(f"summary.json: duration_s is {duration_s:g}")
    frame = _read_parquet(paths.requests, read_requests)
    if not frame.height:
        raise Unusable(f"{paths.requests.name}: no requests")
    try:
        return request_stats(frame, t0_us, duration_s)
    except (TypeError, ValueError, OverflowError) as error:
        raise Unusable(f"{paths.requests.name}: unexpected values: {_one_line(error)}") from error


def _ground_truth(paths: RunPaths, summary: Mapping[str, Any]) -> GroundTruth:
    def read(path: Path) -> pl.DataFrame:
        return pl.read_parquet(path, columns=["ts_us", "slot", "http_5xx_total"], glob=False)

    try:
        expected = (summary.get("ground_truth") or {}).get("expected")
        if expected is None:
            expected = expected_faulty(int(summary["point"]["scale"]), summary["error_mode"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable(f"summary.json: {_one_line(error)}") from error
    counters = _read_parquet(paths.counters, read)
    try:
        return ground_truth(counters, int(expected))
    except (TypeError, ValueError, OverflowError) as error:
        raise Unusable(f"{paths.counters.name}: {_one_line(error)}") from error


def _setting(paths: RunPaths, summary: Mapping[str, Any]) -> Setting:
    try:
        scale, error_mode = int(summary["point"]["scale"]), str(summary["error_mode"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable(f"summary.json: {_one_line(error)}") from error
    try:
        return read_setting(paths.config, scale, error_mode)
    except FileNotFoundError as error:
        raise Unusable(f"{paths.config.name}: missing") from error
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unusable(f"{paths.config.name}: unusable: {_one_line(error)}") from error


def _setting_metrics(setting: Setting | None) -> dict[str, Any]:
    if setting is None:
        return dict.fromkeys(("setting", "floor_rate"))
    return {"setting": setting.digest, "floor_rate": setting.floor_rate}


def _read_parquet(path: Path, read: Callable[[Path], pl.DataFrame]) -> pl.DataFrame:
    if not path.is_file():
        raise Unusable(f"{path.name}: missing")
    try:
        return read(path)
    except pl.exceptions.ColumnNotFoundError as error:
        # Polars quotes the name, then lists all that there are.
        column = re.search(r'"([^"]+)"', _one_line(error))
        name = column[1] if column else _one_line(error)
        raise Unusable(f"{path.name}: missing column {name}") from error
    except (pl.exceptions.PolarsError, OSError) as error:
        raise Unusable(f"{path.name}: unreadable: {_one_line(error)}") from error


def _step_records(paths: RunPaths) -> list[dict[str, Any]]:
    try:
        with paths.steps.open("rb") as file:
            return [from_json(line) for line in file if line.strip()]
    except FileNotFoundError as error:
        raise Unusable(f"{paths.steps.name}: missing") from error
    except (OSError, ValueError) as error:
        raise Unusable(f"{paths.steps.name}: unreadable: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    first = text[0] if text else type(error).__name__
    return f"no field {first}" if isinstance(error, KeyError) else first


CLIENT_KEYS = ("requests", "http_5xx", "transport_errors", "rate_5xx", "rate_low", "rate_high")


def _client_metrics(stats: RequestStats | None) -> dict[str, Any]:
    if stats is None:
        return dict.fromkeys((*CLIENT_KEYS, *latency_summary(ValueCounts.of(np.empty(0, int)))))
    errors = stats.errors
    interval = wilson(errors.http_5xx, errors.requests)
    values = (
        errors.requests,
        errors.http_5xx,
        stats.transport_errors,
        errors.rate,
        interval.low,
        interval.high,
    )
    return dict(zip(CLIENT_KEYS, values, strict=True)) | latency_summary(stats.latency)


def _truth_metrics(truth: GroundTruth | None) -> dict[str, Any]:
    if truth is None:
        return dict.fromkeys(("faulty_slots", "faulty_expected", "faulty_matches"))
    return {
        "faulty_slots": sorted(truth.faulty),
        "faulty_expected": truth.expected,
        "faulty_matches": truth.matches,
    }


DECISION_KEYS = (
    *("tp", "fp", "fn", "precision", "recall", "f1", "exact"),
    *("time_to_action_s", "time_to_resolution_s"),
    *("flips", "oscillating_servers", "faulty_flip_rate", "healthy_flip_rate", "end_state_correct"),
    *("drained_slots", "final_drained_slots"),
)

TRUTH_KEYS = (
    *("tp", "fp", "fn", "precision", "recall", "f1", "exact"),
    *("time_to_action_s", "time_to_resolution_s"),
    *("faulty_flip_rate", "healthy_flip_rate", "end_state_correct"),
)
"""Decision metrics that compare with the faulty set; without a valid one they are None."""


def _decision_metrics(states: pl.DataFrame | None, truth: GroundTruth | None) -> dict[str, Any]:
    if states is None or truth is None:
        return dict.fromkeys(DECISION_KEYS)
    servers = per_server(states)
    drained = ever_drained(servers)
    counts = compare(drained, truth.faulty)
    return {
        **asdict(counts),
        **asdict(scores(counts)),
        "exact": drained == truth.faulty,
        "time_to_action_s": time_to_action_s(servers, truth.faulty),
        "time_to_resolution_s": time_to_resolution_s(servers, truth.faulty),
        **asdict(stability(servers, truth.faulty, truth.slots)),
        "drained_slots": sorted(drained),
        "final_drained_slots": sorted(final_drained(servers)),
    }


def _spending_metrics(steps: pl.DataFrame | None, interval_s: float) -> dict[str, Any]:
    if steps is None:
        empty = steps_frame([])
        keys = _spending_metrics(empty, interval_s)
        return dict.fromkeys(keys)
    used = tokens(steps)
    cadence = cadence_s(steps)
    per_step = completion_per_step(steps)
    found = {
        "steps": steps.height,
        "failed_steps": int(steps["failed"].sum()),
        "cadence_s": cadence,
        "over_budget": over_budget(cadence, interval_s),
        "decide_p50_s": steps["decide_s"].median(),
        "prompt_tokens": used.prompt,
        "completion_tokens": used.completion,
        "total_tokens": used.total,
        "cached_tokens": used.cached,
        "turns": used.turns,
        "actions": used.actions,
        "completion_per_step": float(np.median(per_step)) if per_step else None,
        **firing_counts(steps),
    }
    if not steps.height:
        # That there were none is all that is known: nothing was counted that could be 0.
        return {key: 0 if key in ("steps", "failed_steps") else None for key in found}
    return found


def _window_columns(windows: Windows) -> dict[str, list[Any]]:
    return {
        name: value if isinstance(value, list) else value.tolist()
        for name, value in vars(windows).items()
    }
