"""Wall time of a run by phase, for `summary.json`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Phases:
    """Measures phases; `on_enter` is told each one's name."""

    def __init__(self, on_enter: Callable[[str], None]) -> None:
        self._on_enter = on_enter
        self._began_s = time.monotonic()
        self._spent: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Measure the phase `name`."""
        self._on_enter(name)
        before = time.monotonic()
        try:
            yield
        finally:
            self._spent[name] = self._spent.get(name, 0.0) + time.monotonic() - before

    def seconds(self, duration_s: float) -> dict[str, float]:
        """Seconds by phase so far; `overhead` is all that was not measured duration."""
        total = time.monotonic() - self._began_s
        spent = {name: round(seconds, 3) for name, seconds in self._spent.items()}
        return {**spent, "overhead": round(total - duration_s, 3), "total": round(total, 3)}
