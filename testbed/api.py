"""The seam of this room: what a testbed is asked for, and what it answers.

Every driver (`local`, `docker`) implements `Testbed`; `tests/testbed/conformance.py` is the suite
that all of them pass. Only plain frozen data crosses the seam, units are in the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

Algorithm = Literal["leastconn", "roundrobin"]
ErrorMode = Literal["error_on", "error_off"]

BACKEND_NAME = "be_api"
"""HAProxy's name of the backend that holds the fleet (paper, Appendix B)."""

SLOT_PREFIX = "api-"
"""Slots are `api-1` … `api-N`; which instance sits in which slot is only known afterwards."""


@dataclass(frozen=True)
class ServerProfile:
    """Response behaviour of one class of backends (paper, Table 1 and §4.2).

    Delay is `base_ms` + U{0, `jitter_ms`} (+ `spike_ms` with `spike_probability`); an errored
    request is answered 500 after `error_extra_ms` more. Its thread stays busy for `linger_ms` after
    the answer, as threads do that log and close: clients don't wait for it, the next request may.
    """

    base_ms: int
    jitter_ms: int
    error_rate: float
    spike_probability: float = 0.0
    spike_ms: int = 0
    error_extra_ms: int = 1
    linger_ms: float = 0.0


@dataclass(frozen=True)
class FleetSpec:
    """The backends behind HAProxy (paper, Table 1).

    `profiles[i % len(profiles)]` is the profile of instance i (i = 1 … N), and `base_ms` grows by
    ⌊i/3⌋ ms. `error_mode="error_off"` zeroes every error rate.
    """

    backends: int
    profiles: tuple[ServerProfile, ...]
    error_mode: ErrorMode
    seed: int
    workers: int
    threads: int
    """Concurrency of one backend: gunicorn workers x threads."""

    def error_rate(self, instance: int) -> float:
        """Probability of a 500 on `instance`, after `error_mode`."""
        if self.error_mode == "error_off":
            return 0.0
        return self.profiles[instance % len(self.profiles)].error_rate

    def faulty_count(self) -> int:
        """How many instances return errors: the expected cardinality of the ground truth (§3.4)."""
        return sum(self.error_rate(i) > 0 for i in range(1, self.backends + 1))


@dataclass(frozen=True)
class LoadSpec:
    """The k6 load (paper, §4.6)."""

    profile: Literal["steady", "ramp"]
    vus: int
    duration_s: float
    sleep_min_ms: float
    sleep_max_ms: float
    seed: int
    telemetry: Literal["redis", "file"] = "redis"
    stages: tuple[tuple[float, float], ...] = ()
    """Only for `ramp`: (duration_s, target arrival rate in requests per second), in order."""
    start_rate_rps: float = 0.0
    request_timeout_s: float = 10.0


@dataclass(frozen=True)
class TestbedSpec:
    """Everything that one testbed needs to know of one run."""

    run_id: str
    algorithm: Algorithm
    fleet: FleetSpec
    load: LoadSpec
    shuffle_seed: int
    """Seeds the order of instances in HAProxy's slots (in Docker, DNS order does this)."""
    initial_weight: int = 100
    scrape_interval_s: float = 1.0
    start_timeout_s: float = 60.0
    programs: Mapping[str, str] = field(default_factory=dict)
    """Configured paths by program name; what is absent is looked up (see `testbed.programs`)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Knobs of the driver alone, such as `testbed.docker.settings.DockerSettings`' fields."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """`sweep` and `attempt` that this is for, where there are any; drivers label things with it."""

    __test__ = False


@dataclass(frozen=True)
class DataPlaneAddress:
    """HAProxy Data Plane API of a testbed, with the credentials minted for it."""

    url: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Addresses:
    """Where the parts of a started testbed listen, as seen from this host."""

    frontend_url: str
    prometheus_url: str
    runtime_socket: str
    """A unix socket path, or `tcp://host:port`."""
    redis_url: str
    dataplane: DataPlaneAddress | None = None
    backend_urls: tuple[str, ...] = ()
    """Backend i+1 at index i; for diagnosis only: no policy ever sees these."""


@dataclass(frozen=True)
class LoadResult:
    """What the load generator did, judged by its summary and counts, never by exit code alone.

    `requests` and `http_5xx` are k6's own counts; `rows` is what arrived as telemetry, and
    `duplicate_rows` how many (vu, iteration) pairs came more than once (they are dropped from
    requests.parquet). A mismatch is reported here; whoever runs the load decides what it means.
    """

    started_at_us: int
    """Unix time in µs at which k6's setup() ended and the virtual users were let go."""
    ended_at_us: int
    exit_code: int
    requests: int
    http_5xx: int
    transport_errors: int
    """Requests that got no HTTP answer (status 0)."""
    iterations: int
    dropped_iterations: int
    rows: int
    duplicate_rows: int
    achieved_rate_rps: float
    expected_rate_rps: float | None
    """Closed-loop expectation vus / (mean sleep + mean latency); None for `ramp`."""
    summary: Mapping[str, Any]
    """The load generator's own summary, as written to load_summary.json."""


@dataclass(frozen=True)
class ComponentUsage:
    """Resources of one component (`k6`, `haproxy`, `prometheus`, `redis`, `backends`)."""

    cpu_s: float
    max_rss_bytes: int
    throttled_s: float | None = None
    """Time throttled by a CPU quota; None where there is none."""
    cpus: int | None = None
    """CPUs that it may use; None where it may use all of this host's."""


class Testbed(Protocol):
    """One isolated fleet and its load, from start to proof that nothing is left.

    Used by one thread at a time, except `interrupt`, which may come from any thread. Every
    method may raise `testbed.errors.TestbedError`; `stop` never does.
    """

    __test__ = False

    def start(self) -> Addresses:
        """Start everything but the load; return when all N slots are UP in Prometheus' eyes too.

        By then it has scraped HAProxy, knows every target, and none of them fails.

        Raises `StartTimeout` (what was awaited, seen last, what to try), `ProgramMissing`,
        `ComponentDied` (name, exit code, last log lines). On any error everything that was
        started is stopped again before it is raised.
        """

    def start_load(self, out_dir: Path) -> int:
        """Let the virtual users go; return the unix time in µs at which they were.

        Telemetry is written to `out_dir/requests.parquet` in row groups while the load runs.
        """

    def wait_load(self, on_tick: Callable[[], None] | None = None) -> LoadResult:
        """Wait until the load has ended, complete `requests.parquet`, `load_summary.json`.

        Raises `ComponentDied` as soon as any component (k6 itself included) is gone, `LoadFailed`
        where k6's summary is missing or nothing was sent, `Interrupted` after `interrupt()`.
        """

    def check(self) -> None:
        """Raise `ComponentDied` when any component is gone."""

    def backends(self) -> dict[str, str]:
        """Backend (`backend-1` …, by instance number) by `address:port`, as HAProxy sees it.

        With the slots' addresses it says who sat in which slot, once that is over: diagnosis and
        the record only, no policy ever sees it.
        """

    def usage(self) -> dict[str, ComponentUsage]:
        """Resources used so far, by component."""

    def versions(self) -> dict[str, str]:
        """Version of every program of this testbed, by program name."""

    def collect_logs(self, out_dir: Path) -> None:
        """Copy the components' logs and configurations into `out_dir`."""

    def interrupt(self) -> None:
        """Make a `start` or `wait_load` in another thread end with `Interrupted`, soon."""

    def stop(self) -> None:
        """Stop everything and remove what it used. Idempotent; safe after any error."""
