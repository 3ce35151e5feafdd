from __future__ import annotations

import polars as pl
import pytest

from sweep.metrics.localization import Counts, Scores, compare, pooled, scores


def test_compare_counts_the_sets():
    assert compare({"api-1", "api-2", "api-4"}, {"api-2", "api-3"}) == Counts(tp=1, fp=2, fn=1)


def test_the_papers_pooled_counts_give_its_pooled_scores():
    found = scores(Counts(tp=355, fp=34, fn=93))
    assert found.precision == pytest.approx(0.913, abs=5e-4)
    assert found.recall == pytest.approx(0.792, abs=5e-4)
    assert found.f1 == pytest.approx(0.848, abs=5e-4)


def test_a_policy_that_never_drains_has_zero_f1_and_no_precision():
    assert scores(compare(set(), {"api-2"})) == Scores(precision=None, recall=0.0, f1=0.0)


def test_nothing_faulty_and_nothing_drained_is_undefined():
    assert scores(compare(set(), set())) == Scores(None, None, None)


def test_micro_scores_pool_counts_instead_of_averaging_scores():
    runs = pl.DataFrame(
        {
            "model": ["a", "a", "b"],
            "tp": [1, 1, 0],
            "fp": [0, 2, 0],
            "fn": [0, 1, 3],
            "exact": [True, False, False],
        }
    )
    table = pooled(runs, ["model"]).sort("model")
    assert table["n"].to_list() == [2, 1]
    assert table["precision"].to_list() == [2 / 4, None]
    assert table["recall"].to_list() == [2 / 3, 0.0]
    assert table["f1"].to_list() == [4 / 7, 0.0]
    assert table["exact"].to_list() == [0.5, 0.0]


def test_pooling_no_runs_is_undefined_and_does_not_fail():
    runs = pl.DataFrame(
        schema={"tp": pl.Int64, "fp": pl.Int64, "fn": pl.Int64, "exact": pl.Boolean}
    )
    assert pooled(runs).row(0, named=True)["exact"] is None
