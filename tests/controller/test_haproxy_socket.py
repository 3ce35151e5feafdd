"""The runtime socket against a real HAProxy, hostile names included."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from controller.actuator import HAProxyActuator, ShadowActuator
from controller.api import Action
from controller.errors import HAProxyAnswer, HAProxyUnavailable, RequestError, UnsafeName
from controller.haproxy import Fleet, RuntimeSocket
from tests.controller.builders import drain, enable, set_weight
from tests.controller.rig import Rig

FLEET = Fleet({"be_api": ("api-1", "api-2", "api-3")})


def states(rig: Rig) -> dict[str, tuple[str, int]]:
    return {
        stat.slot: (stat.admin_state, stat.weight)
        for stat in RuntimeSocket(rig.socket).server_stats("be_api")
    }


UNTOUCHED = {f"api-{n}": ("ready", 100) for n in (1, 2, 3)}


def test_discovery_finds_backends_servers_and_algorithm(rig: Rig) -> None:
    client = RuntimeSocket(rig.socket)
    found = {b.name: (b.algorithm, b.servers) for b in client.backends()}
    assert found == {
        "be_api": ("leastconn", ("api-1", "api-2", "api-3")),
        "be_other": ("roundrobin", ("other-1",)),
    }
    fleet = Fleet({b.name: b.servers for b in client.backends()})
    assert fleet.find("be_api", "api-2") == ("be_api", "api-2")
    assert fleet.find("be_api", "other-1") is None


def test_unix_and_tcp_read_the_same(rig: Rig) -> None:
    over_unix = RuntimeSocket(f"unix://{rig.socket}").server_stats("be_api")
    over_tcp = RuntimeSocket(rig.tcp_socket).server_stats("be_api")
    assert over_unix == over_tcp
    assert [s.address for s in over_unix] == [f"127.0.0.1:{b.port}" for b in rig.backends]


def test_drained_server_gets_no_requests_and_counts_its_errors(rig: Rig) -> None:
    client = RuntimeSocket(rig.socket)
    rig.backends[1].status = 500
    before = {s.slot: s for s in client.server_stats("be_api")}
    assert client.drain("be_api", "api-2") == ""
    assert {rig.get() for _ in range(12)} == {200}
    after = {s.slot: s for s in client.server_stats("be_api")}
    assert after["api-2"].requests_total == before["api-2"].requests_total
    assert after["api-2"].status.startswith("DRAIN")
    assert after["api-2"].admin_state == "drain"
    assert not after["api-2"].up
    served = sum(after[s].requests_total - before[s].requests_total for s in ("api-1", "api-3"))
    assert served == 12
    assert client.ready("be_api", "api-2") == ""
    statuses = [rig.get() for _ in range(12)]
    errors = statuses.count(500)
    assert errors > 0
    last = {s.slot: s for s in client.server_stats("be_api")}
    assert last["api-2"].http_5xx_total - before["api-2"].http_5xx_total == errors
    assert last["api-1"].http_5xx_total == before["api-1"].http_5xx_total


def test_refusals_come_back_in_haproxys_words(rig: Rig) -> None:
    client = RuntimeSocket(rig.socket)
    assert client.drain("be_api", "api-9") == "No such server."
    assert client.drain("be_nope", "api-1") == "No such backend."
    with pytest.raises(HAProxyAnswer, match=r"No such proxy|find backend"):
        client.server_stats("be_nope")


@pytest.mark.parametrize(
    "name",
    [
        "api-1 state drain; set weight be_api/api-2 7",
        "api-1\nset weight be_api/api-2 7",
        "api-1;",
        'api-1"; shutdown',
        "api-1/api-2",
        "api-1 ",
        "",
        "api-1\0",
        "апи-1",
        "api-1\\",
        "a" * 100_000 + ";",
    ],
)
def test_hostile_names_never_reach_the_socket(rig: Rig, name: str) -> None:
    client = RuntimeSocket(rig.socket)
    for call in (client.drain, client.ready):
        with pytest.raises(UnsafeName):
            call("be_api", name)
        with pytest.raises(UnsafeName):
            call(name, "api-1")
    with pytest.raises(UnsafeName):
        client.set_weight("be_api", name, 50)
    with pytest.raises(UnsafeName):
        client.server_stats(name)
    with pytest.raises(UnsafeName):
        Fleet({"be_api": (name,)})
    actuator = HAProxyActuator(client, FLEET, "be_api")
    (result,) = actuator.execute([drain(name)])
    assert not result.ok
    assert result.message == "not a server that discovery returned"
    assert states(rig) == UNTOUCHED


@pytest.mark.parametrize("weight", [-1, 257, 10**9, "50", 1.5, True, None])
def test_only_integers_in_range_become_weights(rig: Rig, weight: object) -> None:
    with pytest.raises(UnsafeName):
        RuntimeSocket(rig.socket).set_weight("be_api", "api-1", weight)  # type: ignore[arg-type]
    assert states(rig) == UNTOUCHED


def test_actuator_reads_back_what_became_true(rig: Rig) -> None:
    actuator = HAProxyActuator(RuntimeSocket(rig.socket), FLEET, "be_api")
    plan = [set_weight("api-1", 50), drain("api-1"), set_weight("api-1", 25), Action("no_op")]
    results = actuator.execute(plan)
    assert [(r.ok, r.weight_before, r.weight_after, r.admin_state_after) for r in results] == [
        (True, 100, 50, "ready"),
        (True, 50, 50, "drain"),
        (True, 50, 25, "drain"),
    ]
    assert states(rig)["api-1"] == ("drain", 25)
    (result,) = actuator.execute([enable("api-1")])
    assert (result.ok, result.weight_after, result.admin_state_after) == (True, 25, "ready")


def test_shadow_changes_nothing(rig: Rig) -> None:
    reader = HAProxyActuator(RuntimeSocket(rig.socket), FLEET, "be_api")
    (result,) = ShadowActuator(reader).execute([drain("api-1")])
    assert not result.ok
    assert "shadow" in result.message
    assert (result.weight_before, result.admin_state_after) == (100, "ready")
    assert states(rig) == UNTOUCHED


def test_process_tells_a_restart(rig: Rig) -> None:
    first = RuntimeSocket(rig.socket).process()
    again = RuntimeSocket(rig.socket).process()
    assert again.same_process(first)
    assert first.version.startswith(("2.", "3."))
    assert not type(first)(first.pid + 1, 0, first.version).same_process(first)
    assert not type(first)(first.pid, first.uptime_s - 1, first.version).same_process(first)


def test_nobody_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HAProxyUnavailable, match="No such file"):
        RuntimeSocket(str(tmp_path / "none.sock")).process()


@pytest.mark.parametrize("address", ["", "tcp://", "tcp://host", "tcp://host:99999", "tcp://:1"])
def test_bad_addresses_are_refused(address: str) -> None:
    with pytest.raises(RequestError):
        RuntimeSocket(address)


def test_a_dripping_answer_ends_at_the_deadline() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                while not stop.wait(0.02):
                    connection.sendall(b"x")
            except OSError:
                pass

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    port = listener.getsockname()[1]
    try:
        with pytest.raises(HAProxyUnavailable, match="no answer in time"):
            RuntimeSocket(f"tcp://127.0.0.1:{port}", timeout_s=0.3).process()
    finally:
        stop.set()
        thread.join()
        listener.close()
