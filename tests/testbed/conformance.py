"""The suite that every testbed driver passes.

A driver's test module subclasses `TestbedConformance` and gives it a `Rig`. What a driver can't do
is named in its rig's `cannot`, with the reason, and shows up as a skip with that reason.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import polars as pl
import pytest
import redis

from testbed.api import BACKEND_NAME, Addresses, ComponentUsage, LoadResult, Testbed, TestbedSpec
from testbed.errors import ComponentDied, Interrupted, OutputFailed
from testbed.load.requests import SCHEMA
from tests.testbed import builders

Slots = Mapping[str, Mapping[str, str]]
"""Rows of `show stat` by slot."""

COMPONENTS = ("haproxy", "prometheus", "redis", "k6", "backend-1")


class Rig(ABC):
    """How the suite gets at the insides of one driver."""

    kind: str
    cannot: Mapping[str, str] = {}
    """Name of a test to the reason why this driver can't pass it."""

    @abstractmethod
    def create(self, spec: TestbedSpec) -> Testbed:
        """A testbed, not started."""

    @abstractmethod
    def ask(self, addresses: Addresses, command: str) -> str:
        """HAProxy's answer on the runtime socket."""

    @abstractmethod
    def slots(self, addresses: Addresses) -> Slots:
        """HAProxy's row of every slot."""

    @abstractmethod
    def traces(self, run_id: str) -> set[str]:
        """Everything that exists of this run now: processes, folders, containers, networks."""

    @abstractmethod
    def remaining(self, traces: set[str]) -> set[str]:
        """What of `traces` still exists."""

    @abstractmethod
    def kill(self, run_id: str, component: str) -> None:
        """SIGKILL one component of a run (`COMPONENTS`)."""

    @abstractmethod
    def sweep(self) -> None:
        """Remove what dead owners left."""


