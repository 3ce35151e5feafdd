"""What a sweep shows while it runs: bars on a terminal, one line an event elsewhere."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from sweep.cluster.messages import Progress as RunProgress
    from sweep.cluster.messages import Report


def counted(number: int, noun: str) -> str:
    """`1 run`, `2 runs`, `0 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration_text(seconds: float) -> str:
    """`3 d 4 h`, `1 h 05 min`, `4 min 10 s`, `12 s`."""
    seconds = max(0, round(seconds))
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    if minutes:
        return f"{minutes} min {secs:02d} s"
    return f"{secs} s"


@dataclass
class View:
    """The driver's display. All methods return at once; `close` gives the terminal back."""

    console: Console
    total: int
    done_before: int
    expected_s: float
    """Expected wall time of what is to do, for the time left until runs have ended."""
    testbeds: int = 1
    _rows: dict[int, RunProgress] = field(default_factory=dict, init=False)
    _labels: dict[int, str] = field(default_factory=dict, init=False)
    _server: str = field(default="", init=False)
    _complete: int = field(default=0, init=False)
    _failed: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("runs"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
        )
        self._task = self._bar.add_task(
            "sweep", total=self.total, completed=self.done_before, left=""
        )
        self._live: Live | None = None
        if self.console.is_terminal:
            self._live = Live(
                self._render(), console=self.console, refresh_per_second=4, transient=True
            )
            self._live.start()

    def close(self) -> None:
        """End the display; idempotent."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def run_started(self, run_id: str, testbed: int, attempt: int) -> None:
        """An attempt begins."""
        again = f" (try {attempt})" if attempt > 1 else ""
        self._labels[testbed] = f"{run_id}{again}"
        self._say(f"[cyan]start[/]     {run_id}{again}")

    def run_ended(self, run_id: str, testbed: int, report: Report) -> None:
        """An attempt ended."""
        self._labels.pop(testbed, None)
        self._rows.pop(testbed, None)
        if report.outcome == "complete":
            self._complete += 1
            self._bar.update(self._task, advance=1)
            notes = f": {'; '.join(report.notes)}" if report.notes else ""
            self._say(f"[green]complete[/]  {run_id}{notes}")
        elif report.outcome == "interrupted":
            self._say(f"[yellow]stopped[/]   {run_id}")
        else:
            self._say(f"[red]failed[/]    {run_id}: {report.reason}")

    def gave_up(self, run_id: str, reason: str) -> None:
        """A run failed for good."""
        self._failed += 1
        self._say(f"[red bold]gave up[/]   {run_id}: {reason}")

    def server(self, model: str, state: str) -> None:
        """The model server's state: loading, warm, stopping, failed or gone ("")."""
        self._server = f"{model} {state}" if state else ""
        if state in ("loading", "warm", "failed"):
            self._say(f"[magenta]model[/]     {model} {state}")

    def stopping(self, running: int) -> None:
        """The sweep stops: it was asked to, or can't go on."""
        self._say(f"[yellow]stopping[/]  {running} running, Ctrl-C now kills them")

    def progress(self, testbed: int, progress: RunProgress) -> None:
        """Where a worker is."""
        self._rows[testbed] = progress

    def refresh(self) -> None:
        """Redraw; rich limits the rate."""
        self._bar.update(self._task, left=f"{duration_text(self._left_s())} left")
        if self._live is not None:
            self._live.update(self._render())

    def _left_s(self) -> float:
        spent = time.monotonic() - self._began_s
        planned = self.total - self.done_before
        if self._complete:
            ended = self._complete + self._failed
            return spent / ended * max(0, planned - ended)
        return max(0.0, self.expected_s - spent)

    def _say(self, markup: str) -> None:
        clock = time.strftime("%H:%M:%S")
        self.console.print(f"[dim]{clock}[/] {markup}", highlight=False, soft_wrap=True)

    def _render(self) -> Group:
        table = Table.grid(padding=(0, 2))
        for testbed, label in sorted(self._labels.items()):
            row = self._rows.get(testbed)
            if row is None:
                table.add_row(f"testbed {testbed}", label, "", "", "")
                continue
            rate = "" if row.errors_per_s is None else f"{row.errors_per_s:.2f} 5xx/s"
            steps = f"step {row.step}/{row.steps}" if row.steps else ""
            clock = f"{row.elapsed_s:.0f}/{row.duration_s:.0f} s" if row.elapsed_s else ""
            table.add_row(f"testbed {testbed}", label, row.phase, steps, f"{rate}  {clock}")
        parts: list[object] = [table]
        if self._server:
            parts.append(Text(f"model server  {self._server}"))
        return Group(*parts, self._bar)
