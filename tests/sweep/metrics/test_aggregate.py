from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from sweep.metrics import DEFINITIONS_VERSION
from sweep.metrics.aggregate import TRUTH_KEYS, compute, write_run_aggregates
from sweep.metrics.cache import AGGREGATES, LATENCY_COUNTS, read_cache, read_latency_counts
from sweep.store.paths import RunPaths
from tests.synthetic.run import STATIC, Model, SyntheticRun
from tests.synthetic.write import summary, write_run

QWEN = Model("qwen3-4b", "Qwen3 4B", "llm", "Qwen3", 4.0, 4.0, "dense")


@pytest.fixture
def run() -> SyntheticRun:
    base = SyntheticRun(QWEN, "think", scale=5, requests=3_000, http_5xx=21, transport_errors=4)
    one, two = base.faulty
    return replace(
        base,
        toggles={one: (6, 9, 12), two: (8, 30), base.healthy[0]: (20, 21)},
        trips={6: ("drain_cap",), 40: ("weight_clamp",), 41: ("action_cap",)},
        completion_tokens=150,
    )


def test_everything_comes_out_as_it_was_put_in(tmp_path, run):
    folder = write_run(tmp_path, run)
    metrics = write_run_aggregates(folder)
    for name, value in run.truth().items():
        assert metrics[name] == value, name
    assert metrics["faulty_slots"] == list(run.faulty)
    assert metrics["transport_errors"] == 4
    assert metrics["latency_n"] == run.requests - 4
    assert metrics["rate_low"] < 21 / 3000 < metrics["rate_high"]


def test_the_summary_may_be_handed_over_before_it_is_written(tmp_path, run):
    folder = write_run(tmp_path, run)
    known = write_run_aggregates(folder)
    (folder / "summary.json").unlink()
    assert write_run_aggregates(folder, summary(run)) == known
    json.dumps(known, allow_nan=False)


def test_latency_equals_numpy_on_the_raw_file(tmp_path, run):
    folder = write_run(tmp_path, run)
    metrics = write_run_aggregates(folder)
    raw = pl.read_parquet(folder / "requests.parquet").filter(pl.col("status") > 0)
    values = raw["duration_us"].to_numpy()
    assert metrics["mean_ms"] == pytest.approx(values.mean() / 1000)
    for p in (50, 95, 99):
        assert metrics[f"p{p}_ms"] == pytest.approx(np.percentile(values, p) / 1000)


def test_row_groups_and_row_order_change_nothing(tmp_path, run):
    one = write_run_aggregates(write_run(tmp_path / "a", run))
    folder = write_run(tmp_path / "b", run, row_group_size=137)
    assert write_run_aggregates(folder) == one
    frame = pl.read_parquet(folder / "requests.parquet").sample(fraction=1, shuffle=True, seed=1)
    frame.write_parquet(folder / "requests.parquet")
    counters = pl.read_parquet(folder / "counters.parquet")
    counters.sample(fraction=1, shuffle=True, seed=2).write_parquet(folder / "counters.parquet")
    assert write_run_aggregates(folder) == one


def test_cached_aggregates_are_what_was_computed(tmp_path, run):
    paths = RunPaths(write_run(tmp_path, run))
    write_run_aggregates(paths.root)
    cached = read_cache(paths)
    fresh, counts = compute(paths, summary(run))
    assert cached == fresh
    stored = read_latency_counts(paths)
    assert np.array_equal(stored.values, counts.values)
    assert np.array_equal(stored.counts, counts.counts)
    assert not [p for p in paths.root.iterdir() if p.name.endswith(".tmp")]


