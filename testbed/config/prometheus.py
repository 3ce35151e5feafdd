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
