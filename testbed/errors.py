"""Errors of this room.

    TestbedError
    ├── ProgramMissing      a program is neither configured nor found; says how to get it
    ├── StartTimeout        a readiness condition did not hold in time
    ├── ComponentDied       a component ended although nobody asked it to
    ├── LoadFailed          the load generator ran but its result can't be used
    ├── OutputFailed        the folder for results can't be written, or is full
    ├── Interrupted         `interrupt()` was called
    └── TestbedUnavailable  the driver itself can't be used here (no Docker, no image)

All of them survive pickling: they are built from their positional arguments alone.
"""


class TestbedError(Exception):
    """Base of every error that this room raises."""

    __test__ = False


class ProgramMissing(TestbedError):
    """A program that a testbed needs is not to be found; the message says how to get it."""


class StartTimeout(TestbedError):
    """A readiness condition did not hold in time: what was awaited, last seen, what to try."""


class ComponentDied(TestbedError):
    """A component ended on its own: its name, exit code and last log lines."""


class LoadFailed(TestbedError):
    """The load generator's result can't be used; the message says why."""


class OutputFailed(TestbedError):
    """The folder for results can't be written or is full: its path and the system's words."""


class Interrupted(TestbedError):
    """The testbed was interrupted on request."""


class TestbedUnavailable(TestbedError):
    """The driver can't be used on this machine; the message names the way out."""

    __test__ = False
