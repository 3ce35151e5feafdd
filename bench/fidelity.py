"""How close the local testbed comes to the paper's latencies, rate and error floor.

    python bench/fidelity.py                         both arms under both algorithms
    python bench/fidelity.py --algorithm roundrobin --workers 1 --threads 4
    python bench/fidelity.py --grid                  several concurrency settings, one line each

Arm `static`: error-on, N=3, nobody intervenes (Table 8). Arm `drained`: the same with the faulty
slot drained from the start (Table 9, N=3). Exit code 1 where a latency is more than 10% or the rate
more than 6% off, the paper's floor is outside the measured rate's Wilson interval, or the drained
p95 is outside 26 to 28 ms. Under leastconn the last two can't be had from this fleet
(docs/fidelity.md says why): they are printed and don't count. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import polars as pl
from statsmodels.stats.proportion import proportion_confint

from testbed.api import BACKEND_NAME, FleetSpec, LoadSpec, TestbedSpec
from testbed.cli import PAPER_PROFILES
from testbed.config.slots import shuffled_slots
from testbed.factory import create
from testbed.runtime_socket import ask

ALGORITHMS = ("roundrobin", "leastconn")
GRID = (
    *((1, 4, linger_ms) for linger_ms in (0.0, 1.0, 2.0)),
    *((1, 3, 0.0), (1, 5, 0.0), (1, 5, 3.0), (2, 2, 0.0), (4, 1, 0.0)),
)
"""Gunicorn workers, threads, and ms that a thread lingers, tried by `--grid`."""

PAPER_STATIC = {"mean": 12.0, "p50": 11.9, "p95": 15.6, "p99": 17.7, "rate": 24.4, "floor": 1.67}
"""Table 8 (uncontrolled) with §5.4's rate, and Table 5's floor in %."""

PAPER_DRAINED = {"roundrobin": {"p95": 27.6}, "leastconn": {"p95": 26.1}}
"""Table 9 at N=3, the larger models' tail."""

DRAINED_P95_MS = (26.0, 28.0)
"""Both algorithms' values in Table 9, rounded outwards."""

ARMS = ("static", "drained")

TOLERANCE_PERCENT = {"mean": 10, "p50": 10, "p95": 10, "p99": 10, "rate": 6}


@dataclass(frozen=True)
class Measured:
    """One arm: latencies in ms, requests per second and virtual user, 5xx in %."""

    mean: float
    p50: float
    p95: float
    p99: float
    rate: float
    floor: float
    floor_low: float
    floor_high: float
    requests: int
    cpu_s: dict[str, float]


def measure(
    arm: str,
    algorithm: str,
    concurrency: tuple[int, int, float],
    arguments: argparse.Namespace,
) -> Measured:
    """Run one arm on a testbed of its own; `concurrency` is workers, threads and lingering ms."""
    workers, threads, linger_ms = concurrency
    profiles = tuple(replace(profile, linger_ms=linger_ms) for profile in PAPER_PROFILES)
    spec = TestbedSpec(
        run_id=f"fidelity-{algorithm}-{arm}",
        algorithm=algorithm,
        fleet=FleetSpec(arguments.backends, profiles, "error_on", 42, workers, threads),
        load=LoadSpec(
            profile="steady",
            vus=10 * arguments.backends,
            duration_s=arguments.duration,
            sleep_min_ms=5.0,
            sleep_max_ms=50.0,
            seed=42,
            telemetry=arguments.telemetry,
        ),
        shuffle_seed=42,
    )
    testbed = create("local", spec)
    with tempfile.TemporaryDirectory() as folder:
        try:
            addresses = testbed.start()
            if arm == "drained":
                for slot, instance in shuffled_slots(arguments.backends, 42).items():
                    if spec.fleet.error_rate(instance) > 0:
                        command = f"set server {BACKEND_NAME}/{slot} state drain"
                        ask(addresses.runtime_socket, command)
            testbed.start_load(Path(folder))
            result = testbed.wait_load()
            usage = testbed.usage()
        finally:
            testbed.stop()
        duration = pl.read_parquet(Path(folder) / "requests.parquet")["duration_us"] / 1000
    low, high = proportion_confint(result.http_5xx, result.requests, method="wilson")
    quantiles = [duration.quantile(q, "linear") or 0.0 for q in (0.5, 0.95, 0.99)]
    return Measured(
        mean=float(duration.mean() or 0.0),  # type: ignore[arg-type]
        p50=quantiles[0],
        p95=quantiles[1],
        p99=quantiles[2],
        rate=result.achieved_rate_rps / spec.load.vus,
        floor=100 * result.http_5xx / result.requests,
        floor_low=100 * low,
        floor_high=100 * high,
        requests=result.requests,
        cpu_s={name: round(used.cpu_s, 1) for name, used in usage.items()},
    )


