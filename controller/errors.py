"""Errors of this room.

    ControllerError
    ├── RequestError          what was asked for makes no sense (bad option, unknown backend)
    ├── HAProxyError          HAProxy can't be read or written
    │   ├── HAProxyUnavailable    the runtime socket refuses, closes or does not answer in time
    │   ├── HAProxyAnswer         it answered something that can't be understood
    │   └── UnsafeName            a name that must never get into a socket command
    ├── DataPlaneError        the Data Plane API can't be used; says which versions were tried
    ├── TelemetryError        Prometheus can't be read, or knows nothing of the backend
    └── EndpointUnavailable   the model's endpoint is gone: not the model's doing

All but `RequestError` are infrastructure: whoever runs the loop may try the run again. What a model
can answer is never an error of this tree: it is a `Decision` whose `error` is set.

All of them survive pickling: they are built from their positional arguments alone.
"""


class ControllerError(Exception):
    """Base of every error that this room raises."""


class RequestError(ControllerError):
    """The request itself is wrong; the message is one line and names the way out."""


class HAProxyError(ControllerError):
    """HAProxy can't be read or written."""


class HAProxyUnavailable(HAProxyError):
    """The runtime socket refuses the connection, closes it or does not answer in time."""


class HAProxyAnswer(HAProxyError):
    """HAProxy answered something that can't be understood; the message quotes it."""


class UnsafeName(HAProxyError):
    """A name or command that could be read as more than one socket command."""


class DataPlaneError(ControllerError):
    """The Data Plane API can't be used; the message says what was found."""


class TelemetryError(ControllerError):
    """Prometheus can't be read, or has no samples of the backend."""


class EndpointUnavailable(ControllerError):
    """The model's endpoint refused, reset or failed: the run says nothing about the model."""
