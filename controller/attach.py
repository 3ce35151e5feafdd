"""Puts a control loop together around an HAProxy and a Prometheus that exist already."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from controller.actuator import HAProxyActuator, ShadowActuator
from controller.api import Clock, Policy, Recorder
from controller.clock import RealClock
from controller.config import ControllerConfig
from controller.errors import HAProxyAnswer, RequestError
from controller.guardrails import Guardrails
from controller.haproxy import DataPlane, Fleet, RuntimeSocket
from controller.loop import ControlLoop, LoopConfig
from controller.telemetry import HAProxyTelemetry
from controller.telemetry.prometheus import Prometheus

DEFAULT_BACKEND = "be_api"


@dataclass(frozen=True)
class Target:
    """Where the parts of one load balancer listen."""

    prometheus_url: str
    runtime_socket: str
    """A unix socket path, or `tcp://host:port`."""
    dataplane_url: str | None = None
    dataplane_user: str = ""
    dataplane_password: str = field(default="", repr=False)


@dataclass(frozen=True)
class Discovery:
    """What is controlled: one backend of a discovered fleet."""

    fleet: Fleet
    backend: str
    algorithm: str


def discover(target: Target, config: ControllerConfig, backend: str | None = None) -> Discovery:
    """Discover servers through the Data Plane API where there is one, else the runtime socket.

    `backend` None means `be_api`, or the only one there is. Raises `RequestError` when the backend
    does not exist, `HAProxyError`, `DataPlaneError`.
    """
    socket = RuntimeSocket(target.runtime_socket, config.haproxy_timeout_s)
    known = {stat.name: stat for stat in socket.backends()}
    name = _choose(backend, list(known))
    fleet = Fleet({name: known[name].servers})
    if target.dataplane_url is not None:
        dataplane = DataPlane(
            target.dataplane_url, target.dataplane_user, target.dataplane_password
        )
        try:
            servers = dataplane.fleet().servers.get(name, ())
        finally:
            dataplane.close()
        fleet = Fleet({name: servers})
        missing = sorted(set(servers) ^ set(known[name].servers))
        if missing:
            raise HAProxyAnswer(
                f"Data Plane API and runtime socket disagree on {name}: {', '.join(missing)}"
            )
    return Discovery(fleet, name, known[name].algorithm)


def _choose(backend: str | None, known: list[str]) -> str:
    if not known:
        raise RequestError("HAProxy has no backend with servers")
    if backend is None:
        if DEFAULT_BACKEND in known:
            return DEFAULT_BACKEND
        if len(known) == 1:
            return known[0]
        raise RequestError(f"several backends ({', '.join(known)}): name one with --backend")
    if backend not in known:
        raise RequestError(f"unknown backend {backend!r}; HAProxy has {', '.join(known)}")
    return backend


@dataclass
class Attached:
    """A loop and what it holds open."""

    loop: ControlLoop
    telemetry: HAProxyTelemetry
    discovery: Discovery

    def close(self) -> None:
        """Free what the loop read through; policy and recorder are the caller's. Idempotent."""
        self.telemetry.close()


def attach(
    target: Target,
    policy: Policy,
    duration_s: float,
    config: ControllerConfig | None = None,
    *,
    backend: str | None = None,
    algorithm: str | None = None,
    recorder: Recorder | None = None,
    clock: Clock | None = None,
    stop: threading.Event | None = None,
    on_step: Callable[[dict[str, Any]], None] | None = None,
    shadow: bool = False,
    endure_endpoint: bool = False,
) -> Attached:
    """Discover, and build the loop. `algorithm` None: as HAProxy reports it.

    Raises `RequestError`, `HAProxyError`, `DataPlaneError`.
    """
    config = config or ControllerConfig()
    config.check()
    stop = stop or threading.Event()
    clock = clock or RealClock(stop)
    discovery = discover(target, config, backend)
    socket = RuntimeSocket(target.runtime_socket, config.haproxy_timeout_s)
    telemetry = HAProxyTelemetry(
        socket,
        Prometheus(target.prometheus_url, config.telemetry),
        discovery.fleet,
        discovery.backend,
        algorithm or discovery.algorithm,
        clock,
        config.telemetry,
    )
    actuator = HAProxyActuator(socket, discovery.fleet, discovery.backend)
    loop = ControlLoop(
        policy,
        telemetry,
        ShadowActuator(actuator) if shadow else actuator,
        Guardrails(config.guardrails),
        clock,
        LoopConfig(duration_s, config.interval_s, config.settle_s, endure_endpoint),
        recorder,
        on_step,
        stop,
    )
    return Attached(loop, telemetry, discovery)
