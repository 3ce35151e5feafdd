"""Which instance of the fleet a backend is (paper, §4.2)."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping


def own_name() -> str:
    """This container's name by reverse DNS, its hostname where there is none.

    Under Docker the reverse name is `<project>-<service>-<number>.<network>`.
    """
    hostname = socket.gethostname()
    try:
        return socket.gethostbyaddr(socket.gethostbyname(hostname))[0]
    except OSError:
        return hostname


def number_in(name: str) -> int:
    """Instance number at the end of a host name's first label: `api-3.net` gives 3.

    Raises ValueError when it has none.
    """
    found = re.search(r"(\d+)$", name.split(".", 1)[0])
    if not found or int(found.group(1)) < 1:
        raise ValueError(f"{name!r} does not end in an instance number (1, 2, …); set INSTANCE")
    return int(found.group(1))


def instance_number(environ: Mapping[str, str], name: str | None = None) -> int:
    """Instance number, from 1: the variable INSTANCE, else the number at the end of `name`."""
    if text := environ.get("INSTANCE"):
        return int(text)
    return number_in(name if name is not None else own_name())
