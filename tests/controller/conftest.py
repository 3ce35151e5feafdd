"""Fixtures: a real HAProxy per module, its state reset for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from controller.haproxy import RuntimeSocket
from testbed import programs
from tests.controller.rig import Rig, wait_until
from tests.requirements import require

# A loaded machine is no failure.
settings.register_profile("controller", deadline=None)
settings.load_profile("controller")


@pytest.fixture(scope="module")
def running_rig() -> Iterator[Rig]:
    require("haproxy", lambda: programs.find("haproxy"))
    rig = Rig()
    try:
        rig.start_haproxy()
        yield rig
    finally:
        rig.stop()


@pytest.fixture
def rig(running_rig: Rig) -> Rig:
    """Every server ready at weight 100, every backend answering 200."""
    client = RuntimeSocket(running_rig.socket)
    for backend in running_rig.backends:
        backend.status = 200
    for number in (1, 2, 3):
        assert client.ready("be_api", f"api-{number}") == ""
        assert client.set_weight("be_api", f"api-{number}", 100) == ""
    wait_until(lambda: all(s.up for s in client.server_stats("be_api")), "all servers UP")
    return running_rig


@pytest.fixture(scope="module")
def prometheus_rig(running_rig: Rig) -> Rig:
    require("prometheus", lambda: programs.find("prometheus"))
    running_rig.start_prometheus()
    return running_rig
