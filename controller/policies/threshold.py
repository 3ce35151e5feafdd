"""The rule that an engineer would write in an afternoon: the reference that a model has to beat.

It follows the system prompt's own rules (paper, §4.5) on the same snapshot, under the same
guardrails:

* a server whose 5xx rate is above zero and persists has its weight halved, step by step, and is
  drained when halving has not cured it (or would go below 1);
* a server that stays clean is brought back gradually;
* a drained server has no traffic, so its rate of 0 is no evidence. It is probed after a while, and
  when errors come back it is drained at once and the next probe waits twice as long.

It keeps itself within the caps of a step, worst server first, and never drains below a share of the
fleet: when most servers fail, draining them is not the answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.api import Action, Decision, ExecutedAction, ServerView, Snapshot


@dataclass(frozen=True)
class ThresholdParams:
    """Parameters of the rule; counts are in control intervals."""

    min_errors_per_s: float = 0.05
    """Rates below are noise: what the observation shows as 0.0."""
    persist_intervals: int = 2
    """Consecutive erroring intervals before the first halving."""
    halvings_before_drain: int = 2
    """Halvings that are tried before a drain: 100, 50, 25, drained."""
    clean_intervals: int = 3
    """Consecutive clean intervals before each step back towards the full weight."""
    probe_after_s: float = 300.0
    """Time a drained server stays out before it is tried again; doubles with every relapse."""
    probation_intervals: int = 12
    """Intervals after a probe in which one erroring interval drains again: the 2 m rate window."""
    min_active_share: float = 0.5
    """Share of the fleet that always stays active."""
    max_actions: int = 3
    max_drains: int = 1
    max_weight_delta: int = 50
    """The guardrails' caps, kept by the rule itself so that no rail has to fire."""


@dataclass
class _Memory:
    """What the rule remembers of one server."""

    full_weight: int
    dirty: int = 0
    clean: int = 0
    halvings: int = 0
    drained_at_us: int | None = None
    relapses: int = 0
    probation: int = 0


@dataclass
class _Draft:
    """The plan of one step, kept within the caps."""

    params: ThresholdParams
    actions: list[Action] = field(default_factory=list)
    drains: int = 0

    def fits(self, kind: str) -> bool:
        """Whether one more action of `kind` keeps within the caps."""
        if len(self.actions) >= self.params.max_actions:
            return False
        return kind != "drain" or self.drains < self.params.max_drains

    def add(self, action: Action) -> None:
        """Add an action that fits."""
        self.actions.append(action)
        self.drains += action.kind == "drain"


class ThresholdPolicy:
    """`controller.api.Policy` of the rule; deterministic."""

    def __init__(self, params: ThresholdParams | None = None) -> None:
        self._params = params or ThresholdParams()
        self._memory: dict[tuple[str, str], _Memory] = {}

    def decide(self, snapshot: Snapshot, history: Sequence[ExecutedAction]) -> Decision:
        """The plan for this step."""
        for view in snapshot.servers:
            self._watch(view, snapshot.time_us)
        draft = _Draft(self._params)
        active = sum(view.admin_state == "ready" and view.up for view in snapshot.servers)
        floor = max(1, math.ceil(self._params.min_active_share * snapshot.servers_total))
        worst_first = sorted(snapshot.servers, key=lambda v: -(v.errors_per_s or 0.0))
        for view in worst_first:
            if view.admin_state == "ready" and self._is_dirty(view):
                self._contain(view, draft, may_drain=active - draft.drains > floor)
        for view in snapshot.servers:
            self._recover(view, draft, snapshot.time_us)
        return Decision(actions=tuple(draft.actions), rationale=_rationale(draft.actions))

    def close(self) -> None:
        """Nothing to free."""

    def _is_dirty(self, view: ServerView) -> bool:
        return (view.errors_per_s or 0.0) >= self._params.min_errors_per_s

    def _watch(self, view: ServerView, time_us: int) -> None:
        key = (view.backend, view.server)
        memory = self._memory.setdefault(key, _Memory(full_weight=max(1, view.weight)))
        memory.probation = max(0, memory.probation - 1)
        if self._is_dirty(view):
            memory.dirty, memory.clean = memory.dirty + 1, 0
        else:
            memory.dirty = 0
            # Unknown is not clean: only a measured rate counts as evidence.
            memory.clean = memory.clean + 1 if view.errors_per_s is not None else 0
        # What HAProxy says wins over what was planned: a drain may have been refused.
        if view.admin_state == "drain":
            memory.drained_at_us = memory.drained_at_us or time_us
        else:
            memory.drained_at_us = None

    def _contain(self, view: ServerView, draft: _Draft, may_drain: bool) -> None:
        """Halve, or drain when halving was not enough."""
        memory = self._memory[view.backend, view.server]
        relapsed = memory.probation > 0
        if not relapsed and memory.dirty < self._params.persist_intervals:
            return
        rate = f"5xx_rate={view.errors_per_s:.1f}/s"
        halved = max(view.weight // 2, view.weight - self._params.max_weight_delta)
        exhausted = memory.halvings >= self._params.halvings_before_drain or halved < 1
        if (relapsed or exhausted) and may_drain:
            if draft.fits("drain"):
                memory.relapses += relapsed
                reason = f"{rate} {'came back' if relapsed else 'persists at reduced weight'}"
                draft.add(Action("drain", view.backend, view.server, reason=reason))
            return
        if halved >= 1 and draft.fits("set_weight"):
            memory.halvings += 1
            reason = f"{rate} persists; halving weight from {view.weight}"
            draft.add(Action("set_weight", view.backend, view.server, halved, reason))

    def _recover(self, view: ServerView, draft: _Draft, time_us: int) -> None:
        """Bring back what stayed clean, one step at a time."""
        memory = self._memory[view.backend, view.server]
        if memory.clean < self._params.clean_intervals:
            return
        if view.admin_state == "drain" and memory.drained_at_us is not None:
            out_s = (time_us - memory.drained_at_us) / 1e6
            if out_s < self._params.probe_after_s * 2**memory.relapses or not draft.fits("enable"):
                return
            memory.probation, memory.clean = self._params.probation_intervals, 0
            reason = f"out for {out_s:.0f} s; probing for recovery"
            draft.add(Action("enable", view.backend, view.server, reason=reason))
        elif view.admin_state == "ready" and view.weight < memory.full_weight:
            if not draft.fits("set_weight"):
                return
            # Doubling mirrors the halving.
            reach = view.weight + self._params.max_weight_delta
            weight = min(memory.full_weight, max(1, view.weight) * 2, reach)
            memory.clean, memory.halvings = 0, max(0, memory.halvings - 1)
            reason = f"clean for {self._params.clean_intervals} intervals; restoring weight"
            draft.add(Action("set_weight", view.backend, view.server, weight, reason))


def _rationale(actions: Sequence[Action]) -> str:
    return "; ".join(f"{a.kind} {a.server}: {a.reason}" for a in actions) or "nothing to do"
