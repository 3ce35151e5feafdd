"""Ports that can't be taken by somebody else: bound here, handed over as open sockets."""

from __future__ import annotations

import socket


def listening_socket(host: str = "127.0.0.1") -> socket.socket:
    """A socket that listens on a free port, to be inherited by a program."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, 0))
    sock.listen(2048)
    sock.set_inheritable(True)
    return sock


def free_port(host: str = "127.0.0.1") -> int:
    """A port that is free now. It may be taken a moment later: only for programs that can't
    inherit a socket, and only with a retry."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.bind((host, 0))
        return sock.getsockname()[1]


def address(sock: socket.socket) -> str:
    """`host:port` of a bound socket."""
    host, port = sock.getsockname()[:2]
    return f"{host}:{port}"
