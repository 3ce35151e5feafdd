"""The snapshot of one step, from what was read (pure; paper, §4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.api import Series, ServerView, Snapshot, Window
from controller.haproxy.parse import ServerStat
from controller.telemetry.prometheus import Points, RangeResults, TelemetryConfig

STALE_S = 1.0
"""A current value must come from the newest place of the grid; this allows for its rounding."""


def build_snapshot(
    time_us: int,
    algorithm: str,
    stats: Sequence[ServerStat],
    results: RangeResults,
    config: TelemetryConfig,
) -> Snapshot:
    """Unite HAProxy's own state and Prometheus' samples.

    Status, weight and admin state are what HAProxy says now, so that an observation reflects every
    earlier action even when Prometheus has not scraped since; sessions, error rates and all series
    are Prometheus'. What has no sample is None.
    """
    servers = tuple(_view(stat, results) for stat in stats)
    return Snapshot(
        time_us=time_us,
        algorithm=algorithm,
        sessions_total=_total([server.sessions for server in servers]),
        errors_per_s_total=_total([server.errors_per_s for server in servers]),
        servers_up=sum(server.up for server in servers),
        servers_total=len(servers),
        servers=servers,
        window=_window(time_us / 1e6, results, config),
        addresses={stat.slot: stat.address for stat in stats},
    )


def _view(stat: ServerStat, results: RangeResults) -> ServerView:
    by_metric: Mapping[str, Mapping[str, Points]] = {
        "status": results.status,
        "sessions": results.sessions,
        "weight": results.weight,
        "5xx_rate": results.errors_per_s,
    }
    sessions = _current(results.sessions.get(stat.slot), results.end_s)
    return ServerView(
        backend=stat.backend,
        server=stat.slot,
        up=stat.up,
        weight=stat.weight,
        sessions=None if sessions is None else round(sessions),
        errors_per_s=_current(results.errors_per_s.get(stat.slot), results.end_s),
        admin_state=stat.admin_state,
        series={
            metric: _series(points[stat.slot], results.end_s)
            for metric, points in by_metric.items()
            if points.get(stat.slot)
        },
    )


def _series(points: Points, end_s: float) -> Series:
    return Series(
        times_s=tuple(round(time_s - end_s, 3) for time_s, _ in points),
        values=tuple(value for _, value in points),
    )


def _current(points: Points | None, end_s: float) -> float | None:
    """The newest value, unless the series ended earlier (a vanished target leaves a gap)."""
    if not points or points[-1][0] < end_s - STALE_S:
        return None
    return points[-1][1]


def _total(values: Sequence[float | None]) -> float | None:
    """Sum of what is known; None when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _window(now_s: float, results: RangeResults, config: TelemetryConfig) -> Window:
    age_s = 0.0 if results.oldest_s is None else now_s - results.oldest_s
    return Window(
        lookback_s=config.lookback_s,
        resolution_s=config.resolution_s,
        rate_window_s=config.rate_window_s,
        observed_s=round(min(max(age_s, 0.0), config.rate_window_s), 3),
    )
