"""The text that a policy's model sees, in the shape of the paper's Appendix B.1 and B.2.

    Recent actions (oldest -> newest):
    180s ago be_api/api-3 set_weight w=50

    Global sessions=… 5xx_per_sec=… servers_up=3/4
    Backend be_api
    server up weight sessions load% 5xx_rate
    api-1 0 0 0 0% 0.0
    …
    Time series (oldest to newest, 15s intervals):
    api-4 5xx_rate=[0.1,0.2,0.3] trend=+0.2/30s RISING

The paper shows one example and no rule, so the rules are these, once, here:

* A server that is not up (drained, in maintenance, down) shows `up` 0 and `weight` 0, in the table
  and in the series alike: its share of the traffic, whatever weight it will have again.
* A series is printed when its newest `series_points` values *change*: by more than the metric's
  own noise (`_METRICS`), so that a healthy fleet prints none.
* A trend is *significant* when a straight line explains the samples (two-sided p-value of their
  correlation with time <= 0.1, at least three samples) and the difference between the last and the
  first, which is the figure printed, is at least 0.1 errors per second: one unit of what the table
  shows. The p-value keeps a noisy rate from trending, the difference a smooth but tiny drift.
* A trend is written once: behind the series when its printed values show it, else in the server's
  row of the table when the longer `trend_points` do.
* What is not known is `-`, never 0.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtr

from controller.api import ExecutedAction, Series, ServerView, Snapshot, Trend

UNKNOWN = "-"
_HEADER = "server up weight sessions load% 5xx_rate"


@dataclass(frozen=True)
class ObservationStyle:
    """How much of the past is shown."""

    series_points: int = 3
    """Newest samples that a series line shows (Appendix B.2 shows three)."""
    trend_points: int = 5
    """Newest samples over which a trend in the table is looked for: 60 s at 15 s resolution."""
    history_actions: int = 10
    """Newest executed actions shown. The last one of each server is shown whatever its age: the
    admin state is inferred from it."""


@dataclass(frozen=True)
class _Metric:
    """How one series is printed, and how much of it is noise."""

    key: str
    label: str
    decimals: int
    min_change: float
    min_relative_change: float = 0.0


# Sessions of a small fleet are Poisson-like counts: only a change by half their mean and by at
# least five connections is news.
_METRICS = (
    _Metric("status", "up", 0, 1),
    _Metric("weight", "weight", 0, 1),
    _Metric("sessions", "sessions", 0, 5, 0.5),
    _Metric("5xx_rate", "5xx_rate", 1, 0.1),
)


@dataclass(frozen=True)
class TrendFigure:
    """A significant trend: `delta` between first and last sample over `span_s` seconds."""

    delta: float
    span_s: float
    word: Trend

    def __str__(self) -> str:
        return f"trend={self.delta:+.1f}/{self.span_s:.0f}s {self.word}"


TREND_P_VALUE = 0.1
TREND_MIN_DELTA = 0.1


def significant_trend(
    times_s: Sequence[float], values: Sequence[float | None]
) -> TrendFigure | None:
    """The trend of a series of errors per second, or None when it is not significant (see above).

    `times_s` in seconds, ascending; gaps (None) are left out.
    """
    samples = [(t, v) for t, v in zip(times_s, values, strict=True) if v is not None]
    if len(samples) < 3:
        return None
    delta = samples[-1][1] - samples[0][1]
    if round(abs(delta), 6) < TREND_MIN_DELTA:
        return None
    r = statistics.correlation([t for t, _ in samples], [v for _, v in samples])
    if _p_value(r, len(samples)) > TREND_P_VALUE or math.copysign(1, r) != math.copysign(1, delta):
        return None
    span_s = samples[-1][0] - samples[0][0]
    return TrendFigure(delta, span_s, "RISING" if delta > 0 else "FALLING")


def _p_value(r: float, samples: int) -> float:
    """Two-sided p-value of a correlation `r`, as `scipy.stats.linregress` gives it.

    Not that function itself: importing scipy.stats takes a second that no command line has.
    """
    freedom = samples - 2
    if 1 - r * r < 1e-12:
        return 0.0
    return 2 * float(stdtr(freedom, -abs(r) * math.sqrt(freedom / (1 - r * r))))


def format_user_message(
    snapshot: Snapshot, history: Sequence[ExecutedAction], style: ObservationStyle
) -> str:
    """The user message of a step: recent actions, an empty line, the observation."""
    recent = format_history(history, snapshot.time_us, style)
    return f"{recent}\n\n{format_observation(snapshot, style)}"


def format_history(history: Sequence[ExecutedAction], now_us: int, style: ObservationStyle) -> str:
    """Executed actions, oldest first (Appendix B.1)."""
    lines = [_history_line(entry, now_us) for entry in _shown(history, style.history_actions)]
    return "\n".join(["Recent actions (oldest -> newest):", *(lines or ["none"])])


def _shown(history: Sequence[ExecutedAction], newest: int) -> list[ExecutedAction]:
    last = {(e.action.backend, e.action.server): i for i, e in enumerate(history)}
    keep = set(last.values()) | set(range(max(0, len(history) - newest), len(history)))
    return [history[i] for i in sorted(keep)]


def _history_line(entry: ExecutedAction, now_us: int) -> str:
    action = entry.action
    weight = f" w={action.weight}" if action.kind == "set_weight" else ""
    age_s = max(0, now_us - entry.time_us) / 1e6
    return f"{age_s:.0f}s ago {action.backend}/{action.server} {action.kind}{weight}"


def format_observation(snapshot: Snapshot, style: ObservationStyle) -> str:
    """Global line, one table per backend, and the series that change (Appendix B.2)."""
    lines = [
        f"Global sessions={_number(snapshot.sessions_total, 0)} "
        f"5xx_per_sec={_number(snapshot.errors_per_s_total, 2)} "
        f"servers_up={snapshot.servers_up}/{snapshot.servers_total}"
    ]
    series_lines: list[str] = []
    for backend in dict.fromkeys(server.backend for server in snapshot.servers):
        lines += [f"Backend {backend}", _HEADER]
        for server in snapshot.servers:
            if server.backend == backend:
                printed, trend_printed = _series_lines(server, style)
                series_lines += printed
                lines.append(_row(server, snapshot.sessions_total, style, not trend_printed))
    if series_lines:
        step = f"{snapshot.window.resolution_s:g}s"
        lines += [f"Time series (oldest to newest, {step} intervals):", *series_lines]
    return "\n".join(lines)


def _row(server: ServerView, total: int | None, style: ObservationStyle, with_trend: bool) -> str:
    row = (
        f"{server.server} {int(server.up)} {server.weight if server.up else 0} "
        f"{_number(server.sessions, 0)} {_share(server.sessions, total)} "
        f"{_number(server.errors_per_s, 1)}"
    )
    series = server.series.get("5xx_rate")
    if not with_trend or series is None:
        return row
    newest = _newest(series, style.trend_points)
    trend = significant_trend(newest.times_s, newest.values)
    return f"{row} {trend}" if trend else row


def _series_lines(server: ServerView, style: ObservationStyle) -> tuple[list[str], bool]:
    """Lines of one server, and whether one of them carries the trend of its error rate."""
    lines = []
    trend_printed = False
    for metric in _METRICS:
        series = server.series.get(metric.key)
        if series is None:
            continue
        if metric.key == "weight":
            series = _weight_in_rotation(series, server.series.get("status"))
        newest = _newest(series, style.series_points)
        if not _changes(newest, metric):
            continue
        values = ",".join(_number(value, metric.decimals) for value in newest.values)
        line = f"{server.server} {metric.label}=[{values}]"
        if metric.key == "5xx_rate":
            trend = significant_trend(newest.times_s, newest.values)
            if trend is not None:
                line, trend_printed = f"{line} {trend}", True
        lines.append(line)
    return lines, trend_printed


def _weight_in_rotation(weight: Series, status: Series | None) -> Series:
    """The weight, 0 where the server was not up: HAProxy keeps the weight of a drained one."""
    if status is None:
        return weight
    down = {t for t, up in zip(status.times_s, status.values, strict=True) if up == 0}
    pairs = zip(weight.times_s, weight.values, strict=True)
    return Series(weight.times_s, tuple(0.0 if t in down else value for t, value in pairs))


def _newest(series: Series, points: int) -> Series:
    return Series(series.times_s[-points:], series.values[-points:])


def _changes(series: Series, metric: _Metric) -> bool:
    known = [value for value in series.values if value is not None]
    if len(known) < 2:
        return False
    mean = sum(known) / len(known)
    threshold = max(metric.min_change, metric.min_relative_change * abs(mean))
    return round(max(known) - min(known), 6) >= threshold


def _number(value: float | None, decimals: int) -> str:
    return UNKNOWN if value is None else f"{value:.{decimals}f}"


def _share(sessions: int | None, total: int | None) -> str:
    if sessions is None or not total:
        return UNKNOWN if sessions is None or total is None else "0%"
    return f"{100 * sessions / total:.0f}%"
