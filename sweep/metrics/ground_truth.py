"""Which slots are faulty, recovered after the run (paper, §3.4 "Ground truth")."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class GroundTruth:
    """The faulty set G of one run and the check of its cardinality."""

    faulty: frozenset[str]
    """Slots with a positive cumulative 5xx count in their last sample."""
    slots: tuple[str, ...]
    """All slots that HAProxy had, sorted."""
    expected: int

    @property
    def matches(self) -> bool:
        """Whether |G| is the number of faulty instances that the fleet was built with."""
        return len(self.faulty) == self.expected


def ground_truth(counters: pl.DataFrame, expected: int) -> GroundTruth:
    """Faulty slots of a run from `counters` (ts_us, slot, http_5xx_total; docs/run-store.md).

    The last sample of a slot counts, whatever the order of the rows.
    """
    last: dict[str, tuple[int, int]] = {}
    # A walk over a few thousand rows costs less than a query over them.
    columns = (counters[name].to_list() for name in ("slot", "ts_us", "http_5xx_total"))
    for slot, ts_us, total in zip(*columns, strict=True):
        last[slot] = max(last.get(slot, (0, 0)), (ts_us, total))
    faulty = frozenset(slot for slot, (_, total) in last.items() if total > 0)
    return GroundTruth(faulty, tuple(sorted(last)), expected)


def expected_faulty(scale: int, error_mode: str) -> int:
    """How many of `scale` instances are built faulty: every third one, i ≡ 2 (mod 3) (Table 5)."""
    if error_mode == "error_off":
        return 0
    return sum(i % 3 == 2 for i in range(1, scale + 1))
