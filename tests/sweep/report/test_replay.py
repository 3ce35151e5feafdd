from __future__ import annotations

import pytest

from sweep.report.__main__ import main
from sweep.report.replay import collapse, step_lines
from tests.synthetic.run import Model, SyntheticRun
from tests.synthetic.write import step_record, write_store

QWEN = Model("qwen3-4b", "Qwen3 4B", "llm", "Qwen3", 4.0, 4.0, "dense")
BASE = SyntheticRun(QWEN, "think", scale=3, requests=2_000, http_5xx=20)
RUN = SyntheticRun(
    QWEN,
    "think",
    scale=3,
    requests=2_000,
    http_5xx=20,
    toggles={BASE.faulty[0]: (6, 9)},
    trips={6: ("drain_cap",), 20: ("weight_clamp",)},
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return write_store(tmp_path_factory.mktemp("replay"), [RUN])


def test_the_replay_tells_what_happened(store, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main([str(store), "--replay", RUN.run_id]) == 0
    out = capsys.readouterr().out
    slot = RUN.faulty[0]
    assert f"faulty: {slot}; ever drained: {slot}; drained at the end: none" in out
    assert "step 6 at 60.0 s (decided in 0.20 s, 150 tokens)" in out
    assert f"wanted drain {slot}" in out
    assert "rail   drain_cap: dropped (action 2)" in out
    assert f"did    drain {slot}, now drain" in out
    assert f"then   {slot} drain, weight 100" in out
    assert f"did    enable {slot}, now ready" in out
    assert "(weight 100 to 50)" in out
    assert "steps 0 to 5  (0 to 50 s): nothing proposed" in out


def test_quiet_stretches_are_collapsed_and_nothing_is_lost():
    groups = collapse([step_record(RUN, i) for i in range(RUN.step_count)])
    assert [s["step"] for g in groups for s in g] == list(range(60))
    assert [g[0]["step"] for g in groups if len(g) == 1] == [6, 9, 20]


def test_a_failed_step_is_not_quiet():
    record = step_record(RUN, 3) | {"error": "timed out after 60 s"}
    assert len(collapse([step_record(RUN, 2), record])) == 2
    assert ("red", "failed timed out after 60 s") in list(step_lines(record))


def test_refused_actions_say_why():
    record = step_record(RUN, 6)
    record["results"][0] |= {"ok": False, "message": "No such server.", "admin_state_after": None}
    lines = [line for _, line in step_lines(record)]
    assert f"did    drain {RUN.faulty[0]}: refused: No such server." in lines


def test_the_last_words_come_from_the_conversation_where_the_record_has_none():
    record = step_record(RUN, 6) | {"rationale": ""}
    said = {"turns": [{"text": "first"}, {"text": "  last\nwords "}, {"text": "", "error": "x"}]}
    assert ("italic", "said   last words") in list(step_lines(record, said))


def test_an_unknown_run_names_some_that_there_are(store, capsys):
    assert main([str(store), "--replay", "qwen9"]) == 2
    err = capsys.readouterr().err
    assert RUN.run_id in err
    assert err.count("\n") == 1


def test_a_store_without_complete_runs_has_none_to_name(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    assert main([str(tmp_path), "--replay", "qwen9"]) == 2
    assert "; there are none\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", [("--tables", "5"), ("--csv", "x"), ("--html", "x"), ("--runs",)]
)
def test_what_a_replay_would_leave_undone_is_refused(store, option, capsys):
    assert main([str(store), "--replay", RUN.run_id, *option]) == 2
    output, errors = capsys.readouterr()
    assert (output, errors.count("\n")) == ("", 1)
    assert errors.endswith(f"leave out {option[0]}\n")


def test_the_timeline_comes_along_when_figures_are_asked_for(store, tmp_path, capsys):
    assert main([str(store), "--replay", RUN.run_id, "--figures", str(tmp_path / "f")]) == 0
    assert (tmp_path / "f" / "timeline.svg").exists()
    assert (tmp_path / "f" / "timeline.png").exists()


def test_a_run_without_counters_has_no_timeline_in_one_line(tmp_path, capsys):
    store = write_store(tmp_path, [RUN])
    (store / "runs" / RUN.run_id / "counters.parquet").unlink()
    assert main([str(store), "--replay", RUN.run_id, "--figures", str(tmp_path / "f")]) == 2
    assert "no timeline" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("steps.jsonl", '{"a": 1}\n[1, 2]\n'),
        ("steps.jsonl", '{"step": 0, "started_s": null}\n'),
        ("summary.json", "[]"),
        ("summary.json", "{"),
        ("summary.json", "{}"),
    ],
)
def test_a_spoilt_run_is_refused_in_one_line(tmp_path, capsys, name, text):
    folder = write_store(tmp_path, [RUN]) / "runs" / RUN.run_id
    (folder / name).write_text(text)
    assert main([str(tmp_path), "--replay", RUN.run_id]) == 2
    err = capsys.readouterr().err
    assert err.startswith("drainbench: ") and err.count("\n") == 1
    assert RUN.run_id in err
