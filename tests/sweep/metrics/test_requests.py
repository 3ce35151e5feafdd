from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.metrics.requests import request_stats

T0 = 1_767_323_045_678_000


def frame(ts_s, status, duration):
    return pl.DataFrame(
        {
            "ts_us": pl.Series([T0 + round(t * 1e6) for t in ts_s], dtype=pl.Int64),
            "status": pl.Series(status, dtype=pl.Int16),
            "duration_us": pl.Series(duration, dtype=pl.Int32),
        }
    )


def test_rates_count_every_request_and_latency_every_answer():
    stats = request_stats(
        frame([0, 1, 2, 3, 4], [200, 500, 503, 404, 0], [10, 20, 30, 40, 999]), T0, 60
    )
    assert (stats.errors.http_5xx, stats.errors.requests) == (2, 5)
    assert stats.transport_errors == 1
    assert stats.latency.values.tolist() == [10, 20, 30, 40]


def test_windows_are_aligned_to_run_start():
    times = [-0.0004, 0, 9.999, 10, 19.5, 25, 30.2]
    stats = request_stats(frame(times, [200, 500, 200, 200, 500, 200, 200], range(1, 8)), T0, 25)
    windows = stats.windows
    # Three windows of the run, and one for what was sent after its end.
    assert windows.requests.tolist() == [3, 2, 1, 1]
    assert windows.http_5xx.tolist() == [1, 1, 0, 0]
    assert windows.sum_us.tolist() == [6, 9, 6, 7]
    assert windows.p50_us == [2, 4.5, 6, 7]


def test_a_window_without_answers_has_no_percentiles():
    stats = request_stats(frame([1, 31], [200, 200], [5, 7]), T0, 40)
    assert stats.windows.p95_us == [5, None, None, 7, None]
    assert stats.windows.requests.tolist() == [1, 0, 0, 1, 0]


def test_no_requests_at_all():
    stats = request_stats(frame([], [], []), T0, 60)
    assert stats.errors.rate is None
    assert stats.latency.n == 0
    assert stats.windows.p50_us == [None] * 7


def test_long_durations_do_not_spill_into_other_windows():
    stats = request_stats(frame([1, 599], [200, 200], [2_000_000_000, 1]), T0, 600)
    assert stats.windows.p50_us[0] == 2_000_000_000
    assert stats.windows.p50_us[59] == 1
    assert stats.latency.values.tolist() == [1, 2_000_000_000]


rows = st.lists(
    st.tuples(
        st.floats(-0.5, 70), st.sampled_from([0, 200, 404, 500, 503]), st.integers(0, 100_000)
    ),
    min_size=1,
    max_size=120,
)


@settings(max_examples=60, deadline=None)
@given(rows, st.randoms())
def test_against_polars_and_in_any_order(requests, random):
    table = frame(*zip(*requests, strict=True))
    shuffled = list(range(table.height))
    random.shuffle(shuffled)
    stats, other = request_stats(table, T0, 60), request_stats(table[shuffled], T0, 60)
    assert stats.errors == other.errors
    for name, value in vars(stats.windows).items():
        assert np.array_equal(
            np.array(value, float), np.array(getattr(other.windows, name), float), equal_nan=True
        )
    known = (
        table.with_columns(
            window=((pl.col("ts_us") - T0) // 10_000_000).clip(0, 6),
            answered=pl.when(pl.col("status") > 0).then(pl.col("duration_us")),
        )
        .group_by("window")
        .agg(
            requests=pl.len(),
            http_5xx=pl.col("status").is_between(500, 599).sum(),
            answered_n=pl.col("answered").count(),
            sum_us=pl.col("answered").sum(),
            sum_sq=pl.col("answered").cast(pl.Float64).pow(2).sum(),
            **{f"p{p}_us": pl.col("answered").quantile(p / 100, "linear") for p in (50, 95, 99)},
        )
    )
    for row in known.iter_rows(named=True):
        at = row["window"]
        assert stats.windows.requests[at] == row["requests"]
        assert stats.windows.http_5xx[at] == row["http_5xx"]
        assert stats.windows.answered[at] == row["answered_n"]
        assert stats.windows.sum_us[at] == row["sum_us"]
        assert stats.windows.sum_sq[at] == pytest.approx(row["sum_sq"])
        for name in ("p50_us", "p95_us", "p99_us"):
            value = getattr(stats.windows, name)[at]
            assert value == (None if row[name] is None else pytest.approx(row[name]))
