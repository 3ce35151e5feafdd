"""The command line of this room.

Exit codes: 0 done (`up`: also after Ctrl-C), 1 it failed on the way, 2 wrong request, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

# The factory and the docker driver are imported where they are needed: they are slow to load.
from testbed import leftovers
from testbed.api import Addresses, FleetSpec, LoadResult, LoadSpec, ServerProfile, TestbedSpec
from testbed.arguments import Parser, seconds
from testbed.errors import Interrupted, ProgramMissing, TestbedError
from testbed.leftovers import TestbedInfo, list_testbeds, sweep_leftovers
from testbed.workdir import WorkDir

PAPER_PROFILES = (
    ServerProfile(base_ms=8, jitter_ms=3, error_rate=0.0),
    ServerProfile(base_ms=7, jitter_ms=2, error_rate=0.0),
    ServerProfile(base_ms=9, jitter_ms=4, error_rate=0.05),
)
"""The fleet of the paper's Table 1, as in conf/fleet/paper.yaml."""

_EPILOG = """\
examples:
  python -m testbed up                         a fleet of three; Ctrl-C tears it down
  python -m testbed up -n 5 --load 60          … and 60 s of load on it, recorded in ./testbed-run
  python -m controller --help                  attach a control loop to the addresses printed
  python -m testbed ps                         every testbed of yours on this machine
  python -m testbed down 3kx0q1zz              end one of them
  python -m testbed gc                         remove what dead owners left
  python -m testbed up --driver docker         the same in containers
  python -m testbed build-image                the image for that, built without a registry
"""


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    top = Parser(
        prog="python -m testbed",
        description="Bring up one fleet behind HAProxy, and see or remove the ones that exist.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    up = commands.add_parser("up", help="start a testbed and hold it until Ctrl-C")
    up.add_argument("--driver", choices=["local", "docker"], default="local")
    up.add_argument("-n", "--backends", type=int, default=3, help="fleet size N (default 3)")
    up.add_argument("--algorithm", choices=["leastconn", "roundrobin"], default="leastconn")
    up.add_argument(
        "--errors", choices=["on", "off"], default="on", help="5%% errors on instances 2, 5, 8, …"
    )
    up.add_argument("--seed", type=int, default=42, help="of draws, slots and arrivals")
    up.add_argument("--workers", type=int, default=1, help="gunicorn workers of a backend")
    up.add_argument("--threads", type=int, default=4, help="threads of a worker")
    up.add_argument(
        "--load", type=seconds, metavar="SECONDS", help="let 10 N virtual users go for so long"
    )
    up.add_argument("--telemetry", choices=["redis", "file"], default="redis")
    up.add_argument(
        "--out", type=Path, default=Path("testbed-run"), help="folder for the load's records"
    )
    up.add_argument("--start-timeout", type=seconds, default=60.0, metavar="SECONDS")
    commands.add_parser("ps", help="list testbeds with owner, age and state")
    down = commands.add_parser("down", help="end one testbed")
    down.add_argument("id", help="as `ps` shows it")
    commands.add_parser("gc", help="remove what dead owners left")
    _add_build_image(commands)
    return top


def _add_build_image(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "build-image", help="build or pull the Docker images, or move them as a file"
    )
    command.add_argument(
        "--set",
        choices=["debian", "official"],
        default="debian",
        help="debian: one image of ours, without a registry (default); official: pinned tags",
    )
    command.add_argument("--rebuild", action="store_true", help="even if it is here already")
    command.add_argument("--save", type=Path, metavar="FILE", help="then write it to a file")
    command.add_argument("--load", type=Path, metavar="FILE", help="read such a file instead")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    arguments = parser().parse_args(argv)
    run = {"up": _up, "ps": _ps, "down": _down, "gc": _gc, "build-image": _build_image}[
        arguments.command
    ]
    try:
        return run(arguments)
    except Interrupted:
        return 0
    except KeyboardInterrupt:
        return 130
    except ProgramMissing as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except TestbedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _spec(arguments: argparse.Namespace) -> TestbedSpec:
    fleet = FleetSpec(
        backends=arguments.backends,
        profiles=PAPER_PROFILES,
        error_mode="error_on" if arguments.errors == "on" else "error_off",
        seed=arguments.seed,
        workers=arguments.workers,
        threads=arguments.threads,
    )
    load = LoadSpec(
        profile="steady",
        vus=10 * arguments.backends,
        duration_s=60.0 if arguments.load is None else arguments.load,
        sleep_min_ms=5.0,
        sleep_max_ms=50.0,
        seed=arguments.seed,
        telemetry=arguments.telemetry,
    )
    return TestbedSpec(
        run_id=f"by-hand-{os.getpid()}",
        algorithm=arguments.algorithm,
        fleet=fleet,
        load=load,
        shuffle_seed=arguments.seed,
        start_timeout_s=arguments.start_timeout,
    )


def _up(arguments: argparse.Namespace) -> int:
    from testbed.factory import check, create

    spec = _spec(arguments)
    problems = check(arguments.driver, spec)
    if arguments.load is not None and (problem := _unwritable(arguments.out)):
        problems.append(problem)
    if problems:
        print(f"error: {'; '.join(problems)}", file=sys.stderr)
        return 2
    testbed = create(arguments.driver, spec, foreground=True)

    def end(number: int, frame: FrameType | None) -> None:
        testbed.interrupt()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    print(f"starting {spec.fleet.backends} backends, HAProxy, Prometheus and Redis …", flush=True)
    try:
        addresses = testbed.start()
        print(describe(addresses), flush=True)
        if arguments.load is not None:
            testbed.start_load(arguments.out)
            print(
                f"load of {spec.load.vus} virtual users for {spec.load.duration_s:g} s", flush=True
            )
            print(summarise(testbed.wait_load(), arguments.out), flush=True)
        print("Ctrl-C tears it down", flush=True)
        testbed.hold()
    except Interrupted:
        print("tearing down", flush=True)
    finally:
        testbed.stop()
    return 0


def _unwritable(folder: Path) -> str | None:
    """Why `folder` can't be made or written, if so; leaves no trace, as the load makes it."""
    try:
        there = folder.absolute()
        while not (there.exists() or there.is_symlink()):
            there = there.parent
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as error:
        return f"{folder} can't be written ({error.strerror}): choose another place with --out"


def describe(addresses: Addresses) -> str:
    """Addresses of a testbed, one a line."""
    lines = [
        f"frontend        {addresses.frontend_url}/work",
        f"prometheus      {addresses.prometheus_url}",
        f"runtime socket  {addresses.runtime_socket}",
        f"redis           {addresses.redis_url}",
    ]
    if plane := addresses.dataplane:
        lines.append(f"data plane api  {plane.url} (user {plane.user}, password {plane.password})")
    lines += [f"backend {i}       {url}" for i, url in enumerate(addresses.backend_urls, start=1)]
    return "\n".join(lines)


def summarise(result: LoadResult, out: Path) -> str:
    """What a load did, in a few lines."""
    duration = result.summary["metrics"]["http_req_duration"]["values"]
    return (
        f"{result.requests} requests, {result.achieved_rate_rps:.0f} per second,"
        f" {result.http_5xx} of them 5xx ({result.http_5xx / result.requests:.2%})\n"
        f"latency: mean {duration['avg']:.1f}, p50 {duration['med']:.1f},"
        f" p95 {duration['p(95)']:.1f}, p99 {duration['p(99)']:.1f} ms\n"
        f"{result.rows} rows in {out / 'requests.parquet'}"
    )


def _ps(arguments: argparse.Namespace) -> int:
    from testbed.docker import commands as docker

    found = _local()
    try:
        found += docker.list_testbeds()
    except TestbedError:
        if found:  # "no testbeds" would be a wrong answer: the engine may hold some
            print(table(found))
        raise
    print(table(found))
    return 0


def _local() -> list[TestbedInfo]:
    """Testbeds that take no Docker Engine to be seen or ended."""
    return [info for info in list_testbeds() if info.kind != "docker"]


def _find(testbed_id: str) -> TestbedInfo | None:
    """A testbed of this host; an engine is asked only for what is not a local one."""
    from testbed.docker import commands as docker

    for listed in (_local, docker.list_testbeds):
        for info in listed():
            if info.id == testbed_id:
                return info
    return None


def table(infos: Sequence[TestbedInfo]) -> str:
    """Testbeds as a table."""
    if not infos:
        return "no testbeds"
    rows = [("ID", "DRIVER", "RUN", "OWNER", "AGE", "RUNNING")]
    for info in infos:
        owner = f"{info.owner.pid}" if info.owner_alive else f"{info.owner.pid} (dead)"
        running = f"{len(info.running)} components" if info.running else "nothing"
        rows.append((info.id, info.kind, info.run_id, owner, _age(info.age_s), running))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _age(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _down(arguments: argparse.Namespace) -> int:
    info = _find(arguments.id)
    if info is None:
        print(f"error: no testbed {arguments.id!r}; `ps` lists them", file=sys.stderr)
        return 2
    if info.kind == "docker":
        from testbed.docker import commands as docker

        print(docker.down(info))
        return 0
    if info.owner_alive and info.foreground:
        with suppress(ProcessLookupError):  # it ended a moment ago
            os.kill(info.owner.pid, signal.SIGTERM)
    elif info.owner_alive:
        # Its owner is a sweep: that sees a component die, and does the rest itself.
        leftovers.kill_children(WorkDir(info.path))
        print(f"ended the processes of {info.id}; process {info.owner.pid} still owns it")
        return 0
    else:
        sweep_leftovers()
    deadline = time.monotonic() + 15
    while info.path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    if info.path.exists():
        print(
            f"error: {info.id} is still there; its owner is process {info.owner.pid}",
            file=sys.stderr,
        )
        return 1
    print(f"removed {info.id}")
    return 0


def _gc(arguments: argparse.Namespace) -> int:
    from testbed.docker import commands as docker

    # Docker's first: its records say which folders belong to containers that are still there.
    # Those can still be removed without their folders, so that an engine's error holds up nothing.
    removed: list[str] = []
    try:
        removed += docker.sweep_leftovers()
    except TestbedError:
        removed += sweep_leftovers()
        if removed:
            print(_removed(removed))
        raise
    removed += sweep_leftovers()
    print(_removed(removed) or "nothing to remove")
    return 0


def _removed(names: Sequence[str]) -> str:
    return "\n".join(f"removed {name}" for name in names)


def _build_image(arguments: argparse.Namespace) -> int:
    from testbed.docker import commands as docker

    return docker.build_image(arguments)
