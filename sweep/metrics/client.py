"""What the clients saw: 5xx rates and reductions against a static run (paper, §3.4)."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

MATCH_ON = ("scale", "algorithm", "seed", "duration_s", "testbed", "setting")
"""A run is compared with the static error-on run that is equal in all of these.

The paper matches on scale and algorithm; the others were constant in its sweep. `setting` is the
digest of fleet, load and testbed (`setting.Setting`); a run without one matches nothing.
"""


@dataclass(frozen=True)
class ErrorCount:
    """`http_5xx` of `requests` client requests were answered 5xx, over the full run."""

    http_5xx: int
    requests: int

    @property
    def rate(self) -> float | None:
        """Client 5xx rate in [0, 1]; None without requests."""
        return self.http_5xx / self.requests if self.requests else None


def match_baselines(runs: pl.DataFrame) -> pl.DataFrame:
    """Add the matched static error-on run and the reductions to a frame of runs.

    `runs` has one row a run: run_id, policy, error_mode, http_5xx, requests, completion_tokens and
    the columns of `MATCH_ON`. Adds baseline_run_id, baseline_5xx, baseline_requests,
    reduction_abs (a rate, baseline - run), reduction_pct (100 (1 - run / baseline); null where the
    baseline has no errors), avoided (failed requests, baseline - run) and cost_eff (avoided per
    1,000 completion tokens; null without tokens); all null where nothing matches. If several
    static runs match, the first by run id is taken. Static runs are not compared with themselves.
    """
    statics = (
        runs.filter(
            (pl.col("policy") == "static")
            & (pl.col("error_mode") == "error_on")
            & (pl.col("requests") > 0)
        )
        .sort("run_id")
        .unique(subset=MATCH_ON, keep="first", maintain_order=True)
        .select(
            *MATCH_ON,
            baseline_run_id="run_id",
            baseline_5xx="http_5xx",
            baseline_requests="requests",
        )
    )
    matched = runs.join(statics, on=MATCH_ON, how="left", maintain_order="left").with_columns(
        pl.when((pl.col("policy") != "static") & (pl.col("error_mode") == "error_on")).then(
            pl.col("baseline_run_id", "baseline_5xx", "baseline_requests")
        )
    )
    rate = pl.col("http_5xx") / pl.col("requests")
    base = pl.col("baseline_5xx") / pl.col("baseline_requests")
    usable = (pl.col("requests") > 0) & (pl.col("baseline_requests") > 0)
    avoided = pl.when(usable).then(pl.col("baseline_5xx") - pl.col("http_5xx"))
    return matched.with_columns(
        rate_5xx=pl.when(pl.col("requests") > 0).then(rate),
        reduction_abs=pl.when(usable).then(base - rate),
        reduction_pct=pl.when(usable & (pl.col("baseline_5xx") > 0)).then(100 * (1 - rate / base)),
        avoided=avoided,
        cost_eff=pl.when(pl.col("completion_tokens") > 0).then(
            1000 * avoided / pl.col("completion_tokens")
        ),
    )
