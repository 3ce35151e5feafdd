"""Who was drained when: time to action and to resolution, flips, end state (paper, §3.4).

All functions take the frame `states` (time_s, server, drained; `frames.STATES_SCHEMA`), one row
for every executed action in order. Every server starts active.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

SERVERS_SCHEMA = pl.Schema(
    {
        "server": pl.String,
        "first_drain_s": pl.Float64,
        "transitions": pl.Int32,
        "flips": pl.Int32,
        "final_drained": pl.Boolean,
    }
)


def per_server(states: pl.DataFrame) -> pl.DataFrame:
    """One row per server that was acted on, as `SERVERS_SCHEMA`, ordered by name.

    Actions collapse into a timeline of drained / active. `transitions` counts its changes, `flips`
    those after the first; `first_drain_s` is null for a server that was never drained.
    """
    first: dict[str, float] = {}
    drained: dict[str, bool] = {}
    changes: dict[str, int] = {}
    # A walk, not an expression: a few dozen rows cost less than planning a query over them.
    columns = (states[name] for name in ("time_s", "server", "drained"))
    for time_s, server, state in zip(*columns, strict=True):
        changes[server] = changes.get(server, 0) + (state != drained.get(server, False))
        drained[server] = state
        if state:
            first.setdefault(server, time_s)
    rows = [
        (s, first.get(s), changes[s], max(0, changes[s] - 1), drained[s]) for s in sorted(drained)
    ]
    return pl.DataFrame(rows, schema=SERVERS_SCHEMA, orient="row")


def ever_drained(servers: pl.DataFrame) -> frozenset[str]:
    """The prediction P: servers that were drained, or weighted to zero, at least once."""
    return frozenset(_first_drains(servers))


def final_drained(servers: pl.DataFrame) -> frozenset[str]:
    """Servers that the run left drained."""
    pairs = zip(servers["server"], servers["final_drained"], strict=True)
    return frozenset(server for server, drained in pairs if drained)


def time_to_action_s(servers: pl.DataFrame, faulty: Collection[str]) -> float | None:
    """Seconds from run start to the first drain of any faulty server; None if there was none."""
    first = _first_drains(servers)
    return min((first[s] for s in faulty if s in first), default=None)


def time_to_resolution_s(servers: pl.DataFrame, faulty: Collection[str]) -> float | None:
    """Seconds until every faulty server had been drained once; None if that never happened."""
    first = _first_drains(servers)
    if not faulty or not set(faulty) <= set(first):
        return None
    return max(first[s] for s in faulty)


def _first_drains(servers: pl.DataFrame) -> dict[str, float]:
    pairs = zip(servers["server"], servers["first_drain_s"], strict=True)
    return {server: time_s for server, time_s in pairs if time_s is not None}


@dataclass(frozen=True)
class Stability:
    """How firmly a run stood by its decisions (paper, §3.4 "Stability")."""

    flips: int
    oscillating_servers: int
    """Servers with at least two flips."""
    faulty_flip_rate: float | None
    """Flips on faulty slots / number of faulty slots; None when there are none."""
    healthy_flip_rate: float | None
    """Flips on healthy slots / number of healthy slots; None when there are none."""
    end_state_correct: bool
    """Whether the final drained set equals the faulty set."""


def stability(servers: pl.DataFrame, faulty: Collection[str], slots: Collection[str]) -> Stability:
    """Flips of one run; `slots` are all slots of the fleet, `faulty` those of the ground truth."""
    flips = dict(zip(servers["server"], servers["flips"], strict=True))
    flips_faulty = sum(count for server, count in flips.items() if server in faulty)
    flips_healthy = sum(flips.values()) - flips_faulty
    healthy = len(set(slots) - set(faulty))
    return Stability(
        flips=flips_faulty + flips_healthy,
        oscillating_servers=sum(count >= 2 for count in flips.values()),
        faulty_flip_rate=flips_faulty / len(faulty) if faulty else None,
        healthy_flip_rate=flips_healthy / healthy if healthy else None,
        end_state_correct=final_drained(servers) == frozenset(faulty),
    )
