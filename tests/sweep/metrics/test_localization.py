from __future__ import annotations

import pytest

from sweep.metrics.localization import Counts, Scores, compare, scores


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
