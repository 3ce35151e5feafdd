"""`python -m serving`, run as a user runs it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.api import ServerSpec
from serving.leftovers import start_ticks
from tests.serving.conftest import CONF
from tests.serving.fake_hub import fake_hub

ROOT = CONF.parent
COMMIT = "50968a4" + "1" * 33
SHARDS = {
    "BF16/Qwen3-0.6B-BF16-00001-of-00002.gguf": b"GGUF one",
    "BF16/Qwen3-0.6B-BF16-00002-of-00002.gguf": b"GGUF two",
    "mmproj-BF16.gguf": b"GGUF eyes",
    "Qwen3-0.6B-Q4_0.gguf": b"GGUF small",
}


def serving(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "serving", *args],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "140", **env},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.fixture(scope="module")
def hub() -> Iterator[str]:
    commits = ["f" * 40, COMMIT]
    with fake_hub("unsloth/Qwen3-0.6B-GGUF", commits, SHARDS) as url:
        yield url


def test_list_shows_every_model_and_what_is_here(tmp_path: Path) -> None:
    done = serving("list", HF_HUB_CACHE=str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line[:1].strip()}
    assert len(set(lines) & {path.stem for path in (CONF / "model").glob("*.yaml")}) == 16
    assert {"local/smollm2-135m", "baseline/threshold"} <= set(lines)
    assert "think/nothink" in lines["qwen3.5-35b-a3b"] and "~70.0 GB" in lines["qwen3.5-35b-a3b"]
    assert "low/medium/high" in lines["gpt-oss-20b"] and "not here" in lines["gpt-oss-20b"]
    assert "error_on/error_off" in lines["static"] and "none needed" in lines["static"]


def test_list_fits_on_80_columns(tmp_path: Path) -> None:
    done = serving("list", HF_HUB_CACHE=str(tmp_path), COLUMNS="80")
    assert "…" not in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "qwen3.5-35b-a3b" in done.stdout and "local/smollm2-135m" in done.stdout


def test_help_teaches() -> None:
    done = serving("--help")
    assert done.returncode == 0
    assert "python -m serving pull qwen3-4b" in done.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["pull", "qwen4"], "no model 'qwen4' in the registry; did you mean"),
        (["serve", "static"], "static is a policy without a model"),
        (["serve", "qwen3-4b"], "fetch it: python -m serving pull qwen3-4b"),
        ([], "arguments are required: COMMAND"),
        (["serve", "qwen3-4b", "--port", "x"], "'x' is no port; python -m serving serve --help"),
        (["--conf", "/nowhere", "list"], "no model files; give the configuration folder"),
    ],
)
def test_wrong_requests_are_one_line_and_exit_code_2(
    args: list[str], message: str, tmp_path: Path
) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = serving(*args, HF_HUB_CACHE=str(tmp_path), DRAINBENCH_LLAMA_SERVER=str(program))
    assert done.returncode == 2
    (line,) = done.stderr.replace("loading Qwen3 4B …\n", "").splitlines()
    assert line.startswith("serving: ") and message in line


def test_pull_fetches_the_pinned_commit_and_only_what_is_needed(hub: str, tmp_path: Path) -> None:
    env = {"HF_ENDPOINT": hub, "HF_HUB_CACHE": str(tmp_path), "HF_HUB_DISABLE_XET": "1"}
    done = serving("pull", "qwen3-0.6b", **env)
    assert done.returncode == 0, done.stderr
    first = Path(done.stdout.partition(": ")[2].strip())
    assert first.name == "Qwen3-0.6B-BF16-00001-of-00002.gguf"
    assert COMMIT in str(first)
    names = {path.name for path in first.parents[1].rglob("*.gguf")}
    assert names == {Path(name).name for name in SHARDS if name.startswith("BF16/")}
    # What is here needs no network.
    again = serving("pull", "qwen3-0.6b", **env | {"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert (again.returncode, again.stdout) == (0, done.stdout)


def test_pull_says_what_the_hub_does_not_have(hub: str, tmp_path: Path) -> None:
    env = {"HF_ENDPOINT": hub, "HF_HUB_CACHE": str(tmp_path / "cache")}
    done = serving("pull", "qwen3-1.7b", **env)
    assert done.returncode == 1
    assert "the hub has no unsloth/Qwen3-1.7B-GGUF@d7f544e" in done.stderr.splitlines()[-1]
    conf = tmp_path / "conf" / "model"
    conf.mkdir(parents=True)
    text = (CONF / "model" / "qwen3-0.6b.yaml").read_text()
    (conf / "qwen3-0.6b.yaml").write_text(text.replace("50968a4", "0000000"))
    done = serving("--conf", str(conf.parent), "pull", "qwen3-0.6b", **env)
    assert "has no commit 0000000…; check weights.revision" in done.stderr.splitlines()[-1]


def test_pull_without_a_network(tmp_path: Path) -> None:
    done = serving("pull", "qwen3-0.6b", HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "can't fetch unsloth/Qwen3-0.6B-GGUF" in line and "set weights.path" in line


def test_serve_prints_where_it_is_and_ends_on_interrupt(real_server: ServerSpec) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "serving", "serve", "smollm2-135m", "--context", "512"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        key = process.stdout.readline().split()[-1]
        assert url.startswith("http://127.0.0.1:") and url.endswith("/v1") and len(key) >= 32
        children = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True
        )
        server = int(children.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert start_ticks(server) is None
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_load_that_takes_long_can_be_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    program, pid_file = tmp_path / "llama-server", tmp_path / "pid"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in --list-devices) exit 0;; esac\n'
        f"echo $$ > {pid_file}.new && mv {pid_file}.new {pid_file} && exec sleep 600\n"
    )
    program.chmod(0o755)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    conf = tmp_path / "conf"
    shutil.copytree(CONF / "serving", conf / "serving")
    (conf / "model").mkdir()
    text = (CONF / "model" / "local" / "smollm2-135m.yaml").read_text()
    package = re.compile(r"(?m)^  package:.*\n  package_file:.*$")
    (conf / "model" / "smollm2-135m.yaml").write_text(
        package.sub(f"  path: {tmp_path / 'm.gguf'}", text)
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "serving", "--conf", str(conf), "serve", "smollm2-135m"],
        cwd=ROOT,
        env=os.environ | {"DRAINBENCH_LLAMA_SERVER": str(program)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60.0
        while not pid_file.exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        server = int(pid_file.read_text())
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130
        assert errors == "loading SmolLM2 135M …\n"
        assert start_ticks(server) is None
    finally:
        process.kill()
        process.communicate()


def test_no_room_on_the_disk(tmp_path: Path) -> None:
    from serving.errors import WeightsUnavailable
    from serving.pull import check_disk

    folder = tmp_path / "not" / "yet" / "there"
    check_disk("m", 1, folder)
    free = shutil.disk_usage(tmp_path).free
    with pytest.raises(WeightsUnavailable, match=r"m: needs .* GB and 2 GiB to spare"):
        check_disk("m", free, folder)
