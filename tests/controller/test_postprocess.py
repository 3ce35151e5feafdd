"""Reasoning and tool-call markup, family by family (paper, §4.4)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policies.postprocess import FAMILIES, clean, family

HERMES = '<tool_call>\n{"name": "drain"}\n</tool_call>'
XML = (
    "<tool_call>\n<function=drain>\n<parameter=server>\napi-1\n</parameter>\n"
    "</function>\n</tool_call>"
)
GEMMA = '<|tool_call>call:drain{server:<|"|>api-1<|"|>}<tool_call|>'
HARMONY = (
    "<|start|>assistant<|channel|>commentary to=functions.drain <|constrain|>json"
    '<|message|>{"server": "api-1"}<|call|>'
)


@pytest.mark.parametrize(
    ("name", "content", "text", "reasoning", "calls"),
    [
        ("none", "<think>x</think> y", "<think>x</think> y", "", 0),
        ("qwen3", "<think>\nweigh\n</think>\n\nDone.", "Done.", "weigh", 0),
        ("qwen3", "<think>\n\n</think>\n\nDone.", "Done.", "", 0),
        ("qwen3", "opened by the template</think>Done.", "Done.", "opened by the template", 0),
        ("qwen3", "<think>cut by the limit", "", "cut by the limit", 0),
        ("qwen3", "<think>a</think>b<think>c</think>d", "bd", "a\nc", 0),
        ("qwen3", f"Go.\n{HERMES}\n{HERMES}", "Go.", "", 2),
        ("qwen3", "Go.<tool_call>{cut", "Go.", "", 1),
        ("qwen3.5", f"Go.\n{XML}", "Go.", "", 1),
        ("qwen3", "Done.<|im_end|>", "Done.", "", 0),
        ("gemma4", f"<|channel>thought\nhm<channel|>Go.{GEMMA}", "Go.", "hm", 1),
        ("gemma4", "<|channel>thought\n<channel|>Go.<turn|>", "Go.", "", 0),
        ("granite", f"<think>a</think><response>Go.</response>{HERMES}", "Go.", "a", 1),
        ("granite", 'Go.<|tool_call|>[{"name": "drain"}]<|end_of_text|>', "Go.", "", 1),
        (
            "gpt-oss",
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final"
            "<|message|>Go.<|return|>",
            "Go.",
            "hm",
            0,
        ),
        ("gpt-oss", f"<|channel|>analysis<|message|>hm<|end|>{HARMONY}", "", "hm", 1),
        ("gpt-oss", "Go.<|end|>", "Go.", "", 0),
    ],
)
def test_texts_are_split(name: str, content: str, text: str, reasoning: str, calls: int) -> None:
    cleaned = clean(content, family(name))
    assert cleaned.text == text
    assert cleaned.reasoning == reasoning
    assert len(cleaned.tool_markup) == calls


def test_none_means_nothing_is_stripped() -> None:
    assert clean(" a ", family(None)).text == "a"
    with pytest.raises(KeyError, match="known: none, qwen3"):
        family("llama")


_PIECES = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<|channel|>analysis<|message|>",
    "<|end|>",
    "<|channel>thought",
    "<channel|>",
    "<|tool_call|>",
    "to=functions.x",
    "a",
]


@given(
    st.sampled_from(sorted(FAMILIES)), st.lists(st.sampled_from(_PIECES), max_size=30).map(" ".join)
)
def test_any_mix_of_markup_is_survived(name: str, content: str) -> None:
    cleaned = clean(content, family(name))
    if name.startswith("qwen"):
        assert "<think>" not in cleaned.text
        assert "<tool_call>" not in cleaned.text


def _cpu_s(content: str, name: str) -> float:
    spent = []
    for _ in range(3):
        before = time.process_time()
        clean(content, family(name))
        spent.append(time.process_time() - before)
    return min(spent)


@pytest.mark.parametrize("name", sorted(FAMILIES))
@pytest.mark.parametrize(
    "piece",
    [
        " ",
        "a",
        "<",
        "to=functions.",
        "to=functions.<|channel|>",
        "<|channel|>to=functions.a ",
        "<function=",
        "<tool_call>",
        "<|tool_call|>",
        "<think></think>",
        "<|channel>thought",
        "<|channel|>analysis<|message|><|end|>",
    ],
)
def test_no_text_takes_more_than_its_length(piece: str, name: str) -> None:
    """A model that repeats itself must not hold up the process that also watches its run."""
    short, long = (_cpu_s(piece * (length // len(piece)), name) for length in (1_000, 16_000))
    # 16 where the effort grows with the length, 256 where it grows with its square.
    assert long < 90 * max(short, 50e-6)
