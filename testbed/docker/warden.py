"""Removes a testbed whose owner is gone, however it went.

Containers outlive the process that started them, SIGKILL leaves it no time to remove them, and a
parent-death signal does not reach into containers. So each testbed has a warden: a small process in
a session of its own that waits for its owner's end (a pidfd: no polling, no reused pid) and then
removes what carries the testbed's label. It is harmless when it is killed: its owner starts another
one, and what nobody removed goes when the next testbed starts (`leftovers`).

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

from testbed.workdir import Process

PERSIST_S = 600.0
"""How long to go on trying when the engine does not answer."""


class Warden:
    """The warden of one testbed, as its owner sees it."""

    def __init__(self, testbed_id: str, folder: Path) -> None:
        self._arguments = (testbed_id, str(folder))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def watch(self) -> None:
        """Start it, or start it again where somebody killed it."""
        if self.pid is not None:
            return
        me = Process.myself()
        root = str(Path(__file__).parents[2])
        inherited = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([root, inherited] if inherited else [root])
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(me.pid), str(me.ticks), *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )

    def dismiss(self) -> None:
        """End it: the owner has removed the testbed itself."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


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
    pid, ticks, testbed_id, folder = arguments
    wait_for_end(Process(int(pid), int(ticks)))
    return 0 if clean_up(testbed_id, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
