"""Children die with their parent, in every way that a parent can die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from serving.child import Child
from serving.leftovers import start_ticks

PARENT = """
import sys, time
from pathlib import Path
from serving.child import Child
child = Child(["sleep", "600"], {"PATH": "/usr/bin:/bin"}, Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(600)
"""
ENV = {"PATH": "/usr/bin:/bin"}


def wait_until_gone(pid: int, deadline_s: float = 30.0) -> bool:
    end = time.monotonic() + deadline_s
    while start_ticks(pid) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_dies_with_its_parent(tmp_path: Path, number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert start_ticks(pid) is not None
    parent.send_signal(number)
    parent.wait(30)
    parent.stdout.close()
    assert wait_until_gone(pid)


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    children: list[Child] = []
    thread = threading.Thread(
        target=lambda: children.append(Child(["sleep", "600"], ENV, tmp_path / "log"))
    )
    thread.start()
    thread.join()
    (child,) = children
    try:
        time.sleep(0.2)  # the signal would come with the thread's end, not later
        assert child.exit_code() is None
    finally:
        child.stop()
    assert child.exit_code() == -signal.SIGTERM


def test_stop_ends_a_child_that_ignores_it_and_one_that_is_frozen(tmp_path: Path) -> None:
    script = "trap '' TERM; echo ready; while :; do sleep 0.1; done"
    stubborn = Child(["sh", "-c", script], ENV, tmp_path / "stubborn.log")
    while "ready" not in stubborn.log_tail():
        time.sleep(0.02)
    stubborn.stop(grace_s=0.1)
    assert stubborn.exit_code() == -signal.SIGKILL
    frozen = Child(["sleep", "600"], ENV, tmp_path / "frozen.log")
    os.kill(frozen.pid, signal.SIGSTOP)
    frozen.stop(grace_s=0.1)
    assert frozen.exit_code() in (-signal.SIGTERM, -signal.SIGKILL)
    frozen.stop()  # again: nothing happens


def test_stop_takes_the_whole_group(tmp_path: Path) -> None:
    child = Child(["sh", "-c", "sleep 600 & echo $!; wait"], ENV, tmp_path / "log")
    while not child.log_tail().isdecimal():
        time.sleep(0.02)
    grandchild = int(child.log_tail())
    child.stop()
    assert wait_until_gone(grandchild)


def test_exit_code_and_log_of_a_child_that_ended(tmp_path: Path) -> None:
    child = Child(["sh", "-c", "echo one; echo two >&2; exit 3"], ENV, tmp_path / "a" / "log")
    while child.exit_code() is None:
        time.sleep(0.02)
    assert child.exit_code() == 3
    assert child.log_tail() == "one\ntwo"
    assert child.log_tail(lines=1) == "two"
    child.stop()


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Child([str(tmp_path / "absent")], ENV, tmp_path / "log")
