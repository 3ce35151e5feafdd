"""`python -m testbed`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from testbed import cli, procfs, programs, workdir
from testbed.docker import commands as docker
from testbed.errors import ComponentDied, ProgramMissing
from testbed.leftovers import TestbedInfo
from testbed.workdir import Process, WorkDir
from tests.requirements import require


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "testbed", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.fixture
def up(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    for name in programs.NEEDED:
        require({"redis": "valkey"}.get(name, name), lambda name=name: programs.find(name))
    arguments = ["up", "-n", "1", "--load", "2", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


def test_up_ps_down(up: subprocess.Popen[str], tmp_path: Path) -> None:
    assert up.stdout is not None
    lines = []
    for line in up.stdout:
        lines.append(line.strip())
        if "Ctrl-C" in line:
            break
    said = "\n".join(lines)
    frontend = re.search(r"frontend\s+(\S+)", said)
    assert frontend and httpx.get(frontend.group(1)).status_code in (200, 500)
    assert re.search(r"\d+ requests, \d+ per second", said)
    assert (tmp_path / "out" / "requests.parquet").exists()
    (row,) = [line for line in run("ps").stdout.splitlines() if f"by-hand-{up.pid}" in line]
    assert "components" in row
    down = run("down", row.split()[0])
    assert (down.returncode, down.stdout) == (0, f"removed {row.split()[0]}\n")
    assert up.wait(30) == 0
    assert f"by-hand-{up.pid}" not in run("ps").stdout


def test_ctrl_c_tears_down(up: subprocess.Popen[str]) -> None:
    assert up.stdout is not None
    up.stdout.readline()
    os.kill(up.pid, signal.SIGINT)
    assert up.wait(30) == 0
    assert "tearing down" in up.stdout.read()
    assert f"by-hand-{up.pid}" not in run("ps").stdout


def test_a_wrong_request_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "-n", "0"]) == 2
    assert "0 backends" in capsys.readouterr().err
    assert cli.main(["down", "nothing"]) == 2
    assert "no testbed 'nothing'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["nope"], ["up", "-n", "x"], ["up", "--load", "nan"], ["up", "--load", "x"]),
        *(["up", "--start-timeout", "-1"], ["up", "--driver", "x"], ["down"]),
    ],
)
def test_wrong_arguments_are_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(arguments)
    assert refused.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and "--help" in line


def test_all_that_is_wrong_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "out")
    assert cli.main(["up", "-n", "-1", "--load", "2", "--out", out]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "a fleet of -1 backends" in line
    assert "choose another place with --out" in line


def test_a_refused_request_leaves_no_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "out"
    assert cli.main(["up", "-n", "-1", "--load", "2", "--out", str(out)]) == 2
    assert "--out" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file", "file/out", "nowhere", "x" * 300])
def test_a_folder_that_can_not_be_made_is_refused(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    assert cli.main(["up", "-n", "-1", "--load", "2", "--out", str(tmp_path / name)]) == 2
    assert "choose another place with --out" in capsys.readouterr().err


@pytest.fixture
def left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WorkDir:
    """A local testbed whose owner is dead, on a host whose Docker Engine answers with errors."""

    def broken() -> None:
        raise ComponentDied("listing testbeds: no space left on device")

    monkeypatch.setattr(docker, "list_testbeds", broken)
    monkeypatch.setattr(docker, "sweep_leftovers", broken)
    monkeypatch.setattr(workdir, "roots", lambda: [tmp_path])
    folder = WorkDir.create("local", "run-1")
    monkeypatch.setattr(procfs, "start_ticks", lambda pid: None)
    return folder


@pytest.mark.parametrize("command", ["ps", "gc"])
def test_a_broken_engine_hides_no_local_testbed(
    command: str, left_behind: WorkDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([command]) == 1
    said = capsys.readouterr()
    assert left_behind.name in said.out
    assert said.err == "error: listing testbeds: no space left on device\n"
    assert left_behind.path.exists() is (command == "ps")


def test_a_local_testbed_is_ended_without_asking_an_engine(
    left_behind: WorkDir, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["down", left_behind.name]) == 0
    assert capsys.readouterr() == (f"removed {left_behind.name}\n", "")
    assert not left_behind.path.exists()


@pytest.mark.parametrize("command", [["ps"], ["gc"], ["down", "elsewhere"]])
def test_what_an_engine_may_hold_is_not_denied(
    command: list[str], left_behind: WorkDir, capsys: pytest.CaptureFixture[str]
) -> None:
    left_behind.remove()
    assert cli.main(command) == 1
    said = capsys.readouterr()
    assert (said.out, len(said.err.splitlines())) == ("", 1)


@pytest.mark.parametrize("command", ["ps", "gc"])
def test_ctrl_c_is_no_traceback(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(docker, "list_testbeds", interrupted)
    monkeypatch.setattr(docker, "sweep_leftovers", interrupted)
    assert cli.main([command]) == 130


def test_a_program_that_is_not_there_is_a_wrong_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(arguments: object) -> int:
        raise ProgramMissing("dataplaneapi: /none is no executable file")

    monkeypatch.setattr(docker, "build_image", missing)
    assert cli.main(["build-image"]) == 2
    assert capsys.readouterr().err == "error: dataplaneapi: /none is no executable file\n"


def test_the_table_shows_dead_owners() -> None:
    info = TestbedInfo(
        id="abc",
        path=Path("/tmp/x"),
        kind="local",
        run_id="static-error_on_leastconn_n3_s42",
        owner=Process(1234, 1),
        owner_alive=False,
        foreground=False,
        age_s=7300,
        running=("haproxy", "k6"),
    )
    lines = cli.table([info]).splitlines()
    assert lines[0].split() == ["ID", "DRIVER", "RUN", "OWNER", "AGE", "RUNNING"]
    assert "1234 (dead)" in lines[1]
    assert "2 h" in lines[1]
    assert "2 components" in lines[1]
    assert cli.table([]) == "no testbeds"


def test_the_fleet_by_hand_is_the_one_of_the_configuration() -> None:
    import yaml

    text = (Path(__file__).parents[2] / "conf" / "fleet" / "paper.yaml").read_text()
    config = yaml.safe_load(text)
    assert config["profiles"] == [vars(profile) for profile in cli.PAPER_PROFILES]
    defaults = cli.parser().parse_args(["up"])
    assert (defaults.workers, defaults.threads) == (config["workers"], config["threads"])
