"""`summary.json`: what a run was, what came of it, on what it ran. Written last."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from controller.loop import LoopResult
from sweep.cluster.messages import Lease
from sweep.config.specs import duration_and_interval, fleet_spec, load_spec, testbed_kind
from sweep.grid import RunPoint
from sweep.run.counters import Sample, faulty_slots
from sweep.run.phases import Phases
from sweep.run.validity import Bounds, Evidence, invalid_reasons, warnings
from sweep.store.atomic import write_json
from sweep.store.paths import RunPaths
from sweep.versions import host, versions
from testbed.api import LoadResult

SCHEMA_VERSION = 1


@dataclass
class RunFacts:
    """Everything that is known of a run when its load has ended."""

    point: RunPoint
    attempt: int
    lease: Lease | None
    t0_us: int
    load: LoadResult
    loop: LoopResult
    last: Sample
    slots: Mapping[str, str]
    slots_changed: bool
    backends: Mapping[str, str]
    """Backend (`backend-1` …) by address:port."""
    usage: Mapping[str, Mapping[str, Any]]
    versions: Mapping[str, str]
    bounds: Mapping[str, float]
    invalid: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """What a reader of the progress should know."""
        return [*(f"invalid: {reason}" for reason in self.invalid), *self.warnings]


def judge(facts: RunFacts) -> None:
    """Note why the run is invalid, if it is, and what a reader should be warned of."""
    load, k6 = facts.load, facts.usage.get("k6", {})
    evidence = Evidence(
        achieved_rate_rps=load.achieved_rate_rps,
        expected_rate_rps=load.expected_rate_rps,
        load_cpu_s=float(k6.get("cpu_s", 0.0)),
        load_duration_s=(load.ended_at_us - load.started_at_us) / 1e6,
        load_cpus=k6.get("cpus") or len(os.sched_getaffinity(0)),
        haproxy_cpu_s=float(facts.usage.get("haproxy", {}).get("cpu_s", 0.0)),
        dropped_iterations=load.dropped_iterations,
        transport_errors=load.transport_errors,
        requests=load.requests,
        slots_changed=facts.slots_changed,
        faulty_found=len(faulty_slots(facts.last)),
        faulty_expected=fleet_spec(facts.point).faulty_count(),
    )
    facts.invalid = invalid_reasons(evidence, Bounds(**facts.bounds))
    facts.warnings = warnings(evidence)


def write_run(
    paths: RunPaths, facts: RunFacts, phases: Phases, *, until: Callable[[], Any]
) -> None:
    """Compute the run's aggregates, wait for `until` (the teardown), write `summary.json`."""
    from sweep.metrics.aggregate import write_run_aggregates

    summary = summarise(facts)
    with phases("aggregate"):
        summary["metrics"] = write_run_aggregates(paths.root, summary)
        write_json(paths.load_summary, dict(facts.load.summary))
    with phases("teardown"):
        until()
    summary["phases_s"] = phases.seconds(summary["duration_s"])
    write_json(paths.summary, summary)


def summarise(facts: RunFacts) -> dict[str, Any]:
    """The summary, but for metrics and phases (docs/run-store.md)."""
    point, load, loop = facts.point, facts.load, facts.loop
    model = point.config["model"]
    duration_s, interval_s = duration_and_interval(point)
    fleet = fleet_spec(point)
    faulty = faulty_slots(facts.last)
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": point.run_id,
        "fingerprint": point.fingerprint,
        "attempt": facts.attempt,
        "valid": not facts.invalid,
        "invalid_reasons": facts.invalid,
        "validity_bounds": dict(facts.bounds),
        "warnings": facts.warnings,
        "point": {
            "model": point.model,
            "mode": point.mode,
            "algorithm": point.algorithm,
            "scale": point.scale,
            "seed": point.seed,
        },
        "model": {
            "name": point.model,
            "title": model["title"],
            "policy": point.policy,
            "family": model.get("family"),
            "active_params_b": model.get("active_params_b"),
            "total_params_b": model.get("total_params_b"),
            "architecture": model.get("architecture"),
        },
        "error_mode": fleet.error_mode,
        "testbed": testbed_kind(point),
        "duration_s": duration_s,
        "interval_s": interval_s,
        "started_at": datetime.fromtimestamp(facts.t0_us / 1e6, UTC).isoformat(
            timespec="milliseconds"
        ),
        "t0_us": facts.t0_us,
        "load": {
            "vus": load_spec(point).vus,
            "requests": load.requests,
            "http_5xx": load.http_5xx,
            "transport_errors": load.transport_errors,
            "rows": load.rows,
            "duplicate_rows": load.duplicate_rows,
            "iterations": load.iterations,
            "dropped_iterations": load.dropped_iterations,
            "achieved_rate_rps": load.achieved_rate_rps,
            "expected_rate_rps": load.expected_rate_rps,
            "exit_code": load.exit_code,
            "telemetry": load_spec(point).telemetry,
        },
        "ground_truth": {
            "faulty_slots": faulty,
            "expected": fleet.faulty_count(),
            "matches": len(faulty) == fleet.faulty_count(),
        },
        "slots": dict(facts.slots),
        "slots_changed": facts.slots_changed,
        # Seen afterwards, never assumed: names of slots say nothing of who sits in them (§3.4).
        "slot_backends": {
            slot: facts.backends.get(address) for slot, address in facts.slots.items()
        },
        "steps": {
            "planned": loop.planned,
            "completed": loop.completed,
            "failed": loop.failed,
            "late": loop.late,
        },
        "usage": {name: dict(used) for name, used in facts.usage.items()},
        "versions": {**versions(), **facts.versions},
        "host": host(),
        "serving": None
        if facts.lease is None
        else {"epoch": facts.lease.epoch, **dict(facts.lease.report)},
    }
