from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.metrics.ground_truth import expected_faulty, ground_truth

COUNTERS = pl.DataFrame(
    {
        "ts_us": [1, 2, 3, 1, 2, 3, 1, 2, 3],
        "slot": ["api-1"] * 3 + ["api-2"] * 3 + ["api-3"] * 3,
        "http_5xx_total": [0, 0, 0, 0, 4, 9, 0, 0, 1],
    }
)


def test_faulty_are_the_slots_with_any_5xx_in_the_last_sample():
    truth = ground_truth(COUNTERS, expected=2)
    assert truth.faulty == {"api-2", "api-3"}
    assert truth.slots == ("api-1", "api-2", "api-3")
    assert truth.matches


def test_a_mismatch_is_said():
    assert not ground_truth(COUNTERS, expected=1).matches


@given(st.permutations(range(COUNTERS.height)))
def test_the_order_of_rows_changes_nothing(order):
    assert ground_truth(COUNTERS[list(order)], 2) == ground_truth(COUNTERS, 2)


@pytest.mark.parametrize(("scale", "faulty"), [(1, 0), (2, 1), (3, 1), (5, 2), (7, 2), (9, 3)])
def test_every_third_instance_is_built_faulty(scale, faulty):
    assert expected_faulty(scale, "error_on") == faulty
    assert expected_faulty(scale, "error_off") == 0
