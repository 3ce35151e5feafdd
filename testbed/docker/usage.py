"""CPU time, memory and throttling of a testbed's containers, by component.

A container's counters end with it, so they are read while it lives: `Meter` keeps the highest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

from docker.errors import APIError

from testbed.api import ComponentUsage
from testbed.docker.cgroups import Cgroup, of_process
from testbed.docker.cpus import CpuPlan
from testbed.docker.engine import Engine
from testbed.docker.plan import BACKEND_PREFIX


def parse_stats(stats: Mapping[str, Any]) -> ComponentUsage | None:
    """One answer of the engine's statistics; None when the container does not run (any more).

    Memory leaves out the page cache that the kernel would give back, as `docker stats` does.
    """
    cpu = stats.get("cpu_stats") or {}
    memory = stats.get("memory_stats") or {}
    total_ns = (cpu.get("cpu_usage") or {}).get("total_usage", 0)
    if not total_ns or "usage" not in memory:
        return None
    details = memory.get("stats") or {}
    cache = details.get("inactive_file", details.get("total_inactive_file", 0))
    throttled_ns = (cpu.get("throttling_data") or {}).get("throttled_time", 0)
    return ComponentUsage(
        cpu_s=total_ns / 1e9,
        max_rss_bytes=max(0, memory["usage"] - cache),
        throttled_s=throttled_ns / 1e9,
    )


def group_of(component: str) -> str:
    """What a container is counted under: the backends are one component."""
    return "backends" if component.startswith(BACKEND_PREFIX) else component


def total(parts: Iterable[tuple[str, ComponentUsage]]) -> dict[str, ComponentUsage]:
    """Sum by component."""
    sums: dict[str, ComponentUsage] = {}
    for component, usage in parts:
        name = group_of(component)
        before = sums.get(name, ComponentUsage(0.0, 0, 0.0))
        sums[name] = ComponentUsage(
            before.cpu_s + usage.cpu_s,
            before.max_rss_bytes + usage.max_rss_bytes,
            (before.throttled_s or 0.0) + (usage.throttled_s or 0.0),
        )
    return sums


class Meter:
    """Highest values seen of every container of a testbed."""

    def __init__(self, engine: Engine, cpus: CpuPlan | None = None) -> None:
        self._engine = engine
        self._cpus = cpus
        self._groups: dict[str, Cgroup | None] = {}
        self._seen: dict[str, ComponentUsage] = {}

    def sample(self, containers: Mapping[str, str], ask_engine: bool = False) -> None:
        """Read the counters of `containers` (component to id); what is gone keeps its last.

        `ask_engine` also asks for those that this host does not show, which takes a second.
        """
        hidden: dict[str, str] = {}
        for component, container in containers.items():
            group = self._group(component, container)
            if group is None:
                hidden[component] = container
            elif usage := group.usage():
                self._keep(component, usage)
        if hidden and ask_engine:
            with ThreadPoolExecutor(len(hidden)) as pool:
                for component, usage in zip(
                    hidden, pool.map(self._ask, hidden.values()), strict=True
                ):
                    if usage is not None:
                        self._keep(component, usage)

    def _group(self, component: str, container: str) -> Cgroup | None:
        if component not in self._groups:
            pid = 0
            with suppress(APIError):
                pid = self._engine.api.inspect_container(container)["State"]["Pid"]
            self._groups[component] = of_process(pid) if pid else None
        return self._groups[component]

    def _ask(self, container: str) -> ComponentUsage | None:
        with suppress(APIError):
            return parse_stats(self._engine.api.stats(container, stream=False, one_shot=True))
        return None

    def _keep(self, component: str, now: ComponentUsage) -> None:
        before = self._seen.get(component, now)
        self._seen[component] = ComponentUsage(
            max(before.cpu_s, now.cpu_s),
            max(before.max_rss_bytes, now.max_rss_bytes),
            max(before.throttled_s or 0.0, now.throttled_s or 0.0),
        )

    def usage(self) -> dict[str, ComponentUsage]:
        """By component, the backends summed."""
        found = total(self._seen.items())
        if self._cpus is None:
            return found
        return {name: replace(usage, cpus=self._cpus.count(name)) for name, usage in found.items()}
