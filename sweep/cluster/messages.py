"""What driver and actors tell each other: plain frozen data that survives pickling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sweep.grid import RunPoint

Outcome = Literal["complete", "infrastructure", "fatal", "interrupted", "storage"]


@dataclass(frozen=True)
class Lease:
    """The right of one attempt to use a warm model server.

    `epoch` grows with every server that is started: an answer from an older server can't be
    mistaken for one of this.
    """

    epoch: int
    base_url: str
    api_key: str = field(repr=False)
    model: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """One attempt at one run."""

    point: RunPoint
    store: Path
    number: int
    """Number of the attempt within the store, over all sweeps: names its folder."""
    lease: Lease | None
    bounds: Mapping[str, float]


@dataclass(frozen=True)
class Report:
    """How an attempt ended."""

    outcome: Outcome
    reason: str = ""
    testbed_lost: bool = False
    server_lost: bool = False
    notes: tuple[str, ...] = ()
    """Invalid reasons and warnings of a complete run."""


@dataclass(frozen=True)
class Progress:
    """Where a testbed worker is right now."""

    run_id: str = ""
    phase: str = "idle"
    step: int = 0
    steps: int = 0
    errors_per_s: float | None = None
    elapsed_s: float = 0.0
    duration_s: float = 0.0
