"""What dead owners left is removed; what others own is not."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import leftovers, procfs, workdir
from testbed.leftovers import list_testbeds, sweep_leftovers
from testbed.workdir import MAX_SOCKET_PATH, Process, WorkDir
from tests.testbed.conformance import eventually


@pytest.fixture(autouse=True)
def roots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(workdir, "roots", lambda: [tmp_path])
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def identity(process: subprocess.Popen[bytes]) -> Process:
    return Process(process.pid, procfs.start_ticks(process.pid) or 0)


def dead_owner(folder: WorkDir, **changes: object) -> None:
    """Make the record say that a process which has ended owns it."""
    ended = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
    ended.wait()
    path = folder.path / "owner.json"
    raw = json.loads(path.read_text()) | {"process": {"pid": ended.pid, "ticks": 1}} | changes
    path.write_text(json.dumps(raw))


def test_the_folder_is_private_and_short(roots: Path) -> None:
    folder = WorkDir.create("local", "run-1")
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert len(str(folder.path / "haproxy.sock")) <= MAX_SOCKET_PATH
    (info,) = list_testbeds()
    assert (info.kind, info.run_id, info.owner.pid, info.owner_alive) == (
        "local",
        "run-1",
        os.getpid(),
        True,
    )


def test_a_long_temporary_folder_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(workdir, "roots", lambda: [deep, tmp_path])
    assert WorkDir.create("local", "run").path.parent == tmp_path


def test_a_dead_owners_processes_and_folder_go(sleeper: subprocess.Popen[bytes]) -> None:
    folder = WorkDir.create("local", "run")
    folder.record("haproxy", identity(sleeper))
    dead_owner(folder)
    assert sweep_leftovers() == [folder.name]
    assert eventually(lambda: sleeper.poll() is not None)
    assert not folder.path.exists()


def test_a_living_owners_testbed_stays(sleeper: subprocess.Popen[bytes]) -> None:
    folder = WorkDir.create("local", "run")
    folder.record("haproxy", identity(sleeper))
    assert sweep_leftovers() == []
    assert sleeper.poll() is None
    assert folder.path.exists()
    assert list_testbeds()[0].running == ("haproxy",)


def test_a_process_that_got_a_recorded_pid_later_is_spared(
    sleeper: subprocess.Popen[bytes],
) -> None:
    folder = WorkDir.create("local", "run")
    folder.record("haproxy", Process(sleeper.pid, identity(sleeper).ticks - 1))
    dead_owner(folder)
    assert sweep_leftovers() == [folder.name]
    assert sleeper.poll() is None


def test_an_owner_whose_pid_was_reused_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    folder = WorkDir.create("local", "run")
    dead_owner(folder, process={"pid": sleeper.pid, "ticks": identity(sleeper).ticks - 1})
    assert sweep_leftovers() == [folder.name]
    assert sleeper.poll() is None


def test_after_a_reboot_pids_mean_nothing(sleeper: subprocess.Popen[bytes]) -> None:
    folder = WorkDir.create("local", "run")
    folder.record("haproxy", identity(sleeper))
    dead_owner(folder, boot="another")
    assert sweep_leftovers() == [folder.name]
    assert sleeper.poll() is None


def test_another_pid_namespaces_testbed_is_left_alone() -> None:
    folder = WorkDir.create("local", "run")
    dead_owner(folder, namespace="pid:[1]")
    assert sweep_leftovers() == []
    assert folder.path.exists()


def test_a_folder_without_a_record_is_left_until_it_is_old(roots: Path) -> None:
    fresh, old, foreign = (roots / f"drainbench-{name}" for name in ("fresh", "old", "foreign"))
    for path in (fresh, old, foreign):
        path.mkdir()
    (foreign / "thesis.txt").write_text("precious")
    for path in (old, foreign):
        os.utime(path, (1, 1))
    assert sweep_leftovers() == ["old"]
    assert fresh.exists()
    assert foreign.exists()


def test_half_a_line_in_the_record_is_passed_over(sleeper: subprocess.Popen[bytes]) -> None:
    folder = WorkDir.create("local", "run")
    folder.record("haproxy", identity(sleeper))
    with (folder.path / "children.jsonl").open("a") as stream:
        stream.write('{"name": "k6", "pi')
    assert list(folder.children()) == ["haproxy"]


def test_a_link_is_never_followed(roots: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir()
    (roots / "drainbench-link").symlink_to(target)
    assert leftovers.sweep_leftovers() == []
    assert target.exists()
