"""Child processes that never outlive their parent, however it dies.

The kernel kills a child when the *thread* that spawned it ends (PR_SET_PDEATHSIG), so all children
are spawned from one thread that lives as long as the process. Every child leads a session and a
process group of its own; stopping one means stopping its whole group.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from testbed import procfs
from testbed.api import ComponentUsage
from testbed.errors import ComponentDied, TestbedError

PR_SET_PDEATHSIG = 1
# Loaded before any fork: loading it in the child could wait forever for a lock another thread held.
_LIBC = ctypes.CDLL(None, use_errno=True)

_spawners: dict[int, ThreadPoolExecutor] = {}
_spawners_lock = threading.Lock()


def _spawner() -> ThreadPoolExecutor:
    """The spawning thread of this process; a forked copy of the parent's would be dead."""
    with _spawners_lock:
        pid = os.getpid()
        if pid not in _spawners:
            _spawners[pid] = ThreadPoolExecutor(1, thread_name_prefix="drainbench-spawner")
        return _spawners[pid]


def _die_with(parent: int) -> Callable[[], None]:
    def before_exec() -> None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec


@dataclass(frozen=True)
class Command:
    """What to run. Output goes to `log`; `pass_fds` stay open under their own numbers."""

    argv: tuple[str, ...]
    log: Path
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict)
    pass_fds: tuple[int, ...] = ()


@dataclass
class Child:
    """A running component. Made by `spawn`."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    ticks: int
    stopped: bool = False
    """Whether any process of its group was stopped by a signal when it was last sampled."""
    _cpu_s: float = 0.0
    _max_rss: dict[int, int] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        """Process id, which is its group's too."""
        return self.process.pid

    def poll(self) -> int | None:
        """Exit code, negative for a signal, or None while it runs.

        The CPU time of an ended process is read before it is reaped.
        """
        if self.process.returncode is None:
            with suppress(ChildProcessError):
                ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is not None:
                    self._cpu_s = max(self._cpu_s, procfs.cpu_s(self.pid))
        return self.process.poll()

    def sample(self, members: Iterable[int]) -> None:
        """Take note of CPU time and peak memory; `members` are the living pids of its group."""
        if self.process.returncode is not None:
            return
        members = set(members)
        self.stopped = any(procfs.is_stopped(pid) for pid in members)
        # Exited members are in the leader's count of reaped children.
        cpu_s = sum(procfs.cpu_s(pid, pid == self.pid) for pid in members | {self.pid})
        self._cpu_s = max(self._cpu_s, cpu_s)
        for pid in members:
            self._max_rss[pid] = max(self._max_rss.get(pid, 0), procfs.peak_rss_bytes(pid))

    @property
    def usage(self) -> ComponentUsage:
        """CPU seconds of the group as last sampled, and the sum of its processes' peak memory."""
        return ComponentUsage(cpu_s=self._cpu_s, max_rss_bytes=sum(self._max_rss.values()))

    def log_tail(self, lines: int = 4) -> str:
        """Last lines of its log, on one line."""
        return tail(self.log, lines)

    def died(self) -> ComponentDied:
        """The error that says how it ended."""
        code = self.process.returncode
        how = f"exit code {code}"
        if code is not None and code < 0:
            with suppress(ValueError):
                how = f"signal {signal.Signals(-code).name}"
        said = self.log_tail()
        return ComponentDied(f"{self.name} ended on its own ({how}); last words: {said or 'none'}")

    def halted(self) -> ComponentDied:
        """The error that says that it was stopped."""
        return ComponentDied(f"{self.name} was stopped by a signal (SIGSTOP): it lives, but idle")

    def signal_group(self, number: int) -> None:
        """Signal the whole group; nothing happens when it is gone."""
        if self.process.returncode is not None and procfs.start_ticks(self.pid) is not None:
            return  # the pid belongs to somebody else by now
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def tail(path: Path, lines: int = 4) -> str:
    """Last lines of a text file, joined by ` | `; empty when there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - 4096))
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    kept = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(kept[-lines:])


def environment(**extra: str) -> dict[str, str]:
    """What a component gets to see: none of the caller's settings and secrets leak into a run."""
    kept = {
        key: os.environ[key] for key in ("PATH", "TMPDIR", "LANG", "LC_ALL") if key in os.environ
    }
    return {"PATH": os.defpath, **kept, **extra}


def spawn(name: str, command: Command) -> Child:
    """Start `command` in a session of its own; it dies with this process.

    Raises `TestbedError` when it can't be started at all.
    """
    parent = os.getpid()

    def start() -> subprocess.Popen[bytes]:
        with command.log.open("ab") as log:
            return subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=command.cwd,
                env=dict(command.env) or environment(),
                pass_fds=command.pass_fds,
                start_new_session=True,
                preexec_fn=_die_with(parent),
            )

    try:
        process = _spawner().submit(start).result()
    except (OSError, subprocess.SubprocessError) as error:
        raise TestbedError(f"{name} can't be started: {error}") from error
    return Child(name, process, command.log, procfs.start_ticks(process.pid) or 0)


def sample(children: Iterable[Child]) -> None:
    """Take note of what every child has used so far."""
    groups = procfs.living_groups()
    for child in children:
        child.sample(groups.get(child.pid, []))


def stop_groups(children: Iterable[Child], grace_s: float = 0.1) -> None:
    """End whole groups: TERM to all, `grace_s` together, then KILL; returns when all are gone."""
    children = list(children)
    if not children:
        return
    sample(children)
    for child in children:
        child.signal_group(signal.SIGTERM)
    _wait_until(lambda: all(child.poll() is not None for child in children), grace_s)
    for child in children:
        child.signal_group(signal.SIGKILL)
    # Not even SIGKILL ends a process stuck in the kernel: give up on it after a while.
    _wait_until(lambda: all(child.poll() is not None for child in children), 10)
    groups = {child.pid for child in children}
    _wait_until(lambda: not groups & procfs.living_groups().keys(), 5)


def _wait_until(done: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not done() and time.monotonic() < deadline:
        time.sleep(0.01)
