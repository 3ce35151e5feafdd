"""What a run's configuration says of the world around its policy (config.yaml).

Fleet, load and testbed decide what doing nothing would have cost; the caps of the guardrails decide
what a plan may hold. Both are knobs, and a run is judged by its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from controller.guardrails import GuardrailLimits
from sweep.config.fingerprint import identity
from testbed.api import FleetSpec, ServerProfile

GROUPS = ("fleet", "load", "testbed")
"""Groups of the configuration that are the same for all policies that are compared."""

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Setting:
    """The world of one run."""

    digest: str
    """Equal where fleet, load and testbed are, but for knobs that can't change a result."""
    floor_rate: float
    """5xx rate by construction when nobody intervenes (paper, Table 5): a share of requests."""
    limits: GuardrailLimits


def read_setting(path: Path, scale: int, error_mode: str) -> Setting:
    """The setting of a run of `scale` backends from its config.yaml.

    Raises OSError, yaml.YAMLError, KeyError, TypeError or ValueError where it can't be used.
    """
    config: Mapping[str, Any] = yaml.load(path.read_text(encoding="utf-8"), _Loader)["config"]
    world = identity({group: config[group] for group in GROUPS})
    text = json.dumps(world, sort_keys=True, separators=(",", ":"), allow_nan=False)
    fleet = FleetSpec(
        backends=scale,
        profiles=tuple(ServerProfile(**profile) for profile in config["fleet"]["profiles"]),
        error_mode="error_off" if error_mode == "error_off" else "error_on",
        seed=0,
        workers=1,
        threads=1,
    )
    rates = [fleet.error_rate(instance) for instance in range(1, scale + 1)]
    limits = (config.get("controller") or {}).get("guardrails") or {}
    return Setting(
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        floor_rate=sum(rates) / scale,
        limits=GuardrailLimits(**limits),
    )
