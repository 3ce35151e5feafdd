"""One attempt at one run, in the process that owns its testbed.

RunPoint -> Testbed.start() -> load -> control loop for duration_s -> artifacts -> summary.json.
Whatever goes wrong, the testbed is stopped and the outcome says whose doing it was.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
import traceback
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import testbed.errors
import testbed.factory
from controller.api import ServerStat
from controller.attach import Attached, Target, attach
from controller.config import ControllerConfig
from controller.errors import ControllerError, EndpointUnavailable
from controller.haproxy import RuntimeSocket
from controller.loop import LoopResult
from controller.records import JsonlRecorder
from serving.api import EndpointInfo
from serving.probe import answers
from sweep.cluster.messages import Progress, Report, Task
from sweep.config.specs import controller_config, duration_and_interval, testbed_kind, testbed_spec
from sweep.errors import InfrastructureError, ModelServerLost, RunInterrupted
from sweep.grid import RunPoint
from sweep.run.counters import CounterRecorder, Sample
from sweep.run.phases import Phases
from sweep.run.policy import make_policy
from sweep.run.summary import RunFacts, judge, write_run
from sweep.store.paths import RunPaths, RunStore
from testbed.api import BACKEND_NAME, Addresses, LoadResult, Testbed

_STORAGE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}


class AttemptControl:
    """What others may ask of an attempt while it runs; safe from any thread."""

    def __init__(self, point: RunPoint) -> None:
        self.stop = threading.Event()
        self._interrupts: list[Any] = []
        self._lock = threading.Lock()
        self._asked = False
        duration_s, interval_s = duration_and_interval(point)
        self._run_id = point.run_id
        self._duration_s = duration_s
        self._steps = int(duration_s / interval_s + 1e-9)
        self._phase = "preparing"
        self._step = 0
        self._errors_per_s: float | None = None
        self._t0_us: int | None = None

    @property
    def interrupted(self) -> bool:
        """Whether somebody asked the attempt to end."""
        return self._asked

    def interrupt(self) -> None:
        """Make the attempt end soon."""
        with self._lock:
            self._asked = True
            interrupts = list(self._interrupts)
        self.stop.set()
        for interrupt in interrupts:
            interrupt()

    def on_interrupt(self, interrupt: Any) -> None:
        """Call `interrupt` when the attempt is asked to end, at once if it has been."""
        with self._lock:
            self._interrupts.append(interrupt)
            asked = self._asked
        if asked:
            interrupt()

    def enter(self, phase: str) -> None:
        """The attempt goes on to another phase."""
        self._phase = phase

    def load_started(self, t0_us: int) -> None:
        """The virtual users were let go."""
        self._t0_us = t0_us

    def on_step(self, record: dict[str, Any]) -> None:
        """A control step was recorded."""
        self._step = record["step"] + 1
        self._errors_per_s = record["snapshot"]["errors_per_s_total"]

    def progress(self) -> Progress:
        """Where the attempt is."""
        elapsed = 0.0 if self._t0_us is None else time.time() - self._t0_us / 1e6
        return Progress(
            run_id=self._run_id,
            phase=self._phase,
            step=self._step,
            steps=self._steps,
            errors_per_s=self._errors_per_s,
            elapsed_s=min(elapsed, self._duration_s),
            duration_s=self._duration_s,
        )


def run_attempt(task: Task, control: AttemptControl) -> Report:
    """Make one attempt; the answer says how it ended. Never raises."""
    paths = RunStore(task.store).attempt(task.point.run_id, task.number)
    try:
        return Report("complete", notes=tuple(_Attempt(task, paths, control).run()))
    except Exception as error:
        _write_traceback(paths, error)
        if control.interrupted:
            return Report("interrupted", "stopped on request")
        if (full := _storage_problem(paths.root, error)) is not None:
            return Report("storage", full)
        return _failure(error)


def _failure(error: Exception) -> Report:
    """Whose doing it was (style: a broken testbed is told from a genuine bad result)."""
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, ModelServerLost | EndpointUnavailable):
        return Report("infrastructure", reason, server_lost=True)
    infrastructure = (InfrastructureError, testbed.errors.TestbedError, ControllerError)
    if isinstance(error, infrastructure):
        return Report("infrastructure", reason)
    return Report("fatal", reason)


def _storage_problem(root: Path, error: Exception) -> str | None:
    """Whether the folder for results is what failed, however the failure came to light."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _STORAGE_ERRNOS:
            return f"{root} can't be written: {cause.strerror}"
        if isinstance(cause, testbed.errors.OutputFailed):
            return str(cause)
        cause = cause.__cause__ or cause.__context__
    try:
        free = shutil.disk_usage(root).free
    except OSError as gone:
        return f"{root} can't be read: {gone.strerror}"
    if free < 2**20 or not os.access(root, os.W_OK):
        return f"{root} can't be written: {free // 1024} KiB are free"
    return None


