"""The docker driver passes the suite of all drivers."""

from __future__ import annotations

from tests.testbed.conformance import TestbedConformance


class TestDocker(TestbedConformance):
    """The suite."""

    __test__ = True
