"""A run store as one frame of runs, from the aggregates cached beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from sweep.metrics.aggregate import compute
from sweep.metrics.cache import RunAggregates, read_cache, read_latency_counts, write_cache
from sweep.metrics.client import match_baselines
from sweep.metrics.latency import ValueCounts
from sweep.report.errors import NotAStore
from sweep.store.paths import RunPaths, RunStore

SCHEMA_VERSION = 1

THRESHOLD_B = 3.0
"""Active parameters (billions) at which the paper splits models into two arms (§5.4)."""

_POINT = {
    "run_id": pl.String,
    "model": pl.String,
    "title": pl.String,
    "policy": pl.String,
    "family": pl.String,
    "architecture": pl.String,
    "active_params_b": pl.Float64,
    "total_params_b": pl.Float64,
    "mode": pl.String,
    "algorithm": pl.String,
    "scale": pl.Int32,
    "vus": pl.Int64,
    "seed": pl.Int64,
    "error_mode": pl.String,
    "duration_s": pl.Float64,
    "interval_s": pl.Float64,
    "testbed": pl.String,
}
_INTS = (
    *("requests", "http_5xx", "transport_errors", "latency_n", "faulty_expected"),
    *("tp", "fp", "fn", "flips", "oscillating_servers", "steps", "failed_steps"),
    *("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "turns", "actions"),
    *("fired_drain_cap", "fired_action_cap", "fired_weight_clamp", "fired_weight_range"),
    *("fired_rejected", "fired_any"),
)
_FLOATS = (
    *("floor_rate", "rate_5xx", "rate_low", "rate_high"),
    *(f"{m}{e}_ms" for m in ("mean", "p50", "p95", "p99") for e in ("", "_low", "_high")),
    *("precision", "recall", "f1", "time_to_action_s", "time_to_resolution_s"),
    *("faulty_flip_rate", "healthy_flip_rate", "cadence_s", "decide_p50_s", "completion_per_step"),
)
_BOOLS = ("faulty_matches", "exact", "end_state_correct", "over_budget")
_LISTS = ("faulty_slots", "drained_slots", "final_drained_slots")

RUNS_SCHEMA = pl.Schema(
    {
        **_POINT,
        "setting": pl.String,
        **dict.fromkeys(_INTS, pl.Int64),
        **dict.fromkeys(_FLOATS, pl.Float64),
        **dict.fromkeys(_BOOLS, pl.Boolean),
        **dict.fromkeys(_LISTS, pl.List(pl.String)),
    }
)
"""One row a run: its grid point and its metrics (docs/metrics.md). `load` adds the columns of
`match_baselines`."""


@dataclass(frozen=True)
class LeftOut:
    """A run, or a part of one, that the tables do not contain."""

    run_id: str
    kind: str
    """failed, invalid, unreadable, old version, incomplete or unmatched."""
    reason: str


@dataclass(frozen=True)
class Loaded:
    """Everything that the report is made from."""

    store: RunStore
    runs: pl.DataFrame
    """Usable runs (`RUNS_SCHEMA` and the columns of `match_baselines`), ordered by id."""
    aggregates: Mapping[str, RunAggregates] = field(repr=False)
    summaries: Mapping[str, Mapping[str, Any]] = field(repr=False)
    left_out: tuple[LeftOut, ...]
    complete: int
    """Complete runs in the store, usable or not."""
    from_raw: Mapping[str, ValueCounts] = field(repr=False, default_factory=dict)
    """Latency counts of runs whose folder could not take a cache."""

    def latency_counts(self, run_id: str) -> ValueCounts | None:
        """Exact latency counts of one run; None where it has no readable requests."""
        if run_id in self.from_raw:
            return self.from_raw[run_id]
        try:
            return read_latency_counts(self.store.run(run_id))
        except (OSError, pl.exceptions.PolarsError):
            return None


def load(
    store: RunStore,
    from_raw: bool = False,
    on_progress: Callable[[int, int, str], None] = lambda done, total, run_id: None,
) -> Loaded:
    """Read all complete runs of `store`; what is missing or stale is computed and cached.

    `from_raw` computes everything anew. `on_progress(done, total, run id)` is called after every
    run that had to be computed. Raises `NotAStore` where there is nothing to report.
    """
    run_ids = _complete_ids(store)
    left_out = _failures(store, set(run_ids))
    rows: dict[str, dict[str, Any]] = {}
    summaries: dict[str, Mapping[str, Any]] = {}
    aggregates: dict[str, RunAggregates] = {}
    for run_id in run_ids:
        try:
            summary = store.read_summary(run_id)
            row = _point(run_id, summary)
        except _Unusable as error:
            left_out.append(LeftOut(run_id, error.kind, str(error)))
            continue
        except OSError as error:
            why = f"summary.json: {error.strerror or _short(error)}"
            left_out.append(LeftOut(run_id, "unreadable", why))
            continue
        except ValueError as error:
            left_out.append(LeftOut(run_id, "unreadable", f"summary.json: {_short(error)}"))
            continue
        rows[run_id], summaries[run_id] = row, summary
        if not from_raw and (found := read_cache(store.run(run_id))) is not None:
            aggregates[run_id] = found
    counts: dict[str, ValueCounts] = {}
    stale = [run_id for run_id in rows if run_id not in aggregates]

    def fresh(run_id: str) -> tuple[RunAggregates, ValueCounts | None]:
        paths = store.run(run_id)
        made, exact = compute(paths, summaries[run_id])
        return made, None if _cached(paths, made, exact) else exact

    # Two at a time: one run is read while the other is counted. Each needs some 100 bytes a request
    # of one run, whatever the size of the store.
    with ThreadPoolExecutor(2, "aggregate") as pool:
        for done, (run_id, (made, exact)) in enumerate(
            zip(stale, pool.map(fresh, stale), strict=True), 1
        ):
            aggregates[run_id] = made
            if exact is not None:
                counts[run_id] = exact
            on_progress(done, len(stale), run_id)
    for run_id, row in rows.items():
        found = aggregates[run_id]
        left_out += [LeftOut(run_id, "incomplete", problem) for problem in found.problems]
        row |= {k: found.metrics.get(k) for k in RUNS_SCHEMA if k not in _POINT}
    _tell_apart(rows.values())
    runs = match_baselines(pl.DataFrame(list(rows.values()), schema=RUNS_SCHEMA).sort("run_id"))
    left_out += _unmatched(runs)
    effects = ("reduction_abs", "reduction_pct", "avoided", "cost_eff")
    runs = runs.with_columns(pl.when(decided()).then(pl.col(*effects)))
    return Loaded(store, runs, aggregates, summaries, tuple(left_out), len(run_ids), counts)


def _tell_apart(rows: Iterable[dict[str, Any]]) -> None:
    """Give models that share a title their names beside it: tables pool runs by title."""
    rows = list(rows)
    names: dict[str, set[str]] = {}
    for row in rows:
        names.setdefault(row["title"], set()).add(row["model"])
    for row in rows:
        if len(names[row["title"]]) > 1:
            row["title"] = f"{row['title']} ({row['model']})"


def decided() -> pl.Expr:
    """Whether a run's policy ever decided, as far as anybody knows.

    One that never did had no effect that could be measured: its run counts for no policy.
    """
    return pl.col("steps").is_null() | (pl.col("steps") > 0)


def _complete_ids(store: RunStore) -> list[str]:
    if not store.root.exists():
        raise NotAStore(f"{store.root} does not exist; looked for a run store (a folder `runs/`)")
    if not store.is_store():
        raise NotAStore(f"{store.root} is no run store: there is no folder {store.runs}")
    run_ids = store.complete_ids()
    if not run_ids:
        raise NotAStore(f"no complete run in {store.runs}: looked for {store.runs}/*/summary.json")
    return run_ids


class _Unusable(Exception):
    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _point(run_id: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(summary, dict):
        raise _Unusable("unreadable", "summary.json: not an object")
    version = summary.get("schema_version")
    if version != SCHEMA_VERSION:
        raise _Unusable(
            "old version", f"run store version {version}, this report reads {SCHEMA_VERSION}"
        )
    if not summary.get("valid", True):
        reasons = summary.get("invalid_reasons") or ["no reason given"]
        raise _Unusable("invalid", "; ".join(map(str, reasons)))
    try:
        point, model = summary["point"], summary["model"]
        return {
            "run_id": run_id,
            **{k: str(point[k]) for k in ("model", "mode", "algorithm")},
            **{k: int(point[k]) for k in ("scale", "seed")},
            "vus": _vus(summary),
            "title": model.get("title") or point["model"],
            **{k: model.get(k) for k in ("policy", "family", "architecture")},
            **{k: model.get(k) for k in ("active_params_b", "total_params_b")},
            **{k: str(summary[k]) for k in ("error_mode", "testbed")},
            **{k: float(summary[k]) for k in ("duration_s", "interval_s")},
        }
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise _Unusable("unreadable", f"summary.json: {type(error).__name__} {error}") from error


def _vus(summary: Mapping[str, Any]) -> int | None:
    """Virtual users of a run; None where its summary was written before they were recorded."""
    users = (summary.get("load") or {}).get("vus")
    return None if users is None else int(users)


def _cached(paths: RunPaths, found: RunAggregates, counts: ValueCounts | None) -> bool:
    """Cache what was computed, where the folder can be written."""
    with suppress(OSError):
        write_cache(paths, found, counts)
        return True
    return False


def _failures(store: RunStore, complete: set[str]) -> list[LeftOut]:
    """The last failure of every run that never got complete."""
    last: dict[str, str] = {}
    with suppress(OSError):
        for record in store.read_failures():
            if record.get("outcome") not in ("interrupted", "orphaned"):
                last[str(record.get("run_id", "?"))] = _first_line(record.get("reason"))
    return [LeftOut(r, "failed", why) for r, why in sorted(last.items()) if r not in complete]


def _unmatched(runs: pl.DataFrame) -> list[LeftOut]:
    lacking = runs.filter(
        (pl.col("policy") != "static")
        & (pl.col("error_mode") == "error_on")
        & pl.col("baseline_run_id").is_null()
    )
    return [
        LeftOut(
            run["run_id"],
            "unmatched",
            "no static error-on run of "
            f"N={run['scale']}, {run['algorithm']}, seed {run['seed']}, "
            f"{run['duration_s']:g} s, testbed {run['testbed']}, and the same configuration of "
            "fleet, load and testbed: no reduction",
        )
        for run in lacking.iter_rows(named=True)
    ]


def _short(error: Exception) -> str:
    return _first_line(error) or type(error).__name__


def _first_line(text: object) -> str:
    lines = str(text or "").strip().splitlines()
    return lines[0] if lines else ""


def asked_runs(store: RunStore) -> list[str]:
    """Ids of all runs that any invocation of the sweep asked for; empty where nothing says."""
    import yaml

    try:
        record = yaml.safe_load(store.sweep_yaml.read_text(encoding="utf-8"))
        runs = [str(run) for invocation in record["invocations"] for run in invocation["runs"]]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return []
    return list(dict.fromkeys(runs))
