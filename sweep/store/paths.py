"""`RunStore` owns every path of a run store; nothing else spells its file names."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ATTEMPT = re.compile(r"^(?P<run_id>.+)\.(?P<number>\d+)$")


@dataclass(frozen=True)
class RunPaths:
    """The files of one run, in `runs/<run id>/` or `attempts/<run id>.<n>/`."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.yaml"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    @property
    def steps(self) -> Path:
        return self.root / "steps.jsonl"

    @property
    def conversations(self) -> Path:
        return self.root / "conversations.jsonl"

    @property
    def requests(self) -> Path:
        return self.root / "requests.parquet"

    @property
    def counters(self) -> Path:
        return self.root / "counters.parquet"

    @property
    def load_summary(self) -> Path:
        return self.root / "load_summary.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def owner(self) -> Path:
        """Who writes this attempt; only in `attempts/`."""
        return self.root / "owner.json"


@dataclass(frozen=True)
class Attempt:
    """One folder of `attempts/`."""

    run_id: str
    number: int
    paths: RunPaths


@dataclass(frozen=True)
class RunStore:
    """All paths of one run store (docs/run-store.md)."""

    root: Path

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def attempts(self) -> Path:
        return self.root / "attempts"

    @property
    def replaced(self) -> Path:
        """Complete runs that `sweep.on_mismatch=rerun` set aside."""
        return self.root / "replaced"

    def server_log(self, model: str) -> Path:
        """Log of a server of `model` that is about to be started."""
        return self.root / "serving" / f"{model}.{time.strftime('%Y%m%d-%H%M%S')}.log"

    @property
    def failures(self) -> Path:
        return self.root / "failures.jsonl"

    @property
    def sweep_yaml(self) -> Path:
        return self.root / "sweep.yaml"

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    def run(self, run_id: str) -> RunPaths:
        """Paths of a complete run."""
        return RunPaths(self.runs / run_id)

    def attempt(self, run_id: str, number: int) -> RunPaths:
        """Paths of an attempt."""
        return RunPaths(self.attempts / f"{run_id}.{number}")

    def create(self) -> None:
        """Make the folders; raises OSError."""
        self.runs.mkdir(parents=True, exist_ok=True)
        self.attempts.mkdir(exist_ok=True)

    def is_store(self) -> bool:
        """Whether there is a run store at this place."""
        return self.runs.is_dir()

    def complete_ids(self) -> list[str]:
        """Ids of all complete runs, sorted."""
        if not self.runs.is_dir():
            return []
        return sorted(p.name for p in self.runs.iterdir() if p.is_dir())

    def all_attempts(self) -> list[Attempt]:
        """All attempts that are being written or have failed, in order of run id and number."""
        found = []
        if self.attempts.is_dir():
            for path in self.attempts.iterdir():
                match = _ATTEMPT.match(path.name)
                if match and path.is_dir():
                    found.append(
                        Attempt(match["run_id"], int(match["number"]), RunPaths(path)),
                    )
        return sorted(found, key=lambda a: (a.run_id, a.number))

    def read_summary(self, run_id: str) -> dict[str, Any]:
        """`summary.json` of a complete run; raises OSError or ValueError."""
        return json.loads(self.run(run_id).summary.read_text(encoding="utf-8"))

    def read_failures(self) -> list[dict[str, Any]]:
        """Records of `failures.jsonl`; a line that is cut or is no such record is left out."""
        try:
            lines = self.failures.read_bytes().splitlines()
        except OSError:
            return []
        records = []
        for line in lines:
            try:
                record = json.loads(line)
                if all(isinstance(record[key], str) for key in ("run_id", "outcome", "reason")):
                    records.append(record)
            except (ValueError, KeyError, TypeError):
                continue
        return records
