"""From raw answers to a snapshot: nothing is invented (pure)."""

from __future__ import annotations

import pytest

from controller.api import ServerStat
from controller.errors import HAProxyAnswer, TelemetryError
from controller.haproxy.parse import admin_state, parse_info, parse_servers
from controller.telemetry import RangeResults, TelemetryConfig, build_snapshot
from controller.telemetry.prometheus import parse_matrix, queries

CONFIG = TelemetryConfig()
NOW_S = 1_700_000_100.4
END_S = 1_700_000_100


def stat(slot: str, **changes: object) -> ServerStat:
    values = {
        "backend": "be_api",
        "slot": slot,
        "address": "127.0.0.1:8000",
        "status": "UP",
        "admin_state": "ready",
        "weight": 100,
        "sessions": 1,
        "requests_total": 10,
        "http_5xx_total": 0,
    }
    return ServerStat(**{**values, **changes})  # type: ignore[arg-type]


def results(
    sessions: object = (), rates: object = (), oldest_s: float | None = None
) -> RangeResults:
    return RangeResults(
        end_s=END_S,
        status=parse_matrix([row("api-1", (0, 1), (15, 1))]),
        sessions=parse_matrix(sessions),
        weight={},
        errors_per_s=parse_matrix(rates),
        oldest_s=oldest_s,
    )


def row(server: str, *points: tuple[float, object]) -> dict[str, object]:
    """A Prometheus series; points are (seconds before the end, value), newest first."""
    values = [[END_S - age, str(value)] for age, value in reversed(points)]
    return {"metric": {"server": server}, "values": values}


def test_values_series_and_totals() -> None:
    seen = build_snapshot(
        round(NOW_S * 1e6),
        "roundrobin",
        [stat("api-1"), stat("api-2", weight=50)],
        results(
            [row("api-1", (0, 3), (15, 4)), row("api-2", (0, 5))],
            [row("api-1", (0, 0), (15, 0)), row("api-2", (0, 1.5), (15, 1.0), (30, 0.5))],
            oldest_s=NOW_S - 44.5,
        ),
        CONFIG,
    )
    assert (seen.sessions_total, seen.errors_per_s_total) == (8, 1.5)
    assert (seen.servers_up, seen.servers_total, seen.algorithm) == (2, 2, "roundrobin")
    second = seen.servers[1]
    assert (second.sessions, second.errors_per_s, second.weight) == (5, 1.5, 50)
    assert second.series["5xx_rate"].times_s == (-30.0, -15.0, 0.0)
    assert second.series["5xx_rate"].values == (0.5, 1.0, 1.5)
    assert set(second.series) == {"sessions", "5xx_rate"}
    assert seen.window.observed_s == 44.5
    assert not seen.window.full
    assert seen.addresses == {"api-1": "127.0.0.1:8000", "api-2": "127.0.0.1:8000"}


def test_nan_and_missing_are_none_and_never_zero() -> None:
    seen = build_snapshot(
        round(NOW_S * 1e6),
        "leastconn",
        [stat("api-1"), stat("api-2")],
        results([row("api-1", (0, "NaN"))], [row("api-1", (0, "NaN"), (15, "+Inf"), (30, 2))]),
        CONFIG,
    )
    first, second = seen.servers
    assert (first.sessions, first.errors_per_s) == (None, None)
    assert first.series["5xx_rate"].values == (2.0, None, None)
    assert (second.sessions, second.errors_per_s, second.series) == (None, None, {})
    assert (seen.sessions_total, seen.errors_per_s_total) == (None, None)
    assert seen.window.observed_s == 0


def test_a_series_that_ended_has_no_current_value() -> None:
    seen = build_snapshot(
        round(NOW_S * 1e6),
        "leastconn",
        [stat("api-1")],
        results([row("api-1", (15, 9), (30, 9))], []),
        CONFIG,
    )
    assert seen.servers[0].sessions is None


@pytest.mark.parametrize(
    ("status", "state", "up"),
    [
        ("UP", "ready", True),
        ("UP 1/2", "ready", True),
        ("no check", "ready", True),
        ("DRAIN", "drain", False),
        ("no check", "drain", False),
        ("DOWN", "ready", False),
        ("DOWN 1/2", "ready", False),
        ("NOLB", "ready", False),
        ("MAINT (resolution)", "maint", False),
        ("", "ready", False),
    ],
)
def test_up_comes_from_the_state(status: str, state: str, up: bool) -> None:
    assert stat("api-1", status=status, admin_state=state).up is up


@pytest.mark.parametrize(
    ("bits", "state"),
    [(0, "ready"), (8, "drain"), (16, "drain"), (1, "maint"), (9, "maint"), (32, "maint")],
)
def test_admin_state_bits(bits: int, state: str) -> None:
    assert admin_state(bits) == state


def test_a_full_window_and_one_beyond() -> None:
    for age_s in (120, 500):
        seen = build_snapshot(
            round(NOW_S * 1e6),
            "leastconn",
            [stat("api-1")],
            results(oldest_s=NOW_S - age_s),
            CONFIG,
        )
        assert seen.window.observed_s == 120
        assert seen.window.full


@pytest.mark.parametrize("shape", [None, [{}], [{"metric": {}, "values": []}], "text", [[1]]])
def test_an_unknown_shape_is_a_telemetry_error(shape: object) -> None:
    with pytest.raises(TelemetryError):
        parse_matrix(shape)


def test_queries_name_backend_window_and_code() -> None:
    made = queries("be_api", 120)
    assert set(made) == {"status", "sessions", "weight", "errors_per_s"}
    assert all('proxy="be_api"' in query for query in made.values())
    assert 'code="5xx"}[120000ms]' in made["errors_per_s"]


STAT_26_MAINT = (
    "# pxname,svname,scur,stot,status,weight,type,hrsp_5xx,uweight,-,\n"
    "be_api,api-1,0,7,MAINT (resolution),77,2,3,30,-,\n"
    "be_api,BACKEND,0,7,UP,100,1,3,100,-,\n\n"
)
STATE_26_MAINT = (
    "1\n"
    "# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_port\n"
    "4 be_api 1 api-1 - 0 32 30 8000\n\n"
)


def test_other_columns_and_a_stale_weight_are_survived() -> None:
    """HAProxy 2.6 in maintenance: other columns, no req_tot, a stale `weight`."""
    (server,) = parse_servers("be_api", STAT_26_MAINT, STATE_26_MAINT)
    assert (server.weight, server.admin_state, server.address) == (30, "maint", "-")
    assert (server.requests_total, server.http_5xx_total) == (7, 3)
    assert not server.up


def test_ipv6_addresses_are_bracketed() -> None:
    state = STATE_26_MAINT.replace("api-1 - 0 32", "api-1 ::1 2 0")
    (server,) = parse_servers("be_api", STAT_26_MAINT, state)
    assert server.address == "[::1]:8000"


@pytest.mark.parametrize("text", ["", "\n", "Permission denied\n", "# pxname,svname\n"])
def test_answers_that_make_no_sense_are_quoted(text: str) -> None:
    with pytest.raises(HAProxyAnswer):
        parse_info(text)
    with pytest.raises(HAProxyAnswer):
        parse_servers("be_api", STAT_26_MAINT, text)
    if not text.startswith("#"):
        with pytest.raises(HAProxyAnswer):
            parse_servers("be_api", text, STATE_26_MAINT)
