from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest
import yaml

from sweep.metrics.cache import LATENCY_COUNTS
from sweep.report.errors import NotAStore
from sweep.report.load import load
from sweep.store.paths import RunStore
from tests.synthetic.demo import SMOLLM
from tests.synthetic.run import STATIC, SyntheticRun
from tests.synthetic.write import write_run

STATIC_ON = "static-error_on_leastconn_n3_s42"
RULE = "threshold-none_leastconn_n3_s42"
LLM = "smollm2-135m-none_leastconn_n3_s42"


def left_out(loaded, run_id):
    return [(item.kind, item.reason) for item in loaded.left_out if item.run_id == run_id]


def test_a_good_store_leaves_nothing_out(demo_store):
    loaded = load(RunStore(demo_store))
    assert loaded.left_out == ()
    assert loaded.runs.height == loaded.complete == 4
    rule = loaded.runs.filter(run_id=RULE).row(0, named=True)
    assert rule["baseline_run_id"] == STATIC_ON
    assert rule["reduction_pct"] == pytest.approx(100 * (1 - rule["http_5xx"] / 50), abs=0.1)


def test_the_second_time_only_the_caches_are_read(demo_store):
    first = load(RunStore(demo_store))
    for name in ("requests.parquet", "counters.parquet", "steps.jsonl"):
        for path in demo_store.glob(f"runs/*/{name}"):
            # Same size, other content: whoever reads it, notices.
            path.write_bytes(b"x" * path.stat().st_size)
    second = load(RunStore(demo_store))
    assert second.runs.equals(first.runs)
    assert second.left_out == ()
    raw = load(RunStore(demo_store), from_raw=True)
    assert raw.runs["requests"].to_list() == [None] * 4


def test_from_raw_equals_cached(demo_store):
    cached = load(RunStore(demo_store))
    assert load(RunStore(demo_store), from_raw=True).runs.equals(cached.runs)


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir(), lambda p: p.write_text("")])
def test_no_store_says_what_was_looked_for(tmp_path, make):
    place = tmp_path / "store"
    make(place)
    with pytest.raises(NotAStore, match=str(place)):
        load(RunStore(place))


def test_a_store_without_complete_runs(tmp_path):
    (tmp_path / "runs").mkdir()
    with pytest.raises(NotAStore, match="no complete run"):
        load(RunStore(tmp_path))


def test_an_unreadable_parquet_file_costs_its_metrics_only(demo_store):
    path = demo_store / "runs" / RULE / "requests.parquet"
    path.write_bytes(path.read_bytes()[:1000])
    loaded = load(RunStore(demo_store))
    assert loaded.runs.height == 4
    row = loaded.runs.filter(run_id=RULE).row(0, named=True)
    assert (row["requests"], row["reduction_pct"], row["f1"]) == (None, None, 1.0)
    ((kind, reason),) = left_out(loaded, RULE)
    assert kind == "incomplete"
    assert "requests.parquet" in reason


def test_a_missing_column_is_named(demo_store):
    path = demo_store / "runs" / LLM / "requests.parquet"
    pl.read_parquet(path).drop("status").write_parquet(path)
    ((kind, reason),) = left_out(load(RunStore(demo_store)), LLM)
    assert kind == "incomplete"
    assert "status" in reason


def test_a_run_without_steps(demo_store):
    (demo_store / "runs" / LLM / "steps.jsonl").write_text("")
    loaded = load(RunStore(demo_store))
    assert left_out(loaded, LLM) == [("incomplete", "steps.jsonl: no steps")]
    row = loaded.runs.filter(run_id=LLM).row(0, named=True)
    assert (row["steps"], row["f1"], row["reduction_pct"]) == (0, None, None)


def test_runs_without_a_matched_baseline_are_listed(demo_store):
    write_run(demo_store, SyntheticRun(SMOLLM, "none", scale=4, testbed="local"))
    loaded = load(RunStore(demo_store))
    ((kind, reason),) = left_out(loaded, "smollm2-135m-none_leastconn_n4_s42")
    assert kind == "unmatched"
    assert "N=4" in reason


def test_a_baseline_without_requests_matches_nobody(demo_store):
    (demo_store / "runs" / STATIC_ON / "requests.parquet").unlink()
    kinds = {item.kind for item in load(RunStore(demo_store)).left_out}
    assert kinds == {"incomplete", "unmatched"}


def edit(demo_store, run_id, **changes):
    path = demo_store / "runs" / run_id / "summary.json"
    summary = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in summary.items() if v is not ...}))


@pytest.mark.parametrize(
    ("changes", "kind", "reason"),
    [
        ({"schema_version": 0}, "old version", "version 0"),
        ({"schema_version": ...}, "old version", "version None"),
        ({"valid": False, "invalid_reasons": ["k6 was saturated"]}, "invalid", "k6 was saturated"),
        ({"point": ...}, "unreadable", "point"),
        ({"point": {"scale": "three"}}, "unreadable", "summary.json"),
    ],
)
def test_runs_that_can_not_be_used_are_left_out_with_the_reason(demo_store, changes, kind, reason):
    edit(demo_store, LLM, **changes)
    loaded = load(RunStore(demo_store))
    assert loaded.runs.height == 3
    assert loaded.complete == 4
    ((found, text),) = left_out(loaded, LLM)
    assert found == kind
    assert reason in text


def test_a_summary_that_is_no_json(demo_store):
    (demo_store / "runs" / LLM / "summary.json").write_text("{")
    assert left_out(load(RunStore(demo_store)), LLM)[0][0] == "unreadable"


