"""The private folder of one testbed, and the record in it of who owns what.

`owner.json` names the process that made the testbed; `children.jsonl` names every process that was
started for it. With both, `testbed.leftovers` can tell what a dead owner left behind.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from testbed import procfs
from testbed.errors import OutputFailed

PREFIX = "drainbench-"
OWNER = "owner.json"
CHILDREN = "children.jsonl"
FORMAT = 1

MAX_SOCKET_PATH = 107
"""Longest path of a unix socket on Linux."""

# HAProxy binds its socket under a name with such a suffix, and renames it.
_SOCKET = "haproxy.sock.4194304.tmp"


@dataclass(frozen=True)
class Process:
    """A process that can't be mistaken for another one that got its pid later."""

    pid: int
    ticks: int
    """Start time in clock ticks since boot."""

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return procfs.start_ticks(self.pid) == self.ticks

    @classmethod
    def myself(cls) -> Process:
        """The calling process."""
        return cls(os.getpid(), procfs.start_ticks(os.getpid()) or 0)


@dataclass(frozen=True)
class Owner:
    """Who made a testbed, where and when."""

    process: Process
    boot: str
    namespace: str
    kind: str
    run_id: str
    foreground: bool
    """Made by hand (`python -m testbed up`): it tears down when it is asked to end."""
    created_s: float
    """Unix time in seconds."""

    def here(self) -> bool:
        """Whether its pids mean anything to this process: same boot, same pid namespace."""
        return self.boot == procfs.boot_id() and self.namespace == procfs.pid_namespace()

    def alive(self) -> bool:
        """Whether the owner still runs; an owner of an earlier boot doesn't."""
        if self.boot != procfs.boot_id():
            return False
        return self.namespace != procfs.pid_namespace() or self.process.alive()


def roots() -> list[Path]:
    """Folders that work folders are made in: the temporary folder, and a short one."""
    return list(dict.fromkeys([Path(tempfile.gettempdir()), Path("/tmp")]))


class WorkDir:
    """A folder of mode 0700 with a short path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, kind: str, run_id: str, foreground: bool = False) -> WorkDir:
        """Make a new one that belongs to this process. Raises `OutputFailed`."""
        owner = Owner(
            process=Process.myself(),
            boot=procfs.boot_id(),
            namespace=procfs.pid_namespace(),
            kind=kind,
            run_id=run_id,
            foreground=foreground,
            created_s=time.time(),
        )
        problem: OSError | None = None
        for root in roots():
            longest = root / f"{PREFIX}xxxxxxxx" / _SOCKET
            if len(os.fsencode(longest)) > MAX_SOCKET_PATH:
                continue
            try:
                path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
                draft = path / f"{OWNER}.new"
                draft.write_text(json.dumps({"format": FORMAT, **asdict(owner)}))
                draft.rename(path / OWNER)
            except OSError as error:
                problem = error
                continue
            return cls(path)
        raise OutputFailed(
            f"no work folder can be made in {' or '.join(map(str, roots()))}: {problem};"
            " set TMPDIR to a folder with a short path and free space"
        )

    @property
    def name(self) -> str:
        """Its last part without the prefix: the testbed's id."""
        return self.path.name.removeprefix(PREFIX)

    def record(self, name: str, process: Process) -> None:
        """Note that `process` was started for this testbed."""
        line = json.dumps({"name": name, **asdict(process)})
        with (self.path / CHILDREN).open("a") as stream:
            stream.write(line + "\n")

    def owner(self) -> Owner | None:
        """Who made it; None when that was never written or can't be read."""
        try:
            raw = json.loads((self.path / OWNER).read_text())
            if raw.pop("format") != FORMAT:
                return None
            return Owner(process=Process(**raw.pop("process")), **raw)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def children(self) -> dict[str, Process]:
        """Every process that was started for it, by component name."""
        found = {}
        try:
            lines = (self.path / CHILDREN).read_text().splitlines()
        except OSError:
            return {}
        for line in lines:
            try:
                raw = json.loads(line)
                found[raw["name"]] = Process(raw["pid"], raw["ticks"])
            except (ValueError, KeyError, TypeError):
                continue  # the owner died while it wrote this line
        return found

    def remove(self) -> None:
        """Delete it; what can't be deleted is left."""
        shutil.rmtree(self.path, ignore_errors=True)


def existing() -> Iterator[WorkDir]:
    """All work folders of this user on this machine."""
    for root in roots():
        for path in sorted(root.glob(f"{PREFIX}*")):
            try:
                mine = path.stat(follow_symlinks=False).st_uid == os.getuid()
            except OSError:
                continue
            if mine and path.is_dir() and not path.is_symlink():
                yield WorkDir(path)