def _write_traceback(paths: RunPaths, error: Exception) -> None:
    with suppress(OSError):
        paths.logs.mkdir(exist_ok=True)
        (paths.logs / "error.txt").write_text(
            "".join(traceback.format_exception(error)), encoding="utf-8"
        )


@dataclass
class _Measured:
    """What is known when the load has ended."""

    t0_us: int
    load: LoadResult
    loop: LoopResult
    last: Sample
    counters: CounterRecorder


class _Attempt:
    """The attempt's own life, one method a phase."""

    def __init__(self, task: Task, paths: RunPaths, control: AttemptControl) -> None:
        self._task = task
        self._point = task.point
        self._paths = paths
        self._control = control
        self._phases = Phases(control.enter)
        # Told to the driver, so that what a testbed leaves behind can be traced to its attempt.
        origin = {"sweep": task.store.name, "attempt": str(task.number)}
        spec = replace(testbed_spec(task.point), origin=origin)
        self._testbed: Testbed = testbed.factory.create(testbed_kind(task.point), spec)

    def run(self) -> list[str]:
        """All of it; returns what a reader should know of the complete run."""
        self._control.on_interrupt(self._testbed.interrupt)
        try:
            with self._phases("testbed_start"):
                addresses = self._testbed.start()
            measured = self._measure(addresses)
            with self._phases("collect"):
                facts = self._collect(measured)
            with ThreadPoolExecutor(1, thread_name_prefix="teardown") as pool:
                stopping = pool.submit(self._testbed.stop)
                judge(facts)
                write_run(self._paths, facts, self._phases, until=stopping.result)
            return facts.notes
        except BaseException:
            with suppress(testbed.errors.TestbedError):
                self._testbed.collect_logs(self._paths.logs)
            raise
        finally:
            self._testbed.stop()

    def _measure(self, addresses: Addresses) -> _Measured:
        """Load and control loop, side by side; the first failure of either ends both."""
        config = controller_config(self._point)
        socket = RuntimeSocket(addresses.runtime_socket, config.haproxy_timeout_s)
        policy = make_policy(self._point, self._task.lease)
        if hasattr(policy, "interrupt"):
            self._control.on_interrupt(policy.interrupt)
        recorder = JsonlRecorder(self._paths.root)
        counters = CounterRecorder(lambda: _sample(socket), self._paths.counters)
        attached = self._attach(addresses, policy, config, recorder)
        try:
            before = socket.process()
            with self._phases("load_start"):
                t0_us = self._testbed.start_load(self._paths.root)
                self._control.load_started(t0_us)
            with self._phases("load"):
                counters.start()
                load, loop = self._side_by_side(attached, policy, t0_us)
            last = counters.close()
            if not socket.process().same_process(before):
                raise InfrastructureError("HAProxy was restarted during the run")
            return _Measured(t0_us, load, loop, last, counters)
        finally:
            counters.abandon()
            attached.close()
            policy.close()
            recorder.close()

    def _attach(
        self, addresses: Addresses, policy: Any, config: ControllerConfig, recorder: JsonlRecorder
    ) -> Attached:
        dataplane = addresses.dataplane
        target = Target(
            addresses.prometheus_url,
            addresses.runtime_socket,
            dataplane.url if dataplane else None,
            dataplane.user if dataplane else "",
            dataplane.password if dataplane else "",
        )
        duration_s, _ = duration_and_interval(self._point)
        return attach(
            target,
            policy,
            duration_s,
            config,
            backend=BACKEND_NAME,
            algorithm=self._point.algorithm,
            recorder=recorder,
            stop=self._control.stop,
            on_step=self._on_step,
        )

    def _on_step(self, record: dict[str, Any]) -> None:
        """Tell the progress; after a decision timed out, see whether the server still decodes."""
        self._control.on_step(record)
        lease = self._task.lease
        if lease is None or not str(record["error"] or "").startswith("timeout"):
            return
        endpoint = EndpointInfo(lease.base_url, lease.api_key, lease.model)
        deadline_s = float(self._point.config["serving"]["liveness_timeout_s"])
        if not self._control.stop.is_set() and not answers(endpoint, deadline_s):
            raise ModelServerLost(f"the model server decodes nothing within {deadline_s:g} s")

    def _side_by_side(
        self, attached: Attached, policy: Any, t0_us: int
    ) -> tuple[LoadResult, LoopResult]:
        with ThreadPoolExecutor(1, thread_name_prefix="load") as pool:
            # The loop keeps this thread; the load only waits and drains.
            load = pool.submit(self._testbed.wait_load)
            load.add_done_callback(lambda f: self._on_load_done(f, policy))
            try:
                loop = attached.loop.run(t0_us)
            except BaseException:
                self._testbed.interrupt()
                wait([load], return_when=FIRST_EXCEPTION)
                raise
            result = load.result()
        if self._control.interrupted or loop.stopped:
            raise RunInterrupted("stopped on request")
        return result, loop

    def _on_load_done(self, load: Any, policy: Any) -> None:
        """No decision outlives the load; a load that failed ends the loop as well."""
        if load.exception() is not None:
            self._control.stop.set()
        if hasattr(policy, "interrupt"):
            policy.interrupt()

    def _collect(self, measured: _Measured) -> RunFacts:
        load = measured.load
        require_complete(load)
        usage = self._testbed.usage()
        self._testbed.collect_logs(self._paths.logs)
        return RunFacts(
            point=self._point,
            attempt=self._task.number,
            lease=self._task.lease,
            t0_us=measured.t0_us,
            load=load,
            loop=measured.loop,
            last=measured.last,
            slots=dict(measured.counters.addresses),
            slots_changed=measured.counters.slots_changed,
            backends=self._testbed.backends(),
            usage={name: asdict(used) for name, used in usage.items()},
            versions=self._testbed.versions(),
            bounds=self._task.bounds,
        )


def require_complete(load: LoadResult) -> None:
    """Raise `InfrastructureError` unless every request is exactly one row of requests.parquet.

    A line that came twice is there once (pitfall 32): it neither spoils a run nor makes up for one
    that is missing.
    """
    kept = load.rows - load.duplicate_rows
    if kept != load.requests:
        raise InfrastructureError(
            f"telemetry is incomplete: {kept} different rows of {load.requests} requests"
        )


def _sample(socket: RuntimeSocket) -> Sample:
    now_us = time.time_ns() // 1000
    return [_row(now_us, stat) for stat in socket.server_stats(BACKEND_NAME)]


def _row(now_us: int, stat: ServerStat) -> dict[str, Any]:
    return {
        "ts_us": now_us,
        "slot": stat.slot,
        "address": stat.address,
        "status": stat.status,
        "admin_state": stat.admin_state,
        "weight": stat.weight,
        "sessions": stat.sessions,
        "requests_total": stat.requests_total,
        "http_5xx_total": stat.http_5xx_total,
    }
