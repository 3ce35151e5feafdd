"""The containers of one testbed: made and started in parallel, then known by component."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import requests.exceptions
from docker.errors import APIError
from docker.types import EndpointConfig

from testbed.docker.cpus import CpuPlan
from testbed.docker.engine import Engine, explain, one_line
from testbed.docker.plan import ContainerPlan, create_arguments
from testbed.docker.settings import DockerSettings
from testbed.errors import ComponentDied, Interrupted

_AT_A_TIME = 16


@dataclass
class Containers:
    """Starts containers on one network and remembers them.

    `unanswered` is true once the engine let a creation time out: it may still make that container.
    """

    engine: Engine
    images: Mapping[str, str]
    network: str
    folder: str
    user: str
    marks: Mapping[str, str]
    settings: DockerSettings
    cpus: CpuPlan | None
    interrupted: threading.Event
    unanswered: bool = False
    _made: dict[str, str] = field(default_factory=dict)
    _ids: dict[str, str] = field(default_factory=dict)

    def start(self, plans: Sequence[ContainerPlan]) -> None:
        """Create all of `plans` and start those that are not held, several at a time.

        Raises `ComponentDied` with the engine's words, or `Interrupted`. What was made is found by
        its labels, whether this returns or raises.
        """
        with ThreadPoolExecutor(min(_AT_A_TIME, len(plans))) as pool:
            for made in [pool.submit(self._start_one, plan) for plan in plans]:
                made.result()

    def _start_one(self, plan: ContainerPlan) -> None:
        if self.interrupted.is_set():
            raise Interrupted(f"interrupted before {plan.component} was started")
        arguments = create_arguments(
            plan,
            prefix=self.network,
            image=self.images[plan.role],
            network=self.network,
            folder=self.folder,
            user=self.user,
            marks=self.marks,
            settings=self.settings,
            cpus=self.cpus,
        )
        version = self.engine.api.api_version
        arguments["networking_config"] = {
            self.network: EndpointConfig(version, aliases=[plan.alias])
        }
        with self._engine_errors("creating", plan.component):
            container = self.engine.client.containers.create(**arguments)
        self._made[plan.component] = container.id
        if not plan.held:
            self.release(plan.component)

    def release(self, component: str) -> None:
        """Start a container that was held. Raises `ComponentDied`."""
        container = self._made[component]
        with self._engine_errors("starting", component):
            self.engine.api.start(container)
        self._ids[component] = container

    @contextmanager
    def _engine_errors(self, doing: str, component: str) -> Iterator[None]:
        try:
            yield
        except requests.exceptions.Timeout as error:
            self.unanswered = True
            raise ComponentDied(
                f"docker: the engine took more than {self.settings.engine_timeout_s:g} s for "
                f"{doing} {component} (testbed.engine_timeout_s)"
            ) from error
        except APIError as error:
            raise ComponentDied(
                f"docker: {doing} {component} failed: {one_line(explain(error))}"
            ) from error

    def running(self) -> dict[str, str]:
        """Container id by component, of all that were started."""
        return dict(self._ids)

    def addresses(self) -> dict[str, str]:
        """Component by its address on the network, of all that run."""
        inside = self.engine.api.inspect_network(self.network)["Containers"]
        by_id = {container: component for component, container in self._ids.items()}
        return {
            entry["IPv4Address"].partition("/")[0]: by_id[container]
            for container, entry in inside.items()
            if container in by_id
        }

    def published(self, component: str, port: int) -> int | None:
        """The port of this host's loopback that leads to `port` of a component that runs."""
        state = self.engine.api.inspect_container(self._ids[component])
        bindings = (state["NetworkSettings"]["Ports"] or {}).get(f"{port}/tcp")
        return int(bindings[0]["HostPort"]) if bindings else None

    def exit_code(self, component: str) -> int | None:
        """Exit code of a component, None while it runs; negative for a signal's number."""
        state = self.engine.api.inspect_container(self._ids[component])["State"]
        if state["Status"] in ("created", "running", "restarting", "paused"):
            return None
        if state.get("OOMKilled"):
            raise ComponentDied(
                f"{component} was killed: out of memory (limit "
                f"{self.settings.memory_mib[component]} MiB, testbed.memory_mib.{component})"
            )
        code = int(state["ExitCode"])
        return 128 - code if code > 128 else code

    def save_logs(self, out_dir: Path) -> None:
        """Write every container's log to `out_dir/<component>.log`. Raises OSError."""
        for component, container in self._ids.items():
            with suppress(APIError), (out_dir / f"{component}.log").open("wb") as file:
                for piece in self.engine.api.logs(
                    container, stream=True, follow=False, timestamps=True
                ):
                    file.write(piece)
