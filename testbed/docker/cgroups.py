"""Counters of a container's control group, read from this host's files: cheap, and always there.

The engine's own statistics are a second old or take a second to ask for, which a load that is being
measured should not pay.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed import procfs
from testbed.api import ComponentUsage

ROOT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Cgroup:
    """Folders of one control group: the same one thrice in version 2."""

    cpu: Path
    accounting: Path
    processes: Path

    def usage(self) -> ComponentUsage | None:
        """CPU time and throttling so far, and the sum of its processes' peak memory.

        None when the group is gone: its counters went with it.
        """
        try:
            cpu_s = self._cpu_s()
            pids = [int(line) for line in (self.processes / "cgroup.procs").read_text().split()]
            throttled_s = self._throttled_s()
        except (OSError, ValueError, KeyError):
            return None
        return ComponentUsage(cpu_s, sum(map(procfs.peak_rss_bytes, pids)), throttled_s)

    def _cpu_s(self) -> float:
        version_1 = self.accounting / "cpuacct.usage"
        if version_1.exists():
            return int(version_1.read_text()) / 1e9
        return _pairs(self.cpu / "cpu.stat")["usage_usec"] / 1e6

    def _throttled_s(self) -> float:
        stat = _pairs(self.cpu / "cpu.stat")
        if "throttled_usec" in stat:
            return stat["throttled_usec"] / 1e6
        return stat.get("throttled_time", 0) / 1e9


def _pairs(path: Path) -> dict[str, int]:
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2}


def parse_membership(text: str) -> dict[str, str]:
    """Path by controller from /proc/PID/cgroup; version 2's is under the empty name."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.removeprefix("name=").split(","):
            found[controller] = path
    return found


def of_process(pid: int, root: Path = ROOT) -> Cgroup | None:
    """The control group of the container whose first process is `pid` on this host.

    None where this host does not show it, as when the engine lives in a virtual machine.
    """
    try:
        paths = parse_membership(Path(f"/proc/{pid}/cgroup").read_text())
    except (OSError, ValueError):
        return None
    if "cpuacct" in paths:
        accounting = _folder(root, ("cpuacct", "cpu,cpuacct"), paths["cpuacct"])
        cpu = _folder(root, ("cpu", "cpu,cpuacct"), paths.get("cpu", paths["cpuacct"]))
    else:
        accounting = cpu = _folder(root, (".",), paths.get("", "/"))
    # The root group is everybody's: a container that is in none of its own can't be counted.
    if accounting is None or cpu is None or accounting == root:
        return None
    return Cgroup(cpu=cpu, accounting=accounting, processes=accounting)


def _folder(root: Path, mounts: tuple[str, ...], path: str) -> Path | None:
    for mount in mounts:
        folder = root / mount / path.lstrip("/")
        if (folder / "cgroup.procs").exists():
            return folder
    return None
