"""A model that is small enough to be served in every test run, and a cache of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.api import ModelSpec, ServerSpec
from serving.program import find_llama_server
from serving.registry import load_model
from serving.weights import local_path
from tests.requirements import require

CONF = Path(__file__).resolve().parents[2] / "conf"


@pytest.fixture(scope="session")
def smollm2() -> ModelSpec:
    return load_model(CONF / "model" / "local" / "smollm2-135m.yaml")


@pytest.fixture(scope="session")
def real_server(smollm2: ModelSpec) -> ServerSpec:
    """How to run the real program; the test is skipped where program or weights are missing."""
    require("llama-server", find_llama_server)
    require("llama-server", lambda: local_path(smollm2))
    return ServerSpec(
        context_per_slot=2048, liveness_timeout_s=120.0, program=str(find_llama_server())
    )


@pytest.fixture(scope="package", autouse=True)
def own_cache(real_program_path: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    """Records of running servers go to a folder of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        if real_program_path is not None:
            patch.setenv("DRAINBENCH_LLAMA_SERVER", real_program_path)
        patch.setenv("DRAINBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def real_program_path() -> str | None:
    """The real llama-server, looked up before the cache is replaced; None without one."""
    try:
        return str(find_llama_server())
    except Exception:
        return None
