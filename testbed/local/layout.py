"""Files of a local testbed, and the commands that its components are."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import testbed
from testbed.api import FleetSpec, LoadSpec
from testbed.backend import settings
from testbed.load.command import k6_arguments, k6_environment
from testbed.processes import Command, environment

# So that the backends find this package without its being installed.
_IMPORT_ROOT = str(Path(testbed.__file__).resolve().parent.parent)


class Layout:
    """Names every file in the work folder `root`, and makes the commands that use them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.haproxy_config = root / "haproxy.cfg"
        self.prometheus_config = root / "prometheus.yml"
        self.redis_config = root / "redis.conf"
        self.dataplane_config = root / "dataplane" / "dataplaneapi.yml"
        self.dataplane_copy = root / "dataplane" / "haproxy.cfg"
        self.runtime_socket = root / "haproxy.sock"
        self.summary = root / "k6-summary.json"
        self.telemetry = root / "telemetry.csv"

    def log(self, name: str) -> Path:
        """Log of a component."""
        return self.root / f"{name}.log"

    def collectable(self) -> list[Path]:
        """What is worth keeping of a run; the other configurations hold passwords."""
        return [self.haproxy_config, self.prometheus_config, *sorted(self.root.glob("*.log"))]

    def prometheus(self, program: str, version: tuple[int, ...]) -> Command:
        """Prometheus on a port of its own choice."""
        argv = [
            program,
            f"--config.file={self.prometheus_config}",
            f"--storage.tsdb.path={self.root / 'prometheus-data'}",
            "--storage.tsdb.retention.time=1d",
            "--web.listen-address=127.0.0.1:0",
        ]
        if version >= (2, 40):
            # Hidden flag: without it the first scrape may come after 10 s instead of 5.
            argv.append("--scrape.discovery-reload-interval=100ms")
        return self._command("prometheus", argv)

    def haproxy(self, program: str, fds: tuple[int, ...]) -> Command:
        """HAProxy in the foreground, listening on inherited sockets."""
        argv = [program, "-db", "-f", str(self.haproxy_config)]
        return self._command("haproxy", argv, fds=fds)

    def redis(self, program: str) -> Command:
        """The Redis protocol server."""
        return self._command("redis", [program, str(self.redis_config)])

    def dataplane(self, program: str) -> Command:
        """HAProxy's Data Plane API."""
        return self._command("dataplane", [program, "-f", str(self.dataplane_config)])

    def backend(self, fleet: FleetSpec, instance: int, fd: int) -> Command:
        """One backend under gunicorn, listening on an inherited socket."""
        env = {
            "INSTANCE": str(instance),
            "PYTHONPATH": _IMPORT_ROOT,
            "PYTHONDONTWRITEBYTECODE": "1",
            **settings.to_environment(fleet),
        }
        name = f"backend-{instance}"
        if fleet.workers > 1:
            shared = self.root / f"{name}-metrics"
            shared.mkdir()
            env["PROMETHEUS_MULTIPROC_DIR"] = str(shared)
        argv = [
            *(sys.executable, "-m", "gunicorn"),
            *("--config", "python:testbed.backend.gunicorn_conf"),
            *("--bind", f"fd://{fd}"),
            *("--workers", str(fleet.workers)),
            *("--threads", str(fleet.threads)),
            "testbed.backend.app:create_app()",
        ]
        return self._command(name, argv, env, (fd,))

    def k6(
        self, program: str, load: LoadSpec, run_id: str, frontend_url: str, redis_url: str
    ) -> Command:
        """The load generator."""
        argv = k6_arguments(program, load, telemetry=str(self.telemetry))
        env = k6_environment(load, run_id, frontend_url, redis_url, str(self.summary))
        return self._command("k6", argv, env)

    def _command(
        self,
        name: str,
        argv: list[str],
        env: Mapping[str, str] | None = None,
        fds: tuple[int, ...] = (),
    ) -> Command:
        return Command(
            argv=tuple(argv),
            log=self.log(name),
            cwd=self.root,
            env=environment(HOME=str(self.root), **(env or {})),
            pass_fds=fds,
        )
