"""The four tools, and what a model may make of them (paper, Table 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api import Action
from controller.tools import check_call, tool_schemas
from tests.controller.builders import view

FLEET = (view("api-1"), view("api-2"))


def check(name: object, **arguments: Any) -> Any:
    return check_call(name, json.dumps(arguments), FLEET)


def test_schemas_are_the_papers_table() -> None:
    functions = [tool["function"] for tool in tool_schemas()]
    assert [(f["name"], list(f["parameters"]["properties"])) for f in functions] == [
        ("set_weight", ["backend", "server", "weight", "reason"]),
        ("drain", ["backend", "server", "reason"]),
        ("enable", ["backend", "server", "reason"]),
        ("no_op", ["reason"]),
    ]
    weight = functions[0]["parameters"]["properties"]["weight"]
    assert (weight["type"], weight["minimum"], weight["maximum"]) == ("integer", 1, 100)
    json.dumps(tool_schemas())


def test_good_calls_become_actions_and_are_queued() -> None:
    call = check("set_weight", backend="be_api", server="api-2", weight=25, reason="halve")
    assert call.action == Action("set_weight", "be_api", "api-2", 25, "halve")
    assert call.result_json() == '{"status": "queued"}'
    assert check("drain", backend="be_api", server="api-1").action == Action(
        "drain", "be_api", "api-1"
    )
    assert check_call("no_op", "", FLEET).action == Action("no_op")


@pytest.mark.parametrize(
    "weight", [-1, 0, 101, 10**9, 10**400, "50", None, True, 1.5, 50.0, [50], {}]
)
def test_bad_weights_are_errors_not_actions(weight: object) -> None:
    call = check("set_weight", backend="be_api", server="api-1", weight=weight, reason="")
    assert call.action is None
    assert "weight" in call.error
    assert json.loads(call.result_json())["status"] == "error"
    json.dumps(call.arguments)


@pytest.mark.parametrize("arguments", ["{", "", "[]", "null", "7", '{"weight": NaN}', "[" * 10**5])
def test_malformed_arguments_are_errors(arguments: str) -> None:
    call = check_call("set_weight", arguments, FLEET)
    assert call.action is None
    assert call.error
    assert call.arguments == {}


def test_missing_arguments_are_named() -> None:
    call = check("set_weight", backend="be_api")
    assert "server" in call.error
    assert "weight" in call.error


@pytest.mark.parametrize(
    ("backend", "server"),
    [
        ("be_api", "api-9"),
        ("be_api", "API-1"),
        ("be_api", "api-1 "),
        ("be_api", "api-1; shutdown sessions"),
        ("be_api", "be_api/api-1"),
        ("be_other", "api-1"),
        ("", ""),
    ],
)
def test_names_match_exactly_or_not_at_all(backend: str, server: str) -> None:
    call = check("drain", backend=backend, server=server, reason="x")
    assert call.action is None
    assert "unknown" in call.error


@pytest.mark.parametrize("name", ["reboot", "", None, 7, ["drain"], {"a": 1}, "drain\n"])
def test_unknown_tools_are_errors(name: object) -> None:
    call = check_call(name, "{}", FLEET)
    assert call.action is None
    assert "unknown tool" in call.error


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.one_of(st.sampled_from(["set_weight", "drain", "enable", "no_op"]), _json),
    st.one_of(
        st.text(),
        _json,
        st.fixed_dictionaries(
            {},
            optional={"backend": _json, "server": _json, "weight": _json, "reason": _json},
        ).map(json.dumps),
    ),
)
def test_nothing_that_a_model_writes_raises(name: object, arguments: object) -> None:
    call = check_call(name, arguments, FLEET)
    assert (call.action is None) != (call.error is None)
    json.dumps(call.arguments, allow_nan=False)
    json.loads(call.result_json())
