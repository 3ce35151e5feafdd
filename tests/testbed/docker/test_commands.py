"""`python -m testbed` with Docker."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import httpx

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
        assert run("down", row.split()[0]).returncode == 0
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
    assert run("build-image", DOCKER_HOST=nowhere).returncode == 1
