"""Estimates with honest intervals.

Sobol points and Latin hypercubes are not independent draws, so s/√n says nothing about their error. The estimate is
made once for each of R independent randomisations; those R figures are independent, and Student's t with R − 1 degrees
of freedom gives the interval about the estimate from all rows together (Owen 2013, chapter 17).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats

CONFIDENCE = 0.95
PERCENTILES = (5, 10, 50, 90, 95)
FEWEST_BEYOND = 3.0
"""Fewest rows of one randomisation beyond a percentile for which an interval is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure and the interval about it; NaN ends where rows are too few for one."""

    value: float
    half_width: float
    completed: int = 0
    """Rows behind it: those that could be run and have the figure."""

    @property
    def low(self) -> float:
        """Lower end."""
        return self.value - self.half_width

    @property
    def high(self) -> float:
        """Upper end."""
        return self.value + self.half_width

    @property
    def relative(self) -> float:
        """Half width over the figure's size."""
        return self.half_width / abs(self.value) if self.value else float("nan")


def half_width(replicates: Floats) -> float:
    """Return half the t-interval of the mean of independent figures; NaN where there are fewer than two."""
    from scipy.special import stdtrit  # noqa: PLC0415 - a second that only who asks should wait for

    known = replicates[np.isfinite(replicates)]
    if known.size < 2:
        return float("nan")
    quantile = float(stdtrit(known.size - 1, 0.5 + CONFIDENCE / 2.0))
    return quantile * float(known.std(ddof=1)) / float(np.sqrt(known.size))


def estimate(rows: Floats, scramblings: int, figure: Callable[[Floats], float]) -> Estimate:
    """Return a figure of all rows, with the interval from its values within each randomisation.

    Row i belongs to randomisation i modulo ``scramblings``; rows that failed are NaN and left out.
    """
    known = rows[np.isfinite(rows)]
    if known.size == 0:
        return Estimate(value=float("nan"), half_width=float("nan"))
    parts = [rows[which::scramblings] for which in range(scramblings)]
    parts = [part[np.isfinite(part)] for part in parts]
    by_scrambling = np.array([figure(part) if part.size else np.nan for part in parts])
    return Estimate(value=figure(known), half_width=half_width(by_scrambling), completed=known.size)


def mean_estimate(rows: Floats, scramblings: int) -> Estimate:
    """Return the mean and its interval."""
    return estimate(rows, scramblings, lambda part: float(part.mean()))


def share_estimate(rows: Floats, scramblings: int) -> Estimate:
    """Return the mean of zeros and ones, and its interval.

    Few randomisations may all count the same, and then say nothing of what they cannot resolve. So the interval is at
    least half a count of one of them, and at least 3/n, the rule of three for what n rows never showed (Hanley and
    Lippman-Hand 1983).
    """
    share = mean_estimate(rows, scramblings)
    count = int(np.isfinite(rows).sum())
    if count == 0 or np.isnan(share.half_width):
        return share
    widest = max(share.half_width, 0.5 * scramblings / count, 3.0 / count)
    return Estimate(value=share.value, half_width=widest, completed=count)


def percentile_estimate(rows: Floats, scramblings: int, percentile: float) -> Estimate:
    """Return a percentile and its interval; no interval where a randomisation has too few rows beyond it."""
    quantile = estimate(rows, scramblings, lambda part: _percentile(part, percentile))
    beyond = min(percentile, 100.0 - percentile) / 100.0 * len(rows) / scramblings
    if beyond < FEWEST_BEYOND:
        return Estimate(value=quantile.value, half_width=float("nan"), completed=quantile.completed)
    return quantile


def _percentile(rows: Floats, percentile: float) -> float:
    """Return a percentile whose error has median zero whatever the distribution (Hyndman and Fan 1996, type 8)."""
    return float(np.percentile(rows, percentile, method="median_unbiased"))


def tail_mean_estimate(rows: Floats, scramblings: int, *, upper: bool) -> Estimate:
    """Return the mean of the worst twentieth (CVaR 95%) and its interval."""
    return estimate(rows, scramblings, lambda part: _tail_mean(part, upper=upper))


def _tail_mean(rows: Floats, *, upper: bool) -> float:
    ordered = np.sort(rows)
    count = max(1, round(0.05 * len(rows)))
    return float(ordered[-count:].mean() if upper else ordered[:count].mean())


def sd_estimate(rows: Floats, scramblings: int) -> Estimate:
    """Return the standard deviation and its interval."""
    return estimate(rows, scramblings, lambda part: float(part.std(ddof=1)) if part.size > 1 else float("nan"))
