"""Programs that some tests need: skip without them, except where they are declared to be there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


def require(name: str, find: Callable[[], object] | None = None) -> None:
    """Skip the test when a program is missing; fail instead when it must not be.

    `find` raises, with a reason, when the program is missing (default: it is looked for in its
    environment variable, on PATH, in the virtual environment and in the cache).
    `DRAINBENCH_REQUIRE` names what must be there, such as `haproxy,k6,llama-server`.
    """
    try:
        if find is not None:
            find()
        elif not _is_somewhere(name):
            raise FileNotFoundError("not found")
    except Exception as error:
        declared = os.environ.get("DRAINBENCH_REQUIRE", "").replace(" ", "").split(",")
        if name in declared:
            pytest.fail(f"{name} is required here: {error}")
        pytest.skip(f"{name}: {error}")


def _is_somewhere(name: str) -> bool:
    program = {"valkey": "valkey-server", "redis": "redis-server"}.get(name, name)
    home_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache = Path(os.environ.get("DRAINBENCH_CACHE") or home_cache / "drainbench")
    places = (
        os.environ.get(f"DRAINBENCH_{name.upper().replace('-', '_')}"),
        program,
        str(Path(sys.executable).parent / program),
        str(cache / name / program),
        str(cache / name / "usr" / "bin" / program),
    )
    return any(place and shutil.which(place) for place in places)
