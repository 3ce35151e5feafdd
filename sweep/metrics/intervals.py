"""Intervals (paper, §3.4), from statsmodels and scipy; each says how it was made.

statsmodels and scipy.stats take seconds to import: they are imported where they are used.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from scipy.stats._resampling import BootstrapResult

LEVEL = 0.95
RESAMPLES = 9999
BOOTSTRAP_SEED = 42

BOOTSTRAP = "bootstrap over runs"
"""Method of every interval whose unit is a whole run."""

ONE_RUN = "1 run"
ALL_EQUAL = "all equal"
"""Notes of degenerate bootstrap intervals."""

CUT = "cut at 100%"
"""Note of an interval of a reduction that would go beyond all errors."""


@dataclass(frozen=True)
class Interval:
    """A two-sided 95% interval, unless told otherwise; ends are None where it is undefined."""

    low: float | None
    high: float | None
    method: str
    n: int
    """Units that it is drawn from: requests, or whole runs."""
    note: str = ""
    """Why it is degenerate or undefined; empty otherwise."""


def wilson(count: int, n: int, level: float = LEVEL) -> Interval:
    """Wilson score interval of `count` of `n`. 0 of n and n of n are one-sided by themselves."""
    if not n:
        return Interval(None, None, "Wilson", 0, "nothing observed")
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(count, n, alpha=1 - level, method="wilson")
    note = {0: "none of n", n: "all of n"}.get(count, "")
    # At the ends the interval reaches 0 or 1 exactly; rounding misses that by one ulp.
    low = 0.0 if count == 0 else max(0.0, float(low))
    high = 1.0 if count == n else min(1.0, float(high))
    return Interval(low, high, "Wilson", n, note)


def newcombe(count1: int, n1: int, count2: int, n2: int, level: float = LEVEL) -> Interval:
    """Newcombe hybrid-score interval of the difference count1 / n1 - count2 / n2."""
    if not n1 or not n2:
        return Interval(None, None, "Newcombe", min(n1, n2), "nothing observed")
    from statsmodels.stats.proportion import confint_proportions_2indep

    low, high = confint_proportions_2indep(
        count1, n1, count2, n2, method="newcomb", compare="diff", alpha=1 - level
    )
    note = "no failures in either" if not count1 and not count2 else ""
    return Interval(float(low), float(high), "Newcombe", min(n1, n2), note)


def as_percent_of(difference: Interval, baseline: float) -> Interval:
    """Interval of a reduction in percent of the baseline's rate, from that of the difference.

    The baseline's rate is taken as known. Newcombe's upper end may lie beyond it on short runs; no
    reduction takes away more than all errors, so that the interval is cut at 100%, and says so.
    """
    if difference.low is None or difference.high is None:
        return difference
    low, high = (100 * end / baseline for end in (difference.low, difference.high))
    note = CUT if high > 100 else difference.note
    return Interval(low, min(high, 100.0), difference.method, difference.n, note)


def mean_interval(
    mean: float | None, spread: float | None, n: int, level: float = LEVEL
) -> Interval:
    """Student's t interval of a mean over `n` requests with sample standard deviation `spread`.

    It takes requests as independent draws, as the paper does; see `bootstrap` for the one over
    whole runs.
    """
    if mean is None or spread is None:
        return Interval(None, None, "Student t", n, "too few requests")
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, 0.5 + level / 2)) * spread / sqrt(n)
    return Interval(mean - half, mean + half, "Student t", n)


def order_statistic_ranks(n: int, q: float, level: float = LEVEL) -> tuple[int | None, int | None]:
    """1-based ranks (low, high) whose order statistics bracket the q-quantile of n draws.

    The tightest ranks with at most (1 - level) / 2 of binomial probability beyond each; None where
    n is too small for one.
    """
    if n < 1:
        return None, None
    from scipy.special import bdtr, bdtrik

    tail = (1 - level) / 2

    def ppf(p: float) -> int:
        """Smallest k with P(Binomial(n, q) <= k) >= p."""
        guess = float(bdtrik(p, n, q))  # NaN where even k = 0 has more than p
        k = max(0, int(guess) - 2) if np.isfinite(guess) else 0
        while k < n and bdtr(k, n, q) < p:
            k += 1
        return k

    # The rank of the quantile among the draws is Binomial(n, q).
    low, high = ppf(tail), ppf(1 - tail) + 1
    return (low or None), (high if high <= n else None)


Statistic = Literal["median", "mean"]


def resampled(
    samples: Sequence[npt.NDArray[Any]],
    statistic: Callable[..., Any],
    level: float,
    resamples: int = RESAMPLES,
    **options: Any,
) -> BootstrapResult:
    """`scipy.stats.bootstrap` as all our intervals have it: vectorised, percentile method, seeded.

    `options` are scipy's own, such as `paired` and `batch`.
    """
    from scipy.stats import bootstrap as scipy_bootstrap

    return scipy_bootstrap(
        samples,
        statistic,
        vectorized=True,
        n_resamples=resamples,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
        **options,
    )


def bootstrap(
    values: Sequence[float], statistic: Statistic = "median", level: float = LEVEL
) -> Interval:
    """Percentile bootstrap interval over conditions: one value a run, whole runs as the unit.

    Seeded, and sorted beforehand, so that the order of runs changes nothing. One run, or all
    values equal: the interval is that value, and the note says so.
    """
    array = np.sort(np.asarray(values, dtype=float))
    if (known := _degenerate(array)) is not None:
        return known
    result = resampled((array,), np.median if statistic == "median" else np.mean, level)
    ends = result.confidence_interval
    # No resample leaves the range of the values; rounding of its percentiles does, by one ulp.
    low, high = np.clip([ends.low, ends.high], array[0], array[-1]).tolist()
    return Interval(low, high, BOOTSTRAP, array.size)


def bootstrap_ratio(
    numerators: Sequence[float], denominators: Sequence[float], level: float = LEVEL
) -> Interval:
    """Bootstrap interval of sum(numerators) / sum(denominators), whole runs as the unit.

    For micro-averaged scores and pooled means: `numerators[i]` and `denominators[i]` are of run i.
    Resamples with a zero denominator are left out.
    """
    pairs = np.array(sorted(zip(numerators, denominators, strict=True)), dtype=float).reshape(-1, 2)
    if not pairs.size or not pairs[:, 1].sum():
        return Interval(None, None, BOOTSTRAP, len(pairs), "undefined")
    if len(pairs) == 1 or (pairs == pairs[0]).all():
        value = float(pairs[0, 0] / pairs[0, 1])
        note = ONE_RUN if len(pairs) == 1 else ALL_EQUAL
        return Interval(value, value, BOOTSTRAP, len(pairs), note)

    def ratio(
        top: npt.NDArray[np.float64], bottom: npt.NDArray[np.float64], axis: int = -1
    ) -> npt.NDArray[np.float64]:
        below = bottom.sum(axis=axis)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(below > 0, top.sum(axis=axis) / below, np.nan)

    with warnings.catch_warnings():
        # scipy warns of undefined resamples; they are left out below.
        warnings.simplefilter("ignore", RuntimeWarning)
        drawn = resampled(
            (pairs[:, 0], pairs[:, 1]), ratio, level, paired=True
        ).bootstrap_distribution
    tail = (1 - level) / 2
    low, high = np.nanquantile(drawn, [tail, 1 - tail])
    return Interval(float(low), float(high), BOOTSTRAP, len(pairs))


def _degenerate(array: npt.NDArray[np.float64]) -> Interval | None:
    if not array.size:
        return Interval(None, None, BOOTSTRAP, 0, "no runs")
    if array.size == 1:
        return Interval(array[0].item(), array[0].item(), BOOTSTRAP, 1, ONE_RUN)
    if array[0] == array[-1]:
        value = array[0].item()
        return Interval(value, value, BOOTSTRAP, array.size, ALL_EQUAL)
    return None


def preload() -> None:
    """Import what the intervals of a run need (about 2 s), so that nobody waits for it later."""
    import statsmodels.stats.proportion  # noqa: F401
