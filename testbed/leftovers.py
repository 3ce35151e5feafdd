"""Finds testbeds on this machine and removes those whose owner is gone."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from testbed import procfs
from testbed.workdir import Process, WorkDir, existing

# An owner writes its record within moments of making the folder.
_UNCLAIMED_AFTER_S = 60.0


@dataclass(frozen=True)
class TestbedInfo:
    """A testbed as it is found on this machine."""

    id: str
    path: Path
    kind: str
    run_id: str
    owner: Process
    owner_alive: bool
    foreground: bool
    age_s: float
    running: tuple[str, ...]
    """Names of its components that still run."""

    __test__ = False


def list_testbeds() -> list[TestbedInfo]:
    """Every testbed of this user, oldest first."""
    found = []
    for folder in existing():
        owner = folder.owner()
        if owner is None:
            continue
        running = [
            name for name, child in folder.children().items() if owner.here() and child.alive()
        ]
        found.append(
            TestbedInfo(
                id=folder.name,
                path=folder.path,
                kind=owner.kind,
                run_id=owner.run_id,
                owner=owner.process,
                owner_alive=owner.alive(),
                foreground=owner.foreground,
                age_s=max(0.0, time.time() - owner.created_s),
                running=tuple(running),
            )
        )
    return sorted(found, key=lambda info: -info.age_s)


def sweep_leftovers() -> list[str]:
    """Kill what dead owners left running and remove their folders; return the ids removed.

    A testbed of a living owner is never touched, nor is a process that merely got the pid of a
    recorded one. Safe to call at any time, from several processes at once.
    """
    removed = []
    for folder in existing():
        owner = folder.owner()
        if owner is None:
            if _abandoned_draft(folder.path):
                folder.remove()
                removed.append(folder.name)
            continue
        if owner.alive():
            continue
        if owner.here():
            kill_children(folder)
        folder.remove()
        removed.append(folder.name)
    return removed


def kill_children(folder: WorkDir, wait_s: float = 5.0) -> None:
    """SIGKILL every recorded process (with its group) that still is the one that was recorded."""
    children = [child for child in folder.children().values() if child.alive()]
    for child in children:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    deadline = time.monotonic() + wait_s
    groups = {child.pid for child in children}
    while groups & procfs.living_groups().keys() and time.monotonic() < deadline:
        time.sleep(0.02)


def _abandoned_draft(path: Path) -> bool:
    """A folder without a record: made by an owner that died, or just being made, or not ours."""
    try:
        age_s = time.time() - path.stat().st_mtime
        names = {entry.name for entry in path.iterdir()}
    except OSError:
        return False
    return age_s > _UNCLAIMED_AFTER_S and names <= {"owner.json.new"}
