from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import polars as pl
import pytest
from rich.console import Console
from statsmodels.stats.proportion import confint_proportions_2indep

from sweep import paper
from sweep.report.cells import NOTHING, Column, brackets, shown
from sweep.report.load import load
from sweep.report.memo import Intervals
from sweep.report.tables.context import Context, policy_label
from sweep.report.tables.registry import ALL, PAPER_TABLES
from sweep.report.terminal import print_table
from sweep.store.paths import RunStore
from tests.synthetic.run import STATIC, Model, SyntheticRun
from tests.synthetic.write import write_store


def cells(table, *labels):
    for row in table.rows:
        if row.labels == labels:
            return {c.key: cell for c, cell in zip(table.columns, row.cells, strict=True)}
    raise AssertionError(f"no row {labels} in {[r.labels for r in table.rows]}")


def test_floors_of_table_5(paper_context):
    table = ALL["5"](paper_context)
    assert [row.labels for row in table.rows] == [("3",), ("5",), ("7",), ("9",)]
    for scale, floor in (("3", 1.667), ("5", 2.0), ("7", 1.429), ("9", 1.667)):
        row = cells(table, scale)
        assert row["floor"].value == pytest.approx(floor, abs=0.06)
        assert row["floor"].interval.low < floor < row["floor"].interval.high
        assert row["floor"].paper == paper.value("5", scale, "floor")
        assert row["structural"].value == pytest.approx(floor, abs=1e-3)
        assert row["faulty"].difference == 0
        assert (row["users"].value, row["users"].difference) == (10 * int(scale), 0)


def test_users_of_table_5_where_runs_differ_or_do_not_say(tmp_path):
    static = SyntheticRun(STATIC, "error_on")
    runs = [
        replace(static, algorithm=lb, scale=n) for lb in ("leastconn", "roundrobin") for n in (3, 5)
    ]
    store = write_store(tmp_path, runs)
    for run, users in zip(runs, (None, 50, None, 40), strict=True):
        path = store / "runs" / run.run_id / "summary.json"
        record = json.loads(path.read_text())
        record["load"].pop("vus")
        record["load"] |= {} if users is None else {"vus": users}
        path.write_text(json.dumps(record))
    table = ALL["5"](Context(load(RunStore(store)), Intervals()))
    users = next(c for c in table.columns if c.key == "users")
    assert shown(cells(table, "3")["users"], users) == NOTHING
    assert shown(cells(table, "5")["users"], users) == "40, 50"


@pytest.mark.parametrize("title", paper.TITLES)
def test_localization_of_every_model_is_that_of_table_6(paper_context, title):
    row = cells(ALL["6"](paper_context), title)
    for key in ("n", "precision", "recall", "f1", "exact"):
        known = paper.value("6", title, key)
        assert row[key].paper == known
        if known is None:
            assert row[key].value is None
        else:
            assert row[key].value == pytest.approx(known, abs=5.1e-4)


def test_the_pooled_row_is_the_papers_headline(paper_context):
    row = cells(ALL["6"](paper_context), "All LLM runs")
    assert row["n"].value == 224
    assert [round(row[k].value, 3) for k in ("precision", "recall", "f1", "exact")] == [
        0.913, 0.792, 0.848, 0.665,
    ]  # fmt: skip
    assert row["f1"].interval.method == "bootstrap over runs"
    assert row["f1"].interval.n == 224
    assert row["f1"].interval.low < 0.848 < row["f1"].interval.high
    assert row["exact"].interval.method == "Wilson"


@pytest.mark.parametrize("scale", paper.SCALES)
def test_scaling_is_that_of_tables_10_and_13(paper_context, scale):
    row = cells(ALL["10"](paper_context), scale)
    for key in ("precision", "recall", "f1", "exact"):
        assert row[key].value == pytest.approx(paper.value("10", scale, key), abs=5.1e-4)
    assert row["fired_pct"].value == pytest.approx(paper.value("10", scale, "fired_pct"), abs=5e-3)
    row = cells(ALL["13"](paper_context), scale)
    for key in ("steps", "fired_drain_cap", "fired_action_cap", "fired_weight_clamp"):
        assert row[key].difference == 0


