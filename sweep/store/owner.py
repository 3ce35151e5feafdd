"""Who owns a store or an attempt: a process, told apart from a later one with the same pid."""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass
from typing import Any

import psutil


@dataclass(frozen=True)
class Owner:
    """A process, identified across pid reuse and reboots."""

    host: str
    pid: int
    started_at_s: float

    @staticmethod
    def current() -> Owner:
        """The calling process."""
        process = psutil.Process()
        return Owner(socket.gethostname(), process.pid, process.create_time())

    @staticmethod
    def from_dict(data: Any) -> Owner | None:
        """The owner in a record that was read back; None when it is not one."""
        try:
            return Owner(str(data["host"]), int(data["pid"]), float(data["started_at_s"]))
        except (KeyError, TypeError, ValueError):
            return None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def alive(self) -> bool | None:
        """Whether it still runs; None when it is on another host, so that nobody can tell."""
        if self.host != socket.gethostname():
            return None
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started_at_s) < 1.0
        except psutil.NoSuchProcess:
            return False
