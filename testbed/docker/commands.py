"""The parts of `python -m testbed` that are only about Docker."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable

from testbed.docker import build, leftovers
from testbed.docker.engine import connect
from testbed.errors import TestbedUnavailable
from testbed.leftovers import TestbedInfo


def build_image(arguments: argparse.Namespace) -> int:
    """Build, pull, save or load. Raises `TestbedError`."""
    engine = connect(timeout_s=600.0)
    report = progress()
    if arguments.load:
        build.load(engine, arguments.load, report)
        return 0
    references = build.build(engine, arguments.set, report, arguments.rebuild)
    report("\n".join(f"ready: {name}" for name in references))
    if arguments.save:
        build.save(engine, references, arguments.save, report)
    return 0


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
    """Testbeds on this host's engine; none where there is no engine."""
    try:
        return leftovers.list_testbeds(connect(timeout_s=10.0))
    except TestbedUnavailable:
        return []


def sweep_leftovers() -> list[str]:
    """Remove what dead owners left on this host's engine, if there is one."""
    try:
        return leftovers.sweep_leftovers(connect(timeout_s=30.0))
    except TestbedUnavailable:
        return []


def down(info: TestbedInfo) -> str:
    """End the testbed of `info`; what was done, in words."""
    if info.owner_alive and info.foreground:
        os.kill(info.owner.pid, signal.SIGTERM)
        return f"asked process {info.owner.pid} to remove {info.id}"
    if not leftovers.remove_testbed(connect(timeout_s=30.0), info.id):
        raise TestbedUnavailable(f"the engine did not remove all of {info.id}; try again")
    if info.owner_alive:
        # Its owner is a sweep: that sees a component die, and does the rest itself.
        return f"removed the containers of {info.id}; process {info.owner.pid} still owns it"
    leftovers.remove_folder(info.path)
    return f"removed {info.id}"
