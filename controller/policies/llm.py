"""A model as policy: the two-turn protocol over an OpenAI-compatible API (paper, §4.4).

Turn 1 sends the system prompt and the observation with the four tools offered and the choice left
to the model. If it called tools, turn 2 sends its calls back with the result of each check
(`queued` or `error`), tool calls disabled, to get a rationale in words. What a model can answer
never raises: it costs the step at most, and is recorded in full.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from controller.api import Decision, ExecutedAction, ServerView, Snapshot, Usage
from controller.errors import EndpointUnavailable
from controller.observation import ObservationStyle, format_user_message
from controller.policies.answer import Answer, add_usage, read_answer
from controller.policies.postprocess import CleanText, clean, family
from controller.tools import MAX_CALLS, CheckedCall, check_call, tool_schemas

if TYPE_CHECKING:
    from controller.policies.endpoint import TurnResult

Message = dict[str, Any]


@dataclass(frozen=True)
class LlmPolicyConfig:
    """One model in one mode. None leaves a parameter to the server."""

    base_url: str
    """Ends in `/v1`."""
    model: str
    system_prompt: str
    """With `{lb_algorithm}` where the balance algorithm goes (paper, §4.5)."""
    api_key: str = field(default="", repr=False)
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Passed as `chat_template_kwargs`: how a reasoning mode reaches the template."""
    seed: int | None = 42
    max_tokens: int | None = None
    deadline_s: float = 60.0
    """Wall time of both turns together."""
    postprocess: str | None = None
    """Family of `controller.policies.postprocess`; None strips nothing."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    observation: ObservationStyle = field(default_factory=ObservationStyle)


class LlmPolicy:
    """`controller.api.Policy` of a model. KeyError at construction for an unknown `postprocess`."""

    def __init__(self, config: LlmPolicyConfig) -> None:
        # Importing the OpenAI client takes over a second, which only a model's run should pay.
        from controller.policies.endpoint import Endpoint

        self.config = config
        self._family = family(config.postprocess)
        self._tools = tool_schemas()
        self._endpoint = Endpoint(config.base_url, config.api_key)

    def decide(self, snapshot: Snapshot, history: Sequence[ExecutedAction]) -> Decision:
        """Both turns within `deadline_s`."""
        deadline = time.monotonic() + self.config.deadline_s
        messages = self._first_messages(snapshot, history)
        request = self._request(messages, tool_choice="auto")
        result, answer, text, entry = self._turn(request, deadline)
        lost = result.error or _lost(answer, text)
        if answer is None or text is None or lost:
            return Decision(
                actions=(),
                reasoning=text.reasoning if text else "",
                usage=answer.usage if answer else Usage(turns=1),
                error=lost or "malformed answer: no message in it",
                infrastructure=result.infrastructure,
                conversation=(entry,),
            )
        checked, problems = _check(answer, text, snapshot.servers)
        entry["validation"] = [call.result_json() for call in checked]
        decision = Decision(
            actions=tuple(call.action for call in checked if call.action is not None),
            rationale=text.text,
            reasoning=text.reasoning,
            validation_errors=problems,
            usage=answer.usage,
            conversation=(entry,),
        )
        if not checked:
            return decision
        return self._explain(decision, messages, answer, text, checked, deadline)

    def check(self) -> None:
        """Ask the endpoint before the first step; it may still be slow, or serve another model.

        Raises `EndpointUnavailable` when nobody listens there, or the key is refused.
        """
        refusal = self._endpoint.refusal()
        if refusal is not None:
            raise EndpointUnavailable(f"the model's endpoint at {self.config.base_url}: {refusal}")

    def interrupt(self) -> None:
        """End a `decide` in another thread, soon; its step is lost."""
        self._endpoint.interrupt()

    def close(self) -> None:
        """Close the connections; idempotent."""
        self._endpoint.close()

    def _explain(
        self,
        decision: Decision,
        messages: list[Message],
        answer: Answer,
        text: CleanText,
        checked: Sequence[CheckedCall],
        deadline: float,
    ) -> Decision:
        """Turn 2: the rationale. Whatever happens to it, the plan of turn 1 stands.

        Only an endpoint that is gone voids it: then the run is in question, not the step.
        """
        follow_up = [*messages, *_replay(answer, text, checked)]
        request = self._request(follow_up, tool_choice="none")
        result, second, words, entry = self._turn(request, deadline)
        conversation = (*decision.conversation, entry)
        if second is None or words is None:
            decision = replace(decision, conversation=conversation)
            if result.infrastructure:
                return replace(decision, error=result.error, infrastructure=True)
            return decision
        traces = [trace for trace in (decision.reasoning, words.reasoning) if trace]
        return replace(
            decision,
            rationale=words.text or decision.rationale,
            reasoning="\n".join(traces),
            usage=add_usage(decision.usage, second.usage),
            conversation=conversation,
        )

    def _turn(
        self, request: dict[str, Any], deadline: float
    ) -> tuple[TurnResult, Answer | None, CleanText | None, dict[str, Any]]:
        remaining_s = max(0.0, deadline - time.monotonic())
        result = self._endpoint.complete(request, remaining_s)
        entry = {
            "request": request,
            "response": result.response,
            "status": result.status,
            "error": result.error,
            "duration_s": round(result.duration_s, 6),
        }
        answer = read_answer(result.response)
        if answer is None:
            return result, None, None, entry
        text = clean(answer.content, self._family)
        traces = [trace for trace in (answer.reasoning, text.reasoning) if trace]
        text = replace(text, reasoning="\n".join(traces))
        entry["text"], entry["reasoning"] = text.text, text.reasoning
        entry["usage"] = answer.usage
        return result, answer, text, entry

    def _first_messages(
        self, snapshot: Snapshot, history: Sequence[ExecutedAction]
    ) -> list[Message]:
        system = self.config.system_prompt.replace("{lb_algorithm}", snapshot.algorithm)
        user = format_user_message(snapshot, history, self.config.observation)
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]

    def _request(self, messages: list[Message], tool_choice: str) -> dict[str, Any]:
        """Standard parameters directly, the runtime's own through the extension field (§4.4)."""
        config = self.config
        direct = {
            "model": config.model,
            "messages": messages,
            "tools": self._tools,
            "tool_choice": tool_choice,
            "temperature": config.temperature,
            "top_p": config.top_p,
            "max_tokens": config.max_tokens,
        }
        extra = {
            "top_k": config.top_k,
            "min_p": config.min_p,
            "repeat_penalty": config.repeat_penalty,
            "seed": config.seed,
            "chat_template_kwargs": dict(config.template_kwargs) or None,
            **config.extra_body,
        }
        request = {key: value for key, value in direct.items() if value is not None}
        request["extra_body"] = {key: value for key, value in extra.items() if value is not None}
        return request


