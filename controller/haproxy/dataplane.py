"""Discovery through HAProxy's Data Plane API, where there is one (paper, §4.1 and §4.3).

Only discovery: the API's read-back of admin states has been wrong and its version data may be stale
after a reload (pitfall 6), so states are read from the runtime socket, and writes go there too.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from controller.addresses import is_loopback
from controller.errors import DataPlaneError
from controller.haproxy.fleet import Fleet, safe_name

# Paths of the two major versions. Servers come from the runtime, not from the configuration: only
# there do the slots of a `server-template` have their names.
_SERVERS_PATH = {
    "v3": "/v3/services/haproxy/runtime/backends/{backend}/servers",
    "v2": "/v2/services/haproxy/runtime/servers?backend={backend}",
}
_BACKENDS_PATH = {
    "v3": "/v3/services/haproxy/configuration/backends",
    "v2": "/v2/services/haproxy/configuration/backends",
}


@dataclass(frozen=True)
class DataPlaneVersion:
    """What the probe found: the path's major version and the API's own version string."""

    path: str
    version: str


class DataPlane:
    """Client of one Data Plane API, on one kept connection; `timeout_s` bounds each answer.

    The constructor probes `/v3`, then `/v2`. Raises `DataPlaneError` when neither answers, when the
    credentials are refused, or when a later answer has an unknown shape; the message names the
    version found.
    """

    def __init__(
        self,
        url: str,
        user: str,
        password: str,
        timeout_s: float = 5.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._client = httpx.Client(
            base_url=self._url,
            auth=(user, password),
            timeout=timeout_s,
            transport=transport,
            trust_env=not is_loopback(url),
        )
        try:
            self.version = self._probe()
        except DataPlaneError:
            self.close()
            raise

    def fleet(self) -> Fleet:
        """The backends and servers that exist. Raises `DataPlaneError`, `UnsafeName`.

        HAProxy allows backends called `.` and `..`; v3's paths can't name them: they are left out.
        """
        backends = [safe_name(name) for name in self._names(_BACKENDS_PATH[self.version.path])]
        servers = {}
        for backend in backends:
            if self.version.path == "v3" and backend in (".", ".."):
                continue
            path = _SERVERS_PATH[self.version.path].format(backend=quote(backend, safe=""))
            names = self._names(path)
            if names:
                servers[backend] = tuple(names)
        return Fleet(servers)

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._client.close()

    def _probe(self) -> DataPlaneVersion:
        seen = []
        for path in ("v3", "v2"):
            response = self._get(f"/{path}/info")
            if response.status_code == 200:
                return DataPlaneVersion(path, _api_version(response))
            if response.status_code in (401, 403):
                raise DataPlaneError(f"Data Plane API at {self._url} refuses the credentials")
            seen.append(f"/{path}/info: {response.status_code}")
        raise DataPlaneError(
            f"Data Plane API at {self._url} speaks neither v3 nor v2 ({', '.join(seen)})"
        )

    def _names(self, path: str) -> list[str]:
        response = self._get(path)
        if response.status_code != 200:
            raise self._unexpected(path, f"HTTP {response.status_code}")
        try:
            body = response.json()
            # v2 wraps lists of the configuration in {"_version": …, "data": […]}; v3 does not.
            rows = body["data"] if isinstance(body, dict) else body
            names = [row["name"] for row in rows]
        except (ValueError, TypeError, KeyError):
            raise self._unexpected(path, "an answer of unknown shape") from None
        if not all(isinstance(name, str) for name in names):
            raise self._unexpected(path, "a name that is no text")
        return names

    def _get(self, path: str) -> httpx.Response:
        deadline = time.monotonic() + self._timeout_s
        pieces = []
        try:
            with self._client.stream("GET", path) as response:
                for piece in response.iter_bytes():
                    # httpx' own time-out starts anew with every byte.
                    if time.monotonic() > deadline:
                        raise httpx.ReadTimeout(f"no complete answer in {self._timeout_s:g} s")
                    pieces.append(piece)
        except httpx.HTTPError as error:
            raise DataPlaneError(f"Data Plane API at {self._url}: {error}") from error
        return httpx.Response(response.status_code, content=b"".join(pieces))

    def _unexpected(self, path: str, what: str) -> DataPlaneError:
        found = f"{self.version.path}, version {self.version.version}"
        return DataPlaneError(f"Data Plane API at {self._url} ({found}): {path}: {what}")


def _api_version(response: httpx.Response) -> str:
    """The API's own version, as far as it tells."""
    try:
        body: Any = response.json()
        return str(body["api"]["version"])
    except (ValueError, TypeError, KeyError):
        return "unknown"
