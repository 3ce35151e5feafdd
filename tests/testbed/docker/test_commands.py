"""`python -m testbed` with Docker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from docker.errors import APIError

from testbed import cli
from testbed.docker import leftovers
from tests.testbed.docker.rig import DockerRig


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-m", "testbed", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_up_ps_down_gc(rig: DockerRig, tmp_path: Path) -> None:
    up = subprocess.Popen(
        [sys.executable, "-m", "testbed", "up", "--driver", "docker", "-n", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert up.stdout is not None
        said = ""
        for line in up.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        frontend = re.search(r"frontend\s+(\S+)", said)
        assert frontend, said
        assert httpx.get(frontend.group(1)).status_code == 200
        name = f"by-hand-{up.pid}"
        (row,) = [line for line in run("ps").stdout.splitlines() if name in line]
        assert row.split()[1] == "docker"
        assert row.split()[0] not in run("gc").stdout
        traces = rig.traces(name)
        assert len(traces) > 5
        down = run("down", row.split()[0])
        assert (down.returncode, down.stdout) == (0, f"removed {row.split()[0]}\n")
        assert {t for t in rig.remaining(traces) if t[0] in "cn"} == set(), "containers, network"
        assert up.wait(60) == 0
        assert rig.remaining(traces) == set()
    finally:
        up.kill()
        up.wait()


def test_without_an_engine(tmp_path: Path) -> None:
    nowhere = f"unix://{tmp_path}/none.sock"
    up = run("up", "--driver", "docker", DOCKER_HOST=nowhere)
    assert up.returncode == 2
    assert up.stderr.startswith("error: Docker is not running")
    assert len(up.stderr.splitlines()) == 1
    assert run("ps", DOCKER_HOST=nowhere).returncode == 0
    assert run("gc", DOCKER_HOST=nowhere).returncode == 0
    assert run("ps", DOCKER_HOST=nowhere).stderr == ""
    build = run("build-image", DOCKER_HOST=nowhere)
    assert build.returncode == 2
    assert build.stderr.startswith("error: Docker is not running")


def test_an_engine_that_can_not_be_asked_is_said() -> None:
    # It may hold testbeds: an empty list would be a wrong answer.
    ps = run("ps", DOCKER_HOST="tcp://192.0.2.1:1")
    assert ps.returncode == 0
    assert ps.stderr.startswith("note: testbeds in Docker are left out: DOCKER_HOST=tcp:")


def test_an_engine_that_breaks_down_is_one_line(
    rig: DockerRig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise APIError("no space left on device")

    monkeypatch.setattr(leftovers, "list_testbeds", refuse)
    for command in (["ps"], ["gc"], ["down", "x"]):
        assert cli.main(command) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert "no space left on device" in line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--load", "none.tar"], "there is no file none.tar to load"),
        (["--load", "none.tar", "--save", "a.tar"], "leave out --save"),
        (["--save", "no/folder/a.tar"], "no/folder/a.tar can't be written"),
        (["--save", "/"], "/ can't be written"),
    ],
)
def test_wrong_requests_are_found_before_anything_is_built(
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["build-image", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
