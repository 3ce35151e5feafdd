"""A request for a grid, from Hydra's overrides to an exit code."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig
from rich.console import Console
from rich.progress import Progress

from sweep.config.settings import SweepSettings, sweep_settings
from sweep.config.specs import check_point, testbed_kind
from sweep.errors import RequestError, StorageError
from sweep.grid import Grid, RunPoint, compose_grid
from sweep.plan import Plan, expected_time_s, make_plan
from sweep.planview import print_plan
from sweep.progress import View, counted
from sweep.store.atomic import write_yaml
from sweep.store.attempts import AttemptBook
from sweep.store.lock import StoreLock
from sweep.store.paths import RunStore


def run_jobs(
    job_overrides: Sequence[Sequence[str]], compose: Callable[[list[str]], DictConfig]
) -> int:
    """Run what is missing of the grid; return the exit code (0, 1, or 130 when stopped).

    Raises `RequestError` (exit code 2) before anything is started when the request is wrong.
    """
    console = Console(stderr=True)
    grid = _compose(job_overrides, compose, console)
    if not grid.points:
        raise RequestError(
            f"the grid is empty: none of its {grid.left_out} combinations of model and mode exists"
        )
    for point in grid.points:
        check_point(point)
    settings = sweep_settings(grid.points)
    store = RunStore(settings.dir)
    plan = _plan(grid, store, settings)
    expected_s = expected_time_s(plan, testbeds=settings.testbeds)
    print_plan(
        Console(),
        plan,
        store,
        left_out=grid.left_out,
        expected_s=expected_s,
        every_run=settings.dry_run,
    )
    _tell_invalid(plan, store)
    if settings.dry_run or not plan.todo:
        return 0
    return _run(plan, store, settings, grid, expected_s, console)


def _plan(grid: Grid, store: RunStore, settings: SweepSettings) -> Plan:
    return make_plan(
        grid.points,
        _complete(store),
        on_mismatch=settings.on_mismatch,
        start_at=settings.start_at,
        stored_config=lambda run_id: _stored_config(store, run_id),
    )


def _compose(
    jobs: Sequence[Sequence[str]], compose: Callable[[list[str]], DictConfig], console: Console
) -> Grid:
    if len(jobs) < 8:
        return compose_grid(jobs, compose)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("composing the grid", total=len(jobs))
        return compose_grid(
            jobs, compose, on_progress=lambda done, _: progress.update(task, completed=done)
        )


def _complete(store: RunStore) -> dict[str, str | None]:
    """Fingerprints of the complete runs; None where the summary can't be read."""
    found: dict[str, str | None] = {}
    for run_id in store.complete_ids():
        try:
            found[run_id] = store.read_summary(run_id)["fingerprint"]
        except (OSError, ValueError, KeyError, TypeError):
            found[run_id] = None
    return found


def _tell_invalid(plan: Plan, store: RunStore) -> None:
    """Done runs that no table will contain: they are not made again unasked."""
    invalid = []
    for point in (*plan.done, *plan.kept):
        with suppress(OSError, ValueError, AttributeError):
            if not store.read_summary(point.run_id).get("valid", True):
                invalid.append(point.run_id)
    if invalid:
        more = f" and {len(invalid) - 3} more" if len(invalid) > 3 else ""
        Console().print(
            f"{counted(len(invalid), 'run')} of the done marked invalid, so in no table: "
            f"{', '.join(invalid[:3])}{more}. What you remove from {store.runs} is made again",
            highlight=False,
            soft_wrap=True,
        )


def _stored_config(store: RunStore, run_id: str) -> Mapping[str, Any]:
    try:
        stored = yaml.safe_load(store.run(run_id).config.read_text(encoding="utf-8"))
        return stored["config"]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return {}


def _run(
    plan: Plan,
    store: RunStore,
    settings: SweepSettings,
    grid: Grid,
    expected_s: float,
    console: Console,
) -> int:
    from sweep.leftovers import clear_leftovers
    from sweep.preflight import require_everything

    book = AttemptBook(store)
    # Before the store is made: a request that is refused leaves no empty one behind.
    require_everything(plan.todo)
    book.require_free_disk(settings.min_free_disk_mib)
    try:
        store.create()
    except OSError as error:
        raise _unwritable(store, error) from error
    with StoreLock(store.lock):
        for name in book.bury_orphans():
            console.print(f"[yellow]left by a dead sweep:[/] attempts/{name}", highlight=False)
        for name in clear_leftovers({testbed_kind(point) for point in plan.todo}):
            console.print(f"[yellow]removed what a dead sweep left:[/] {name}", highlight=False)
        # Another sweep may have completed runs since the plan was shown; nobody can from here on.
        plan = _plan(grid, store, settings)
        if not plan.todo:
            return 0
        _record_invocation(store, grid)
        return _drive(plan, book, settings, expected_s, console)


