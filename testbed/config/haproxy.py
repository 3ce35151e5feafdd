"""HAProxy's configuration (paper, §4.1 and §4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.api import BACKEND_NAME, Algorithm


@dataclass(frozen=True)
class ServerTemplate:
    """Slots `<prefix>1` … that HAProxy fills from the DNS answers for `address` (`host:port`)."""

    prefix: str
    slots: int
    address: str
    resolver: str
    """Address of the name server, `host:port`."""


@dataclass(frozen=True)
class HAProxyConfig:
    """What varies between testbeds. Binds are as HAProxy wants them: `fd@5`, `*:8080`."""

    algorithm: Algorithm
    servers: Mapping[str, str] | ServerTemplate
    """Slot name to address, in slot order; or how HAProxy finds them itself."""
    weight: int
    runtime_socket: str
    frontend_bind: str
    exporter_bind: str
    maxconn: int = 2000

    def render(self) -> str:
        """The text of haproxy.cfg.

        No cookies and no stick tables: either would keep requests coming to a drained server.
        """
        if isinstance(self.servers, ServerTemplate):
            servers = _template(self.servers, self.weight)
            resolvers = _RESOLVERS.format(address=self.servers.resolver)
        else:
            servers = "\n".join(
                f"    server {slot} {address} weight {self.weight}"
                for slot, address in self.servers.items()
            )
            resolvers = ""
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
{resolvers}
frontend exporter
    bind {self.exporter_bind}
    http-request use-service prometheus-exporter if {{ path /metrics }}
    http-request return status 404
"""


# An answer is valid for 1 s, and a name that is not there yet is asked for again after as long: a
# fleet that is starting fills its slots at once, and a container that is gone leaves its slot soon.
_RESOLVERS = """
resolvers dns
    nameserver docker {address}
    accepted_payload_size 8192
    resolve_retries 3
    timeout resolve 1s
    timeout retry 1s
    hold valid 1s
    hold nx 1s
    hold refused 1s
    hold other 1s
    hold timeout 1s
"""


def _template(slots: ServerTemplate, weight: int) -> str:
    return (
        f"    server-template {slots.prefix} {slots.slots} {slots.address} weight {weight}"
        " resolvers dns resolve-prefer ipv4 init-addr none"
    )
