"""Bringing a model up so that runs may lease it: start, verify, warm up."""

from __future__ import annotations

from pathlib import Path

from serving.api import EndpointInfo, ModelEndpoint
from serving.endpoints import make_endpoint
from serving.probe import verify_modes, warm_up
from sweep.config.specs import ServingPlan


def bring_up(
    plan: ServingPlan, system_prompt: str, tools: list[dict], log_path: Path
) -> tuple[ModelEndpoint, EndpointInfo]:
    """Start the endpoint, verify that its modes differ (pitfall 15), warm it up (pitfall 21).

    Raises `serving.errors.ServingError`; nothing is left running then.
    """
    log_path.parent.mkdir(exist_ok=True)
    endpoint = make_endpoint(plan.model, plan.config, log_path)
    info = endpoint.start()
    try:
        if len(plan.model.modes) > 1 and plan.config.get("verify_modes", True):
            verify_modes(info, plan.model)
        warm_up(info, system_prompt, tools)
    except BaseException:
        endpoint.stop()
        raise
    return endpoint, info
