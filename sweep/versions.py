"""What was running where: versions and host, for the records."""

from __future__ import annotations

import os
import platform
import socket
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

PACKAGES = ("drainbench", "ray", "hydra-core", "polars", "openai", "prometheus-api-client")


def versions() -> dict[str, str]:
    """Versions of this project, Python and the packages that a result may depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def host() -> dict[str, Any]:
    """This machine: name, cores that this process may use, memory in bytes, system."""
    return {
        "name": socket.gethostname(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.platform(),
    }
