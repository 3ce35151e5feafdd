"""Reads one observation: HAProxy's state now, Prometheus' samples until now (paper, §4.3)."""

from __future__ import annotations

from controller.api import Clock, Snapshot
from controller.errors import TelemetryError
from controller.haproxy.fleet import Fleet
from controller.haproxy.socket import RuntimeSocket
from controller.telemetry.prometheus import Prometheus, TelemetryConfig
from controller.telemetry.snapshot import build_snapshot


class HAProxyTelemetry:
    """`controller.api.Telemetry` of a real HAProxy and a real Prometheus.

    `fleet` is what discovery returned; `backend` one of its backends. Servers that HAProxy has but
    discovery did not return are left out: no policy may act on what was not discovered.
    """

    def __init__(
        self,
        socket: RuntimeSocket,
        prometheus: Prometheus,
        fleet: Fleet,
        backend: str,
        algorithm: str,
        clock: Clock,
        config: TelemetryConfig | None = None,
    ) -> None:
        self._socket = socket
        self._prometheus = prometheus
        self._fleet = fleet
        self._backend = backend
        self._algorithm = algorithm
        self._clock = clock
        self._config = config or TelemetryConfig()

    def observe(self) -> Snapshot:
        """One snapshot. Raises `HAProxyError`, `TelemetryError`."""
        time_us = self._clock.time_us()
        stats = [
            stat
            for stat in self._socket.server_stats(self._backend)
            if self._fleet.find(stat.backend, stat.slot)
        ]
        results = self._prometheus.read(self._backend, time_us / 1e6)
        if not results.status:
            raise TelemetryError(
                f"Prometheus at {self._prometheus.url} has no haproxy_server_status of backend "
                f"{self._backend}: does it scrape this HAProxy's exporter?"
            )
        return build_snapshot(time_us, self._algorithm, stats, results, self._config)

    def close(self) -> None:
        """Close the connection to Prometheus; idempotent."""
        self._prometheus.close()
