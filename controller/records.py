"""Turns the control loop's data into JSON records (docs/run-store.md) and writes them.

Numbers are finite, a hostile string stays data: text that isn't valid Unicode has its broken parts
replaced, and everything beyond ASCII is escaped, so that one record is one line for every reader.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from controller.api import ServerStat, Snapshot

_MAX_DEPTH = 40
_MAX_INT = 2**63 - 1


def to_json(value: Any, _depth: int = 0) -> Any:
    """`value` as plain JSON data: dataclasses as objects, NaN and infinities as null.

    Integers beyond 64 bits and whatever is nested deeper than 40 levels (only a model's own output
    can hold such) become text: analytical readers can't take them.
    """
    if _depth > _MAX_DEPTH:
        return "(nested too deep)"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: to_json(getattr(value, name), _depth + 1) for name in names}
    if isinstance(value, Mapping):
        return {to_json(str(k)): to_json(v, _depth + 1) for k, v in value.items()}
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= _MAX_INT else hex(value)[:80]
    if isinstance(value, Sequence):
        return [to_json(item, _depth + 1) for item in value]
    return str(value)[:200]


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot, with `window.full`, which analyses filter by."""
    record = to_json(snapshot)
    record["window"]["full"] = snapshot.window.full
    return record


def post_json(servers: Sequence[ServerStat]) -> dict[str, Any]:
    """The post-action state."""
    return {
        "servers": [
            {
                "server": stat.slot,
                "status": stat.status,
                "admin_state": stat.admin_state,
                "weight": stat.weight,
                "sessions": stat.sessions,
                "requests_total": stat.requests_total,
                "http_5xx_total": stat.http_5xx_total,
                "address": stat.address,
            }
            for stat in servers
        ]
    }


def dump_line(record: Mapping[str, Any]) -> str:
    """One record as one line of JSON, without the newline."""
    return json.dumps(record, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


class NullRecorder:
    """Keeps nothing."""

    def step(self, record: Mapping[str, Any]) -> None:
        """Drop a step record."""

    def conversation(self, record: Mapping[str, Any]) -> None:
        """Drop a conversation."""

    def close(self) -> None:
        """Nothing to close."""


class JsonlRecorder:
    """Appends to `steps.jsonl` and `conversations.jsonl` in `out_dir`, flushed per record.

    `conversations.jsonl` is made with its first record: policies without a model leave none.
    OSError passes through when the folder can't be written or is full.
    """

    def __init__(self, out_dir: Path) -> None:
        self._dir = out_dir
        self._dir.mkdir(parents=True, exist_ok=True)
        self._files: dict[str, TextIO] = {}
        self._open("steps.jsonl")

    def step(self, record: Mapping[str, Any]) -> None:
        """Append one step record."""
        self._append("steps.jsonl", record)

    def conversation(self, record: Mapping[str, Any]) -> None:
        """Append the conversation of one step."""
        self._append("conversations.jsonl", record)

    def close(self) -> None:
        """Close both files; idempotent."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        file = self._open(name)
        file.write(dump_line(record) + "\n")
        file.flush()

    def _open(self, name: str) -> TextIO:
        if name not in self._files:
            self._files[name] = (self._dir / name).open("a", encoding="ascii")
        return self._files[name]
