"""Removes what dead sweeps left on this machine, and never what a live one owns."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

import serving.leftovers
import testbed.leftovers
from testbed.errors import TestbedUnavailable


def clear_leftovers(kinds: Iterable[str]) -> list[str]:
    """Names of the testbeds and model servers that were ended and removed.

    `kinds`: drivers of the testbeds that are about to be used; only for those is an engine asked.
    """
    removed = [*testbed.leftovers.sweep_leftovers(), *serving.leftovers.sweep_leftovers()]
    if "docker" in kinds:
        from testbed.docker.engine import connect
        from testbed.docker.leftovers import sweep_leftovers

        try:
            with closing(connect()) as engine:
                removed += sweep_leftovers(engine)
        except TestbedUnavailable:
            return removed  # the pre-flight says so, with the way out
    return removed
