"""The driver's loop where it needs no Ray: a run store that fails ends it at once."""

from __future__ import annotations

import io
import signal
import threading
from pathlib import Path

import pytest
from rich.console import Console

from sweep.cluster.messages import Report
from sweep.cluster.runner import Options, Runner
from sweep.errors import StorageError
from sweep.plan import Plan
from sweep.progress import View
from sweep.schedule import Event
from sweep.store.attempts import AttemptBook
from sweep.store.paths import RunStore
from tests.sweep.test_schedule import point

OPTIONS = Options(testbeds=1, max_attempts=2, run_timeout_s=None, min_free_disk_mib=0, bounds={})


def runner(root: Path, options: Options = OPTIONS) -> Runner:
    store = RunStore(root)
    store.create()
    plan = Plan((point("a"), point("b")), (), (), (), ())
    view = View(Console(file=io.StringIO()), 2, 0, expected_s=1, testbeds=1)
    return Runner(plan, AttemptBook(store), options, view)


def ended(loop: Runner) -> None:
    """Run the loop, which must end by itself; without workers, as no run gets that far."""
    thread = threading.Thread(target=loop._loop, daemon=True)
    thread.start()
    thread.join(20)
    alive = thread.is_alive()
    if alive:
        loop._scheduler.handle = None  # type: ignore[assignment,method-assign]  # ends the thread
    assert not alive, "the loop never ends"


def test_a_disk_that_fills_up_between_runs_ends_the_sweep(tmp_path):
    full = Options(1, 2, None, min_free_disk_mib=10**9, bounds={})
    loop = runner(tmp_path / "s", full)
    ended(loop)
    assert "MiB are free" in str(loop._storage_error)


@pytest.mark.parametrize("min_free_disk_mib", [0, 10**9], ids=["unwritable", "full"])
def test_the_ways_out_are_said_once(tmp_path, monkeypatch, min_free_disk_mib):
    loop = runner(tmp_path / "s", Options(1, 2, None, min_free_disk_mib, bounds={}))
    monkeypatch.setattr(loop, "_new_worker", lambda testbed: None)
    monkeypatch.setattr(loop, "_kill_all", lambda: None)
    monkeypatch.setattr(View, "stopping", lambda *_: None)
    loop.book.store.attempts.rmdir()
    loop.book.store.attempts.write_text("no folder")
    with pytest.raises(StorageError) as stopped:
        loop.run()
    said = str(stopped.value)
    assert (said.count("again"), said.count("sweep.dir=")) == (1, 1), said
    assert ("can't be written" in said) is (min_free_disk_mib == 0)


def test_a_store_that_can_no_longer_be_written_ends_the_sweep(tmp_path):
    loop = runner(tmp_path / "s")
    loop.book.store.attempts.rmdir()
    loop.book.store.attempts.write_text("no folder")
    ended(loop)
    assert "can't be written" in str(loop._storage_error)


def test_the_error_names_the_way_out_and_signals_are_given_back(tmp_path, monkeypatch):
    loop = runner(tmp_path / "s")
    monkeypatch.setattr(loop, "_new_worker", lambda testbed: None)
    monkeypatch.setattr(loop, "_kill_all", lambda: None)
    monkeypatch.setattr(loop, "_loop", lambda: loop._stop_for_storage("it can't be written"))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(StorageError, match=r"can't be written\. .*sweep\.dir="):
        loop.run()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("stopped_by", ["storage", "signal"])
def test_once_it_stops_one_signal_kills(tmp_path, monkeypatch, stopped_by):
    loop = runner(tmp_path / "s")
    monkeypatch.setattr(loop._scheduler, "handle", lambda event: [])  # it waits for ever
    rounds = []

    def wait(timeout_s: float) -> list[Event]:
        rounds.append(timeout_s)
        if len(rounds) == 2:  # in the first, nothing has been pressed since it stops
            loop._on_signal(signal.SIGINT, None)
        assert len(rounds) < 3, "it does not end"
        return []

    monkeypatch.setattr(loop, "_wait", wait)
    if stopped_by == "storage":
        loop._stop_for_storage("it can't be written")
    else:
        loop._on_signal(signal.SIGINT, None)
    loop._loop()
    assert len(rounds) == 2
    assert loop.interrupted is (stopped_by == "signal")


def test_an_attempt_that_can_not_be_closed_is_left_to_the_next_sweep(tmp_path, monkeypatch):
    loop = runner(tmp_path / "s")
    number = loop.book.open(point("a"))

    def read_only(_path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", read_only)
    loop.book.fail(point("a"), number, Report("interrupted", "stopped"))
    with pytest.raises(StorageError, match=r"Read-only file system\. .*sweep\.dir="):
        loop.book.bury_orphans()
