"""Percentiles of the pooled requests of several runs, with intervals over whole runs.

Requests of one run are not independent draws: a run is drawn as a whole, with all its requests.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from sweep.metrics.intervals import ALL_EQUAL, BOOTSTRAP, LEVEL, ONE_RUN, Interval, resampled
from sweep.metrics.latency import ValueCounts

BIN_US = 100
"""Resolution of the intervals (not of the percentiles, which are exact): the decimal of a ms that
is printed. Within a bin they are interpolated."""

BINS = 10_000
"""Durations of a second and more share the last bin."""

QUANTILE_RESAMPLES = 999


def histogram(counts: ValueCounts) -> npt.NDArray[np.float32]:
    """Requests of one run in bins of `BIN_US`, the last non-empty bin last."""
    bins = np.minimum(counts.values // BIN_US, BINS - 1)
    return np.bincount(bins, weights=counts.counts).astype(np.float32)


def quantile_interval_over_runs(
    histograms: Sequence[npt.NDArray[np.float32]], q: float, level: float = LEVEL
) -> Interval:
    """Bootstrap interval, in µs, of the q-quantile of the pooled requests; whole runs as the unit.

    One run, or runs that are all alike: the interval is that value, and the note says so.
    """
    filled = sorted((h for h in histograms if h.sum()), key=lambda h: h.tobytes())
    if not filled:
        return Interval(None, None, BOOTSTRAP, 0, "no runs")
    table = np.zeros((len(filled), max(h.size for h in filled)))
    for row, one in zip(table, filled, strict=True):
        row[: one.size] = one
    # From here on, row i says how many requests of run i are in bin j or in one before it.
    np.cumsum(table, axis=1, out=table)
    if len(filled) == 1 or (table == table[0]).all():
        value = float(_quantiles(table[:1], table[:1, -1], q)[0])
        note = ONE_RUN if len(filled) == 1 else ALL_EQUAL
        return Interval(value, value, BOOTSTRAP, len(filled), note)
    # A quantile of pooled requests lies between the quantiles of the runs: no resample needs any
    # other bin than those from the least to the greatest of these, and the one before.
    reached = np.argmax(table >= q * table[:, -1:], axis=1)
    first = max(int(reached.min()) - 1, 0)
    within, requests = table[:, first : int(reached.max()) + 1], table[:, -1]

    def statistic(index: npt.NDArray[np.intp], axis: int = -1) -> npt.NDArray[np.float64]:
        drawn = np.atleast_2d(index)
        flat = drawn + len(table) * np.arange(len(drawn))[:, None]
        times = np.bincount(flat.ravel(), minlength=len(drawn) * len(table))
        weights = times.reshape(len(drawn), len(table)).astype(np.float64)
        found = _quantiles(weights @ within, weights @ requests, q, first)
        return found if index.ndim > 1 else found[0]

    result = resampled((np.arange(len(table)),), statistic, level, QUANTILE_RESAMPLES, batch=250)
    ends = result.confidence_interval
    return Interval(float(ends.low), float(ends.high), BOOTSTRAP, len(filled))


def _quantiles(
    cumulative: npt.NDArray[np.float64],
    requests: npt.NDArray[np.float64],
    q: float,
    first: int = 0,
) -> npt.NDArray[np.float64]:
    """The q-quantile of every row in µs, interpolated within its bin.

    `cumulative` starts with bin `first`, which the quantile is beyond unless it is 0; `requests`
    are the totals of the rows.
    """
    target = q * requests
    index = np.minimum((cumulative < target[:, None]).sum(axis=1), cumulative.shape[1] - 1)
    rows = np.arange(len(cumulative))
    before = np.where(index > 0, cumulative[rows, index - 1], 0.0)
    inside = (target - before) / np.maximum(cumulative[rows, index] - before, 1e-9)
    return (first + index + np.clip(inside, 0, 1)) * BIN_US
