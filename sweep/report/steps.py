"""Step records of one run, as the timeline figure and the replay need them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sweep.report.errors import ReportError
from sweep.store.paths import RunPaths


def read_steps(paths: RunPaths) -> list[dict[str, Any]]:
    """All records of steps.jsonl in order; raises `ReportError` where it can't be used."""
    try:
        return sorted(_lines(paths.steps.name, paths), key=lambda r: r["step"])
    except (KeyError, TypeError) as error:
        raise ReportError(f"{paths.steps}: not a list of steps: {error}") from error


def read_conversations(paths: RunPaths) -> dict[int, dict[str, Any]]:
    """Records of conversations.jsonl by step; empty for policies without a model."""
    if not paths.conversations.exists():
        return {}
    records = _lines(paths.conversations.name, paths)
    return {r["step"]: r for r in records if isinstance(r, dict) and "step" in r}


def _lines(name: str, paths: RunPaths) -> Iterator[dict[str, Any]]:
    try:
        with (paths.root / name).open("rb") as file:
            for line in file:
                if line.strip():
                    yield json.loads(line)
    except OSError as error:
        raise ReportError(f"{paths.root / name}: {error.strerror}") from error
    except ValueError as error:
        raise ReportError(f"{paths.root / name}: not JSON: {error}") from error
