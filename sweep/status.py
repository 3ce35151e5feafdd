"""`python -m sweep.status DIR`: progress of a sweep, read from its run store alone."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from sweep.arguments import Parser
from sweep.progress import counted, duration_text
from sweep.store.lock import held
from sweep.store.owner import Owner
from sweep.store.paths import Attempt, RunPaths, RunStore


@dataclass(frozen=True)
class Status:
    """What a run store says of its sweep."""

    asked: tuple[str, ...]
    """Every run that any invocation asked for."""
    done: tuple[str, ...]
    running: tuple[Attempt, ...]
    failed: Mapping[str, str]
    """Runs that failed and were not completed since, with the last reason."""
    todo: tuple[str, ...]
    invalid: Mapping[str, str]
    live: bool
    """Whether a sweep is running on the store right now."""
    left_s: float | None
    """Expected time left; None when nothing tells."""


def read_status(store: RunStore) -> Status:
    """Read a run store; whoever writes it is not disturbed."""
    asked = _asked(store)
    complete = store.complete_ids()
    done = [run_id for run_id in asked if run_id in complete] if asked else complete
    running = [attempt for attempt in store.all_attempts() if _is_running(attempt)]
    active = {attempt.run_id for attempt in running}
    failed = {
        record["run_id"]: record["reason"]
        for record in store.read_failures()
        if record["outcome"] not in ("interrupted", "orphaned")
        and record["run_id"] not in complete
        and record["run_id"] not in active
    }
    todo = [r for r in asked if r not in complete and r not in active and r not in failed]
    totals, invalid = [], {}
    for run_id in done:
        try:
            summary = store.read_summary(run_id)
            totals.append(float(summary["phases_s"]["total"]))
            if not summary["valid"]:
                invalid[run_id] = "; ".join(summary["invalid_reasons"])
        except (OSError, ValueError, KeyError, TypeError):
            invalid[run_id] = "unreadable summary.json"
    live = held(store.lock)
    side_by_side = max(1, len(running))
    left = statistics.median(totals) * (len(todo) + len(running)) / side_by_side if totals else None
    return Status(
        tuple(asked), tuple(done), tuple(running), failed, tuple(todo), invalid, live, left
    )


def last_step(paths: RunPaths) -> Mapping[str, Any] | None:
    """The newest whole step record of an attempt; None when there is none yet."""
    try:
        lines = paths.steps.read_bytes().splitlines(keepends=True)
    except OSError:
        return None
    for line in reversed(lines):
        if line.endswith(b"\n"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None


def print_status(console: Console, store: RunStore, status: Status) -> None:
    """Counts, what runs, what failed, time left."""
    say = lambda text: console.print(text, highlight=False, soft_wrap=True)  # noqa: E731
    total = len(status.asked) or len(status.done)
    state = "running" if status.live else "not running"
    say(f"[bold]{store.root}[/]: {counted(total, 'run')}, sweep {state}")
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for title in ("done", "running", "failed", "to do"):
        table.add_column(title, justify="right")
    table.add_row(*(str(len(x)) for x in (status.done, status.running, status.failed, status.todo)))
    console.print(table)
    for attempt in status.running:
        step = last_step(attempt.paths)
        where = "starting"
        if step is not None:
            rate = step["snapshot"]["errors_per_s_total"]
            shown = "" if rate is None else f", {rate:.2f} 5xx/s"
            where = f"step {step['step'] + 1}{shown}"
        say(f"running  {attempt.run_id} (attempt {attempt.number}): {where}")
    for run_id, reason in status.failed.items():
        say(f"[red]failed[/]   {run_id}: {reason}")
    for run_id, reason in status.invalid.items():
        say(f"[yellow]invalid[/]  {run_id}: {reason}")
    if status.left_s and (status.todo or status.running):
        say(f"about {duration_text(status.left_s)} left")
    if not status.live and (status.todo or status.failed):
        say("Run the same sweep command again to complete what is missing.")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 2 when there is no run store at DIR."""
    parser = Parser(
        prog="python -m sweep.status",
        description="Progress of a sweep: done, running, failed, to do, time left.",
    )
    parser.add_argument("dir", metavar="DIR", type=Path, help="a run store, such as outputs/main")
    parser.add_argument(
        "--watch", action="store_true", help="print again every 5 s until the sweep has ended"
    )
    args = parser.parse_args(argv)
    store = RunStore(args.dir)
    if not store.is_store():
        print(f"drainbench: {args.dir} is no run store (looked for {store.runs})", file=sys.stderr)
        return 2
    console = Console()
    try:
        while True:
            status = read_status(store)
            print_status(console, store, status)
            if not args.watch or not status.live:
                return 0
            time.sleep(5)
    except KeyboardInterrupt:
        return 130


def _asked(store: RunStore) -> list[str]:
    try:
        record = yaml.safe_load(store.sweep_yaml.read_text(encoding="utf-8"))
        runs = [run for invocation in record["invocations"] for run in invocation["runs"]]
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError):
        return []
    return list(dict.fromkeys(map(str, runs)))


def _is_running(attempt: Attempt) -> bool:
    try:
        owner = Owner.from_dict(json.loads(attempt.paths.owner.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return False
    return owner is not None and owner.alive() is not False


if __name__ == "__main__":
    raise SystemExit(main())
