"""Children that never outlive their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import psutil
import pytest

from testbed.errors import ComponentDied, TestbedError
from testbed.processes import Command, environment, sample, spawn, stop_groups
from tests.testbed.conformance import eventually


def command(tmp_path: Path, code: str, **changes: object) -> Command:
    values = {
        "argv": (sys.executable, "-S", "-c", textwrap.dedent(code)),
        "log": tmp_path / "child.log",
        "cwd": tmp_path,
    }
    return Command(**(values | changes))  # type: ignore[arg-type]


SLEEP = "import time; time.sleep(600)"


def gone(process: psutil.Process) -> bool:
    """Whether it has ended; its new parent may not have reaped it yet."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    code = f"""
        import sys, time
        from pathlib import Path
        from testbed.processes import Command, spawn
        folder = Path({str(tmp_path)!r})
        child = spawn("c", Command((sys.executable, "-c", {SLEEP!r}), folder / "log", folder))
        print(child.pid, flush=True)
        time.sleep(600)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
    finally:
        parent.kill()
        parent.wait()
    assert eventually(lambda: gone(child), 15)


def test_a_child_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    children = []
    thread = threading.Thread(target=lambda: children.append(spawn("c", command(tmp_path, SLEEP))))
    thread.start()
    thread.join()
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            children[0].process.wait(0.5)
    finally:
        stop_groups(children)
    assert children[0].poll() == -signal.SIGTERM


def test_stopping_a_child_stops_its_whole_group_even_if_it_refuses(tmp_path: Path) -> None:
    code = f"""
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        inner = subprocess.Popen([sys.executable, "-S", "-c", {SLEEP!r}])
        print(inner.pid, flush=True)
        time.sleep(600)
    """
    child = spawn("c", command(tmp_path, code))
    assert eventually(lambda: child.log_tail() != "")
    inner = psutil.Process(int(child.log_tail()))
    stop_groups([child], grace_s=0.2)
    assert child.poll() == -signal.SIGKILL
    assert gone(inner)


def test_how_a_child_ended_is_told(tmp_path: Path) -> None:
    child = spawn("thing", command(tmp_path, "print('one'); print('two'); raise SystemExit(7)"))
    assert eventually(lambda: child.poll() is not None)
    error = child.died()
    assert isinstance(error, ComponentDied)
    assert str(error) == "thing ended on its own (exit code 7); last words: one | two"


def test_a_child_that_a_signal_stopped_is_noticed_while_it_is(tmp_path: Path) -> None:
    # A shell that does not replace itself: the member that is stopped is not the leader.
    argv = ("/bin/sh", "-c", "sleep 600; true")
    child = spawn("c", command(tmp_path, "", argv=argv))
    try:
        assert eventually(lambda: psutil.Process(child.pid).children(), 15)
        (member,) = psutil.Process(child.pid).children()
        sample([child])
        assert not child.stopped
        member.suspend()
        assert eventually(lambda: sample([child]) or child.stopped, 15)
        assert "c was stopped by a signal" in str(child.halted())
        member.resume()
        assert eventually(lambda: sample([child]) or not child.stopped, 15)
    finally:
        stop_groups([child])
    assert gone(member)


def test_usage_counts_ended_children_too(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.4: pass"
    code = f"""
        import subprocess, sys, time
        subprocess.run([sys.executable, "-S", "-c", {burn!r}])
        print("done", flush=True)
        time.sleep(600)
    """
    child = spawn("c", command(tmp_path, code))
    try:
        assert eventually(lambda: child.log_tail() == "done", 60)
        sample([child])
        assert child.usage.cpu_s >= 0.35
        assert child.usage.max_rss_bytes > 4 << 20
    finally:
        stop_groups([child])


def test_usage_of_a_child_that_has_ended(tmp_path: Path) -> None:
    child = spawn("c", command(tmp_path, "import time\nwhile time.process_time() < 0.4: pass"))
    assert eventually(lambda: child.poll() is not None, 60)
    assert child.usage.cpu_s >= 0.35


def test_what_can_not_be_started_is_told(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"thing can't be started: .*nowhere"):
        spawn("thing", command(tmp_path, "", argv=("/nowhere",)))


def test_secrets_of_the_caller_do_not_reach_components(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K6_VUS", "1000")
    monkeypatch.setenv("API_KEY", "secret")
    assert set(environment(HOME="/tmp/x")) <= {"PATH", "TMPDIR", "LANG", "LC_ALL", "HOME"}


def test_a_descriptor_is_handed_over(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    code = f"import os; os.write({writing}, b'here')"
    child = spawn("c", command(tmp_path, code, pass_fds=(writing,)))
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        assert stream.read() == b"here"
    stop_groups([child])
