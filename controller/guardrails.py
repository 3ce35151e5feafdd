"""The safety floor between every policy and HAProxy (pure; paper, §3.1 and §4.3).

Per step at most three actions, at most one drain, and a weight change of at most ±50; executed
weights within HAProxy's [0, 256]. Rejects by default: what is not understood is dropped. Every
change to a plan is an `Intervention` with the rail's name and a reason.

How the rails read a plan:

* Actions are taken in the plan's order. `no_op` passes and counts for nothing.
* Invalid actions (an unknown kind, server or weight) are dropped and don't count against a cap. So
  are actions on a server in maintenance: somebody put it there, and `enable` would end that.
* The caps look at the plan as it was proposed, as the paper counts firings (Table 13): of more than
  three actions the first three may pass, of more than one drain the first. An action may break
  both, and is then named twice.
* A weight of 0 takes a server out of rotation like a drain does (paper, §3.4), so it counts as one.
* The delta is against the server's configured weight at the start of the step, so several changes
  of one server in a step can't add up to more than ±50.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controller.api import Action, GuardedPlan, Intervention, Rail, ServerView, Snapshot


@dataclass(frozen=True)
class GuardrailLimits:
    """Caps per step (paper, §3.1) and HAProxy's own range of weights."""

    max_actions: int = 3
    max_drains: int = 1
    max_weight_delta: int = 50
    min_weight: int = 0
    max_weight: int = 256


Servers = Mapping[tuple[str, str], ServerView]
"""Every server at the start of the step, by (backend, server)."""

_KINDS = ("set_weight", "drain", "enable", "no_op")


class Guardrails:
    """`guard` with its limits, on a snapshot."""

    def __init__(self, limits: GuardrailLimits | None = None) -> None:
        self.limits = limits or GuardrailLimits()

    def apply(self, plan: Sequence[Action], snapshot: Snapshot) -> GuardedPlan:
        """What of `plan` may be executed."""
        return guard(plan, snapshot.servers, self.limits)


def guard(
    plan: Sequence[Action], fleet: Sequence[ServerView], limits: GuardrailLimits
) -> GuardedPlan:
    """Drop and clamp until `plan` keeps within `limits`; total and idempotent."""
    servers = {(view.backend, view.server): view for view in fleet}
    passed: list[Action] = []
    interventions: list[Intervention] = []
    actions = drains = 0
    for index, proposed in enumerate(plan):
        objection = _objection(proposed, servers)
        if objection is not None:
            interventions.append(Intervention(objection[0], "dropped", index, objection[1]))
            continue
        if proposed.kind == "no_op":
            passed.append(proposed)
            continue
        action, clamps = _clamp(proposed, index, servers, limits)
        is_drain = _takes_out(action)
        actions += 1
        drains += is_drain
        drops = _over_caps(index, actions, drains, is_drain, limits)
        if drops:
            interventions += drops
            continue
        interventions += clamps
        passed.append(action)
    return GuardedPlan(tuple(passed), tuple(interventions))


def _objection(action: Action, servers: Servers) -> tuple[Rail, str] | None:
    """Why an action can't be considered at all, or None."""
    if action.kind not in _KINDS:
        return "invalid", f"unknown action {_quote(action.kind)}"
    if action.kind == "no_op":
        return None
    if not (isinstance(action.backend, str) and isinstance(action.server, str)):
        return "invalid", f"{action.kind} needs the names of a backend and a server"
    view = servers.get((action.backend, action.server))
    if view is None:
        return "unknown_server", f"no server {_quote(f'{action.backend}/{action.server}')}"
    if view.admin_state == "maint":
        return "invalid", f"{view.backend}/{view.server} is in maintenance, which only people end"
    if action.kind == "set_weight" and type(action.weight) is not int:
        return "invalid", f"weight {_quote(action.weight)} is not an integer"
    return None


def _clamp(
    action: Action, index: int, servers: Servers, limits: GuardrailLimits
) -> tuple[Action, list[Intervention]]:
    """The action with its weight brought into range and within reach of the current one."""
    if action.kind != "set_weight" or action.weight is None:
        return action, []
    interventions = []
    weight = _bounded(action.weight, limits.min_weight, limits.max_weight)
    if weight != action.weight:
        bounds = f"[{limits.min_weight}, {limits.max_weight}]"
        reason = f"weight {_quote(action.weight)} is outside {bounds}"
        interventions.append(Intervention("weight_range", "clamped", index, reason))
    current = servers[action.backend, action.server].weight
    reachable = _bounded(
        weight, current - limits.max_weight_delta, current + limits.max_weight_delta
    )
    if reachable != weight:
        limit = f"±{limits.max_weight_delta}"
        reason = f"{current} to {weight} is more than {limit}: {reachable} instead"
        interventions.append(Intervention("weight_clamp", "clamped", index, reason))
    return replace(action, weight=reachable), interventions


def _over_caps(
    index: int, actions: int, drains: int, is_drain: bool, limits: GuardrailLimits
) -> list[Intervention]:
    drops = []
    if actions > limits.max_actions:
        reason = f"action {actions} of a step that may hold {limits.max_actions}"
        drops.append(Intervention("action_cap", "dropped", index, reason))
    if is_drain and drains > limits.max_drains:
        reason = f"drain {drains} of a step that may hold {limits.max_drains}"
        drops.append(Intervention("drain_cap", "dropped", index, reason))
    return drops


def _takes_out(action: Action) -> bool:
    return action.kind == "drain" or (action.kind == "set_weight" and action.weight == 0)


def _bounded(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def _quote(value: object) -> str:
    """A proposed value for a reason, short whatever it is."""
    if type(value) is int and value.bit_length() > 256:
        return "a number of more than 256 bits"
    return repr(value)[:80]
