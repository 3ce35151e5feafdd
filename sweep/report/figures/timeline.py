"""The timeline of one run: what a person looks at first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from sweep.metrics import WINDOW_S
from sweep.metrics.cache import RunAggregates
from sweep.report.figures.style import BLUE, GREEN, GREY, INK, ORANGE, RED, SKY, SOFT
from sweep.store.paths import RunPaths

CAPTION = (
    "Timeline of {run_id}. From above: client 5xx rate in 10 s windows; 5xx answers per second of "
    "every slot; state and weight of every slot (dark: weight 100, pale: less, hatched: drained; "
    "triangles: faulty slots) with guardrail hits; client latency; time that each decision took "
    "(crossed: failed)."
)


def draw(
    paths: RunPaths,
    summary: Mapping[str, Any],
    aggregates: RunAggregates,
    steps: Sequence[Mapping[str, Any]],
) -> Figure:
    """Five panels over the time of the run. Raises `polars.exceptions.PolarsError`, OSError."""
    counters = pl.read_parquet(paths.counters, glob=False)
    t0_us, duration_s = int(summary["t0_us"]), float(summary["duration_s"])
    slots = _ordered(counters["slot"].unique().to_list())
    faulty = set(aggregates.metrics.get("faulty_slots") or ())
    height = 7.2 + 0.2 * len(slots)
    figure = Figure(figsize=(9, height), layout="constrained")
    client, per_slot, states, latency, decide = figure.subplots(
        5, 1, sharex=True, height_ratios=(1.2, 1.2, 0.5 + 0.22 * len(slots), 1.2, 0.9)
    )
    figure.suptitle(str(summary["run_id"]), x=0.01, ha="left", fontsize=11)
    _client(client, aggregates)
    _per_slot(per_slot, counters, slots, faulty, t0_us, duration_s)
    _states(states, counters, slots, faulty, t0_us, duration_s, steps)
    _latency(latency, aggregates)
    _decide(decide, steps, float(summary["interval_s"]))
    decide.set_xlabel("Time from run start (s)")
    decide.set_xlim(0, duration_s)
    figure.align_ylabels()
    return figure


def _ordered(slots: list[str]) -> list[str]:
    return sorted(slots, key=lambda s: (len(s), s))


def _client(axes: Axes, aggregates: RunAggregates) -> None:
    windows = aggregates.windows
    if not windows:
        axes.text(0.5, 0.5, "no usable requests", transform=axes.transAxes, ha="center")
        return
    requests = np.array(windows["requests"][:-1], float)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = 100 * np.array(windows["http_5xx"][:-1], float) / requests
    edges = np.arange(rate.size + 1) * WINDOW_S
    axes.stairs(np.nan_to_num(rate), edges, fill=True, color=RED, alpha=0.35)
    axes.stairs(np.nan_to_num(rate), edges, color=RED, linewidth=1.2)
    axes.set_ylabel("Client 5xx (%)")
    axes.set_ylim(bottom=0)


def _per_slot(
    axes: Axes,
    counters: pl.DataFrame,
    slots: Sequence[str],
    faulty: set[str],
    t0_us: int,
    duration_s: float,
) -> None:
    edges = np.arange(0, duration_s + WINDOW_S, WINDOW_S)
    styles = ("-", "--", "-.", ":")
    colours = (RED, ORANGE, BLUE, GREEN)
    number = 0
    for slot in slots:
        one = counters.filter(slot=slot).sort("ts_us")
        times = (one["ts_us"].to_numpy() - t0_us) / 1e6
        totals = np.interp(edges, times, one["http_5xx_total"].to_numpy().astype(float))
        rate = np.diff(totals) / WINDOW_S
        if slot in faulty:
            style = {
                "color": colours[number % 4],
                "linestyle": styles[number % 4],
                "linewidth": 1.6,
                "label": f"{slot} (faulty)",
            }
            number += 1
        else:
            style = {"color": GREY, "linewidth": 0.9, "alpha": 0.8}
        axes.plot(edges[:-1] + WINDOW_S / 2, rate, **style)
    if len(faulty) < len(slots):
        axes.plot([], [], color=GREY, linewidth=0.9, label="healthy slots")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 0.98), ncols=6)
    axes.set_ylabel("5xx per s, by slot")
    axes.set_ylim(bottom=0)


def _states(
    axes: Axes,
    counters: pl.DataFrame,
    slots: Sequence[str],
    faulty: set[str],
    t0_us: int,
    duration_s: float,
    steps: Sequence[Mapping[str, Any]],
) -> None:
    for row, slot in enumerate(slots):
        one = counters.filter(slot=slot).sort("ts_us")
        times = np.clip((one["ts_us"].to_numpy() - t0_us) / 1e6, 0, duration_s)
        out = (
            one["admin_state"].is_in(["drain", "maint"]).to_numpy()
            | (one["weight"] == 0).to_numpy()
        )
        weight = one["weight"].to_numpy()
        for start, end, (drained, level) in _spans(
            times, list(zip(out.tolist(), weight.tolist(), strict=True)), duration_s
        ):
            if drained:
                axes.barh(
                    row,
                    end - start,
                    left=start,
                    height=0.62,
                    color="white",
                    hatch="/////",
                    edgecolor=SOFT,
                    linewidth=0.5,
                )
            else:
                axes.barh(
                    row,
                    end - start,
                    left=start,
                    height=0.62,
                    color=BLUE,
                    alpha=0.15 + 0.6 * min(1.0, level / 100),
                    linewidth=0,
                )
                if level != 100:
                    axes.text(start + 2, row, str(level), va="center", fontsize=6.5, color=INK)
        if slot in faulty:
            axes.plot(
                -0.006,
                row,
                "<",
                color=RED,
                markersize=5,
                clip_on=False,
                transform=axes.get_yaxis_transform(),
            )
    hits = [s["started_s"] for s in steps if s.get("interventions")]
    if hits:
        # Without data an unclipped line has no extent, and the layout collapses.
        axes.plot(
            hits,
            [-0.75] * len(hits),
            "v",
            color=ORANGE,
            markeredgecolor=INK,
            markeredgewidth=0.5,
            markersize=6,
            clip_on=False,
        )
    axes.set_yticks(range(len(slots)), slots, fontsize=7.5)
    axes.tick_params(axis="y", pad=9)
    axes.set_ylim(len(slots) - 0.5, -1.1)
    axes.grid(False, axis="y")
    axes.legend(
        handles=[
            Patch(facecolor=BLUE, alpha=0.75, label="in rotation, weight 100"),
            Patch(facecolor=BLUE, alpha=0.3, label="lower weight (number)"),
            Patch(facecolor="white", edgecolor=SOFT, hatch="/////", label="drained"),
            Line2D(
                [],
                [],
                marker="v",
                linestyle="",
                color=ORANGE,
                markeredgecolor=INK,
                label=f"guardrail hit ({len(hits)})",
            ),
        ],
        loc="lower left",
        bbox_to_anchor=(0, 0.98),
        ncols=4,
    )
    axes.set_ylabel("Slots")


def _spans(times: np.ndarray, values: Sequence[Any], end: float) -> list[tuple[float, float, Any]]:
    """Intervals of equal consecutive values."""
    spans: list[tuple[float, float, Any]] = []
    for time, value in zip(times.tolist(), values, strict=True):
        if spans and spans[-1][2] == value:
            spans[-1] = (spans[-1][0], time, value)
        else:
            if spans:
                spans[-1] = (spans[-1][0], time, spans[-1][2])
            spans.append((time, time, value))
    if spans:
        spans[-1] = (spans[-1][0], max(end, spans[-1][1]), spans[-1][2])
    return spans


def _latency(axes: Axes, aggregates: RunAggregates) -> None:
    windows = aggregates.windows
    if not windows:
        return
    for key, label, colour, style in (("p50_us", "p50", SKY, "--"), ("p95_us", "p95", BLUE, "-")):
        values = [np.nan if v is None else v / 1000 for v in windows[key][:-1]]
        middles = (np.arange(len(values)) + 0.5) * WINDOW_S
        axes.plot(middles, values, style, color=colour, linewidth=1.5, label=label)
    axes.set_ylabel("Latency (ms)")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 0.98), ncols=2)


def _decide(axes: Axes, steps: Sequence[Mapping[str, Any]], interval_s: float) -> None:
    started = [s["started_s"] for s in steps]
    took = [(s.get("timings_s") or {}).get("decide") or 0.0 for s in steps]
    failed = [s.get("error") is not None for s in steps]
    for chosen, style in (
        (False, {"color": GREEN}),
        (True, {"color": "white", "edgecolor": RED, "hatch": "xxxx", "label": "failed"}),
    ):
        kept = [i for i, f in enumerate(failed) if f == chosen]
        if kept:
            axes.bar(
                [started[i] for i in kept],
                [took[i] for i in kept],
                width=interval_s * 0.55,
                align="edge",
                linewidth=0.6 if chosen else 0,
                **style,
            )
    if any(failed):
        axes.legend(loc="lower left", bbox_to_anchor=(0, 0.96), ncols=2)
    if max(took, default=0) > 0.5 * interval_s:
        axes.axhline(
            interval_s,
            color=INK,
            linestyle="--",
            linewidth=0.9,
            label=f"interval, {interval_s:g} s",
        )
        axes.legend(loc="lower left", bbox_to_anchor=(0, 0.96), ncols=2)
    axes.set_ylabel("Decision (s)")
    axes.set_ylim(bottom=0)
