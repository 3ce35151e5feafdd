"""Intervals that were computed before: statsmodels and scipy take longer to import than to use.

Kept in `report_cache.json` at the root of the store; it may be deleted at any time. Keys are the
arguments themselves, so that an entry can't go stale.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import Any

from sweep.metrics import intervals
from sweep.metrics.intervals import Interval
from sweep.store.atomic import write_text

FILE = "report_cache.json"
VERSION = [1, intervals.RESAMPLES, intervals.BOOTSTRAP_SEED]
"""Entries that were computed otherwise are forgotten."""

MOST_ENTRIES = 5_000
"""Above this only what the present report needs is kept."""


class Intervals:
    """The intervals of `sweep.metrics.intervals`, remembered between reports."""

    def __init__(self, path: Path | None = None) -> None:
        """`path` is the file to remember them in; None: only in memory."""
        self._path = path
        self._known: dict[str, list[Any]] = {}
        self._used: set[str] = set()
        self._new = False
        if path is not None:
            with suppress(OSError, ValueError, KeyError, TypeError):
                stored = json.loads(path.read_text(encoding="utf-8"))
                if stored["version"] == VERSION:
                    self._known = dict(stored["intervals"])

    def wilson(self, count: int, n: int) -> Interval:
        """See `intervals.wilson`."""
        return self._get("wilson", count, n)

    def newcombe(self, count1: int, n1: int, count2: int, n2: int) -> Interval:
        """See `intervals.newcombe`."""
        return self._get("newcombe", count1, n1, count2, n2)

    def bootstrap(
        self, values: Sequence[float], statistic: intervals.Statistic = "median"
    ) -> Interval:
        """See `intervals.bootstrap`."""
        return self._get("bootstrap", sorted(values), statistic)

    def bootstrap_ratio(
        self, numerators: Sequence[float], denominators: Sequence[float]
    ) -> Interval:
        """See `intervals.bootstrap_ratio`."""
        pairs = sorted(zip(numerators, denominators, strict=True))
        return self._get("bootstrap_ratio", [a for a, _ in pairs], [b for _, b in pairs])

    def remember(self, name: str, key: Any, make: Callable[[], Any]) -> Any:
        """Result of `make` (JSON), remembered under a name and a key (JSON)."""
        digest = _digest(name, [key])
        self._used.add(digest)
        if digest not in self._known:
            self._known[digest], self._new = make(), True
        return self._known[digest]

    def save(self) -> None:
        """Write what is new; a store that can't be written is left as it is."""
        if self._path is None or not self._new:
            return
        kept = self._known
        if len(kept) > MOST_ENTRIES:
            kept = {k: v for k, v in kept.items() if k in self._used}
        with suppress(OSError):
            text = json.dumps({"version": VERSION, "intervals": kept}, allow_nan=False)
            write_text(self._path, text)

    def _get(self, name: str, *arguments: Any) -> Interval:
        digest = _digest(name, arguments)
        self._used.add(digest)
        if digest not in self._known:
            function = getattr(intervals, name)
            self._known[digest], self._new = list(astuple(function(*arguments))), True
        return Interval(*self._known[digest])


def _digest(name: str, arguments: Sequence[Any]) -> str:
    text = json.dumps([name, *arguments])
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
