"""One pass over a run's requests.parquet: everything that client metrics are made of.

Three columns are read (ts_us, status, duration_us: 14 bytes a request). Durations are grouped by
window; each window is partitioned at the ranks of its percentiles, which are exact and cost a third
of a sort. Neither the order of rows nor their split into row groups changes anything.
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

QUANTILES = (0.50, 0.95, 0.99)


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
    window = _window_of(frame["ts_us"].to_numpy() - t0_us, last)
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


def _window_of(offset_us: npt.NDArray[np.int64], last: int) -> npt.NDArray[np.unsignedinteger]:
    """Window of every offset from run start (overwritten), 0 to `last`, in as few bytes as do."""
    width_us = round(WINDOW_S * 1e6)
    np.clip(offset_us, 0, last * width_us, out=offset_us)
    # 32-bit integers divide several times faster than 64-bit ones; they reach for 71 minutes.
    small = offset_us.astype(np.min_scalar_type(last * width_us))
    small //= small.dtype.type(width_us)
    return small.astype(np.min_scalar_type(last))


def _windows(
    window: npt.NDArray[np.unsignedinteger],
    duration: npt.NDArray[np.int32],
    unanswered: npt.NDArray[np.int64],
    http_5xx: npt.NDArray[np.int64],
) -> Windows:
    size = http_5xx.size
    answered = np.bincount(window, minlength=size)
    # A stable sort of 8 and 16-bit integers is a radix sort: one pass, or two.
    grouped = duration[np.argsort(window, kind="stable")]
    sums, squares = np.zeros(size, np.int64), np.zeros(size)
    percentiles: list[list[float | None]] = []
    # One window at a time stays in the processor's cache, which whole columns do not.
    for at, part in enumerate(np.split(grouped, np.cumsum(answered)[:-1])):
        sums[at] = part.sum(dtype=np.int64)
        squares[at] = np.square(part, dtype=np.float64).sum()
        percentiles.append(_quantiles(part))
    p50, p95, p99 = map(list, zip(*percentiles, strict=True))
    return Windows(
        requests=answered + unanswered,
        http_5xx=http_5xx,
        answered=answered,
        sum_us=sums,
        sum_sq=squares,
        p50_us=p50,
        p95_us=p95,
        p99_us=p99,
    )


def _quantiles(values: npt.NDArray[np.int32]) -> list[float | None]:
    """`QUANTILES` of the values with linear interpolation, as `numpy.quantile`; None of none."""
    if not values.size:
        return [None] * len(QUANTILES)
    positions = [q * (values.size - 1) for q in QUANTILES]
    ranks = [(int(p), min(int(p) + 1, values.size - 1)) for p in positions]
    placed = np.partition(values, [rank for pair in ranks for rank in pair])
    return [
        float(placed[low]) + (p - low) * (float(placed[high]) - float(placed[low]))
        for p, (low, high) in zip(positions, ranks, strict=True)
    ]
