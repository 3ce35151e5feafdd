"""Prometheus' configuration (paper, §4.1: 1 s scrapes of HAProxy and of every backend)."""

from __future__ import annotations

import json
from collections.abc import Sequence


def render_static(haproxy: str, backends: Sequence[str], interval_s: float) -> str:
    """prometheus.yml with fixed `host:port` targets; JSON, which is YAML too."""
    interval = f"{round(interval_s * 1000)}ms"
    return json.dumps(
        {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [
                {"job_name": "haproxy", "static_configs": [{"targets": [haproxy]}]},
                {"job_name": "backend", "static_configs": [{"targets": list(backends)}]},
            ],
        },
        indent=2,
    )


def render_dns(haproxy: tuple[str, int], fleet: tuple[str, int], interval_s: float) -> str:
    """prometheus.yml that finds its targets by DNS: (name, port) of HAProxy and of the fleet.

    The scrape set tracks the fleet at any scale (paper, §4.1).
    """
    interval = f"{round(interval_s * 1000)}ms"

    def discovered(name: str, port: int) -> list[dict[str, object]]:
        return [{"names": [name], "type": "A", "port": port, "refresh_interval": "1s"}]

    return json.dumps(
        {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [
                {"job_name": "haproxy", "dns_sd_configs": discovered(*haproxy)},
                {"job_name": "backend", "dns_sd_configs": discovered(*fleet)},
            ],
        },
        indent=2,
    )
