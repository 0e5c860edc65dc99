"""Quantile functions of the distributions of a study, and rank correlations between inputs.

Every draw is the quantile of a number between 0 and 1, so that plain and Sobol points all pass
through the same functions, and correlations can be set before them. Tails are cut at one in a million.

Correlations are those of a Gaussian copula. Normal scores with Pearson correlation r have Spearman's rank correlation
6/π arcsin(r/2) (Pearson 1907), so the matrix asked for is turned into r = 2 sin(π ρ / 6), factored, and multiplied onto
the scores of each point. Each point is treated alone, so replication 17 has the same inputs however many others there
are.
"""

from __future__ import annotations

import datetime

import numpy as np

from planner.arrays import Floats
from planner.scenario import study as language

TAIL = 1e-6
"""Where an endless tail is cut: no study of feasible size sees one in a million."""
_LN_9 = float(np.log(9.0))
"""logit(0.9), by which percentiles P10 and P90 set a metalog."""

_Formula = (
    language.Triangular | language.Pert | language.Uniform | language.Normal | language.Lognormal
)
Resolved = _Formula | language.Percentiles | language.Discrete


def quantile(distribution: Resolved, probability: Floats) -> Floats:
    """Return quantiles in the shape of ``probability``; for words and dates, their list indices."""
    probabilities = np.asarray(probability, dtype=np.float64)
    u = np.clip(probabilities, TAIL, 1.0 - TAIL)
    match distribution:
        case language.Triangular(low=low, mode=mode, high=high):
            # Two half parabolas that meet at the mode.
            width = high - low
            area_below = u * width * (mode - low)
            rising = low + np.sqrt(area_below)
            area_above = (1.0 - u) * width * (high - mode)
            falling = high - np.sqrt(area_above)
            share_below_mode = (mode - low) / width
            return np.where(u < share_below_mode, rising, falling)
        case language.Pert(low=low, mode=mode, high=high, weight=weight):
            # The beta distribution with α = 1 + w (mode − low) / width, β = 1 + w (high − mode) / width.
            from scipy.special import betaincinv  # noqa: PLC0415 - only where a study asks for it

            width = high - low
            alpha = 1.0 + weight * (mode - low) / width
            beta = 1.0 + weight * (high - mode) / width
            draws = low + width * betaincinv(alpha, beta, u)
            return np.asarray(draws, dtype=np.float64)
        case language.Uniform(low=low, high=high):
            return low + u * (high - low)
        case language.Normal(mean=mean, sd=sd, low=lowest, high=highest):
            return _cut_normal(u, mean, sd, lowest, highest)
        case language.Lognormal(median=median, sigma=sigma, low=lowest, high=highest):
            # A normal distribution of logarithms, and so are its cuts.
            log_low = _log_cut(lowest)
            log_high = _log_cut(highest)
            log_median = float(np.log(median))
            return np.exp(_cut_normal(u, log_median, sigma, log_low, log_high))
        case language.Percentiles():
            return _metalog(u, distribution)
        case language.Discrete(values=values):
            # Without weights all values are equally likely.
            weights = np.array(distribution.weights or [1.0] * len(values))
            edges = np.cumsum(weights) / weights.sum()
            place = np.searchsorted(edges, u, side="right")
            # The last edge may round to less than the largest u.
            place = np.minimum(place, len(edges) - 1)
            if is_numeric(distribution):
                numbers = np.array(values, dtype=np.float64)
                return numbers[place]
            return place.astype(np.float64)


def _log_cut(cut: float | None) -> float | None:
    """Return the logarithm of a cut; a cut at or below 0 cuts nothing off: no lognormal variable is there."""
    if cut and cut > 0.0:
        return float(np.log(cut))
    return None


def is_numeric(distribution: Resolved) -> bool:
    """Return whether draws are numbers rather than indices into a list of words or dates."""
    if not isinstance(distribution, language.Discrete):
        return True
    return all(
        isinstance(value, int | float) and not isinstance(value, bool)
        for value in distribution.values
    )


def value_of(distribution: Resolved, draw: float) -> float | int | bool | str | datetime.date:
    """Return the value of a draw: the number itself, or the word or date at that index."""
    if isinstance(distribution, language.Discrete) and not is_numeric(distribution):
        return distribution.values[round(draw)]
    return float(draw)


