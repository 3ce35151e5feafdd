from __future__ import annotations

import json

import pytest

from sweep.metrics import intervals
from sweep.report import memo
from sweep.report.memo import FILE, Intervals


def test_remembered_intervals_equal_computed_ones(tmp_path):
    path = tmp_path / FILE
    first = Intervals(path)
    made = [
        first.wilson(3, 90),
        first.newcombe(63, 93, 38, 92),
        first.bootstrap([3.0, 1.0, 2.0]),
        first.bootstrap_ratio([1, 0], [2, 2]),
    ]
    assert made[1] == intervals.newcombe(63, 93, 38, 92)
    first.save()
    second = Intervals(path)
    second._path = None
    assert [
        second.wilson(3, 90),
        second.newcombe(63, 93, 38, 92),
        second.bootstrap([1.0, 2.0, 3.0]),
        second.bootstrap_ratio([0, 1], [2, 2]),
    ] == made
    assert not second._new, "nothing was computed again"


def test_mean_and_median_are_not_confused(tmp_path):
    known = Intervals()
    values = [1.0, 2.0, 50.0, 60.0]
    assert known.bootstrap(values, "mean") != known.bootstrap(values, "median")


@pytest.mark.parametrize("text", ["", "[]", '{"version": 0, "intervals": {}}', '{"version": [1]}'])
def test_a_file_of_another_kind_is_ignored(tmp_path, text):
    path = tmp_path / FILE
    path.write_text(text)
    known = Intervals(path)
    assert known.wilson(1, 10) == intervals.wilson(1, 10)
    known.save()
    assert json.loads(path.read_text())["version"] == memo.VERSION


def test_a_place_that_can_not_be_written_is_no_error(tmp_path):
    known = Intervals(tmp_path / "missing" / FILE)
    known.wilson(1, 10)
    known.save()


def test_it_does_not_grow_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(memo, "MOST_ENTRIES", 3)
    path = tmp_path / FILE
    first = Intervals(path)
    for n in range(1, 4):
        first.wilson(1, n)
    first.save()
    second = Intervals(path)
    second.wilson(1, 3)
    second.wilson(1, 9)
    second.save()
    assert len(json.loads(path.read_text())["intervals"]) == 2
