"""The Docker Engine: connecting to it, and its errors in this room's words."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import docker
import requests.exceptions
from docker.errors import APIError, DockerException, NotFound

from testbed.errors import ComponentDied, TestbedUnavailable

INSTEAD = "testbed=local needs no Docker"
NOT_RUNNING = "Docker is not running"
_GONE = (requests.exceptions.ConnectionError, requests.exceptions.Timeout, ConnectionError)


@dataclass(frozen=True)
class Engine:
    """A connection to the engine of this host."""

    client: docker.DockerClient

    @property
    def api(self) -> docker.APIClient:
        """The low-level client: one HTTP call per method."""
        return self.client.api

    def close(self) -> None:
        """Close its sockets; they are opened anew when needed."""
        with contextlib.suppress(Exception):
            self.client.close()

    def rootless(self) -> bool:
        """Whether root in a container is an ordinary user of this host."""
        options = self.api.info().get("SecurityOptions") or []
        return any("name=rootless" in option for option in options)


def connect(timeout_s: float = 60.0) -> Engine:
    """Connect to the engine that DOCKER_HOST names, or this host's.

    Raises `TestbedUnavailable` (not running, no permission, not on this host): one line, with the
    way out.
    """
    host = os.environ.get("DOCKER_HOST", "")
    if host and not host.startswith("unix://"):
        raise TestbedUnavailable(
            f"DOCKER_HOST={host} is not an engine of this host, which a testbed needs "
            f"(unset DOCKER_HOST; {INSTEAD})"
        )
    try:
        # Testbeds start their containers in parallel: one pooled connection for each.
        client = docker.from_env(timeout=timeout_s, max_pool_size=64)
        client.ping()
    except (DockerException, *_GONE) as error:
        raise TestbedUnavailable(unavailable(error)) from error
    return Engine(client)


def unavailable(error: BaseException) -> str:
    """Why the engine can't be used and what to do, in one line."""
    text = str(error)
    if "Permission denied" in text or "PermissionError" in text:
        return (
            "no permission to use Docker: add this user to the group of its socket "
            f"(usermod -aG docker USER, then log in again); {INSTEAD}"
        )
    if "FileNotFoundError" in text or "refused" in text or "No such file" in text:
        return f"{NOT_RUNNING}: start it (systemctl start docker), or {INSTEAD}"
    if isinstance(error, requests.exceptions.Timeout):
        return f"the Docker Engine does not answer; restart it, or {INSTEAD}"
    return f"Docker can't be used: {one_line(text)}; {INSTEAD}"


def one_line(text: str, limit: int = 300) -> str:
    """`text` on one line, cut to `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


@contextlib.contextmanager
def infrastructure(doing: str) -> Iterator[None]:
    """Turn the engine's errors into `ComponentDied`: the run's fault is the machine's, not its own.

    Mapped here, at the boundary: a lost engine, an object that somebody removed, a refused call.
    """
    try:
        yield
    except _GONE as error:
        raise ComponentDied(
            f"docker: the engine did not answer while {doing} ({one_line(str(error))}): "
            "it was restarted, or is overloaded"
        ) from error
    except NotFound as error:
        raise ComponentDied(f"docker: {one_line(explain(error))} while {doing}") from error
    except APIError as error:
        raise ComponentDied(
            f"docker: {one_line(explain(error))} (status {error.status_code}) while {doing}"
        ) from error


def explain(error: APIError) -> str:
    """The engine's own words."""
    explanation: Any = error.explanation
    return str(explanation or error)


def container_user(engine: Engine) -> str:
    """`uid:gid` for all containers: never root of this host.

    Without root the containers are this user, so that it can use their socket and remove their
    files; under a rootless engine this user is root inside.
    """
    if engine.rootless():
        return "0:0"
    if os.geteuid() == 0:
        return "65534:65534"
    return f"{os.geteuid()}:{os.getegid()}"
