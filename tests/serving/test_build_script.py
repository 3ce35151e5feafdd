"""`scripts/build-llama-server.sh` without building: done already, and what it needs."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.serving.conftest import CONF

SCRIPT = CONF.parent / "scripts" / "build-llama-server.sh"


def build(cache: Path, **env: str) -> subprocess.CompletedProcess[str]:
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run(
        [bash, str(SCRIPT)],
        env={**os.environ, "DRAINBENCH_CACHE": str(cache), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def stamp() -> str:
    text = SCRIPT.read_text()
    values = dict(re.findall(r"^(\w+)=([\w.-]+)", text, re.MULTILINE))
    return (
        f"llama.cpp {values['LLAMA_COMMIT']} ({values['PACKAGE']} {values['PACKAGE_VERSION']}, "
        f"cpu, {platform.machine()})"
    )


@pytest.mark.skipif(shutil.which("nvcc") is not None, reason="would be a build with CUDA")
def test_what_is_built_is_not_built_again(tmp_path: Path) -> None:
    folder = tmp_path / "llama-server"
    folder.mkdir()
    program = folder / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (folder / "version").write_text(stamp() + "\n")
    done = build(tmp_path)
    assert done.returncode == 0
    assert done.stderr == f"llama-server: already built: {stamp()}, {program}\n"


def test_a_missing_compiler_is_named_before_anything_is_fetched(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cat", "dirname", "uname", "mkdir", "flock", "rm", "tar", "cc", "ls"):
        path = shutil.which(name)
        if path is not None:
            (tools / name).symlink_to(path)
    done = build(tmp_path / "cache", PATH=str(tools))
    assert done.returncode == 2
    assert done.stderr == "llama-server: no c++; install it: apt-get install build-essential\n"
