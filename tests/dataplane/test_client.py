"""The controller's client and the testbed's probe against the published description."""

from __future__ import annotations

from itertools import product
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.errors import DataPlaneError, UnsafeName
from controller.haproxy import DataPlane
from controller.haproxy.fleet import safe_name
from testbed.api import BACKEND_NAME, DataPlaneAddress
from testbed.readiness import dataplane_answers
from tests.dataplane.server import (
    MAJORS,
    PASSWORD,
    SERVERS_OPERATION,
    USER,
    Answers,
    ContractServer,
    of_backends,
    schema,
)
from tests.dataplane.strategies import conforming

both = pytest.mark.parametrize("server_of", MAJORS, indirect=True)
PROFILE = settings.get_profile("dataplane")

# The description's own rule for a backend's name; that of a server is not restricted.
NAMES = st.from_regex(r"[A-Za-z0-9\-_.:]{1,12}", fullmatch=True)


def discover(server: ContractServer) -> DataPlane:
    # A transport of its own, because the default one reads all certificates of this machine.
    return DataPlane(server.url, USER, PASSWORD, transport=httpx.HTTPTransport(verify=False))


def row(major: str, **fields: object) -> dict[str, Any]:
    known = schema(major, SERVERS_OPERATION[major])["items"]["properties"]
    assert fields.keys() <= known.keys(), "a field that the description does not have"
    return fields


@st.composite
def answers(draw: st.DrawFn, major: str, named: bool) -> Answers:
    """Whatever conforms; with `named`, every server has a name that HAProxy would allow."""
    found = Answers(info=draw(conforming(schema(major, "getInfo"))))
    found.backends = draw(conforming(schema(major, "getBackends")))
    rows = found.backends["data"] if major == "v2" else found.backends
    servers: dict[str, list[dict[str, Any]]] = {}
    for backend in rows:
        listed = draw(conforming(schema(major, SERVERS_OPERATION[major])))
        if named:
            names = draw(st.lists(NAMES, min_size=len(listed), max_size=len(listed), unique=True))
            listed = [{**one, "name": name} for one, name in zip(listed, names, strict=True)]
        servers[backend["name"]] = listed
    found.servers = servers
    return found


@both
@settings(PROFILE)
@given(data=st.data())
def test_any_conforming_answer_gives_exactly_its_slots(
    server_of: ContractServer, data: st.DataObject
) -> None:
    server_of.answers = given_ = data.draw(answers(server_of.speaks, named=True))
    plane = discover(server_of)
    assert plane.version.path == server_of.speaks
    assert plane.version.version == given_.info.get("api", {}).get("version", "unknown")
    unnameable = (".", "..") if server_of.speaks == "v3" else ()
    expected = {
        backend: tuple(server["name"] for server in rows)
        for backend, rows in given_.servers.items()
        if rows and backend not in unnameable
    }
    assert plane.fleet().servers == expected
    plane.close()


@both
@settings(PROFILE)
@given(data=st.data())
def test_an_answer_without_usable_names_is_refused_by_its_error(
    server_of: ContractServer, data: st.DataObject
) -> None:
    server_of.answers = given_ = data.draw(answers(server_of.speaks, named=False))
    plane = discover(server_of)
    rows = [one for listed in given_.servers.values() for one in listed]
    try:
        fleet = plane.fleet()
    except DataPlaneError:  # the description lets a server have no name
        assert any("name" not in one for one in rows)
    except UnsafeName:
        assert not all(is_safe(one["name"]) for one in rows if "name" in one)
    else:
        expected = {b: tuple(s["name"] for s in rows) for b, rows in given_.servers.items() if rows}
        assert fleet.servers == expected
    plane.close()


def is_safe(name: str) -> bool:
    try:
        safe_name(name)
    except UnsafeName:
        return False
    return True


@both
def test_states_never_change_what_is_discovered(server_of: ContractServer) -> None:
    major = server_of.speaks
    known = schema(major, SERVERS_OPERATION[major])["items"]["properties"]
    states = product(known["admin_state"]["enum"], known["operational_state"]["enum"], (None, 80))
    rows = [
        row(major, name=f"api-{i}", id=str(i), admin_state=admin, operational_state=up, port=port)
        for i, (admin, up, port) in enumerate(states, start=1)
    ]
    assert len(rows) == 18
    server_of.answers = Answers(
        backends=of_backends(major, [{"name": BACKEND_NAME}]), servers={BACKEND_NAME: rows}
    )
    plane = discover(server_of)
    assert plane.fleet().servers == {BACKEND_NAME: tuple(f"api-{i}" for i in range(1, 19))}
    plane.close()


@both
def test_requests_are_the_described_ones(server_of: ContractServer) -> None:
    major = server_of.speaks
    server_of.answers = Answers(
        backends=of_backends(major, [{"name": "be:a.b_c-1"}]),
        servers={"be:a.b_c-1": [row(major, name="s1")]},
    )
    plane = discover(server_of)
    assert plane.fleet().servers == {"be:a.b_c-1": ("s1",)}
    plane.close()
    probes = ["GET /v3/info", "GET /v2/info"][: MAJORS.index(major) + 1]
    servers = {
        "v3": "GET /v3/services/haproxy/runtime/backends/be:a.b_c-1/servers",
        "v2": "GET /v2/services/haproxy/runtime/servers?backend=be%3Aa.b_c-1",
    }
    assert server_of.asked == [
        *probes,
        f"GET /{major}/services/haproxy/configuration/backends",
        servers[major],
    ]


@both
@settings(PROFILE)
@given(data=st.data())
def test_refused_credentials_and_lost_backends_are_one_line(
    server_of: ContractServer, data: st.DataObject
) -> None:
    major = server_of.speaks
    with pytest.raises(DataPlaneError, match="refuses the credentials"):
        DataPlane(server_of.url, USER, "wrong", transport=httpx.HTTPTransport(verify=False))
    # The file that the API reads names a backend that the running HAProxy does not have.
    error = data.draw(conforming(schema(major, SERVERS_OPERATION[major], "default")))
    server_of.answers = Answers(
        info={"api": {"version": "1.2"}},
        backends=of_backends(major, [{"name": "gone"}]),
        error=error,
    )
    plane = discover(server_of)
    with pytest.raises(DataPlaneError, match=rf"{major}, version 1\.2.*gone.*HTTP 404"):
        plane.fleet()
    plane.close()


def probe(server: ContractServer, slots: int, password: str = PASSWORD) -> tuple[bool, str]:
    with httpx.Client(trust_env=False, verify=False) as client:
        address = DataPlaneAddress(server.url, USER, password)
        return dataplane_answers(client, address, slots).probe()


@both
@settings(PROFILE)
@given(data=st.data())
def test_the_probe_counts_named_servers(server_of: ContractServer, data: st.DataObject) -> None:
    major = server_of.speaks
    rows = data.draw(conforming(schema(major, SERVERS_OPERATION[major])))
    server_of.answers = Answers(servers={BACKEND_NAME: rows})
    named = sum("name" in one for one in rows)
    assert probe(server_of, named) == (True, f"{named} servers listed")
    assert probe(server_of, named + 1) == (False, f"{named} servers listed")


@both
def test_the_probe_tells_what_it_was_answered(server_of: ContractServer) -> None:
    holds, seen = probe(server_of, 3)
    assert not holds
    assert "v3: HTTP 404" in seen and "v2: HTTP 404" in seen
    holds, seen = probe(server_of, 3, password="wrong")
    assert not holds
    assert f"{server_of.speaks}: HTTP 401" in seen
