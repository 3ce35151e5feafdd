"""Removes a testbed whose owner is gone, however it went.

Containers outlive the process that started them, SIGKILL leaves it no time to remove them, and a
parent-death signal does not reach into containers. So each testbed has a warden: a small process,
nobody's child and in a session of its own, that waits for its owner's end (a pidfd: no polling, no
reused pid) and then removes what carries the testbed's label. It is harmless when it is killed: its
owner starts another one, and what nobody removed goes when the next testbed starts (`leftovers`).

Only the standard library is imported before it has something to do.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from testbed import procfs
from testbed.workdir import Process

PERSIST_S = 600.0
"""How long to go on trying when the engine does not answer."""

_NEEDED = ("PATH", "HOME", "TMPDIR", "DOCKER_HOST", "XDG_RUNTIME_DIR")


class Warden:
    """The warden of one testbed, as its owner sees it."""

    def __init__(self, testbed_id: str, folder: Path) -> None:
        self._arguments = (testbed_id, str(folder))
        self._starter: subprocess.Popen[str] | None = None
        self._process: Process | None = None

    def watch(self) -> None:
        """Start it, or start it again where somebody killed it."""
        if self._starter is None and (self._process is None or not self._process.alive()):
            self._start()
        elif self._starter is not None and self._starter.poll() is not None:
            self._meet()

    def dismiss(self) -> None:
        """End it: the owner has removed the testbed itself."""
        if self._starter is not None:
            self._meet()
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            if self._process.alive():
                os.kill(self._process.pid, signal.SIGKILL)
        deadline = time.monotonic() + 5.0
        while self._process.alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        self._process = None

    def _start(self) -> None:
        me = Process.myself()
        # Only what it needs: whoever ends processes by a mark in their environment (a sweep's
        # guard does) must not take it along with its owner.
        kept = {name: os.environ[name] for name in _NEEDED if name in os.environ}
        root = str(Path(__file__).parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        self._starter = subprocess.Popen(
            [sys.executable, "-m", __name__, str(me.pid), str(me.ticks), *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd="/",
            env={**kept, "PYTHONPATH": path},
            start_new_session=True,
        )

    def _meet(self) -> None:
        """Learn the pid of the warden from the process that started it, which has ended by then."""
        assert self._starter is not None
        said, _ = self._starter.communicate()
        self._starter = None
        with suppress(ValueError):
            pid = int(said)
            self._process = Process(pid, procfs.start_ticks(pid) or 0)


def wait_for_end(owner: Process) -> None:
    """Return when `owner` has ended, a zombie included."""
    try:
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel before 5.3
        while owner.alive():
            time.sleep(1.0)
        return
    try:
        if owner.alive():  # the pid could have been reused before it was opened
            select.select([descriptor], [], [])
    finally:
        os.close(descriptor)


def clean_up(testbed_id: str, folder: Path) -> bool:
    """Remove the testbed, trying again while the engine does not answer."""
    from testbed.docker import engine as engines
    from testbed.docker import leftovers

    deadline = time.monotonic() + PERSIST_S
    while time.monotonic() < deadline:
        with suppress(Exception):  # whatever it was: this is the last one who can try
            engine = engines.connect()
            # The owner may have died in the middle of asking for another container.
            if leftovers.remove_testbed(engine, testbed_id, settle_s=3.0):
                leftovers.remove_folder(folder)
                return True
        time.sleep(1.0)
    return False


def main(arguments: list[str]) -> int:
    """`OWNER_PID OWNER_TICKS TESTBED_ID FOLDER`"""
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    # Ray, for one, kills the children of a worker that ends: it must be nobody's child.
    if child := os.fork():
        print(child, flush=True)
        os._exit(0)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    pid, ticks, testbed_id, folder = arguments
    wait_for_end(Process(int(pid), int(ticks)))
    return 0 if clean_up(testbed_id, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
