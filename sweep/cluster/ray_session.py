"""Ray on this machine, for as long as a sweep lasts."""

from __future__ import annotations

import logging
import os
import signal
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import psutil

from sweep.cluster.guard import Guard
from sweep.errors import RequestError
from sweep.signals import hangups_wait

NAMESPACE = "drainbench"

_Started = TypeVar("_Started")

_RAYS_WORDS = 300
"""Characters kept of what Ray says of a start that failed: it quotes whole logs."""

OBJECT_STORE_BYTES = 100 * 2**20
"""Only configurations and reports travel through it."""


@dataclass(frozen=True)
class RaySession:
    """A started Ray."""

    dashboard_url: str | None
    servants: tuple[psutil.Process, ...] = ()
    """Ray's raylet and GCS server, without which nothing is ever started again."""

    def alive(self) -> bool:
        """Whether they still run. Ray itself would wait for new ones for ever."""
        return all(_runs(process) for process in self.servants)


@contextmanager
def ray_session(*, dashboard: bool) -> Iterator[RaySession]:
    """Start Ray here, and stop it whatever happens.

    `address="local"`: a stale record of another cluster would make a plain init hang.
    Raises `RequestError` when Ray does not start.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray would make its workers nicer by 15, and with them all that is measured: whatever else the
    # machine does, its own dashboard too, would come before a run.
    os.environ.setdefault("RAY_worker_niceness", "0")
    guard = Guard()
    guard.start()
    try:
        yield from _started(dashboard)
    finally:
        guard.release()


def _started(dashboard: bool) -> Iterator[RaySession]:
    import ray

    on_sigterm = signal.getsignal(signal.SIGTERM)  # Ray takes it over, and would exit with 15
    try:
        with hangups_wait():
            url, servants = _first_success(lambda: _start_ray(dashboard), ray.shutdown)
        signal.signal(signal.SIGTERM, on_sigterm)
        yield RaySession(f"http://{url}" if url else None, servants)
    finally:
        ray.shutdown()


def _start_ray(dashboard: bool) -> tuple[str | None, tuple[psutil.Process, ...]]:
    """The dashboard's address and the servants; raises what Ray raises."""
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
    return context.dashboard_url, find_servants(psutil.Process().children())


def find_servants(children: Iterable[psutil.Process]) -> tuple[psutil.Process, ...]:
    """Raylet and GCS server among `children`.

    Raises `RuntimeError` when one is gone already: that it dies later would never be noticed.
    """
    found = {_name(child): child for child in children if _runs(child)}
    if gone := {"raylet", "gcs_server"} - found.keys():
        raise RuntimeError(f"its {' and '.join(sorted(gone))} died at once")
    return found["raylet"], found["gcs_server"]


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _first_success(start: Callable[[], _Started], undo: Callable[[], object]) -> _Started:
    """Ray gives itself 30 s, which a busy machine of two cores may exceed once.

    Ray raises plain exceptions: for no room and no port as well as for a machine that is too slow.
    Raises `RequestError` when the last try fails, too.
    """
    for last in (False, True):
        try:
            return start()
        except SystemExit as ended:  # what Ray makes of a SIGTERM while it starts
            raise KeyboardInterrupt from ended
        except Exception as error:
            undo()
            if last:
                words = textwrap.shorten(str(error), _RAYS_WORDS, placeholder=" …")
                raise RequestError(
                    f"Ray did not start here: {words.rstrip('.')}. Nothing was run; "
                    "try again when the machine is less busy (logs: /tmp/ray/session_latest/logs)"
                ) from error
    raise AssertionError("the last try returns or raises")
