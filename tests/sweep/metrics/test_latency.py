from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sweep.metrics.latency import (
    DENSE_LIMIT_US,
    Pool,
    ValueCounts,
    latency_summary,
    quantile,
    quantile_interval,
)

durations = st.lists(
    st.one_of(st.integers(0, 60_000), st.integers(0, 20 * DENSE_LIMIT_US)),
    min_size=1,
    max_size=200,
)


def merge(parts):
    pool = Pool()
    for part in parts:
        pool.add(part)
    return pool.total()


@given(durations, st.sampled_from([0.0, 0.01, 0.5, 0.95, 0.99, 1.0]))
def test_quantiles_equal_numpy_on_the_raw_values(values, q):
    counts = ValueCounts.of(np.array(values, np.int32))
    assert quantile(counts, q) == pytest.approx(np.quantile(values, q), rel=1e-12, abs=1e-9)


@given(durations)
def test_mean_and_variance_equal_numpy(values):
    counts = ValueCounts.of(np.array(values, np.int32))
    assert counts.mean() == pytest.approx(np.mean(values))
    if len(values) > 1:
        assert counts.variance() == pytest.approx(np.var(values, ddof=1), rel=1e-9, abs=1e-6)
    else:
        assert counts.variance() is None


@given(st.lists(durations, min_size=1, max_size=5), st.randoms())
def test_merging_runs_in_any_order_equals_pooling_their_requests(runs, random):
    parts = [ValueCounts.of(np.array(r, np.int32)) for r in runs]
    random.shuffle(parts)
    pooled = ValueCounts.of(np.concatenate([np.array(r, np.int32) for r in runs]))
    total = merge(parts)
    assert np.array_equal(total.values, pooled.values)
    assert np.array_equal(total.counts, pooled.counts)


def test_pooled_percentiles_are_not_averages_of_percentiles():
    quick, slow = np.full(9_000, 10_000), np.full(1_000, 50_000)
    total = merge([ValueCounts.of(quick), ValueCounts.of(slow)])
    assert quantile(total, 0.5) == 10_000
    assert quantile(total, 0.95) == 50_000


@pytest.mark.parametrize("n", [60, 1_000, 25_000])
@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
def test_order_statistics_equal_scipys_quantile_test(n, q):
    values = np.random.default_rng(n).integers(7_000, 60_000, n)
    found = quantile_interval(ValueCounts.of(values), q)
    known = stats.quantile_test(values, p=q).confidence_interval(0.95)
    if found.high is None or found.low is None:
        assert np.isnan(known.high) or np.isnan(known.low)
    else:
        assert (found.low, found.high) == (known.low, known.high)


def test_mean_interval_equals_scipys_student_interval():
    values = np.random.default_rng(1).gamma(30, 400, 5_000).astype(np.int64)
    summary = latency_summary(ValueCounts.of(values))
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert summary["mean_low_ms"] == pytest.approx(low / 1000)
    assert summary["mean_high_ms"] == pytest.approx(high / 1000)
    assert summary["latency_n"] == 5_000


def test_no_requests_have_no_latency():
    summary = latency_summary(ValueCounts.of(np.empty(0, np.int32)))
    assert summary.pop("latency_n") == 0
    assert set(summary.values()) == {None}


def test_counts_of_a_hundred_million_requests_stay_exact():
    counts = ValueCounts(np.array([10_000, 10_001]), np.array([95_000_000, 5_000_001]))
    assert counts.n == 100_000_001
    assert quantile(counts, 0.95) == 10_001
    assert quantile(counts, 0.94) == 10_000
    assert counts.mean() == pytest.approx(10_000 + 5_000_001 / 100_000_001)
