"""The controller's configuration, checked when it is composed (conf/controller/paper.yaml)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from controller.errors import RequestError
from controller.guardrails import GuardrailLimits
from controller.haproxy.socket import MAX_WEIGHT
from controller.observation import ObservationStyle
from controller.telemetry.prometheus import TelemetryConfig

_T = TypeVar("_T")


@dataclass(frozen=True)
class ControllerConfig:
    """Everything about the loop that a run depends on, except its policy and its duration."""

    interval_s: float = 10.0
    settle_s: float = 0.5
    decision_deadline_s: float = 60.0
    """Wall time that a model has for both turns of a step."""
    haproxy_timeout_s: float = 5.0
    """Of one exchange on the runtime socket."""
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    guardrails: GuardrailLimits = field(default_factory=GuardrailLimits)
    observation: ObservationStyle = field(default_factory=ObservationStyle)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> ControllerConfig:
        """Build from plain data. Raises `RequestError` naming the key that is wrong."""
        nested = {
            "telemetry": TelemetryConfig,
            "guardrails": GuardrailLimits,
            "observation": ObservationStyle,
        }
        plain = dict(values)
        for key, kind in nested.items():
            if key in plain:
                plain[key] = from_mapping(kind, plain[key], f"controller.{key}")
        config = from_mapping(cls, plain, "controller")
        config.check()
        return config

    def check(self) -> None:
        """Raise `RequestError` when a value makes no sense."""
        if self.interval_s <= 0 or self.settle_s < 0 or self.decision_deadline_s <= 0:
            raise RequestError("controller: interval_s and decision_deadline_s must be above 0")
        if self.settle_s >= self.interval_s:
            raise RequestError("controller: settle_s must be shorter than interval_s")
        if self.haproxy_timeout_s <= 0 or self.telemetry.timeout_s <= 0:
            raise RequestError(
                "controller: haproxy_timeout_s and telemetry.timeout_s must be above 0"
            )
        telemetry = self.telemetry
        if telemetry.resolution_s <= 0 or telemetry.rate_window_s <= 0:
            raise RequestError("controller.telemetry: windows must be above 0")
        if telemetry.lookback_s < telemetry.resolution_s:
            raise RequestError("controller.telemetry: lookback_s is shorter than resolution_s")
        limits = self.guardrails
        if min(limits.max_actions, limits.max_drains, limits.max_weight_delta) < 0:
            raise RequestError("controller.guardrails: caps can't be negative")
        if not 0 <= limits.min_weight <= limits.max_weight <= MAX_WEIGHT:
            raise RequestError(
                f"controller.guardrails: 0 <= min_weight <= max_weight <= {MAX_WEIGHT} must hold"
            )
        style = self.observation
        if min(style.series_points, style.trend_points) < 1 or style.history_actions < 0:
            raise RequestError(
                "controller.observation: series_points and trend_points must be above 0, "
                "history_actions can't be negative"
            )


def from_mapping(kind: type[_T], values: object, where: str) -> _T:
    """A dataclass of numbers from plain data; unknown keys and wrong types raise `RequestError`."""
    if not isinstance(values, Mapping):
        raise RequestError(f"{where}: expected a mapping, got {type(values).__name__}")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for key, value in values.items():
        if key not in fields:
            raise RequestError(f"{where}.{key}: unknown; known: {', '.join(fields)}")
        wanted = fields[key].type
        ok = {
            "int": type(value) is int,
            "float": type(value) in (int, float) and -math.inf < value < math.inf,
            "bool": type(value) is bool,
        }.get(str(wanted), True)
        if not ok:
            raise RequestError(f"{where}.{key}: expected {wanted}, got {value!r}")
    return kind(**values)
