"""The four tools of the action space, and the check of what a model makes of them (paper, Table 2).

A call is checked strictly: JSON of the right shape, names that discovery returned, a weight that is
an integer from 1 to 100. What fails goes back to the model as a tool result that says why; it never
raises. A weight outside [1, 100] is a failed call, not an action to clamp: the schema says the
range, and the guardrails' [0, 256] is the second line of defence, for policies without tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from controller.api import Action, ActionKind, ServerView

MAX_CALLS = 32
"""Calls of one answer that are looked at; a flood beyond is refused unread."""

_MAX_ARGUMENTS_CHARS = 16_384
_MAX_REASON_CHARS = 2_000


class _Arguments(BaseModel):
    # Unknown keys are ignored: a superfluous field is no reason to lose a correct action.
    model_config = ConfigDict(extra="ignore")

    # The schema asks for it; a call without one is still a correct action.
    reason: StrictStr = Field(default="", description="Why, in one sentence.")


class _ServerArguments(_Arguments):
    backend: StrictStr = Field(description="Backend name, exactly as observed.")
    server: StrictStr = Field(description="Server name, exactly as observed.")


class _SetWeight(_ServerArguments):
    weight: StrictInt = Field(ge=1, le=100, description="New traffic weight, 1 to 100.")


class _Drain(_ServerArguments):
    pass


class _Enable(_ServerArguments):
    pass


class _NoOp(_Arguments):
    pass


_TOOLS: Mapping[ActionKind, tuple[type[_Arguments], str]] = {
    "set_weight": (_SetWeight, "Set the integer traffic weight of one server."),
    "drain": (_Drain, "Gracefully isolate one server: it gets no new sessions."),
    "enable": (_Enable, "Return a drained server to active routing."),
    "no_op": (_NoOp, "Record that no intervention is warranted."),
}


def tool_schemas() -> list[dict[str, Any]]:
    """The tools as OpenAI function schemas, in a fixed order (it is part of the prompt)."""
    return [_schema(name, arguments, text) for name, (arguments, text) in _TOOLS.items()]


def _schema(name: str, arguments: type[_Arguments], description: str) -> dict[str, Any]:
    fields = arguments.model_json_schema()["properties"]
    # `reason` first in the class, last in the schema: the model states the action, then why.
    properties = {key: _property(fields[key]) for key in sorted(fields, key=_order)}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
            },
        },
    }


def _property(field: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in field.items() if key not in ("title", "default")}


def _order(key: str) -> int:
    return ("backend", "server", "weight", "reason").index(key)


@dataclass(frozen=True)
class CheckedCall:
    """One tool call after its check. Exactly one of `action` and `error` is set."""

    name: str
    arguments: Mapping[str, Any]
    """Re-serialisable arguments for the history: what was validated, `{}` when malformed."""
    action: Action | None
    error: str | None

    @property
    def status(self) -> Literal["queued", "error"]:
        """The word that goes back to the model."""
        return "queued" if self.error is None else "error"

    def result_json(self) -> str:
        """The tool result that the model sees (paper, Appendix B.4)."""
        body = {"status": self.status}
        if self.error is not None:
            body["error"] = self.error
        return json.dumps(body)


def check_call(name: object, arguments: object, servers: Sequence[ServerView]) -> CheckedCall:
    """Check one call. `arguments` is the text that the model wrote; any object is survived."""
    shown = str(name)[:64]
    if not isinstance(name, str) or name not in _TOOLS:
        known = ", ".join(_TOOLS)
        return CheckedCall(shown, {}, None, f"unknown tool {shown!r}; the tools are {known}")
    kind: ActionKind = name  # type: ignore[assignment]
    try:
        raw = _object(arguments)
        checked = _TOOLS[kind][0].model_validate(raw)
    except ValidationError as error:
        return CheckedCall(kind, _safe_arguments(raw), None, _explain(error))
    except ValueError as error:
        return CheckedCall(kind, {}, None, str(error))
    values = checked.model_dump()
    values["reason"] = values["reason"][:_MAX_REASON_CHARS]
    problem = _unknown_name(values, servers) if kind != "no_op" else None
    if problem is not None:
        return CheckedCall(kind, values, None, problem)
    action = Action(
        kind=kind,
        backend=values.get("backend", ""),
        server=values.get("server", ""),
        weight=values.get("weight"),
        reason=values["reason"],
    )
    return CheckedCall(kind, values, action, None)


def _object(arguments: object) -> dict[str, Any]:
    """The JSON object in `arguments`. Raises ValueError with words for the model."""
    if isinstance(arguments, dict):
        return arguments
    if not isinstance(arguments, str):
        raise ValueError("arguments must be a JSON object")
    if len(arguments) > _MAX_ARGUMENTS_CHARS:
        raise ValueError("arguments are too long")
    if not arguments.strip():
        return {}
    try:
        # Python's own reader takes NaN and Infinity, which are not JSON.
        value = json.loads(arguments, parse_constant=_not_json)
    except (ValueError, RecursionError):
        raise ValueError("arguments are not valid JSON") from None
    if not isinstance(value, dict):
        raise ValueError("arguments must be a JSON object")
    return value


def _not_json(name: str) -> None:
    raise ValueError(name)


def _safe_arguments(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What may be replayed of arguments that failed the check: short plain values only."""
    keys = ("backend", "server", "weight", "reason")
    return {key: raw[key] for key in keys if _is_plain(raw.get(key))}


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= 200
    return isinstance(value, bool) or (isinstance(value, int) and abs(value) < 2**53)


def _explain(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in item['loc']) or 'arguments'}: {item['msg']}"
        for item in error.errors(include_url=False, include_input=False, include_context=False)[:4]
    )


def _unknown_name(values: Mapping[str, Any], servers: Sequence[ServerView]) -> str | None:
    """Why the named server does not exist, or None. Names are matched exactly."""
    backends = dict.fromkeys(view.backend for view in servers)
    if values["backend"] not in backends:
        return f"unknown backend {values['backend'][:64]!r}; the backends are {', '.join(backends)}"
    names = [view.server for view in servers if view.backend == values["backend"]]
    if values["server"] not in names:
        return f"unknown server {values['server'][:64]!r}; the servers are {', '.join(names)}"
    return None
