"""Where a model's weights are on this machine (paper, Table 15).

Nothing here touches the network: looking things up must be quick and work offline. Fetching is in
`serving.pull`.
"""

from __future__ import annotations

import fnmatch
import importlib.metadata
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from huggingface_hub import constants

from serving.api import ModelSpec, Weights
from serving.errors import WeightsMissing, WeightsUnavailable

_SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_BYTES_PER_PARAMETER = 2  # BF16 and F16


def local_path(model: ModelSpec) -> Path:
    """The GGUF file to hand to llama-server; the first shard when it is split.

    Raises `WeightsMissing`, with the way to get them.
    """
    files = local_files(model.weights) if model.weights else []
    if not files:
        raise WeightsMissing(f"{model.name}: {_missing(model)}")
    return files[0]


def is_present(weights: Weights) -> bool:
    """Whether all files of these weights are on this machine. No network."""
    return bool(local_files(weights))


def size_bytes(model: ModelSpec) -> tuple[int, bool]:
    """Size of the weights, and whether it was measured (else: 2 bytes a parameter)."""
    files = local_files(model.weights) if model.weights else []
    if files:
        return sum(file.stat().st_size for file in files), True
    return int((model.total_params_b or 0) * 1e9 * _BYTES_PER_PARAMETER), False


def local_files(weights: Weights) -> list[Path]:
    """All files of these weights, shards in order; empty unless every one is here."""
    if weights.path is not None:
        return _with_siblings(Path(weights.path).expanduser())
    if weights.package is not None:
        return _packaged(weights.package, weights.package_file or "")
    for snapshot in _snapshots(weights):
        names = [
            path.relative_to(snapshot).as_posix()
            for path in snapshot.rglob("*.gguf")
            if path.exists()  # a snapshot holds links; a dangling one was not fetched to its end
        ]
        try:
            return [snapshot / name for name in select_files(names, weights)]
        except WeightsUnavailable:
            continue
    return []


def select_files(names: Iterable[str], weights: Weights) -> list[str]:
    """The files of a repository that make up these weights, shards in order.

    `BF16` must not find `mmproj-BF16.gguf` (a vision tower), nor `F16` a `…-BF16.gguf`. Raises
    `WeightsUnavailable` when none fits, more than one does, or a shard is missing.
    """
    ggufs = sorted(name for name in names if name.lower().endswith(".gguf"))
    if weights.file is not None:
        fitting = [name for name in ggufs if fnmatch.fnmatch(name, weights.file)]
    else:
        quant = re.escape(weights.quant or "")
        pattern = re.compile(rf"(^|[-_.]){quant}(-\d{{5}}-of-\d{{5}})?\.gguf$", re.IGNORECASE)
        fitting = [
            name
            for name in ggufs
            if pattern.search(PurePosixPath(name).name)
            and not PurePosixPath(name).name.lower().startswith("mmproj")
        ]
    wanted = weights.file or weights.quant
    where = f"{weights.repo}@{weights.revision}" if weights.repo else "these files"
    if not fitting:
        raise WeightsUnavailable(f"{where} has no GGUF file for {wanted}; has: {_some(ggufs)}")
    stems = {_SHARD.sub("", name) for name in fitting}
    if len(stems) > 1:
        raise WeightsUnavailable(
            f"{where} has several files for {wanted}: {_some(sorted(stems))}; pick by weights.file"
        )
    return _whole(fitting, where)


def _whole(names: Sequence[str], where: str) -> list[str]:
    """Check that all shards are there."""
    shard = _SHARD.search(names[0])
    if shard is None:
        return list(names)
    expected = set(range(1, int(shard.group(2)) + 1))
    here = {int(match.group(1)) for name in names if (match := _SHARD.search(name))}
    if missing := sorted(expected - here):
        raise WeightsUnavailable(f"{where}: shard {missing[0]} of {len(expected)} is missing")
    return sorted(names)


def _with_siblings(path: Path) -> list[Path]:
    """One file, or all shards of the split GGUF that it is the first of."""
    if not path.is_file():
        return []
    if not _SHARD.search(path.name):
        return [path]
    stem = _SHARD.sub("", path.name)
    names = [
        other.name
        for other in path.parent.glob("*.gguf")
        if _SHARD.search(other.name) and _SHARD.sub("", other.name) == stem
    ]
    try:
        return [path.parent / name for name in _whole(sorted(names), str(path.parent))]
    except WeightsUnavailable:
        return []


def _packaged(package: str, file_name: str) -> list[Path]:
    """A file of an installed package, which is not imported: its dependencies may be absent."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    for file in files:
        if file.as_posix() == file_name or file.name == file_name:
            path = Path(str(file.locate()))
            return [path] if path.is_file() else []
    return []


def _snapshots(weights: Weights) -> list[Path]:
    """Cached snapshots of the pinned revision, which may be shortened as in Table 15."""
    if not weights.repo or not weights.revision:
        return []
    folder = constants.REPO_ID_SEPARATOR.join(("models", *weights.repo.split("/")))
    root = Path(constants.HF_HUB_CACHE) / folder / "snapshots"
    return sorted(path for path in root.glob(f"{weights.revision}*") if path.is_dir())


def _missing(model: ModelSpec) -> str:
    weights = model.weights
    if weights is None:
        return f"`policy: {model.policy}` has no weights"
    if weights.path is not None:
        return f"no complete GGUF at {weights.path} (weights.path)"
    if weights.package is not None:
        return (
            f"Python package {weights.package} is not installed; "
            f"`make setup` or `python -m serving pull {model.name}` installs it"
        )
    size_gb = size_bytes(model)[0] / 1e9
    return (
        f"{weights.repo}@{weights.revision} ({weights.quant}, about {size_gb:.1f} GB) is not on "
        f"this machine; fetch it: python -m serving pull {model.name}"
    )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4]) or "none"
    return f"{shown}, …" if len(names) > 4 else shown
