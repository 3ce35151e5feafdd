"""Who a process is, from /proc: a pid alone may have been reused."""

from __future__ import annotations

import os
from pathlib import Path


def stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat after the command name (index 0 is the state), or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError):
        return None
    return text[text.rindex(")") + 2 :].split()


def start_ticks(pid: int) -> int | None:
    """Start time in clock ticks since boot; with the pid it names a process for good.

    None where the process is gone or only a zombie is left.
    """
    fields = stat_fields(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return int(fields[19])


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process (SIGSTOP): it lives and does nothing."""
    fields = stat_fields(pid)
    return fields is not None and fields[0] == "T"


def boot_id() -> str:
    """Changes with every boot, so that ticks of another one are never compared."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> str:
    """Name of the pid namespace: pids mean nothing outside of it."""
    return str(Path("/proc/self/ns/pid").readlink())


def peak_rss_bytes(pid: int) -> int:
    """Highest resident memory so far in bytes; 0 when the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def cpu_s(pid: int, with_reaped_children: bool = True) -> float:
    """CPU seconds (user and system), of a zombie too; 0.0 when the process is gone."""
    fields = stat_fields(pid)
    if fields is None:
        return 0.0
    last = 15 if with_reaped_children else 13
    return sum(int(ticks) for ticks in fields[11:last]) / os.sysconf("SC_CLK_TCK")


def living_groups() -> dict[int, list[int]]:
    """Pids by process group, zombies left out."""
    groups: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        fields = stat_fields(int(entry.name))
        if fields and fields[0] not in "ZX":
            groups.setdefault(int(fields[2]), []).append(int(entry.name))
    return groups
