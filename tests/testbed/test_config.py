"""Configuration files, checked by the programs that read them where they are here."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import programs
from testbed.config import prometheus, redis
from testbed.config.haproxy import HAProxyConfig
from testbed.config.slots import shuffled_slots
from tests.requirements import require

ORDER = [4, 7, 8, 5, 9, 3, 6, 1, 2]


def config(algorithm: str = "leastconn") -> str:
    return HAProxyConfig(
        algorithm=algorithm,  # type: ignore[arg-type]
        servers={"api-1": "127.0.0.1:7001", "api-2": "127.0.0.1:7002"},
        weight=100,
        runtime_socket="/tmp/none/haproxy.sock",
        frontend_bind="127.0.0.1:7003",
        exporter_bind="127.0.0.1:7004",
    ).render()


@pytest.mark.parametrize("algorithm", ["leastconn", "roundrobin"])
def test_haproxy_accepts_its_configuration(tmp_path: Path, algorithm: str) -> None:
    require("haproxy", lambda: programs.find("haproxy"))
    path = tmp_path / "haproxy.cfg"
    path.write_text(config(algorithm))
    done = subprocess.run(
        [programs.find("haproxy"), "-c", "-f", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr.lower()


def test_haproxy_balances_as_asked_and_keeps_no_client_on_a_server() -> None:
    text = config("roundrobin")
    assert "balance roundrobin" in text
    assert "option http-server-close" in text
    assert "server api-2 127.0.0.1:7002 weight 100" in text
    assert "cookie" not in text
    assert "stick" not in text


def test_prometheus_scrapes_haproxy_and_every_backend() -> None:
    parsed = json.loads(prometheus.render_static("h:1", ["b:1", "b:2"], 0.5))
    assert parsed["global"]["scrape_interval"] == "500ms"
    jobs = {job["job_name"]: job["static_configs"] for job in parsed["scrape_configs"]}
    assert jobs == {"haproxy": [{"targets": ["h:1"]}], "backend": [{"targets": ["b:1", "b:2"]}]}


def test_redis_keeps_nothing_on_disk_and_evicts_nothing() -> None:
    lines = redis.render("127.0.0.1", 7777, "secret", "/tmp/x").splitlines()
    assert {'save ""', "appendonly no", "maxmemory-policy noeviction"} <= set(lines)
    assert {"bind 127.0.0.1", "port 7777", "requirepass secret"} <= set(lines)


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_every_instance_has_one_slot(backends: int, seed: int) -> None:
    slots = shuffled_slots(backends, seed)
    assert list(slots) == [f"api-{n}" for n in range(1, backends + 1)]
    assert sorted(slots.values()) == list(range(1, backends + 1))
    assert shuffled_slots(backends, seed) == slots


def test_the_order_of_slots_is_golden() -> None:
    """Pinned: it decides which slot is faulty in a run."""
    assert list(shuffled_slots(9, 42).values()) == ORDER
    assert len({tuple(shuffled_slots(9, seed).values()) for seed in range(20)}) == 20
