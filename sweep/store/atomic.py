"""Files and folders that land whole or not at all: unique temporary name, fsync, one rename."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import yaml


def fsync_dir(path: Path) -> None:
    """Make renames inside `path` durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_dir(path.parent)


def write_json(path: Path, data: Any) -> None:
    """Write `data` as strict JSON (no NaN: what has no value is null)."""
    write_text(path, json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False) + "\n")


def write_yaml(path: Path, data: Any) -> None:
    """Write `data` as YAML, keys in the order given."""
    write_text(path, yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100))


def append_line(path: Path, data: Any) -> None:
    """Append one JSON record in one write, so that concurrent readers see whole lines."""
    line = json.dumps(data, allow_nan=False, ensure_ascii=False) + "\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(fd, line.encode())
        os.fsync(fd)
    finally:
        os.close(fd)


def publish_dir(source: Path, target: Path) -> None:
    """Make the folder `source` appear as `target`: fsync what is in it, then one rename.

    Raises `FileExistsError` when `target` is there already: a complete run is never overwritten.
    """
    if target.exists():
        raise FileExistsError(f"{target} exists already")
    for root, _dirs, files in os.walk(source):
        for name in files:
            fd = os.open(os.path.join(root, name), os.O_RDONLY)  # noqa: PTH118 - os.walk's terms
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        fsync_dir(Path(root))
    source.rename(target)
    fsync_dir(target.parent)
    fsync_dir(source.parent)
