"""The driver's loop: carries out the scheduler's instructions with Ray and tells it what happened.

The driver alone writes to `runs/`: an attempt that was given up, whatever became of its worker,
can't land any more (pitfall 24).
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from serving.errors import EndpointUnreachable, NoRoomOnGpu, ServerDied, StartTimeout
from sweep.cluster.actors import ModelServer, TestbedWorker
from sweep.cluster.messages import Lease, Progress, Report, Task
from sweep.config.specs import duration_and_interval, serving_plan, testbed_kind
from sweep.errors import StorageError
from sweep.grid import RunPoint
from sweep.plan import Plan
from sweep.progress import View
from sweep.run.policy import system_prompt, tool_schemas
from sweep.schedule import (
    Event,
    GiveUp,
    Instruction,
    ReplaceTestbed,
    RunEnded,
    Scheduler,
    ServerFailed,
    ServerReady,
    ServerStopped,
    Started,
    StartRun,
    StartServer,
    StopAsked,
    StopServer,
    TestbedReady,
)
from sweep.signals import give_back, on_stop
from sweep.store.attempts import MAKE_ROOM, AttemptBook

INTERRUPT_GRACE_S = 20.0
"""How long interrupted attempts get to stop their testbeds before their workers are killed."""

MAY_PASS = (EndpointUnreachable, NoRoomOnGpu, ServerDied, StartTimeout)
"""Failures to start a model server that another try may not meet; all others are for good."""


@dataclass(frozen=True)
class Options:
    """Run-time knobs of a sweep (`conf/config.yaml`, `sweep.*`)."""

    testbeds: int
    max_attempts: int
    run_timeout_s: float | None
    min_free_disk_mib: int
    bounds: Mapping[str, float]


@dataclass
class _Running:
    start: StartRun
    task: Task
    deadline_s: float
    overdue: bool = False


@dataclass
class Runner:
    """Runs a plan to its end; one use."""

    plan: Plan
    book: AttemptBook
    options: Options
    view: View
    ray_alive: Callable[[], bool] = lambda: True
    interrupted: bool = field(default=False, init=False)
    ray_died: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._points = {point.run_id: point for point in self.plan.todo}
        self._scheduler = Scheduler(
            self.plan.todo, self.options.testbeds, max_attempts=self.options.max_attempts
        )
        self._workers: dict[int, Any] = {}
        self._generations: Counter[int] = Counter()
        self._server: Any = None
        self._lease: Lease | None = None
        self._epoch = 0
        self._refs: dict[Any, Callable[[Any], Event | None]] = {}
        self._running: dict[str, _Running] = {}
        self._polls: dict[Any, int] = {}
        self._signals = 0
        self._storage_error: StorageError | None = None
        self._events: deque[Event] = deque([Started()])

    def run(self) -> dict[str, str]:
        """Return what failed for good, by run id. Raises `StorageError` when the disk is full."""
        previous = on_stop(self._on_signal)
        try:
            for testbed in range(self.options.testbeds):
                self._workers[testbed] = self._new_worker(testbed)
            self._loop()
        finally:
            self._kill_all()
            give_back(previous)
        if self._storage_error is not None:
            raise self._storage_error
        return dict(self._scheduler.failed)

    # --- the loop -------------------------------------------------------------------------------

    def _loop(self) -> None:
        stop_by: float | None = None
        while True:
            while self._events:
                for instruction in self._scheduler.handle(self._events.popleft()):
                    self._carry_out(instruction)
            if self._scheduler.finished:
                return
            if (self._signals or self._storage_error) and stop_by is None:
                self.interrupted = bool(self._signals)
                stop_by = time.monotonic() + INTERRUPT_GRACE_S
                self.view.stopping(len(self._running))
                for worker in self._workers.values():
                    worker.interrupt.remote()
                self._events.append(StopAsked())
            # The first signal asks to stop, unless the store had done so already.
            kill = self._signals > (1 if self.interrupted else 0)
            if stop_by is not None and (kill or time.monotonic() > stop_by):
                return
            self._events.extend(self._wait(0.25))
            if not self.ray_alive():
                self.ray_died = True
                return
            self._enforce_limits()
            self._poll_progress()

    def _wait(self, timeout_s: float) -> list[Event]:
        waiting = list(self._refs)
        if not waiting:
            time.sleep(timeout_s)
            return []
        ready, _ = ray.wait(waiting, num_returns=1, timeout=timeout_s)
        events = []
        for ref in ready:
            event = self._refs.pop(ref)(ref)
            if event is not None:
                events.append(event)
        return events

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1

    # --- instructions ---------------------------------------------------------------------------

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case StartRun():
                self._start_run(instruction)
            case StartServer(model):
                self._start_server(model)
            case StopServer(model):
                self._stop_server(model)
            case ReplaceTestbed(testbed):
                ray.kill(self._workers[testbed])
                self._workers[testbed] = self._new_worker(testbed)
                ref = self._workers[testbed].pid.remote()
                self._refs[ref] = lambda r, t=testbed: self._testbed_ready(r, t)
            case GiveUp(run_id, reason):
                self.view.gave_up(run_id, reason)

    def _new_worker(self, testbed: int) -> Any:
        self._generations[testbed] += 1
        return TestbedWorker.options(name=f"testbed-{testbed}.{self._generations[testbed]}").remote(
            testbed_kind(self.plan.todo[0]),
            any(point.needs_server for point in self.plan.todo),
        )

    def _testbed_ready(self, ref: Any, testbed: int) -> Event:
        ray.get(ref)
        return TestbedReady(testbed)

    def _start_run(self, start: StartRun) -> None:
        point = self._points[start.run_id]
        try:
            self.book.require_free_disk(self.options.min_free_disk_mib)
            number = self.book.open(point)
        except (OSError, StorageError) as error:
            self._stop_for_storage(
                error
                if isinstance(error, StorageError)
                else f"the run store can't be written: {error}"
            )
            self._events.append(RunEnded(start.run_id, "interrupted"))
            return
        task = Task(
            point=point,
            store=self.book.store.root,
            number=number,
            lease=self._lease if start.leases_model else None,
            bounds=self.options.bounds,
        )
        limit = self.options.run_timeout_s or duration_and_interval(point)[0] + 300.0
        self._running[start.run_id] = _Running(start, task, time.monotonic() + limit)
        self.view.run_started(start.run_id, start.testbed, start.attempt)
        ref = self._workers[start.testbed].run.remote(task)
        self._refs[ref] = lambda r, run_id=start.run_id: self._run_ended(r, run_id)

    def _stop_for_storage(self, why: str | StorageError) -> None:
        """The scheduler hears of it before it hears that the run ended: it would start it again."""
        # An error of the store names the ways out itself.
        self._storage_error = (
            why if isinstance(why, StorageError) else StorageError(f"{why}. {MAKE_ROOM}")
        )
        self._events.append(StopAsked())

    def _run_ended(self, ref: Any, run_id: str) -> Event:
        running = self._running.pop(run_id)
        try:
            report: Report = ray.get(ref)
        except RayActorError:
            why = "hard time limit" if running.overdue else "the testbed worker died"
            report = Report("infrastructure", why, testbed_lost=True)
        except RayTaskError as error:
            report = Report("fatal", f"{type(error.cause).__name__}: {error.cause}")
        if report.outcome == "complete":
            try:
                self.book.publish(running.task.point, running.task.number)
            except OSError as error:
                report = Report("storage", f"the run store can't be written: {error}")
        if report.outcome != "complete":
            self.book.fail(running.task.point, running.task.number, report)
        outcome = report.outcome
        if outcome == "storage":
            self._stop_for_storage(report.reason)
            outcome = "interrupted"
        self.view.run_ended(run_id, running.start.testbed, report)
        return RunEnded(run_id, outcome, report.reason, report.testbed_lost, report.server_lost)

    def _start_server(self, model: str) -> None:
        point = next(p for p in self.plan.todo if p.needs_server and p.model == model)
        self._epoch += 1
        gpus = 1 if ray.cluster_resources().get("GPU", 0) else 0
        self._server = ModelServer.options(
            name=f"model-server-{model}.{self._epoch}", num_gpus=gpus
        ).remote(
            serving_plan(point),
            system_prompt(point),
            tool_schemas(),
            self.book.store.server_log(model),
        )
        self.view.server(model, "loading")
        self._refs[self._server.start.remote()] = lambda r: self._server_started(r, model, point)

    def _server_started(self, ref: Any, model: str, point: RunPoint) -> Event:
        try:
            info = ray.get(ref)
        except RayTaskError as error:
            cause = error.cause
            self._drop_server()
            self.view.server(model, "failed")
            return ServerFailed(model, str(cause), isinstance(cause, MAY_PASS))
        except RayActorError:
            self._drop_server()
            self.view.server(model, "failed")
            return ServerFailed(model, "the model server's actor died", True)
        self._lease = Lease(
            self._epoch, info["base_url"], info["api_key"], info["model"], info["report"]
        )
        self.view.server(model, "warm")
        return ServerReady(model, int(point.config["serving"].get("slots") or 1))

    def _stop_server(self, model: str) -> None:
        self._lease = None
        self.view.server(model, "stopping")
        self._refs[self._server.stop.remote()] = lambda r: self._server_stopped(r, model)

    def _server_stopped(self, ref: Any, model: str) -> Event:
        with contextlib.suppress(RayError):  # when it is gone: that is what was wanted
            ray.get(ref)
        self._drop_server()
        self.view.server(model, "")
        return ServerStopped(model)

    def _drop_server(self) -> None:
        if self._server is not None:
            ray.kill(self._server)
        self._server, self._lease = None, None

    # --- watching -------------------------------------------------------------------------------

    def _enforce_limits(self) -> None:
        now = time.monotonic()
        for running in self._running.values():
            if now > running.deadline_s and not running.overdue:
                running.overdue = True
                ray.kill(self._workers[running.start.testbed])

    def _poll_progress(self) -> None:
        """Ask every worker where it is, without ever waiting for an answer."""
        if self._polls:
            ready, _ = ray.wait(list(self._polls), num_returns=len(self._polls), timeout=0)
            for ref in ready:
                testbed = self._polls.pop(ref)
                try:
                    progress: Progress = ray.get(ref)
                except RayError:
                    continue
                self.view.progress(testbed, progress)
        asked = set(self._polls.values())
        for running in self._running.values():
            testbed = running.start.testbed
            if testbed not in asked:
                self._polls[self._workers[testbed].progress.remote()] = testbed
        self.view.refresh()

    def _kill_all(self) -> None:
        """Nothing outlives the loop: what is still running is a leftover by definition."""
        for run_id, running in list(self._running.items()):
            self.book.fail(
                running.task.point, running.task.number, Report("interrupted", "stopped")
            )
            self._running.pop(run_id)
        if self._server is not None:
            with contextlib.suppress(RayError):  # killed below
                ray.get(self._server.stop.remote(), timeout=10)
        self._drop_server()
        for worker in self._workers.values():
            ray.kill(worker)
