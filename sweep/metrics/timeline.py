"""Who was drained when: time to action and to resolution, flips, end state (paper, §3.4).

All functions take the frame `states` (time_s, server, drained; `frames.STATES_SCHEMA`), one row
for every executed action in order. Every server starts active.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl


def per_server(states: pl.DataFrame) -> pl.DataFrame:
    """One row per server that was acted on: first_drain_s, transitions, flips, final_drained.

    Actions collapse into a timeline of drained / active. `transitions` counts its changes, `flips`
    those after the first; `first_drain_s` is null for a server that was never drained.
    """
    return (
        states.with_columns(
            changed=pl.col("drained") != pl.col("drained").shift(1, fill_value=False).over("server")
        )
        .group_by("server", maintain_order=True)
        .agg(
            first_drain_s=pl.col("time_s").filter(pl.col("drained")).first(),
            transitions=pl.col("changed").sum().cast(pl.Int32),
            flips=(pl.col("changed").sum().cast(pl.Int32) - 1).clip(lower_bound=0),
            final_drained=pl.col("drained").last(),
        )
        .sort("server")
    )


def ever_drained(servers: pl.DataFrame) -> frozenset[str]:
    """The prediction P: servers that were drained, or weighted to zero, at least once."""
    return frozenset(servers.filter(pl.col("first_drain_s").is_not_null())["server"].to_list())


def final_drained(servers: pl.DataFrame) -> frozenset[str]:
    """Servers that the run left drained."""
    return frozenset(servers.filter(pl.col("final_drained"))["server"].to_list())


def time_to_action_s(servers: pl.DataFrame, faulty: Collection[str]) -> float | None:
    """Seconds from run start to the first drain of any faulty server; None if there was none."""
    return _drains_of(servers, faulty).min()  # type: ignore[return-value]


def time_to_resolution_s(servers: pl.DataFrame, faulty: Collection[str]) -> float | None:
    """Seconds until every faulty server had been drained once; None if that never happened."""
    drains = _drains_of(servers, faulty)
    if not faulty or drains.len() < len(faulty):
        return None
    return drains.max()  # type: ignore[return-value]


def _drains_of(servers: pl.DataFrame, faulty: Collection[str]) -> pl.Series:
    return servers.filter(pl.col("server").is_in(list(faulty)))["first_drain_s"].drop_nulls()


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
    on_faulty = pl.col("server").is_in(list(faulty))
    flips_faulty = int(servers.filter(on_faulty)["flips"].sum())
    flips_healthy = int(servers.filter(~on_faulty)["flips"].sum())
    healthy = len(set(slots) - set(faulty))
    return Stability(
        flips=flips_faulty + flips_healthy,
        oscillating_servers=int((servers["flips"] >= 2).sum()),
        faulty_flip_rate=flips_faulty / len(faulty) if faulty else None,
        healthy_flip_rate=flips_healthy / healthy if healthy else None,
        end_state_correct=final_drained(servers) == frozenset(faulty),
    )
