"""Estimates with honest intervals.

Sobol points and Latin hypercubes are not independent draws, so s/√n says nothing about their error. The estimate is
made once for each of R independent randomisations; those R figures are independent, and Student's t with R − 1 degrees
of freedom gives the interval about the estimate from all rows together (Owen 2013, chapter 17).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    return _estimates(rows, scramblings, lambda part: [figure(part)], 1)[0]


def _estimates(
    rows: Floats, scramblings: int, figures: Callable[[Floats], Sequence[float]], count: int
) -> list[Estimate]:
    """Return as many figures of all rows as are counted, each with its interval; a part at a time in memory."""
    known = _known(rows)
    if known.size == 0:
        return [Estimate(value=float("nan"), half_width=float("nan"))] * count
    by_scrambling = np.full((scramblings, count), np.nan)
    for which in range(scramblings):
        if (part := _known(rows[which::scramblings])).size:
            by_scrambling[which] = figures(part)
    return [
        Estimate(value=value, half_width=half_width(by_scrambling[:, place]), completed=known.size)
        for place, value in enumerate(figures(known))
    ]


def _known(rows: Floats) -> Floats:
    """Return the rows that could be run; the same array where that is all of them and they lie together."""
    finite = np.isfinite(rows)
    return rows if rows.flags.c_contiguous and finite.all() else rows[finite]


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
    quantile = estimate(rows, scramblings, lambda part: percentiles(part, (percentile,))[0])
    return _where_enough(quantile, percentile, len(rows) / scramblings)


def _where_enough(quantile: Estimate, percentile: float, rows: float) -> Estimate:
    """Return a percentile without its interval where so many rows have too few beyond it."""
    if min(percentile, 100.0 - percentile) / 100.0 * rows < FEWEST_BEYOND:
        return Estimate(value=quantile.value, half_width=float("nan"), completed=quantile.completed)
    return quantile


def percentiles(rows: Floats, wanted: Sequence[float]) -> list[float]:
    """Return percentiles whose error has median zero whatever the distribution (Hyndman and Fan 1996, type 8)."""
    return _percentiles(rows.copy(), wanted)


def _percentiles(scratch: Floats, wanted: Sequence[float]) -> list[float]:
    """Return percentiles of rows that nobody needs in their order any more."""
    reached: list[float] = np.percentile(scratch, wanted, method="median_unbiased", overwrite_input=True).tolist()
    return reached


def _tail_mean(ordered: Floats, *, upper: bool) -> float:
    """Return the mean of the worst twentieth (CVaR 95%)."""
    count = max(1, round(0.05 * len(ordered)))
    return float(ordered[-count:].mean() if upper else ordered[:count].mean())


def _sd(rows: Floats) -> float:
    return float(rows.std(ddof=1)) if rows.size > 1 else float("nan")


def spread_estimates(rows: Floats, scramblings: int, *, upper: bool) -> list[tuple[str, Estimate]]:
    """Return mean, standard deviation, percentiles and tail mean by name, each as alone, rows sorted once for all."""

    def figures(part: Floats) -> list[float]:
        mean, sd, ordered = float(part.mean()), _sd(part), np.sort(part)
        tail = _tail_mean(ordered, upper=upper)
        return [mean, sd, *_percentiles(ordered, PERCENTILES), tail]

    names = ["mean", "sd", *(f"p{percentile}" for percentile in PERCENTILES), "cvar95"]
    estimates = _estimates(rows, scramblings, figures, len(names))
    for place, percentile in enumerate(PERCENTILES, start=2):
        estimates[place] = _where_enough(estimates[place], percentile, len(rows) / scramblings)
    return list(zip(names, estimates, strict=True))
