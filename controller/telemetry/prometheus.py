"""Range queries over HAProxy's exporter metrics (paper, §4.3).

Four queries a step, side by side on kept connections that live as long as the loop: a new one for
each query costs twelve times as much.
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import requests
from prometheus_api_client import PrometheusApiClientException, PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError, ReadTimeoutError
from urllib3.util import Retry

from controller.addresses import is_loopback
from controller.errors import TelemetryError

_PIECE_BYTES = 1 << 16

Points = tuple[tuple[float, float | None], ...]
"""(unix time in s, value), oldest first; what is not finite (0/0 on an idle server) is None."""


@dataclass(frozen=True)
class TelemetryConfig:
    """What a snapshot looks back on (paper, §4.3)."""

    lookback_s: float = 180.0
    resolution_s: float = 15.0
    rate_window_s: float = 120.0
    timeout_s: float = 5.0
    """Of one query, its whole answer included."""


@dataclass(frozen=True)
class RangeResults:
    """Samples by server, for each of the four metrics; `end_s` is the newest grid place."""

    end_s: float
    status: Mapping[str, Points]
    sessions: Mapping[str, Points]
    weight: Mapping[str, Points]
    errors_per_s: Mapping[str, Points]
    oldest_s: float | None
    """Unix time of the oldest sample inside the rate window; None when there is none."""


def queries(backend: str, rate_window_s: float) -> dict[str, str]:
    """The four PromQL expressions, by field of `RangeResults`.

    `backend` is a discovered name, so it holds nothing that needs quoting in PromQL. A code that
    HAProxy never answered exists as a counter at 0, so an error rate of 0 is a measured one.
    """
    labels = f'proxy="{backend}"'
    window = _duration(rate_window_s)
    return {
        "status": f'sum by (server) (haproxy_server_status{{{labels},state="UP"}})',
        "sessions": f"sum by (server) (haproxy_server_current_sessions{{{labels}}})",
        "weight": f"sum by (server) (haproxy_server_weight{{{labels}}})",
        "errors_per_s": "sum by (server) "
        f'(rate(haproxy_server_http_responses_total{{{labels},code="5xx"}}[{window}]))',
    }


def _age_query(backend: str, rate_window_s: float) -> str:
    """Time of the oldest sample in the rate window, exact to a second (pitfall 7)."""
    window = _duration(rate_window_s)
    metric = f'haproxy_server_http_responses_total{{proxy="{backend}",code="5xx"}}'
    return f"min(min_over_time(timestamp({metric})[{window}:1s]))"


def _duration(seconds: float) -> str:
    """A PromQL duration; milliseconds, so that any configured window is exact."""
    return f"{round(seconds * 1000)}ms"


def parse_matrix(result: Any, label: str = "server") -> dict[str, Points]:
    """A range query's `result` as points by server. Raises `TelemetryError` on another shape."""
    try:
        return {
            series["metric"][label]: tuple(
                (float(time_s), _finite(value)) for time_s, value in series["values"]
            )
            for series in result
        }
    except (KeyError, TypeError, ValueError) as error:
        raise TelemetryError(f"Prometheus answered an unknown shape: {error!r}") from None


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


class _OnceMore(Retry):
    """One immediate second try: a kept connection may have been closed since the last step.

    Not after a time-out: who did not answer in time is not given as much again.
    """

    def increment(
        self, method: str | None = None, url: str | None = None, **outcome: Any
    ) -> _OnceMore:
        """What is left of the tries. Raises what went wrong when nothing is."""
        if isinstance(error := outcome.get("error"), ReadTimeoutError):
            raise error
        return super().increment(method, url, **outcome)


