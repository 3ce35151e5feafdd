"""The two-turn protocol, and everything that a model or its server may answer (paper, §4.4)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from controller.api import Action, Decision, Policy
from controller.policies import LlmPolicy, LlmPolicyConfig
from controller.records import to_json
from tests.controller.builders import snapshot, view
from tests.controller.fake_openai import FakeOpenAI, answer, call, completion, drip, hang_up
from tests.controller.rig import free_port, wait_until

SEEN = snapshot(view("api-1"), view("api-2", 1.2, weight=50))
HALVE = {"backend": "be_api", "server": "api-2", "weight": 25, "reason": "persists"}


@pytest.fixture(scope="module")
def server() -> Iterator[FakeOpenAI]:
    fake = FakeOpenAI()
    yield fake
    fake.stop()


def config(base_url: str, **changes: Any) -> LlmPolicyConfig:
    values = {
        "base_url": base_url,
        "model": "m",
        "system_prompt": "Balance: {lb_algorithm}. {braces}",
        "deadline_s": 30.0,
        "api_key": "secret-key",
        **changes,
    }
    return LlmPolicyConfig(**values)


def decide(base_url: str, **changes: Any) -> Decision:
    policy = LlmPolicy(config(base_url, **changes))
    try:
        decision = policy.decide(SEEN, [])
    finally:
        policy.close()
    json.dumps(to_json(decision), allow_nan=False)
    return decision


def test_two_turns_make_a_plan_and_a_rationale(server: FakeOpenAI) -> None:
    server.script(
        completion("", [call("set_weight", HALVE)], reasoning_content="api-2 is bad"),
        completion("I halve api-2.", reasoning_content="explain"),
    )
    decision = decide(
        server.url,
        temperature=0.6,
        top_p=0.95,
        top_k=20,
        min_p=0.0,
        repeat_penalty=1.0,
        max_tokens=512,
        template_kwargs={"enable_thinking": False},
    )
    assert decision.error is None
    assert decision.actions == (Action("set_weight", "be_api", "api-2", 25, "persists"),)
    assert decision.rationale == "I halve api-2."
    assert decision.reasoning == "api-2 is bad\nexplain"
    usage = decision.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (200, 14, 214)
    assert (usage.cached_tokens, usage.turns) == (120, 2)

    first, second = server.requests
    assert server.headers[-1]["authorization"] == "Bearer secret-key"
    assert first["messages"][0] == {"role": "system", "content": "Balance: leastconn. {braces}"}
    assert first["messages"][1]["content"].startswith("Recent actions (oldest -> newest):\nnone\n")
    assert (first["tool_choice"], second["tool_choice"]) == ("auto", "none")
    assert [t["function"]["name"] for t in first["tools"]] == [
        "set_weight",
        "drain",
        "enable",
        "no_op",
    ]
    sent = {key: first[key] for key in ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")}
    assert sent == {
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
    }
    assert (first["seed"], first["max_tokens"]) == (42, 512)
    assert first["chat_template_kwargs"] == {"enable_thinking": False}
    assert second["messages"][:2] == first["messages"]
    assistant, result = second["messages"][2:]
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == HALVE
    assert result == {"role": "tool", "tool_call_id": "c1", "content": '{"status": "queued"}'}

    assert len(decision.conversation) == 2
    assert decision.conversation[0]["response"]["choices"][0]["finish_reason"] == "stop"
    assert decision.conversation[0]["status"] == 200
    assert "secret-key" not in json.dumps(to_json(decision))


def test_unset_parameters_are_not_sent(server: FakeOpenAI) -> None:
    server.script(completion("Nothing to do."))
    decision = decide(server.url, seed=None)
    assert decision.actions == ()
    assert decision.rationale == "Nothing to do."
    assert decision.error is None
    assert decision.usage.turns == 1
    assert set(server.requests[0]) == {"model", "messages", "tools", "tool_choice"}


def test_a_bad_call_goes_back_as_an_error_and_is_never_replayed_raw(server: FakeOpenAI) -> None:
    truncated = '{"backend": "be_api", "server": "api-2", "wei'
    server.script(
        completion(None, [call("drain", truncated, "a"), call("set_weight", HALVE, "b")]),
        completion("ok"),
    )
    decision = decide(server.url)
    assert [a.kind for a in decision.actions] == ["set_weight"]
    assert decision.validation_errors == ("call 1 (drain): arguments are not valid JSON",)
    messages = server.requests[1]["messages"]
    assert messages[2]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert truncated not in json.dumps(messages)
    assert json.loads(messages[3]["content"]) == {
        "status": "error",
        "error": "arguments are not valid JSON",
    }
    assert json.loads(messages[4]["content"]) == {"status": "queued"}


@pytest.mark.parametrize(
    "weight", [-1, 10**9, "50", None, True, 1.5], ids=["-1", "1e9", "text", "null", "true", "1.5"]
)
def test_bad_weights_cost_the_call_only(server: FakeOpenAI, weight: object) -> None:
    server.script(completion("", [call("set_weight", {**HALVE, "weight": weight})]), completion(""))
    decision = decide(server.url)
    assert decision.error is None
    assert decision.actions == ()
    assert len(decision.validation_errors) == 1


def test_twenty_calls_and_a_flood(server: FakeOpenAI) -> None:
    calls = [call("drain", {"backend": "be_api", "server": "api-1"}, "same") for _ in range(20)]
    server.script(completion("", calls), completion("done"))
    decision = decide(server.url)
    assert len(decision.actions) == 20
    ids = [c["id"] for c in server.requests[1]["messages"][2]["tool_calls"]]
    assert len(set(ids)) == 20
    server.script(completion("", calls * 50), completion("done"))
    decision = decide(server.url)
    assert len(decision.actions) == 32
    assert decision.validation_errors == ("968 calls beyond 32 were not read",)


def test_hostile_strings_stay_data(server: FakeOpenAI) -> None:
    evil = "api-2; shutdown sessions server be_api/api-1\n\u2028\ud800<|im_end|>"
    server.script(
        completion(evil, [call(evil, {}), call("drain", {"backend": "be_api", "server": evil})]),
        completion(evil),
    )
    decision = decide(server.url)
    assert decision.actions == ()
    assert len(decision.validation_errors) == 2
    assert decision.error is None


@pytest.mark.parametrize(
    ("reply", "error", "infrastructure"),
    [
        (completion(""), "empty answer", False),
        (completion(None), "empty answer", False),
        (completion("", [], reasoning_content="hm"), "empty answer", False),
        (completion("The server api-", finish_reason="length"), "finish_reason=length", False),
        ({"choices": []}, "malformed answer", False),
        ({"choices": [{"message": "text"}]}, "malformed answer", False),
        ({"choices": {"a": 1}}, "malformed answer", False),
        (answer("[]"), "malformed answer", False),
        (answer("not json"), "malformed answer", False),
        (answer(b"\xff\xfe\x00"), "malformed answer", False),
        (answer("[" * 100_000), "malformed answer", False),
        (answer(""), "malformed answer", False),
        (answer({"error": {"message": "exceed_context_size_error"}}, 400), "HTTP 400", False),
        (answer({"error": {"message": "Failed to parse input"}}, 500), "HTTP 500", False),
        (answer({"error": {"message": "Jinja Exception: no user"}}, 500), "HTTP 500", False),
        (answer({"error": {"message": "Context size exceeded"}}, 500), "HTTP 500", False),
        (answer({"error": {"message": "CUDA error"}}, 500), "HTTP 500", True),
        (answer({"error": {"message": "Loading model"}}, 503), "HTTP 503: Loading model", True),
        (answer({"error": {"message": "Invalid API Key"}}, 401), "HTTP 401", True),
        (answer("<html>", 502), "HTTP 502", True),
        (hang_up, "connection failed", True),
    ],
)
def test_what_loses_the_step(
    server: FakeOpenAI, reply: Any, error: str, infrastructure: bool
) -> None:
    server.script(reply)
    decision = decide(server.url)
    assert decision.error is not None
    assert decision.error.startswith(error)
    assert decision.infrastructure is infrastructure
    assert decision.actions == ()
    assert len(decision.conversation) == 1
    # No retries of the client's own.
    assert len(server.requests) == 1


def test_connection_refused_is_infrastructure() -> None:
    decision = decide(f"http://127.0.0.1:{free_port()}/v1")
    assert decision.infrastructure
    assert decision.error is not None
    assert decision.error.startswith("connection failed")


def test_the_deadline_cuts_a_dripping_answer(server: FakeOpenAI) -> None:
    server.script(drip)
    started = time.monotonic()
    decision = decide(server.url, deadline_s=0.5)
    assert time.monotonic() - started < 15
    assert decision.error == "timeout: no answer within 0.5 s"
    assert not decision.infrastructure
    # The policy is usable again at once.
    server.script(completion("fine"))
    assert decide(server.url).rationale == "fine"


def test_one_deadline_for_both_turns_and_the_plan_stands(server: FakeOpenAI) -> None:
    server.script(completion("", [call("set_weight", HALVE)]), drip)
    decision = decide(server.url, deadline_s=2.0)
    assert [a.weight for a in decision.actions] == [25]
    assert decision.error is None
    assert decision.conversation[1]["error"].startswith("timeout")
    assert decision.usage.turns == 1


def test_an_endpoint_lost_between_turns_is_infrastructure(server: FakeOpenAI) -> None:
    server.script(completion("", [call("set_weight", HALVE)]), hang_up)
    decision = decide(server.url)
    assert decision.infrastructure
    assert decision.error is not None


def test_tool_calls_written_as_text_are_stripped_and_reported(server: FakeOpenAI) -> None:
    markup = '<tool_call>{"name": "drain", "arguments": {"server": "api-1"}}</tool_call>'
    server.script(completion(f"<think>why</think>I will drain.\n{markup}"))
    decision = decide(server.url, postprocess="qwen3")
    assert decision.actions == ()
    assert decision.error is None
    assert decision.rationale == "I will drain."
    assert decision.reasoning == "why"
    assert decision.validation_errors == (f"tool call written as text, not executed: {markup}",)


def test_interrupt_ends_a_waiting_decision(server: FakeOpenAI) -> None:
    server.script(drip)
    policy = LlmPolicy(config(server.url, deadline_s=60.0))
    decisions: list[Decision] = []
    waiting = threading.Thread(target=lambda: decisions.append(policy.decide(SEEN, [])))
    waiting.start()
    wait_until(lambda: server.requests, "the request has arrived")
    policy.interrupt()
    waiting.join(timeout=30)
    policy.close()
    assert [d.error for d in decisions] == ["interrupted"]


def test_unknown_postprocessing_is_refused_at_construction() -> None:
    with pytest.raises(KeyError, match="qwen3"):
        LlmPolicy(config("http://127.0.0.1:1/v1", postprocess="nope"))


def test_close_is_idempotent_and_it_is_a_policy() -> None:
    policy: Policy = LlmPolicy(config("http://127.0.0.1:1/v1"))
    policy.close()
    policy.close()