def _lost(answer: Answer | None, text: CleanText | None) -> str | None:
    """Why an answer without tool calls says nothing at all, or None."""
    if answer is None or text is None or answer.calls:
        return None
    if answer.finish_reason == "length":
        return "finish_reason=length: the answer was cut before it called a tool"
    if not text.text and not text.tool_markup:
        return "empty answer"
    return None


def _check(
    answer: Answer, text: CleanText, servers: Sequence[ServerView]
) -> tuple[list[CheckedCall], tuple[str, ...]]:
    """Every call checked, and all that was wrong, in words."""
    calls = answer.calls[:MAX_CALLS]
    checked = [check_call(call.name, call.arguments, servers) for call in calls]
    problems = [
        f"call {number} ({call.name}): {call.error}"
        for number, call in enumerate(checked, start=1)
        if call.error is not None
    ]
    if len(answer.calls) > MAX_CALLS:
        problems.append(f"{len(answer.calls) - MAX_CALLS} calls beyond {MAX_CALLS} were not read")
    problems += [f"tool call written as text, not executed: {m[:200]}" for m in text.tool_markup]
    return checked, tuple(problems)


def _replay(answer: Answer, text: CleanText, checked: Sequence[CheckedCall]) -> list[Message]:
    """The assistant's message and one result per call.

    Arguments are serialised anew from what was checked, never replayed as they came: a truncated
    JSON text in the history makes every later turn an HTTP 500.
    """
    pairs = list(zip(answer.calls, checked, strict=False))
    calls = [
        {
            "id": raw.id,
            "type": "function",
            "function": {"name": call.name, "arguments": json.dumps(call.arguments)},
        }
        for raw, call in pairs
    ]
    results: list[Message] = [
        {"role": "tool", "tool_call_id": raw.id, "content": call.result_json()}
        for raw, call in pairs
    ]
    return [{"role": "assistant", "content": text.text, "tool_calls": calls}, *results]
