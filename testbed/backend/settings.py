"""The fleet's settings as environment variables: the same ones for every backend of a fleet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from testbed.api import FleetSpec, ServerProfile
from testbed.backend.behaviour import Behaviour

FLEET = "DRAINBENCH_FLEET"


def to_environment(fleet: FleetSpec) -> dict[str, str]:
    """What a backend has to find in its environment."""
    return {FLEET: json.dumps(asdict(fleet))}


def from_environment(environ: Mapping[str, str]) -> FleetSpec:
    """The inverse of `to_environment`. Raises KeyError when the variable is not set."""
    raw = json.loads(environ[FLEET])
    profiles = tuple(ServerProfile(**profile) for profile in raw.pop("profiles"))
    return FleetSpec(profiles=profiles, **raw)


def behaviour_of(fleet: FleetSpec, instance: int) -> Behaviour:
    """Behaviour of `instance`: its profile by i mod 3, and ⌊i/3⌋ ms on top (paper, Table 1)."""
    profile = fleet.profiles[instance % len(fleet.profiles)]
    return Behaviour(
        profile=profile,
        base_ms=profile.base_ms + instance // 3,
        error_rate=fleet.error_rate(instance),
        seed=fleet.seed,
        instance=instance,
    )
