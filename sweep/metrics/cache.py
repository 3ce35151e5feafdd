"""The metrics of one run, cached beside it.

runs/<run id>/aggregates.json          metrics, 10 s windows, tokens by step, problems, version
runs/<run id>/latency_counts.parquet   duration_us, count: exact value counts
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from sweep.metrics import DEFINITIONS_VERSION
from sweep.metrics.latency import ValueCounts
from sweep.store.paths import RunPaths

AGGREGATES = "aggregates.json"
LATENCY_COUNTS = "latency_counts.parquet"

SOURCES = ("requests.parquet", "counters.parquet", "steps.jsonl")
"""Files that the aggregates are made from; one that changed its size makes them stale."""


@dataclass(frozen=True)
class RunAggregates:
    """What a report reads of one run."""

    metrics: Mapping[str, Any]
    """Scalars and short lists, see docs/metrics.md; None where something is undefined."""
    windows: Mapping[str, list[Any]] = field(default_factory=dict)
    """Columns of the 10 s windows (`requests.Windows`); empty without requests."""
    completion_tokens: tuple[int, ...] = ()
    """Completion tokens of every step in which a model answered."""
    problems: tuple[str, ...] = ()


def write_cache(paths: RunPaths, aggregates: RunAggregates, counts: ValueCounts | None) -> None:
    """Write both files, each whole or not at all. Raises OSError."""
    if counts is not None:
        frame = pl.DataFrame({"duration_us": counts.values, "count": counts.counts})
        _replace(
            paths.root / LATENCY_COUNTS,
            lambda path: frame.write_parquet(path, compression="lz4", statistics=False),
        )
    record = {
        "definitions_version": DEFINITIONS_VERSION,
        "sources": _fingerprints(paths),
        "metrics": dict(aggregates.metrics),
        "windows": dict(aggregates.windows),
        "completion_tokens": list(aggregates.completion_tokens),
        "problems": list(aggregates.problems),
    }
    text = json.dumps(record, allow_nan=False)
    _replace(paths.root / AGGREGATES, lambda path: path.write_text(text, encoding="utf-8"))


def read_cache(paths: RunPaths) -> RunAggregates | None:
    """Cached aggregates; None when there are none, or they are stale or of other definitions."""
    try:
        record = json.loads((paths.root / AGGREGATES).read_text(encoding="utf-8"))
        if record["definitions_version"] != DEFINITIONS_VERSION:
            return None
        if record["sources"] != _fingerprints(paths):
            return None
        if (
            record["metrics"]["requests"] is not None
            and not (paths.root / LATENCY_COUNTS).is_file()
        ):
            return None
        return RunAggregates(
            metrics=record["metrics"],
            windows=record["windows"],
            completion_tokens=tuple(record["completion_tokens"]),
            problems=tuple(record["problems"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_latency_counts(paths: RunPaths) -> ValueCounts:
    """Cached value counts of one run; raises `polars.exceptions.PolarsError` or OSError."""
    frame = pl.read_parquet(paths.root / LATENCY_COUNTS, glob=False)
    return ValueCounts(
        frame["duration_us"].cast(pl.Int64).to_numpy(), frame["count"].cast(pl.Int64).to_numpy()
    )


def _fingerprints(paths: RunPaths) -> dict[str, int | None]:
    """Size of every source: a copied or renamed run keeps its cache, a changed one does not."""
    sizes: dict[str, int | None] = {}
    for name in SOURCES:
        try:
            sizes[name] = (paths.root / name).stat().st_size
        except OSError:
            sizes[name] = None
    return sizes


def _replace(target: Path, write: Callable[[Path], Any]) -> None:
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        write(temporary)
        os.replace(temporary, target)  # noqa: PTH105 - atomic, also onto an existing file
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
