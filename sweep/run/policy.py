"""From a run's configuration to the policy that the control loop asks."""

from __future__ import annotations

from typing import Any

from controller.api import Policy
from controller.config import ControllerConfig
from controller.policies import (
    LlmPolicy,
    LlmPolicyConfig,
    StaticPolicy,
    ThresholdParams,
    ThresholdPolicy,
)
from controller.tools import tool_schemas
from serving.registry import model_from_config
from sweep.cluster.messages import Lease
from sweep.errors import RequestError
from sweep.grid import RunPoint

RULES = {"threshold": (ThresholdPolicy, ThresholdParams)}
"""Rules by the name that `model.rule` gives: the policy and the dataclass of its parameters."""


def make_policy(point: RunPoint, lease: Lease | None) -> Policy:
    """The policy of a run; raises `RequestError` for a kind, rule or parameter that isn't known."""
    model = point.config["model"]
    match point.policy:
        case "static":
            return StaticPolicy()
        case "rule":
            return _rule(model)
        case "llm" if lease is not None:
            return LlmPolicy(llm_config(point, lease))
    raise RequestError(f"model.policy={point.policy}: choose llm, static or rule")


def check_policy(point: RunPoint) -> None:
    """Raise `RequestError` when `make_policy` would, without a model server."""
    if point.needs_server:
        prompt = point.config["prompt"]["system"]
        if not isinstance(prompt, str) or not prompt.strip():
            raise RequestError(f"prompt.system={prompt}: the text of a system prompt is needed")
        llm_config(point, Lease(0, "http://127.0.0.1/v1", ""))
    else:
        make_policy(point, None)


def llm_config(point: RunPoint, lease: Lease) -> LlmPolicyConfig:
    """Model, mode, prompt and sampling of an LLM run (paper, Table 4)."""
    model = model_from_config(point.config["model"])
    mode = model.mode(point.mode)
    controller = ControllerConfig.from_mapping(point.config["controller"])
    return LlmPolicyConfig(
        base_url=lease.base_url,
        api_key=lease.api_key,
        model=lease.model,
        system_prompt=point.config["prompt"]["system"],
        temperature=mode.sampling.temperature,
        top_p=mode.sampling.top_p,
        top_k=mode.sampling.top_k,
        min_p=mode.sampling.min_p,
        repeat_penalty=mode.sampling.repeat_penalty,
        template_kwargs=mode.template_kwargs,
        seed=point.seed,
        max_tokens=mode.max_tokens,
        deadline_s=controller.decision_deadline_s,
        postprocess=model.postprocess,
        observation=controller.observation,
    )


def system_prompt(point: RunPoint) -> str:
    """The system prompt as the model will see it, for the warm-up (pitfall 21)."""
    return point.config["prompt"]["system"].replace("{lb_algorithm}", point.algorithm)


def _rule(model: dict[str, Any]) -> Policy:
    name = model.get("rule")
    if name not in RULES:
        raise RequestError(f"model.rule={name}: known are {', '.join(sorted(RULES))}")
    policy, parameters = RULES[name]
    try:
        return policy(parameters(**(model.get("params") or {})))
    except TypeError as error:
        raise RequestError(f"model.params of {model['name']}: {error}") from error


__all__ = ["RULES", "check_policy", "llm_config", "make_policy", "system_prompt", "tool_schemas"]
