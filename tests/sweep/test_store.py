"""The run store: landing, locking, orphans, numbers of attempts."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
import yaml

from sweep.errors import StorageError, StoreBusy
from sweep.grid import RunPoint
from sweep.store.atomic import publish_dir, write_json
from sweep.store.attempts import AttemptBook
from sweep.store.lock import StoreLock, held
from sweep.store.owner import Owner
from sweep.store.paths import RunStore


@dataclass
class Failure:
    outcome: str = "infrastructure"
    reason: str = "redis died"


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path / "store")
    store.create()
    return store


POINT = RunPoint(
    run_id="static-error_on_leastconn_n3_s42",
    model="static",
    mode="error_on",
    algorithm="leastconn",
    scale=3,
    seed=42,
    policy="static",
    fingerprint="1-abc",
    config={"scale": 3},
)


def test_an_attempt_lands_by_one_rename_with_its_config(store):
    book = AttemptBook(store)
    number = book.open(POINT)
    attempt = store.attempt(POINT.run_id, number)
    write_json(attempt.summary, {"fingerprint": "1-abc"})
    assert store.complete_ids() == []
    book.publish(POINT, number)
    assert store.complete_ids() == [POINT.run_id]
    assert store.all_attempts() == []
    run = store.run(POINT.run_id)
    assert not run.owner.exists()
    assert yaml.safe_load(run.config.read_text()) == {
        "fingerprint": "1-abc",
        "config": {"scale": 3},
    }


def test_a_replaced_run_is_set_aside_not_overwritten(store):
    book = AttemptBook(store)
    for name in ("first", "second"):
        number = book.open(POINT)
        write_json(store.attempt(POINT.run_id, number).summary, {"name": name})
        book.publish(POINT, number)
    assert store.read_summary(POINT.run_id) == {"name": "second"}
    (old,) = store.replaced.iterdir()
    assert json.loads((old / "summary.json").read_text()) == {"name": "first"}


def test_publishing_over_a_complete_run_is_refused(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with pytest.raises(FileExistsError):
        publish_dir(tmp_path / "a", tmp_path / "b")


def test_attempts_are_numbered_on_and_failures_are_told_with_their_logs(store):
    book = AttemptBook(store)
    assert book.open(POINT) == 1
    book.fail(POINT, 1, Failure())
    assert book.open(POINT) == 2
    (record,) = store.read_failures()
    assert (record["run_id"], record["attempt"]) == (POINT.run_id, 1)
    assert record["reason"] == "redis died"
    assert record["logs"] == f"attempts/{POINT.run_id}.1/logs"


def test_orphans_are_buried_once_and_live_ones_are_not_complete(store):
    book = AttemptBook(store)
    book.open(POINT)
    assert book.bury_orphans() == [f"{POINT.run_id}.1"]
    assert book.bury_orphans() == []
    assert [r["outcome"] for r in store.read_failures()] == ["orphaned"]
    assert store.complete_ids() == []


def test_a_failure_line_cut_by_a_crash_is_left_out(store):
    whole = {"run_id": "a", "outcome": "fatal", "reason": "why"}
    store.failures.write_text(json.dumps(whole) + '\n{"run_id": "b", "rea')
    assert store.read_failures() == [whole]


def test_a_dotted_run_id_keeps_its_dots(store):
    store.attempt("qwen3.5-0.8b-think_leastconn_n3_s42", 2).root.mkdir(parents=True)
    (attempt,) = store.all_attempts()
    assert (attempt.run_id, attempt.number) == ("qwen3.5-0.8b-think_leastconn_n3_s42", 2)


def test_too_little_disk_is_told_with_the_knob(store):
    with pytest.raises(StorageError, match=r"sweep\.min_free_disk_mib"):
        AttemptBook(store).require_free_disk(10**9)


HOLD = """
import sys
from pathlib import Path
from sweep.store.lock import StoreLock
StoreLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


def test_a_second_sweep_is_refused_while_the_first_lives_and_not_after_its_sigkill(store):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store.lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert held(store.lock)
        with pytest.raises(StoreBusy, match=rf"pid {holder.pid} on "):
            StoreLock(store.lock).acquire()
    finally:
        holder.kill()
        holder.wait()
    assert not held(store.lock)
    with StoreLock(store.lock):
        assert held(store.lock)


def test_an_owner_is_told_from_a_later_process_with_its_pid():
    me = Owner.current()
    assert me.pid == os.getpid()
    assert me.alive() is True
    assert Owner(me.host, me.pid, me.started_at_s - 100).alive() is False
    assert Owner("another-host", 1, 0.0).alive() is None
    assert Owner.from_dict({"pid": "x"}) is None
    assert Owner.from_dict(json.loads(json.dumps(me.to_dict()))) == me


def test_the_lock_holds_on_a_full_disk(store, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sweep.store.lock.os.write", full)
    with StoreLock(store.lock):
        assert held(store.lock)
    assert not held(store.lock)
