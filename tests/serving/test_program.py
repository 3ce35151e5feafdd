"""Finding llama-server, and what it says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.errors import ProgramMissing
from serving.program import (
    Device,
    child_environment,
    find_llama_server,
    list_devices,
    parse_devices,
    program_version,
)

REPORT = """\
ggml_cuda_init: found 2 CUDA devices:
Available devices:
  CUDA0: NVIDIA H200 (143771 MiB, 143000 MiB free)
  CUDA1: NVIDIA RTX PRO 6000 Blackwell (Server) (97887 MiB, 512 MiB free)
"""


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_lookup_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAINBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("DRAINBENCH_LLAMA_SERVER", raising=False)
    with pytest.raises(ProgramMissing, match="make llama-server"):
        find_llama_server()
    cached = program(tmp_path / "cache" / "llama-server" / "llama-server", "")
    assert find_llama_server() == cached
    on_path = program(tmp_path / "bin" / "llama-server", "")
    assert find_llama_server() == on_path
    by_variable = program(tmp_path / "variable", "")
    monkeypatch.setenv("DRAINBENCH_LLAMA_SERVER", str(by_variable))
    assert find_llama_server() == by_variable
    configured = program(tmp_path / "configured", "")
    assert find_llama_server(str(configured)) == configured


def test_a_path_that_was_asked_for_is_never_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRAINBENCH_LLAMA_SERVER", str(tmp_path / "gone"))
    with pytest.raises(ProgramMissing, match=r"DRAINBENCH_LLAMA_SERVER says .*gone"):
        find_llama_server()
    with pytest.raises(ProgramMissing, match=r"serving\.program says .*absent"):
        find_llama_server(str(tmp_path / "absent"))


def test_devices_as_llama_server_lists_them() -> None:
    assert parse_devices(REPORT) == (
        Device("CUDA0", "NVIDIA H200", 143771, 143000),
        Device("CUDA1", "NVIDIA RTX PRO 6000 Blackwell (Server)", 97887, 512),
    )
    vulkan = """\
Available devices:
  Vulkan0: llvmpipe (LLVM 21.1.8, 256 bits) (24105 MiB, 20296 MiB free)
"""
    assert parse_devices(vulkan) == (
        Device("Vulkan0", "llvmpipe (LLVM 21.1.8, 256 bits)", 24105, 20296),
    )
    assert parse_devices("Available devices:\n  (none)\n") == ()


def test_version_and_devices_come_from_the_program(tmp_path: Path) -> None:
    fake = program(
        tmp_path / "fake",
        'if [ "$1" = --version ]; then echo "version: 7 (abc)" >&2; else echo "Available:"; '
        'echo "  CUDA0: A GPU (8 MiB, 4 MiB free)"; fi',
    )
    assert program_version(fake) == "7 (abc)"
    fake.with_name("version").write_text("llama.cpp 0c1e570 (source 1.2, cpu)\n")
    assert program_version(fake) == "7 (abc), llama.cpp 0c1e570 (source 1.2, cpu)"
    assert list_devices(fake) == (Device("CUDA0", "A GPU", 8, 4),)


def test_a_program_that_does_not_run(tmp_path: Path) -> None:
    broken = program(tmp_path / "broken", "echo libcudart.so.12: cannot open >&2; exit 127")
    with pytest.raises(ProgramMissing, match=r"ended with code 127: libcudart\.so\.12"):
        program_version(broken)
    with pytest.raises(ProgramMissing, match="does not say its version"):
        program_version(program(tmp_path / "mute", "true"))
    with pytest.raises(ProgramMissing):
        program_version(tmp_path / "absent")


def test_a_server_gets_no_flags_and_no_secrets_from_our_environment() -> None:
    ours = {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "LLAMA_ARG_CTX_SIZE": "64",
        "LLAMA_API_KEY": "old",
        "HF_TOKEN": "secret",
    }
    assert child_environment(ours, "new") == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "LLAMA_API_KEY": "new",
    }