def test_pooled_numbers_of_the_text(paper_context):
    table = ALL["pooled"](paper_context)
    found = {row.labels[0]: row.cells[0] for row in table.rows}
    assert found["True positives, slots"].value == 355
    assert found["False positives, slots"].value == 34
    assert found["False negatives, slots"].value == 93
    for label, value in (
        ("Ever-drained set is exact, % of runs", 66.5),
        ("Final drained set is exact, % of runs", 30.4),
        ("… of the exact ones, reverted by the end, % of runs", 55.7),
        ("At least one oscillating server, % of runs", 80.4),
        ("Drained at least one faulty server, % of runs", 87.1),
        ("Drained all of them, % of runs", 75.0),
    ):
        assert found[label].value == pytest.approx(value, abs=0.06), label
    assert found["Rails hit, % of steps"].value == pytest.approx(1.63, abs=5e-3)


def test_reasoning_splits_all_llm_runs_in_two_as_the_papers_shares_do(paper_context):
    table = ALL["pooled"](paper_context)
    found = {row.labels[0]: row.cells[0] for row in table.rows}
    shares = [found[f"Final set exact, {key} reasoning, % of runs"] for key in ("with", "without")]
    assert [s.n for s in shares] == [112, 112]
    # 38.4% and 22.3% of 112 are the paper's 68 of 224 that end correctly; of 88 they are not.
    assert sum(round(s.paper * s.n / 100) for s in shares) == 68
    assert sum(round(s.value * s.n / 100) for s in shares) == 68


def test_families_and_efforts_come_in_the_papers_order(paper_context):
    families = [row.labels[0] for row in ALL["7"](paper_context).rows]
    assert families == list(paper.TABLES["7"].rows)
    policies = [row.labels[0] for row in ALL["models-outcome"](paper_context).rows]
    assert [p for p in policies if p.startswith("GPT")] == [
        f"GPT-OSS 20B {effort}" for effort in ("low", "medium", "high")
    ]


def test_an_absolute_reduction_has_the_newcombe_interval_of_statsmodels(paper_context):
    run = paper_context.llm.row(0, named=True)
    table = ALL["runs-client"](paper_context)
    label = (policy_label(run), run["algorithm"], str(run["scale"]))
    cell = cells(table, *label)["reduction_abs"]
    low, high = confint_proportions_2indep(
        run["baseline_5xx"],
        run["baseline_requests"],
        run["http_5xx"],
        run["requests"],
        method="newcomb",
    )
    assert cell.value == pytest.approx(
        100 * (run["baseline_5xx"] / run["baseline_requests"] - run["http_5xx"] / run["requests"])
    )
    assert (cell.interval.low, cell.interval.high) == pytest.approx((100 * low, 100 * high))
    assert cell.interval.method == "Newcombe"


def test_no_percent_reduction_is_more_than_all(tmp_path):
    """Short runs: Newcombe's upper end lies beyond the baseline's rate."""
    static = SyntheticRun(STATIC, "error_on", http_5xx=30, completion_tokens=0)
    best = SyntheticRun(TINY, "none", http_5xx=1)
    context = Context(load(RunStore(write_store(tmp_path, [static, best]))), Intervals())
    row = cells(ALL["runs-client"](context), "Tiny 1B", "leastconn", "3")
    assert row["reduction_abs"].interval.high > 100 * 30 / 2_000
    percent = row["reduction_pct"]
    assert percent.value == pytest.approx(100 * 29 / 30)
    assert (percent.interval.high, percent.interval.note) == (100.0, "cut at 100%")
    assert percent.interval.low == pytest.approx(row["reduction_abs"].interval.low * 2_000 / 30)


def test_a_printed_interval_says_its_own_n_unless_the_row_does(paper_context):
    firing = ALL["13"](paper_context)
    assert brackets(firing.rows[0].cells[-1], firing.columns[-1])[0][1] == 56
    mean = cells(ALL["8"](paper_context), "LLM · <3B active")["mean_ms"]
    requests = paper_context.runs.filter(
        (pl.col("policy") == "llm") & (pl.col("active_params_b") < 3)
    )["latency_n"].sum()
    assert [n for _, n in brackets(mean, Column("mean_ms", "Mean"))] == [requests, 96]
    out = Console(record=True, width=120, file=StringIO())
    print_table(out, ALL["9"](paper_context))
    print_table(out, ALL["6"](paper_context))
    text = out.export_text()
    assert text.count("n = 12") == text.count("n = 16") == 8
    assert "n = 224" not in text


