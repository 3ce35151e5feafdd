"""The configuration files of this room, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.addresses import is_loopback
from controller.config import ControllerConfig
from controller.errors import RequestError

CONF = Path(__file__).parents[2] / "conf"


def test_the_papers_file_is_the_default() -> None:
    values = yaml.safe_load((CONF / "controller" / "paper.yaml").read_text(encoding="utf-8"))
    assert ControllerConfig.from_mapping(values) == ControllerConfig()
    assert ControllerConfig().guardrails.max_weight_delta == 50
    assert ControllerConfig().telemetry.rate_window_s == 120


def test_the_prompt_has_its_place_for_the_algorithm() -> None:
    values = yaml.safe_load((CONF / "prompt" / "paper.yaml").read_text(encoding="utf-8"))
    assert set(values) == {"source", "system"}
    assert values["system"].count("{lb_algorithm}") == 1
    assert values["system"].startswith("You are the controller for an HAProxy load balancer")
    assert values["system"].endswith("gradually restore weight.")


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"interval": 10}, "controller.interval: unknown"),
        ({"telemetry": {"lookback": 1}}, "controller.telemetry.lookback: unknown"),
        ({"guardrails": {"max_drains": "1"}}, "expected int"),
        ({"guardrails": {"max_drains": True}}, "expected int"),
        ({"guardrails": 3}, "expected a mapping"),
        ({"interval_s": 0}, "above 0"),
        ({"interval_s": 10, "settle_s": 10}, "shorter than interval_s"),
        ({"interval_s": None}, "expected float"),
        ({"interval_s": float("nan")}, "expected float, got nan"),
        ({"decision_deadline_s": float("inf")}, "expected float, got inf"),
        ({"haproxy_timeout_s": 0}, "haproxy_timeout_s"),
        ({"telemetry": {"timeout_s": -1}}, "telemetry.timeout_s"),
        ({"telemetry": {"lookback_s": 10}}, "lookback_s is shorter than resolution_s"),
        ({"guardrails": {"max_weight_delta": -1}}, "can't be negative"),
        ({"guardrails": {"max_weight": 257}}, "max_weight <= 256"),
        ({"guardrails": {"min_weight": 20, "max_weight": 10}}, "min_weight <= max_weight"),
        ({"observation": {"series_points": 0}}, "series_points"),
        ({"observation": {"history_actions": -1}}, "history_actions"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], word: str) -> None:
    with pytest.raises(RequestError, match=word):
        ControllerConfig.from_mapping(values)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:9090", True),
        ("http://localhost/v1", True),
        ("http://[::1]:80", True),
        ("http://10.0.0.1", False),
        ("https://example.org/v1", False),
        ("nonsense", False),
    ],
)
def test_loopback(url: str, expected: bool) -> None:
    assert is_loopback(url) is expected
