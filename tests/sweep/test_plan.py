"""What of a grid is done and what is to do."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sweep.errors import Mismatch, RequestError
from sweep.grid import RunPoint
from sweep.main import _closing_words, _tell_invalid
from sweep.plan import expected_time_s, make_plan
from sweep.planview import print_plan
from sweep.store.atomic import write_json
from sweep.store.paths import RunStore


def point(name: str, policy: str = "static", fingerprint: str = "1-a", **config) -> RunPoint:
    return RunPoint(
        run_id=f"{name}-m_leastconn_n3_s42",
        model=name,
        mode="m",
        algorithm="leastconn",
        scale=3,
        seed=42,
        policy=policy,
        fingerprint=fingerprint,
        config={"duration_s": 600, "model": {"policy": policy}, **config},
    )


def test_complete_runs_are_skipped_and_the_rest_is_ordered_for_warm_models():
    a, s, b, a2 = (
        point("a", "llm"),
        point("static"),
        point("b", "llm"),
        point("a", "llm"),
    )
    a2 = RunPoint(**{**a2.__dict__, "run_id": "a-m_leastconn_n5_s42", "scale": 5})
    plan = make_plan([a, s, b, a2], {b.run_id: "1-a"})
    assert [p.run_id for p in plan.todo] == [s.run_id, a.run_id, a2.run_id]
    assert [p.run_id for p in plan.done] == [b.run_id]
    assert plan.model_loads == ("a",)


def test_another_fingerprint_is_refused_with_the_differing_keys():
    new = point("static", fingerprint="1-b", duration_s=60)
    with pytest.raises(Mismatch, match=r"static-m_leastconn_n3_s42 .*duration_s: 600 -> 60"):
        make_plan(
            [new],
            {new.run_id: "1-a"},
            stored_config=lambda _: point("static").config,
        )


def test_equal_settings_of_another_fingerprint_are_called_an_earlier_version():
    new = point("static", fingerprint="2-a")
    with pytest.raises(Mismatch, match="is complete from an earlier version of drainbench"):
        make_plan([new], {new.run_id: "1-a"}, stored_config=lambda _: new.config)


def test_an_unreadable_summary_counts_as_a_mismatch():
    new = point("static")
    with pytest.raises(Mismatch, match=r"summary of static-m_leastconn_n3_s42 .* can't be read"):
        make_plan([new], {new.run_id: None})


def test_rerun_sets_aside_and_keep_keeps():
    new = point("static", fingerprint="1-b")
    rerun = make_plan([new], {new.run_id: "1-a"}, on_mismatch="rerun")
    assert (rerun.todo, rerun.replaced, rerun.kept) == ((new,), (new,), ())
    keep = make_plan([new], {new.run_id: "1-a"}, on_mismatch="keep")
    assert (keep.todo, keep.replaced, keep.kept) == ((), (), (new,))
    with pytest.raises(RequestError, match="on_mismatch=maybe"):
        make_plan([new], {}, on_mismatch="maybe")


def test_what_is_kept_counts_as_done_in_every_line_of_the_plan(tmp_path):
    new = point("static", fingerprint="1-b")
    plan = make_plan([new], {new.run_id: "1-a"}, on_mismatch="keep")
    console = Console(file=io.StringIO(), width=100)
    store = RunStore(tmp_path)
    print_plan(console, plan, store, left_out=0, expected_s=0.0, every_run=False)
    lines = console.file.getvalue().splitlines()
    assert lines[1].split() == ["static", "m", "1", "0"]
    assert lines[2].endswith(": 1 done, 0 to do")
    assert lines[3] == "1 run of another configuration kept as found"


def test_start_at_leaves_out_what_comes_before_in_the_order_of_running():
    a, s = point("a", "llm"), point("static")
    plan = make_plan([a, s], {}, start_at=a.run_id)
    assert plan.todo == (a,)
    assert plan.before_start == (s,)
    with pytest.raises(RequestError, match="start_at=nope is not a run of this grid"):
        make_plan([a, s], {}, start_at="nope")


def test_expected_time_counts_durations_overheads_and_loads():
    plan = make_plan([point("a", "llm"), point("static")], {})
    assert expected_time_s(plan, testbeds=1, overhead_s=10, load_s=60) == 2 * 610 + 60
    assert expected_time_s(plan, testbeds=2, overhead_s=10, load_s=60) == 610 + 60


def stored(store: RunStore, run: RunPoint, fingerprint: str, valid: bool = True) -> None:
    store.run(run.run_id).root.mkdir(parents=True)
    write_json(store.run(run.run_id).summary, {"fingerprint": fingerprint, "valid": valid})


@pytest.mark.parametrize(
    ("interrupted", "code", "said"),
    [(False, 1, "0 runs completed, 0 failed, 1 not made"), (True, 130, "1 run missing")],
)
def test_a_run_that_was_to_be_made_again_and_was_not_is_missing(tmp_path, interrupted, code, said):
    """Its predecessor of another configuration is still there."""
    store, new = RunStore(tmp_path), point("static", fingerprint="9-b")
    stored(store, new, "9-a")
    plan = make_plan([new], {new.run_id: "9-a"}, on_mismatch="rerun")
    console = Console(file=io.StringIO(), width=200)
    assert _closing_words(plan, store, {}, interrupted, console) == code
    assert said in console.file.getvalue()
    store.run(new.run_id).summary.unlink()
    write_json(store.run(new.run_id).summary, {"fingerprint": "9-b"})
    assert _closing_words(plan, store, {}, False, console) == 0


def test_done_runs_that_are_invalid_are_told(tmp_path, capsys):
    store, good, bad = RunStore(tmp_path), point("a"), point("b")
    stored(store, good, "1-a")
    stored(store, bad, "1-a", valid=False)
    _tell_invalid(make_plan([good, bad], dict.fromkeys((good.run_id, bad.run_id), "1-a")), store)
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith(
        "1 run of the done marked invalid, so in no table: b-m_leastconn_n3_s42."
    )
    _tell_invalid(make_plan([good], {good.run_id: "1-a"}), store)
    assert capsys.readouterr().out == ""
