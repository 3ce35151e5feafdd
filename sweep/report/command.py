"""What the command line asks for, in order."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from sweep.report import cells
from sweep.report.cells import PAPER_LEGEND, methods
from sweep.report.errors import ReportError
from sweep.report.load import LeftOut, Loaded, load
from sweep.report.memo import FILE as MEMO_FILE
from sweep.report.memo import Intervals
from sweep.report.tables.context import Context
from sweep.report.tables.registry import ALL, MODEL_TABLES, PAPER_TABLES, RUN_TABLES
from sweep.report.terminal import console, print_table
from sweep.store.paths import RunStore

MANY_RUNS = 24
"""Above this, the terminal shows policies and leaves single runs to --runs, CSV and HTML."""


def report(args: argparse.Namespace) -> int:
    """Make the report that `args` asks for. Raises `ReportError`."""
    wanted = _wanted(args.tables)
    store = RunStore(args.dir)
    out = console()
    if args.replay:
        others = {"--tables": wanted, "--html": args.html, "--csv": args.csv, "--runs": args.runs}
        if given := [name for name, value in others.items() if value]:
            raise ReportError(f"--replay shows one run, no tables: leave out {', '.join(given)}")
        from sweep.report.replay import replay

        replay(out, store, args.replay, args.figures)
        return 0
    with _progress("reading runs") as advance:
        loaded = load(store, from_raw=args.from_raw, on_progress=advance)
    context = Context(loaded, Intervals(store.root / MEMO_FILE))
    names = wanted or _default_tables(context, args.runs)
    every = list(ALL) if args.html or args.csv else names
    with _progress("tables") as advance:
        tables = {}
        for done, name in enumerate(dict.fromkeys([*names, *every]), 1):
            tables[name] = ALL[name](context)
            advance(done, len(every), name)
    context.iv.save()
    print_header(out, loaded)
    for name in names:
        print_table(out, tables[name])
    print_footer(out, loaded, [tables[n] for n in names], _hints(names) if not wanted else [])
    try:
        _write_files(args, context, tables)
    except OSError as error:
        raise ReportError(f"{error.filename}: {error.strerror}") from error
    context.iv.save()
    return 0


def _write_files(
    args: argparse.Namespace, context: Context, tables: Mapping[str, cells.Table]
) -> None:
    """CSV, figures and HTML, as far as asked for; says on stderr where they are."""
    said = Console(stderr=True, highlight=False)
    if args.csv:
        from sweep.report.csv_files import write_csv

        files = write_csv(args.csv, context.loaded, list(tables.values()))
        said.print(f"wrote {len(files)} CSV files to {args.csv}", soft_wrap=True)
    if not (args.figures or args.html):
        return
    from sweep.report.figures.registry import FIGURES, drawn, save, svg

    figures: dict[str, tuple[str, str]] = {}
    with _progress("figures") as advance:
        for done, (name, caption, figure) in enumerate(drawn(context), 1):
            if args.figures:
                save(figure, args.figures, name)
            if args.html:
                figures[name] = caption, svg(figure)
            advance(done, len(FIGURES) + 1, name)
    if args.figures:
        said.print(f"wrote the figures to {args.figures}", soft_wrap=True)
    if args.html:
        from sweep.report.html import write_html

        write_html(args.html, context.loaded, list(tables.values()), figures)
        said.print(f"wrote {args.html}", soft_wrap=True)


def _wanted(text: str | None) -> list[str]:
    if text is None:
        return []
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in ALL]
    if unknown or not names:
        raise ReportError(
            f"no table {', '.join(unknown) or 'was named'}; there are {', '.join(ALL)}"
        )
    return names


def _default_tables(context: Context, all_runs: bool) -> list[str]:
    runs = list(RUN_TABLES) if all_runs or context.runs.height <= MANY_RUNS else []
    deciding = context.deciding
    # With one run each, tables by policy would only repeat the tables by run.
    repeated = runs and deciding.height == deciding.select("model", "mode").n_unique()
    # Without any of its models a store has next to nothing in the paper's tables.
    papers = PAPER_TABLES if context.comparable else {}
    return [*runs, *([] if repeated else MODEL_TABLES), *papers]


@contextmanager
def _progress(what: str) -> Iterator:  # type: ignore[type-arg]
    """A progress bar on stderr that appears only on a terminal."""
    screen = Console(stderr=True)
    with Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[run_id]}"),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    ) as progress:
        task = progress.add_task(what, total=None, run_id="")
        yield lambda done, total, run_id: progress.update(
            task, completed=done, total=total, run_id=run_id
        )


def print_header(out: Console, loaded: Loaded) -> None:
    """What store this is and how much of it is reported."""
    runs = loaded.runs
    out.print(Text(f"Run store {loaded.store.root}", style="bold"))
    parts = [f"{runs.height} of {loaded.complete} complete runs reported"]
    if runs.height:
        parts.append(f"{runs['requests'].sum():,} client requests")
        parts.append("N = " + ", ".join(map(str, sorted(runs["scale"].unique()))))
        durations = sorted(runs["duration_s"].unique())
        parts.append(", ".join(f"{d:g}" for d in durations) + " s each")
        parts.append("testbed " + ", ".join(sorted(runs["testbed"].unique())))
    out.print(Text("; ".join(parts)))


def _hints(names: Sequence[str]) -> list[str]:
    hints = []
    if "runs-client" not in names:
        hints.append("Single runs: --runs, --csv DIR or --html FILE.")
    if "6" not in names:
        hints.append("The paper's tables: --tables 5,6,7,8,9,10,11,12,13,14 or --html FILE.")
    return hints


def print_footer(
    out: Console, loaded: Loaded, tables: Sequence[cells.Table], hints: Sequence[str] = ()
) -> None:
    """Intervals by name, what was left out, and where to look next."""
    out.print()
    if names := methods(tables):
        out.print(Text(f"95% intervals in square brackets: {', '.join(names)}.", style="dim"))
    if any(c.paper is not None for t in tables for r in t.rows for c in r.cells):
        out.print(Text(f"{PAPER_LEGEND}.", style="dim"))
    for hint in hints:
        out.print(Text(hint, style="dim"))
    print_left_out(out, loaded.left_out)


def print_left_out(out: Console, left_out: Sequence[LeftOut], most: int = 20) -> None:
    """Count and list what the tables do not contain."""
    if not left_out:
        out.print(Text("Nothing was left out.", style="dim"))
        return
    counts = Counter(item.kind for item in left_out)
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    out.print(Text(f"Left out, in whole or in part: {kinds}", style="yellow"))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="yellow", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    for item in left_out[:most]:
        grid.add_row(f"  {item.kind}", Text(item.run_id), Text(item.reason))
    out.print(grid)
    if len(left_out) > most:
        out.print(Text(f"  … and {len(left_out) - most} more (all of them in --html and --csv)"))
