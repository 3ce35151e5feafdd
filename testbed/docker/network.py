"""Leasing a small subnet: the engine itself is the lock (paper, §4.1: one network per testbed).

Docker's default pools hold some thirty networks and then fail; an explicit small subnet works even
then. Two testbeds that ask for the same one are told apart by the engine, which refuses the second,
and so the next candidate is tried.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from docker.errors import APIError

from testbed.docker.engine import Engine
from testbed.errors import TestbedUnavailable

ROUTES = Path("/proc/net/route")


def prefix_for(containers: int) -> int:
    """Longest prefix whose subnet has room for `containers`, its gateway, network and broadcast."""
    return 32 - (containers + 2).bit_length()


def candidates(pool: IPv4Network, prefix: int, key: str) -> Iterator[IPv4Network]:
    """Every subnet of `pool` once, starting at a place that `key` chooses.

    Starting apart keeps testbeds that come up together from queueing for the same candidates.
    """
    if prefix < pool.prefixlen:
        raise ValueError(f"{pool} is too small for a /{prefix}")
    count = 2 ** (prefix - pool.prefixlen)
    size = 2 ** (32 - prefix)
    first = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % count
    base = int(pool.network_address)
    for step in range(count):
        yield IPv4Network((base + (first + step) % count * size, prefix))


def parse_routes(table: str) -> list[IPv4Network]:
    """Destinations of /proc/net/route, the default route left out."""
    routes = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        destination, mask = (int.from_bytes(bytes.fromhex(fields[i]), "little") for i in (1, 7))
        if mask:
            routes.append(IPv4Network((destination & mask, mask.bit_count())))
    return routes


def host_routes() -> list[IPv4Network]:
    """What this host already routes somewhere: the engine does not look at it for us."""
    try:
        return parse_routes(ROUTES.read_text())
    except OSError:
        return []


def _taken(error: APIError) -> bool:
    text = str(error.explanation or error).lower()
    return error.status_code in (403, 409, 400, 500) and any(
        words in text for words in ("overlap", "conflicts with network", "address already in use")
    )


def lease(
    engine: Engine,
    name: str,
    labels: dict[str, str],
    pool: IPv4Network,
    prefix: int,
    routes: Iterable[IPv4Network] | None = None,
) -> tuple[str, IPv4Network]:
    """Create the network `name` on a free subnet of `pool`: (network id, subnet).

    Raises `TestbedUnavailable` when no candidate of the pool is free.
    """
    from docker.types import IPAMConfig, IPAMPool

    avoid = list(host_routes() if routes is None else routes)
    for subnet in candidates(pool, prefix, name):
        if any(subnet.overlaps(route) for route in avoid):
            continue
        ipam = IPAMConfig(pool_configs=[IPAMPool(subnet=str(subnet))])
        try:
            created: dict[str, Any] = engine.api.create_network(
                name, driver="bridge", ipam=ipam, labels=labels, check_duplicate=True
            )
        except APIError as error:
            if _taken(error):
                continue
            raise
        return created["Id"], subnet
    raise TestbedUnavailable(
        f"no free /{prefix} is left in {pool}: remove what dead testbeds left "
        "(python -m testbed gc) or choose another testbed.subnet_pool"
    )
