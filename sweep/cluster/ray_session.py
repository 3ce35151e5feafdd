"""Ray on this machine, for as long as a sweep lasts."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sweep.cluster.guard import Guard

NAMESPACE = "drainbench"

OBJECT_STORE_BYTES = 100 * 2**20
"""Only configurations and reports travel through it."""


@dataclass(frozen=True)
class RaySession:
    """A started Ray."""

    dashboard_url: str | None


@contextmanager
def ray_session(*, dashboard: bool) -> Iterator[RaySession]:
    """Start Ray here, and stop it whatever happens.

    `address="local"`: a stale record of another cluster would make a plain init hang.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    guard = Guard()
    guard.start()
    try:
        yield from _started(dashboard)
    finally:
        guard.release()


def _started(dashboard: bool) -> Iterator[RaySession]:
    import ray

    context = ray.init(
        address="local",
        namespace=NAMESPACE,
        include_dashboard=dashboard,
        log_to_driver=False,
        logging_level=logging.ERROR,
        object_store_memory=OBJECT_STORE_BYTES,
        configure_logging=True,
    )
    try:
        url = context.dashboard_url
        yield RaySession(f"http://{url}" if url else None)
    finally:
        ray.shutdown()