def test_stale_caches_are_not_used(tmp_path, run):
    paths = RunPaths(write_run(tmp_path, run))
    write_run_aggregates(paths.root)
    cache = paths.root / AGGREGATES
    text = cache.read_text()

    version = '"definitions_version": '
    cache.write_text(text.replace(f"{version}{DEFINITIONS_VERSION}", f"{version}0"))
    assert read_cache(paths) is None
    cache.write_text(text[: len(text) // 2])
    assert read_cache(paths) is None
    cache.write_text(text)
    assert read_cache(paths) is not None
    (paths.root / LATENCY_COUNTS).rename(tmp_path / "away")
    assert read_cache(paths) is None
    (tmp_path / "away").rename(paths.root / LATENCY_COUNTS)
    with paths.steps.open("a") as file:
        file.write("\n")
    assert read_cache(paths) is None


def test_a_static_run_without_faults(tmp_path):
    run = SyntheticRun(
        STATIC, "error_off", error_mode="error_off", http_5xx=0, completion_tokens=0, duration_s=60
    )
    metrics = write_run_aggregates(write_run(tmp_path, run))
    assert metrics["faulty_slots"] == []
    assert metrics["rate_5xx"] == 0
    assert metrics["rate_low"] == 0 < metrics["rate_high"]
    assert metrics["exact"] is True
    assert metrics["f1"] is None
    assert metrics["completion_per_step"] is None
    assert metrics["faulty_flip_rate"] is None


def spoil_requests(folder):
    path = folder / "requests.parquet"
    path.write_bytes(path.read_bytes()[:-200])


def drop_column(folder):
    path = folder / "requests.parquet"
    pl.read_parquet(path).drop("duration_us").write_parquet(path)


def no_steps(folder):
    (folder / "steps.jsonl").write_text("")


def cut_steps(folder):
    path = folder / "steps.jsonl"
    path.write_text(path.read_text()[:-40])


def other_steps(folder):
    (folder / "steps.jsonl").write_text('{"step": 0}\n')


def steps_without_times(folder):
    path = folder / "steps.jsonl"
    records = [json.loads(line) | {"started_s": None} for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(r) + "\n" for r in records))


def no_requests(folder):
    path = folder / "requests.parquet"
    pl.read_parquet(path).clear().write_parquet(path)


def no_counters(folder):
    (folder / "counters.parquet").unlink()


def null_counters(folder):
    path = folder / "counters.parquet"
    frame = pl.read_parquet(path)
    frame.with_columns(http_5xx_total=pl.lit(None, pl.Int64)).write_parquet(path)


def null_durations(folder):
    path = folder / "requests.parquet"
    frame = pl.read_parquet(path)
    frame.with_columns(duration_us=pl.lit(None, pl.Int32)).write_parquet(path)


def negative_durations(folder):
    path = folder / "requests.parquet"
    frame = pl.read_parquet(path)
    frame.with_columns(duration_us=pl.lit(-1, pl.Int32)).write_parquet(path)


CLIENT, DECISIONS, STEPS = "requests", "f1", "steps"


@pytest.mark.parametrize(
    ("spoil", "problem", "lost", "kept"),
    [
        (spoil_requests, "requests.parquet: unreadable", [CLIENT], [DECISIONS, STEPS]),
        (drop_column, "requests.parquet: missing column duration_us", [CLIENT], [DECISIONS, STEPS]),
        (no_requests, "requests.parquet: no requests", [CLIENT], [DECISIONS, STEPS]),
        (
            no_steps,
            "steps.jsonl: no steps",
            [DECISIONS, "exact", "flips", "drained_slots", "completion_tokens", "fired_any"],
            [CLIENT, STEPS, "failed_steps"],
        ),
        (cut_steps, "steps.jsonl: unreadable", [DECISIONS, STEPS], [CLIENT]),
        (other_steps, "steps.jsonl: unexpected shape", [DECISIONS, STEPS], [CLIENT]),
        (steps_without_times, "steps.jsonl: unexpected shape", [DECISIONS, STEPS], [CLIENT]),
        (no_counters, "counters.parquet: missing", [DECISIONS], [CLIENT, STEPS]),
        (null_counters, "counters.parquet: ", [DECISIONS], [CLIENT, STEPS]),
        (null_durations, "requests.parquet: ", [CLIENT], [DECISIONS, STEPS]),
        (negative_durations, "requests.parquet: ", [CLIENT], [DECISIONS, STEPS]),
    ],
)
def test_a_bad_file_is_named_and_costs_only_what_needs_it(
    tmp_path, run, spoil, problem, lost, kept
):
    paths = RunPaths(write_run(tmp_path, run))
    spoil(paths.root)
    aggregates, _ = compute(paths, summary(run))
    assert len(aggregates.problems) == 1
    assert aggregates.problems[0].startswith(problem)
    assert all(aggregates.metrics[name] is None for name in lost)
    assert all(aggregates.metrics[name] is not None for name in kept)
    complete, _ = compute(RunPaths(write_run(tmp_path / "whole", run)), summary(run))
    assert set(aggregates.metrics) == set(complete.metrics)


@pytest.mark.parametrize("duration_s", [0, -5, float("nan"), float("inf")])
def test_a_duration_that_can_not_be_is_named(tmp_path, run, duration_s):
    claimed = summary(run) | {"duration_s": duration_s}
    aggregates, _ = compute(RunPaths(write_run(tmp_path, run)), claimed)
    assert aggregates.problems == (f"summary.json: duration_s is {duration_s:g}",)
    assert aggregates.metrics[CLIENT] is None and aggregates.metrics[DECISIONS] is not None


def test_a_mismatch_of_faulty_slots_is_a_problem_and_not_hidden(tmp_path, run):
    folder = write_run(tmp_path, run)
    counters = pl.read_parquet(folder / "counters.parquet").with_columns(
        pl.when(pl.col("slot") == run.faulty[0])
        .then(0)
        .otherwise("http_5xx_total")
        .alias("http_5xx_total")
    )
    counters.write_parquet(folder / "counters.parquet")
    aggregates, _ = compute(RunPaths(folder), summary(run))
    assert aggregates.problems == ("ground truth: 1 faulty slots, 2 expected",)
    assert aggregates.metrics["faulty_matches"] is False
    assert aggregates.metrics["faulty_slots"] == [run.faulty[1]]


def test_a_faulty_set_that_fails_its_check_scores_nobody(tmp_path, run):
    whole, _ = compute(RunPaths(write_run(tmp_path, run)), summary(run))
    claimed = summary(run) | {"ground_truth": {"expected": 3}}
    aggregates, _ = compute(RunPaths(write_run(tmp_path, run)), claimed)
    assert {k for k, v in whole.metrics.items() if v is not None} - {
        k for k, v in aggregates.metrics.items() if v is not None
    } == set(TRUTH_KEYS)
    for name in ("flips", "oscillating_servers", "drained_slots", "requests", "steps"):
        assert aggregates.metrics[name] == whole.metrics[name]
