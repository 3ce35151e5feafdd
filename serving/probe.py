"""Questions to an endpoint: is it alive, is it warm, does a reasoning mode change the prompt."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from serving.api import EndpointInfo, ModelSpec
from serving.errors import EndpointUnreachable, ModeHasNoEffect, ModesUnverifiable

_CONNECT_TIMEOUT_S = 10.0
_TEMPLATE_TIMEOUT_S = 60.0
_PROBE_MESSAGES = (
    {"role": "system", "content": "You are a controller."},
    {"role": "user", "content": "Say ok."},
)


def http_client(base_url: str, api_key: str, timeout_s: float) -> httpx.Client:
    """A client for the server behind `base_url`; paths are relative to `base_url`.

    `timeout_s` starts anew with every byte: for servers of ours. See `ask` for all others.
    """
    return httpx.Client(**_client_options(base_url, api_key, timeout_s))


def ask(
    base_url: str, api_key: str, timeout_s: float, path: str, body: Mapping[str, Any] | None = None
) -> httpx.Response:
    """One request and all of its answer within `timeout_s`, however slowly the bytes come.

    A POST where there is a `body`, else a GET. Raises `httpx.HTTPError`, `httpx.InvalidURL`.
    """

    async def exchange() -> httpx.Response:
        async with (
            asyncio.timeout(timeout_s),
            httpx.AsyncClient(**_client_options(base_url, api_key, timeout_s)) as client,
        ):
            return await (client.get(path) if body is None else client.post(path, json=body))

    try:
        return asyncio.run(exchange())
    except TimeoutError:
        raise httpx.ReadTimeout(f"no complete answer within {timeout_s:g} s") from None


def _client_options(base_url: str, api_key: str, timeout_s: float) -> dict[str, Any]:
    return {
        "base_url": base_url,
        "headers": {"Authorization": f"Bearer {api_key}"} if api_key else {},
        "timeout": httpx.Timeout(timeout_s, connect=min(_CONNECT_TIMEOUT_S, timeout_s)),
        # Without TLS there is no need to load the system's certificates.
        "verify": base_url.startswith("https:"),
        "trust_env": not is_nearby(base_url),
    }


def is_nearby(url: str) -> bool:
    """Whether the host is a loopback or private address, which no proxy from the environment
    should come between."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_private
    except ValueError:
        return False


def answers(info: EndpointInfo, deadline_s: float) -> bool:
    """Whether a tiny completion comes back within `deadline_s`.

    A server that decodes nothing any more still says that its health is ok. Ask when no request is
    under way: with one slot, this one waits for its turn.
    """
    body = {
        "model": info.model,
        "messages": list(_PROBE_MESSAGES),
        "max_tokens": 1,
        "temperature": 0,
    }
    try:
        answer = ask(info.base_url, info.api_key, deadline_s, "chat/completions", body)
        return answer.status_code == 200 and bool(answer.json().get("choices"))
    except (httpx.HTTPError, ValueError, AttributeError):
        return False


def warm_up(
    info: EndpointInfo,
    system_prompt: str,
    tools: Sequence[Mapping[str, Any]] = (),
    timeout_s: float = 300.0,
) -> float:
    """Have the real system prompt and tools processed once, so that the first step is no slower
    than the others; returns the seconds it took.

    Raises `EndpointUnreachable`, also when the prompt does not fit into the context.
    """
    body: dict[str, Any] = {
        "model": info.model,
        "messages": [
            {"role": "system", "content": system_prompt},
            {"role": "user", "content": "ok"},
        ],
        "max_tokens": 1,
    }
    if tools:
        body |= {"tools": list(tools), "tool_choice": "auto"}
    start = time.monotonic()
    try:
        answer = ask(info.base_url, info.api_key, timeout_s, "chat/completions", body)
    except httpx.HTTPError as error:
        raise EndpointUnreachable(
            f"{info.model}: no answer to the warm-up within {timeout_s:.0f} s from "
            f"{info.base_url} ({_reason(error)})"
        ) from None
    if answer.status_code != 200:
        raise EndpointUnreachable(
            f"{info.model}: the warm-up was refused by {info.base_url}: {describe(answer)}"
        )
    return time.monotonic() - start


def verify_modes(info: EndpointInfo, model: ModelSpec) -> dict[str, str]:
    """Check that every two modes of a model render different prompts (paper, §3.2.2).

    Returns SHA-256 digests of the rendered prompts by mode, for the record. Raises
    `ModeHasNoEffect`; `ModesUnverifiable` when the endpoint has no `/apply-template`;
    `EndpointUnreachable`.
    """
    prompts = {
        mode.name: render_prompt(info, _PROBE_MESSAGES, mode.template_kwargs)
        for mode in model.modes
    }
    for one, other in itertools.combinations(prompts, 2):
        if prompts[one] == prompts[other]:
            switches = ", ".join(
                sorted({key for mode in model.modes for key in mode.template_kwargs})
            )
            raise ModeHasNoEffect(
                f"{model.name}: modes `{one}` and `{other}` render the same prompt; its chat "
                f"template ignores {switches or 'them (template_kwargs is empty)'}"
            )
    return {
        name: hashlib.sha256(prompt.encode("utf-8")).hexdigest() for name, prompt in prompts.items()
    }


def render_prompt(
    info: EndpointInfo,
    messages: Sequence[Mapping[str, Any]],
    template_kwargs: Mapping[str, Any],
) -> str:
    """The text that the server's chat template makes of these messages.

    Raises `ModesUnverifiable`, `EndpointUnreachable`.
    """
    root = info.base_url.rstrip("/").removesuffix("/v1")
    body = {"messages": list(messages), "chat_template_kwargs": dict(template_kwargs)}
    try:
        answer = ask(root, info.api_key, _TEMPLATE_TIMEOUT_S, "/apply-template", body)
    except httpx.HTTPError as error:
        raise EndpointUnreachable(f"no answer from {root} ({_reason(error)})") from None
    prompt = _prompt_in(answer)
    # A site that answers every path with a page of its own has no such thing either.
    if answer.status_code in (404, 405, 501) or (answer.status_code == 200 and prompt is None):
        raise ModesUnverifiable(
            f"{root} has no /apply-template, so that a mode can't be checked to have an effect; "
            f"to go on regardless, set serving.verify_modes=false"
        )
    if prompt is None or answer.status_code != 200:
        raise EndpointUnreachable(f"{root}/apply-template: {describe(answer)}")
    return prompt


def _prompt_in(answer: httpx.Response) -> str | None:
    try:
        prompt = answer.json()["prompt"]
    except (ValueError, LookupError, TypeError):
        return None
    return prompt if isinstance(prompt, str) else None


def describe(answer: httpx.Response) -> str:
    """Status and message of an error answer, in one line."""
    try:
        error = answer.json().get("error", {})
        message = error.get("message", "") if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError):
        message = answer.text
    return f"HTTP {answer.status_code} {' '.join(message.split())[:200]}".strip()


def _reason(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}".strip(": ")
