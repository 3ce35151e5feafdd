"""Subnets: candidates and routes are pure; leasing is tried on a real engine."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network

import pytest

from testbed.docker.engine import Engine
from testbed.docker.network import candidates, lease, parse_routes, prefix_for
from testbed.errors import TestbedUnavailable


@pytest.mark.parametrize(
    ("containers", "prefix"), [(5, 29), (6, 28), (13, 28), (14, 27), (29, 27), (30, 26)]
)
def test_the_subnet_is_the_smallest_that_fits(containers: int, prefix: int) -> None:
    # Network, broadcast and gateway take an address each.
    assert prefix_for(containers) == prefix
    assert 2 ** (32 - prefix) - 3 >= containers > 2 ** (31 - prefix) - 3


def test_every_candidate_comes_once_wherever_it_starts() -> None:
    pool = IPv4Network("10.9.0.0/24")
    first, second = (list(candidates(pool, 28, key)) for key in ("a", "c"))
    assert sorted(first) == sorted(second) == list(pool.subnets(new_prefix=28))
    assert first != second
    assert first == list(candidates(pool, 28, "a"))


def test_a_pool_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        next(candidates(IPv4Network("10.9.0.0/29"), 28, "a"))


def test_routes_are_read_without_the_default() -> None:
    table = (
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
        "eth0\t00000000\t0102A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
        "eth0\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
        "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
    )
    assert parse_routes(table) == [IPv4Network("192.168.2.0/24"), IPv4Network("172.17.0.0/16")]


@pytest.fixture
def mark(engine: Engine) -> Iterator[dict[str, str]]:
    """A label for networks that are removed afterwards."""
    label = f"drainbench-test-{uuid.uuid4().hex[:8]}"
    yield {label: "1"}
    for network in engine.api.networks(filters={"label": label}):
        engine.api.remove_network(network["Id"])


def test_the_engine_tells_racers_apart(engine: Engine, mark: dict[str, str]) -> None:
    pool = IPv4Network("10.251.249.0/26")
    names = [f"drainbench-race-{uuid.uuid4().hex[:8]}" for _ in range(6)]

    def one(name: str) -> IPv4Network | str:
        try:
            return lease(engine, name, mark, pool, 28)[1]
        except TestbedUnavailable as error:
            return str(error)

    with ThreadPoolExecutor(6) as racers:
        results = list(racers.map(one, names))
    won = sorted(result for result in results if isinstance(result, IPv4Network))
    lost = [result for result in results if isinstance(result, str)]
    assert won == list(pool.subnets(new_prefix=28))
    assert len(lost) == 2
    assert all("no free /28 is left in 10.251.249.0/26" in words for words in lost)
    assert all("gc" in words for words in lost)


def test_what_this_host_routes_elsewhere_is_not_taken(engine: Engine, mark: dict[str, str]) -> None:
    pool = IPv4Network("10.251.248.0/27")
    name = f"drainbench-route-{uuid.uuid4().hex[:8]}"
    routes = [IPv4Network("10.251.248.0/28")]
    _, subnet = lease(engine, name, mark, pool, 28, routes=routes)
    assert subnet == IPv4Network("10.251.248.16/28")
