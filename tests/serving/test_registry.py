"""The registry against the paper's tables, and its answers to wrong configuration."""

from __future__ import annotations

from typing import Any

import pytest

from serving.api import ModelSpec, Sampling
from serving.errors import BadModel, UnknownModel
from serving.registry import find_model, load_model, load_registry, model_from_config
from tests.serving.conftest import CONF

# Table 3 (family, active, total, architecture), Table 15 (repository, quantisation, commit).
CHECKPOINTS = """
Qwen3 0.6B | Qwen3 | 0.6 | 0.6 | D | unsloth/Qwen3-0.6B-GGUF | BF16 | 50968a4
Qwen3 1.7B | Qwen3 | 1.7 | 1.7 | D | unsloth/Qwen3-1.7B-GGUF | BF16 | d7f544e
Qwen3 4B | Qwen3 | 4.0 | 4.0 | D | unsloth/Qwen3-4B-GGUF | BF16 | 22c9fc8
Qwen3 30B-A3B | Qwen3 | 3.0 | 30.0 | MoE | unsloth/Qwen3-30B-A3B-GGUF | BF16 | d5b1d57
Qwen3.5 0.8B | Qwen3.5 | 0.8 | 0.8 | D | unsloth/Qwen3.5-0.8B-GGUF | BF16 | 7fc504f
Qwen3.5 2B | Qwen3.5 | 2.0 | 2.0 | D | unsloth/Qwen3.5-2B-GGUF | BF16 | e16cafb
Qwen3.5 4B | Qwen3.5 | 4.0 | 4.0 | D | unsloth/Qwen3.5-4B-GGUF | BF16 | b5044a2
Qwen3.5 35B-A3B | Qwen3.5 | 3.0 | 35.0 | MoE | unsloth/Qwen3.5-35B-A3B-GGUF | BF16 | 4b0737a
Gemma 4 E2B | Gemma 4 | 2.0 | 5.0 | Eff | unsloth/gemma-4-E2B-it-GGUF | BF16 | fd2ea40
Gemma 4 E4B | Gemma 4 | 4.0 | 8.0 | Eff | unsloth/gemma-4-E4B-it-GGUF | BF16 | 8543410
Gemma 4 26B-A4B | Gemma 4 | 4.0 | 26.0 | MoE | unsloth/gemma-4-26B-A4B-it-GGUF | BF16 | b19ae87
Granite 4.0 350M | Granite | 0.35 | 0.35 | D | ibm-granite/granite-4.0-350m-GGUF | BF16 | 2954f7a
Granite 4.0 1B | Granite | 1.0 | 1.0 | D | ibm-granite/granite-4.0-1b-GGUF | BF16 | 9309b02
Granite 4.0 Micro | Granite | 3.0 | 3.0 | D | ibm-granite/granite-4.0-micro-GGUF | F16 | 397e2dc
GPT-OSS 20B | GPT-OSS | 3.6 | 20.9 | MoE | unsloth/gpt-oss-20b-GGUF | F16 | d449b42
"""
ARCHITECTURES = {"D": "dense", "MoE": "moe", "Eff": "efficient_sparse"}
# Table 4: by family and mode, T, top-p, top-k; and how the mode reaches the template (§3.2.2).
THINK, NOTHINK = {"enable_thinking": True}, {"enable_thinking": False}
DECODING: dict[str, dict[str, tuple[tuple[float, float, int], dict[str, Any]]]] = {
    "Qwen3": {"think": ((0.6, 0.95, 20), THINK), "nothink": ((0.7, 0.80, 20), NOTHINK)},
    "Qwen3.5": {"think": ((1.0, 0.95, 20), THINK), "nothink": ((1.0, 0.95, 20), NOTHINK)},
    "Gemma 4": {"think": ((1.0, 0.95, 64), THINK), "nothink": ((1.0, 0.95, 64), NOTHINK)},
    "Granite": {"none": ((0.001, 1.0, 0), {})},
    "GPT-OSS": {
        effort: ((1.0, 1.0, 0), {"reasoning_effort": effort})
        for effort in ("low", "medium", "high")
    },
}


def rows() -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in CHECKPOINTS.strip().splitlines()]


@pytest.fixture(scope="module")
def registry() -> dict[str, ModelSpec]:
    return load_registry(CONF)


def test_the_top_folder_is_exactly_the_papers_checkpoints_and_static(
    registry: dict[str, ModelSpec],
) -> None:
    titles = {model.title for name, model in registry.items() if "/" not in name}
    assert titles == {row[0] for row in rows()} | {"Static"}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_checkpoint_is_as_in_tables_3_4_and_15(
    registry: dict[str, ModelSpec], row: list[str]
) -> None:
    title, family, active, total, architecture, repo, quant, commit = row
    (model,) = [model for model in registry.values() if model.title == title]
    assert model.policy == "llm"
    assert model.family == family
    assert model.active_params_b == float(active)
    assert model.total_params_b == float(total)
    assert model.architecture == ARCHITECTURES[architecture]
    assert model.weights is not None
    assert (model.weights.repo, model.weights.quant) == (repo, quant)
    assert model.weights.revision == commit
    modes = {}
    for mode in model.modes:
        assert mode.sampling is not None
        sampling = mode.sampling
        numbers = (sampling.temperature, sampling.top_p, sampling.top_k)
        modes[mode.name] = (numbers, dict(mode.template_kwargs))
    assert modes == DECODING[family]