def eventually(check: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Whether `check` comes true in time."""
    deadline = time.monotonic() + timeout_s
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@dataclass
class Evidence:
    """What was seen of one run from start to stop."""

    addresses: Addresses
    result: LoadResult
    out_dir: Path
    usage: dict[str, ComponentUsage]
    versions: dict[str, str]
    final_slots: Slots
    backends: dict[str, str]
    released_at_us: int
    traces: set[str]
    after_stop: set[str]
    swept: set[str]
    """What a sweep for leftovers took from it while its owner lived."""
    work_status: dict[str, int] = field(default_factory=dict)
    flat: dict[str, bool] = field(default_factory=dict)
    back: dict[str, bool] = field(default_factory=dict)
    run_id_in_redis: str = ""
    ticks: int = 0


class TestbedConformance:
    """Subclass it as `Test…` and define the fixture `rig`."""

    __test__ = False

    @pytest.fixture(autouse=True)
    def _possible(self, request: pytest.FixtureRequest, rig: Rig) -> None:
        if reason := rig.cannot.get(request.function.__name__):
            pytest.skip(f"{rig.kind} can't: {reason}")

    # --- one whole run -------------------------------------------------------------------------

    @pytest.fixture(scope="class")
    @classmethod
    def run(cls, rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Evidence:
        """A run on which weights and admin states are changed under load."""
        spec = builders.spec(3, builders.load(vus=15, duration_s=12))
        out_dir = tmp_path_factory.mktemp("run")
        testbed = rig.create(spec)
        seen: dict[str, dict[str, bool]] = {"flat": {}, "back": {}}
        ticks: list[float] = []
        try:
            addresses = testbed.start()
            urls = [addresses.frontend_url, *addresses.backend_urls]
            statuses = {url: httpx.get(f"{url}/work").status_code for url in urls}
            traces = rig.traces(spec.run_id)
            rig.sweep()
            swept = traces - rig.remaining(traces)
            before = rig.slots(addresses)
            released = testbed.start_load(out_dir)

            def meddle() -> None:
                for change, undo in CHANGES:
                    rig.ask(addresses, change)
                    seen["flat"][change] = eventually(lambda: _flat(rig, addresses))
                    rig.ask(addresses, undo)
                    seen["back"][change] = eventually(lambda: not _flat(rig, addresses))

            with ThreadPoolExecutor(1) as pool:
                meddling = pool.submit(meddle)
                result = testbed.wait_load(lambda: ticks.append(time.monotonic()))
                meddling.result()
            with redis.Redis.from_url(addresses.redis_url) as client:
                run_id = (client.get("run:id") or b"").decode()
            evidence = Evidence(
                addresses=addresses,
                result=result,
                out_dir=out_dir,
                usage=testbed.usage(),
                versions=testbed.versions(),
                final_slots=rig.slots(addresses),
                backends=testbed.backends(),
                released_at_us=released,
                traces=traces,
                after_stop=set(),
                swept=swept,
                work_status=statuses,
                flat=seen["flat"],
                back=seen["back"],
                run_id_in_redis=run_id,
                ticks=len(ticks),
            )
            testbed.collect_logs(out_dir / "logs")
            assert set(before) == {"api-1", "api-2", "api-3"}
            testbed.check()
        finally:
            testbed.stop()
        evidence.after_stop = rig.remaining(evidence.traces)
        testbed.stop()
        return evidence

    def test_everything_answers_once_started(self, run: Evidence) -> None:
        assert len(run.addresses.backend_urls) in (0, 3)
        assert set(run.work_status.values()) <= {200, 500}
        assert run.work_status[run.addresses.frontend_url] in (200, 500)

    @pytest.mark.parametrize("index", [0, 1])
    def test_a_change_through_the_socket_moves_real_traffic(
        self, run: Evidence, index: int
    ) -> None:
        change = CHANGES[index][0]
        assert run.flat[change], f"after {change!r} requests still came"
        assert run.back[change], f"requests did not come back after {change!r} was undone"

    def test_every_request_is_recorded_once(self, run: Evidence) -> None:
        rows = pl.read_parquet(run.out_dir / "requests.parquet")
        assert rows.schema == pl.Schema(SCHEMA)
        assert run.result.requests > 500
        assert run.result.rows == len(rows) == run.result.requests == run.result.iterations
        assert run.result.duplicate_rows == 0
        assert rows.select("vu", "iteration").is_unique().all()
        assert sorted(rows["vu"].unique()) == list(range(1, 16))
        assert rows["iteration"].min() == 0

    def test_rows_agree_with_the_load_generators_own_numbers(self, run: Evidence) -> None:
        rows = pl.read_parquet(run.out_dir / "requests.parquet")
        assert (rows["status"] >= 500).sum() == run.result.http_5xx > 0
        assert (rows["status"] == 0).sum() == run.result.transport_errors == 0
        duration = run.result.summary["metrics"]["http_req_duration"]["values"]
        assert rows["duration_us"].mean() / 1000 == pytest.approx(duration["avg"], abs=0.01)
        assert rows["duration_us"].max() / 1000 == pytest.approx(duration["max"], abs=0.01)
        assert "p(99)" in duration
        # Nothing is faster than the fastest profile: 7 ms.
        assert rows["duration_us"].min() > 7000
        assert rows["ts_us"].min() >= run.result.started_at_us
        assert rows["ts_us"].max() <= run.result.ended_at_us

    def test_the_load_ran_its_course(self, run: Evidence) -> None:
        lasted_s = (run.result.ended_at_us - run.result.started_at_us) / 1e6
        assert run.result.exit_code == 0
        assert 12 <= lasted_s < 14
        assert run.released_at_us == run.result.started_at_us
        assert run.result.expected_rate_rps is not None
        assert run.result.achieved_rate_rps <= 1.1 * run.result.expected_rate_rps
        assert run.ticks >= 8
        assert (run.out_dir / "load_summary.json").exists()

    def test_the_run_id_is_shared_through_redis(self, run: Evidence) -> None:
        assert run.run_id_in_redis == run.result.summary["run_id"]
        assert run.run_id_in_redis.startswith("test-")

    def test_only_faulty_slots_have_errors(self, run: Evidence) -> None:
        errors = {slot: int(row["hrsp_5xx"]) for slot, row in run.final_slots.items()}
        assert sorted(count > 0 for count in errors.values()) == [False, False, True]
        # Nobody but HAProxy's clients reached the backends, save for the one probe of this suite.
        assert run.result.http_5xx <= sum(errors.values()) <= run.result.http_5xx + 1

    def test_which_backend_sat_in_which_slot_is_known_afterwards(self, run: Evidence) -> None:
        sat = {slot: run.backends[row["addr"]] for slot, row in run.final_slots.items()}
        assert sorted(sat.values()) == ["backend-1", "backend-2", "backend-3"]
        # Instance 2 is the faulty one (Table 1), and its slot counted the errors.
        (faulty,) = [slot for slot, row in run.final_slots.items() if int(row["hrsp_5xx"])]
        assert sat[faulty] == "backend-2"

    def test_usage_and_versions_name_every_component(self, run: Evidence) -> None:
        optional = {"dataplane"}
        assert set(run.usage) - optional == {"k6", "haproxy", "prometheus", "redis", "backends"}
        assert all(used.cpu_s > 0 for used in run.usage.values())
        assert all(used.max_rss_bytes > 1 << 20 for used in run.usage.values())
        assert {"haproxy", "prometheus", "redis", "k6"} <= set(run.versions)
        programs = {name: v for name, v in run.versions.items() if not name.startswith("image ")}
        assert all(version[0].isdigit() for version in programs.values())

    def test_logs_are_collected(self, run: Evidence) -> None:
        names = {path.name for path in (run.out_dir / "logs").iterdir()}
        assert {"haproxy.cfg", "prometheus.yml"} <= names
        assert any(name.startswith("k6") for name in names)

    def test_a_living_owners_testbed_is_never_swept(self, run: Evidence) -> None:
        assert run.swept == set()

    def test_stop_leaves_nothing(self, run: Evidence) -> None:
        assert len(run.traces) > 5
        assert run.after_stop == set()
        with pytest.raises(httpx.TransportError):
            httpx.get(run.addresses.frontend_url, timeout=5)

    # --- several, and interrupted ones ---------------------------------------------------------

    def test_two_side_by_side(self, rig: Rig, tmp_path: Path) -> None:
        specs = [
            builders.spec(2, builders.load(vus=6, duration_s=3), algorithm=algorithm)
            for algorithm in ("leastconn", "roundrobin")
        ]
        testbeds = [rig.create(spec) for spec in specs]
        barrier = threading.Barrier(2)

        def whole_run(index: int) -> tuple[Addresses, LoadResult]:
            testbed = testbeds[index]
            try:
                addresses = testbed.start()
                barrier.wait(120)
                testbed.start_load(tmp_path / str(index))
                return addresses, testbed.wait_load()
            finally:
                testbed.stop()

        with ThreadPoolExecutor(2) as pool:
            (one, first), (two, second) = pool.map(whole_run, range(2))
        assert one.frontend_url != two.frontend_url
        assert one.runtime_socket != two.runtime_socket
        for result in (first, second):
            assert result.rows == result.requests > 50
            assert result.transport_errors == 0
        for spec in specs:
            assert rig.traces(spec.run_id) == set()

    def test_an_interrupted_start_leaves_nothing(self, rig: Rig) -> None:
        spec = builders.spec(1)
        testbed = rig.create(spec)
        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(testbed.start)
            assert eventually(lambda: len(rig.traces(spec.run_id)) > 1 or starting.done())
            traces = rig.traces(spec.run_id)
            testbed.interrupt()
            with pytest.raises(Interrupted):
                starting.result(timeout=60)
        assert rig.remaining(traces) == set()
        assert rig.traces(spec.run_id) == set()
        testbed.stop()

    # --- faults, all at once to save time ------------------------------------------------------

    @pytest.fixture(scope="class")
    @classmethod
    def faults(
        cls, rig: Rig, tmp_path_factory: pytest.TempPathFactory
    ) -> Iterator[dict[str, Outcome]]:
        """What became of runs in which something was done after a second of load."""
        folder = tmp_path_factory.mktemp("faults")
        names = [*COMPONENTS, "interrupt", "full", "redis refuses"]
        with ThreadPoolExecutor(4) as pool:
            outcomes = pool.map(lambda name: provoke(rig, name, folder / name), names)
            yield dict(zip(names, outcomes, strict=True))

    @pytest.mark.parametrize("component", COMPONENTS)
    def test_a_killed_component_ends_the_run(
        self, faults: dict[str, Outcome], component: str
    ) -> None:
        outcome = faults[component]
        assert isinstance(outcome.raised, ComponentDied), outcome.raised
        assert str(outcome.raised).startswith(component)
        assert outcome.noticed_after_s < 10
        assert not (outcome.out_dir / "requests.parquet").exists()
        assert outcome.left == set()

    def test_an_interrupted_load_leaves_nothing(self, faults: dict[str, Outcome]) -> None:
        outcome = faults["interrupt"]
        assert isinstance(outcome.raised, Interrupted), outcome.raised
        assert not (outcome.out_dir / "requests.parquet").exists()
        assert outcome.left == set()

    def test_a_full_disk_is_named(self, faults: dict[str, Outcome]) -> None:
        outcome = faults["full"]
        assert isinstance(outcome.raised, OutputFailed), outcome.raised
        assert "No space left" in str(outcome.raised)
        assert outcome.left == set()

    def test_telemetry_that_redis_refuses_shows_as_missing_rows(
        self, faults: dict[str, Outcome]
    ) -> None:
        outcome = faults["redis refuses"]
        assert outcome.raised is None
        assert outcome.result is not None
        assert 0 < outcome.result.rows < outcome.result.requests

    # --- an owner that dies --------------------------------------------------------------------

    def test_nothing_outlives_a_killed_owner(self, rig: Rig, tmp_path: Path) -> None:
        run_id = builders.spec().run_id
        arguments = [sys.executable, "-m", "tests.testbed.owner", rig.kind, run_id, str(tmp_path)]
        owner = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline().strip() == "loaded"
            traces = rig.traces(run_id)
            assert len(traces) > 3
        finally:
            owner.send_signal(signal.SIGKILL)
            owner.wait()

        def swept() -> bool:
            rig.sweep()
            return rig.remaining(traces) == set()

        assert eventually(swept, 15), rig.remaining(traces)
        assert rig.traces(run_id) == set()


CHANGES = (
    (f"set weight {BACKEND_NAME}/api-1 0", f"set weight {BACKEND_NAME}/api-1 100"),
    (
        f"set server {BACKEND_NAME}/api-1 state drain",
        f"set server {BACKEND_NAME}/api-1 state ready",
    ),
)
"""What is done to api-1 under load, and how it is undone."""


def _flat(rig: Rig, addresses: Addresses) -> bool:
    """Whether api-1 gets nothing while its neighbours get 50 requests."""

    def totals() -> tuple[int, int]:
        rows = rig.slots(addresses)
        mine = int(rows["api-1"]["stot"])
        return mine, sum(int(row["stot"]) for row in rows.values()) - mine

    mine, others = totals()
    if not eventually(lambda: totals()[1] >= others + 50, 5):
        return False
    return totals()[0] == mine


@dataclass
class Outcome:
    """How a provoked run ended."""

    out_dir: Path
    raised: Exception | None = None
    result: LoadResult | None = None
    noticed_after_s: float = 0.0
    left: set[str] = field(default_factory=set)


def provoke(rig: Rig, what: str, out_dir: Path) -> Outcome:
    """Run a load, do `what` to it, and see how it ends."""
    duration_s = 4.0 if what == "redis refuses" else 60.0
    spec = builders.spec(1, builders.load(vus=4, duration_s=duration_s), start_timeout_s=180.0)
    testbed = rig.create(spec)
    outcome = Outcome(out_dir)
    traces: set[str] = set()
    done_at = [time.monotonic()]

    def act(addresses: Addresses) -> None:
        traces.update(rig.traces(spec.run_id))
        if what == "interrupt":
            testbed.interrupt()
        elif what == "redis refuses":
            with redis.Redis.from_url(addresses.redis_url) as client:
                client.config_set("maxmemory", "1")
        elif what != "full":
            rig.kill(spec.run_id, what)
        done_at[0] = time.monotonic()

    out_dir.mkdir()
    if what == "full":
        # Every write to it fails as on a full disk.
        (out_dir / "requests.parquet.part").symlink_to("/dev/full")
    try:
        addresses = testbed.start()
        testbed.start_load(out_dir)
        timer = threading.Timer(1.5, act, [addresses])
        timer.start()
        try:
            outcome.result = testbed.wait_load()
        finally:
            timer.join()
    except Exception as error:
        outcome.raised = error
        outcome.noticed_after_s = time.monotonic() - done_at[0]
    finally:
        testbed.stop()
    outcome.left = rig.remaining(traces) | rig.traces(spec.run_id)
    return outcome
