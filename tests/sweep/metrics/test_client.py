from __future__ import annotations

import polars as pl
import pytest

from sweep.metrics.client import match_baselines


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


def matched(failed, baseline_failed, **changes):
    runs = pl.DataFrame([run("s", "static", baseline_failed), run("x", "llm", failed, **changes)])
    return match_baselines(runs).filter(run_id="x").row(0, named=True)


def test_a_regression_is_negative():
    row = matched(767, 100)
    assert row["reduction_pct"] == pytest.approx(-667.0)
    assert (row["avoided"], row["reduction_abs"]) == (-667, pytest.approx(-0.0667))


def test_undefined_reductions():
    nobody = matched(0, 20, requests=0)
    assert [nobody[k] for k in ("reduction_abs", "reduction_pct", "avoided")] == [None] * 3
    spotless = matched(1, 0)
    assert (spotless["reduction_abs"], spotless["reduction_pct"]) == (pytest.approx(-1e-4), None)


def test_cost_effectiveness_is_per_thousand_completion_tokens():
    assert matched(0, 1_000, completion_tokens=10_183)["cost_eff"] == pytest.approx(98.2, abs=0.01)
    assert matched(0, 1_000, completion_tokens=0)["cost_eff"] is None
