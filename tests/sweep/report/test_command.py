from __future__ import annotations

import csv
import re
import subprocess
import sys

import pytest

from sweep.report.__main__ import main
from sweep.report.memo import FILE as MEMO


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_demo_store_in_the_terminal(demo_store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = run(capsys, demo_store)
    assert (code, err) == (0, "")
    assert "4 of 4 complete runs reported" in out
    assert "Nothing was left out." in out
    for title in ("what the clients saw", "what the policies decided", "client latency", "steps"):
        assert title in out
    assert "Threshold rule" in out
    cut = [line for line in out.splitlines() if "…" in line and line != "… continued"]
    assert not cut
    assert max(len(line) for line in out.splitlines()) <= 100
    assert re.search(r"SmolLM2 135M +leastconn +3 +— +0\.000 +0\.000", out), "undefined precision"


def test_two_hundred_and_forty_runs_in_a_hundred_columns(paper_store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, _ = run(capsys, paper_store)
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 100
    for number in range(5, 15):
        assert f"Table {number}." in out
    assert "† 0.913" in out
    assert "Single runs: --runs" in out
    cut = [line for line in out.splitlines() if "…" in line and line != "… continued"]
    assert all("… of the exact ones" in line for line in cut), cut


def test_a_narrow_terminal_cuts_nothing_off(demo_store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    code, out, _ = run(capsys, demo_store, "--tables", "runs-latency,8")
    assert code == 0
    assert "… continued" in out
    assert "18.29" in out or "p99" in out


@pytest.mark.parametrize("make", ["missing", "empty", "file"])
def test_no_store_is_exit_code_2_in_one_line(tmp_path, make, capsys):
    place = tmp_path / "there"
    if make == "empty":
        place.mkdir()
    elif make == "file":
        place.write_text("")
    code, out, err = run(capsys, place)
    assert code == 2
    assert out == ""
    assert err.startswith("drainbench: ")
    assert str(place) in err
    assert "run" in err
    assert err.count("\n") == 1


def test_an_unknown_table_names_those_that_there_are(demo_store, capsys):
    code, _, err = run(capsys, demo_store, "--tables", "6,99")
    assert code == 2
    assert "no table 99; there are " in err
    assert err.count("\n") == 1


def test_only_the_tables_that_were_asked_for(demo_store, capsys):
    code, out, _ = run(capsys, demo_store, "--tables", "6,8")
    assert code == 0
    assert "Table 6." in out
    assert "Table 8." in out
    assert "Table 5." not in out
    assert "what the clients saw" not in out


def test_what_is_left_out_is_counted_and_listed(demo_store, capsys):
    broken = demo_store / "runs" / "static-error_on_leastconn_n3_s42" / "requests.parquet"
    broken.write_bytes(b"PAR1")
    code, out, _ = run(capsys, demo_store)
    assert code == 0
    assert "1 incomplete, 2 unmatched" in out
    assert "requests.parquet: unreadable" in out
    assert "no static error-on run of N=3" in out


def test_csv_has_every_table_and_every_run(demo_store, tmp_path, capsys):
    code, _, err = run(capsys, demo_store, "--csv", tmp_path / "csv")
    assert code == 0
    assert "wrote" in err
    with (tmp_path / "csv" / "table06.csv").open() as file:
        lines = list(csv.DictReader(file))
    rule = next(x for x in lines if x["row"] == "Threshold rule" and x["column"] == "Exact")
    assert (rule["value"], rule["n"], rule["method"]) == ("1.0", "1", "Wilson")
    with (tmp_path / "csv" / "runs.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    names = {p.name for p in (tmp_path / "csv").iterdir()}
    assert {f"table{n:02}.csv" for n in range(5, 15)} | {"left_out.csv"} <= names


def test_a_place_that_can_not_be_written_is_exit_code_2(demo_store, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, _, err = run(capsys, demo_store, "--csv", tmp_path / "file" / "csv")
    assert code == 2
    assert err.startswith("drainbench: ")
    assert err.count("\n") == 1


def test_intervals_are_remembered_and_a_spoilt_memory_is_ignored(demo_store, capsys, monkeypatch):
    _, first, _ = run(capsys, demo_store)
    assert (demo_store / MEMO).exists()

    def fail(*_):
        raise AssertionError("computed again")

    with monkeypatch.context() as patched:
        patched.setattr("sweep.metrics.intervals.newcombe", fail)
        patched.setattr("sweep.metrics.intervals.bootstrap", fail)
        _, second, _ = run(capsys, demo_store)
    assert second == first
    (demo_store / MEMO).write_text("{")
    _, third, _ = run(capsys, demo_store)
    assert third == first


def test_a_cached_report_imports_nothing_slow(demo_store):
    """scipy, statsmodels and matplotlib take longer to import than the report may take."""
    script = (
        "import sys; from sweep.report.__main__ import main; main([sys.argv[1]]); "
        "slow = {'scipy', 'statsmodels', 'matplotlib', 'pandas', 'jinja2'} & set(sys.modules); "
        "sys.exit(f'imported {slow}' if slow else 0)"
    )
    for attempt in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", script, str(demo_store)], capture_output=True, text=True
        )
        if attempt == 2:
            assert done.returncode == 0, done.stderr
