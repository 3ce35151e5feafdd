"""llama-server as a child process that is verified to run as it was asked to (paper, §4.4)."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path
from typing import Any

import httpx
import psutil

from serving.agreement import server_args, verified_report
from serving.api import EndpointInfo, ModelSpec, ServerSpec
from serving.child import Child
from serving.errors import NoRoomOnGpu, ProgramMissing, ServerDied, ServerMismatch, StartTimeout
from serving.leftovers import forget, record, state_dir
from serving.probe import answers, http_client
from serving.program import (
    Device,
    child_environment,
    find_llama_server,
    list_devices,
    program_version,
)
from serving.weights import local_path, size_bytes

ALL_LAYERS = 999  # llama-server takes as many as the model has
_GPU_OVERHEAD_MIB = 1024  # context and compute buffers, beside the weights
_POLL_S = 0.05
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class LlamaServer:
    """One model served by one llama-server; satisfies `ModelEndpoint`.

    Owned by the process that calls `start`, and dead when that process is. `log_path` is where
    the server's output goes (default: a file beside the records of running servers, removed when
    the server was stopped after a good start).
    """

    def __init__(self, model: ModelSpec, spec: ServerSpec, log_path: Path | None = None) -> None:
        self._model = model
        self._spec = spec
        self._keep_log = log_path is not None
        name = f"{model.name}-{os.getpid()}-{secrets.token_hex(4)}.log"
        self._log_path = log_path or state_dir() / name
        self._key = secrets.token_urlsafe(32)
        self._child: Child | None = None
        self._record: Path | None = None
        self._info: EndpointInfo | None = None

    def start(self) -> EndpointInfo:
        """Load the model; returns when it answers and its own report agrees with what was asked.

        Raises `ProgramMissing`, `WeightsMissing`, `NoRoomOnGpu`, `ServerDied`, `StartTimeout`,
        `ServerMismatch`; nothing is left running then.
        """
        if self._info is not None:
            return self._info
        program = find_llama_server(self._spec.program)
        weights = local_path(self._model)
        devices = list_devices(program)
        layers = self._gpu_layers(devices)
        if layers:
            self._check_gpu_memory(devices)
        args = server_args(program, weights, self._model, self._spec, layers)
        started = time.monotonic()
        try:
            self._child = Child(args, child_environment(os.environ, self._key), self._log_path)
        except OSError as error:
            raise ProgramMissing(f"{program} can't be run: {error}") from None
        try:
            self._record = record(self._child.pid, f"llama-server {self._model.name}")
            root = self._wait_until_ready(started)
            report = self._verified_report(root, layers)
        except BaseException:
            self.stop()
            raise
        report |= {
            "load_s": round(time.monotonic() - started, 3),
            "pid": self._child.pid,
            "weights": str(weights),
            "weights_bytes": size_bytes(self._model)[0],
            "devices": [device.title for device in devices],
            "threads": self._spec.threads,
            "flash_attention": self._spec.flash_attention,
            "seed": self._spec.seed,
            "log": str(self._log_path),
        }
        self._info = EndpointInfo(
            base_url=f"{root}/v1",
            api_key=self._key,
            model=self._model.name,
            context_per_slot=report["context_per_slot"],
            version=f"llama-server {program_version(program)}",
            report=report,
        )
        return self._info

    def alive(self) -> bool:
        """One tiny completion within the deadline; False when stopped, dead or wedged."""
        return (
            self._info is not None
            and self._child is not None
            and self._child.exit_code() is None
            and answers(self._info, self._spec.liveness_timeout_s)
        )

    def check(self) -> None:
        """Raise `ServerDied` when the process has ended on its own. Cheap: asks only the kernel."""
        code = self._child.exit_code() if self._child is not None else None
        if code is not None:
            raise ServerDied(self._obituary(code, "while serving"))

    def stop(self) -> None:
        """SIGTERM, one second, SIGKILL; returns when it is gone. Idempotent."""
        had_started, self._info = self._info is not None, None
        if self._child is not None:
            if had_started and not self._keep_log and self._child.exit_code() is None:
                self._log_path.unlink(missing_ok=True)
            self._child.stop()
            self._child = None
        if self._record is not None:
            forget(self._record)
            self._record = None

    def _gpu_layers(self, devices: tuple[Device, ...]) -> int:
        if self._spec.gpu_layers == "auto":
            return ALL_LAYERS if devices else 0
        if self._spec.gpu_layers and not devices:
            raise NoRoomOnGpu(
                f"{self._model.name}: serving.gpu_layers={self._spec.gpu_layers}, but llama-server "
                f"sees no GPU (no device, CUDA_VISIBLE_DEVICES hides it, or a build without CUDA)"
            )
        return self._spec.gpu_layers

    def _check_gpu_memory(self, devices: tuple[Device, ...]) -> None:
        """Refuse before loading: with too little room, loading fails late or spills to the host."""
        if self._spec.gpu_layers != "auto":
            return  # somebody who asks for a part of the layers knows what fits
        needed = size_bytes(self._model)[0] // 2**20 + _GPU_OVERHEAD_MIB
        free = sum(device.free_mib for device in devices)
        if free < needed:
            names = ", ".join(f"{device.name} {device.free_mib} MiB free" for device in devices)
            raise NoRoomOnGpu(
                f"{self._model.name}: needs about {needed} MiB of GPU memory, has {free} "
                f"({names}); another process may hold the rest: nvidia-smi shows which"
            )

    def _wait_until_ready(self, started: float) -> str:
        """The root URL, once the server says that the model is loaded."""
        assert self._child is not None
        deadline = started + self._spec.load_timeout_s
        seen = "no listening socket"
        while True:
            code = self._child.exit_code()
            if code is not None:
                raise ServerDied(self._obituary(code, "while loading"))
            port = self._spec.port or _listening_port(self._child.pid)
            if port:
                root = f"http://{_address(self._spec.host)}:{port}"
                seen = _health(root)
                # With a fixed port it may be a stranger who answers: only ours takes our key.
                if seen == "200" and self._is_ours(root):
                    return root
            if time.monotonic() > deadline:
                raise StartTimeout(
                    f"{self._model.name}: llama-server was not ready after "
                    f"{self._spec.load_timeout_s:.0f} s (serving.load_timeout_s); last seen: "
                    f"{seen}; end of {self._log_path}: {_one_line(self._child.log_tail())}"
                )
            time.sleep(_POLL_S)

    def _is_ours(self, root: str) -> bool:
        try:
            with http_client(root, self._key, self._spec.liveness_timeout_s) as client:
                return client.get("/v1/models").status_code == 200
        except httpx.HTTPError:
            return False

    def _obituary(self, code: int, when: str) -> str:
        assert self._child is not None
        tail = self._child.log_tail()
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        hint = ""
        if "couldn't bind" in tail and self._spec.port:
            hint = (
                f"; port {self._spec.port} is taken: port 0 stands for a free one, or "
                f"{self._spec.host} is no address of this machine"
            )
        elif "couldn't bind" in tail:
            hint = f"; {self._spec.host} is no address of this machine: set serving.host"
        elif "invalid argument" in tail:
            hint = "; this llama-server lacks a flag: `make llama-server` builds one that has it"
        return (
            f"{self._model.name}: llama-server ended {how} {when}{hint}; "
            f"end of {self._log_path}: {_one_line(tail)}"
        )

    def _verified_report(self, root: str, layers: int) -> dict[str, Any]:
        """What the server says of itself; raises `ServerMismatch` where it is not as asked."""
        try:
            with http_client(root, self._key, self._spec.liveness_timeout_s) as client:
                props = client.get("/props").raise_for_status().json()
                listed = client.get("/v1/models").raise_for_status().json()["data"][0]
        except (httpx.HTTPError, ValueError, LookupError) as error:
            raise ServerMismatch(f"{self._model.name}: llama-server's report: {error}") from None
        log = self._log_path.read_text(encoding="utf-8", errors="replace")
        return verified_report(self._model, self._spec, layers, props, listed, log)


def _one_line(tail: str) -> str:
    """The last lines of a log as a part of a message of one line."""
    return " | ".join(line.strip() for line in tail.splitlines()[-4:])


def _listening_port(pid: int) -> int | None:
    """The port that a process listens on: asking the kernel leaves no room for a race."""
    try:
        sockets = psutil.Process(pid).net_connections("inet")
    except psutil.Error:
        return None
    ports = [socket.laddr.port for socket in sockets if socket.status == psutil.CONN_LISTEN]
    return ports[0] if ports else None


def _health(root: str) -> str:
    """Status code of `/health`, or why there was none."""
    try:
        with http_client(root, "", 2.0) as client:
            answer = client.get("/health")
    except httpx.HTTPError as error:
        return f"{type(error).__name__} on {root}/health"
    return "200" if answer.status_code == 200 else f"{answer.status_code} (loading the model)"


def _address(host: str) -> str:
    host = _WILDCARDS.get(host, host)
    return f"[{host}]" if ":" in host else host
