"""How the conformance suite gets at the insides of the docker driver."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
from docker.errors import NotFound

from testbed.api import BACKEND_NAME, Addresses, Testbed, TestbedSpec
from testbed.docker import images, labels, leftovers
from testbed.docker.engine import Engine, connect
from testbed.docker.settings import DockerSettings
from testbed.factory import create
from testbed.runtime_socket import ask, servers
from tests.requirements import require
from tests.testbed.conformance import Rig, Slots


def engine_with_images() -> Engine:
    """The engine of this host, with our image; skips without, or fails where it is required."""
    found: list[Engine] = []

    def find() -> None:
        found.append(connect())
        images.resolve(found[0], DockerSettings())

    require("docker", find)
    return found[0]


class DockerRig(Rig):
    """Containers, networks, folders and wardens."""

    kind = "docker"

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def create(self, spec: TestbedSpec) -> Testbed:
        return create("docker", spec)

    def ask(self, addresses: Addresses, command: str) -> str:
        return ask(addresses.runtime_socket, command)

    def slots(self, addresses: Addresses) -> Slots:
        return servers(addresses.runtime_socket, BACKEND_NAME)

    def containers(self, run_id: str) -> dict[str, str]:
        """Container id by component."""
        mine = {"label": f"{labels.RUN}={run_id}"}
        listed = self.engine.api.containers(all=True, filters=mine)
        return {item["Labels"][labels.COMPONENT]: item["Id"] for item in listed}

    def networks(self, run_id: str) -> list[str]:
        """Ids of its networks."""
        mine = {"label": f"{labels.RUN}={run_id}"}
        return [item["Id"] for item in self.engine.api.networks(filters=mine)]

    def traces(self, run_id: str) -> set[str]:
        found = {f"container {one}" for one in self.containers(run_id).values()}
        found |= {f"network {one}" for one in self.networks(run_id)}
        for info in leftovers.list_testbeds(self.engine):
            if info.run_id == run_id:
                if info.path.exists():
                    found.add(f"folder {info.path}")
                found |= {f"warden {pid}" for pid in wardens_of(info.id)}
        return found

    def remaining(self, traces: set[str]) -> set[str]:
        return {trace for trace in traces if self._exists(*trace.split(" ", 1))}

    def _exists(self, kind: str, name: str) -> bool:
        if kind == "folder":
            return Path(name).exists()
        if kind == "warden":
            with suppress(psutil.NoSuchProcess):
                return psutil.Process(int(name)).status() != psutil.STATUS_ZOMBIE
            return False
        look = {
            "container": self.engine.api.inspect_container,
            "network": self.engine.api.inspect_network,
        }[kind]
        try:
            look(name)
        except NotFound:
            return False
        return True

    def kill(self, run_id: str, component: str) -> None:
        self.engine.api.kill(self.containers(run_id)[component], "SIGKILL")

    def sweep(self) -> None:
        leftovers.sweep_leftovers(self.engine)


def wardens_of(testbed_id: str) -> list[int]:
    """Pids of the wardens of one testbed.

    An owner's child is none: it only starts the warden, and ends at once.
    """
    name = "testbed.docker.warden"
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            words = process.cmdline()
            if name in words and testbed_id in words:
                owner_pid = int(words[words.index(name) + 1])
                if process.ppid() != owner_pid:
                    found.append(process.pid)
    return found
