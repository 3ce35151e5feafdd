"""HAProxy's configuration (paper, §4.1 and §4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.api import BACKEND_NAME, Algorithm


@dataclass(frozen=True)
class HAProxyConfig:
    """What varies between testbeds. Binds are as HAProxy wants them: `fd@5`, `*:8080`."""

    algorithm: Algorithm
    servers: Mapping[str, str]
    """Slot name to address, in slot order."""
    weight: int
    runtime_socket: str
    frontend_bind: str
    exporter_bind: str
    maxconn: int = 2000

    def render(self) -> str:
        """The text of haproxy.cfg.

        No cookies and no stick tables: either would keep requests coming to a drained server.
        """
        servers = "\n".join(
            f"    server {slot} {address} weight {self.weight}"
            for slot, address in self.servers.items()
        )
        return f"""\
global
    # Level admin: weights, drains and enables of a run go through this socket.
    stats socket {self.runtime_socket} mode 600 level admin
    stats timeout 1h
    maxconn {self.maxconn}
    # One thread is plenty for a fleet of nine, and leaves the cores to the load and the fleet.
    nbthread 1
    # Health changes go to the log; requests don't.
    log stdout format raw local0 notice

defaults
    mode http
    log global
    option dontlog-normal
    # A connection to a server serves one request, so leastconn counts requests.
    option http-server-close
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    timeout queue 60s
    timeout check 5s

frontend fe_api
    bind {self.frontend_bind}
    default_backend {BACKEND_NAME}

backend {BACKEND_NAME}
    balance {self.algorithm}
    option httpchk GET /healthz
    default-server check inter 1s fastinter 200ms downinter 200ms rise 1 fall 3
{servers}

frontend exporter
    bind {self.exporter_bind}
    http-request use-service prometheus-exporter if {{ path /metrics }}
    http-request return status 404
"""
