"""Docker testbeds up and down, several at a time: nothing may fail, nothing may stay.

    python bench/docker_churn.py                      40 testbeds, 4 side by side
    python bench/docker_churn.py --backends 9 -n 5 --side-by-side 1     the time of one start

Prints how long each phase took. Exit code 1 where a start failed or an object was left.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import httpx

from testbed.api import FleetSpec, LoadSpec, TestbedSpec
from testbed.cli import PAPER_PROFILES
from testbed.docker import labels
from testbed.docker.driver import DockerTestbed
from testbed.docker.engine import Engine, connect
from testbed.errors import TestbedError
from testbed.factory import check

RUN = "churn"


def spec_of(arguments: argparse.Namespace, index: int) -> TestbedSpec:
    """A testbed that will get no load."""
    return TestbedSpec(
        run_id=f"{RUN}-{index}",
        algorithm="leastconn",
        fleet=FleetSpec(arguments.backends, PAPER_PROFILES, "error_on", 42, 1, 4),
        load=LoadSpec("steady", 10 * arguments.backends, 60.0, 5.0, 50.0, 42),
        shuffle_seed=42,
        start_timeout_s=180.0,
    )


def up_and_down(spec: TestbedSpec) -> dict[str, float]:
    """One testbed, with one request through it; time of each phase in s."""
    testbed = DockerTestbed(spec)
    began = time.monotonic()
    try:
        addresses = testbed.start()
        start_s = time.monotonic() - began
        httpx.get(f"{addresses.frontend_url}/work", timeout=10.0)
    finally:
        testbed.stop()
    return {**testbed.phases_s, "start": start_s}


def left(engine: Engine) -> list[str]:
    """Names of this bench's objects that still exist."""
    ours = {"label": labels.TESTBED}
    found = engine.api.containers(all=True, filters=ours) + engine.api.networks(filters=ours)
    return [
        str(item.get("Name") or item["Names"])
        for item in found
        if item["Labels"].get(labels.RUN, "").startswith(RUN)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("-n", "--testbeds", type=int, default=40)
    parser.add_argument("--side-by-side", type=int, default=4)
    parser.add_argument("--backends", type=int, default=3)
    arguments = parser.parse_args(argv)
    specs = [spec_of(arguments, index) for index in range(arguments.testbeds)]
    if problems := check("docker", specs[0]):
        print("\n".join(f"error: {line}" for line in problems), file=sys.stderr)
        return 2
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs", flush=True)
    phases: list[dict[str, float]] = []
    failures: list[str] = []

    def one(spec: TestbedSpec) -> None:
        try:
            phases.append(up_and_down(spec))
        except TestbedError as error:
            failures.append(f"{spec.run_id}: {error}")

    began = time.monotonic()
    with ThreadPoolExecutor(arguments.side_by_side) as pool:
        list(pool.map(one, specs))
    took_s = time.monotonic() - began
    remaining = left(connect())
    print(
        f"{len(phases)} of {len(specs)} testbeds of {arguments.backends} backends,"
        f" {arguments.side_by_side} side by side, in {took_s:.0f} s"
    )
    for name in phases[0] if phases else ():
        values = [seen[name] for seen in phases if name in seen]
        print(f"  {name:12} median {statistics.median(values):6.2f} s, most {max(values):6.2f} s")
    for line in (*failures, *(f"left: {name}" for name in remaining)):
        print(line)
    return 1 if failures or remaining else 0


if __name__ == "__main__":
    sys.exit(main())
