"""One run, step by step: what was observed, said, allowed, done, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from sweep.metrics.aggregate import compute
from sweep.metrics.cache import read_cache
from sweep.report.errors import NotAStore, ReportError
from sweep.report.steps import read_conversations, read_steps
from sweep.store.paths import RunStore


def replay(out: Console, store: RunStore, run_id: str, figures: Path | None = None) -> None:
    """Print the replay of a complete run. Raises `ReportError` where there is no such run."""
    paths = store.run(run_id)
    if not store.is_store():
        raise NotAStore(f"{store.root} is no run store: there is no folder {store.runs}")
    if not paths.root.is_dir():
        known = store.complete_ids()
        near = [r for r in known if run_id in r][:5] or known[:5]
        others = f"there {'is' if len(near) == 1 else 'are'} {', '.join(near) or 'none'}"
        raise ReportError(f"no complete run {run_id} in {store.runs}; {others}")
    try:
        summary = store.read_summary(run_id)
    except (OSError, ValueError) as error:
        raise ReportError(f"{paths.summary}: {_reason(error)}") from error
    try:
        _print(out, store, run_id, summary, figures)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{type(error).__name__} {error}"
        raise ReportError(f"{paths.root}: not the records of a run: {what}") from error


def _print(
    out: Console, store: RunStore, run_id: str, summary: Mapping[str, Any], figures: Path | None
) -> None:
    paths = store.run(run_id)
    steps, conversations = read_steps(paths), read_conversations(paths)
    aggregates = read_cache(paths) or compute(paths, summary)[0]
    out.print(Text(f"Replay of {run_id}", style="bold"))
    for line in header(summary, aggregates.metrics):
        out.print(Text(line))
    for group in collapse(steps):
        out.print()
        if len(group) > 1:
            first, last = group[0], group[-1]
            out.print(
                Text(
                    f"steps {first['step']} to {last['step']}  "
                    f"({first['started_s']:.0f} to {last['started_s']:.0f} s): nothing proposed",
                    style="dim",
                )
            )
            continue
        for style, line in step_lines(group[0], conversations.get(group[0]["step"])):
            out.print(
                Padding(
                    Text(line, style=style), (0, 0, 0, 0 if style == "bold" else 2), expand=False
                )
            )
    if figures is not None:
        _draw(store, run_id, summary, aggregates, steps, figures)
        out.print(Text(f"\ntimeline: {figures / 'timeline.svg'}", style="dim"))


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def header(summary: Mapping[str, Any], metrics: Mapping[str, Any]) -> Iterator[str]:
    """What the run was and how it ended."""
    point = summary["point"]
    yield (
        f"{summary['model'].get('title', point['model'])}, {point['mode']}, {point['algorithm']}, "
        f"N = {point['scale']}, {summary['duration_s']:g} s, {summary['error_mode']}"
    )
    yield (
        f"faulty: {_slots(metrics.get('faulty_slots'))}; "
        f"ever drained: {_slots(metrics.get('drained_slots'))}; "
        f"drained at the end: {_slots(metrics.get('final_drained_slots'))}"
    )
    if metrics.get("rate_5xx") is not None:
        yield (
            f"client 5xx rate {100 * metrics['rate_5xx']:.3f}% of {metrics['requests']:,} "
            f"requests; p95 {metrics['p95_ms']:.1f} ms"
        )


def _slots(names: Sequence[str] | None) -> str:
    return "unknown" if names is None else ", ".join(names) or "none"


def collapse(steps: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Steps one by one, but stretches in which nothing was proposed or failed as one group."""
    groups: list[list[Mapping[str, Any]]] = []
    for step in steps:
        if groups and is_quiet(step) and is_quiet(groups[-1][0]):
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def is_quiet(step: Mapping[str, Any]) -> bool:
    """Whether the step proposed nothing, tripped nothing and did not fail."""
    proposed = any(a["kind"] != "no_op" for a in step.get("raw_plan") or ())
    return not (proposed or step.get("interventions") or step.get("error"))


