"""The guardrails hold whatever a policy returns (paper, §3.1)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api import Action, ServerView
from controller.guardrails import GuardrailLimits, guard
from controller.records import to_json
from tests.controller.builders import drain, enable, set_weight, view

LIMITS = GuardrailLimits()
FLEET = (view("api-1"), view("api-2"), view("api-3", weight=30), view("api-4", weight=256))


def rails(plan: list[Action], fleet: tuple[ServerView, ...] = FLEET) -> list[tuple[str, str, int]]:
    return [(i.rail, i.verdict, i.index) for i in guard(plan, fleet, LIMITS).interventions]


def test_a_lawful_plan_passes_untouched() -> None:
    plan = [set_weight("api-1", 50), drain("api-2"), enable("api-3"), Action("no_op")]
    guarded = guard(plan, FLEET, LIMITS)
    assert guarded.actions == tuple(plan)
    assert guarded.interventions == ()


def test_second_drain_is_dropped_and_named() -> None:
    guarded = guard([drain("api-1"), drain("api-2")], FLEET, LIMITS)
    assert guarded.actions == (drain("api-1"),)
    (intervention,) = guarded.interventions
    assert (intervention.rail, intervention.verdict, intervention.index) == (
        "drain_cap",
        "dropped",
        1,
    )
    assert "drain 2" in intervention.reason


def test_fourth_action_is_dropped() -> None:
    plan = [set_weight(f"api-{n}", 60) for n in (1, 2, 3)] + [drain("api-1")]
    guarded = guard(plan, FLEET, LIMITS)
    assert guarded.actions == tuple(plan[:3])
    assert rails(plan) == [("action_cap", "dropped", 3)]


def test_twenty_drains_name_both_caps_and_leave_one() -> None:
    plan = [drain("api-1")] * 20
    assert guard(plan, FLEET, LIMITS).actions == (drain("api-1"),)
    fired = rails(plan)
    assert ("drain_cap", "dropped", 1) in fired
    assert {("drain_cap", "dropped", 19), ("action_cap", "dropped", 19)} <= set(fired)


def test_no_op_and_invalid_actions_count_for_nothing() -> None:
    plan = [
        Action("no_op"),
        drain("api-9"),
        Action("reboot", "be_api", "api-1"),  # type: ignore[arg-type]
        *(set_weight(f"api-{n}", 60) for n in (1, 2, 3)),
    ]
    guarded = guard(plan, FLEET, LIMITS)
    assert [a.kind for a in guarded.actions] == ["no_op", "set_weight", "set_weight", "set_weight"]
    assert rails(plan) == [("unknown_server", "dropped", 1), ("invalid", "dropped", 2)]


@pytest.mark.parametrize(
    ("server", "asked", "executed", "fired"),
    [
        ("api-1", 50, 50, []),
        ("api-1", 49, 50, ["weight_clamp"]),
        ("api-1", 1, 50, ["weight_clamp"]),
        ("api-1", 150, 150, []),
        ("api-1", 151, 150, ["weight_clamp"]),
        ("api-1", -1, 50, ["weight_range", "weight_clamp"]),
        ("api-1", 10**9, 150, ["weight_range", "weight_clamp"]),
        ("api-3", -1, 0, ["weight_range"]),
        ("api-3", 0, 0, []),
        ("api-4", 300, 256, ["weight_range"]),
        ("api-4", 1, 206, ["weight_clamp"]),
    ],
)
def test_weights_are_clamped(server: str, asked: int, executed: int, fired: list[str]) -> None:
    guarded = guard([set_weight(server, asked)], FLEET, LIMITS)
    assert [a.weight for a in guarded.actions] == [executed]
    assert [i.rail for i in guarded.interventions] == fired
    assert all(i.verdict == "clamped" for i in guarded.interventions)


@pytest.mark.parametrize("weight", ["50", None, True, 1.5, float("nan"), [50], {}])
def test_a_weight_that_is_no_integer_is_invalid(weight: object) -> None:
    guarded = guard([set_weight("api-1", weight)], FLEET, LIMITS)
    assert guarded.actions == ()
    assert [i.rail for i in guarded.interventions] == ["invalid"]


def test_changes_of_one_server_do_not_add_up() -> None:
    plan = [set_weight("api-1", 60), set_weight("api-1", 20), set_weight("api-1", 0)]
    assert [a.weight for a in guard(plan, FLEET, LIMITS).actions] == [60, 50, 50]


def test_weight_zero_is_a_drain() -> None:
    plan = [drain("api-1"), set_weight("api-3", 0)]
    assert guard(plan, FLEET, LIMITS).actions == (drain("api-1"),)
    assert rails(plan) == [("drain_cap", "dropped", 1)]


def test_maintenance_is_not_ours_to_end() -> None:
    fleet = (view("api-1", admin_state="maint"), view("api-2"))
    guarded = guard([enable("api-1"), drain("api-1"), enable("api-2")], fleet, LIMITS)
    assert guarded.actions == (enable("api-2"),)
    assert [i.rail for i in guarded.interventions] == ["invalid", "invalid"]


_anything = st.one_of(
    st.integers(-(10**12), 10**12),
    st.integers(-300, 300),
    st.floats(),
    st.text(max_size=8),
    st.booleans(),
    st.none(),
)
_actions = st.builds(
    Action,
    kind=st.one_of(st.sampled_from(["set_weight", "drain", "enable", "no_op"]), _anything),
    backend=st.one_of(st.just("be_api"), st.just("be_api"), _anything),
    server=st.one_of(st.sampled_from([f"api-{n}" for n in range(1, 6)]), _anything),
    weight=_anything,
    reason=st.text(max_size=8),
)
_fleets = st.lists(
    st.tuples(st.integers(0, 256), st.sampled_from(["ready", "drain", "maint"])), max_size=5
).map(
    lambda rows: [
        view(f"api-{n}", weight=weight, admin_state=state)  # type: ignore[arg-type]
        for n, (weight, state) in enumerate(rows, start=1)
    ]
)
_limits = st.builds(
    GuardrailLimits,
    max_actions=st.integers(0, 5),
    max_drains=st.integers(0, 3),
    max_weight_delta=st.integers(0, 300),
)


@given(st.lists(_actions, max_size=25), _fleets, _limits)
def test_any_plan_keeps_within_every_rail(
    plan: list[Action], fleet: list[ServerView], limits: GuardrailLimits
) -> None:
    guarded = guard(plan, fleet, limits)
    servers = {(v.backend, v.server): v for v in fleet}
    real = [a for a in guarded.actions if a.kind != "no_op"]
    assert len(real) <= limits.max_actions
    out = [a for a in real if a.kind == "drain" or (a.kind == "set_weight" and a.weight == 0)]
    assert len(out) <= limits.max_drains
    for action in real:
        known = servers[action.backend, action.server]
        assert known.admin_state != "maint"
        if action.kind == "set_weight":
            assert type(action.weight) is int
            assert 0 <= action.weight <= 256
            assert abs(action.weight - known.weight) <= limits.max_weight_delta
    again = guard(guarded.actions, fleet, limits)
    assert again.actions == guarded.actions
    assert again.interventions == ()
    # Every action is accounted for: it passed, or some intervention dropped it.
    dropped = {i.index for i in guarded.interventions if i.verdict == "dropped"}
    assert len(guarded.actions) + len(dropped) == len(plan)
    assert all(i.reason for i in guarded.interventions)
    json.dumps(to_json(guarded), allow_nan=False)