def is_smooth(distribution: language.Percentiles) -> bool:
    """Return whether the metalog through these percentiles is monotone, and so a distribution."""
    low = distribution.low
    high = distribution.high
    # A percentile at or beyond a bound has no logarithm to be fitted.
    if low is not None and low >= distribution.p10:
        return False
    if high is not None and high <= distribution.p90:
        return False
    # Fine in the tails, where a metalog turns round if it does at all.
    tail = np.geomspace(TAIL, 0.01, 200)
    middle = np.linspace(0.01, 0.99, 400)
    upper_tail = 1 - tail[::-1]
    grid = np.concatenate([tail, middle, upper_tail])
    steps = np.diff(_metalog_exponent(grid, distribution))
    return bool(np.all(steps >= 0.0))


def _cut_normal(u: Floats, mean: float, sd: float, low: float | None, high: float | None) -> Floats:
    """Return quantiles of a normal distribution, truncated where stated."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - only where a study asks for it

    lowest = 0.0
    highest = 1.0
    if low is not None:
        lowest = float(ndtr((low - mean) / sd))
    if high is not None:
        highest = float(ndtr((high - mean) / sd))
    inside = lowest + u * (highest - lowest)
    # Cuts far out in one tail may round to 0 or 1, whose scores are infinite.
    scores = ndtri(np.clip(inside, 1e-300, 1.0 - 1e-16))
    return np.asarray(mean + sd * scores, dtype=np.float64)


def _metalog(u: Floats, distribution: language.Percentiles) -> Floats:
    """Return the symmetric-percentile-triplet metalog, in logs with one bound, in logits with two (Keelin 2016)."""
    from scipy.special import expit  # noqa: PLC0415 - only where a study asks for it

    exponent = _metalog_exponent(u, distribution)
    match distribution.low, distribution.high:
        case None, None:
            draws = exponent
        case low, None:
            draws = low + np.exp(exponent)
        case None, high:
            draws = high - np.exp(-exponent)
        case low, high:
            draws = low + (high - low) * expit(exponent)
    return np.asarray(draws, dtype=np.float64)


def _metalog_exponent(u: Floats, distribution: language.Percentiles) -> Floats:
    """Return a₁ + a₂ logit(u) + a₃ (u − ½) logit(u) through the three transformed percentiles.

    With z the transformed P10, P50 and P90 and logit(0.9) = ln 9: a₁ = z₅₀,
    a₂ = (z₉₀ − z₁₀) / (2 ln 9), a₃ = (z₉₀ + z₁₀ − 2 z₅₀) / (0.8 ln 9).
    """
    percentiles = (distribution.p10, distribution.p50, distribution.p90)
    points = np.array(percentiles)
    match distribution.low, distribution.high:
        case None, None:
            z = points
        case low, None:
            z = np.log(points - low)
        case None, high:
            z = -np.log(high - points)
        case low, high:
            odds = (points - low) / (high - points)
            z = np.log(odds)
    z10, z50, z90 = z
    slope = (z90 - z10) / (2.0 * _LN_9)
    skew = (z90 + z10 - 2.0 * z50) / (0.8 * _LN_9)
    logit = np.log(u / (1.0 - u))
    exponent = z50 + slope * logit + skew * (u - 0.5) * logit
    return np.asarray(exponent, dtype=np.float64)


def score_correlation(ranks: Floats) -> Floats:
    """Return the normal scores' correlations for a matrix of rank correlations."""
    correlations = 2.0 * np.sin(np.pi * ranks / 6.0)
    return np.asarray(correlations, dtype=np.float64)


def is_valid(ranks: Floats) -> bool:
    """Return whether inputs with these rank correlations can exist under the copula."""
    eigenvalues = np.linalg.eigvalsh(score_correlation(ranks))
    # Perfect correlations have an eigenvalue of zero, which rounding may put below it.
    return bool(eigenvalues.min() >= -1e-9)


def factor(ranks: Floats) -> Floats:
    """Return the symmetric root A, A Aᵀ being the scores' correlations.

    It leaves inputs without correlations as they are, and unlike Cholesky's factor it takes perfect correlations.
    """
    values, vectors = np.linalg.eigh(score_correlation(ranks))
    # Rounding may leave an eigenvalue of zero just below it, where it has no root.
    roots = np.sqrt(np.maximum(values, 0.0))
    symmetric_root = (vectors * roots) @ vectors.T
    return np.asarray(symmetric_root, dtype=np.float64)


def correlate(points: Floats, mixing: Floats) -> Floats:
    """Return points of the unit cube, shape (points, inputs), moved to have the given correlations."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - only where inputs are correlated

    # The ends of the cube have infinite scores, which no mixing keeps apart.
    scores = ndtri(np.clip(points, 1e-12, 1.0 - 1e-12))
    mixed = ndtr(scores @ mixing.T)
    return np.asarray(mixed, dtype=np.float64)
