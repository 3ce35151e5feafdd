"""The Flask app and the identity of a backend."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flask.testing import FlaskClient

from testbed.backend import identity
from testbed.backend.app import create_app
from testbed.backend.settings import behaviour_of, to_environment
from tests.testbed import builders


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def client(slept: list[float]) -> FlaskClient:
    environ = {"INSTANCE": "2", **to_environment(builders.fleet(3))}
    return create_app(environ, slept.append).test_client()


def test_work_does_what_was_drawn(client: FlaskClient, slept: list[float]) -> None:
    behaviour = behaviour_of(builders.fleet(3), 2)
    ids = [f"7-{n}" for n in range(100)]
    statuses = [client.get("/work", headers={"X-Request-Id": i}).status_code for i in ids]
    draws = [behaviour.draw(i) for i in ids]
    assert statuses == [500 if draw.failed else 200 for draw in draws]
    assert 500 in statuses
    assert slept == [draw.delay_ms / 1000 for draw in draws]


def test_a_thread_lingers_after_its_answer() -> None:
    slept: list[float] = []
    profiles = tuple(replace(profile, linger_ms=2.5) for profile in builders.PROFILES)
    environ = {"INSTANCE": "1", **to_environment(builders.fleet(3, profiles=profiles))}
    response = create_app(environ, slept.append).test_client().get("/work", buffered=False)
    assert len(slept) == 1
    assert response.data == b"ok\n"
    response.close()
    assert slept[1:] == [0.0025]


def test_answers_name_their_instance(client: FlaskClient) -> None:
    assert client.get("/work").headers["X-Instance"] == "2"
    assert client.get("/healthz").status_code == 200


def test_metrics_count_answers_by_code(client: FlaskClient) -> None:
    codes = [
        client.get("/work", headers={"X-Request-Id": f"7-{n}"}).status_code for n in range(100)
    ]
    text = client.get("/metrics").text
    assert f'backend_requests_total{{code="200"}} {codes.count(200)}.0' in text
    assert f'backend_requests_total{{code="500"}} {codes.count(500)}.0' in text


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("api-3", 3),
        ("fleet-backend-12.fleet_default", 12),
        ("drainbench-api-1.drainbench-net.internal", 1),
        ("api7", 7),
    ],
)
def test_the_instance_number_ends_the_containers_name(name: str, number: int) -> None:
    assert identity.instance_number({}, name) == number


@pytest.mark.parametrize("name", ["backend", "api-0", "", "7-api.net1"])
def test_a_name_without_a_number_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="set INSTANCE"):
        identity.instance_number({}, name)


def test_the_variable_comes_before_the_name() -> None:
    assert identity.instance_number({"INSTANCE": "5"}, "api-3") == 5


def test_without_reverse_dns_the_hostname_is_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("unknown host")

    monkeypatch.setattr(identity.socket, "gethostname", lambda: "api-4")
    monkeypatch.setattr(identity.socket, "gethostbyname", refuse)
    assert identity.own_name() == "api-4"


def test_reverse_dns_comes_before_the_hostname(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity.socket, "gethostname", lambda: "c0ffee123456")
    monkeypatch.setattr(identity.socket, "gethostbyname", lambda _: "10.0.0.4")
    monkeypatch.setattr(identity.socket, "gethostbyaddr", lambda _: ("net-api-4.net", [], []))
    assert identity.instance_number({}) == 4
