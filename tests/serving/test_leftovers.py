"""Servers of dead owners are ended; nobody else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.leftovers import forget, record, start_ticks, state_dir, sweep_leftovers
from tests.serving.test_child import wait_until_gone


@pytest.fixture(autouse=True)
def empty_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAINBENCH_CACHE", str(tmp_path))


@pytest.fixture
def server() -> Iterator[subprocess.Popen[bytes]]:
    """A process that no parent-death signal protects us from."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_server_of_a_living_owner_is_left_alone(server: subprocess.Popen[bytes]) -> None:
    path = record(server.pid, "llama-server m")
    assert sweep_leftovers() == []
    assert path.exists() and server.poll() is None
    forget(path)
    forget(path)
    assert list(state_dir().iterdir()) == []


def test_a_server_of_a_dead_owner_is_ended(server: subprocess.Popen[bytes]) -> None:
    path = record(server.pid, "llama-server m")
    edit(path, owner_pid=dead_pid())
    assert sweep_leftovers() == [f"llama-server m (pid {server.pid})"]
    assert wait_until_gone(server.pid) and not path.exists()
    assert sweep_leftovers() == []


def test_a_reused_owner_pid_is_not_the_owner(server: subprocess.Popen[bytes]) -> None:
    edit(record(server.pid, "m"), owner_start_ticks=1)
    assert len(sweep_leftovers()) == 1


def test_a_reused_server_pid_is_never_killed(server: subprocess.Popen[bytes]) -> None:
    path = record(server.pid, "m")
    edit(path, owner_pid=dead_pid(), start_ticks=(start_ticks(server.pid) or 0) - 1)
    assert sweep_leftovers() == []
    assert server.poll() is None and not path.exists()


def test_a_record_from_before_a_reboot_is_only_removed(server: subprocess.Popen[bytes]) -> None:
    path = record(server.pid, "m")
    edit(path, owner_pid=dead_pid(), boot_id="another")
    assert sweep_leftovers() == []
    assert server.poll() is None and not path.exists()


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", '{"pid": null}'])
def test_a_broken_record_is_removed(content: str) -> None:
    state_dir().mkdir(parents=True)
    path = state_dir() / "1.json"
    path.write_text(content)
    assert sweep_leftovers() == []
    assert not path.exists()


def test_start_ticks_of_the_living_the_dead_and_the_undead() -> None:
    assert start_ticks(os.getpid()) == start_ticks(os.getpid())
    assert start_ticks(dead_pid()) is None
    zombie = subprocess.Popen(["true"])
    try:
        assert wait_until_gone(zombie.pid)  # ended, not yet reaped
    finally:
        zombie.wait()
