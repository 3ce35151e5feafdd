"""One sweep at a time on one run store."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from pathlib import Path
from types import TracebackType

from sweep.errors import StorageError, StoreBusy
from sweep.store.owner import Owner


class StoreLock:
    """An advisory lock on `.lock`, held as long as the process lives.

    The kernel frees it however the holder dies, so a lock never has to be broken by hand.
    Raises `StoreBusy` with the holder's pid and host, `StorageError` where the file can't be
    written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def acquire(self) -> None:
        """Take the lock or say who has it."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(
                f"the run store {self._path.parent} can't be written: {error.strerror}. "
                "Choose another place with sweep.dir=…"
            ) from error
        try:
            _lock_now(fd)
        except OSError as error:
            holder = os.read(fd, 4096).decode(errors="replace")
            os.close(fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise StorageError(
                    f"the run store {self._path.parent} can't be locked: {error.strerror}"
                ) from error
            raise StoreBusy(
                f"another sweep is running on {self._path.parent} ({_describe(holder)}): "
                "wait for it, stop it, or choose another sweep.name"
            ) from error
        self._fd = fd
        # On a full disk the lock holds all the same, and the sweep tells how much room is needed.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.write(fd, json.dumps(Owner.current().to_dict()).encode())

    def release(self) -> None:
        """Give the lock back; idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __enter__(self) -> StoreLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def _lock_now(fd: int) -> None:
    """Lock without waiting for a sweep, but outlast the instant in which `held` looks."""
    for _ in range(5):
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
    return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def held(path: Path) -> bool:
    """Whether a live sweep holds the lock at `path`, without taking it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _describe(holder: str) -> str:
    try:
        data = json.loads(holder)
        return f"pid {data['pid']} on {data['host']}"
    except (ValueError, KeyError, TypeError):
        return "its owner is unknown"
