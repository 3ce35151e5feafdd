"""What of a grid is done, what is to do, and what is in the way: pure functions of plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sweep.config.fingerprint import differences
from sweep.errors import Mismatch, RequestError
from sweep.grid import RunPoint

OnMismatch = Literal["refuse", "rerun", "keep"]


@dataclass(frozen=True)
class Plan:
    """The runs of a grid by what has to happen with them, each in the order of the grid."""

    todo: tuple[RunPoint, ...]
    done: tuple[RunPoint, ...]
    replaced: tuple[RunPoint, ...]
    """Part of `todo`: complete with another config, to be set aside (`on_mismatch=rerun`)."""
    kept: tuple[RunPoint, ...]
    """Complete with another config and left as they are (`on_mismatch=keep`)."""
    before_start: tuple[RunPoint, ...]
    """Left out by `sweep.start_at`."""

    @property
    def model_loads(self) -> tuple[str, ...]:
        """Models that have to be loaded, in the order in which they will be."""
        return tuple(dict.fromkeys(p.model for p in in_run_order(self.todo) if p.needs_server))


def make_plan(
    points: Sequence[RunPoint],
    complete: Mapping[str, str | None],
    *,
    on_mismatch: OnMismatch = "refuse",
    start_at: str | None = None,
    stored_config: Callable[[str], Mapping[str, Any]] = lambda _run_id: {},
) -> Plan:
    """Compare a grid with what a store has.

    `complete` maps the ids of complete runs to their fingerprints (None: unreadable);
    `stored_config` gives a complete run's resolved config, and is only asked about mismatches.
    Raises `Mismatch` with the differing keys, `RequestError` for a `start_at` that is not in the
    grid.
    """
    if on_mismatch not in ("refuse", "rerun", "keep"):
        raise RequestError(f"sweep.on_mismatch={on_mismatch}: choose refuse, rerun or keep")
    before: list[RunPoint] = []
    ordered = list(in_run_order(points))
    if start_at is not None:
        ids = [point.run_id for point in ordered]
        if start_at not in ids:
            raise RequestError(
                f"sweep.start_at={start_at} is not a run of this grid "
                f"(it has {ids[0]} … {ids[-1]}; sweep.dry_run=true lists them)"
            )
        first = ids.index(start_at)
        before, ordered = ordered[:first], ordered[first:]
    todo, done, replaced, kept = [], [], [], []
    for point in ordered:
        if point.run_id not in complete:
            todo.append(point)
        elif complete[point.run_id] == point.fingerprint:
            done.append(point)
        elif on_mismatch == "keep":
            kept.append(point)
        else:
            replaced.append(point)
            todo.append(point)
    if replaced and on_mismatch == "refuse":
        raise Mismatch(_mismatch_message(replaced, complete, stored_config))
    return Plan(tuple(todo), tuple(done), tuple(replaced), tuple(kept), tuple(before))


def in_run_order(points: Sequence[RunPoint]) -> Sequence[RunPoint]:
    """Runs without a model server first, then model by model, else in the order of the grid.

    Baselines first: they are cheap, and every comparison needs them. Model by model, so that a
    model is loaded once.
    """
    models = list(dict.fromkeys(point.model for point in points if point.needs_server))
    return sorted(points, key=lambda p: models.index(p.model) if p.needs_server else -1)


def expected_time_s(
    plan: Plan, *, testbeds: int, overhead_s: float = 8.0, load_s: float = 60.0
) -> float:
    """Rough wall time of a plan: measured durations, overheads and model loads."""
    runs = sum(float(point.config["duration_s"]) + overhead_s for point in plan.todo)
    return runs / max(1, min(testbeds, len(plan.todo))) + load_s * len(plan.model_loads)


def _mismatch_message(
    replaced: Sequence[RunPoint],
    complete: Mapping[str, str | None],
    stored_config: Callable[[str], Mapping[str, Any]],
) -> str:
    point = replaced[0]
    if complete[point.run_id] is None:
        return (
            f"the summary of {point.run_id} in the run store can't be read. "
            "sweep.on_mismatch=rerun sets the run aside and makes it again; =keep leaves it"
        )
    keys = differences(stored_config(point.run_id), point.config)
    what = "; ".join(keys[:6]) + (f"; and {len(keys) - 6} more" if len(keys) > 6 else "")
    more = len(replaced) - 1
    others = f" (and {more} more run{'' if more == 1 else 's'})" if more else ""
    why = f"with another configuration: {what}" if what else "from an earlier version of drainbench"
    return (
        f"{point.run_id}{others} is complete {why}. "
        "Choose another sweep.name, or sweep.on_mismatch=rerun (sets the old run aside) or =keep"
    )