class _WholeInTime(HTTPAdapter):
    """Reads all of an answer within its time-out: requests' own starts anew with every byte."""

    def send(self, request: Any, *args: Any, timeout: Any = None, **kwargs: Any) -> Any:
        """The answer, its body read. Raises `requests.RequestException`."""
        deadline = time.monotonic() + timeout
        response = super().send(request, *args, timeout=timeout, **kwargs)
        try:
            body = _read_until(deadline, response.raw)
        except (ReadTimeoutError, TimeoutError) as error:
            response.raw.close()
            raise requests.ReadTimeout(request=request) from error
        except HTTPError as error:
            response.raw.close()
            raise requests.ConnectionError(error, request=request) from error
        response.raw = io.BytesIO(body)
        return response


def _read_until(deadline: float, raw: Any) -> bytes:
    pieces = []
    while piece := raw.read1(_PIECE_BYTES, decode_content=True):
        if time.monotonic() > deadline:
            raise TimeoutError
        pieces.append(piece)
    return b"".join(pieces)


class Prometheus:
    """Reads one Prometheus over kept connections; every failure is a `TelemetryError`."""

    def __init__(self, url: str, config: TelemetryConfig) -> None:
        self.url = url.rstrip("/")
        self._config = config
        retry = _OnceMore(total=1, backoff_factor=0, status_forcelist=())
        session = requests.Session()
        # A proxy of the environment must not come between us and a server on this machine.
        session.trust_env = not is_loopback(self.url)
        self._client = PrometheusConnect(url=self.url, timeout=config.timeout_s, session=session)
        session.mount(self.url, _WholeInTime(max_retries=retry))
        self._pool = ThreadPoolExecutor(5, thread_name_prefix="prometheus")
        self._full = False

    def read(self, backend: str, now_s: float) -> RangeResults:
        """Query status, sessions, weight and 5xx rate of every server of `backend`."""
        # To the millisecond, as Prometheus counts: the newest place of the grid is now, not up to
        # half a second ago, when the first scrape of a young fleet may not have been.
        end_s = round(now_s, 3)
        config = self._config
        # Side by side: a busy machine makes each of them wait its turn.
        oldest = self._pool.submit(self._oldest, backend, now_s)
        answers = {
            field: self._pool.submit(self._range, query, end_s - config.lookback_s, end_s)
            for field, query in queries(backend, config.rate_window_s).items()
        }
        matrices = {field: parse_matrix(answer.result()) for field, answer in answers.items()}
        return RangeResults(end_s=end_s, oldest_s=oldest.result(), **matrices)

    def close(self) -> None:
        """Close the session; idempotent."""
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def _oldest(self, backend: str, now_s: float) -> float | None:
        window_s = self._config.rate_window_s
        if self._full:
            return now_s - window_s
        result = self._call(
            self._client.custom_query,
            _age_query(backend, window_s),
            params={"time": f"{now_s:.3f}"},
        )
        if not result:
            return None
        oldest_s = float(result[0]["value"][1])
        # Once a window is full it stays full; two seconds cover the scrape interval.
        self._full = now_s - oldest_s >= window_s - 2
        return now_s - window_s if self._full else oldest_s

    def _range(self, query: str, start_s: float, end_s: float) -> Any:
        return self._call(
            self._client.custom_query_range,
            query,
            start_time=datetime.fromtimestamp(start_s, UTC),
            end_time=datetime.fromtimestamp(end_s, UTC),
            step=f"{self._config.resolution_s:g}",
            # The client rounds both times to whole seconds; these are the ones that count.
            params={"start": f"{start_s:.3f}", "end": f"{end_s:.3f}"},
        )

    def _call(self, function: Any, query: str, **kwargs: Any) -> Any:
        try:
            return function(query, **kwargs)
        except requests.Timeout:
            limit = self._config.timeout_s
            raise TelemetryError(f"Prometheus at {self.url}: no answer in {limit:g} s") from None
        except (requests.RequestException, PrometheusApiClientException) as error:
            raise TelemetryError(f"Prometheus at {self.url}: {_short(error)}") from error
        except (KeyError, ValueError) as error:
            raise TelemetryError(f"Prometheus at {self.url}: bad answer: {error!r}") from error


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    if "refused" in text:
        return "connection refused"
    return text[:200]
