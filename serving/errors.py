"""Errors of this room.

    ServingError
    ├── BadModel             a model's configuration is wrong; names the file and the key
    ├── BadServing           the serving configuration is wrong; names the key
    ├── UnknownModel         no such model in the registry; names the near ones
    ├── WeightsMissing       weights are not on this machine; says how to get them
    ├── WeightsUnavailable   weights can't be fetched (no network, no such file, no room on disk)
    ├── ProgramMissing       llama-server is neither configured nor found; says how to get it
    ├── StartTimeout         the server was not ready in time: what was awaited, last seen, log tail
    ├── ServerDied           the server ended on its own: exit code and log tail
    ├── StopTimeout          a server does not end, even when it is killed
    ├── ServerMismatch       the server does not run as asked (context, slots, layers on the GPU)
    ├── NoRoomOnGpu          too little free GPU memory for the weights
    ├── EndpointUnreachable  an endpoint does not answer, or refuses the key
    ├── ModeHasNoEffect      two modes render the same prompt: the switch does nothing
    └── ModesUnverifiable    the endpoint can't say what prompt a mode renders

All of them survive pickling: they are built from their positional arguments alone.
"""


class ServingError(Exception):
    """Base of every error that this room raises."""


class BadModel(ServingError):
    """A model's configuration is wrong: the file, the key and what is expected there."""


class BadServing(ServingError):
    """The serving configuration is wrong: the key and what is expected there."""


class UnknownModel(ServingError):
    """No model of this name in the registry."""


class WeightsMissing(ServingError):
    """Weights are not on this machine; the message says how to get them."""


class WeightsUnavailable(ServingError):
    """Weights can't be fetched: no network, no such file or revision, no room on the disk."""


class ProgramMissing(ServingError):
    """llama-server is not to be found; the message says how to get it."""


class StartTimeout(ServingError):
    """The server was not ready in time; the message holds the end of its log."""


class ServerDied(ServingError):
    """The server ended on its own; the message holds its exit code and the end of its log."""


class StopTimeout(ServingError):
    """A server does not end, even when it is killed (a driver holds it); names its pid."""


class ServerMismatch(ServingError):
    """The server answers but does not run as it was asked to."""


class NoRoomOnGpu(ServingError):
    """Too little free GPU memory to load the model; some other process may hold it."""


class EndpointUnreachable(ServingError):
    """An endpoint does not answer, answers with an error, or refuses the key."""


class ModeHasNoEffect(ServingError):
    """Two modes of a model render the same prompt: results would not differ by mode."""


class ModesUnverifiable(ServingError):
    """The endpoint has no way to say what prompt a mode renders."""
