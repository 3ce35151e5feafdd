"""The local driver's life: start, load, stop (paper, §4)."""

from __future__ import annotations

import logging
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import httpx
import psutil
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from testbed import ports, programs
from testbed.api import Addresses, ComponentUsage, LoadResult, TestbedSpec
from testbed.config import prometheus as prometheus_config
from testbed.config import redis as redis_config
from testbed.config.haproxy import HAProxyConfig
from testbed.config.slots import shuffled_slots
from testbed.errors import Interrupted, LoadFailed, OutputFailed, ProgramMissing, TestbedError
from testbed.load.session import LoadSession
from testbed.load.sources import FileSource, RedisSource, TelemetrySource
from testbed.local.layout import Layout
from testbed.processes import Child, Command, sample, spawn, stop_groups, tail
from testbed.readiness import fleet_seen, slots_up
from testbed.waiting import All, Probe, wait_for
from testbed.workdir import Process, WorkDir

_log = logging.getLogger(__name__)

_REDIS_ATTEMPTS = 5


class LocalTestbed:
    """A `Testbed` of child processes on loopback; see `testbed.api.Testbed` for its methods."""

    __test__ = False

    def __init__(self, spec: TestbedSpec, foreground: bool = False) -> None:
        """`foreground` marks a testbed made by hand, for `python -m testbed down`."""
        self._spec = spec
        self._foreground = foreground
        self._programs: dict[str, str] = {}
        self._workdir: WorkDir | None = None
        self._children: dict[str, Child] = {}
        self._session: LoadSession | None = None
        self._redis: redis.Redis | None = None
        self._http = httpx.Client(timeout=5.0, trust_env=False)
        self._interrupted = threading.Event()
        self._addresses: Addresses | None = None

    # --- start ---------------------------------------------------------------------------------

    def start(self) -> Addresses:
        """Start everything but the load; return when all N slots are UP in Prometheus' eyes.

        k6 is started too, but waits in its setup() for the word to go.
        """
        try:
            self._addresses = self._start()
        except OSError as error:
            self.stop()
            raise TestbedError(f"the testbed can't be started: {error}") from error
        except BaseException:
            self.stop()
            raise
        return self._addresses

    def _start(self) -> Addresses:
        spec = self._spec
        deadline = time.monotonic() + spec.start_timeout_s
        self._find_programs()
        self._workdir = WorkDir.create("local", spec.run_id, self._foreground)
        layout = Layout(self._workdir.path)
        sockets = [ports.listening_socket() for _ in range(spec.fleet.backends + 2)]
        frontend, exporter, *backends = sockets
        try:
            self._write_configs(layout, frontend, exporter, backends)
            # First of all: it scrapes nothing in its first 5 s.
            tag = tuple(int(n) for n in self.versions()["prometheus"].split(".")[:2] if n.isdigit())
            self._spawn("prometheus", layout.prometheus(self._programs["prometheus"], tag))
            for instance, sock in enumerate(backends, start=1):
                command = layout.backend(spec.fleet, instance, sock.fileno())
                self._spawn(f"backend-{instance}", command)
            fds = (frontend.fileno(), exporter.fileno())
            self._spawn("haproxy", layout.haproxy(self._programs["haproxy"], fds))
            addresses = [ports.address(sock) for sock in (frontend, *backends)]
        finally:
            # Ours are closed, so that a port refuses when its component is dead.
            for sock in sockets:
                sock.close()
        frontend_url, *backend_urls = [f"http://{address}" for address in addresses]
        redis_url = self._start_redis(layout, deadline)
        if spec.load.telemetry == "redis":
            self._spawn_k6(layout, frontend_url, redis_url)
        prometheus_url = self._await_ready(layout, deadline)
        return Addresses(
            frontend_url=frontend_url,
            prometheus_url=prometheus_url,
            runtime_socket=str(layout.runtime_socket),
            redis_url=redis_url,
            backend_urls=tuple(backend_urls),
        )

    def _find_programs(self) -> None:
        spec = self._spec
        missing = programs.missing(configured=spec.programs, telemetry=spec.load.telemetry)
        if missing:
            raise ProgramMissing("\n".join(missing))
        self._programs = {name: programs.find(name, spec.programs) for name in programs.NEEDED}

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

    def _start_redis(self, layout: Layout, deadline: float) -> str:
        """Redis can't inherit a socket, so a port taken meanwhile means another attempt."""
        for _ in range(_REDIS_ATTEMPTS):
            port, password = ports.free_port(), secrets.token_hex(16)
            text = redis_config.render("127.0.0.1", port, password, str(layout.root))
            layout.redis_config.write_text(text)
            layout.redis_config.chmod(0o600)
            child = self._spawn("redis", layout.redis(self._programs["redis"]))
            self._redis = redis.Redis(
                port=port,
                password=password,
                socket_timeout=10,
                # A GETDEL that is repeated because its answer was lost would lose its rows.
                retry=Retry(NoBackoff(), 0),
            )
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

    def _spawn_k6(self, layout: Layout, frontend_url: str, redis_url: str) -> None:
        spec = self._spec
        command = layout.k6(self._programs["k6"], spec.load, spec.run_id, frontend_url, redis_url)
        self._spawn("k6", command)

    def _await_ready(self, layout: Layout, deadline: float) -> str:
        """Wait for every component; return Prometheus' address, which it chose itself."""
        slots = self._spec.fleet.backends
        pid = self._children["prometheus"].pid
        found: list[str] = []

        def listens() -> tuple[bool, str]:
            for connection in psutil.Process(pid).net_connections("tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    found[:] = [f"http://127.0.0.1:{connection.laddr.port}"]
            return bool(found), "no port yet"

        def k6_waits() -> tuple[bool, str]:
            source = RedisSource(self._client())
            return source.waiting(), "k6 is not in its setup() yet"

        conditions = [
            Probe("Prometheus to listen", listens, "its log"),
            slots_up(str(layout.runtime_socket), slots),
        ]
        if "k6" in self._children:
            conditions.append(Probe("k6 to wait in its setup()", k6_waits, "its log"))
        self._wait(All(conditions), deadline)
        self._wait(fleet_seen(self._http, found[0], slots), deadline)
        return found[0]

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

    # --- load ----------------------------------------------------------------------------------

    def start_load(self, out_dir: Path) -> int:
        """Let the virtual users go; return the unix time in µs at which they were."""
        if self._workdir is None or self._addresses is None:
            raise TestbedError("start_load() before start()")
        layout = Layout(self._workdir.path)
        source: TelemetrySource = RedisSource(self._client())
        if self._spec.load.telemetry == "file":
            source = FileSource(layout.telemetry, self._client())
            self._spawn_k6(layout, self._addresses.frontend_url, self._addresses.redis_url)
        generator = _K6(self._children["k6"])
        self._session = LoadSession(
            self._spec.load, generator, source, layout.summary, Path(out_dir)
        )
        try:
            return self._session.go(self.check, self._interrupted, self._spec.start_timeout_s)
        except redis.RedisError as error:
            self.check()
            raise LoadFailed(f"Redis does not answer: {error}") from error

    def wait_load(self, on_tick: Callable[[], None] | None = None) -> LoadResult:
        """Wait until the load has ended; see `testbed.api.Testbed`."""
        if self._session is None:
            raise TestbedError("wait_load() before start_load()")

        def tick() -> None:
            sample(self._children.values())
            if on_tick is not None:
                on_tick()

        try:
            return self._session.wait(self.check, self._interrupted, tick)
        except LoadFailed:
            # What failed may only be the first sign of a component that is going down.
            self._settle()
            raise

    def _settle(self) -> None:
        for _ in range(10):
            self.check()
            time.sleep(0.05)

    def check(self) -> None:
        """Raise `ComponentDied` when any component is gone; k6 may end once the load runs."""
        for name, child in self._children.items():
            code = child.poll()
            if code is None or (name == "k6" and self._session is not None and code >= 0):
                continue
            raise child.died()

    def hold(self) -> None:
        """Keep a started testbed up; ends by `Interrupted` or `ComponentDied`."""
        while not self._interrupted.wait(0.2):
            self.check()
        raise Interrupted("asked to end")

    # --- accounts ------------------------------------------------------------------------------

    def usage(self) -> dict[str, ComponentUsage]:
        """Resources used so far, by component; the backends are one."""
        sample(self._children.values())
        found: dict[str, ComponentUsage] = {}
        for name, child in self._children.items():
            key = "backends" if name.startswith("backend-") else name
            before = found.get(key, ComponentUsage(0.0, 0))
            found[key] = ComponentUsage(
                before.cpu_s + child.usage.cpu_s, before.max_rss_bytes + child.usage.max_rss_bytes
            )
        return found

    def versions(self) -> dict[str, str]:
        """Version of every program, by program name."""
        if not self._programs:
            self._find_programs()
        libraries = {name: version(name) for name in ("flask", "gunicorn")}
        return programs.versions(self._programs) | libraries

    def collect_logs(self, out_dir: Path) -> None:
        """Copy the components' logs and configurations into `out_dir`. Raises `OutputFailed`."""
        if self._workdir is None:
            return
        try:
            out_dir.mkdir(parents=True, exist_ok=True)
            for path in Layout(self._workdir.path).collectable():
                if path.exists():
                    shutil.copyfile(path, out_dir / path.name)
        except OSError as error:
            raise OutputFailed(f"{out_dir} can't be written: {error.strerror}") from error

    # --- end -----------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Make a `start` or `wait_load` in another thread end with `Interrupted`, soon."""
        self._interrupted.set()

    def stop(self) -> None:
        """Stop everything and remove what it used. Idempotent; never raises."""
        steps: list[Callable[[], None]] = []
        if self._session is not None:
            steps.append(self._session.abandon)
        steps.append(lambda: stop_groups(self._children.values()))
        if self._redis is not None:
            steps.append(self._redis.close)
        steps.append(self._http.close)
        if self._workdir is not None:
            steps.append(self._workdir.remove)
        for step in steps:
            try:
                step()
            except Exception:
                _log.exception("a testbed was not stopped cleanly")

    def _client(self) -> redis.Redis:
        assert self._redis is not None, "Redis is started before it is asked"
        return self._redis


class _K6:
    """The k6 child as a `testbed.load.session.Generator`."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def exit_code(self) -> int | None:
        return self._child.poll()

    def last_words(self) -> str:
        return self._child.log_tail()
