"""Any OpenAI-compatible URL: what it must answer, and what is said when it doesn't."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from serving import probe, remote
from serving.api import EndpointInfo, ModelSpec
from serving.errors import EndpointUnreachable, ModesUnverifiable
from serving.probe import http_client, is_nearby, verify_modes, warm_up
from serving.remote import UrlEndpoint


class Handler(BaseHTTPRequestHandler):
    """A server of two models that wants a key."""

    models: ClassVar[Any] = {"data": [{"id": "one"}, {"id": "two"}]}
    template: ClassVar[tuple[int, Any]] = (404, {})
    completion: ClassVar[Any] = {"choices": [{"message": {"content": "ok"}}]}
    dripping: ClassVar[threading.Event | None] = None
    """Answers come byte by byte, and never end, until it is set."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != "Bearer right":
            self.answer(401, {"error": {"message": "bad key"}})
        elif self.path == "/v1/models":
            self.answer(200, self.models)
        else:
            self.answer(404, {"error": "no such page"})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v1/chat/completions":
            self.answer(200, self.completion)
        else:
            self.answer(*self.template)

    def answer(self, status: int, body: Any) -> None:
        if self.dripping is not None:
            with suppress(OSError):
                self.drip(self.dripping)
            return
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def drip(self, ended: threading.Event) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not ended.wait(0.02):
            self.wfile.write(b"x")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_endpoint_that_answers(url: str) -> None:
    endpoint = UrlEndpoint(f"{url}/v1/", "right", "two")
    assert not endpoint.alive()
    info = endpoint.start()
    assert (info.base_url, info.model) == (f"{url}/v1", "two")
    assert info.report["models"] == ["one", "two"]
    assert endpoint.alive()
    assert warm_up(info, "You are a controller.") > 0
    endpoint.stop()
    endpoint.stop()
    assert not endpoint.alive()


def test_modes_of_an_endpoint_that_can_not_show_its_prompts(url: str, smollm2: ModelSpec) -> None:
    info = UrlEndpoint(f"{url}/v1", "right", "one").start()
    with pytest.raises(ModesUnverifiable, match=r"serving\.verify_modes=false"):
        verify_modes(info, smollm2)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (200, "<html>", ModesUnverifiable),
        (200, {"prompt": None}, ModesUnverifiable),
        (200, [], ModesUnverifiable),
        (500, "<html>", EndpointUnreachable),
        (500, {"prompt": "x"}, EndpointUnreachable),
    ],
)
def test_what_is_no_prompt(
    url: str,
    smollm2: ModelSpec,
    status: int,
    body: Any,
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Handler, "template", (status, body))
    info = UrlEndpoint(f"{url}/v1", "right", "one").start()
    with pytest.raises(error, match="/apply-template") as caught:
        verify_modes(info, smollm2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("completion", ["ok", [], {"choices": []}, "<html>"])
def test_what_is_no_completion_is_no_life(
    url: str, completion: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "completion", completion)
    endpoint = UrlEndpoint(f"{url}/v1", "right", "one")
    endpoint.start()
    assert not endpoint.alive()


def test_answers_that_never_end_are_given_up(
    url: str, smollm2: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = UrlEndpoint(f"{url}/v1", "right", "one", liveness_timeout_s=0.3)
    info = endpoint.start()
    ended = threading.Event()
    monkeypatch.setattr(Handler, "dripping", ended)
    monkeypatch.setattr(probe, "_TEMPLATE_TIMEOUT_S", 0.3)
    monkeypatch.setattr(remote, "_START_TIMEOUT_S", 0.3)
    try:
        assert not endpoint.alive()
        with pytest.raises(EndpointUnreachable, match="no answer to the warm-up"):
            warm_up(info, "x", timeout_s=0.3)
        with pytest.raises(EndpointUnreachable, match=r"no complete answer within 0\.3 s"):
            verify_modes(info, smollm2)
        with pytest.raises(EndpointUnreachable, match=r"no complete answer within 0\.3 s"):
            endpoint.start()
    finally:
        ended.set()


@pytest.mark.parametrize(
    ("path", "key", "model", "message"),
    [
        ("/v1", "wrong", "one", r"refuses the API key \(HTTP 401 bad key\).*api_key_env"),
        ("/v1", "right", "three", r"offers no model 'three' \(it has: one, two\)"),
        ("/v1", "right", None, r"offers 2 models \(one, two\).*serving\.model_id"),
        ("", "right", "one", r"/models: HTTP 404 no such page; .*end in /v1"),
    ],
)
def test_wrong_requests(url: str, path: str, key: str, model: str | None, message: str) -> None:
    with pytest.raises(EndpointUnreachable, match=message) as caught:
        UrlEndpoint(url + path, key, model).start()
    assert "\n" not in str(caught.value)
    assert key not in str(caught.value)


def test_the_only_model_needs_no_name(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handler, "models", {"data": [{"id": "one"}]})
    assert UrlEndpoint(f"{url}/v1", "right").start().model == "one"


@pytest.mark.parametrize("answer", [[], {"models": []}, {"data": [1]}, "ok"])
def test_something_else_than_an_openai_api(
    url: str, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "models", answer)
    with pytest.raises(EndpointUnreachable, match="does not answer as an OpenAI-compatible API"):
        UrlEndpoint(f"{url}/v1", "right", "one").start()


def test_nobody_there() -> None:
    with pytest.raises(EndpointUnreachable, match=r"no answer from http://127.0.0.1:9/v1/models"):
        UrlEndpoint("http://127.0.0.1:9/v1").start()
    with pytest.raises(EndpointUnreachable, match="is no URL"):
        UrlEndpoint("localhost:8080").start()
    for odd in ("http://[", "http://h:99999/v1", "http://:80"):
        with pytest.raises(EndpointUnreachable, match="no answer from") as caught:
            UrlEndpoint(odd).start()
        assert "\n" not in str(caught.value)
    gone = EndpointInfo(base_url="http://127.0.0.1:9/v1", api_key="", model="m")
    with pytest.raises(EndpointUnreachable, match="no answer to the warm-up"):
        warm_up(gone, "x", timeout_s=5.0)


@pytest.mark.parametrize(
    ("address", "nearby"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://[::1]:1/v1", True),
        ("http://10.0.0.7:8080/v1", True),
        ("http://localhost/v1", True),
        ("https://api.example.org/v1", False),
        ("https://8.8.8.8/v1", False),
    ],
)
def test_no_proxy_comes_between_us_and_a_server_nearby(address: str, nearby: bool) -> None:
    assert is_nearby(address) is nearby
    with http_client(address, "", 1.0) as client:
        assert client.trust_env is not nearby
