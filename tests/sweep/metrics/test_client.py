from __future__ import annotations

import polars as pl
import pytest

from sweep.metrics.client import ErrorCount, cost_effectiveness, match_baselines, reduction


def test_reduction_in_all_three_measures():
    found = reduction(ErrorCount(30, 10_000), ErrorCount(200, 10_000))
    assert found is not None
    assert found.absolute == pytest.approx(0.017)
    assert found.percent == pytest.approx(85.0)
    assert found.avoided_requests == 170


def test_a_regression_is_negative():
    found = reduction(ErrorCount(767, 10_000), ErrorCount(100, 10_000))
    assert found is not None
    assert found.percent == pytest.approx(-667.0)
    assert found.avoided_requests == -667


def test_undefined_reductions():
    assert reduction(ErrorCount(0, 0), ErrorCount(1, 10)) is None
    spotless = reduction(ErrorCount(1, 10), ErrorCount(0, 10))
    assert spotless is not None
    assert spotless.percent is None


def test_cost_effectiveness_is_per_thousand_completion_tokens():
    assert cost_effectiveness(12_362, 10_183) == pytest.approx(1214, abs=0.5)
    assert cost_effectiveness(5, 0) is None


def run(run_id, policy, failed, **changes):
    values = {
        "run_id": run_id,
        "policy": policy,
        "error_mode": "error_on",
        "http_5xx": failed,
        "requests": 10_000,
        "completion_tokens": 2_000 if policy == "llm" else 0,
        "scale": 3,
        "algorithm": "leastconn",
        "seed": 42,
        "duration_s": 600.0,
        "testbed": "docker",
        "setting": "paper",
    }
    return values | changes


def test_runs_are_matched_on_everything_that_makes_them_comparable():
    runs = pl.DataFrame(
        [
            run("static", "static", 200),
            run("static-off", "static", 0, error_mode="error_off"),
            run("llm", "llm", 20),
            *(
                run(f"other-{key}-{value}", "llm", 20, **{key: value})
                for key, value in (
                    ("scale", 5),
                    ("algorithm", "roundrobin"),
                    ("seed", 7),
                    ("duration_s", 60.0),
                    ("testbed", "local"),
                    ("setting", "other"),
                    ("setting", None),
                )
            ),
        ]
    )
    found = {row["run_id"]: row for row in match_baselines(runs).iter_rows(named=True)}
    assert found["llm"]["baseline_run_id"] == "static"
    assert found["llm"]["reduction_pct"] == pytest.approx(90.0)
    assert found["llm"]["reduction_abs"] == pytest.approx(0.018)
    assert found["llm"]["avoided"] == 180
    assert found["llm"]["cost_eff"] == pytest.approx(90.0)
    for name, row in found.items():
        if name != "llm":
            assert row["baseline_run_id"] is None
            assert row["reduction_pct"] is None


def test_of_several_matching_statics_the_first_by_id_counts():
    runs = pl.DataFrame([run("b", "static", 100), run("a", "static", 200), run("z", "rule", 20)])
    row = match_baselines(runs).filter(run_id="z").row(0, named=True)
    assert (row["baseline_run_id"], row["baseline_5xx"]) == ("a", 200)
    assert row["cost_eff"] is None