def _unwritable(store: RunStore, error: OSError) -> StorageError:
    return StorageError(
        f"the run store {store.root} can't be written: {error.strerror or error}. "
        "Choose another place with sweep.dir=…"
    )


def _drive(
    plan: Plan, book: AttemptBook, settings: SweepSettings, expected_s: float, console: Console
) -> int:
    from sweep.cluster.ray_session import ray_session
    from sweep.cluster.runner import Options, Runner

    options = Options(
        testbeds=min(settings.testbeds, len(plan.todo)),
        max_attempts=settings.max_attempts,
        run_timeout_s=settings.run_timeout_s,
        min_free_disk_mib=settings.min_free_disk_mib,
        bounds={
            "min_rate_ratio": settings.min_rate_ratio,
            "max_load_cpu": settings.max_load_cpu,
        },
    )
    with ray_session(dashboard=settings.dashboard) as session:
        if session.dashboard_url:
            console.print(f"Ray dashboard: {session.dashboard_url}", highlight=False)
        done = len(plan.done) + len(plan.kept)
        view = View(
            console, len(plan.todo) + done, done, expected_s=expected_s, testbeds=options.testbeds
        )
        runner = Runner(plan, book, options, view, session.alive)
        try:
            failed = runner.run()
        finally:
            view.close()
    if runner.ray_died:
        console.print(
            "Ray died (killed, or out of memory?). Run the same command again to complete "
            "what is missing.",
            highlight=False,
            soft_wrap=True,
        )
    return _closing_words(plan, book.store, failed, runner.interrupted, console)


def _closing_words(
    plan: Plan, store: RunStore, failed: Mapping[str, str], interrupted: bool, console: Console
) -> int:
    # A run that was to replace one of another configuration is missing although that is complete.
    complete = _complete(store)
    missing = [p.run_id for p in plan.todo if complete.get(p.run_id) != p.fingerprint]
    if interrupted:
        console.print(
            f"stopped: {counted(len(missing), 'run')} missing. "
            "Run the same command again to complete the sweep.",
            highlight=False,
        )
        return 130
    for run_id, reason in failed.items():
        attempts = [a for a in store.all_attempts() if a.run_id == run_id]
        where = f" (logs: {attempts[-1].paths.logs})" if attempts else ""
        console.print(f"failed: {run_id}: {reason}{where}", highlight=False, soft_wrap=True)
    left = len(missing) - len(failed.keys() & set(missing))
    console.print(
        f"{counted(len(plan.todo) - len(missing), 'run')} completed, {len(failed)} failed"
        f"{f', {left} not made' if left else ''}. "
        f"Tables: python -m sweep.report {shlex.quote(str(store.root))}",
        highlight=False,
        soft_wrap=True,
    )
    return 1 if missing or failed else 0


def _record_invocation(store: RunStore, grid: Grid) -> None:
    """Add this request to `sweep.yaml`: axes, versions, when, where."""
    from sweep.versions import host, versions

    try:
        record = yaml.safe_load(store.sweep_yaml.read_text(encoding="utf-8"))
        invocations = list(record["invocations"])
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        invocations = []  # none yet, or spoilt: what is asked for now is known
    invocations.append(
        {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": [Path(sys.argv[0]).parent.name or "sweep", *sys.argv[1:]],
            "pid": os.getpid(),
            "host": host(),
            "versions": versions(),
            "axes": _axes(grid.points),
            "runs": [point.run_id for point in grid.points],
        }
    )
    try:
        write_yaml(store.sweep_yaml, {"schema_version": 1, "invocations": invocations})
    except OSError as error:
        raise _unwritable(store, error) from error


def _axes(points: Sequence[RunPoint]) -> dict[str, list[Any]]:
    names = ("model", "mode", "algorithm", "scale", "seed")
    return {name: list(dict.fromkeys(getattr(p, name) for p in points)) for name in names}
