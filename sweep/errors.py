"""Errors of this room.

    SweepError
    ├── RequestError         the request itself is wrong: exit code 2, one line with the way out
    │   ├── Mismatch         complete runs with another fingerprint are in the way
    │   ├── StoreBusy        another sweep owns this run store
    │   └── StorageError     the run store can't be written or its disk is full
    └── RunError             one attempt at one run failed
        ├── InfrastructureError   not the policy's doing: the run is tried again
        │   └── ModelServerLost   … and its model server has to be replaced first
        └── RunInterrupted        the sweep was asked to stop

All of them survive pickling: they are built from their positional arguments alone.
"""


class SweepError(Exception):
    """Base of every error that this room raises."""


class RequestError(SweepError):
    """The request is wrong; the message is one line with the way out. Exit code 2."""


class Mismatch(RequestError):
    """Runs of the same id but another fingerprint exist; the message names the differing keys."""


class StoreBusy(RequestError):
    """Another live sweep owns the run store."""


class StorageError(RequestError):
    """The run store can't be written, or its disk is full."""


class RunError(SweepError):
    """One attempt at one run failed."""


class InfrastructureError(RunError):
    """The attempt failed for a reason that is not the policy's doing; it may be tried again."""


class ModelServerLost(InfrastructureError):
    """The model server is gone or wedged; it has to be replaced before the next attempt."""


class RunInterrupted(RunError):
    """The attempt was stopped on request."""
