"""Reads a chat completion without trusting its shape (pure).

The response is what an endpoint sent, in part what a model wrote. Every field may be missing or of
another type; what can't be read counts as absent, and the raw response is kept for the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controller.api import Usage

# Where servers put a reasoning trace: llama-server and vLLM, OpenRouter and newer vLLM, others.
_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")


@dataclass(frozen=True)
class RawCall:
    """One tool call as it came; `name` and `arguments` may be anything."""

    id: str
    name: object
    arguments: object


@dataclass(frozen=True)
class Answer:
    """What one turn brought."""

    content: str
    reasoning: str
    calls: tuple[RawCall, ...]
    finish_reason: str
    usage: Usage


def read_answer(response: object) -> Answer | None:
    """The first choice's message; None when there is none."""
    choice = _first(_get(response, "choices"))
    message = _get(choice, "message")
    if not isinstance(message, Mapping):
        return None
    reasoning = [text for field in _REASONING_FIELDS if (text := _text(message.get(field)))]
    return Answer(
        content=_text(message.get("content")),
        reasoning=reasoning[0] if reasoning else "",
        calls=_calls(message.get("tool_calls")),
        finish_reason=_text(_get(choice, "finish_reason")),
        usage=read_usage(_get(response, "usage")),
    )


def read_usage(usage: object) -> Usage:
    """Token counts of one turn; what is missing is 0, the total is computed when it is."""
    prompt = _count(_get(usage, "prompt_tokens"))
    completion = _count(_get(usage, "completion_tokens"))
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=_count(_get(usage, "total_tokens")) or prompt + completion,
        cached_tokens=_count(_get(_get(usage, "prompt_tokens_details"), "cached_tokens")),
        turns=1,
    )


def add_usage(one: Usage, other: Usage) -> Usage:
    """Token counts of two turns together."""
    return Usage(
        one.prompt_tokens + other.prompt_tokens,
        one.completion_tokens + other.completion_tokens,
        one.total_tokens + other.total_tokens,
        one.cached_tokens + other.cached_tokens,
        one.turns + other.turns,
    )


def _calls(value: object) -> tuple[RawCall, ...]:
    if not isinstance(value, list):
        return ()
    calls = []
    seen: set[str] = set()
    for index, item in enumerate(value):
        function = _get(item, "function")
        call_id = _get(item, "id")
        # Results are matched by id, so each needs one of its own.
        if not isinstance(call_id, str) or not 0 < len(call_id) <= 64 or call_id in seen:
            call_id = f"call_{index + 1}"
        seen.add(call_id)
        calls.append(RawCall(call_id, _get(function, "name"), _get(function, "arguments")))
    return tuple(calls)


def _get(value: object, key: str) -> Any:
    return value.get(key) if isinstance(value, Mapping) else None


def _first(value: object) -> Any:
    return value[0] if isinstance(value, list) and value else None


def _text(value: object) -> str:
    """A text; the text parts where the content is a list of parts."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text(_get(part, "text")) for part in value)
    return ""


def _count(value: object) -> int:
    return value if type(value) is int and 0 <= value < 2**53 else 0
