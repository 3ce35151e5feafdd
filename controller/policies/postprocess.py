"""Strips reasoning and tool-call markup from a model's text, family by family (paper, §4.4).

The server normally parses reasoning and calls itself; what is cut here is what it left in the
content. Reasoning goes into one field whatever its markup was. Tool calls that exist only as text
are removed and reported, never executed: what the server did not recognise as a call was not one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class CleanText:
    """A content in its three parts."""

    text: str
    reasoning: str
    tool_markup: tuple[str, ...]
    """Tool calls written as text, as the model wrote them."""


@dataclass(frozen=True)
class Family:
    """The markup of one family.

    `reasoning` pairs open and close a trace. `tool_calls` match one call each, `noise` what carries
    no meaning. All are applied in order, on top of those that every family gets.
    """

    reasoning: tuple[tuple[str, str], ...] = ()
    tool_calls: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()


# A block that was cut by max_tokens has no end: `\Z` closes it. What a model writes must not make
# a pattern look at the same text again and again: no run without a bound may fail to match.
_HERMES_CALL = r"<tool_call>.*?(?:</tool_call>|\Z)"
_XML_CALL = r"<function=[^>]{0,200}>.*?(?:</function>|\Z)"

_THINK = ("<think>", "</think>")

_QWEN = Family(
    reasoning=(_THINK,),
    tool_calls=(_HERMES_CALL, _XML_CALL),
    noise=(r"</?tool_call>", r"<\|im_(?:start|end)\|>(?:assistant)?", r"<\|endoftext\|>"),
)

FAMILIES: dict[str, Family] = {
    "none": Family(),
    "qwen3": _QWEN,
    "qwen3.5": _QWEN,
    "gemma4": Family(
        reasoning=(("<|channel>thought", "<channel|>"), _THINK),
        tool_calls=(r"<\|tool_call>.*?(?:<tool_call\|>|\Z)", r"```tool_code\n.*?(?:```|\Z)"),
        noise=(
            r"<\|?tool_response\|?>",
            r"<\|channel>\w*|<channel\|>",
            r"<\|turn>(?:model)?|<turn\|>|<\|think\|>",
            r"<(?:start|end)_of_turn>(?:model)?",
        ),
    ),
    "granite": Family(
        reasoning=(_THINK,),
        tool_calls=(_HERMES_CALL, r"<\|tool_call\|>.*?(?=<\||\Z)"),
        noise=(
            r"</?tool_call>",
            r"</?response>",
            r"<\|(?:start|end)_of_(?:role|text)\|>(?:assistant)?",
        ),
    ),
    "gpt-oss": Family(
        reasoning=(("<|channel|>analysis<|message|>", "<|end|>"),),
        tool_calls=(
            # Spaces are taken from the first of a run on, not tried from each of them.
            r"(?:<\|start\|>assistant)?(?:<\|channel\|>\w+)?(?<!\s)\s*to=functions\.[^<]{0,200}"
            r"(?:<\|channel\|>[^<]{0,200})?(?:<\|constrain\|>[^<]{0,200})?<\|message\|>"
            r".*?(?:<\|call\|>|\Z)",
            r"<\|channel\|>commentary to=functions.*?(?:<\|call\|>|\Z)",
        ),
        noise=(
            r"<\|start\|>assistant",
            r"<\|channel\|>(?:final|commentary|analysis)?",
            r"<\|(?:start|end|message|return|call|constrain)\|>",
        ),
    ),
}


def family(name: str | None) -> Family:
    """The family called `name`; None is `none`. KeyError names the known ones."""
    try:
        return FAMILIES[name or "none"]
    except KeyError:
        raise KeyError(f"unknown post-processing {name!r}; known: {', '.join(FAMILIES)}") from None


def clean(content: str, markup: Family) -> CleanText:
    """Split `content` into text, reasoning and tool calls written as text."""
    traces: list[str] = []
    for opening, closing in markup.reasoning:
        content, found = _take_reasoning(content, opening, closing)
        traces += found
    calls: list[str] = []
    for pattern in markup.tool_calls:
        calls += re.findall(pattern, content, re.DOTALL)
        content = re.sub(pattern, "", content, flags=re.DOTALL)
    for pattern in markup.noise:
        content = re.sub(pattern, "", content)
    reasoning = "\n".join(trace.strip() for trace in traces if trace.strip())
    return CleanText(content.strip(), reasoning, tuple(calls))


def _take_reasoning(content: str, opening: str, closing: str) -> tuple[str, list[str]]:
    """Cut every trace out of `content`.

    A trace without an end was cut short: all the rest is reasoning. An end without a beginning
    follows a template that opens the trace in the prompt: all before it is reasoning.
    """
    traces = []
    kept = []
    head, found, tail = content.partition(closing)
    # gpt-oss ends every message with the same token, so there an end alone says nothing.
    if found and opening not in head and closing != "<|end|>":
        traces.append(head)
        content = tail
    done = 0
    while (begins := content.find(opening, done)) >= 0:
        kept.append(content[done:begins])
        begins += len(opening)
        ends = content.find(closing, begins)
        ends = len(content) if ends < 0 else ends
        traces.append(content[begins:ends])
        done = min(len(content), ends + len(closing))
    return "".join([*kept, content[done:]]), traces
