"""Tables 5, 6, 7: floors, localization, effectiveness (paper, §3.3, §5.3)."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from sweep import paper
from sweep.report.cells import EMPTY, Cell, Column, Row, Table, scaled
from sweep.report.tables.columns import RUNS, SCORES
from sweep.report.tables.context import Context, by_size

ALGORITHMS = ("leastconn", "roundrobin")
THINKING = ("think", "low", "medium", "high")
"""Modes with reasoning; every other mode counts as without."""


def scales(runs: pl.DataFrame) -> list[int]:
    """Fleet sizes of the runs, ascending."""
    return sorted(runs["scale"].unique())


def absent_scales(runs: pl.DataFrame) -> tuple[str, ...]:
    """A note naming the paper's fleet sizes that the runs lack."""
    lacking = [s for s in paper.SCALES if int(s) not in set(runs["scale"])]
    return (f"No runs at N = {', '.join(lacking)}.",) if runs.height and lacking else ()


def at(runs: pl.DataFrame, **values: object) -> pl.DataFrame:
    """Runs with these values."""
    return runs.filter(**values)


def beyond_paper(runs: pl.DataFrame) -> tuple[str, ...]:
    """A note naming models that the paper lacks, for cells that pool over models."""
    others = sorted(set(runs["title"].unique()) - set(paper.TITLES))
    return (f"Pools include models outside the paper: {', '.join(others)}.",) if others else ()


def table5(context: Context) -> Table:
    """No-intervention floor by fleet size."""
    columns = (
        RUNS,
        Column("users", "Users", "virtual", 0),
        Column("faulty", "Faulty", "backends", 0),
        Column("structural", "By construction", "%", 2),
        Column("floor", "Measured", "%", 2),
        *(Column(a, a, "%", 2) for a in ALGORITHMS),
    )
    statics = context.static("error_on")
    rows = []
    for scale in scales(statics):
        runs = at(statics, scale=scale)
        label = str(scale)
        built = runs["floor_rate"].drop_nulls().unique()
        found = runs.select(pl.col("faulty_slots").list.len()).to_series().drop_nulls()
        faulty = found.max() if found.len() else None
        share = 100 * built[0] if built.len() == 1 else None
        rows.append(
            Row(
                (label,),
                (
                    Cell(runs.height, n=runs.height),
                    _users(runs, paper.value("5", label, "users")),
                    Cell(faulty, runs.height, paper=paper.value("5", label, "faulty")),
                    Cell(share, runs.height),
                    _floor(context, runs, paper.value("5", label, "floor")),
                    *(_floor(context, at(runs, algorithm=a), None) for a in ALGORITHMS),
                ),
            )
        )
    return Table(
        "5",
        "No-intervention floor by fleet size",
        "Client 5xx rate of the static error-on runs, pooled over requests, Wilson interval. By "
        "construction it is the mean error rate of the fleet's backends.",
        ("N",),
        columns,
        tuple(rows),
        ("The paper prints its floors with one decimal.", *absent_scales(statics)),
    )


def _users(runs: pl.DataFrame, value: float | None) -> Cell:
    """Virtual users of the runs; all their numbers where they differ, none where none is known."""
    known = runs["vus"].drop_nulls()
    users = known.unique().sort().to_list()
    shown = users[0] if len(users) == 1 else ", ".join(map(str, users)) or None
    return Cell(shown, known.len(), paper=value)


def _floor(context: Context, runs: pl.DataFrame, value: float | None) -> Cell:
    usable = runs.filter(pl.col("requests") > 0)
    if not usable.height:
        return Cell(None, n=0, paper=value, note=EMPTY.note)
    failed, requests = int(usable["http_5xx"].sum()), int(usable["requests"].sum())
    interval = scaled(context.iv.wilson(failed, requests), 100)
    return Cell(100 * failed / requests, requests, interval, paper=value)


def table6(context: Context) -> Table:
    """Fault localization by model."""
    rows = []
    for group in by_size(context.llm).partition_by("title", maintain_order=True):
        title = group["title"][0]
        rows.append(
            _scores_row(context, title, group, paper.TABLES["6"].rows.get(title, {}), title)
        )
    if rows:
        headline: dict[str, float] = {}
        if context.comparable:
            headline = {k: paper.HEADLINES[k].value for k in ("precision", "recall", "f1")}
            headline |= {"exact": paper.HEADLINES["exact"].value / 100, "n": paper.LLM_RUNS}
        rows.append(_scores_row(context, "All LLM runs", context.llm, headline, section=True))
    for index, group in enumerate(
        by_size(context.rules).partition_by("title", maintain_order=True)
    ):
        rows.append(_scores_row(context, group["title"][0], group, {}, section=index == 0))
    missing = [t for t in paper.TITLES if t not in set(context.llm["title"])]
    if len(missing) == len(paper.TITLES):
        missing = ["any of the paper's models"]
    notes = (f"No runs of {', '.join(missing)}.",) if rows and missing else ()
    return Table(
        "6",
        "Fault localization by model",
        "Ever-drained set against the faulty set; micro scores pool TP, FP, FN over runs. "
        "Intervals: bootstrap over runs for scores, Wilson over runs for exact match. The rule "
        "marks the paper's capability threshold.",
        ("Model",),
        (RUNS, *SCORES),
        tuple(rows),
        notes + beyond_paper(context.llm),
    )


def _scores_row(
    context: Context,
    label: str,
    runs: pl.DataFrame,
    papers: Mapping[str, float],
    title: str = "",
    section: bool = False,
) -> Row:
    cells = (Cell(runs.height, runs.height, paper=papers.get("n")), *context.micro(runs, papers))
    return Row((label,), cells, section or title == "Qwen3 4B")


def table7(context: Context) -> Table:
    """Median reduction by family and reasoning mode."""
    columns = (
        RUNS,
        Column("nothink", "nothink", "%, median", 1),
        Column("think", "think", "%, median", 1),
    )
    thinks = pl.col("mode").is_in(THINKING)
    rows = []
    by_name = context.llm.sort(pl.col("family").str.to_lowercase(), maintain_order=True)
    for group in by_name.partition_by("family", maintain_order=True):
        family = group["family"][0] or "unknown family"
        cells = [Cell(group.height, group.height)]
        for key, part in (("nothink", group.filter(~thinks)), ("think", group.filter(thinks))):
            cells.append(context.median(part, "reduction_pct", paper.value("7", family, key)))
        rows.append(Row((family,), tuple(cells)))
    return Table(
        "7",
        "Median client 5xx reduction by family and reasoning mode",
        "Against the matched static error-on run; bootstrap over runs. think holds every mode with "
        "reasoning, all efforts of GPT-OSS included; nothink holds models without reasoning too.",
        ("Family",),
        columns,
        tuple(rows),
    )
