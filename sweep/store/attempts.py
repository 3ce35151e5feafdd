"""The life of an attempt: opened, then published by one rename or kept apart as failed."""

from __future__ import annotations

import contextlib
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from sweep.errors import StorageError
from sweep.grid import RunPoint
from sweep.store.atomic import append_line, publish_dir, write_json, write_yaml
from sweep.store.owner import Owner
from sweep.store.paths import RunPaths, RunStore

MAKE_ROOM = (
    "Make room there and run the same command again, or choose another place with sweep.dir=…"
)
"""The ways out of a run store that is full or can't be written."""


class _Failure(Protocol):
    outcome: Any
    reason: str


@dataclass(frozen=True)
class AttemptBook:
    """Opens, publishes and fails attempts of one store; used by its one driver."""

    store: RunStore

    def require_free_disk(self, mib: int) -> None:
        """Raise `StorageError` when less than `mib` MiB are free where the store is, or will be."""
        places = [self.store.root, *self.store.root.absolute().parents]
        # Where not even that can be seen, making the store tells why.
        with contextlib.suppress(PermissionError):
            self._require_free(next(place for place in places if place.exists()), mib)

    def _require_free(self, place: Path, mib: int) -> None:
        free = shutil.disk_usage(place).free // 2**20
        if free < mib:
            raise StorageError(
                f"only {free} MiB are free where {self.store.root} is "
                f"(sweep.min_free_disk_mib={mib}). {MAKE_ROOM}"
            )

    def open(self, point: RunPoint) -> int:
        """Make the folder of a new attempt, with its config and owner; return its number."""
        taken = [a.number for a in self.store.all_attempts() if a.run_id == point.run_id]
        number = max(taken, default=0) + 1
        paths = self.store.attempt(point.run_id, number)
        paths.root.mkdir(parents=True)
        write_json(paths.owner, {**Owner.current().to_dict(), "opened_at_s": time.time()})
        write_yaml(paths.config, {"fingerprint": point.fingerprint, "config": dict(point.config)})
        return number

    def publish(self, point: RunPoint, number: int) -> RunPaths:
        """Make a complete attempt the run: one rename, after everything is on disk.

        A complete run with another config is set aside first, never overwritten.
        Raises OSError.
        """
        attempt, run = self.store.attempt(point.run_id, number), self.store.run(point.run_id)
        attempt.owner.unlink(missing_ok=True)
        if run.root.exists():
            self.store.replaced.mkdir(exist_ok=True)
            run.root.rename(self.store.replaced / f"{point.run_id}.{time.time_ns()}")
        publish_dir(attempt.root, run.root)
        return run

    def fail(self, point: RunPoint, number: int, failure: _Failure) -> None:
        """Note that an attempt failed; its folder stays in `attempts/` for diagnosis."""
        self._note(point.run_id, number, failure.outcome, failure.reason)
        # Where even this can't be written, the next sweep buries the attempt as an orphan.
        with contextlib.suppress(OSError):
            self.store.attempt(point.run_id, number).owner.unlink(missing_ok=True)

    def bury_orphans(self) -> list[str]:
        """Note the attempts whose sweep died; returns their names.

        Only for the holder of the store's lock: there is no other live sweep on this store.
        Raises `StorageError`.
        """
        buried = []
        for attempt in self.store.all_attempts():
            if attempt.paths.owner.exists():
                self._note(attempt.run_id, attempt.number, "orphaned", "its sweep died")
                try:
                    attempt.paths.owner.unlink(missing_ok=True)
                except OSError as error:
                    raise StorageError(
                        f"{attempt.paths.root} can't be written: {error.strerror}. "
                        "Choose another place with sweep.dir=…"
                    ) from error
                buried.append(attempt.paths.root.name)
        return buried

    def _note(self, run_id: str, number: int, outcome: str, reason: str) -> None:
        record = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "run_id": run_id,
            "attempt": number,
            "outcome": outcome,
            "reason": reason,
            "logs": str(self.store.attempt(run_id, number).logs.relative_to(self.store.root)),
        }
        # A full disk is told by the sweep itself, and the folder in attempts/ remains.
        with contextlib.suppress(OSError):
            append_line(self.store.failures, record)
