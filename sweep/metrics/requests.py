"""One pass over a run's requests.parquet: everything that client metrics are made of.

Three columns are read (ts_us, status, duration_us: 14 bytes a request); window and duration are
packed into one 32-bit key and sorted once, which gives exact percentiles of every window and of
the run. Neither the order of rows nor their split into row groups changes anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from sweep.metrics import WINDOW_S
from sweep.metrics.client import ErrorCount
from sweep.metrics.latency import ValueCounts

COLUMNS = ("ts_us", "status", "duration_us")


@dataclass(frozen=True)
class Windows:
    """10 s windows aligned to run start, one entry each; the last one holds what came later.

    Durations in µs; percentiles are None (null) in windows without answered requests.
    """

    requests: npt.NDArray[np.int64]
    http_5xx: npt.NDArray[np.int64]
    answered: npt.NDArray[np.int64]
    sum_us: npt.NDArray[np.int64]
    sum_sq: npt.NDArray[np.float64]
    p50_us: list[float | None]
    p95_us: list[float | None]
    p99_us: list[float | None]


@dataclass(frozen=True)
class RequestStats:
    """Client side of one run."""

    errors: ErrorCount
    """5xx answers among all requests, those without any answer included."""
    transport_errors: int
    """Requests without an HTTP answer (status 0); they have no latency."""
    latency: ValueCounts
    """Durations of all answered requests, failed ones included."""
    windows: Windows


def read_requests(path: Path) -> pl.DataFrame:
    """The three columns; raises `polars.exceptions.PolarsError` or OSError."""
    return pl.read_parquet(path, columns=list(COLUMNS), glob=False)


def request_stats(frame: pl.DataFrame, t0_us: int, duration_s: float) -> RequestStats:
    """Counts, value counts and windows of one run.

    `frame` has ts_us, status, duration_us (docs/run-store.md). A request belongs to the window in
    which it was sent; what was sent before `t0_us` (the load generator's clock has ms resolution)
    counts in the first, what was sent after `duration_s` in one extra window at the end.
    """
    status = frame["status"].to_numpy()
    duration = frame["duration_us"].to_numpy()
    last = ceil(duration_s / WINDOW_S)
    width_us = round(WINDOW_S * 1e6)
    offset = frame["ts_us"].to_numpy() - t0_us
    np.floor_divide(offset, width_us, out=offset)
    window = np.clip(offset, 0, last, out=offset).astype(np.uint32)
    failed = (status >= 500) & (status <= 599)
    http_5xx = np.bincount(window[failed], minlength=last + 1)
    answered = status > 0
    transport_errors = int(status.size - np.count_nonzero(answered))
    unanswered = np.zeros(last + 1, np.int64)
    if transport_errors:
        unanswered = np.bincount(window[~answered], minlength=last + 1)
        window, duration = window[answered], duration[answered]
    return RequestStats(
        errors=ErrorCount(int(http_5xx.sum()), int(status.size)),
        transport_errors=transport_errors,
        latency=ValueCounts.of(duration),
        windows=_windows(window, duration, unanswered, http_5xx),
    )


def _windows(
    window: npt.NDArray[np.uint32],
    duration: npt.NDArray[np.int32],
    unanswered: npt.NDArray[np.int64],
    http_5xx: npt.NDArray[np.int64],
) -> Windows:
    size = http_5xx.size
    span = int(duration.max()) + 1 if duration.size else 1
    # 32-bit keys sort several times faster than 64-bit ones; 60 windows leave room for 70 s.
    kind = np.uint32 if size * span < 2**32 else np.uint64
    key = window.astype(kind)
    key *= kind(span)
    key += duration.astype(kind)
    key.sort()
    answered = np.diff(np.searchsorted(key, span * np.arange(1, size + 1, dtype=kind)), prepend=0)
    sums, squares = np.zeros(size, np.int64), np.zeros(size)
    percentiles: dict[float, list[float | None]] = {q: [] for q in (0.50, 0.95, 0.99)}
    end = 0
    for at in range(size):
        start, end = end, end + int(answered[at])
        # One window at a time stays in the processor's cache, which whole columns do not.
        value = (key[start:end] - kind(at * span)).astype(np.float64)
        sums[at], squares[at] = value.sum(), np.dot(value, value)
        for q, found in percentiles.items():
            found.append(_sorted_quantile(value, q))
    return Windows(
        requests=answered + unanswered,
        http_5xx=http_5xx,
        answered=answered,
        sum_us=sums,
        sum_sq=squares,
        p50_us=percentiles[0.50],
        p95_us=percentiles[0.95],
        p99_us=percentiles[0.99],
    )


def _sorted_quantile(ordered: npt.NDArray[np.float64], q: float) -> float | None:
    """The q-quantile of ascending values with linear interpolation, as `numpy.quantile`."""
    if not ordered.size:
        return None
    position = q * (ordered.size - 1)
    lower = int(position)
    low, high = float(ordered[lower]), float(ordered[min(lower + 1, ordered.size - 1)])
    return low + (position - lower) * (high - low)
