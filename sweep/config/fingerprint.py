"""A run's identity beyond its id: a digest of everything that can change its result.

The list of what is left out is explicit and short; whatever is added to the configuration later
is part of the identity until someone says here that it can't change a result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

VERSION = 3
"""Grows when the rules below change (3: time-outs that only end a run, and what only models are
asked with, are no part of others), or what the code makes of an equal configuration (2: every run
has its own order of slots), so that old runs are not mixed with new ones unasked."""

RUN_TIME_KNOBS = frozenset(
    {
        # where, how many at a time, how patient: never what
        "sweep",
        "hydra",
        "testbed.programs",
        "testbed.start_timeout_s",
        "testbed.subnet_pool",
        "testbed.log_max_mib",
        "testbed.engine_timeout_s",
        "testbed.least_free_disk_mib",
        "serving.program",
        "serving.host",
        "serving.port",
        "serving.verify_modes",
        "serving.load_timeout_s",
        "serving.liveness_timeout_s",
        # past these a run has failed: no complete one was ever changed by them
        "controller.haproxy_timeout_s",
        "controller.telemetry.timeout_s",
        # names that people read
        "model.title",
    }
)

ONLY_FOR_LLM = (
    "serving",
    "prompt",
    "controller.observation",
    "controller.decision_deadline_s",
)
"""Groups and keys that no other kind of policy ever reads."""


def identity(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a resolved config that makes the fingerprint, flattened to dotted keys.

    The modes that a run does not use are left out: adding a mode to a model leaves its other
    runs what they were.
    """
    flat = _flatten(config)
    policy = flat.get("model.policy")
    chosen_mode = f"model.modes.{config.get('mode')}"
    kept = {}
    for key, value in flat.items():
        if _is_of(key, RUN_TIME_KNOBS) or (policy != "llm" and _is_of(key, ONLY_FOR_LLM)):
            continue
        if key.startswith("model.modes.") and not _is_of(key, (chosen_mode,)):
            continue
        kept[key] = value
    return kept


def _is_of(key: str, groups: Iterable[str]) -> bool:
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def fingerprint(config: Mapping[str, Any]) -> str:
    """`<version>-<16 hex digits>` of a resolved config."""
    canonical = json.dumps(
        identity(config), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return f"{VERSION}-{hashlib.sha256(canonical.encode()).hexdigest()[:16]}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """`key: old -> new` for every key of the identity in which two resolved configs differ."""
    before, after = identity(old), identity(new)
    absent = object()
    lines = []
    for key in sorted(before.keys() | after.keys()):
        left, right = before.get(key, absent), after.get(key, absent)
        if left != right or type(left) is not type(right):
            shown = ["(absent)" if v is absent else _short(v) for v in (left, right)]
            lines.append(f"{key}: {shown[0]} -> {shown[1]}")
    return lines


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _flatten(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys; lists and empty mappings are values of their own."""
    flat: dict[str, Any] = {}
    for key, value in node.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(_flatten(value, f"{name}."))
        else:
            flat[name] = value
    return flat
