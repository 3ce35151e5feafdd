"""Notices that a part of a testbed is gone: a container, its memory, its network, the engine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from docker.errors import APIError

from testbed.docker import labels
from testbed.docker.engine import Engine, infrastructure, one_line
from testbed.docker.plan import BACKEND_PREFIX
from testbed.errors import ComponentDied

TAIL_LINES = 4
NETWORK_REMOVED = "its network was removed"


@dataclass(frozen=True)
class Loss:
    """One component that is not as it should be, and why in words."""

    component: str
    reason: str


def find_losses(
    expected: Mapping[str, str], listed: Iterable[Mapping[str, Any]], network: str
) -> list[Loss]:
    """What `listed` (the engine's list of this testbed's containers) says of `expected`.

    `expected` is component to container id, `network` the id of the testbed's network.
    """
    by_id = {item["Id"]: item for item in listed}
    losses = []
    for component, container in expected.items():
        item = by_id.get(container)
        if item is None:
            losses.append(Loss(component, "its container was removed"))
        elif item["State"] != "running":
            losses.append(Loss(component, f"its container is {item['State']}: {item['Status']}"))
        else:
            networks = (item.get("NetworkSettings") or {}).get("Networks") or {}
            if network not in {entry.get("NetworkID") for entry in networks.values()}:
                losses.append(Loss(component, NETWORK_REMOVED))
    return losses


class Watch:
    """Checks one testbed; each `check` costs two calls to the engine."""

    def __init__(
        self, engine: Engine, testbed_id: str, network: str, memory_mib: Mapping[str, int]
    ) -> None:
        self._engine = engine
        self._filter = {"label": f"{labels.TESTBED}={testbed_id}"}
        self._network = network
        self._memory_mib = memory_mib
        self._since_s: float | None = None

    def check(self, expected: Mapping[str, str]) -> None:
        """Raise `ComponentDied` for the first component of `expected` that is gone.

        A process that was killed for memory is a loss even where its container lives on.
        """
        with infrastructure("checking the containers"):
            listed = self._engine.api.containers(all=True, filters=self._filter)
            losses = find_losses(expected, listed, self._network)
            killed = self._killed_for_memory(expected)
        for component in killed:
            limit = self._memory_mib[_role(component)]
            raise ComponentDied(
                f"{component} was killed: out of memory (limit {limit} MiB, "
                f"testbed.memory_mib.{_role(component)}); last words: "
                f"{self.last_words(expected[component]) or 'none'}"
            )
        if losses:
            loss = losses[0]
            raise ComponentDied(self.describe(loss, expected[loss.component]))

    def _killed_for_memory(self, expected: Mapping[str, str]) -> list[str]:
        """Components for which the engine reported a kill since the last call."""
        now_s = time.time()
        since_s, self._since_s = self._since_s, now_s
        if since_s is None:
            return []
        filters = {**self._filter, "type": "container", "event": "oom"}
        events = self._engine.api.events(
            since=f"{since_s:.6f}", until=f"{now_s:.6f}", filters=filters, decode=True
        )
        hit = {event.get("id") or event.get("Actor", {}).get("ID") for event in events}
        return [component for component, container in expected.items() if container in hit]

    def describe(self, loss: Loss, container: str) -> str:
        """The loss with its exit code and last log lines, on one line."""
        what, how = "ended on its own", loss.reason
        if how == NETWORK_REMOVED:
            what = "can't be reached"
        with suppress(APIError):
            state = self._engine.api.inspect_container(container)["State"]
            if state.get("OOMKilled"):
                how = f"out of memory, limit {self._memory_mib[_role(loss.component)]} MiB"
            elif state.get("Status") == "exited":
                how = f"exit code {state['ExitCode']}"
            if state.get("Error"):
                how += f"; the engine says: {one_line(state['Error'])}"
        said = self.last_words(container)
        return f"{loss.component} {what} ({how}); last words: {said or 'none'}"

    def last_words(self, container: str) -> str:
        """Last lines of a container's log, joined by ` | `."""
        with suppress(APIError):
            raw = self._engine.api.logs(container, tail=TAIL_LINES)
            lines = raw.decode(errors="replace").splitlines()
            return one_line(" | ".join(line.strip() for line in lines if line.strip()), 600)
        return ""


def _role(component: str) -> str:
    return "backend" if component.startswith(BACKEND_PREFIX) else component
