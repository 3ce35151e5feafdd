"""Client of HAProxy's admin runtime socket (paper, §4.1 and §4.3).

One command per connection: HAProxy answers and closes. A write has succeeded when the answer is an
empty line; anything else is that command's failure in HAProxy's own words (pitfall 1).
"""

from __future__ import annotations

import socket
import time
from urllib.parse import urlsplit

from controller.errors import HAProxyAnswer, HAProxyUnavailable, RequestError, UnsafeName
from controller.haproxy.fleet import safe_name
from controller.haproxy.parse import (
    BackendStat,
    ProcessInfo,
    ServerStat,
    ServerState,
    parse_backends,
    parse_info,
    parse_servers,
    parse_states,
)

MAX_WEIGHT = 256
_MAX_ANSWER_BYTES = 64 * 1024 * 1024


class RuntimeSocket:
    """Reads and writes of one HAProxy. Safe to use from several threads: it holds no connection.

    `address` is the path of a unix socket (with or without `unix://`) or `tcp://host:port`;
    `timeout_s` bounds each exchange as a whole. Every method may raise `HAProxyUnavailable`
    (nobody answers) and `HAProxyAnswer` (the answer makes no sense).
    """

    def __init__(self, address: str, timeout_s: float = 5.0) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._family, self._target = _parse_address(address)

    # -- reads -------------------------------------------------------------------------------

    def backends(self) -> list[BackendStat]:
        """Every backend that has servers, with its balance algorithm."""
        return parse_backends(self._ask("show stat"))

    def server_stats(self, backend: str) -> list[ServerStat]:
        """Every server of `backend`, in HAProxy's order; two exchanges."""
        name = safe_name(backend)
        # 4: servers only, -1: all of them.
        stat = self._ask(f"show stat {name} 4 -1")
        return parse_servers(backend, stat, self._ask(f"show servers state {name}"))

    def server_states(self, backend: str) -> dict[tuple[str, str], ServerState]:
        """Address, admin state and weight by (backend, server); one exchange."""
        return parse_states(self._ask(f"show servers state {safe_name(backend)}"))

    def process(self) -> ProcessInfo:
        """The process that answers (pitfall 2: a restart voids a run)."""
        return parse_info(self._ask("show info"))

    # -- writes ------------------------------------------------------------------------------

    def set_weight(self, backend: str, server: str, weight: int) -> str:
        """Set a server's weight, 0 to 256. Returns "" or HAProxy's refusal."""
        if type(weight) is not int or not 0 <= weight <= MAX_WEIGHT:
            raise UnsafeName(f"weight {weight!r} is not an integer from 0 to {MAX_WEIGHT}")
        return self._write(f"set server {_pair(backend, server)} weight {weight:d}")

    def drain(self, backend: str, server: str) -> str:
        """Send no new requests to a server. Returns "" or HAProxy's refusal."""
        return self._write(f"set server {_pair(backend, server)} state drain")

    def ready(self, backend: str, server: str) -> str:
        """Return a server to load balancing. Returns "" or HAProxy's refusal."""
        return self._write(f"set server {_pair(backend, server)} state ready")

    # -- the exchange ------------------------------------------------------------------------

    def _write(self, command: str) -> str:
        return self._exchange(command).strip()

    def _ask(self, command: str) -> str:
        answer = self._exchange(command)
        if not answer.strip():
            raise HAProxyAnswer(f"{command}: an empty answer")
        return answer

    def _exchange(self, command: str) -> str:
        if any(char in command for char in ";\n\r\\<\0"):
            raise UnsafeName(f"{command[:80]!r} is more than one command")
        deadline = time.monotonic() + self._timeout_s
        try:
            with socket.socket(self._family, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._timeout_s)
                connection.connect(self._target)
                connection.sendall(command.encode("ascii") + b"\n")
                return _read_all(connection, deadline).decode("utf-8", "replace")
        except OSError as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise HAProxyUnavailable(f"HAProxy at {self.address}: {reason}") from error


def _pair(backend: str, server: str) -> str:
    return f"{safe_name(backend)}/{safe_name(server)}"


def _read_all(connection: socket.socket, deadline: float) -> bytes:
    """Read until HAProxy closes; the deadline holds for the whole answer, not for each piece."""
    chunks = []
    size = 0
    while True:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        connection.settimeout(remaining)
        chunk = connection.recv(65536)
        if not chunk:
            if not chunks:
                # A live HAProxy ends every answer with an empty line; silence is a lost answer.
                raise ConnectionResetError("the connection was closed without an answer")
            return b"".join(chunks)
        chunks.append(chunk)
        size += len(chunk)
        if size > _MAX_ANSWER_BYTES:
            raise OSError("the answer is too long")


def _parse_address(address: str) -> tuple[socket.AddressFamily, str | tuple[str, int]]:
    if address.startswith("tcp://"):
        parts = urlsplit(address)
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or not port:
            raise RequestError(f"runtime socket {address}: expected tcp://host:port")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return family, (host, port)
    path = address.removeprefix("unix://")
    if not path:
        raise RequestError("runtime socket: expected a path or tcp://host:port")
    return socket.AF_UNIX, path
