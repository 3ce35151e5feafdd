"""Pure parsers of the runtime socket's answers.

Columns are found by name: their number and order differ between versions (129 columns in 2.6, 139
in 2.8). HAProxy pads empty fields, and text that can't be understood raises `HAProxyAnswer`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from controller.api import AdminState, ServerStat
from controller.errors import HAProxyAnswer

# Bits of srv_admin_state (HAProxy, doc/management.txt, "show servers state").
_MAINT_BITS = 0x01 | 0x02 | 0x04 | 0x20 | 0x40
_DRAIN_BITS = 0x08 | 0x10


@dataclass(frozen=True)
class BackendStat:
    """One backend, from its own row."""

    name: str
    algorithm: str
    servers: tuple[str, ...]


@dataclass(frozen=True)
class ProcessInfo:
    """HAProxy's process: another pid or an earlier uptime means that it was restarted."""

    pid: int
    uptime_s: int
    version: str

    def same_process(self, earlier: ProcessInfo) -> bool:
        """Whether this later reading is of the process that `earlier` saw (pitfall 2)."""
        return self.pid == earlier.pid and self.uptime_s >= earlier.uptime_s


def _rows(text: str) -> list[dict[str, str]]:
    """Rows of `show stat` as dictionaries by column name."""
    if not text.startswith("# pxname,"):
        raise HAProxyAnswer(f"show stat: {_first_line(text)}")
    return [row for row in csv.DictReader(io.StringIO(text[2:])) if row.get("svname")]


def _first_line(text: str) -> str:
    stripped = text.strip()
    return repr(stripped.splitlines()[0][:200]) if stripped else "an empty answer"


def _int(row: Mapping[str, str], *columns: str) -> int:
    """The first of `columns` that is there and filled."""
    for column in columns:
        value = row.get(column)
        if value:
            try:
                return int(value)
            except ValueError:
                raise HAProxyAnswer(f"column {column} holds {value[:80]!r}") from None
    raise HAProxyAnswer(f"no column {' or '.join(columns)} for {row.get('svname', '?')}")


def parse_backends(stat: str) -> list[BackendStat]:
    """Backends and their servers out of a whole `show stat`."""
    names: dict[str, list[str]] = {}
    algorithms: dict[str, str] = {}
    for row in _rows(stat):
        if row["svname"] == "BACKEND":
            algorithms[row["pxname"]] = row.get("algo") or ""
        elif row["svname"] != "FRONTEND" and row.get("type") == "2":
            names.setdefault(row["pxname"], []).append(row["svname"])
    return [
        BackendStat(name, algorithms[name], tuple(servers))
        for name, servers in names.items()
        if name in algorithms
    ]


@dataclass(frozen=True)
class ServerState:
    """What `show servers state` says of one server: the part that actions change."""

    address: str
    admin_state: AdminState
    weight: int


def admin_state(bits: int) -> AdminState:
    """The administrative state that `srv_admin_state` encodes; maintenance wins over drain."""
    if bits & _MAINT_BITS:
        return "maint"
    return "drain" if bits & _DRAIN_BITS else "ready"


def parse_states(text: str) -> dict[tuple[str, str], ServerState]:
    """`show servers state`: address, admin state and user weight by (backend, server)."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not lines[0].isdigit() or not lines[1].startswith("# "):
        raise HAProxyAnswer(f"show servers state: {_first_line(text)}")
    columns = lines[1][2:].split()
    states = {}
    for line in lines[2:]:
        row = dict(zip(columns, line.split(), strict=False))
        key = (row.get("be_name", ""), row.get("srv_name", ""))
        states[key] = ServerState(
            address=_address(row.get("srv_addr", "-"), row.get("srv_port", "0")),
            admin_state=admin_state(_int(row, "srv_admin_state")),
            weight=_int(row, "srv_uweight"),
        )
    return states


def _address(host: str, port: str) -> str:
    if host == "-":
        return "-"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_servers(backend: str, stat: str, state: str) -> list[ServerStat]:
    """Join `show stat` and `show servers state` of one backend, in HAProxy's order.

    Counters, sessions and the status come from the first, address, admin state and user weight from
    the second (in 2.6 the `weight` column of `show stat` is stale during maintenance). Requests are
    `req_tot` where servers have it, else `stot`: with `http-server-close` the two are equal.
    """
    states = parse_states(state)
    servers = []
    for row in _rows(stat):
        if row["pxname"] != backend or row.get("type") != "2":
            continue
        known = states.get((backend, row["svname"]))
        if known is None:
            raise HAProxyAnswer(f"show servers state says nothing of {backend}/{row['svname']}")
        servers.append(
            ServerStat(
                backend=backend,
                slot=row["svname"],
                address=known.address,
                status=row.get("status") or "",
                admin_state=known.admin_state,
                weight=known.weight,
                sessions=_int(row, "scur"),
                requests_total=_int(row, "req_tot", "stot"),
                http_5xx_total=_int(row, "hrsp_5xx"),
            )
        )
    return servers


def parse_info(text: str) -> ProcessInfo:
    """`show info`: pid, uptime and version."""
    fields = dict(_pairs(text.splitlines()))
    if not fields.get("Version"):
        raise HAProxyAnswer(f"show info: {_first_line(text)}")
    return ProcessInfo(_int(fields, "Pid"), _int(fields, "Uptime_sec"), fields["Version"])


def _pairs(lines: Iterable[str]) -> Iterable[tuple[str, str]]:
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip(), value.strip()
