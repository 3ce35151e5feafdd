"""Short ways to make the data of tests."""

from __future__ import annotations

from collections.abc import Sequence

from controller.api import Action, AdminState, Series, ServerView, Snapshot, Window

WINDOW = Window(lookback_s=180, resolution_s=15, rate_window_s=120, observed_s=120)


def series(*values: float | None, step_s: float = 15) -> Series:
    """Samples that end now."""
    count = len(values)
    return Series(tuple((i - count + 1) * step_s for i in range(count)), values)


def view(
    server: str,
    errors_per_s: float | None = 0.0,
    *,
    weight: int = 100,
    sessions: int | None = 10,
    admin_state: AdminState = "ready",
    up: bool | None = None,
    rates: Sequence[float | None] = (),
    **other: Series,
) -> ServerView:
    """One server of `be_api`; drained ones are not up."""
    metrics = dict(other)
    if rates:
        metrics["5xx_rate"] = series(*rates)
    return ServerView(
        backend="be_api",
        server=server,
        up=admin_state == "ready" if up is None else up,
        weight=weight,
        sessions=sessions,
        errors_per_s=errors_per_s,
        admin_state=admin_state,
        series=metrics,
    )


def snapshot(*servers: ServerView, time_s: float = 1000.0) -> Snapshot:
    """A snapshot of `servers` with consistent totals."""
    sessions = [s.sessions for s in servers if s.sessions is not None]
    rates = [s.errors_per_s for s in servers if s.errors_per_s is not None]
    return Snapshot(
        time_us=round(time_s * 1e6),
        algorithm="leastconn",
        sessions_total=sum(sessions) if sessions else None,
        errors_per_s_total=sum(rates) if rates else None,
        servers_up=sum(s.up for s in servers),
        servers_total=len(servers),
        servers=servers,
        window=WINDOW,
        addresses={s.server: "127.0.0.1:1" for s in servers},
    )


def set_weight(server: str, weight: object) -> Action:
    return Action("set_weight", "be_api", server, weight)  # type: ignore[arg-type]


def drain(server: str) -> Action:
    return Action("drain", "be_api", server)


def enable(server: str) -> Action:
    return Action("enable", "be_api", server)
