"""Resolved configuration to the frozen specifications that the other rooms take.

Everything is checked here, before the first run starts: `RequestError` names the key.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from controller.config import ControllerConfig
from controller.errors import ControllerError
from serving.api import ModelSpec
from serving.endpoints import make_endpoint
from serving.errors import ServingError
from serving.registry import model_from_config
from sweep.errors import RequestError
from sweep.grid import RunPoint
from sweep.run.policy import check_policy
from testbed.api import FleetSpec, LoadSpec, ServerProfile, TestbedSpec
from testbed.factory import KINDS
from testbed.programs import PROGRAMS


@dataclass(frozen=True)
class ServingPlan:
    """How the model of a run is served."""

    model: ModelSpec
    config: Mapping[str, Any]
    """`conf/serving/*.yaml`, as `serving.endpoints.make_endpoint` takes it."""


_KEYS = frozenset(
    {"model", "testbed", "fleet", "load", "controller", "prompt", "serving"}
    | {"scale", "algorithm", "mode", "seed", "duration_s", "sweep"}
)
"""What a run is configured by: the groups of `conf/` and the keys of `conf/config.yaml`."""


def check_point(point: RunPoint) -> None:
    """Build every specification of a run once; raises `RequestError` naming run and key."""
    if unknown := sorted(point.config.keys() - _KEYS):
        raise RequestError(f"{unknown[0]} is no knob: nothing would read it; leave it out")
    try:
        testbed_kind(point)
        testbed_spec(point)
        duration_and_interval(point)
        controller_config(point)
        if point.needs_server:
            serving_plan(point)
        check_policy(point)
    except RequestError:
        raise
    except (
        *(AttributeError, KeyError, TypeError, ValueError),
        *(ServingError, ControllerError),
    ) as error:
        what = f"missing key {error}" if isinstance(error, KeyError) else str(error)
        raise RequestError(f"{point.run_id}: bad configuration: {what}") from error


def testbed_kind(point: RunPoint) -> str:
    """Driver of the testbed: `local` or `docker`."""
    kind = str(point.config["testbed"]["kind"])
    if kind not in KINDS:
        raise RequestError(f"testbed.kind={kind}: choose {' or '.join(KINDS)}")
    return kind


def duration_and_interval(point: RunPoint) -> tuple[float, float]:
    """Measured duration and control interval, in s."""
    duration = _positive(point.config["duration_s"], "duration_s")
    interval = _positive(point.config["controller"]["interval_s"], "controller.interval_s")
    if interval > duration:
        raise RequestError(
            f"duration_s={duration:g} is shorter than one control interval ({interval:g} s)"
        )
    return duration, interval


def controller_config(point: RunPoint) -> ControllerConfig:
    """Cadence, telemetry window and guardrails of a run (paper, §3.1, §4.3)."""
    return ControllerConfig.from_mapping(point.config["controller"])


def fleet_spec(point: RunPoint) -> FleetSpec:
    """The fleet of a run: errors are on but for the static error-off arm (paper, §3.3)."""
    fleet = point.config["fleet"]
    profiles = fleet["profiles"]
    if not isinstance(profiles, list) or not all(isinstance(p, Mapping) for p in profiles):
        raise RequestError(f"fleet.profiles={profiles}: a list of profiles is needed")
    if not profiles:
        raise RequestError("fleet.profiles is empty: one profile at least is needed")
    error_off = point.policy == "static" and point.mode == "error_off"
    return FleetSpec(
        backends=point.scale,
        profiles=tuple(_profile(p, f"fleet.profiles[{i}]") for i, p in enumerate(profiles)),
        error_mode="error_off" if error_off else "error_on",
        seed=point.seed,
        workers=_count(fleet["workers"], "fleet.workers"),
        threads=_count(fleet["threads"], "fleet.threads"),
    )


def _profile(values: Mapping[str, Any], key: str) -> ServerProfile:
    known = {field.name: field for field in fields(ServerProfile)}
    if unknown := [name for name in values if name not in known]:
        raise RequestError(f"{key}.{unknown[0]} is unknown: there are {', '.join(known)}")
    needed = [name for name, field in known.items() if field.default is MISSING]
    if absent := [name for name in needed if name not in values]:
        raise RequestError(f"{key}.{absent[0]} is missing: every profile needs {', '.join(needed)}")
    for name, value in values.items():
        number = _not_negative(value, f"{key}.{name}")
        if name in ("error_rate", "spike_probability") and number > 1:
            raise RequestError(f"{key}.{name}={value}: a share from 0 to 1 is needed")
        if known[name].type == "int" and not isinstance(value, int):
            raise RequestError(f"{key}.{name}={value}: a whole number is needed")
    return ServerProfile(**values)


def load_spec(point: RunPoint) -> LoadSpec:
    """The load of a run: offered load grows with the fleet (paper, §3.2.3)."""
    load = point.config["load"]
    duration, _ = duration_and_interval(point)
    if load["telemetry"] not in ("redis", "file"):
        raise RequestError(f"load.telemetry={load['telemetry']}: choose redis or file")
    if load["profile"] not in ("steady", "ramp"):
        raise RequestError(f"load.profile={load['profile']}: choose steady or ramp")
    stages = load.get("stages") or ()
    if not _are_pairs(stages) or (
        load["profile"] == "ramp" and not math.isclose(sum(share for share, _ in stages), 1.0)
    ):
        raise RequestError(
            "load.stages: a ramp needs [share of the duration, rate] pairs whose shares add up to 1"
        )
    least = _not_negative(load["sleep_min_ms"], "load.sleep_min_ms")
    most = _not_negative(load["sleep_max_ms"], "load.sleep_max_ms")
    if least > most:
        raise RequestError(
            f"load.sleep_min_ms={least:g} and load.sleep_max_ms={most:g}: "
            "the second must not be less than the first"
        )
    return LoadSpec(
        profile=load["profile"],
        vus=_count(load["vus_per_backend"], "load.vus_per_backend") * point.scale,
        duration_s=duration,
        sleep_min_ms=least,
        sleep_max_ms=most,
        seed=point.seed,
        telemetry=load["telemetry"],
        # Ramps are given as shares of the duration and rates per backend, so that one file fits
        # every duration and fleet.
        stages=tuple(
            (float(share) * duration, float(rate) * point.scale) for share, rate in stages
        ),
        start_rate_rps=_not_negative(
            load.get("start_rate_rps_per_backend") or 0.0, "load.start_rate_rps_per_backend"
        )
        * point.scale,
        request_timeout_s=_positive(load["request_timeout_s"], "load.request_timeout_s"),
    )


_FOR_EVERY_DRIVER = frozenset(
    {"kind", "initial_weight", "scrape_interval_s", "start_timeout_s", "programs"}
)
"""Keys of `testbed` that are fields of `TestbedSpec`; the others are knobs of one driver."""


def testbed_spec(point: RunPoint) -> TestbedSpec:
    """Everything that a testbed needs to know of a run."""
    testbed = point.config["testbed"]
    return TestbedSpec(
        run_id=point.run_id,
        algorithm=point.algorithm,
        fleet=fleet_spec(point),
        load=load_spec(point),
        shuffle_seed=shuffle_seed(point),
        initial_weight=int(testbed.get("initial_weight", 100)),
        scrape_interval_s=_positive(
            testbed.get("scrape_interval_s", 1.0), "testbed.scrape_interval_s"
        ),
        start_timeout_s=_positive(testbed["start_timeout_s"], "testbed.start_timeout_s"),
        programs=_programs(testbed.get("programs") or {}),
        options={k: v for k, v in testbed.items() if k not in _FOR_EVERY_DRIVER},
    )


def shuffle_seed(point: RunPoint) -> int:
    """Seed of the order of instances in HAProxy's slots: its own for every run (paper, §3.4).

    One order for all runs of a seed would score habits: a policy that always drains the first
    server would be right in every run of a fleet size, or wrong in every one. A repeated run has
    the order that it had.
    """
    return int.from_bytes(hashlib.sha256(f"slots:{point.run_id}".encode()).digest()[:8], "big")


def _programs(paths: Any) -> dict[str, str]:
    if not isinstance(paths, Mapping):
        raise RequestError(
            f"testbed.programs={paths}: paths by name are needed, as in testbed.programs.k6=/opt/k6"
        )
    for name, path in paths.items():
        if name not in PROGRAMS:
            raise RequestError(f"testbed.programs.{name}: there are {', '.join(PROGRAMS)}")
        if path is not None and not isinstance(path, str):
            raise RequestError(f"testbed.programs.{name}={path}: a path is needed")
    return {name: path for name, path in paths.items() if path}


def serving_plan(point: RunPoint) -> ServingPlan:
    """How the model of a run is served; only for runs that need a server."""
    model = model_from_config(point.config["model"])
    serving = point.config["serving"]
    make_endpoint(model, serving)  # an endpoint that can't be made is refused here
    return ServingPlan(model, serving)


def _positive(value: Any, key: str) -> float:
    if not _is_number(value) or value <= 0:
        raise RequestError(f"{key}={value}: a number above 0 is needed")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _not_negative(value: Any, key: str) -> float:
    if not _is_number(value) or value < 0:
        raise RequestError(f"{key}={value}: a number, 0 or more, is needed")
    return float(value)


def _are_pairs(stages: Any) -> bool:
    return isinstance(stages, list | tuple) and all(
        isinstance(stage, list | tuple) and len(stage) == 2 and all(map(_is_number, stage))
        for stage in stages
    )


def _count(value: Any, key: str) -> int:
    if not _positive(value, key).is_integer():
        raise RequestError(f"{key}={value}: a whole number is needed")
    return int(value)
