"""Servers made of the published description, one for each major version."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.dataplane.server import ContractServer

# A loaded machine is no failure, and an answer has many fields.
settings.register_profile(
    "dataplane",
    deadline=None,
    max_examples=25,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)


@pytest.fixture
def server_of(request: pytest.FixtureRequest) -> Iterator[ContractServer]:
    """A server that speaks the major version given by the parameter; no violation may remain."""
    server = ContractServer(request.param)
    try:
        yield server
    finally:
        server.stop()
    assert not server.violations, "\n".join(server.violations)