def test_table_8_pools_all_requests_of_an_arm(paper_context):
    table = ALL["8"](paper_context)
    assert [row.labels[0] for row in table.rows] == [
        "Static · healthy floor",
        "Static · uncontrolled",
        "LLM · <3B active",
        "LLM · ≥3B active",
    ]
    for (key, runs), row in zip(
        (("healthy", 8), ("uncontrolled", 8), ("sub", 96), ("supra", 128)), table.rows, strict=True
    ):
        found = {c.key: cell for c, cell in zip(table.columns, row.cells, strict=True)}
        assert found["runs"].value == runs
        known = paper.value("8", key, "requests")
        assert found["requests"].value == round(0.002 * known)
        mean = found["mean_ms"]
        assert mean.interval.method == "Student t"
        assert mean.second.method == "bootstrap over runs"
        assert mean.interval.low < mean.value < mean.interval.high
        assert mean.second.n == runs


def test_table_9_is_exact_over_pooled_requests(paper_loaded, paper_context):
    import numpy as np

    row = cells(ALL["9"](paper_context), "9", "roundrobin")
    runs = paper_loaded.runs.filter(
        (pl.col("policy") == "llm") & (pl.col("active_params_b") >= 3)
    ).filter(scale=9, algorithm="roundrobin")
    raw = pl.concat(
        pl.read_parquet(paper_loaded.store.run(r).requests, columns=["duration_us"])
        for r in runs["run_id"]
    )
    known = np.quantile(raw["duration_us"].to_numpy(), 0.95) / 1000
    assert row["supra"].value == pytest.approx(known)
    assert row["supra"].interval.n == runs.height == 32 // 2


def test_medians_of_table_12_equal_polars(paper_loaded, paper_context):
    llm = paper_loaded.runs.filter(policy="llm", scale=5, algorithm="leastconn")
    cell = cells(ALL["12"](paper_context), "5")["leastconn"]
    assert cell.value == pytest.approx(llm.select(pl.col("reduction_pct").median()).item())
    assert cell.n == 28


def test_table_14_groups_as_the_paper_does(paper_context):
    table = ALL["14"](paper_context)
    assert [row.labels[0] for row in table.rows] == list(paper.TABLES["14"].rows)
    think = cells(table, "think")
    assert think["n"].value == 88
    assert think["steps"].value == 50
    assert think["over_budget"].value == pytest.approx(72.7, abs=0.1)
    assert think["completion_per_step"].value == 1546
    assert cells(table, "GPT-OSS high")["steps"].value == 27.5


def test_every_table_of_the_paper_has_the_papers_values_beside_it(paper_context):
    for key in PAPER_TABLES:
        if key == "pooled":
            continue
        table = ALL[key](paper_context)
        shown = {cell.paper for row in table.rows for cell in row.cells if cell.paper is not None}
        known = {v for row in paper.TABLES[key].rows.values() for v in row.values()}
        assert known <= shown, key


def test_each_interval_names_its_method_and_each_cell_its_n(paper_context):
    for make in ALL.values():
        for row in make(paper_context).rows:
            for cell in row.cells:
                for interval in (cell.interval, cell.second):
                    if interval is not None:
                        assert interval.method
                        assert interval.n > 0
                if cell.value is not None:
                    assert cell.n is not None


def test_duplicating_every_run_doubles_n_and_moves_no_estimate(paper_loaded, paper_context):
    runs = paper_loaded.runs
    twice = Context(replace(paper_loaded, runs=pl.concat([runs, runs])), Intervals())
    for key in ("6", "12"):
        for one, two in zip(ALL[key](paper_context).rows, ALL[key](twice).rows, strict=True):
            for a, b in zip(one.cells[1:], two.cells[1:], strict=True):
                assert a.value == pytest.approx(b.value)
                assert b.n == 2 * a.n
                if a.interval is not None and a.interval.note == "":
                    assert b.interval.n == 2 * a.interval.n
                    width = a.interval.high - a.interval.low
                    assert b.interval.high - b.interval.low <= width + 1e-9


def test_the_order_of_runs_changes_no_table(paper_loaded, paper_context):
    shuffled = paper_loaded.runs.sample(fraction=1, shuffle=True, seed=3)
    other = Context(replace(paper_loaded, runs=shuffled), Intervals())
    for key in ("5", "6", "7", "8", "10", "11", "12", "13", "14", "pooled", "runs-client"):
        assert ALL[key](other) == ALL[key](paper_context), key


TINY = Model("tiny", "Tiny 1B", "llm", "Tiny", 1.0, 1.0, "dense")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory) -> Context:
    """A model and scales that the paper has not; one scale lacks roundrobin."""
    runs = [
        SyntheticRun(model, mode, lb, scale, http_5xx=failed, completion_tokens=tokens)
        for model, mode, failed, tokens in ((STATIC, "error_on", 30, 0), (TINY, "none", 12, 90))
        for lb, scale in (("leastconn", 4), ("leastconn", 6), ("roundrobin", 6))
    ]
    root = write_store(tmp_path_factory.mktemp("foreign"), runs)
    return Context(load(RunStore(root)), Intervals())


