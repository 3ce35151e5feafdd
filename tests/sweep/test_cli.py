"""Wrong requests: one line, the way out, exit code 2, nothing started. Right ones: the plan."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sweep.__main__ import main as command_line
from sweep.cluster.ray_session import RaySession, _first_success, find_servants
from sweep.errors import RequestError, StorageError
from sweep.report.__main__ import main as report_main
from sweep.status import main as status_main
from sweep.store.atomic import append_line, write_json, write_yaml
from sweep.store.lock import StoreLock
from sweep.store.owner import Owner
from sweep.store.paths import RunStore

ROOT = Path(__file__).resolve().parents[2]


def sweep(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sweep", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
    )


def refusal(*arguments: str, **environment: str) -> str:
    """The one line with which a request is refused."""
    done = sweep(*arguments, **environment)
    assert done.returncode == 2, (done.stdout, done.stderr)
    # What earlier sweeps of this machine left is told, too, once a store is open.
    told = [x for x in done.stderr.strip().splitlines() if not x.startswith("removed what a dead")]
    (line,) = told
    assert line.startswith("drainbench: ")
    return line


def test_the_papers_command_is_240_runs_and_plans_them_by_model(tmp_path):
    done = sweep(
        *("-m", "model=glob(*)", "scale=3,5,7,9", "sweep.dry_run=true", f"sweep.dir={tmp_path}/s"),
        COLUMNS="200",
    )
    assert done.returncode == 0, done.stderr
    assert "240 runs in" in done.stdout
    assert "0 done, 240 to do" in done.stdout
    assert "15 model loads" in done.stdout
    runs = [line.split()[2] for line in done.stdout.splitlines() if line.startswith("to do ")]
    assert len(set(runs)) == 240
    assert all(run.startswith("static-") for run in runs[:16])
    models = [run.split("_")[0].rsplit("-", 1)[0] for run in runs]
    changes = sum(a != b for a, b in itertools.pairwise(models))
    assert changes == 15, "every model is loaded once"
    assert not (tmp_path / "s").exists(), "a dry run writes nothing"


def test_unknown_model():
    assert "model/qwen9" in refusal("model=qwen9")


def test_unknown_mode_names_the_models_own():
    line = refusal("model=gpt-oss-20b", "mode=think")
    assert "unknown mode think" in line
    assert "high, low, medium" in line


def test_a_wrong_flag_is_one_line_too():
    line = refusal("--nope")
    assert "unrecognized arguments: --nope" in line and "python -m sweep --help" in line
    assert "all KEY=VALUE go together" in refusal("model=static", "-m", "scale=3,5")


def test_a_key_without_a_default_is_named_in_full():
    assert "serving.base_url=" in refusal("model=local/smollm2-135m", "serving=url")


def test_empty_glob():
    assert "the grid is empty" in refusal("-m", "model=glob(nothing*)")


def test_unknown_key():
    assert "no knob no_such_key in what was chosen; python -m sweep" in refusal("no_such_key=1")
    assert "did you mean duration_s?" in refusal("durations_s=10")
    assert "did you mean load.vus_per_backend?" in refusal("-m", "load.vus_per_backnd=1,2")


def test_a_key_that_nothing_reads_is_no_knob():
    assert "durations_s is no knob" in refusal("+durations_s=10", "sweep.dry_run=true")


@pytest.mark.parametrize(
    "setting",
    [
        "hydra/sweeper=basic",
        "hydra/launcher=basic",
        "hydra.run.dir=x",
        "hydra.output_subdir=.hydra",
    ],
)
def test_how_hydra_works_is_the_sweeps(setting, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "sweep", "-m", setting, "scale=3,5", "sweep.dry_run=true"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"drainbench: {setting}: ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_group_needs_an_option():
    assert "name of one of its options" in refusal("controller=null")


def test_no_backends():
    assert "scale=0" in refusal("model=static", "scale=0")


def test_wrong_knob_of_a_room_is_named():
    assert "controller.guardrails.max_drains" in refusal(
        "model=static", "controller.guardrails.max_drains=many"
    )


def test_start_at_needs_a_run_of_the_grid():
    assert "start_at=nope" in refusal("model=static", "sweep.start_at=nope")


def test_all_that_is_missing_is_told_at_once_with_the_way_to_get_it(tmp_path):
    line = refusal(
        "-m",
        *("model=local/smollm2-135m,granite-4.0-350m", f"sweep.dir={tmp_path}/s"),
        *("testbed.programs.k6=/no/such/k6", "testbed.programs.haproxy=/no/such/haproxy"),
        "serving.program=/no/such/llama-server",
    )
    for part in ("/no/such/k6", "/no/such/haproxy", "/no/such/llama-server", "make llama-server"):
        assert part in line
    assert "python -m serving pull granite-4.0-350m" in line
    assert not (tmp_path / "s").exists()


def test_a_store_that_can_not_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    line = refusal("model=static", f"sweep.dir={tmp_path}/file/store")
    assert "can't be written" in line
    assert "sweep.dir" in line


def test_too_little_disk(tmp_path):
    line = refusal("model=static", f"sweep.dir={tmp_path}/s", "sweep.min_free_disk_mib=999999999")
    assert "MiB are free" in line
    assert not (tmp_path / "s").exists()


def test_a_lock_that_can_not_be_written(tmp_path):
    lock = tmp_path / ".lock"
    lock.mkdir()
    with pytest.raises(StorageError, match=r"can't be written: .*sweep\.dir="):
        StoreLock(lock).acquire()


def test_a_store_whose_record_can_not_be_written(tmp_path):
    (tmp_path / "s" / "sweep.yaml").mkdir(parents=True)
    line = refusal("model=static", f"sweep.dir={tmp_path}/s", "sweep.min_free_disk_mib=0")
    assert "can't be written" in line


# --- status ---------------------------------------------------------------------------------------


def test_status_of_no_store(tmp_path, capsys):
    assert status_main([str(tmp_path)]) == 2
    assert "is no run store (looked for" in capsys.readouterr().err


def test_status_counts_done_running_failed_and_to_do(tmp_path, capsys):
    store = RunStore(tmp_path / "s")
    store.create()
    runs = ["a", "b", "c", "d", "e"]
    write_yaml(store.sweep_yaml, {"invocations": [{"runs": runs[:3]}, {"runs": runs[2:]}]})
    for run_id, valid in (("a", True), ("b", False)):
        store.run(run_id).root.mkdir()
        write_json(
            store.run(run_id).summary,
            {"phases_s": {"total": 100.0}, "valid": valid, "invalid_reasons": ["too slow"]},
        )
    running = store.attempt("c", 1)
    running.root.mkdir()
    write_json(running.owner, Owner.current().to_dict())
    record = {"step": 4, "snapshot": {"errors_per_s_total": 2.5}}
    running.steps.write_text(json.dumps(record) + '\n{"step": 5, "snap')
    append_line(store.failures, {"run_id": "d", "outcome": "infrastructure", "reason": "redis"})
    append_line(store.failures, {"run_id": "e", "outcome": "interrupted", "reason": "stopped"})
    assert status_main([str(store.root)]) == 0
    out = capsys.readouterr().out
    assert "5 runs, sweep not running" in out
    assert ["2", "1", "1", "1"] in [line.split() for line in out.splitlines()]
    assert "c (attempt 1): step 5, 2.50 5xx/s" in out
    assert "d: redis" in out
    assert "b: too slow" in out
    assert "about 3 min 20 s left" in out


def test_status_of_a_spoilt_store(tmp_path, capsys):
    store = RunStore(tmp_path / "s")
    store.create()
    store.sweep_yaml.write_bytes(b"\xff\xfe not: [yaml")
    summaries = {"a": "[]", "b": '{"valid": true}', "c": "{", "d": "null"}
    for run_id, text in summaries.items():
        store.run(run_id).root.mkdir()
        store.run(run_id).summary.write_text(text)
    store.run("e").root.mkdir()
    store.failures.write_bytes(b'null\n[1]\n{"run_id": 5}\n\xff\n{"run_id": "f", "outc')
    assert status_main([str(store.root)]) == 0
    out = capsys.readouterr().out
    assert out.count("unreadable summary.json") == 5
    assert store.read_failures() == []


# --- Ctrl-C ---------------------------------------------------------------------------------------


def test_ctrl_c_before_the_first_run_is_one_line(monkeypatch, capsys):
    def pressed() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sweep.command.main", pressed)
    with pytest.raises(SystemExit) as stopped:
        command_line()
    assert stopped.value.code == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert "Run the same command again" in line


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_sigterm_or_sighup_before_the_first_run_is_the_same_line(name):
    code = (
        "import os, signal, sys, types\n"
        "fake = types.ModuleType('sweep.command')\n"
        f"fake.main = lambda: os.kill(os.getpid(), signal.{name})\n"
        "sys.modules['sweep.command'] = fake\n"
        "from sweep.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 130
    (line,) = done.stderr.splitlines()
    assert "Run the same command again" in line


@pytest.mark.parametrize("main", [status_main, report_main])
@pytest.mark.parametrize("arguments", [[], ["store", "--nope"]])
def test_status_and_report_refuse_wrong_arguments_in_one_line(main, arguments, capsys):
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("drainbench: ") and "--help" in line


# --- Ray ------------------------------------------------------------------------------------------


def test_ray_gets_a_second_try_on_a_busy_machine():
    calls = []

    def start() -> str:
        calls.append("start")
        if len(calls) == 1:
            raise Exception("timed out")  # Ray's own class for it
        return "ray"

    assert _first_success(start, lambda: calls.append("undo")) == "ray"
    assert calls == ["start", "undo", "start"]


def test_sigterm_while_ray_starts_is_a_stop_like_any_other():
    def start() -> str:
        raise SystemExit(15)  # from Ray's own handler

    with pytest.raises(KeyboardInterrupt):
        _first_success(start, lambda: None)


def test_ray_that_does_not_start_is_one_line():
    def start() -> str:
        raise Exception("timed out\nduring startup.\n" + "a log's line\n" * 100)

    with pytest.raises(RequestError, match="Ray did not start here: timed out during") as refused:
        _first_success(start, lambda: None)
    assert len(str(refused.value)) < 500 and "\n" not in str(refused.value)


def test_a_session_whose_ray_died_is_not_alive():
    servant = subprocess.Popen(["sleep", "60"])
    session = RaySession(None, (psutil.Process(servant.pid),))
    assert session.alive()
    servant.kill()  # not waited for: a zombie is dead, too
    deadline = time.monotonic() + 30
    while session.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not session.alive()
    servant.wait()
    assert not session.alive()


def test_a_servant_that_died_while_ray_started_is_noticed(tmp_path):
    for name in ("raylet", "gcs_server"):
        (tmp_path / name).symlink_to(shutil.which("sleep"))
    servants = [subprocess.Popen([tmp_path / name, "60"]) for name in ("raylet", "gcs_server")]
    children = [psutil.Process(servant.pid) for servant in servants]
    try:
        assert [c.pid for c in find_servants(children)] == [s.pid for s in servants]
        servants[1].kill()
        os.waitid(os.P_PID, servants[1].pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(RuntimeError, match="its gcs_server died at once"):
            find_servants(children)
    finally:
        for servant in servants:
            servant.kill()
            servant.wait()


def test_a_fleet_that_does_not_fit_into_memory(tmp_path):
    line = refusal("model=static", "scale=100000", f"sweep.dir={tmp_path}/s")
    assert "a fleet of 100000 backends takes some" in line
