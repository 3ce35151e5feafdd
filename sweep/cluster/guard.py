"""Sees to it that nothing of a sweep outlives its driver, however the driver ends.

A process of its own that waits for the driver's end of a pipe to close. Ray's own agents may take
a minute to notice that everything around them was killed; this takes seconds. What belongs to the
sweep is known by two marks that survive double forks and lost parents: a token in the environment,
inherited by everything below the driver, and open files in the driver's Ray session (Ray's
processes overwrite their environment with their titles).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

TOKEN = "DRAINBENCH_SWEEP_TOKEN"
GRACE_S = 3.0
"""How long what is ending by itself may take."""
GIVE_UP_S = 20.0


class Guard:
    """The driver's side: `start` before anything else is started, `release` at the end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Mark this process and everything below it, and start the watcher."""
        os.environ[TOKEN] = uuid.uuid4().hex
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sweep.cluster.guard", str(os.getpid()), os.environ[TOKEN]],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def release(self) -> None:
        """Let the watcher clear up what is left and end; waits for it. Idempotent."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def members(driver_pid: int, token: str) -> Iterator[int]:
    """Processes that belong to the driver's sweep: not the driver, not the caller."""
    mark = f"{TOKEN}={token}".encode()
    session = re.compile(rf"/session_[^/]*_{driver_pid}/")
    spared = {os.getpid(), driver_pid}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are all that is needed
        if entry.isdigit() and int(entry) not in spared:
            pid = int(entry)
            if _is_marked(pid, mark) or _has_open(pid, session):
                yield pid


def _is_marked(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - hot, many times a second
            return mark in file.read().split(b"\0")
    except OSError:
        return False


def _has_open(pid: int, session: re.Pattern[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        return any(session.search(os.readlink(f"{folder}/{fd}")) for fd in os.listdir(folder))  # noqa: PTH115, PTH208
    except OSError:
        return False


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except OSError:
        return True


def clear(driver_pid: int, token: str) -> list[int]:
    """Wait a little for members to end, then kill what is left; returns what was killed."""
    began = time.monotonic()
    killed: list[int] = []
    while time.monotonic() - began < GIVE_UP_S:
        alive = [pid for pid in members(driver_pid, token) if not _is_zombie(pid)]
        if not alive:
            break
        if time.monotonic() - began > GRACE_S:
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                except ProcessLookupError:
                    continue
        time.sleep(0.2)
    return killed


def main() -> None:
    """`python -m sweep.cluster.guard DRIVER_PID TOKEN`, with a pipe from the driver as stdin."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    driver_pid, token = int(sys.argv[1]), sys.argv[2]
    while os.read(sys.stdin.fileno(), 4096):
        pass
    clear(driver_pid, token)


if __name__ == "__main__":
    main()