def test_the_grid_of_the_paper_has_240_runs(registry: dict[str, ModelSpec]) -> None:
    modes = sum(len(model.modes) for name, model in registry.items() if "/" not in name)
    assert modes * 4 * 2 == 240


def test_policies_without_a_model(registry: dict[str, ModelSpec]) -> None:
    static, threshold = registry["static"], registry["baseline/threshold"]
    assert [mode.name for mode in static.modes] == ["error_on", "error_off"]
    assert static.policy == "static" and static.weights is None and static.family is None
    assert threshold.policy == "rule" and threshold.rule == "threshold"
    assert [mode.name for mode in threshold.modes] == ["none"]
    assert threshold.modes[0].sampling is None


def test_models_are_found_with_and_without_their_folder(registry: dict[str, ModelSpec]) -> None:
    assert find_model(registry, "smollm2-135m") is registry["local/smollm2-135m"]
    assert find_model(registry, "qwen3-4b").title == "Qwen3 4B"
    with pytest.raises(UnknownModel, match=r"no model 'qwen3-4'.*did you mean.*qwen3-4b"):
        find_model(registry, "qwen3-4")
    with pytest.raises(UnknownModel, match="python -m serving list"):
        find_model(registry, "!")


def good() -> dict[str, Any]:
    return {
        "name": "m",
        "title": "M",
        "policy": "llm",
        "family": "F",
        "active_params_b": 1,
        "total_params_b": 2.5,
        "architecture": "dense",
        "weights": {"path": "/m.gguf"},
        "modes": {"none": {"sampling": {"temperature": 0.0, "top_p": 1.0}}},
        "postprocess": "none",
    }


def test_a_model_of_ones_own() -> None:
    model = model_from_config(good())
    assert model.mode("none").sampling == Sampling(temperature=0.0, top_p=1.0)
    with pytest.raises(KeyError):
        model.mode("think")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("name", None, "`name` is missing"),
        ("policy", "lmm", "`policy` is 'lmm', must be one of llm, static, rule"),
        ("policy", "static", "`active_params_b` is for `policy: llm`"),
        ("titel", "x", "unknown key `titel`; did you mean `title`"),
        ("active_params_b", "4B", "`active_params_b` must be a number, not '4B'"),
        ("active_params_b", 3, "`active_params_b` is 3 and `total_params_b` 2.5; 0 < active <="),
        ("active_params_b", -1, "`active_params_b` is -1"),
        ("total_params_b", float("nan"), "`total_params_b` nan"),
        ("architecture", "sparse", "`architecture` is 'sparse', must be one of dense, moe"),
        ("modes", {}, "`modes` is empty"),
        ("modes", ["think"], r"`modes` must be a mapping"),
        ("modes.none", {}, r"`modes.none.sampling` is missing"),
        ("modes.none", "x", r"`modes.none` must be a mapping"),
        ("modes.none.sampling.top_p", 1.5, r"`modes.none.sampling.top_p` is 1.5, must be in"),
        ("modes.none.sampling.top_k", True, r"`modes.none.sampling.top_k` must be a whole number"),
        ("modes.none.sampling.temperature", None, r"sampling.temperature` is missing"),
        ("modes.none.max_tokens", 0, r"`modes.none.max_tokens` is 0, must be positive"),
        ("weights", {}, "exactly one of `repo`, `package`, `path`"),
        ("weights", {"path": "a", "repo": "b"}, "exactly one of"),
        ("weights", {"repo": "b", "quant": "F16"}, "`weights.revision` is missing"),
        ("weights", {"repo": "b", "quant": "F16", "revision": 8543410}, "must be text, not 8543"),
    ],
)
def test_wrong_configuration_is_one_line_with_file_and_key(
    path: str, value: Any, message: str
) -> None:
    config = good()
    *parents, key = path.split(".")
    section = config
    for parent in parents:
        section = section[parent]
    section[key] = value
    with pytest.raises(BadModel, match=message) as caught:
        model_from_config(config, "conf/model/m.yaml")
    assert str(caught.value).startswith("conf/model/m.yaml: ")
    assert "\n" not in str(caught.value)


def test_files_that_are_no_models(tmp_path: Any) -> None:
    with pytest.raises(BadModel, match="no model files; give the configuration folder"):
        load_registry(tmp_path)
    broken = tmp_path / "m.yaml"
    broken.write_text("a: [")
    with pytest.raises(BadModel) as caught:
        load_model(broken)
    assert "\n" not in str(caught.value)
    other = tmp_path / "other.yaml"
    other.write_text(CONF.joinpath("model", "static.yaml").read_text())
    with pytest.raises(BadModel, match="`name` is 'static', it must be the file's: 'other'"):
        load_model(other)
