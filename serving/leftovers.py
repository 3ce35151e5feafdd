"""Records of running servers, so that what a dead owner left behind can be found and ended.

A server dies with its owner by itself. This is for the rest: a kernel that did not deliver the
parent-death signal, or an owner that was frozen and then killed. A record names server and owner
by pid, start time and boot, so that a pid that is reused is never taken for the server.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
from pathlib import Path

from serving.program import cache_dir

_KILL_WAIT_S = 10.0


def state_dir() -> Path:
    """Where the records are: one small JSON file per running server."""
    return cache_dir() / "running" / "llama-server"


def record(pid: int, title: str) -> Path:
    """Write the record of a server that this process owns; returns its path for `forget`."""
    owner = os.getpid()
    content = {
        "title": title,
        "boot_id": _boot_id(),
        "pid": pid,
        "start_ticks": start_ticks(pid),
        "owner_pid": owner,
        "owner_start_ticks": start_ticks(owner),
    }
    folder = state_dir()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{pid}.json"
    scratch = folder / f"{pid}.{owner}.tmp"
    scratch.write_text(json.dumps(content), encoding="utf-8")
    scratch.replace(path)
    return path


def forget(path: Path) -> None:
    """Remove a record; nothing happens when it is gone already."""
    path.unlink(missing_ok=True)


def sweep_leftovers() -> list[str]:
    """End servers whose owner is dead and remove stale records; returns what was ended."""
    ended = []
    for path in sorted(state_dir().glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            server = (int(content["pid"]), int(content["start_ticks"]))
            owner = (int(content["owner_pid"]), int(content["owner_start_ticks"]))
            same_boot = content["boot_id"] == _boot_id()
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            forget(path)
            continue
        if same_boot and _runs(*owner):
            continue
        if same_boot and _kill(*server):
            ended.append(f"{content['title']} (pid {server[0]})")
        forget(path)
    return ended


def start_ticks(pid: int) -> int | None:
    """Clock ticks after boot at which process `pid` started; None when it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in brackets and may hold spaces and brackets.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def _runs(pid: int, ticks: int) -> bool:
    return start_ticks(pid) == ticks


def _kill(pid: int, ticks: int) -> bool:
    """SIGKILL to exactly this process, waiting for its end; False when it is not there."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # The handle holds on to one process: if the start time fits now, it is the right one.
        if not _runs(pid, ticks):
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], _KILL_WAIT_S)
        return True
    finally:
        os.close(handle)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
