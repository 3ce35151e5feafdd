"""Grid points and stores for tests that make real runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from hydra import compose, initialize_config_dir

from sweep.cluster.messages import Task
from sweep.grid import RunPoint, compose_grid
from sweep.store.attempts import AttemptBook
from sweep.store.paths import RunPaths, RunStore
from tests.requirements import require

CONF = Path(__file__).resolve().parents[2] / "conf"
BOUNDS = {"min_rate_ratio": 0.01, "max_load_cpu": 2.0}
"""A busy machine makes runs invalid; tests of something else don't care."""


def require_local_testbed() -> None:
    """Skip (or fail, where it must be there) without the programs of a local testbed."""
    for program in ("prometheus", "k6", "haproxy", "valkey"):
        require(program, _FINDERS.get(program))


def _find(name: str) -> Callable[[], object]:
    from testbed import programs

    return lambda: programs.find(name, {})


_FINDERS = {
    "prometheus": _find("prometheus"),
    "k6": _find("k6"),
    "haproxy": _find("haproxy"),
    "valkey": _find("redis"),
}


def point(*overrides: str) -> RunPoint:
    """One grid point of the real configuration."""
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        grid = compose_grid([list(overrides)], lambda rest: compose("config", overrides=rest))
    (only,) = grid.points
    return only


def open_task(root: Path, run: RunPoint) -> tuple[Task, RunPaths]:
    """A store with one open attempt at `run`."""
    store = RunStore(root)
    store.create()
    number = AttemptBook(store).open(run)
    task = Task(point=run, store=root, number=number, lease=None, bounds=BOUNDS)
    return task, store.attempt(run.run_id, number)


def descendants(pid: int, name: str) -> list[psutil.Process]:
    """Processes below `pid` whose command line begins with a program of that name."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        try:
            command = process.cmdline()
        except psutil.Error:
            continue
        if any(name in part for part in command[:3]):
            found.append(process)
    return found


def wait_until(condition: Callable[[], object], timeout_s: float, what: str) -> object:
    """Poll until `condition` is true; returns its value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    return pytest.fail(f"waited {timeout_s:g} s in vain for {what}")


def kill(process: psutil.Process) -> None:
    """SIGKILL a process that this test started, by pid."""
    os.kill(process.pid, signal.SIGKILL)
