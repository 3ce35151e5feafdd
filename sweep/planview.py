"""The plan, as a person reads it."""

from __future__ import annotations

import shlex
from collections import Counter

from rich.console import Console
from rich.table import Table

from sweep.plan import Plan
from sweep.progress import counted, duration_text
from sweep.store.paths import RunStore


def print_plan(
    console: Console,
    plan: Plan,
    store: RunStore,
    *,
    left_out: int,
    expected_s: float,
    every_run: bool,
) -> None:
    """How many runs there are, how many are done, what has to be loaded, how long it takes."""
    total = len(plan.todo) + len(plan.done) + len(plan.kept) + len(plan.before_start)
    if every_run:
        _print_runs(console, plan)
    _print_models(console, plan)
    say = lambda text: console.print(text, highlight=False, soft_wrap=True)  # noqa: E731
    runs = f"[bold]{counted(total, 'run')}[/]"
    say(f"{runs} in {store.root}: {len(plan.done) + len(plan.kept)} done, {len(plan.todo)} to do")
    if left_out:
        say(f"{counted(left_out, 'combination')} left out: no such mode of that model")
    if plan.before_start:
        say(f"{counted(len(plan.before_start), 'run')} left out by sweep.start_at")
    if plan.replaced:
        replaced = counted(len(plan.replaced), "run")
        say(f"{replaced} of another configuration to be set aside and run again")
    if plan.kept:
        say(f"{counted(len(plan.kept), 'run')} of another configuration kept as found")
    if plan.todo:
        loads = plan.model_loads
        say(
            f"{counted(len(loads), 'model load')}{': ' + ', '.join(loads) if loads else ''}; "
            f"about {duration_text(expected_s)}"
        )
    else:
        say(f"Nothing to do. Tables: python -m sweep.report {shlex.quote(str(store.root))}")


def _print_models(console: Console, plan: Plan) -> None:
    done = Counter(p.model for p in (*plan.done, *plan.kept))
    todo = Counter(p.model for p in plan.todo)
    table = Table(box=None, padding=(0, 2), header_style="bold")
    table.add_column("model")
    table.add_column("modes")
    for title in ("done", "to do"):
        table.add_column(title, justify="right")
    everything = (*plan.todo, *plan.done, *plan.kept)
    for model in dict.fromkeys(p.model for p in everything):
        modes = dict.fromkeys(p.mode for p in everything if p.model == model)
        table.add_row(model, " ".join(modes), str(done[model]), str(todo[model]))
    console.print(table)


def _print_runs(console: Console, plan: Plan) -> None:
    for state, points in (("to do", plan.todo), ("done", plan.done), ("kept", plan.kept)):
        for point in points:
            console.print(f"{state:6} {point.run_id}", highlight=False, soft_wrap=True)
