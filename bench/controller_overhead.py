"""What the controller itself costs per step, on a real HAProxy and Prometheus under k6's load.

Overhead is observe + guard + act + post: a step without the policy's own time and without the
settle delay. Every step acts (weights go up and down by one), so that writing is part of it.

    python -m bench.controller_overhead --backends 3 --steps 60

Prints p50 and p99 per phase and, with `--check`, exits 1 when a target is missed (p50 50 ms, p99
150 ms at three backends). Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from controller.api import Action, Decision, ExecutedAction, Snapshot
from controller.attach import Target, attach
from controller.config import ControllerConfig
from controller.records import JsonlRecorder
from testbed import factory
from testbed.api import Addresses, FleetSpec, LoadSpec, ServerProfile, TestbedSpec

PHASES = ("observe", "guard", "act", "post")
TARGET_P50_MS = 50.0
TARGET_P99_MS = 150.0

# Table 1 of the paper; instance i takes the profile i mod 3.
PROFILES = (
    ServerProfile(base_ms=8, jitter_ms=3, error_rate=0.0),
    ServerProfile(base_ms=7, jitter_ms=2, error_rate=0.0),
    ServerProfile(base_ms=9, jitter_ms=4, error_rate=0.05),
)


class Nudge:
    """Moves every weight by one, up and down in turn, as many as a step may hold."""

    def decide(self, snapshot: Snapshot, history: Sequence[ExecutedAction]) -> Decision:
        """Three actions on the first three servers."""
        step = len(history) // 3
        weight = 100 - step % 2
        return Decision(
            tuple(Action("set_weight", s.backend, s.server, weight) for s in snapshot.servers[:3])
        )

    def close(self) -> None:
        """Nothing to free."""


def main() -> int:
    """Measure and print; the exit code says whether `--check` held."""
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    cli.add_argument("--backends", type=int, default=3)
    cli.add_argument("--steps", type=int, default=60)
    cli.add_argument("--interval-s", type=float, default=1.0)
    cli.add_argument("--check", action="store_true")
    options = cli.parse_args()
    duration_s = options.steps * options.interval_s
    testbed = factory.create("local", _spec(options.backends, duration_s))
    with tempfile.TemporaryDirectory(prefix="drainbench-bench-") as folder:
        out = Path(folder)
        try:
            addresses = testbed.start()
            t0_us = testbed.start_load(out)
            records = _measure(addresses, duration_s, options.interval_s, out, t0_us)
            testbed.wait_load()
        finally:
            testbed.stop()
    p50, p99 = _print(records, options.backends)
    missed = options.check and (p50 > TARGET_P50_MS or p99 > TARGET_P99_MS)
    return 1 if missed else 0


def _spec(backends: int, duration_s: float) -> TestbedSpec:
    fleet = FleetSpec(backends, PROFILES, "error_on", seed=42, workers=1, threads=4)
    load = LoadSpec(
        "steady",
        vus=10 * backends,
        duration_s=duration_s + 5,
        sleep_min_ms=5,
        sleep_max_ms=50,
        seed=42,
        telemetry="file",
    )
    return TestbedSpec("bench-controller", "leastconn", fleet, load, shuffle_seed=42)


def _measure(
    addresses: Addresses, duration_s: float, interval_s: float, out: Path, t0_us: int
) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    recorder = JsonlRecorder(out / "controller")
    attached = attach(
        Target(addresses.prometheus_url, addresses.runtime_socket),
        Nudge(),
        duration_s,
        ControllerConfig(interval_s=interval_s, settle_s=0.0),
        recorder=recorder,
        on_step=records.append,
    )
    try:
        attached.loop.run(t0_us)
    finally:
        attached.close()
        recorder.close()
    return records


def _print(records: Sequence[dict[str, Any]], backends: int) -> tuple[float, float]:
    steps = [record["timings_s"] for record in records]
    rows = {phase: [1000 * step[phase] for step in steps] for phase in PHASES}
    rows["overhead"] = [sum(values) for values in zip(*rows.values(), strict=True)]
    print(f"{len(steps)} steps, N={backends}, 3 actions a step; ms")
    for name, values in rows.items():
        p50, p99 = _quantile(values, 50), _quantile(values, 99)
        print(f"{name:>9}  p50 {p50:7.1f}  p99 {p99:7.1f}  max {max(values):7.1f}")
    return _quantile(rows["overhead"], 50), _quantile(rows["overhead"], 99)


def _quantile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    sys.exit(main())
