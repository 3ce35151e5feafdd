"""CPU time, memory and throttling of the containers, as the engine counts them.

A container's counters end with it, so whoever wants a component's total asks while it lives:
`Meter` keeps the highest values seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from docker.errors import APIError

from testbed.api import ComponentUsage
from testbed.docker.engine import Engine
from testbed.docker.plan import BACKEND_PREFIX


def parse(stats: Mapping[str, Any]) -> ComponentUsage | None:
    """One answer of the engine's stats; None when the container does not run (any more).

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

    def __init__(self) -> None:
        self._seen: dict[str, ComponentUsage] = {}

    def sample(self, engine: Engine, containers: Mapping[str, str]) -> None:
        """Ask for the counters of `containers` (component to id); what is gone keeps its last."""
        if not containers:
            return
        with ThreadPoolExecutor(len(containers)) as pool:
            answers = pool.map(lambda item: (item[0], _ask(engine, item[1])), containers.items())
            for component, usage in answers:
                if usage is not None:
                    self._keep(component, usage)

    def _keep(self, component: str, now: ComponentUsage) -> None:
        before = self._seen.get(component, now)
        self._seen[component] = ComponentUsage(
            max(before.cpu_s, now.cpu_s),
            max(before.max_rss_bytes, now.max_rss_bytes),
            max(before.throttled_s or 0.0, now.throttled_s or 0.0),
        )

    def usage(self) -> dict[str, ComponentUsage]:
        """By component, the backends summed."""
        return total(self._seen.items())


def _ask(engine: Engine, container: str) -> ComponentUsage | None:
    with suppress(APIError):
        return parse(engine.api.stats(container, stream=False, one_shot=True))
    return None
