"""One chat completion within a deadline, with foreign errors mapped at this one place.

The OpenAI client's own time-out restarts with every byte that arrives, and by default it tries
three times. So there are no retries here, and a deadline of wall time that ends the request however
slowly its answer drips; cancelling closes the connection, which also stops the server's generation.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from controller.addresses import is_loopback

# llama-server answers 500 when a model's own output breaks its parser or the template (a truncated
# tool call, say), or outgrows the context. That is the model's doing; any other 5xx is not.
_MODELS_DOING = re.compile(r"pars|template|jinja|grammar|tool call|json|context", re.IGNORECASE)

# Both turns of a step share a connection, two steps don't: llama-server closes idle ones after 5 s,
# and a request that meets such a closing would look like a server that died.
_KEEP_S = 2.0

# The request is refused for what it is; 401, 403, 404 and 429 say that nobody serves us here.
_NOT_SERVED = frozenset({401, 403, 404, 408, 429})
_KEY_REFUSED = frozenset({401, 403})

_CONNECT_S = 10.0
# Above the bound of connecting, so that an unreachable host is told from a slow answer.
_REACH_S = 15.0

_Ask = Callable[[openai.AsyncOpenAI], Awaitable[Any]]
"""Sends one request, and gives its raw response."""


@dataclass(frozen=True)
class TurnResult:
    """What one request brought: exactly one of `response` and `error` is set."""

    response: Any | None
    error: str | None
    infrastructure: bool
    status: int | None
    """HTTP status; None where there was no answer."""
    duration_s: float


class Endpoint:
    """An OpenAI-compatible endpoint on kept connections, used by one thread at a time.

    Every failure is a `TurnResult` with `error`; only `interrupt` may come from another thread.
    """

    def __init__(self, base_url: str, api_key: str) -> None:
        self._runner = asyncio.Runner()
        # Connecting is bounded on its own, so that an unreachable host is told from a slow model.
        timeout = httpx2.Timeout(None, connect=_CONNECT_S)
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or "none",
            max_retries=0,
            timeout=timeout,
            # A proxy of the environment must not come between us and a server on this machine.
            http_client=openai.DefaultAsyncHttpxClient(
                trust_env=not is_loopback(base_url), limits=httpx2.Limits(keepalive_expiry=_KEEP_S)
            ),
        )
        self._task: asyncio.Task[Any] | None = None
        self._interrupted = False

    def complete(self, request: Mapping[str, Any], deadline_s: float) -> TurnResult:
        """Send `request`; give up `deadline_s` seconds from now."""
        return self._within(
            deadline_s,
            lambda client: client.chat.completions.with_raw_response.create(**request),
        )

    def refusal(self) -> str | None:
        """Why no request can be answered: nobody listens, or the key is wrong. None: it may be.

        Asks for the list of models. What else is wrong with that says nothing: not every server
        has one, and a busy one may be late with it.
        """
        result = self._within(_REACH_S, lambda client: client.models.with_raw_response.list())
        nobody = result.infrastructure and result.status is None
        return result.error if nobody or result.status in _KEY_REFUSED else None

    def _within(self, deadline_s: float, ask: _Ask) -> TurnResult:
        started = time.monotonic()
        status, response, error, infrastructure = self._runner.run(self._send(ask, deadline_s))
        duration_s = time.monotonic() - started
        return TurnResult(response, error, infrastructure, status, duration_s)

    def interrupt(self) -> None:
        """End the request that another thread is waiting for, and every later one."""
        self._interrupted = True
        task = self._task
        if task is not None:
            self._runner.get_loop().call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """Close the connections; idempotent."""
        if self._client is not None:
            self._runner.run(self._client.close())
        self._client = None
        self._runner.close()

    async def _send(
        self, ask: _Ask, deadline_s: float
    ) -> tuple[int | None, Any | None, str | None, bool]:
        if self._client is None:
            return None, None, "the endpoint is closed", False
        self._task = asyncio.current_task()
        if self._interrupted:
            return None, None, "interrupted", False
        try:
            async with asyncio.timeout(deadline_s):
                raw = await ask(self._client)
                return raw.status_code, json.loads(raw.text), None, False
        except TimeoutError:
            return None, None, f"timeout: no answer within {deadline_s:.1f} s", False
        except asyncio.CancelledError:
            if not self._interrupted:
                raise
            return None, None, "interrupted", False
        except (ValueError, RecursionError):
            return 200, None, "malformed answer: not JSON", False
        except openai.APIStatusError as failure:
            return failure.status_code, None, *_judge(failure.status_code, _message(failure))
        except openai.APIConnectionError as failure:
            cause = failure.__cause__ or failure
            reason = str(cause) or type(cause).__name__
            return None, None, f"connection failed: {reason[:200]}", True
        except (openai.OpenAIError, httpx2.HTTPError) as failure:
            return None, None, f"{type(failure).__name__}: {str(failure)[:200]}", True
        finally:
            self._task = None


def preload() -> None:
    """Import what a first request needs (half a second), so that no run waits for it.

    The client imports most of itself when it is used, so it is: on a port where nobody listens.
    """
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        endpoint = Endpoint(f"http://127.0.0.1:{nobody.getsockname()[1]}", "")
        endpoint.complete({"model": "none", "messages": []}, deadline_s=5.0)
        endpoint.close()


def _judge(status: int, message: str) -> tuple[str, bool]:
    """The error of an HTTP status, and whether it is not the model's doing."""
    error = f"HTTP {status}: {message}"
    if status in _NOT_SERVED:
        return error, True
    return error, status >= 500 and not (status == 500 and _MODELS_DOING.search(message))


def _message(failure: openai.APIStatusError) -> str:
    """The server's own words, short and on one line."""
    body = failure.body
    if isinstance(body, Mapping):
        inner = body.get("error", body)
        words = inner.get("message") if isinstance(inner, Mapping) else inner
    else:
        words = body
    return " ".join(str(words or failure.message).split())[:300]
