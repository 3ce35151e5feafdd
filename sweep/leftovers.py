"""Removes what dead sweeps left on this machine, and never what a live one owns."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing, suppress

import serving.leftovers
import testbed.leftovers
from testbed.errors import TestbedUnavailable


def clear_leftovers(kinds: Iterable[str]) -> list[str]:
    """Names of the testbeds and model servers that were ended and removed.

    `kinds`: drivers of the testbeds that are about to be used; only for those is an engine asked.
    """
    removed: list[str] = []
    if "docker" in kinds:
        # First: its records say which folders belong to containers that are still there.
        from testbed.docker.engine import connect
        from testbed.docker.leftovers import sweep_leftovers

        # An engine that does not answer is told by the pre-flight, with the way out.
        with suppress(TestbedUnavailable), closing(connect()) as engine:
            removed += sweep_leftovers(engine)
    removed += testbed.leftovers.sweep_leftovers()
    removed += serving.leftovers.sweep_leftovers()
    return removed
