"""Discovery through the Data Plane API: versions, shapes, refusals."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import httpx
import pytest

from controller.errors import DataPlaneError, UnsafeName
from controller.haproxy import DataPlane

INFO = {"api": {"version": "v3.2.5 abc"}, "system": {}}
V3 = {
    "/v3/info": INFO,
    "/v3/services/haproxy/configuration/backends": [{"name": "be_api"}, {"name": "empty"}],
    "/v3/services/haproxy/runtime/backends/be_api/servers": [
        {"name": "api-1", "admin_state": "ready", "id": "1"},
        {"name": "api-2", "admin_state": "drain", "id": "2"},
    ],
    "/v3/services/haproxy/runtime/backends/empty/servers": [],
}
V2 = {
    "/v2/info": {"api": {"version": "v2.9.1"}},
    "/v2/services/haproxy/configuration/backends": {"_version": 1, "data": [{"name": "be_api"}]},
    "/v2/services/haproxy/runtime/servers?backend=be_api": [{"name": "api-1"}],
}


def client(pages: Mapping[str, object], password: str = "right") -> DataPlane:
    def handle(request: httpx.Request) -> httpx.Response:
        expected = httpx.BasicAuth("admin", "right")
        signed = next(expected.auth_flow(httpx.Request("GET", request.url)))
        if request.headers.get("Authorization") != signed.headers["Authorization"]:
            return httpx.Response(401, json={"code": 401})
        path = request.url.raw_path.decode()
        if path not in pages:
            return httpx.Response(404, json={"code": 404})
        return httpx.Response(200, json=pages[path])

    return DataPlane(
        "http://127.0.0.1:5555/", "admin", password, transport=httpx.MockTransport(handle)
    )


def test_v3_is_preferred_and_empty_backends_are_left_out() -> None:
    plane = client({**V2, **V3})
    assert (plane.version.path, plane.version.version) == ("v3", "v3.2.5 abc")
    assert plane.fleet().servers == {"be_api": ("api-1", "api-2")}
    plane.close()
    plane.close()


def test_v2_has_other_paths_and_another_shape() -> None:
    plane = client(V2)
    assert (plane.version.path, plane.version.version) == ("v2", "v2.9.1")
    assert plane.fleet().servers == {"be_api": ("api-1",)}


def test_neither_version_says_what_was_found() -> None:
    with pytest.raises(DataPlaneError, match=r"neither v3 nor v2 \(/v3/info: 404, /v2/info: 404\)"):
        client({"/v1/info": INFO})


def test_wrong_credentials_are_named() -> None:
    with pytest.raises(DataPlaneError, match="refuses the credentials"):
        client(V3, password="wrong")


@pytest.mark.parametrize("shape", [{"rows": []}, [{"id": 1}], "text", [{"name": 7}], None])
def test_an_unknown_shape_names_the_version(shape: object) -> None:
    plane = client({**V3, "/v3/services/haproxy/configuration/backends": shape})
    with pytest.raises(DataPlaneError, match=r"v3, version v3\.2\.5"):
        plane.fleet()


@pytest.mark.parametrize("name", [".", ".."])
def test_a_backend_that_no_path_can_name_is_left_out(name: str) -> None:
    path = "/v3/services/haproxy/configuration/backends"
    plane = client({**V3, path: [{"name": name}, {"name": "be_api"}]})
    assert plane.fleet().servers == {"be_api": ("api-1", "api-2")}


def test_a_missing_path_names_the_version() -> None:
    plane = client({"/v3/info": INFO})
    with pytest.raises(DataPlaneError, match=r"v3\.2\.5.*HTTP 404"):
        plane.fleet()


def test_hostile_names_stop_at_discovery() -> None:
    path = "/v3/services/haproxy/runtime/backends/be_api/servers"
    plane = client({**V3, path: [{"name": "api-1; shutdown"}]})
    with pytest.raises(UnsafeName):
        plane.fleet()


def test_an_answer_that_drips_for_ever_is_given_up() -> None:
    def drip() -> Iterator[bytes]:
        while True:
            time.sleep(0.02)
            yield b" "

    transport = httpx.MockTransport(lambda request: httpx.Response(200, content=drip()))
    with pytest.raises(DataPlaneError, match=r"no complete answer in 0\.2 s"):
        DataPlane("http://127.0.0.1:1", "u", "p", timeout_s=0.2, transport=transport)


def test_nobody_there_is_one_line() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)

    with pytest.raises(DataPlaneError, match="connection refused"):
        DataPlane("http://127.0.0.1:1", "u", "p", transport=httpx.MockTransport(refuse))
