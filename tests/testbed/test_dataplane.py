"""HAProxy's Data Plane API beside a testbed, where there is one."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from testbed import programs
from testbed.api import DataPlaneAddress
from testbed.errors import ProgramMissing
from testbed.factory import create
from testbed.readiness import dataplane_answers
from tests.requirements import require
from tests.testbed import builders

ADDRESS = DataPlaneAddress("http://127.0.0.1:1", "me", "secret")
V3 = "/v3/services/haproxy/runtime/backends/be_api/servers"
V2 = "/v2/services/haproxy/runtime/servers?backend=be_api"


def client(pages: dict[str, list[dict[str, str]]]) -> httpx.Client:
    def handle(request: httpx.Request) -> httpx.Response:
        assert request.headers["Authorization"].startswith("Basic ")
        path = request.url.raw_path.decode()
        return httpx.Response(200, json=pages[path]) if path in pages else httpx.Response(404)

    return httpx.Client(transport=httpx.MockTransport(handle))


@pytest.mark.parametrize("path", [V3, V2])
def test_it_is_ready_when_it_lists_all_slots(path: str) -> None:
    three = [{"name": f"api-{i}"} for i in (1, 2, 3)]
    assert dataplane_answers(client({path: three}), ADDRESS, 3).probe()[0] is True
    assert dataplane_answers(client({path: three[:2]}), ADDRESS, 3).probe() == (
        False,
        "2 servers listed",
    )


def test_what_it_answered_instead_is_shown() -> None:
    holds, seen = dataplane_answers(client({}), ADDRESS, 3).probe()
    assert not holds
    assert "v3: HTTP 404" in seen and "v2: HTTP 404" in seen


def test_one_that_was_asked_for_must_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DRAINBENCH_CACHE", str(tmp_path))
    monkeypatch.delenv("DRAINBENCH_DATAPLANEAPI", raising=False)
    assert programs.optional("dataplaneapi") is None
    with pytest.raises(ProgramMissing, match="dataplaneapi"):
        programs.optional("dataplaneapi", {"dataplaneapi": str(tmp_path / "none")})
    monkeypatch.setenv("DRAINBENCH_DATAPLANEAPI", str(tmp_path / "none"))
    with pytest.raises(ProgramMissing, match="DRAINBENCH_DATAPLANEAPI"):
        programs.optional("dataplaneapi")


def test_a_local_testbed_starts_the_real_one() -> None:
    require("dataplaneapi", lambda: programs.find("dataplaneapi"))
    for name in programs.NEEDED:
        require({"redis": "valkey"}.get(name, name), lambda name=name: programs.find(name))
    testbed = create("local", builders.spec(2))
    try:
        addresses = testbed.start()
        assert addresses.dataplane is not None
        auth = (addresses.dataplane.user, addresses.dataplane.password)
        answer = httpx.get(addresses.dataplane.url + V3, auth=auth)
        assert sorted(row["name"] for row in answer.json()) == ["api-1", "api-2"]
        refused = httpx.get(addresses.dataplane.url + V3, auth=(auth[0], "wrong"))
        assert refused.status_code == 401
    finally:
        testbed.stop()
