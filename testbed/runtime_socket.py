"""Reads HAProxy's runtime socket, to see whether a testbed is ready.

Only readiness and tests need it here; acting on HAProxy is the controller's business.
"""

from __future__ import annotations

import csv
import socket


def ask(path: str, command: str, timeout_s: float = 5.0) -> str:
    """Answer of HAProxy to one command. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        sock.connect(path)
        sock.sendall(command.encode() + b"\n")
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
    return b"".join(parts).decode()


def parse_stat(text: str) -> list[dict[str, str]]:
    """Rows of `show stat` by column name: the columns differ between versions."""
    lines = [line for line in text.removeprefix("# ").splitlines() if line.strip()]
    return list(csv.DictReader(lines))


def servers(path: str, backend: str) -> dict[str, dict[str, str]]:
    """Row of `show stat` of every server of `backend`, by slot. Raises OSError."""
    rows = parse_stat(ask(path, "show stat"))
    return {
        row["svname"]: row
        for row in rows
        if row["pxname"] == backend and row["svname"] not in ("FRONTEND", "BACKEND")
    }
