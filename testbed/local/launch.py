"""The processes of a local testbed: started, watched, stopped."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from importlib.metadata import version

import httpx
import psutil
import redis

from testbed import ports, programs
from testbed.api import Addresses, ComponentUsage, DataPlaneAddress, TestbedSpec
from testbed.config import dataplane as dataplane_config
from testbed.config import prometheus as prometheus_config
from testbed.config import redis as redis_config
from testbed.config.haproxy import HAProxyConfig
from testbed.config.slots import shuffled_slots
from testbed.errors import OutputFailed, ProgramMissing
from testbed.load.sources import RedisSource, redis_client
from testbed.local.layout import Layout
from testbed.processes import Child, Command, sample, spawn, stop_groups, tail
from testbed.readiness import dataplane_answers, fleet_seen, slots_up
from testbed.waiting import All, Probe, wait_for
from testbed.workdir import Process, WorkDir

_REDIS_ATTEMPTS = 5
_DATAPLANE_USER = "drainbench"


class Processes:
    """Every process of one testbed, and the work folder they live in."""

    def __init__(self, spec: TestbedSpec, interrupted: threading.Event) -> None:
        self._spec = spec
        self._interrupted = interrupted
        self._programs: dict[str, str] = {}
        self._http = httpx.Client(timeout=5.0, trust_env=False)
        self._redis: redis.Redis | None = None
        self._children: dict[str, Child] = {}
        self._workdir: WorkDir | None = None
        self._dataplane_password = ""
        self.addresses: Addresses | None = None

    # --- start ---------------------------------------------------------------------------------

    def start(self, foreground: bool) -> Addresses:
        """Start all but a k6 that can't wait; return when the fleet is ready. Stops nothing."""
        spec = self._spec
        deadline = time.monotonic() + spec.start_timeout_s
        self._find_programs()
        self._workdir = WorkDir.create("local", spec.run_id, foreground)
        layout = self.layout
        sockets = [ports.listening_socket() for _ in range(spec.fleet.backends + 2)]
        frontend, exporter, *backends = sockets
        try:
            self._write_configs(layout, frontend, exporter, backends)
            # First of all: it scrapes nothing in its first 5 s.
            self._spawn("prometheus", self._prometheus())
            for instance, sock in enumerate(backends, start=1):
                command = layout.backend(spec.fleet, instance, sock.fileno())
                self._spawn(f"backend-{instance}", command)
            fds = (frontend.fileno(), exporter.fileno())
            self._spawn("haproxy", layout.haproxy(self._programs["haproxy"], fds))
            urls = [f"http://{ports.address(sock)}" for sock in (frontend, *backends)]
        finally:
            # Ours are closed, so that a port refuses when its component is dead.
            for sock in sockets:
                sock.close()
        self._start_dataplane(layout)
        redis_url = self._start_redis(layout, deadline)
        if spec.load.telemetry == "redis":
            self.spawn_k6(urls[0], redis_url)
        prometheus_url, dataplane = self._await_ready(layout, deadline)
        self.addresses = Addresses(
            frontend_url=urls[0],
            prometheus_url=prometheus_url,
            runtime_socket=str(layout.runtime_socket),
            redis_url=redis_url,
            dataplane=dataplane,
            backend_urls=tuple(urls[1:]),
        )
        return self.addresses

    def spawn_k6(self, frontend_url: str, redis_url: str) -> Child:
        """Start the load generator."""
        spec = self._spec
        command = self.layout.k6(
            self._programs["k6"], spec.load, spec.run_id, frontend_url, redis_url
        )
        return self._spawn("k6", command)

    def _find_programs(self) -> None:
        spec = self._spec
        missing = programs.missing(configured=spec.programs, telemetry=spec.load.telemetry)
        if missing:
            raise ProgramMissing("\n".join(missing))
        self._programs = {name: programs.find(name, spec.programs) for name in programs.NEEDED}
        if dataplane := programs.optional("dataplaneapi", spec.programs):
            self._programs["dataplaneapi"] = dataplane

    def _prometheus(self) -> Command:
        numbers = self.versions()["prometheus"].split(".")[:2]
        release = tuple(int(number) for number in numbers if number.isdigit())
        return self.layout.prometheus(self._programs["prometheus"], release)

    def _write_configs(
        self,
        layout: Layout,
        frontend: socket.socket,
        exporter: socket.socket,
        backends: list[socket.socket],
    ) -> None:
        spec = self._spec
        slots = shuffled_slots(spec.fleet.backends, spec.shuffle_seed)
        config = HAProxyConfig(
            algorithm=spec.algorithm,
            servers={slot: ports.address(backends[i - 1]) for slot, i in slots.items()},
            weight=spec.initial_weight,
            runtime_socket=str(layout.runtime_socket),
            frontend_bind=f"fd@{frontend.fileno()}",
            exporter_bind=f"fd@{exporter.fileno()}",
            maxconn=max(2000, 10 * spec.load.vus),
        )
        scrapes = prometheus_config.render_static(
            ports.address(exporter), [ports.address(b) for b in backends], spec.scrape_interval_s
        )
        try:
            layout.haproxy_config.write_text(config.render())
            layout.prometheus_config.write_text(scrapes)
        except OSError as error:
            raise OutputFailed(f"{layout.root} can't be written: {error.strerror}") from error

    def _start_dataplane(self, layout: Layout) -> None:
        """The Data Plane API, where there is one; it chooses a port itself."""
        if "dataplaneapi" not in self._programs:
            return
        self._dataplane_password = secrets.token_hex(16)
        layout.dataplane_config.parent.mkdir()
        layout.dataplane_copy.write_text(layout.haproxy_config.read_text())
        text = dataplane_config.render(
            bind="127.0.0.1",
            port=0,
            user=_DATAPLANE_USER,
            password=self._dataplane_password,
            haproxy_config=str(layout.dataplane_copy),
            haproxy=self._programs["haproxy"],
            scratch=str(layout.dataplane_config.parent),
        )
        layout.dataplane_config.touch(mode=0o600)
        layout.dataplane_config.write_text(text)
        self._spawn("dataplane", layout.dataplane(self._programs["dataplaneapi"]))

    def _start_redis(self, layout: Layout, deadline: float) -> str:
        """Redis can't inherit a socket, so a port taken meanwhile means another attempt."""
        for _ in range(_REDIS_ATTEMPTS):
            port, password = ports.free_port(), secrets.token_hex(16)
            text = redis_config.render("127.0.0.1", port, password, str(layout.root))
            layout.redis_config.write_text(text)
            layout.redis_config.chmod(0o600)
            child = self._spawn("redis", layout.redis(self._programs["redis"]))
            self._redis = redis_client(port, password)
            answers = Probe("Redis to answer", self._redis_answers(child), "its log")
            wait_for(answers, deadline, self._interrupted, evidence=child.log_tail)
            if child.poll() is None:
                return f"redis://:{password}@127.0.0.1:{port}"
            if "in use" not in child.log_tail(10):
                break
        raise child.died()

    def _redis_answers(self, child: Child) -> Callable[[], tuple[bool, str]]:
        def check() -> tuple[bool, str]:
            if child.poll() is not None:
                return True, "it ended"
            assert self._redis is not None
            return bool(self._redis.ping()), "an answer"

        return check

    def _await_ready(self, layout: Layout, deadline: float) -> tuple[str, DataPlaneAddress | None]:
        """Wait for every component; return the addresses that some of them chose themselves."""
        slots = self._spec.fleet.backends

        def k6_waits() -> tuple[bool, str]:
            source = RedisSource(self.redis)
            return source.waiting(), "k6 is not in its setup() yet"

        conditions = [
            self._listens("prometheus"),
            slots_up(str(layout.runtime_socket), slots),
        ]
        if "k6" in self._children:
            conditions.append(Probe("k6 to wait in its setup()", k6_waits, "its log"))
        if "dataplane" in self._children:
            conditions.append(self._listens("dataplane"))
        self._wait(All(conditions), deadline)
        dataplane = None
        if "dataplane" in self._children:
            url = self._own_address("dataplane")
            dataplane = DataPlaneAddress(url, _DATAPLANE_USER, self._dataplane_password)
            self._wait(dataplane_answers(self._http, dataplane, slots), deadline)
        prometheus_url = self._own_address("prometheus")
        self._wait(fleet_seen(self._http, prometheus_url, slots), deadline)
        return prometheus_url, dataplane

    def _listens(self, name: str) -> Probe:
        def check() -> tuple[bool, str]:
            return bool(self._own_address(name)), "no port yet"

        return Probe(f"{name} to listen", check, "its log")

    def _own_address(self, name: str) -> str:
        """Address that a component bound on its own; empty when it has not yet."""
        for connection in psutil.Process(self._children[name].pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                return f"http://127.0.0.1:{connection.laddr.port}"
        return ""

    def _wait(self, condition: All | Probe, deadline: float) -> None:
        wait_for(condition, deadline, self._interrupted, self.check, self._evidence)

    def _evidence(self) -> str:
        said = {name: tail(child.log, 1) for name, child in self._children.items()}
        return "; ".join(f"{name}: {line}" for name, line in said.items() if line)

    def _spawn(self, name: str, command: Command) -> Child:
        child = spawn(name, command)
        self._children[name] = child
        assert self._workdir is not None
        self._workdir.record(name, Process(child.pid, child.ticks))
        return child

    # --- while it runs -------------------------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """Files of this testbed; only once it has been started."""
        assert self._workdir is not None, "no work folder before start()"
        return Layout(self._workdir.path)

    @property
    def redis(self) -> redis.Redis:
        """A client of this testbed's Redis; only once that has been started."""
        assert self._redis is not None, "Redis is started before it is asked"
        return self._redis

    @property
    def k6(self) -> Child:
        """The load generator; only once it has been started."""
        return self._children["k6"]

    def check(self, load_began: bool = False) -> None:
        """Raise `ComponentDied` when any component is gone; k6 may end once the load runs.

        So is one that was seen stopped: its requests wait meanwhile, and would pass as slow ones.
        """
        for name, child in self._children.items():
            code = child.poll()
            if code is None and child.stopped:
                raise child.halted()
            if code is None or (name == "k6" and load_began and code >= 0):
                continue
            raise child.died()

    def sample(self) -> None:
        """Take note of what every component has used."""
        sample(self._children.values())

    def usage(self) -> dict[str, ComponentUsage]:
        """Resources used so far, by component; the backends are one."""
        self.sample()
        found: dict[str, ComponentUsage] = {}
        for name, child in self._children.items():
            key = "backends" if name.startswith("backend-") else name
            before = found.get(key, ComponentUsage(0.0, 0))
            found[key] = ComponentUsage(
                before.cpu_s + child.usage.cpu_s, before.max_rss_bytes + child.usage.max_rss_bytes
            )
        return found

    def versions(self) -> dict[str, str]:
        """Version of every program, and of the libraries that the backends are made of."""
        if not self._programs:
            self._find_programs()
        libraries = {name: version(name) for name in ("flask", "gunicorn")}
        return programs.versions(self._programs) | libraries

    def ends(self) -> list[Callable[[], None]]:
        """What to do, in order, so that nothing is left; each step on its own may fail."""
        steps: list[Callable[[], None]] = [lambda: stop_groups(self._children.values())]
        if self._redis is not None:
            steps.append(self._redis.close)
        steps.append(self._http.close)
        if self._workdir is not None:
            steps.append(self._workdir.remove)
        return steps