def test_a_folder_without_a_summary_is_named_without_its_place(demo_store):
    (demo_store / "runs" / "half_leastconn_n3_s1").mkdir()
    found = left_out(load(RunStore(demo_store)), "half_leastconn_n3_s1")
    assert found == [("unreadable", "summary.json: No such file or directory")]


def test_missing_request_times_are_a_problem_of_that_run_only(demo_store):
    edit(demo_store, LLM, t0_us=...)
    loaded = load(RunStore(demo_store), from_raw=True)
    assert left_out(loaded, LLM) == [("incomplete", "summary.json: no field 't0_us'")]
    assert loaded.runs["requests"].null_count() == 1


def test_a_mismatch_of_faulty_slots_is_named(demo_store):
    edit(demo_store, RULE, ground_truth={"faulty_slots": [], "expected": 2, "matches": False})
    ((kind, reason),) = left_out(load(RunStore(demo_store)), RULE)
    assert (kind, reason) == ("incomplete", "ground truth: 1 faulty slots, 2 expected")


def test_failures_count_unless_the_run_got_complete_or_was_only_stopped(demo_store):
    records = [
        {"run_id": LLM, "outcome": "infrastructure", "reason": "k6 died"},
        {"run_id": "gone", "outcome": "infrastructure", "reason": "first"},
        {"run_id": "gone", "outcome": "policy", "reason": "last\nline two"},
        {"run_id": "stopped", "outcome": "interrupted", "reason": "Ctrl-C"},
        {"run_id": "orphan", "outcome": "orphaned", "reason": "its sweep died"},
    ]
    text = "".join(json.dumps(r) + "\n" for r in records) + '{"run_id": "cut'
    (demo_store / "failures.jsonl").write_text(text)
    loaded = load(RunStore(demo_store))
    assert [(i.run_id, i.kind, i.reason) for i in loaded.left_out] == [("gone", "failed", "last")]


def test_where_no_cache_can_be_written_counts_stay_in_memory(demo_store, monkeypatch):
    def refuse(*_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("sweep.report.load.write_cache", refuse)
    loaded = load(RunStore(demo_store))
    assert not list(demo_store.glob(f"runs/*/{LATENCY_COUNTS}"))
    assert loaded.latency_counts(LLM).n == 3_000


def test_the_order_of_folders_changes_nothing(demo_store, monkeypatch):
    known = load(RunStore(demo_store)).runs
    ids = RunStore(demo_store).complete_ids()
    monkeypatch.setattr(RunStore, "complete_ids", lambda self: ids[::-1])
    assert load(RunStore(demo_store)).runs.equals(known)


def test_a_second_seed_is_matched_with_its_own_baseline(demo_store):
    write_run(
        demo_store,
        SyntheticRun(
            STATIC, "error_on", seed=7, http_5xx=40, requests=2_000, duration_s=60, testbed="local"
        ),
    )
    run = SyntheticRun(
        SMOLLM, "none", seed=7, http_5xx=10, requests=2_000, duration_s=60, testbed="local"
    )
    write_run(demo_store, run)
    runs = load(RunStore(demo_store)).runs
    row = runs.filter(run_id=run.run_id).row(0, named=True)
    assert row["baseline_run_id"] == "static-error_on_leastconn_n3_s7"
    assert row["reduction_pct"] == pytest.approx(75.0)
    assert replace(run, seed=42).run_id == LLM


def test_a_baseline_of_another_fleet_is_no_baseline(demo_store):
    path = demo_store / "runs" / RULE / "config.yaml"
    record = yaml.safe_load(path.read_text())
    record["config"]["fleet"]["profiles"][2]["error_rate"] = 0.2
    record["config"]["controller"] = {"guardrails": {"max_drains": 2}}
    path.write_text(yaml.safe_dump(record))
    loaded = load(RunStore(demo_store))
    ((kind, reason),) = left_out(loaded, RULE)
    assert kind == "unmatched" and "configuration of fleet, load and testbed" in reason
    rows = {row["run_id"]: row for row in loaded.runs.iter_rows(named=True)}
    assert rows[RULE]["reduction_pct"] is None
    assert rows[RULE]["floor_rate"] == pytest.approx(0.2 / 3)
    assert rows[STATIC_ON]["floor_rate"] == pytest.approx(0.05 / 3)
    assert rows[LLM]["baseline_run_id"] == STATIC_ON


def test_knobs_that_change_no_result_change_no_baseline(demo_store):
    path = demo_store / "runs" / RULE / "config.yaml"
    record = yaml.safe_load(path.read_text())
    record["config"]["testbed"] |= {"programs": {"k6": "/opt/k6"}, "start_timeout_s": 99}
    path.write_text(yaml.safe_dump(record))
    assert load(RunStore(demo_store)).left_out == ()


@pytest.mark.parametrize("text", [None, "", "[", "config: {fleet: {}}", "config: 3"])
def test_a_run_whose_configuration_is_lost_is_named(demo_store, text):
    path = demo_store / "runs" / RULE / "config.yaml"
    path.unlink()
    if text is not None:
        path.write_text(text)
    found = left_out(load(RunStore(demo_store)), RULE)
    assert [kind for kind, _ in found] == ["incomplete", "unmatched"]
    assert found[0][1].startswith("config.yaml: ")


def test_two_models_of_one_title_are_not_pooled(demo_store):
    """A copied model file keeps its title, unless somebody thinks of it."""
    copied = replace(SMOLLM, name="mine")
    write_run(demo_store, SyntheticRun(copied, "none", duration_s=60, testbed="local"))
    runs = load(RunStore(demo_store)).runs.filter(policy="llm")
    assert set(runs["title"]) == {"SmolLM2 135M (mine)", "SmolLM2 135M (smollm2-135m)"}
