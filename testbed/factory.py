"""Makes testbeds by the name of their driver."""

from __future__ import annotations

import psutil

from testbed import programs
from testbed.api import Testbed, TestbedSpec
from testbed.errors import TestbedUnavailable

BACKEND_PROCESS_MIB = 30
"""Memory of one gunicorn process of a backend that is not shared with the others."""

KINDS = ("local", "docker")
"""Names of the drivers."""


def create(kind: str, spec: TestbedSpec, foreground: bool = False) -> Testbed:
    """A testbed of driver `kind`, not yet started. Raises `TestbedUnavailable`.

    `foreground` marks one made by hand, for `python -m testbed down`.
    """
    if kind == "local":
        from testbed.local.driver import LocalTestbed

        return LocalTestbed(spec, foreground)
    if kind == "docker":
        from testbed.docker.driver import DockerTestbed

        return DockerTestbed(spec, foreground)
    raise TestbedUnavailable(f"there is no testbed driver {kind!r}; there are: {', '.join(KINDS)}")


def check(kind: str, spec: TestbedSpec) -> list[str]:
    """Everything that keeps a testbed of `kind` from starting here, one line each; may be empty."""
    from testbed.load.result import planned_s  # Polars comes with it, which a plan never needs

    problems = []
    if spec.fleet.backends < 1:
        problems.append(f"a fleet of {spec.fleet.backends} backends: there must be 1 at least")
    if spec.fleet.workers < 1 or spec.fleet.threads < 1:
        problems.append("a backend needs 1 worker and 1 thread at least")
    if spec.load.vus < 1:
        problems.append(f"a load of {spec.load.vus} virtual users: there must be 1 at least")
    if spec.load.profile == "steady" and spec.load.duration_s < 1:
        problems.append(f"a load of {spec.load.duration_s} s: k6 wants 1 s at least")
    if spec.load.profile == "ramp" and abs(planned_s(spec.load) - spec.load.duration_s) > 1:
        problems.append(
            f"the stages of the load last {planned_s(spec.load):g} s,"
            f" but the run {spec.load.duration_s:g} s: they must be equal"
        )
    if not 0 <= spec.load.sleep_min_ms <= spec.load.sleep_max_ms:
        problems.append("the load's sleep must have 0 <= sleep_min_ms <= sleep_max_ms")
    if kind == "local":
        needed_mib = spec.fleet.backends * (1 + spec.fleet.workers) * BACKEND_PROCESS_MIB
        free_mib = psutil.virtual_memory().available // 2**20
        if needed_mib > free_mib:
            problems.append(
                f"a fleet of {spec.fleet.backends} backends takes some {needed_mib} MiB of memory,"
                f" and {free_mib} MiB are free"
            )
        return problems + programs.missing(configured=spec.programs, telemetry=spec.load.telemetry)
    if kind == "docker":
        from testbed.docker.preflight import problems_of

        return problems + problems_of(spec)
    return [*problems, f"there is no testbed driver {kind!r}; there are: {', '.join(KINDS)}"]
