"""Golden texts of the observation (paper, Appendix B)."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api import Action, ExecutedAction
from controller.observation import (
    ObservationStyle,
    _p_value,
    format_history,
    format_observation,
    format_user_message,
    significant_trend,
)
from tests.controller.builders import drain, enable, series, set_weight, snapshot, view

STYLE = ObservationStyle()


def executed(age_s: float, action: Action, now_s: float = 1000.0) -> ExecutedAction:
    return ExecutedAction(round((now_s - age_s) * 1e6), action)


def test_reproduces_the_papers_example() -> None:
    observed = snapshot(
        view("api-1", 0.0, sessions=0, admin_state="drain"),
        view("api-2", 0.8, sessions=94, rates=(0.8, 0.8, 0.8, 0.8, 0.8)),
        view("api-3", 1.2, weight=50, sessions=95, rates=(1.5, 1.5, 1.5, 1.2, 1.2)),
        view("api-4", 0.34, sessions=98, rates=(0.1, 0.1, 0.1, 0.2, 0.3)),
    )
    history = [executed(180, set_weight("api-3", 50)), executed(120, drain("api-1"))]
    assert format_user_message(observed, history, STYLE) == (
        "Recent actions (oldest -> newest):\n"
        "180s ago be_api/api-3 set_weight w=50\n"
        "120s ago be_api/api-1 drain\n"
        "\n"
        "Global sessions=287 5xx_per_sec=2.34 servers_up=3/4\n"
        "Backend be_api\n"
        "server up weight sessions load% 5xx_rate\n"
        "api-1 0 0 0 0% 0.0\n"
        "api-2 1 100 94 33% 0.8\n"
        "api-3 1 50 95 33% 1.2 trend=-0.3/60s FALLING\n"
        "api-4 1 100 98 34% 0.3\n"
        "Time series (oldest to newest, 15s intervals):\n"
        "api-3 5xx_rate=[1.5,1.2,1.2]\n"
        "api-4 5xx_rate=[0.1,0.2,0.3] trend=+0.2/30s RISING"
    )


def test_a_quiet_fleet_prints_no_series_and_no_history() -> None:
    observed = snapshot(
        view("api-1", rates=(0.0, 0.0, 0.0), sessions=3),
        view("api-2", rates=(0.0, 0.0, 0.0), sessions=1),
    )
    assert format_user_message(observed, [], STYLE) == (
        "Recent actions (oldest -> newest):\n"
        "none\n"
        "\n"
        "Global sessions=4 5xx_per_sec=0.00 servers_up=2/2\n"
        "Backend be_api\n"
        "server up weight sessions load% 5xx_rate\n"
        "api-1 1 100 3 75% 0.0\n"
        "api-2 1 100 1 25% 0.0"
    )


def test_noise_in_sessions_is_no_news_and_a_surge_is() -> None:
    calm = replace(view("api-1"), series={"sessions": series(3, 6, 4)})
    surge = replace(view("api-1"), series={"sessions": series(3, 4, 9)})
    assert "sessions=[" not in format_observation(snapshot(calm), STYLE)
    assert format_observation(snapshot(surge), STYLE).splitlines()[-1] == "api-1 sessions=[3,4,9]"


def test_unknown_is_never_zero() -> None:
    observed = snapshot(
        view("api-1", None, sessions=None),
        view("api-2", 0.5, sessions=0, rates=(None, 0.1, 0.5)),
    )
    assert format_observation(observed, STYLE).splitlines()[2:] == [
        "server up weight sessions load% 5xx_rate",
        "api-1 1 100 - - -",
        "api-2 1 100 0 0% 0.5",
        "Time series (oldest to newest, 15s intervals):",
        "api-2 5xx_rate=[-,0.1,0.5]",
    ]
    nothing = snapshot(view("api-1", None, sessions=None))
    assert format_observation(nothing, STYLE).startswith("Global sessions=- 5xx_per_sec=- ")


def test_a_changed_state_shows_as_a_series_that_agrees_with_the_table() -> None:
    drained = replace(
        view("api-1", 0.0, admin_state="drain", sessions=0, weight=25),
        series={"status": series(1, 1, 0), "weight": series(100, 25, 25)},
    )
    lines = format_observation(snapshot(drained, view("api-2", sessions=30)), STYLE).splitlines()
    assert "api-1 0 0 0 0% 0.0" in lines
    assert lines[-2:] == ["api-1 up=[1,1,0]", "api-1 weight=[100,25,0]"]


def test_a_server_that_is_down_has_no_share() -> None:
    text = format_observation(snapshot(view("api-1", up=False), view("api-2")), STYLE)
    assert "api-1 0 0 10 50% 0.0" in text.splitlines()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.1, 0.2, 0.3), "trend=+0.2/30s RISING"),
        ((0.3, 0.2, 0.1), "trend=-0.2/30s FALLING"),
        ((1.5, 1.2, 1.2), None),  # a step explains it, a line does not
        ((1.5, 1.5, 1.5, 1.2, 1.2), "trend=-0.3/60s FALLING"),
        ((0.10, 0.12, 0.14), None),  # smooth, and below what the table shows
        ((1.0, 3.0, 0.5, 2.5, 1.2), None),  # noise
        ((0.1, 0.3), None),  # two samples are no trend
        ((2.0, 2.0, 2.0), None),
        ((None, 0.1, 0.2, 0.3), "trend=+0.2/30s RISING"),
        ((), None),
    ],
)
def test_what_counts_as_significant(values: tuple[float | None, ...], expected: str | None) -> None:
    sampled = series(*values)
    trend = significant_trend(sampled.times_s, sampled.values)
    assert (str(trend) if trend else None) == expected


@given(st.lists(st.floats(0, 50), min_size=3, max_size=13))
def test_the_p_value_is_that_of_a_linear_regression(values: list[float]) -> None:
    linregress = pytest.importorskip("scipy.stats").linregress
    if max(values) - min(values) < 1e-3:
        return
    times = [15.0 * i for i in range(len(values))]
    expected = linregress(times, values)
    found = _p_value(statistics.correlation(times, values), len(values))
    assert found == pytest.approx(float(expected.pvalue), abs=1e-5)


def test_history_keeps_the_last_action_of_each_server() -> None:
    history = [
        executed(900, drain("api-1")),
        *(executed(800 - 10 * i, set_weight("api-2", 100 - i)) for i in range(12)),
        executed(5.4, enable("api-3")),
    ]
    lines = format_history(history, round(1000e6), ObservationStyle(history_actions=3)).splitlines()
    assert lines == [
        "Recent actions (oldest -> newest):",
        "900s ago be_api/api-1 drain",
        "700s ago be_api/api-2 set_weight w=90",
        "690s ago be_api/api-2 set_weight w=89",
        "5s ago be_api/api-3 enable",
    ]
