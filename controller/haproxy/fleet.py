"""What discovery returned: the only names that may ever be written into a socket command.

A model's output is untrusted. Nothing it wrote is pasted anywhere; it is compared with these names,
exactly, and what goes into a command is the discovered string, never the proposed one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from controller.errors import UnsafeName

# HAProxy's own rule for the names of proxies and servers. Space, `;`, newline and `/` would let one
# name become two commands or another server, so a name with any of them is refused at discovery.
_NAME = re.compile(r"[A-Za-z0-9_.:\-]+")


def safe_name(name: str) -> str:
    """Return `name` when HAProxy could have accepted it in its configuration, else raise.

    Raises `UnsafeName`.
    """
    if not _NAME.fullmatch(name):
        raise UnsafeName(f"{name[:80]!r} is not a name that HAProxy allows")
    return name


@dataclass(frozen=True)
class Fleet:
    """Backends and their servers as discovered, in HAProxy's order."""

    servers: Mapping[str, tuple[str, ...]]
    """Server names by backend name."""

    def __post_init__(self) -> None:
        for backend, names in self.servers.items():
            safe_name(backend)
            for name in names:
                safe_name(name)

    def find(self, backend: object, server: object) -> tuple[str, str] | None:
        """The discovered pair that equals (`backend`, `server`) exactly, or None.

        The strings returned are the discovered ones.
        """
        for known, names in self.servers.items():
            if known == backend:
                for name in names:
                    if name == server:
                        return known, name
        return None
