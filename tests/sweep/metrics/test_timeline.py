from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from sweep.metrics.frames import STATES_SCHEMA, states_frame
from sweep.metrics.timeline import (
    ever_drained,
    final_drained,
    per_server,
    stability,
    time_to_action_s,
    time_to_resolution_s,
)


def states(*rows: tuple[float, str, bool]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=STATES_SCHEMA, orient="row")


SLOTS = ("api-1", "api-2", "api-3", "api-4", "api-5")


def test_flips_are_the_changes_after_the_first():
    servers = per_server(
        states(
            (10.0, "api-2", True),
            (20.0, "api-2", True),  # drained again: no change
            (30.0, "api-2", False),
            (40.0, "api-2", True),
            (50.0, "api-1", False),  # a weight of an active server: no change
            (60.0, "api-3", True),
        )
    )
    assert servers["server"].to_list() == ["api-1", "api-2", "api-3"]
    assert servers["transitions"].to_list() == [0, 3, 1]
    assert servers["flips"].to_list() == [0, 2, 0]
    assert servers["first_drain_s"].to_list() == [None, 10.0, 60.0]
    assert ever_drained(servers) == {"api-2", "api-3"}
    assert final_drained(servers) == {"api-2", "api-3"}


def test_times_count_faulty_servers_only():
    servers = per_server(states((5.0, "api-1", True), (20.0, "api-2", True), (70.0, "api-5", True)))
    assert time_to_action_s(servers, {"api-2", "api-5"}) == 20.0
    assert time_to_resolution_s(servers, {"api-2", "api-5"}) == 70.0
    assert time_to_resolution_s(servers, {"api-2", "api-3"}) is None
    assert time_to_action_s(servers, {"api-4"}) is None
    assert time_to_resolution_s(servers, set()) is None


def test_resolution_needs_every_faulty_server_once_not_at_the_same_time():
    servers = per_server(
        states((10.0, "api-2", True), (20.0, "api-2", False), (30.0, "api-5", True))
    )
    assert time_to_resolution_s(servers, {"api-2", "api-5"}) == 30.0


def test_stability_normalizes_by_the_slots_of_each_group():
    servers = per_server(
        states(
            (1.0, "api-2", True),
            (2.0, "api-2", False),
            (3.0, "api-2", True),
            (4.0, "api-1", True),
            (5.0, "api-1", False),
        )
    )
    found = stability(servers, {"api-2", "api-5"}, SLOTS)
    assert found.flips == 3
    assert found.oscillating_servers == 1
    assert found.faulty_flip_rate == 2 / 2
    assert found.healthy_flip_rate == 1 / 3
    assert not found.end_state_correct
    assert stability(servers, {"api-2"}, SLOTS).end_state_correct


def test_a_run_without_any_action_is_stable_and_wrong():
    found = stability(per_server(states()), {"api-2"}, SLOTS)
    assert (found.flips, found.oscillating_servers, found.end_state_correct) == (0, 0, False)


@given(
    st.lists(st.tuples(st.sampled_from(SLOTS), st.booleans()), max_size=40),
)
def test_per_server_agrees_with_a_plain_walk(actions):
    drained, flips, first = {}, dict.fromkeys(SLOTS, -1), {}
    for time, (slot, state) in enumerate(actions):
        if state != drained.get(slot, False):
            flips[slot] += 1
        if state:
            first.setdefault(slot, float(time))
        drained[slot] = state
    servers = per_server(states(*((float(t), s, d) for t, (s, d) in enumerate(actions))))
    rows = {row["server"]: row for row in servers.iter_rows(named=True)}
    assert set(rows) == set(drained)
    for slot, row in rows.items():
        assert row["flips"] == max(0, flips[slot])
        assert row["first_drain_s"] == first.get(slot)
        assert row["final_drained"] == drained[slot]


def result(kind, server, ok=True, weight_after=None, admin=None, weight=None):
    return {
        "action": {"kind": kind, "server": server, "weight": weight},
        "ok": ok,
        "weight_after": weight_after,
        "admin_state_after": admin,
    }


def test_what_haproxy_was_seen_to_do_counts_not_what_was_asked_for():
    record = {
        "step": 0,
        "started_s": 0.0,
        "executed_s": 1.5,
        "results": [
            result("drain", "api-1", ok=False, weight_after=100, admin="ready"),
            result("drain", "api-2", weight_after=100, admin="drain"),
            result("set_weight", "api-3", weight_after=0, admin="ready", weight=0),
            result("set_weight", "api-4", weight_after=50, admin="ready", weight=50),
            # HAProxy keeps a drained server drained whatever its weight.
            result("set_weight", "api-2", weight_after=80, admin="drain", weight=80),
            result("enable", "api-2", weight_after=80, admin="ready"),
            result("no_op", ""),
        ],
    }
    frame = states_frame([record])
    assert frame["time_s"].to_list() == [1.5] * 6
    assert list(zip(frame["server"], frame["drained"], strict=True)) == [
        ("api-1", False),
        ("api-2", True),
        ("api-3", True),
        ("api-4", False),
        ("api-2", True),
        ("api-2", False),
    ]


def test_without_a_read_back_only_successful_actions_count():
    record = {
        "step": 0,
        "started_s": 4.0,
        "executed_s": None,
        "results": [
            result("drain", "api-1", ok=False),
            result("drain", "api-2"),
            result("set_weight", "api-3", weight=0),
        ],
    }
    frame = states_frame([record])
    assert frame.rows() == [(4.0, "api-2", True), (4.0, "api-3", True)]
