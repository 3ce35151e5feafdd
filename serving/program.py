"""Where the llama-server program is, which version it is, and which devices it can use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.errors import ProgramMissing

ENVIRONMENT_VARIABLE = "DRAINBENCH_LLAMA_SERVER"
_ASK_TIMEOUT_S = 60.0
_WAY_OUT = f"build one with `make llama-server`, or set {ENVIRONMENT_VARIABLE} or serving.program"


@dataclass(frozen=True)
class Device:
    """A device that llama-server can put layers on, as llama-server itself reports it."""

    name: str
    title: str
    total_mib: int
    free_mib: int


def cache_dir() -> Path:
    """The project's cache folder: `$DRAINBENCH_CACHE`, else the user's cache folder."""
    if own := os.environ.get("DRAINBENCH_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drainbench"


def find_llama_server(configured: str | None = None) -> Path:
    """The program: configured path, environment variable, PATH, then the cache.

    Raises `ProgramMissing`. A path that was asked for and isn't there is an error, never skipped.
    """
    asked = (
        ("serving.program", configured),
        (ENVIRONMENT_VARIABLE, os.environ.get(ENVIRONMENT_VARIABLE)),
    )
    for origin, path in asked:
        if not path:
            continue
        if found := shutil.which(path):
            return Path(found)
        raise ProgramMissing(f"llama-server: {origin} says {path}, which is no program; {_WAY_OUT}")
    if found := shutil.which("llama-server"):
        return Path(found)
    built = cache_dir() / "llama-server" / "llama-server"
    if os.access(built, os.X_OK):
        return built
    raise ProgramMissing(f"llama-server: not on PATH and not at {built}; {_WAY_OUT}")


def program_version(program: Path) -> str:
    """What the program says of itself, and what it was built from where our build notes that.

    Raises `ProgramMissing`.
    """
    said = _ask(program, "--version")
    found = re.search(r"version:\s*(.+)", said)
    if not found:
        raise ProgramMissing(f"{program} does not say its version; {_WAY_OUT}")
    version = found.group(1).strip()
    note = program.with_name("version")
    if note.is_file():
        version += f", {note.read_text(encoding='utf-8', errors='replace').strip()[:200]}"
    return version


def list_devices(program: Path) -> tuple[Device, ...]:
    """GPUs that this build can use and this process may see (`CUDA_VISIBLE_DEVICES` counts).

    Asking llama-server rather than the driver tells a machine without a GPU and a build without
    GPU support alike: neither can hold layers. Raises `ProgramMissing`.
    """
    return parse_devices(_ask(program, "--list-devices"))


def parse_devices(said: str) -> tuple[Device, ...]:
    """Lines such as `  CUDA0: NVIDIA H200 (143771 MiB, 143000 MiB free)`."""
    pattern = re.compile(r"^\s+(\w+): (.+) \((\d+) MiB, (\d+) MiB free\)\s*$", re.MULTILINE)
    return tuple(
        Device(name, title, int(total), int(free))
        for name, title, total, free in pattern.findall(said)
        if not name.startswith(("CPU", "BLAS"))
    )


def child_environment(environment: Mapping[str, str], api_key: str) -> dict[str, str]:
    """The environment of a server: ours, without what would change a run behind its config.

    llama-server reads any `LLAMA_ARG_…` as a flag. Hub tokens are none of its business. The key
    goes this way because other users can read a command line, but not an environment.
    """
    kept = {
        name: value
        for name, value in environment.items()
        if not name.startswith(("LLAMA_", "HF_", "HUGGING_FACE_"))
    }
    return kept | {"LLAMA_API_KEY": api_key}


def _ask(program: Path, flag: str) -> str:
    try:
        answer = subprocess.run(
            [program, flag],
            env=child_environment(os.environ, ""),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ProgramMissing(f"{program} {flag}: {error}; {_WAY_OUT}") from None
    said = answer.stdout + answer.stderr
    if answer.returncode != 0:
        last = said.strip().splitlines()[-1:] or ["no output"]
        raise ProgramMissing(
            f"{program} {flag} ended with code {answer.returncode}: {last[0]}; {_WAY_OUT}"
        )
    return said
