"""CPU sets: the load generator, HAProxy and the backends on cores of their own.

CFS quotas throttle below the quota and time sharing puts one component's latency into another's,
so where there are enough cores each of the three gets its own, and no two testbeds of one host
share any. Leases are file locks, which the kernel drops with the process that holds them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

LEAST_CORES = 4


@dataclass(frozen=True)
class CpuPlan:
    """Disjoint sets of CPU numbers. `side` holds Prometheus, Redis and the Data Plane API."""

    k6: tuple[int, ...]
    haproxy: tuple[int, ...]
    backends: tuple[int, ...]
    side: tuple[int, ...]

    def of(self, component: str) -> str:
        """The set of `component` in Docker's notation."""
        return ",".join(map(str, self._set(component)))

    def count(self, component: str) -> int:
        """How many CPUs `component` may use."""
        return len(self._set(component))

    def _set(self, component: str) -> tuple[int, ...]:
        return getattr(self, component, self.side)


def cores_wanted(backends: int) -> int:
    """Cores that a fleet of `backends` can use: see `plan`."""
    k6, fleet = _k6_cores(backends), _fleet_cores(backends)
    return k6 + 1 + fleet + 1


def _k6_cores(backends: int) -> int:
    # 10 VUs per backend cost k6 some 0.1 core with telemetry; twice that keeps its tail out.
    return max(1, -(-backends * 2 // 10))


def _fleet_cores(backends: int) -> int:
    # One backend at 250 requests per second costs a little under a third of a core.
    return max(1, -(-backends * 3 // 10))


def plan(cpus: Sequence[int], backends: int) -> CpuPlan | None:
    """Share `cpus` out, in order; None where there are too few for disjoint sets.

    Surplus cores stay unused: other testbeds of this host take them. With less than what is
    wanted, k6 and HAProxy keep at least a core each and the fleet takes what is left.
    """
    if len(cpus) < LEAST_CORES:
        return None
    mine = tuple(cpus[: cores_wanted(backends)])
    spare = len(mine) - LEAST_CORES
    k6 = 1 + min(_k6_cores(backends) - 1, spare // 3)
    return CpuPlan(mine[:k6], mine[k6 : k6 + 1], mine[k6 + 2 :], mine[k6 + 1 : k6 + 2])


class CpuLease:
    """CPUs of this host that no other testbed uses, until `release` or the process's death."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(tempfile.gettempdir()) / f".drainbench-cpus-{os.getuid()}"
        self._locks: list[IO[str]] = []

    def take(self, available: Sequence[int], wanted: int) -> list[int]:
        """Lock up to `wanted` of `available`; fewer where others hold them."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        taken: list[int] = []
        for cpu in available:
            if len(taken) == wanted:
                break
            lock = (self._folder / str(cpu)).open("w")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.close()
                continue
            self._locks.append(lock)
            taken.append(cpu)
        return taken

    def release(self) -> None:
        """Give every CPU back."""
        for lock in self._locks:
            with contextlib.suppress(OSError):
                lock.close()
        self._locks.clear()
