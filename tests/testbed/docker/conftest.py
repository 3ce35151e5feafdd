"""Fixtures of the docker driver's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testbed.docker.engine import Engine
from tests.testbed.docker.rig import DockerRig, engine_with_images


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine of this host."""
    engine = engine_with_images()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def rig(engine: Engine) -> DockerRig:
    """The docker driver, for the conformance suite."""
    return DockerRig(engine)