def report(arm: str, algorithm: str, measured: Measured) -> tuple[list[str], list[str]]:
    """Lines that set the measured beside the paper's, and what is off."""
    lines = [f"{algorithm}, {arm}: {measured.requests} requests, CPU seconds {measured.cpu_s}"]
    off = []
    units = {"rate": "req/s/VU", "floor": "%"}
    paper = PAPER_STATIC if arm == "static" else PAPER_DRAINED[algorithm]
    for name, expected in paper.items():
        value = getattr(measured, name)
        deviation = 100 * (value / expected - 1)
        lines.append(
            f"  {name:6} {value:8.2f} {units.get(name, 'ms'):8}  paper {expected:6.2f}"
            f"  {deviation:+6.1f}%"
        )
        if arm == "static" and abs(deviation) > TOLERANCE_PERCENT.get(name, math.inf):
            off.append(f"{algorithm}, {arm}: {name} {deviation:+.1f}%")
    scheduled = []  # what depends on how the algorithm shares the load
    if arm == "static":
        inside = measured.floor_low <= paper["floor"] <= measured.floor_high
        words = f"Wilson interval [{measured.floor_low:.2f}, {measured.floor_high:.2f}] %"
        lines.append(f"  floor's {words}: the paper's is {'inside' if inside else 'OUTSIDE'}")
        if not inside:
            scheduled.append(f"{algorithm}, {arm}: floor's {words}")
    else:
        low, high = DRAINED_P95_MS
        inside = low <= measured.p95 <= high
        lines.append(f"  {low:g} to {high:g} ms: {'inside' if inside else 'OUTSIDE'}")
        if not inside:
            scheduled.append(f"{algorithm}, {arm}: p95 {measured.p95:.1f} ms")
    return lines, off if algorithm == "leastconn" else off + scheduled


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--duration", type=float, default=120.0, help="s of load per arm")
    parser.add_argument("--backends", type=int, default=3)
    parser.add_argument("--algorithm", choices=ALGORITHMS, help="default: both")
    parser.add_argument("--telemetry", choices=["redis", "file"], default="redis")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument(
        "--linger", type=float, default=PAPER_PROFILES[0].linger_ms, help="ms, see conf/fleet"
    )
    parser.add_argument("--grid", action="store_true", help="try several concurrency settings")
    arguments = parser.parse_args(argv)
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs", flush=True)
    algorithms = (arguments.algorithm,) if arguments.algorithm else ALGORITHMS
    if arguments.grid:
        grid(algorithms, arguments)
        return 0
    concurrency = (arguments.workers, arguments.threads, arguments.linger)
    missed = []
    for algorithm in algorithms:
        for arm in ARMS:
            lines, off = report(arm, algorithm, measure(arm, algorithm, concurrency, arguments))
            print("\n".join(lines), flush=True)
            missed += off
    print("\n".join(f"MISSED {line}" for line in missed) or "as in the paper")
    return 1 if missed else 0


def grid(algorithms: Sequence[str], arguments: argparse.Namespace) -> None:
    """Measure every setting of `GRID`, one line each."""
    columns = "mean   p50   p95   p99  rate"
    print(f"workers threads linger algorithm  |   static {columns} |  drained {columns}")
    for workers, threads, linger_ms in GRID:
        for algorithm in algorithms:
            concurrency = (workers, threads, linger_ms)
            arms = [measure(arm, algorithm, concurrency, arguments) for arm in ARMS]
            cells = [
                f"{m.mean:13.1f} {m.p50:5.1f} {m.p95:5.1f} {m.p99:5.1f} {m.rate:5.1f}" for m in arms
            ]
            setting = f"{workers:7} {threads:7} {linger_ms:6.1f} {algorithm:10}"
            print(f"{setting} | {' | '.join(cells)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
