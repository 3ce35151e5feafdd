"""Client latency from exact value counts (paper, §3.4 "Latency").

Durations are integer microseconds, so a run is described exactly by how often each value occurred.
Counts of several runs add up, and every percentile of the pooled requests comes from the sum: no
percentile is ever averaged. All values in µs unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from sweep.metrics.intervals import Interval, mean_interval, order_statistic_ranks

PERCENTILES = (50, 95, 99)

DENSE_LIMIT_US = 1 << 18
"""Values below are counted in one array (2 MiB), the rare ones above by value."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ValueCounts:
    """Distinct values in ascending order and how often each occurred."""

    values: IntArray
    counts: IntArray

    @classmethod
    def of(cls, durations: npt.NDArray[np.integer]) -> ValueCounts:
        """Counts of raw durations (any order, not negative)."""
        if not durations.size:
            return cls(np.empty(0, np.int64), np.empty(0, np.int64))
        if int(durations.max()) < 16 * DENSE_LIMIT_US:
            dense = np.bincount(durations)
            values = np.flatnonzero(dense)
            return cls(values, dense[values])
        values, counts = np.unique(durations, return_counts=True)
        return cls(values.astype(np.int64), counts)

    @property
    def n(self) -> int:
        """Number of requests."""
        return int(self.counts.sum())

    def mean(self) -> float | None:
        """Arithmetic mean; None without requests."""
        return _total(self) / self.n if self.n else None

    def variance(self) -> float | None:
        """Sample variance (n - 1); None below two requests."""
        n = self.n
        if n < 2:
            return None
        centred = self.values - _total(self) / n
        # No np.dot: BLAS would start threads, which cost more than they save and round otherwise
        # on another number of cores.
        return float((centred * centred * self.counts).sum()) / (n - 1)


def _total(counts: ValueCounts) -> int:
    return int(np.dot(counts.values, counts.counts))


def quantile(counts: ValueCounts, q: float) -> float | None:
    """The q-quantile with linear interpolation, equal to `numpy.quantile` of the raw values."""
    n = counts.n
    if not n:
        return None
    position = q * (n - 1)
    lower = int(position)
    cumulative = np.cumsum(counts.counts)
    low = _value_at(counts.values, cumulative, lower)
    high = _value_at(counts.values, cumulative, min(lower + 1, n - 1))
    return low + (position - lower) * (high - low)


def _value_at(values: IntArray, cumulative: IntArray, rank: int) -> int:
    """The value of 0-based `rank` in ascending order."""
    return int(values[np.searchsorted(cumulative, rank, side="right")])


def quantile_interval(counts: ValueCounts, q: float, level: float = 0.95) -> Interval:
    """Distribution-free interval of the q-quantile: two order statistics, by binomial ranks."""
    low, high = order_statistic_ranks(counts.n, q, level)
    if low is None or high is None:
        return Interval(None, None, "order statistics", counts.n, "too few requests")
    cumulative = np.cumsum(counts.counts)
    return Interval(
        _value_at(counts.values, cumulative, low - 1),
        _value_at(counts.values, cumulative, high - 1),
        "order statistics",
        counts.n,
    )


def latency_summary(counts: ValueCounts, level: float = 0.95) -> dict[str, float | int | None]:
    """n, mean, percentiles and their intervals over the requests, in ms.

    Keys: latency_n, mean_ms, mean_low_ms, mean_high_ms and the same for p50, p95, p99.
    """
    mean, variance = counts.mean(), counts.variance()
    spread = None if variance is None else sqrt(variance)
    interval = mean_interval(mean, spread, counts.n, level)
    out: dict[str, float | int | None] = {"latency_n": counts.n, "mean_ms": _ms(mean)}
    out |= {"mean_low_ms": _ms(interval.low), "mean_high_ms": _ms(interval.high)}
    for p in PERCENTILES:
        interval = quantile_interval(counts, p / 100, level)
        out[f"p{p}_ms"] = _ms(quantile(counts, p / 100))
        out |= {f"p{p}_low_ms": _ms(interval.low), f"p{p}_high_ms": _ms(interval.high)}
    return out


def _ms(value_us: float | None) -> float | None:
    return None if value_us is None else value_us / 1000


class Pool:
    """Adds up the value counts of many runs in bounded memory."""

    def __init__(self) -> None:
        self._dense = np.zeros(DENSE_LIMIT_US, np.int64)
        self._rare: dict[int, int] = {}
        self.runs = 0

    def add(self, counts: ValueCounts) -> None:
        """Add one run."""
        split = int(np.searchsorted(counts.values, DENSE_LIMIT_US))
        # Values of one ValueCounts are distinct, so that += on an index array loses nothing.
        self._dense[counts.values[:split]] += counts.counts[:split]
        for value, count in zip(
            counts.values[split:].tolist(), counts.counts[split:].tolist(), strict=True
        ):
            self._rare[value] = self._rare.get(value, 0) + count
        self.runs += 1

    def total(self) -> ValueCounts:
        """Counts of everything added so far."""
        values = np.flatnonzero(self._dense)
        rare = sorted(self._rare.items())
        return ValueCounts(
            np.concatenate([values, np.array([v for v, _ in rare], np.int64)]),
            np.concatenate([self._dense[values], np.array([c for _, c in rare], np.int64)]),
        )
