"""The parts of `python -m testbed` that are only about Docker."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress

from testbed.docker import build, leftovers
from testbed.docker.engine import NOT_RUNNING, Engine, connect, infrastructure
from testbed.errors import TestbedUnavailable
from testbed.leftovers import TestbedInfo


def build_image(arguments: argparse.Namespace) -> int:
    """Build, pull, save or load; the exit code. Raises `TestbedError`."""
    if problem := _wrong(arguments):
        return _refuse(problem)
    try:
        engine = connect(timeout_s=600.0)
    except TestbedUnavailable as error:
        return _refuse(str(error))
    report = progress()
    with infrastructure("making images"):
        if arguments.load:
            build.load(engine, arguments.load, report)
            return 0
        references = build.build(engine, arguments.set, report, arguments.rebuild)
        report("\n".join(f"ready: {name}" for name in references))
        if arguments.save:
            build.save(engine, references, arguments.save, report)
    return 0


def _wrong(arguments: argparse.Namespace) -> str | None:
    """What can't be meant, or can't work, found out before minutes of building."""
    save, load = arguments.save, arguments.load
    if load and (save or arguments.rebuild):
        return "--load reads images instead of building them: leave out --save and --rebuild"
    if load and not load.is_file():
        return f"there is no file {load} to load"
    if save and (save.is_dir() or not os.access(save.absolute().parent, os.W_OK | os.X_OK)):
        return f"{save} can't be written: --save wants a file in a folder that exists"
    return None


def _refuse(problem: str) -> int:
    print(f"error: {problem}", file=sys.stderr)
    return 2


def progress() -> Callable[[str], None]:
    """Prints lines; on a terminal each replaces the one before unless it says that work is done."""
    if not sys.stdout.isatty():
        return lambda text: print(text, flush=True)

    def report(text: str) -> None:
        lasting = text.startswith(("ready", "saved", "loaded", "warning"))
        width = os.get_terminal_size().columns - 1
        shown = text if lasting else text.splitlines()[-1][:width] if text else ""
        print(f"\r\033[K{shown}", end="\n" if lasting else "", flush=True)

    return report


def list_testbeds() -> list[TestbedInfo]:
    """Testbeds on this host's engine; none where there is no engine. Raises `ComponentDied`."""
    engine = _engine_if_any(timeout_s=10.0)
    with infrastructure("listing testbeds"):
        return [] if engine is None else leftovers.list_testbeds(engine)


def sweep_leftovers() -> list[str]:
    """Remove what dead owners left on this host's engine, if any. Raises `ComponentDied`."""
    engine = _engine_if_any(timeout_s=30.0)
    with infrastructure("removing leftovers"):
        return [] if engine is None else leftovers.sweep_leftovers(engine)


def _engine_if_any(timeout_s: float) -> Engine | None:
    """The engine; one that is there and can't be used is named, for it may hold testbeds."""
    try:
        return connect(timeout_s)
    except TestbedUnavailable as error:
        if not str(error).startswith(NOT_RUNNING):
            print(f"note: testbeds in Docker are left out: {error}", file=sys.stderr)
        return None


def down(info: TestbedInfo) -> str:
    """End the testbed of `info`; what was done, in words. Raises `TestbedError`."""
    engine = connect(timeout_s=30.0)
    with infrastructure(f"removing {info.id}"):
        if info.owner_alive and info.foreground:
            with suppress(ProcessLookupError):
                os.kill(info.owner.pid, signal.SIGTERM)
            if _gone(engine, info.id):
                return f"removed {info.id}"
            raise TestbedUnavailable(
                f"{info.id} is still there; its owner is process {info.owner.pid}"
            )
        if not leftovers.remove_testbed(engine, info.id):
            raise TestbedUnavailable(f"the engine did not remove all of {info.id}; try again")
    if info.owner_alive:
        # Its owner is a sweep: that sees a component die, and does the rest itself.
        return f"removed the containers of {info.id}; process {info.owner.pid} still owns it"
    leftovers.remove_folder(info.path)
    return f"removed {info.id}"


def _gone(engine: Engine, testbed_id: str, timeout_s: float = 30.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while any(info.id == testbed_id for info in leftovers.list_testbeds(engine)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
