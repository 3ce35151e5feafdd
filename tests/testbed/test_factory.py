"""Specifications are checked before anything is started."""

from __future__ import annotations

import pytest

from testbed.errors import TestbedUnavailable
from testbed.factory import check, create
from tests.testbed import builders


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (builders.spec(0), "0 backends"),
        (builders.spec(fleet=builders.fleet(3, threads=0)), "1 thread"),
        (builders.spec(load_spec=builders.load(vus=0)), "0 virtual users"),
        (builders.spec(load_spec=builders.load(duration_s=0.5)), "1 s at least"),
        (builders.spec(load_spec=builders.load(sleep_min_ms=60.0)), "sleep_min_ms"),
        (
            builders.spec(load_spec=builders.load(profile="ramp", stages=((5.0, 10.0),))),
            "last 5 s, but the run 3 s",
        ),
    ],
)
def test_what_can_not_work_is_said(spec: object, words: str) -> None:
    problems = check("local", spec)  # type: ignore[arg-type]
    assert any(words in problem for problem in problems), problems


def test_an_unknown_driver_is_refused() -> None:
    with pytest.raises(TestbedUnavailable, match="'cloud'"):
        create("cloud", builders.spec())
    assert any("'cloud'" in problem for problem in check("cloud", builders.spec()))
