"""Configuration files of the serving group, and what is said of wrong ones."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml

from serving.agreement import server_args
from serving.api import ModelSpec, ServerSpec
from serving.endpoints import make_endpoint, server_spec_from_config
from serving.errors import BadServing
from serving.llama_server import LlamaServer
from serving.remote import UrlEndpoint
from tests.serving.conftest import CONF


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((CONF / "serving" / f"{name}.yaml").read_text())


def test_the_default_is_the_papers_serving() -> None:
    spec = server_spec_from_config(load("llama_server"))
    assert (spec.threads, spec.seed, spec.slots, spec.flash_attention) == (1, 42, 1, "on")
    assert spec.gpu_layers == "auto"
    assert spec.host == "127.0.0.1"


def test_every_knob_of_a_server_is_in_its_file() -> None:
    knobs = set(load("llama_server")) - {"endpoint", "verify_modes"}
    assert knobs == {field for field in ServerSpec.__dataclass_fields__}


def test_the_kind_of_endpoint_follows_the_file(
    smollm2: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(make_endpoint(smollm2, load("llama_server")), LlamaServer)
    with pytest.raises(BadServing, match=r"serving\.base_url is '\?\?\?'; set it to"):
        make_endpoint(smollm2, load("url"))
    monkeypatch.setenv("DRAINBENCH_API_KEY", "secret")
    config = load("url") | {"base_url": "http://127.0.0.1:1/v1"}
    endpoint = make_endpoint(smollm2, config)
    assert isinstance(endpoint, UrlEndpoint)
    assert vars(endpoint)["_api_key"] == "secret"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"endpoint": "vllm"}, r"serving\.endpoint is 'vllm', must be llama_server or url"),
        ({"slot": 2}, r"unknown key serving\.slot \(known: "),
        ({"slots": 0}, r"serving\.slots is 0, must be a whole number from 1 on"),
        ({"slots": 1.5}, r"serving\.slots is 1\.5, must be a whole number"),
        ({"seed": "x"}, r"serving\.seed is 'x', must be a whole number from 0 on"),
        ({"cache_ram_mib": None}, r"serving\.cache_ram_mib is None"),
        ({"load_timeout_s": "soon"}, r"serving\.load_timeout_s is 'soon', must be a number of sec"),
        ({"liveness_timeout_s": float("nan")}, r"serving\.liveness_timeout_s is nan"),
        ({"extra_args": "--mlock"}, r"serving\.extra_args is '--mlock', must be a list"),
        ({"gpu_layers": True}, r"serving\.gpu_layers is True"),
        ({"threads": True}, r"serving\.threads is True"),
        ({"gpu_layers": "all"}, r"serving\.gpu_layers is 'all', must be auto or a number"),
        ({"gpu_layers": -1}, r"serving\.gpu_layers is -1"),
        ({"flash_attention": "maybe"}, r"serving\.flash_attention is 'maybe'"),
        ({"port": 70000}, r"serving\.port is 70000"),
    ],
)
def test_wrong_configuration(smollm2: ModelSpec, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadServing, match=message):
        make_endpoint(smollm2, load("llama_server") | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_url": "http://["}, r"serving\.base_url is 'http://\['.*such as"),
        ({"base_url": "http://h:99999/v1"}, r"serving\.base_url is 'http://h:99999/v1'"),
        ({"base_url": "localhost/v1"}, r"serving\.base_url is 'localhost/v1'"),
        ({"liveness_timeout_s": "x"}, r"serving\.liveness_timeout_s is 'x'"),
        ({"slots": 2}, r"unknown key serving\.slots"),
    ],
)
def test_wrong_configuration_of_a_url(
    smollm2: ModelSpec, changes: dict[str, Any], message: str
) -> None:
    good = load("url") | {"base_url": "http://127.0.0.1:1/v1"}
    with pytest.raises(BadServing, match=message):
        make_endpoint(smollm2, good | changes)


@pytest.mark.parametrize(("written", "meant"), [(True, "on"), (False, "off"), ("auto", "auto")])
def test_flash_attention_as_yaml_reads_it(written: Any, meant: str) -> None:
    spec = server_spec_from_config(load("llama_server") | {"flash_attention": written})
    assert spec.flash_attention == meant


def test_the_command_line_of_a_server(smollm2: ModelSpec) -> None:
    spec = ServerSpec(context_per_slot=16384, slots=3, threads=4, extra_args=("--mlock",))
    args = server_args(Path("/p"), Path("/w.gguf"), smollm2, spec, 999)
    pairs = dict(itertools.pairwise(args))
    assert pairs["--ctx-size"] == str(3 * 8192)  # the model's own limit, for each slot
    assert pairs["--parallel"] == "3"
    assert pairs["--gpu-layers"] == "999"
    assert pairs["--threads"] == "4"
    assert pairs["--cache-ram"] == "0"
    assert pairs["--fit"] == "off"
    assert "--no-kv-unified" in args and args[-1] == "--mlock"
    one = server_args(Path("/p"), Path("/w.gguf"), smollm2, ServerSpec(), 0)
    assert "--no-kv-unified" not in one
    # A Vulkan build computed prompts of 32 tokens and more on the GPU although none was asked for:
    # `offloaded 0/31 layers to GPU`, then `Vulkan0 compute buffer size =    17.75 MiB`.
    assert dict(itertools.pairwise(one))["--device"] == "none"
    assert "--device" not in args
