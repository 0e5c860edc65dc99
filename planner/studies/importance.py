"""What drives an output, read from rows already run: no new simulation."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats

BINS = 10
"""Equal-count bins of an input: deciles, as the trade's tornado has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """How much one output follows one input."""

    conditional_low: float
    """Lowest mean of the output over the ten bins of the input."""
    conditional_high: float
    """Highest."""
    rank_correlation: float
    """Spearman's, −1 to 1."""
    variance_share: float
    """Variance of the bins' means over the output's variance, less what noise alone gives: the first-order index."""
    variance_noise: float
    """The share that none of the inputs without any influence exceeds on so many rows, 99 times in 100."""
    pawn: float
    """Median distance of the output's distribution within a bin from the whole, 0 to 1 (Pianosi and Wagener 2015)."""
    pawn_noise: float
    """The distance that an input without any influence shows on so many rows, 95 times in 100."""

    @property
    def swing(self) -> float:
        """Length of the conditional tornado's bar."""
        return self.conditional_high - self.conditional_low


def importance(values: Floats, output: Floats, inputs: int = 1) -> Importance:
    """Measure how one output follows one of some inputs; both of shape (rows,), without NaN."""
    bins = bin_of(values)
    means = np.array([output[bins == which].mean() for which in range(bins.max() + 1)])
    counts = np.bincount(bins)
    distances = np.array([_distance(output, output[bins == which]) for which in range(len(counts))])
    # Kolmogorov's 95% point for a bin of n of N rows: 1.358 √(1/n − 1/N), the bin being part of the whole.
    noise = 1.358 * np.sqrt(np.maximum(1.0 / np.median(counts) - 1.0 / len(output), 0.0))
    return Importance(
        conditional_low=float(means.min()),
        conditional_high=float(means.max()),
        rank_correlation=spearman(values, output),
        variance_share=_variance_share(output, means, counts),
        variance_noise=_variance_noise(len(output), len(means), inputs),
        pawn=float(np.median(distances)),
        pawn_noise=float(noise),
    )


def bin_of(values: Floats) -> NDArray[np.int64]:
    """Return each row's bin, 0 to at most 9: equal counts, or one bin per value where there are no more than ten."""
    distinct, place = np.unique(values, return_inverse=True)
    if len(distinct) <= BINS:
        return np.asarray(place, dtype=np.int64)
    order = np.argsort(values, kind="stable")
    bins = np.empty(len(values), dtype=np.int64)
    bins[order] = np.arange(len(values)) * BINS // len(values)
    return bins


def spearman(first: Floats, second: Floats) -> float:
    """Return the rank correlation; 0 where either does not vary."""
    a, b = ranks(first), ranks(second)
    spread = a.std() * b.std()
    return float(np.mean((a - a.mean()) * (b - b.mean())) / spread) if spread > 0 else 0.0


def ranks(values: Floats) -> Floats:
    """Return ranks, ties sharing their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray(((last - counts) + (last - 1))[place] / 2.0, dtype=np.float64)


def _variance_share(output: Floats, means: Floats, counts: NDArray[np.int64]) -> float:
    """Return ε², the correlation ratio less its bias: (SS_between − (k − 1) MS_within) / SS_total (Kelley 1935)."""
    total = float(((output - output.mean()) ** 2).sum())
    if total <= 0.0 or len(output) <= len(means):
        return 0.0
    between = float((counts * (means - output.mean()) ** 2).sum())
    within = (total - between) / (len(output) - len(means))
    return float(np.clip((between - (len(means) - 1) * within) / total, 0.0, 1.0))


def _variance_noise(rows: int, bins: int, inputs: int) -> float:
    """Return what ε² of idle inputs stays below: a point of F with k − 1 and n − k degrees of freedom.

    With F = (SS_between / (k − 1)) / MS_within, ε² = (F − 1)(k − 1) / (F (k − 1) + n − k), normal outputs taken for
    granted. The largest of m inputs stays below the point of 1 − 0.01 / m in 99 of 100 studies or more (Bonferroni).
    """
    from scipy.special import fdtri  # noqa: PLC0415 - only where a study asks for it

    between, within = bins - 1, rows - bins
    if between < 1 or within < 1:
        return 1.0
    ratio = float(fdtri(between, within, 1.0 - 0.01 / inputs))
    return (ratio - 1.0) * between / (ratio * between + within)


def _distance(overall: Floats, part: Floats) -> float:
    """Return the Kolmogorov–Smirnov distance between a part of the rows and all of them."""
    grid = np.sort(overall)
    of_whole = np.searchsorted(grid, grid, side="right") / len(overall)
    of_part = np.searchsorted(np.sort(part), grid, side="right") / len(part)
    return float(np.abs(of_whole - of_part).max())


def flip(values: Floats, difference: Floats) -> float | None:
    """Return the input at which the mean of a difference changes sign; None where it does not within the input's range.

    Means are taken in the ten bins and joined by straight lines. A change counts only where the difference follows the
    input by more than noise, and between bins whose means are three standard errors from zero, so that chance alone
    flips no decision.
    """
    if abs(spearman(values, difference)) * np.sqrt(len(values)) < 4.0:
        return None
    bins = bin_of(values)
    count = bins.max() + 1
    centre = np.array([values[bins == which].mean() for which in range(count)])
    mean = np.array([difference[bins == which].mean() for which in range(count)])
    error = np.array([difference[bins == which].std() / np.sqrt((bins == which).sum()) for which in range(count)])
    sure = np.flatnonzero(np.abs(mean) > 3.0 * error)
    for left, right in itertools.pairwise(sure):
        if mean[left] * mean[right] < 0.0:
            crossing = left
            while mean[crossing] * mean[crossing + 1] > 0.0:
                crossing += 1
            share = mean[crossing] / (mean[crossing] - mean[crossing + 1])
            return float(centre[crossing] + share * (centre[crossing + 1] - centre[crossing]))
    return None
