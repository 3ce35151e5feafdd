"""Figure 3: client latency over time by control arm (paper, §5.4)."""

from __future__ import annotations

from math import ceil

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from sweep.metrics import WINDOW_S
from sweep.metrics.intervals import mean_interval
from sweep.report.arms import ARMS, with_arm
from sweep.report.figures.style import ARM_STYLES, empty
from sweep.report.tables.context import Context

CAPTION = (
    "Figure 3. Mean client latency in 10 s windows from run start, by control arm and algorithm, "
    "averaged over runs (and so over scales). Shaded: 95% interval of the mean over runs "
    "(Student t)."
)


def draw(context: Context) -> Figure:
    """One panel per algorithm, one line per arm."""
    runs = with_arm(context.runs.filter(pl.col("latency_n") > 0))
    algorithms = sorted(runs["algorithm"].unique())
    if not algorithms:
        return empty("No run has any requests.")
    figure = Figure(figsize=(4.4 * max(2, len(algorithms)), 3.5), layout="constrained")
    panels = figure.subplots(1, len(algorithms), sharey=True, squeeze=False)[0]
    for axes, algorithm in zip(panels, algorithms, strict=True):
        for arm, title in ARMS.items():
            chosen = runs.filter(algorithm=algorithm, arm=arm)
            if not chosen.height:
                continue
            times, mean, low, high = window_means(context, chosen)
            colour, dashes = ARM_STYLES[arm]
            axes.plot(
                times,
                mean,
                color=colour,
                linestyle=dashes,
                linewidth=1.7,
                label=f"{title} ({chosen.height} {'run' if chosen.height == 1 else 'runs'})",
            )
            axes.fill_between(times, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.set_title(algorithm, loc="left")
        axes.set_xlabel("Time from run start (s)")
        axes.legend(loc="upper left")
        axes.set_xlim(left=0)
    panels[0].set_ylabel("Mean client latency (ms)")
    _, top = panels[0].get_ylim()
    bottom, _ = panels[0].get_ylim()
    bottom = max(0.0, bottom)  # an interval of two runs may reach below, a latency does not
    panels[0].set_ylim(bottom, top + 0.35 * (top - bottom))
    return figure


def window_means(
    context: Context, runs: pl.DataFrame
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Middles of the windows (s), mean over runs of the windows' means, and its interval (ms)."""
    count = ceil(max(runs["duration_s"]) / WINDOW_S)
    table = np.full((runs.height, count), np.nan)
    for row, run in zip(table, runs.iter_rows(named=True), strict=True):
        windows = context.loaded.aggregates[run["run_id"]].windows
        # The last entry holds what was sent after the end.
        answered = np.array(windows["answered"][:-1], float)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.array(windows["sum_us"][:-1], float) / answered / 1000
        row[: means.size] = means
    middles = (np.arange(count) + 0.5) * WINDOW_S
    mean, low, high = [], [], []
    for column in table.T:
        known = column[~np.isnan(column)]
        value = float(known.mean()) if known.size else np.nan
        spread = float(known.std(ddof=1)) if known.size > 1 else None
        interval = mean_interval(value, spread, known.size)
        mean.append(value)
        low.append(value if interval.low is None else interval.low)
        high.append(value if interval.high is None else interval.high)
    return middles, np.array(mean), np.array(low), np.array(high)
