"""A real HAProxy, small backends and, where it is installed, a real Prometheus for tests."""

from __future__ import annotations

import http.client
import http.server
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed import programs

DEADLINE_S = 60.0


def wait_until(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The first true value of `condition`; fails with what was awaited."""
    deadline = time.monotonic() + deadline_s
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = condition()
            if last:
                return last
        except Exception as error:
            last = error
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {deadline_s} s; last: {last!r}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Backend:
    """Answers every request with `status`."""

    def __init__(self) -> None:
        self.status = 200
        backend = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(backend.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Rig:
    """HAProxy 2.8 with three servers in `be_api`, one more backend, and its exporter."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="drainbench-"))
        self.backends = [Backend() for _ in range(3)]
        self.frontend, self.exporter, self.admin = free_port(), free_port(), free_port()
        self.socket = str(self.dir / "admin.sock")
        self.tcp_socket = f"tcp://127.0.0.1:{self.admin}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.prometheus_url = ""

    def start_haproxy(self) -> subprocess.Popen[bytes]:
        config = self.dir / "haproxy.cfg"
        config.write_text(self._haproxy_config())
        program = programs.find("haproxy")
        process = self._spawn([program, "-db", "-f", str(config)], "haproxy.log")
        wait_until(lambda: self.get() == 200, "HAProxy answers")
        return process

    def start_prometheus(self) -> None:
        port = free_port()
        config = self.dir / "prometheus.yml"
        config.write_text(
            "global: {scrape_interval: 1s}\n"
            "scrape_configs:\n"
            "  - job_name: haproxy\n"
            f"    static_configs: [{{targets: ['127.0.0.1:{self.exporter}']}}]\n"
        )
        self.prometheus_url = f"http://127.0.0.1:{port}"
        command = [
            programs.find("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={self.dir / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        self._spawn(command, "prometheus.log")
        query = "/api/v1/query?query=haproxy_server_weight"

        def scraped() -> bool:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", query)
            return b"other-1" in connection.getresponse().read()

        wait_until(scraped, "Prometheus has scraped HAProxy")

    def get(self) -> int:
        """One request through HAProxy; its status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.frontend, timeout=5)
        try:
            connection.request("GET", "/work")
            return connection.getresponse().status
        finally:
            connection.close()

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        for backend in self.backends:
            backend.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def _spawn(self, command: list[str], log: str) -> subprocess.Popen[bytes]:
        with (self.dir / log).open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output)
        self._processes.append(process)
        return process

    def _haproxy_config(self) -> str:
        servers = "\n".join(
            f"  server api-{number} 127.0.0.1:{backend.port} "
            "check inter 500ms rise 1 fall 1000 weight 100"
            for number, backend in enumerate(self.backends, start=1)
        )
        return f"""
global
  stats socket {self.socket} mode 600 level admin
  stats socket ipv4@127.0.0.1:{self.admin} level admin
defaults
  mode http
  timeout connect 1s
  timeout client 5s
  timeout server 5s
  option http-server-close
frontend fe
  bind 127.0.0.1:{self.frontend}
  default_backend be_api
frontend metrics
  bind 127.0.0.1:{self.exporter}
  http-request use-service prometheus-exporter if {{ path /metrics }}
backend be_api
  balance leastconn
{servers}
backend be_other
  balance roundrobin
  server other-1 127.0.0.1:{self.backends[0].port} weight 10
"""
