"""k6's summary and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.api import LoadResult
from testbed.errors import LoadFailed
from testbed.load.command import explain_exit, k6_arguments, k6_environment
from testbed.load.requests import RowCounts
from testbed.load.result import read_summary, result
from tests.testbed import builders


def counter(count: int) -> dict[str, Any]:
    return {"type": "counter", "values": {"count": count, "rate": 1.0}}


def document(**metrics: Any) -> dict[str, Any]:
    """A summary of a load of 10 s at 762 requests per second."""
    trend = {"avg": 12.0, "count": 7620, "p(99)": 17.7}
    return {
        "schema_version": 1,
        "run_id": "run-1",
        "started_at_ms": 1_700_000_000_000,
        "ended_at_ms": 1_700_000_010_000,
        "metrics": {
            "http_5xx": counter(127),
            "transport_errors": counter(0),
            "telemetry_errors": counter(0),
            "http_reqs": counter(7620),
            "iterations": counter(7620),
            "http_req_duration": {"type": "trend", "values": trend},
        }
        | metrics,
    }


def judge(tmp_path: Path, raw: Any, code: int = 0, counts: RowCounts | None = None) -> LoadResult:
    path = tmp_path / "summary.json"
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw))
    load = builders.load(vus=30, duration_s=10)
    summary, parsed = read_summary(path, code, "the last line")
    return result(load, summary, parsed, code, counts or RowCounts(7620, 0, 127))


def test_a_load_that_ran_its_course(tmp_path: Path) -> None:
    outcome = judge(tmp_path, document())
    assert (outcome.requests, outcome.http_5xx, outcome.rows) == (7620, 127, 7620)
    assert outcome.started_at_us == 1_700_000_000_000_000
    assert outcome.achieved_rate_rps == pytest.approx(762.0)
    # 30 users, 27.5 ms mean sleep, 12 ms mean latency
    assert outcome.expected_rate_rps == pytest.approx(30 / 0.0395)
    assert outcome.dropped_iterations == 0


def test_a_mismatch_is_reported_with_both_numbers(tmp_path: Path) -> None:
    outcome = judge(tmp_path, document(), counts=RowCounts(7600, 3, 127))
    assert (outcome.requests, outcome.rows, outcome.duplicate_rows) == (7620, 7600, 3)


def test_telemetry_that_tells_of_other_failures_fails(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="k6 counted 127 5xx, its telemetry holds 126"):
        judge(tmp_path, document(), counts=RowCounts(7623, 3, 126))
    # What is missing is another matter, and told by the numbers of rows.
    assert judge(tmp_path, document(), counts=RowCounts(7619, 0, 126)).http_5xx == 127


def test_a_crossed_threshold_is_no_failure(tmp_path: Path) -> None:
    assert judge(tmp_path, document(), code=99).exit_code == 99


@pytest.mark.parametrize(
    ("code", "words"), [(105, "ended by a signal"), (107, "exception"), (108, "aborted")]
)
def test_a_load_that_was_cut_short_fails(tmp_path: Path, code: int, words: str) -> None:
    with pytest.raises(LoadFailed, match=f"{words}.*the last line"):
        judge(tmp_path, document(), code=code)


def test_exit_code_0_without_a_request_fails(tmp_path: Path) -> None:
    raw = document()
    del raw["metrics"]["http_reqs"]
    with pytest.raises(LoadFailed, match="no request in 7620 iterations"):
        judge(tmp_path, raw)


def test_exit_code_0_without_telemetry_fails(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match="7620 requests, but no telemetry"):
        judge(tmp_path, document(), counts=RowCounts(0, 0, 0))


def test_a_load_that_ended_early_fails(tmp_path: Path) -> None:
    raw = document() | {"ended_at_ms": 1_700_000_004_000}
    with pytest.raises(LoadFailed, match=r"4\.0 s of 10\.0 s"):
        judge(tmp_path, raw)


def test_a_missing_summary_fails_with_k6s_exit_and_last_words(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"refused its configuration.*no summary.*last words: boo"):
        read_summary(tmp_path / "none.json", 104, "boo")


@pytest.mark.parametrize("raw", ["", "[]", "{}", '{"schema_version": 1}'])
def test_an_unusable_summary_fails(tmp_path: Path, raw: str) -> None:
    with pytest.raises(LoadFailed, match="summary is unusable"):
        judge(tmp_path, raw)


def test_a_summary_without_our_counters_fails(tmp_path: Path) -> None:
    raw = document()
    del raw["metrics"]["http_5xx"]
    with pytest.raises(LoadFailed, match="http_5xx"):
        judge(tmp_path, raw)


def test_exit_codes_in_words() -> None:
    assert explain_exit(99) == "crossed a threshold (exit code 99)"
    assert explain_exit(-9) == "was killed by signal 9"
    assert explain_exit(42) == "failed (exit code 42)"


def test_k6_opens_no_port_and_reports_to_nobody() -> None:
    arguments = k6_arguments("k6", builders.load())
    assert arguments[arguments.index("--address") + 1] == ""
    assert "--no-usage-report" in arguments
    assert arguments[-1].endswith("/redis.js")
    assert Path(arguments[-1]).exists()
    to_file = k6_arguments("k6", builders.load(telemetry="file"), telemetry="/x")
    assert to_file[-1].endswith("/file.js")
    assert Path(to_file[-1]).exists()


def test_k6_is_told_everything_by_its_environment() -> None:
    env = k6_environment(builders.load(vus=30), "run-1", "http://h:1", "redis://r", "/s.json")
    spec = json.loads(env["LOAD_SPEC"])
    assert (spec["vus"], spec["run_id"], spec["url"]) == (30, "run-1", "http://h:1/work")
    assert (env["LOAD_REDIS_URL"], env["LOAD_SUMMARY"]) == ("redis://r", "/s.json")
