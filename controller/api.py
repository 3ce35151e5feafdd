"""The words of the control loop: snapshot, plan, guardrail verdicts, step record (paper, §4.3).

Plain frozen data. Everything here can be turned into JSON by `controller.records`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

ActionKind = Literal["set_weight", "drain", "enable", "no_op"]
AdminState = Literal["ready", "drain", "maint"]
Rail = Literal[
    "drain_cap", "action_cap", "weight_clamp", "weight_range", "unknown_server", "invalid"
]
Trend = Literal["RISING", "FALLING"]


@dataclass(frozen=True)
class Action:
    """One proposed intervention (paper, Table 2). `weight` only for `set_weight`."""

    kind: ActionKind
    backend: str = ""
    server: str = ""
    weight: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class ServerStat:
    """One server (slot) as HAProxy says now; counters are since HAProxy's start."""

    backend: str
    slot: str
    address: str
    """`address:port`; `-` where a server-template slot has no address."""
    status: str
    """HAProxy's own words: `UP`, `UP 1/2`, `DRAIN`, `MAINT (resolution)`, `DOWN`, `no check`."""
    admin_state: AdminState
    weight: int
    """Configured (user) weight, 0 to 256; kept through drain and maintenance."""
    sessions: int
    requests_total: int
    http_5xx_total: int

    @property
    def up(self) -> bool:
        """Whether load balancing may send new requests: `UP…`, or unchecked and not drained."""
        if self.admin_state != "ready":
            return False
        return self.status.startswith("UP") or self.status == "no check"


@dataclass(frozen=True)
class Series:
    """Samples of one metric of one server, oldest first; a gap (NaN, no scrape) is None.

    `times_s` are offsets from the time of observation (≤ 0), on the 15 s grid of the range query.
    """

    times_s: tuple[float, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class ServerView:
    """One server as the controller sees it (paper, §4.3)."""

    backend: str
    server: str
    up: bool
    weight: int
    """Configured (user) weight, 0 to 256; kept through drain and maintenance."""
    sessions: int | None
    errors_per_s: float | None
    """5xx per second over the rate window; None when there were no samples: never invented."""
    admin_state: AdminState
    series: Mapping[str, Series] = field(default_factory=dict)
    """By metric: `status`, `sessions`, `weight`, `5xx_rate`."""


@dataclass(frozen=True)
class Window:
    """How much of the lookback was there: early in a run rate() reads low (pitfall 7)."""

    lookback_s: float
    resolution_s: float
    rate_window_s: float
    observed_s: float
    """Age of the oldest sample that the rate window could use, at most `rate_window_s`."""

    @property
    def full(self) -> bool:
        """Whether the rate window is full."""
        return self.observed_s >= self.rate_window_s


@dataclass(frozen=True)
class Snapshot:
    """The unified observation of one step (paper, §4.3): global aggregates and every server."""

    time_us: int
    algorithm: str
    sessions_total: int | None
    errors_per_s_total: float | None
    servers_up: int
    servers_total: int
    servers: tuple[ServerView, ...]
    window: Window
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Slot to `address:port` as HAProxy says now (pitfall 3); never shown to a policy's model."""


@dataclass(frozen=True)
class Intervention:
    """One verdict of the guardrails that changed or dropped an action (paper, §3.1)."""

    rail: Rail
    verdict: Literal["dropped", "clamped"]
    index: int
    """Index of the action in the raw plan."""
    reason: str


@dataclass(frozen=True)
class GuardedPlan:
    """What may be executed, and every intervention that made it so."""

    actions: tuple[Action, ...]
    interventions: tuple[Intervention, ...]


@dataclass(frozen=True)
class ActionResult:
    """What happened to one executed action, read back from HAProxy (pitfall 1)."""

    action: Action
    ok: bool
    message: str
    """HAProxy's own words when it refused; empty when it did not."""
    weight_before: int | None
    weight_after: int | None
    admin_state_after: AdminState | None


@dataclass(frozen=True)
class Usage:
    """Tokens of one step (paper, §3.4). Zero turns for policies without a model."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cached_tokens: int = 0
    turns: int = 0


@dataclass(frozen=True)
class Decision:
    """A policy's answer: the raw plan, before any guardrail, and what it cost.

    `error` is a short reason when the policy failed (time-out, malformed answer, …): the step is
    lost and recorded as such, the run goes on. `infrastructure` marks an error that is not the
    model's doing (endpoint refused the connection, server wedged): see `controller.errors`.
    """

    actions: tuple[Action, ...]
    rationale: str = ""
    """What the policy says of its plan, markup stripped."""
    reasoning: str = ""
    """The reasoning trace of every turn, whatever way the model gave it (paper, §4.4)."""
    validation_errors: tuple[str, ...] = ()
    usage: Usage = Usage()
    error: str | None = None
    infrastructure: bool = False
    conversation: Sequence[Mapping[str, Any]] = ()
    """One entry a turn: request messages, parameters, raw response, timings."""


@dataclass(frozen=True)
class ExecutedAction:
    """An entry of the action history that is fed back to the policy (paper, Appendix B.1)."""

    time_us: int
    action: Action


class Policy(Protocol):
    """Maps a snapshot and the action history to a plan. Called once per interval.

    A policy that can take long may also have `interrupt()`, callable from any thread: it makes a
    `decide` in progress return soon.
    """

    def decide(self, snapshot: Snapshot, history: Sequence[ExecutedAction]) -> Decision:
        """Return the raw plan. Must not raise for anything that a model can answer."""

    def close(self) -> None:
        """Free connections; idempotent."""


class Clock(Protocol):
    """Where all time is read and slept, so that a simulation can run the same loop."""

    def time_us(self) -> int:
        """Unix time in µs."""

    def monotonic_s(self) -> float:
        """Monotonic seconds."""

    def sleep_s(self, seconds: float) -> None:
        """Sleep; returns early when the loop is asked to stop."""


class Telemetry(Protocol):
    """Where snapshots come from."""

    def observe(self) -> Snapshot:
        """One snapshot. Raises `controller.errors.ControllerError`: the run is not valid."""

    def close(self) -> None:
        """Free connections; idempotent."""


class Actuator(Protocol):
    """What carries out guarded actions, and reads back what is true."""

    def execute(self, actions: Sequence[Action]) -> Sequence[ActionResult]:
        """Carry out `actions` in order; `no_op` yields no result.

        A refusal is a result with `ok=False`. Raises `controller.errors.ControllerError` when the
        load balancer can't be reached.
        """

    def read(self) -> Sequence[ServerStat]:
        """Every server as it is now: the post-action state."""


class Recorder(Protocol):
    """Where records go, one call per step."""

    def step(self, record: Mapping[str, Any]) -> None:
        """One step record, as docs/run-store.md describes it."""

    def conversation(self, record: Mapping[str, Any]) -> None:
        """The conversation of one step of a model."""

    def close(self) -> None:
        """Flush and close; idempotent."""
