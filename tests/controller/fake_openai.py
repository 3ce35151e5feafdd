"""A fake OpenAI-compatible server: answers what a test scripts, records what it was sent."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable
from typing import Any

Reply = Callable[[http.server.BaseHTTPRequestHandler], None]


def completion(
    content: object = None,
    calls: object = None,
    finish_reason: str = "stop",
    **message: Any,
) -> dict[str, Any]:
    """A chat completion with 100 prompt tokens, 60 of them cached, and 7 completion tokens."""
    body: dict[str, Any] = {"role": "assistant", "content": content, **message}
    if calls is not None:
        body["tool_calls"] = calls
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "fake",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": body}],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 7,
            "total_tokens": 107,
            "prompt_tokens_details": {"cached_tokens": 60},
        },
    }


def call(name: object, arguments: object, call_id: str = "c1") -> dict[str, Any]:
    """One tool call; `arguments` that are no text are serialised."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def answer(body: object, status: int = 200) -> Reply:
    """Reply with JSON, or with raw text or bytes."""

    def reply(handler: http.server.BaseHTTPRequestHandler) -> None:
        if isinstance(body, bytes):
            data = body
        else:
            data = (body if isinstance(body, str) else json.dumps(body)).encode()
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    return reply


def drip(handler: http.server.BaseHTTPRequestHandler) -> None:
    """Send a byte now and then, for ever: no read time-out ever fires."""
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.end_headers()
    while True:
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.02)


def hang_up(handler: http.server.BaseHTTPRequestHandler) -> None:
    """Close the connection without an answer, as a killed server does."""
    handler.close_connection = True
    handler.connection.close()


class FakeOpenAI:
    """Serves scripted replies in order; the last one repeats."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.replies: list[Reply] = []
        self.models: Reply = answer({"object": "list", "data": []})
        """To a request for the list of models."""
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.models(self)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                fake.requests.append(json.loads(body))
                fake.headers.append({k.lower(): v for k, v in self.headers.items()})
                reply = fake.replies.pop(0) if len(fake.replies) > 1 else fake.replies[0]
                try:
                    reply(self)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def script(self, *replies: Reply | dict[str, Any]) -> None:
        """Set what is answered, turn by turn."""
        self.replies = [answer(r) if isinstance(r, dict) else r for r in replies]
        self.requests.clear()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
