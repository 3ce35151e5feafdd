"""The static baseline: the loop runs, nothing is ever changed (paper, §3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from controller.api import Decision, ExecutedAction, Snapshot


class StaticPolicy:
    """Always returns an empty plan."""

    def decide(self, snapshot: Snapshot, history: Sequence[ExecutedAction]) -> Decision:
        """The empty plan."""
        return Decision(actions=())

    def close(self) -> None:
        """Nothing to free."""
