"""`sweep.*`, checked: how a sweep is carried out, which is the same for its whole grid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sweep.errors import RequestError
from sweep.grid import RunPoint
from sweep.plan import OnMismatch


@dataclass(frozen=True)
class SweepSettings:
    """The knobs of `conf/config.yaml`, `sweep.*`; what each means is said there."""

    name: str
    dir: Path
    dry_run: bool
    testbeds: int
    start_at: str | None
    max_attempts: int
    on_mismatch: OnMismatch
    run_timeout_s: float | None
    min_free_disk_mib: float
    dashboard: bool
    min_rate_ratio: float
    max_load_cpu: float


def sweep_settings(points: Sequence[RunPoint]) -> SweepSettings:
    """The settings that all points share; raises `RequestError` naming the key."""
    values: Mapping[str, Any] = points[0].config["sweep"]
    if any(point.config["sweep"] != values for point in points):
        raise RequestError("sweep.* can't be an axis of the grid: give it one value")
    known = [field.name for field in fields(SweepSettings)]
    if unknown := [key for key in values if key not in known]:
        raise RequestError(f"unknown sweep.{unknown[0]}: there are {', '.join(known)}")
    for key in ("name", "dir"):
        # A name of digits only reaches us as a number.
        if isinstance(values[key], bool) or not isinstance(values[key], str | int):
            raise RequestError(f"sweep.{key}={values[key]}: the name of a folder is needed")
        if not str(values[key]).strip():
            raise RequestError(f"sweep.{key} is empty: the name of a folder is needed")
    for key in ("dry_run", "dashboard"):
        if not isinstance(values[key], bool):
            raise RequestError(f"sweep.{key}={values[key]}: choose true or false")
    for key in ("testbeds", "max_attempts"):
        if not _is_number(values[key], int) or values[key] < 1:
            raise RequestError(f"sweep.{key}={values[key]}: a whole number, at least 1, is needed")
    for key in ("min_free_disk_mib", "min_rate_ratio", "max_load_cpu"):
        if not _is_number(values[key]) or values[key] < 0:
            raise RequestError(f"sweep.{key}={values[key]}: a number, at least 0, is needed")
    limit = values["run_timeout_s"]
    if limit is not None and not (_is_number(limit) and limit > 0):
        raise RequestError(f"sweep.run_timeout_s={limit}: null or a number above 0 is needed")
    return SweepSettings(**{**values, "name": str(values["name"]), "dir": Path(str(values["dir"]))})


def _is_number(value: Any, kinds: Any = int | float) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
