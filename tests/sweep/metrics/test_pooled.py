from __future__ import annotations

import numpy as np
import pytest

from sweep.metrics.intervals import ALL_EQUAL, BOOTSTRAP_SEED, ONE_RUN
from sweep.metrics.latency import ValueCounts
from sweep.metrics.pooled import (
    BIN_US,
    QUANTILE_RESAMPLES,
    histogram,
    quantile_interval_over_runs,
)


def run(seed: int, tail: float, n: int = 1_000) -> ValueCounts:
    rng = np.random.default_rng(seed)
    slow = rng.random(n) < tail
    values = rng.normal(11_500, 1_500, n).clip(7_000) + slow * rng.gamma(3, 9_000, n)
    return ValueCounts.of(values.astype(np.int64))


RUNS = [run(seed, tail) for seed, tail in enumerate((0.02, 0.1, 0.2, 0.15, 0.3, 0.05))]


def test_agrees_with_resampling_whole_runs_on_raw_values():
    found = quantile_interval_over_runs([histogram(r) for r in RUNS], 0.95)
    raw = [np.repeat(r.values, r.counts) for r in RUNS]
    rng = np.random.default_rng(9)
    drawn = [
        np.quantile(np.concatenate([raw[i] for i in rng.integers(0, len(raw), len(raw))]), 0.95)
        for _ in range(5_000)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.low == pytest.approx(low, rel=0.05)
    assert found.high == pytest.approx(high, rel=0.05)
    assert found.n == len(RUNS)


@pytest.mark.parametrize("q", [0.01, 0.5, 0.95, 0.999])
def test_bins_that_no_resample_can_reach_make_no_difference(q):
    shapes = sorted((histogram(r) for r in RUNS), key=lambda h: h.tobytes())
    table = np.zeros((len(shapes), max(h.size for h in shapes)))
    for row, one in zip(table, shapes, strict=True):
        row[: one.size] = one

    def quantile(index):
        pooled = np.cumsum(table[index].sum(axis=0))
        edges = np.append(0, pooled)
        at = np.searchsorted(pooled, q * pooled[-1])
        inside = (q * pooled[-1] - edges[at]) / (edges[at + 1] - edges[at])
        return (at + inside) * BIN_US

    drawn = np.random.default_rng(BOOTSTRAP_SEED).integers(
        0, len(table), (QUANTILE_RESAMPLES, len(table))
    )
    low, high = np.quantile([quantile(index) for index in drawn], [0.025, 0.975])
    found = quantile_interval_over_runs(shapes, q)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)


def test_the_order_of_runs_changes_nothing():
    shapes = [histogram(r) for r in RUNS]
    assert quantile_interval_over_runs(shapes, 0.5) == quantile_interval_over_runs(
        shapes[::-1], 0.5
    )


def test_more_requests_in_every_run_do_not_narrow_it():
    more = [ValueCounts(r.values, 100 * r.counts) for r in RUNS]
    wide = quantile_interval_over_runs([histogram(r) for r in RUNS], 0.95)
    still = quantile_interval_over_runs([histogram(r) for r in more], 0.95)
    assert still.high - still.low == pytest.approx(wide.high - wide.low, rel=0.15)


def test_degenerate_cases_are_labelled():
    one = histogram(RUNS[0])
    assert quantile_interval_over_runs([one], 0.95).note == ONE_RUN
    assert quantile_interval_over_runs([one, one], 0.95).note == ALL_EQUAL
    assert quantile_interval_over_runs([], 0.95).low is None
