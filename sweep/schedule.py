"""Which run goes on which testbed with which model, as a pure state machine.

Events go in, instructions come out; Ray is the shell around it (`sweep.cluster`). One model is
served at a time: it is replaced only when no run of it is left, so that it stays warm over the
whole sub-grid of its model (paper, §3.5). Runs that need no model fill testbeds meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sweep.grid import RunPoint

# --- events -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """The sweep begins."""


@dataclass(frozen=True)
class ServerReady:
    """The model server asked for answers; `slots` runs may use it at a time."""

    model: str
    slots: int


@dataclass(frozen=True)
class ServerFailed:
    """The model server could not be started, or was lost while no run used it."""

    model: str
    reason: str
    retryable: bool


@dataclass(frozen=True)
class ServerStopped:
    """The model server asked to stop is gone."""

    model: str


@dataclass(frozen=True)
class RunEnded:
    """An attempt ended. `testbed_lost` and `server_lost`: what has to be replaced."""

    run_id: str
    outcome: Literal["complete", "infrastructure", "fatal", "interrupted"]
    reason: str = ""
    testbed_lost: bool = False
    server_lost: bool = False


@dataclass(frozen=True)
class TestbedReady:
    """A testbed worker is there (again)."""

    testbed: int

    __test__ = False


@dataclass(frozen=True)
class StopAsked:
    """No new runs: let nothing start any more."""


Event = Started | ServerReady | ServerFailed | ServerStopped | RunEnded | TestbedReady | StopAsked

# --- instructions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class StartServer:
    """Start the server of `model`. The answer is `ServerReady` or `ServerFailed`."""

    model: str


@dataclass(frozen=True)
class StopServer:
    """Stop the server of `model`. The answer is `ServerStopped`."""

    model: str


@dataclass(frozen=True)
class ReplaceTestbed:
    """Start a fresh testbed worker. The answer is `TestbedReady`."""

    testbed: int


@dataclass(frozen=True)
class StartRun:
    """Run it on that testbed. `leases_model`: with the server that is up. Answer: `RunEnded`."""

    run_id: str
    testbed: int
    attempt: int
    """1 for the first try within this sweep."""
    leases_model: str | None


@dataclass(frozen=True)
class GiveUp:
    """The run failed for good."""

    run_id: str
    reason: str


Instruction = StartServer | StopServer | ReplaceTestbed | StartRun | GiveUp

# --- the machine --------------------------------------------------------------------------------

ServerState = Literal["down", "starting", "up", "stopping"]


@dataclass
class Scheduler:
    """The state of a sweep. `handle` is the only way to change it."""

    points: Sequence[RunPoint]
    testbeds: int
    max_attempts: int
    _pending: deque[RunPoint] = field(default_factory=deque, init=False)
    _tries: dict[str, int] = field(default_factory=dict, init=False)
    _running: dict[str, StartRun] = field(default_factory=dict, init=False)
    _idle: set[int] = field(default_factory=set, init=False)
    _server: ServerState = field(default="down", init=False)
    _model: str | None = field(default=None, init=False)
    _slots: int = field(default=0, init=False)
    _server_condemned: bool = field(default=False, init=False)
    _server_tries: dict[str, int] = field(default_factory=dict, init=False)
    _stopping: bool = field(default=False, init=False)
    failed: dict[str, str] = field(default_factory=dict, init=False)
    complete: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._by_id = {point.run_id: point for point in self.points}
        self._pending.extend(self.points)

    @property
    def finished(self) -> bool:
        """Nothing runs and nothing will: the shell may leave its loop."""
        idle = not self._running and self._server in ("down", "up")
        if self._stopping:
            return not self._running
        return idle and not self._pending and self._server == "down"

    def handle(self, event: Event) -> list[Instruction]:
        """Take one event and say what to do next."""
        out: list[Instruction] = []
        match event:
            case Started():
                self._idle = set(range(self.testbeds))
            case TestbedReady(testbed):
                self._idle.add(testbed)
            case ServerReady(model, slots):
                assert model == self._model
                self._server, self._slots, self._server_condemned = "up", max(1, slots), False
                self._server_tries[model] = 0
            case ServerFailed(model, reason, retryable):
                self._on_server_failed(model, reason, retryable, out)
            case ServerStopped():
                self._server, self._model, self._slots = "down", None, 0
                self._server_condemned = False
            case RunEnded():
                self._on_run_ended(event, out)
            case StopAsked():
                self._stopping = True
        if not self._stopping:
            self._dispatch(out)
        return out

    def _on_server_failed(
        self, model: str, reason: str, retryable: bool, out: list[Instruction]
    ) -> None:
        self._server, self._model, self._slots = "down", None, 0
        tries = self._server_tries.get(model, 0) + 1
        self._server_tries[model] = tries
        if retryable and tries < self.max_attempts:
            return
        for point in [p for p in self._pending if p.needs_server and p.model == model]:
            self._pending.remove(point)
            self._give_up(point.run_id, f"model server: {reason}", out)

    def _on_run_ended(self, event: RunEnded, out: list[Instruction]) -> None:
        started = self._running.pop(event.run_id)
        if event.testbed_lost:
            if not self._stopping:
                out.append(ReplaceTestbed(started.testbed))
        else:
            self._idle.add(started.testbed)
        if event.server_lost:
            self._server_condemned = True
        point = self._by_id[event.run_id]
        if event.outcome == "complete":
            self.complete.append(event.run_id)
        elif event.outcome == "interrupted":
            self._pending.appendleft(point)
        elif event.outcome == "infrastructure" and self._tries[event.run_id] < self.max_attempts:
            # First in line: its model is warm now, and a sick testbed shows soon.
            self._pending.appendleft(point)
        else:
            self._give_up(event.run_id, event.reason, out)

    def _give_up(self, run_id: str, reason: str, out: list[Instruction]) -> None:
        self.failed[run_id] = reason
        out.append(GiveUp(run_id, reason))

    def _dispatch(self, out: list[Instruction]) -> None:
        self._dispatch_server(out)
        while self._idle:
            point = self._next_startable()
            if point is None:
                return
            self._pending.remove(point)
            testbed = min(self._idle)
            self._idle.remove(testbed)
            self._tries[point.run_id] = self._tries.get(point.run_id, 0) + 1
            start = StartRun(
                point.run_id,
                testbed,
                self._tries[point.run_id],
                point.model if point.needs_server else None,
            )
            self._running[point.run_id] = start
            out.append(start)

    def _dispatch_server(self, out: list[Instruction]) -> None:
        leased = self._leases()
        if self._server == "up" and not leased:
            wanted = any(p.needs_server and p.model == self._model for p in self._pending)
            if self._server_condemned or not wanted:
                self._server = "stopping"
                out.append(StopServer(self._model or ""))
        elif self._server == "down" and self._may_load():
            wanted_model = next((p.model for p in self._pending if p.needs_server), None)
            if wanted_model is not None:
                self._server, self._model = "starting", wanted_model
                out.append(StartServer(wanted_model))

    def _may_load(self) -> bool:
        """Loading takes CPU and disk: it must not disturb a run that is being measured."""
        return not self._running and not any(not p.needs_server for p in self._pending)

    def _leases(self) -> int:
        return sum(start.leases_model is not None for start in self._running.values())

    def _next_startable(self) -> RunPoint | None:
        if self._server in ("starting", "stopping"):
            return None
        for point in self._pending:
            if not point.needs_server:
                return point
            if (
                self._server == "up"
                and point.model == self._model
                and not self._server_condemned
                and self._leases() < self._slots
            ):
                return point
        return None
