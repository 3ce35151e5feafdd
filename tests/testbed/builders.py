"""Specifications for tests."""

from __future__ import annotations

import uuid
from typing import Any

from testbed.api import FleetSpec, LoadSpec, ServerProfile, TestbedSpec

PROFILES = (
    ServerProfile(base_ms=8, jitter_ms=3, error_rate=0.0),
    ServerProfile(base_ms=7, jitter_ms=2, error_rate=0.0),
    ServerProfile(base_ms=9, jitter_ms=4, error_rate=0.05),
)


def fleet(backends: int = 3, **changes: Any) -> FleetSpec:
    """The paper's fleet."""
    values: dict[str, Any] = {
        "profiles": PROFILES,
        "error_mode": "error_on",
        "seed": 42,
        "workers": 1,
        "threads": 4,
    }
    return FleetSpec(backends=backends, **(values | changes))


def load(vus: int = 9, duration_s: float = 3.0, **changes: Any) -> LoadSpec:
    """A light steady load."""
    values: dict[str, Any] = {
        "profile": "steady",
        "sleep_min_ms": 5.0,
        "sleep_max_ms": 50.0,
        "seed": 42,
    }
    return LoadSpec(vus=vus, duration_s=duration_s, **(values | changes))


def spec(backends: int = 3, load_spec: LoadSpec | None = None, **changes: Any) -> TestbedSpec:
    """A whole testbed, with a run id of its own."""
    values: dict[str, Any] = {
        "run_id": f"test-{uuid.uuid4().hex[:12]}",
        "algorithm": "leastconn",
        "fleet": fleet(backends),
        "load": load_spec or load(),
        "shuffle_seed": 42,
        "start_timeout_s": 120.0,
    }
    return TestbedSpec(**(values | changes))
