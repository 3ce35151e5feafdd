"""Whether the two drivers measure the same thing: one run on each, one after the other.

    python bench/docker_vs_local.py                  N=3, error-on, 60 s on each
    python bench/docker_vs_local.py --rounds 2       twice each, alternating; means of the rounds

Exit code 1 where mean, p50, p95 or the rate differ by more than 10%. Run it on an otherwise idle
machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import polars as pl

from testbed.api import FleetSpec, LoadSpec, TestbedSpec
from testbed.cli import PAPER_PROFILES
from testbed.factory import check, create

DRIVERS = ("local", "docker")
COMPARED = ("mean_ms", "p50_ms", "p95_ms", "rate_rps")
TOLERANCE = 0.10


@dataclass(frozen=True)
class Measured:
    """One run: latencies, rate, 5xx in %, and the time that was not load."""

    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    rate_rps: float
    errors_percent: float
    start_s: float
    stop_s: float
    cpu_s: dict[str, float]


def spec_of(arguments: argparse.Namespace, driver: str) -> TestbedSpec:
    """The same spec for both drivers, but for its name."""
    return TestbedSpec(
        run_id=f"compare-{driver}",
        algorithm=arguments.algorithm,
        fleet=FleetSpec(
            backends=arguments.backends,
            profiles=PAPER_PROFILES,
            error_mode="error_on",
            seed=42,
            workers=1,
            threads=4,
        ),
        load=LoadSpec(
            profile="steady",
            vus=10 * arguments.backends,
            duration_s=arguments.duration,
            sleep_min_ms=5.0,
            sleep_max_ms=50.0,
            seed=42,
        ),
        shuffle_seed=42,
    )


def measure(driver: str, spec: TestbedSpec) -> Measured:
    """One whole run."""
    testbed = create(driver, spec)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        try:
            testbed.start()
            start_s = time.monotonic() - began
            testbed.start_load(Path(folder))
            result = testbed.wait_load()
            usage = testbed.usage()
        finally:
            began = time.monotonic()
            testbed.stop()
            stop_s = time.monotonic() - began
        duration = pl.read_parquet(Path(folder) / "requests.parquet")["duration_us"] / 1000
    p50, p95, p99 = (duration.quantile(q, "linear") or 0.0 for q in (0.5, 0.95, 0.99))
    return Measured(
        mean_ms=float(duration.mean() or 0.0),  # type: ignore[arg-type]
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        rate_rps=result.achieved_rate_rps,
        errors_percent=100 * result.http_5xx / result.requests,
        start_s=start_s,
        stop_s=stop_s,
        cpu_s={name: round(used.cpu_s, 1) for name, used in usage.items()},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--duration", type=float, default=60.0, help="s of load per run")
    parser.add_argument("--backends", type=int, default=3)
    parser.add_argument("--algorithm", choices=["leastconn", "roundrobin"], default="leastconn")
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args(argv)
    specs = {driver: spec_of(arguments, driver) for driver in DRIVERS}
    if problems := [line for driver in DRIVERS for line in check(driver, specs[driver])]:
        print("\n".join(f"error: {line}" for line in problems), file=sys.stderr)
        return 2
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs", flush=True)
    runs: dict[str, list[Measured]] = {driver: [] for driver in DRIVERS}
    for _ in range(arguments.rounds):
        for driver in DRIVERS:
            measured = measure(driver, specs[driver])
            runs[driver].append(measured)
            print(f"{driver}: {measured}", flush=True)
    return report(runs)


def report(runs: dict[str, list[Measured]]) -> int:
    """Print the comparison; 1 where the drivers disagree."""
    apart = []
    print(f"\n{'':16}{'local':>10}{'docker':>10}{'docker is':>12}")
    for name in (*COMPARED, "p99_ms", "errors_percent", "start_s", "stop_s"):
        local, docker = (
            statistics.fmean(getattr(one, name) for one in runs[driver]) for driver in DRIVERS
        )
        difference = docker / local - 1 if local else 0.0
        print(f"{name:16}{local:10.2f}{docker:10.2f}{difference:+11.1%}")
        if name in COMPARED and abs(difference) > TOLERANCE:
            apart.append(name)
    words = f"apart by more than {TOLERANCE:.0%}: {', '.join(apart)}"
    print(words if apart else f"they agree within {TOLERANCE:.0%} on {', '.join(COMPARED)}")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
