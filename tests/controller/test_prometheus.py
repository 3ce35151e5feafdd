"""Prometheus' failures are telemetry errors, in one line."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from controller.errors import TelemetryError
from controller.telemetry.prometheus import Prometheus, TelemetryConfig

Answer = Callable[[str, dict[str, list[str]]], tuple[int, object]]


@pytest.fixture
def connections() -> list[object]:
    """Every connection that a server of `serve` got."""
    return []


@pytest.fixture
def serve(connections: list[object]) -> Iterator[Callable[[Answer], str]]:
    servers = []

    def start(answer: Answer) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                connections.append(self.client_address)
                super().setup()

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                status, body = answer(parts.path, parse_qs(parts.query))
                data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                # Who asked may have given up.
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.block_on_close = False
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def matrix(result: object) -> dict[str, object]:
    return {"status": "success", "data": {"result": result}}


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (503, "no", "HTTP Status Code 503"),
        (400, {"status": "error", "error": "parse error"}, "parse error"),
        (200, "no json", "Prometheus at"),
        (200, {"data": {}}, "bad answer"),
        (200, matrix("text"), "unknown shape"),
    ],
)
def test_bad_answers(serve: Callable[[Answer], str], status: int, body: object, words: str) -> None:
    prometheus = Prometheus(serve(lambda path, query: (status, body)), TelemetryConfig())
    with pytest.raises(TelemetryError, match=words) as caught:
        prometheus.read("be_api", 1000.0)
    assert "\n" not in str(caught.value)
    prometheus.close()


def test_an_answer_that_never_comes_ends_at_the_timeout_and_is_not_asked_for_again(
    serve: Callable[[Answer], str],
) -> None:
    release = threading.Event()
    asked: list[str] = []

    def wait(path: str, query: dict[str, list[str]]) -> tuple[int, object]:
        asked.append(path)
        release.wait(60)
        return 200, matrix([])

    prometheus = Prometheus(serve(wait), TelemetryConfig(timeout_s=0.5))
    with pytest.raises(TelemetryError, match=r"Prometheus at \S+: no answer in 0\.5 s"):
        prometheus.read("be_api", 1000.0)
    # Only now is every query of this reading known to have been sent.
    prometheus.close()
    release.set()
    assert sorted(asked) == ["/api/v1/query", *["/api/v1/query_range"] * 4]


@pytest.mark.parametrize("length", [b"Content-Length: 100000", b"Transfer-Encoding: chunked"])
def test_an_answer_that_drips_for_ever_ends_at_the_timeout(length: bytes) -> None:
    ended = threading.Event()
    piece = b" " if b"Length" in length else b"1\r\n \r\n"

    class Drip(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n")
                while not ended.wait(0.02):
                    self.wfile.write(piece)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Drip) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        prometheus = Prometheus(url, TelemetryConfig(timeout_s=0.5))
        try:
            with pytest.raises(TelemetryError, match=r"no answer in 0\.5 s"):
                prometheus.read("be_api", 1000.0)
            prometheus.close()
        finally:
            ended.set()
            server.shutdown()


def test_an_answer_that_breaks_off_is_a_telemetry_error() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=32) as listener:

        def cut() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")

        threading.Thread(target=cut, daemon=True).start()
        prometheus = Prometheus(f"http://127.0.0.1:{listener.getsockname()[1]}", TelemetryConfig())
        with pytest.raises(TelemetryError, match="Prometheus at") as caught:
            prometheus.read("be_api", 1000.0)
        assert "\n" not in str(caught.value)
        prometheus.close()


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    body = json.dumps(matrix([{"metric": {"server": "api-1"}, "values": [[1000, "1"]]}])).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_server(("127.0.0.1", 0), backlog=32) as listener:

        def serve_once_each() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                if connection.recv(65536):
                    connection.sendall(head + body)
                # It looks kept alive; the next request is read and met by a closed connection.
                connection.recv(65536)

        threading.Thread(target=serve_once_each, daemon=True).start()
        port = listener.getsockname()[1]
        prometheus = Prometheus(f"http://127.0.0.1:{port}", TelemetryConfig())
        prometheus._full = True  # so that all queries are of ranges
        for _ in range(3):
            assert prometheus.read("be_api", 1000.0).status == {"api-1": ((1000.0, 1.0),)}
        prometheus.close()


def test_ranges_and_the_age_of_the_window(
    serve: Callable[[Answer], str], connections: list[object]
) -> None:
    asked: list[tuple[str, dict[str, list[str]]]] = []
    age_s = 30.0
    now_s = 1_700_000_000.0

    def answer(path: str, query: dict[str, list[str]]) -> tuple[int, object]:
        asked.append((path, query))
        if path == "/api/v1/query":
            return 200, matrix([{"metric": {}, "value": [now_s, str(now_s - age_s)]}])
        return 200, matrix([{"metric": {"server": "api-1"}, "values": [[now_s, "1"]]}])

    prometheus = Prometheus(serve(answer), TelemetryConfig())
    results = prometheus.read("be_api", now_s)
    assert results.oldest_s == now_s - 30
    assert results.status == {"api-1": ((now_s, 1.0),)}
    ranges = [query for path, query in asked if path == "/api/v1/query_range"]
    assert len(ranges) == 4
    for query in ranges:
        assert float(query["end"][-1]) - float(query["start"][-1]) == 180
        assert query["step"] == ["15"]
    # Once the window is full it is not asked for again.
    age_s = 119.5
    assert prometheus.read("be_api", now_s).oldest_s == now_s - 120
    count = len(asked)
    assert prometheus.read("be_api", now_s + 10).oldest_s == now_s - 110
    assert len(asked) == count + 4
    # As many as are asked side by side, and kept: a new one costs twelve times as much.
    assert len(connections) <= 5 < len(asked)
    prometheus.close()
