"""k6's summary, checked and turned into a `LoadResult`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from testbed.api import LoadResult, LoadSpec
from testbed.errors import LoadFailed
from testbed.load.command import CUT_SHORT, explain_exit
from testbed.load.requests import RowCounts

SUMMARY_NAME = "load_summary.json"


class _Count(BaseModel):
    count: int


class _Counter(BaseModel):
    values: _Count


class _Average(BaseModel):
    avg: float
    count: int


class _Trend(BaseModel):
    values: _Average


class _Metrics(BaseModel):
    """The metrics that a result is made of; k6 leaves out what never got a sample."""

    model_config = ConfigDict(extra="allow")

    http_5xx: _Counter
    transport_errors: _Counter
    telemetry_errors: _Counter
    http_reqs: _Counter | None = None
    http_req_duration: _Trend | None = None
    iterations: _Counter | None = None
    dropped_iterations: _Counter | None = None


class K6Summary(BaseModel):
    """What `handleSummary` of the script writes."""

    schema_version: int
    run_id: str
    started_at_ms: int
    ended_at_ms: int
    metrics: _Metrics


def read_summary(
    path: Path, exit_code: int, last_words: str
) -> tuple[K6Summary, Mapping[str, Any]]:
    """The summary at `path`, checked and raw. Raises `LoadFailed` when it is not to be used."""
    ended = f"k6 {explain_exit(exit_code)}"
    said = f"; last words: {last_words}" if last_words else ""
    try:
        raw = json.loads(path.read_text())
        summary = K6Summary.model_validate(raw)
    except OSError as error:
        raise LoadFailed(f"{ended} and left no summary{said}") from error
    except (ValidationError, ValueError) as error:
        what = str(error).splitlines()
        raise LoadFailed(
            f"{ended} and its summary is unusable: {' '.join(what[:3])}{said}"
        ) from error
    if exit_code in CUT_SHORT:
        raise LoadFailed(f"{ended} before its time{said}")
    return summary, raw


def planned_s(load: LoadSpec) -> float:
    """How long the load is meant to last."""
    if load.profile == "ramp":
        return sum(seconds for seconds, _ in load.stages)
    return load.duration_s


def result(
    load: LoadSpec, summary: K6Summary, raw: Mapping[str, Any], exit_code: int, counts: RowCounts
) -> LoadResult:
    """The result of a load that ran its course.

    Raises `LoadFailed` when nothing was sent, nothing arrived, or it ended too early: k6 exits
    with 0 then too. Also when all telemetry arrived and tells of other failures than k6 counted.
    """
    metrics = summary.metrics
    requests = _count(metrics.http_reqs)
    if requests == 0:
        raise LoadFailed(f"k6 sent no request in {_count(metrics.iterations)} iterations")
    if counts.rows == 0:
        raise LoadFailed(f"k6 sent {requests} requests, but no telemetry of them arrived")
    http_5xx = _count(metrics.http_5xx)
    if counts.rows - counts.duplicates == requests and counts.http_5xx != http_5xx:
        raise LoadFailed(f"k6 counted {http_5xx} 5xx, its telemetry holds {counts.http_5xx}")
    lasted_s = (summary.ended_at_ms - summary.started_at_ms) / 1000
    if lasted_s < 0.9 * planned_s(load):
        raise LoadFailed(f"the load ended after {lasted_s:.1f} s of {planned_s(load):.1f} s")
    return LoadResult(
        started_at_us=summary.started_at_ms * 1000,
        ended_at_us=summary.ended_at_ms * 1000,
        exit_code=exit_code,
        requests=requests,
        http_5xx=http_5xx,
        transport_errors=_count(metrics.transport_errors),
        iterations=_count(metrics.iterations),
        dropped_iterations=_count(metrics.dropped_iterations),
        rows=counts.rows,
        duplicate_rows=counts.duplicates,
        achieved_rate_rps=requests / lasted_s,
        expected_rate_rps=expected_rate(load, metrics.http_req_duration),
        summary=raw,
    )


def expected_rate(load: LoadSpec, duration: _Trend | None) -> float | None:
    """Closed-loop expectation in requests per second: vus / (mean sleep + mean latency).

    A load generator that has no CPU left stays below it. None for `ramp`, which is an open loop.
    """
    if load.profile == "ramp" or duration is None:
        return None
    sleep_ms = (load.sleep_min_ms + load.sleep_max_ms) / 2
    return load.vus / ((sleep_ms + duration.values.avg) / 1000)


def _count(counter: _Counter | None) -> int:
    return 0 if counter is None else counter.values.count