def step_lines(
    step: Mapping[str, Any], conversation: Mapping[str, Any] | None = None
) -> Iterator[tuple[str, str]]:
    """(style, line) of one step: observation, words, plan, guardrails, results, afterwards."""
    usage = step.get("usage") or {}
    tokens = f", {usage['completion_tokens']} tokens" if usage.get("turns") else ""
    decide = (step.get("timings_s") or {}).get("decide") or 0.0
    yield (
        "bold",
        f"step {step['step']} at {step['started_s']:.1f} s (decided in {decide:.2f} s{tokens})",
    )
    yield "", f"saw    {_observation(step.get('snapshot') or {})}"
    if step.get("error"):
        yield "red", f"failed {step['error']}"
    words = step.get("rationale") or _last_words(conversation)
    if step.get("reasoning"):
        yield "dim", f"thought {_short(step['reasoning'])}"
    if words:
        yield "italic", f"said   {_short(words)}"
    for action in step.get("raw_plan") or ():
        yield (
            "cyan",
            f"wanted {_action(action)}"
            + (f": {_short(action['reason'], 120)}" if action.get("reason") else ""),
        )
    for error in step.get("validation_errors") or ():
        yield "red", f"error  {_short(str(error), 200)}"
    for item in step.get("interventions") or ():
        yield (
            "yellow",
            f"rail   {item['rail']}: {item['verdict']} (action {item['index'] + 1}): "
            f"{item['reason']}",
        )
    for result in step.get("results") or ():
        yield ("green" if result["ok"] else "red"), f"did    {_result(result)}"
    after = (step.get("post") or {}).get("servers") or ()
    if after and step.get("results"):
        states = [
            f"{s['server']} {s['admin_state']}, weight {s['weight']}"
            for s in after
            if s["admin_state"] != "ready" or s["weight"] != 100
        ]
        yield "", f"then   {'; '.join(states) or 'all servers in rotation at weight 100'}"


def _observation(snapshot: Mapping[str, Any]) -> str:
    servers = snapshot.get("servers") or ()
    failing = [
        f"{s['server']} {s['errors_per_s']:.2f}/s"
        for s in servers
        if (s.get("errors_per_s") or 0) > 0
    ]
    total = snapshot.get("errors_per_s_total")
    window = "" if (snapshot.get("window") or {}).get("full", True) else ", window not full"
    return (
        f"{snapshot.get('servers_up')}/{snapshot.get('servers_total')} up, "
        f"5xx {'unknown' if total is None else f'{total:.2f}/s'} "
        f"({', '.join(failing) or 'none failing'}){window}"
    )


def _last_words(conversation: Mapping[str, Any] | None) -> str:
    """The last text that the model gave in a conversation record; empty where there is none."""
    found = ""
    for turn in (conversation or {}).get("turns") or ():
        text = turn.get("text") if isinstance(turn, dict) else None
        found = text if isinstance(text, str) and text.strip() else found
    return found


def _action(action: Mapping[str, Any]) -> str:
    weight = f" to {action['weight']}" if action.get("weight") is not None else ""
    return f"{action['kind']} {action.get('server') or ''}{weight}".strip()


def _result(result: Mapping[str, Any]) -> str:
    text = _action(result["action"])
    before, after = result.get("weight_before"), result.get("weight_after")
    if before != after:
        text += f" (weight {before} to {after})"
    if result.get("admin_state_after"):
        text += f", now {result['admin_state_after']}"
    return text if result["ok"] else f"{text}: refused: {result.get('message')}"


def _short(text: str, most: int = 400) -> str:
    flat = " ".join(str(text).split())
    return flat if len(flat) <= most else flat[: most - 1] + "…"


def _draw(
    store: RunStore, run_id: str, summary: Any, aggregates: Any, steps: Any, folder: Path
) -> None:
    import polars as pl

    from sweep.report.figures import timeline
    from sweep.report.figures.registry import save
    from sweep.report.figures.style import styled

    try:
        with styled():
            figure = timeline.draw(store.run(run_id), summary, aggregates, steps)
        save(figure, folder, "timeline")
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ReportError(f"no timeline of {run_id}: {error}") from error
