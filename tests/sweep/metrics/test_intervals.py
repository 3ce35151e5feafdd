from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sweep.metrics.intervals import (
    ALL_EQUAL,
    CUT,
    ONE_RUN,
    as_percent_of,
    bootstrap,
    bootstrap_ratio,
    mean_interval,
    newcombe,
    order_statistic_ranks,
    wilson,
)


def test_newcombe_golden_value_and_its_sign():
    found = newcombe(63, 93, 38, 92)
    assert (found.low, found.high) == pytest.approx((0.1212, 0.3929), abs=5e-5)
    swapped = newcombe(38, 92, 63, 93)
    assert (swapped.low, swapped.high) == pytest.approx((-0.3929, -0.1212), abs=5e-5)


def test_a_reduction_takes_away_no_more_than_all_errors():
    short = as_percent_of(newcombe(40, 2_500, 0, 2_400), 40 / 2_500)
    assert newcombe(40, 2_500, 0, 2_400).high > 40 / 2_500
    assert (short.high, short.note, short.method) == (100.0, CUT, "Newcombe")
    assert short.low < 100
    # The paper's best run: +96.9%, [+94.6, +99.2] (section 6.1); its counts are not printed.
    whole = newcombe(7_500, 440_000, 233, 440_000)
    uncut = as_percent_of(whole, 7_500 / 440_000)
    scale = 100 * 440_000 / 7_500
    assert (uncut.low, uncut.high) == pytest.approx((scale * whole.low, scale * whole.high))
    assert uncut.high < 100 and uncut.note == ""
    worse = as_percent_of(newcombe(10, 1_000, 90, 1_000), 0.01)
    assert worse.low < -800 < worse.high < 0


def test_wilson_equals_scipy():
    found = wilson(7033, 439_618)
    known = stats.binomtest(7033, 439_618).proportion_ci(0.95, method="wilson")
    assert (found.low, found.high) == pytest.approx((known.low, known.high), rel=1e-9)
    assert found.method == "Wilson"
    assert found.n == 439_618


@pytest.mark.parametrize(("count", "note"), [(0, "none of n"), (50, "all of n")])
def test_wilson_at_the_ends_is_one_sided_and_says_so(count, note):
    found = wilson(count, 50)
    assert found.note == note
    assert 0 <= found.low <= count / 50 <= found.high <= 1
    assert (found.low == 0) == (count == 0)
    assert found.low < found.high


def test_nothing_observed_has_no_interval():
    assert wilson(0, 0).low is None
    assert newcombe(0, 0, 1, 10).note == "nothing observed"
    assert newcombe(0, 10, 0, 10).note == "no failures in either"


@given(st.integers(1, 10**6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_contains_its_estimate(counts):
    count, n = counts
    found = wilson(count, n)
    assert 0 <= found.low <= count / n + 1e-12
    assert count / n - 1e-12 <= found.high <= 1


def test_student_interval_needs_two_values():
    assert mean_interval(1.0, None, 1).low is None
    found = mean_interval(10.0, 2.0, 4)
    low, high = stats.t.interval(0.95, 3, 10.0, 2.0 / 2)
    assert (found.low, found.high) == pytest.approx((low, high))


def test_ranks_of_few_draws_are_undefined():
    assert order_statistic_ranks(0, 0.5) == (None, None)
    assert order_statistic_ranks(1, 0.5) == (None, None)
    assert order_statistic_ranks(10, 0.99)[1] is None


def test_ranks_of_a_hundred_million_draws():
    n, q = 103_238_823, 0.95
    low, high = order_statistic_ranks(n, q)
    assert low == int(stats.binom.ppf(0.025, n, q))
    assert high == int(stats.binom.isf(0.025, n, q)) + 1


def test_bootstrap_agrees_with_scipy_on_its_own():
    values = np.random.default_rng(3).normal(88, 5, 16)
    found = bootstrap(values.tolist())
    known = stats.bootstrap(
        (values,), np.median, method="percentile", rng=np.random.default_rng(8)
    ).confidence_interval
    assert found.low == pytest.approx(known.low, abs=0.7)
    assert found.high == pytest.approx(known.high, abs=0.7)
    assert (found.method, found.n) == ("bootstrap over runs", 16)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(-700, 100), min_size=2, max_size=12), st.randoms())
def test_the_order_of_runs_changes_nothing(values, random):
    shuffled = list(values)
    random.shuffle(shuffled)
    assert bootstrap(values) == bootstrap(shuffled)
    assert bootstrap(values, "mean") == bootstrap(shuffled, "mean")


@settings(max_examples=10, deadline=None)
@given(st.lists(st.floats(0, 100), min_size=3, max_size=8, unique=True))
def test_duplicating_every_run_keeps_the_estimate_and_counts_runs(values):
    once, twice = bootstrap(values), bootstrap([v for v in values for _ in range(2)])
    assert twice.n == 2 * once.n
    assert min(values) <= twice.low <= np.median(values) <= twice.high <= max(values)


def test_degenerate_bootstraps_are_labelled():
    assert (bootstrap([88.0]).low, bootstrap([88.0]).note) == (88.0, ONE_RUN)
    assert (bootstrap([5.0] * 9).high, bootstrap([5.0] * 9).note) == (5.0, ALL_EQUAL)
    assert bootstrap([]).low is None
    assert bootstrap_ratio([], []).note == "undefined"
    assert bootstrap_ratio([0, 0], [0, 0]).low is None
    assert bootstrap_ratio([1, 1], [2, 2]).note == ALL_EQUAL
    assert bootstrap_ratio([3], [4]).low == 0.75


def test_ratio_bootstrap_resamples_runs_not_slots():
    tp, slots = [1, 1, 0, 3, 2, 0, 1, 2], [1, 2, 2, 3, 2, 3, 1, 2]
    found = bootstrap_ratio(tp, slots)
    rng = np.random.default_rng(0)
    index = rng.integers(0, 8, (20_000, 8))
    drawn = np.array(tp)[index].sum(1) / np.array(slots)[index].sum(1)
    assert found.low == pytest.approx(np.quantile(drawn, 0.025), abs=0.02)
    assert found.high == pytest.approx(np.quantile(drawn, 0.975), abs=0.02)
    assert found.n == 8


def test_resamples_without_any_slot_are_left_out():
    found = bootstrap_ratio([1, 0, 0], [2, 0, 0])
    assert (found.low, found.high) == (0.5, 0.5)
