"""Where lines of telemetry come from, and how the virtual users are let go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

TELEMETRY_KEY = "load:telemetry"
WAITING_KEY = "load:waiting"
GO_KEY = "load:go"
STARTED_KEY = "load:started"
RUN_ID_KEY = "run:id"


def redis_client(port: int, password: str) -> redis.Redis:
    """A client of a testbed's Redis on loopback.

    It repeats nothing: a GETDEL that is sent again because its answer was lost would lose rows.
    """
    return redis.Redis(port=port, password=password, socket_timeout=10, retry=Retry(NoBackoff(), 0))


class TelemetrySource(Protocol):
    """One side of the script's telemetry, `redis.js` or `file.js`."""

    def release(self) -> None:
        """Let the virtual users go."""

    def started(self) -> Mapping[str, Any] | None:
        """What setup() returned (`run_id`, `started_at_ms`), None as long as it has not."""

    def drain(self) -> bytes:
        """Lines that came since the last call, each ended by a newline; empty when none did."""


class RedisSource:
    """Lines appended to a string in Redis: taken and removed by one atomic command."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def waiting(self) -> bool:
        """Whether the script is in setup() and waits for the word to go."""
        return bool(self._client.exists(WAITING_KEY))

    def release(self) -> None:
        """See `TelemetrySource`."""
        self._client.rpush(GO_KEY, "1")

    def started(self) -> Mapping[str, Any] | None:
        """See `TelemetrySource`."""
        text = self._client.lindex(STARTED_KEY, 0)
        return json.loads(text) if text else None

    def drain(self) -> bytes:
        """See `TelemetrySource`."""
        return self._client.getdel(TELEMETRY_KEY) or b""


class FileSource:
    """Lines appended to a file, after a first line `#{...}` that setup() writes."""

    def __init__(self, path: Path, client: redis.Redis, piece_bytes: int = 4 << 20) -> None:
        self._path = path
        self._client = client
        self._piece_bytes = piece_bytes
        self._offset = 0

    def release(self) -> None:
        """Nothing to do: this script does not wait."""

    def started(self) -> Mapping[str, Any] | None:
        """See `TelemetrySource`; shares the run id through Redis in the script's stead."""
        try:
            with self._path.open("rb") as stream:
                first = stream.readline()
        except FileNotFoundError:
            return None
        if not first.endswith(b"\n"):
            return None
        data = json.loads(first[1:])
        self._client.set(RUN_ID_KEY, data["run_id"])
        self._offset = max(self._offset, len(first))
        return data

    def drain(self) -> bytes:
        """See `TelemetrySource`; at most `piece_bytes` at a time. Call `started` before."""
        with self._path.open("rb") as stream:
            stream.seek(self._offset)
            piece = stream.read(self._piece_bytes)
        piece = piece[: piece.rfind(b"\n") + 1]
        self._offset += len(piece)
        return piece
