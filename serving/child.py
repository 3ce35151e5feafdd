"""A child process that dies with its parent, however the parent dies (paper, §4.4).

Linux's parent-death signal fires when the *thread* that spawned the child ends, not when its
process does. So all children are spawned from one thread that lives as long as this process.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from serving.errors import StopTimeout

_PR_SET_PDEATHSIG = 1
# Loaded here: between fork and exec nothing may be imported or allocated more than necessary.
_LIBC = ctypes.CDLL(None, use_errno=True)
GRACE_S = 1.0
_REAP_S = 30.0


class Child:
    """One child in a process group of its own, its output in a log file.

    Raises OSError when the program can't be executed.
    """

    def __init__(self, args: Sequence[str], env: Mapping[str, str], log_path: Path) -> None:
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._process = _SPAWNER.spawn(args, env, log_path)
        self.pid = self._process.pid

    def exit_code(self) -> int | None:
        """The exit code (negative: ended by that signal); None while it runs."""
        return self._process.poll()

    def log_tail(self, lines: int = 12) -> str:
        """The last lines of the log, for error messages."""
        try:
            text = self.log_path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "(no log)"
        return "\n".join(text.strip().splitlines()[-lines:]) or "(empty log)"

    def stop(self, grace_s: float = GRACE_S) -> None:
        """SIGTERM, `grace_s`, SIGKILL, to the whole group; returns when it is gone. Idempotent.

        Raises `StopTimeout` when it does not even end when killed.
        """
        # While the leader is not reaped its pid can't be another's, so the group is still ours.
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
        try:
            self._process.wait(_REAP_S)
        except subprocess.TimeoutExpired:
            raise StopTimeout(
                f"process {self.pid} did not end within {_REAP_S:.0f} s of SIGKILL; if it holds a "
                f"GPU, its driver may be stuck (nvidia-smi shows it)"
            ) from None

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return


class _Spawner:
    """Runs every `Popen` on one daemon thread, started anew in a forked process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._jobs: queue.SimpleQueue[tuple[Future, Sequence[str], Mapping[str, str], Path]]

    def spawn(
        self, args: Sequence[str], env: Mapping[str, str], log_path: Path
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._owner != os.getpid():
                self._jobs = queue.SimpleQueue()
                threading.Thread(
                    target=self._work, args=(self._jobs,), name="serving-spawner", daemon=True
                ).start()
                self._owner = os.getpid()
        future: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((future, args, env, log_path))
        return future.result()

    @staticmethod
    def _work(jobs: queue.SimpleQueue) -> None:
        while True:
            future, args, env, log_path = jobs.get()
            try:
                future.set_result(_popen(args, env, log_path))
            except BaseException as error:
                future.set_exception(error)


def _popen(args: Sequence[str], env: Mapping[str, str], log_path: Path) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def die_with_parent() -> None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the signal was armed
            os._exit(1)

    with log_path.open("wb") as log:
        return subprocess.Popen(
            args,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )


_SPAWNER = _Spawner()