def test_other_models_and_scales_are_shown_without_the_papers_column(foreign):
    row = cells(ALL["6"](foreign), "Tiny 1B")
    assert row["n"].value == 3
    assert all(cell.paper is None for cell in row.values())
    table = ALL["10"](foreign)
    assert [r.labels for r in table.rows] == [("4",), ("6",)]
    assert all(cell.paper is None for r in table.rows for cell in r.cells)
    assert "outside the paper: Tiny 1B" in " ".join(table.notes)
    assert "No runs at N = 3, 5, 7, 9." in table.notes
    # The policy never drained: undefined precision, F1 of 0.
    assert row["precision"].value is None
    assert row["f1"].value == 0


def test_cells_without_runs_say_so(foreign):
    row = cells(ALL["12"](foreign), "4")
    assert row["leastconn"].value == pytest.approx(60.0)
    assert (row["roundrobin"].value, row["roundrobin"].note) == (None, "no runs")


def test_tables_of_a_store_without_llm_runs_are_empty_but_there(tmp_path):
    root = write_store(tmp_path, [SyntheticRun(STATIC, "error_on", completion_tokens=0)])
    context = Context(load(RunStore(root)), Intervals())
    for key, make in ALL.items():
        table = make(context)
        assert bool(table.rows) == (
            key in ("5", "8", "9", "runs-client", "runs-latency", "runs-cost")
        )


@pytest.fixture(scope="module")
def undecided(tmp_path_factory) -> Context:
    """Three runs of one model: one decided, one never got to, one lost its ground truth."""
    base = SyntheticRun(TINY, "none", scale=3, http_5xx=12)
    drains = replace(base, toggles={base.faulty[0]: (6,)})
    silent = replace(base, scale=5, steps=0)
    lost = replace(base, scale=7, http_5xx=15)
    statics = [
        SyntheticRun(STATIC, "error_on", scale=n, http_5xx=30, completion_tokens=0)
        for n in (3, 5, 7)
    ]
    root = write_store(tmp_path_factory.mktemp("undecided"), [drains, silent, lost, *statics])
    (root / "runs" / lost.run_id / "counters.parquet").unlink()
    return Context(load(RunStore(root)), Intervals())


def test_a_policy_that_never_got_to_decide_has_no_number_anywhere(undecided):
    assert [i.reason for i in undecided.loaded.left_out if "_n5_" in i.run_id] == [
        "steps.jsonl: no steps"
    ]
    client = cells(ALL["runs-client"](undecided), "Tiny 1B", "leastconn", "5")
    assert client["requests"].value == 2_000
    assert client["reduction_pct"].value is client["avoided"].value is None
    assert client["reduction_pct"].note == "no steps"
    for key, counted in (("runs-decisions", ()), ("runs-cost", ("steps", "failed_steps"))):
        row = cells(ALL[key](undecided), "Tiny 1B", "leastconn", "5")
        assert {k for k, cell in row.items() if cell.value is not None} == set(counted)
    for key in ("6", "models-outcome", "models-behaviour", "models-cost"):
        assert cells(ALL[key](undecided), "Tiny 1B")["n"].value == 2
    assert cells(ALL["6"](undecided), "Tiny 1B")["f1"].value == 1.0
    assert [r.labels for r in ALL["10"](undecided).rows] == [("3",), ("7",)]
    assert cells(ALL["8"](undecided), "LLM · <3B active")["runs"].value == 2


def test_counts_of_runs_that_can_not_be_scored_are_not_zero(undecided):
    row = cells(ALL["11"](undecided), "7", "leastconn")
    assert (row["acted"].value, row["resolved"].value) == (None, None)
    row = cells(ALL["11"](undecided), "3", "leastconn")
    assert (row["acted"].value, row["acted"].n) == (1, 1)


def test_firings_of_runs_whose_steps_are_unreadable_are_not_zero(tmp_path):
    run = SyntheticRun(TINY, "none")
    root = write_store(tmp_path, [run])
    (root / "runs" / run.run_id / "steps.jsonl").write_text("{")
    row = cells(ALL["13"](Context(load(RunStore(root)), Intervals())), "3")
    assert {row[k].value for k in row if k != "n"} == {None}
