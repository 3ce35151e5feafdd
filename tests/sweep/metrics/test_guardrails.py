from __future__ import annotations

from controller.guardrails import GuardrailLimits, guard
from controller.records import to_json
from sweep.metrics.frames import steps_frame
from sweep.metrics.guardrails import firing_counts, rails_tripped
from tests.controller.builders import set_weight, view


def action(kind, server="api-1", weight=None):
    return {"kind": kind, "backend": "be_api", "server": server, "weight": weight, "reason": ""}


def record(plan, interventions=(), weights=None):
    servers = [{"server": s, "weight": w} for s, w in (weights or {}).items()]
    return {
        "step": 0,
        "started_s": 0.0,
        "raw_plan": plan,
        "interventions": interventions and list(interventions),
        "snapshot": {"servers": servers},
    }


def test_two_drains_trip_the_drain_cap_and_one_does_not():
    assert rails_tripped(record([action("drain"), action("drain", "api-2")])) == {"drain_cap"}
    assert rails_tripped(record([action("drain")])) == set()


def test_four_actions_trip_the_action_cap_and_no_op_is_none():
    three = [action("set_weight", f"api-{i}", 80) for i in range(3)]
    assert rails_tripped(record([*three, action("no_op", "")])) == set()
    assert rails_tripped(record([*three, action("enable")])) == {"action_cap"}


def test_three_drains_and_an_enable_trip_both_caps():
    plan = [action("drain", f"api-{i}") for i in range(3)] + [action("enable", "api-9")]
    assert rails_tripped(record(plan)) == {"drain_cap", "action_cap"}


def test_the_log_of_the_guardrails_counts():
    clamp = {"rail": "weight_clamp", "verdict": "clamped", "index": 0, "reason": ""}
    unknown = {"rail": "unknown_server", "verdict": "dropped", "index": 0, "reason": ""}
    assert rails_tripped(record([action("set_weight", weight=20)], [clamp])) == {"weight_clamp"}
    assert rails_tripped(record([action("drain", "x")], [unknown])) == {"rejected"}


def test_a_run_is_judged_by_its_own_caps():
    limits = GuardrailLimits(max_drains=2, max_actions=4, max_weight_delta=80)
    two = [action("drain"), action("drain", "api-2")]
    assert rails_tripped(record(two), limits) == set()
    assert rails_tripped(record([*two, action("drain", "api-3")]), limits) == {"drain_cap"}
    four = [action("enable", f"api-{i}") for i in range(4)]
    assert rails_tripped(record(four), limits) == set()
    far = [action("set_weight", "api-1", 30)]
    assert rails_tripped(record(far, None, {"api-1": 100}), limits) == set()
    frame = steps_frame([record(two)], limits)
    assert firing_counts(frame)["fired_any"] == 0


def test_too_large_a_change_counts_although_a_cap_dropped_its_action():
    views = [view(f"api-{n}") for n in range(1, 5)]
    plan = [set_weight(f"api-{n}", 80) for n in range(1, 4)] + [set_weight("api-4", 10)]
    interventions = to_json(guard(plan, views, GuardrailLimits()).interventions)
    assert [i["rail"] for i in interventions] == ["action_cap"]
    weights = {v.server: v.weight for v in views}
    tripped = rails_tripped(record(to_json(plan), interventions, weights))
    assert tripped == {"action_cap", "weight_clamp"}


def test_without_a_log_the_weights_of_the_snapshot_decide():
    weights = {"api-1": 100, "api-2": 60}
    plan = [action("set_weight", "api-1", 50), action("set_weight", "api-2", 10)]
    assert rails_tripped(record(plan, None, weights)) == set()
    plan = [action("set_weight", "api-1", 49)]
    assert rails_tripped(record(plan, None, weights)) == {"weight_clamp"}


def test_counts_are_steps_and_any_counts_a_step_once():
    both = [action("drain", f"api-{i}") for i in range(4)]
    steps = steps_frame(
        [
            {**record(both), "step": 0},
            {**record([action("no_op", "")]), "step": 1},
            {**record([action("drain"), action("drain", "api-2")]), "step": 2},
        ]
    )
    counts = firing_counts(steps)
    assert counts["fired_drain_cap"] == 2
    assert counts["fired_action_cap"] == 1
    assert counts["fired_any"] == 2
    assert firing_counts(steps_frame([]))["fired_any"] == 0
