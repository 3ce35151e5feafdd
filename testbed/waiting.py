"""Readiness as composable objects whose time-out explains itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.errors import Interrupted, StartTimeout

POLL_S = 0.05


class Condition(Protocol):
    """Something that becomes true."""

    what: str
    """What is awaited, as in `all 3 slots UP`."""
    hint: str
    """What to try when it does not come."""

    def probe(self) -> tuple[bool, str]:
        """Whether it holds now, and what was seen. Must not raise."""


@dataclass
class Probe:
    """A condition made of a function; what the function raises counts as not yet."""

    what: str
    check: Callable[[], tuple[bool, str]]
    hint: str

    def probe(self) -> tuple[bool, str]:
        """See `Condition`."""
        try:
            return self.check()
        except Exception as error:  # whatever it was, it is what was seen last
            return False, f"{type(error).__name__}: {error}"


@dataclass
class All:
    """Holds when every part holds; the parts are asked in order, the first that fails is named."""

    parts: Sequence[Condition]

    def __post_init__(self) -> None:
        self._pending: Condition = self.parts[0]

    @property
    def what(self) -> str:
        """What the first part that did not hold awaits."""
        return self._pending.what

    @property
    def hint(self) -> str:
        """Hint of the first part that did not hold."""
        return self._pending.hint

    def probe(self) -> tuple[bool, str]:
        """See `Condition`."""
        seen = ""
        for part in self.parts:
            holds, seen = part.probe()
            if not holds:
                self._pending = part
                return False, seen
        return True, seen


def wait_for(
    condition: Condition,
    deadline: float,
    interrupted: threading.Event,
    guard: Callable[[], None] = lambda: None,
    evidence: Callable[[], str] = lambda: "",
) -> None:
    """Poll until `condition` holds; `deadline` is on the monotonic clock.

    `guard` is called between polls and may raise, `evidence` gives log lines for the time-out.
    Raises `StartTimeout` or `Interrupted`.
    """
    started = time.monotonic()
    while True:
        guard()
        holds, seen = condition.probe()
        if holds:
            return
        if interrupted.wait(POLL_S):
            raise Interrupted(f"interrupted while waiting for {condition.what}")
        if time.monotonic() >= deadline:
            logs = evidence()
            raise StartTimeout(
                f"waited {time.monotonic() - started:.0f} s for {condition.what};"
                f" last seen: {seen or 'nothing'}; try: {condition.hint}"
                + (f"; last words: {logs}" if logs else "")
            )
