"""What a backend does with a request (paper, Table 1 and §4.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.backend.settings import behaviour_of, from_environment, to_environment
from tests.testbed import builders

DELAYS = [11, 10, 11, 10, 10, 9, 11, 9, 10, 13, 13, 11]
FAILED = [34, 84, 98, 100, 104, 110, 148, 158, 163]


@pytest.mark.parametrize(
    ("instance", "base_ms", "jitter_ms", "error_rate"),
    [
        (1, 7, 2, 0.0),
        (2, 9, 4, 0.05),
        (3, 9, 3, 0.0),  # 8 + floor(3/3)
        (4, 8, 2, 0.0),
        (5, 10, 4, 0.05),
        (8, 11, 4, 0.05),
        (9, 11, 3, 0.0),
    ],
)
def test_profiles_follow_table_1(
    instance: int, base_ms: int, jitter_ms: int, error_rate: float
) -> None:
    behaviour = behaviour_of(builders.fleet(9), instance)
    assert behaviour.base_ms == base_ms
    assert behaviour.profile.jitter_ms == jitter_ms
    assert behaviour.error_rate == error_rate


def test_error_off_has_no_errors_and_the_same_delays() -> None:
    on = behaviour_of(builders.fleet(3), 2)
    off = behaviour_of(builders.fleet(3, error_mode="error_off"), 2)
    draws = [(on.draw(f"1-{n}"), off.draw(f"1-{n}")) for n in range(2000)]
    assert not any(without.failed for _, without in draws)
    extra = {
        (with_errors.failed, with_errors.delay_ms - clean.delay_ms) for with_errors, clean in draws
    }
    assert extra == {(False, 0), (True, 1)}


def test_draws_are_golden() -> None:
    """Pinned: another draw would make runs of different versions incomparable."""
    behaviour = behaviour_of(builders.fleet(3), 2)
    draws = [behaviour.draw(f"7-{n}") for n in range(200)]
    assert [draw.delay_ms for draw in draws[:12]] == DELAYS
    assert [n for n, draw in enumerate(draws) if draw.failed] == FAILED


@given(st.text(max_size=40), st.integers(1, 30), st.integers(0, 2**31))
def test_the_same_request_always_has_the_same_outcome(
    request_id: str, instance: int, seed: int
) -> None:
    behaviour = behaviour_of(builders.fleet(30, seed=seed), instance)
    outcome = behaviour.draw(request_id)
    assert behaviour_of(builders.fleet(30, seed=seed), instance).draw(request_id) == outcome
    lowest = behaviour.base_ms + outcome.failed
    assert lowest <= outcome.delay_ms <= lowest + behaviour.profile.jitter_ms


def test_the_error_rate_is_what_it_says() -> None:
    behaviour = behaviour_of(builders.fleet(3), 2)
    failed = sum(behaviour.draw(f"{vu}-{n}").failed for vu in range(1, 31) for n in range(1000))
    # 30,000 draws at 5%: the standard deviation is 37.7.
    assert abs(failed - 1500) < 150


def test_instances_and_seeds_draw_independently() -> None:
    ids = [f"3-{n}" for n in range(500)]
    fleets = [builders.fleet(9), builders.fleet(9, seed=43)]
    patterns = {
        tuple(behaviour_of(fleet, instance).draw(i).failed for i in ids)
        for fleet in fleets
        for instance in (2, 5, 8)
    }
    assert len(patterns) == 6


def test_a_spike_comes_with_its_probability() -> None:
    profile = replace(builders.PROFILES[1], spike_probability=0.1, spike_ms=100)
    behaviour = behaviour_of(builders.fleet(1, profiles=(profile,)), 1)
    spiked = sum(behaviour.draw(str(n)).delay_ms >= 100 for n in range(10_000))
    assert abs(spiked - 1000) < 150


def test_settings_survive_the_environment() -> None:
    fleet = builders.fleet(5, error_mode="error_off", workers=2)
    assert from_environment(to_environment(fleet)) == fleet
