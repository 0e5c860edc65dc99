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

_Formula = (
    language.Triangular | language.Pert | language.Uniform | language.Normal | language.Lognormal
)
Resolved = _Formula | language.Percentiles | language.Discrete


def quantile(distribution: Resolved, probability: Floats) -> Floats:
    """Return quantiles in the shape of ``probability``; for words and dates, their list indices."""
    u = np.clip(np.asarray(probability, dtype=np.float64), TAIL, 1.0 - TAIL)
    match distribution:
        case language.Triangular(low=low, mode=mode, high=high):
            # Two half parabolas that meet at the mode.
            rising = low + np.sqrt(u * (high - low) * (mode - low))
            falling = high - np.sqrt((1.0 - u) * (high - low) * (high - mode))
            return np.where(u < (mode - low) / (high - low), rising, falling)
        case language.Pert(low=low, mode=mode, high=high, weight=weight):
            # The beta distribution with α = 1 + w (mode − low) / width, β = 1 + w (high − mode) / width.
            from scipy.special import betaincinv  # noqa: PLC0415 - only where a study asks for it

            alpha = 1.0 + weight * (mode - low) / (high - low)
            beta = 1.0 + weight * (high - mode) / (high - low)
            return np.asarray(low + (high - low) * betaincinv(alpha, beta, u), dtype=np.float64)
        case language.Uniform(low=low, high=high):
            return low + u * (high - low)
        case language.Normal(mean=mean, sd=sd, low=lowest, high=highest):
            return _cut_normal(u, mean, sd, lowest, highest)
        case language.Lognormal(median=median, sigma=sigma, low=lowest, high=highest):
            cuts = (
                None if cut is None or cut <= 0.0 else float(np.log(cut))
                for cut in (lowest, highest)
            )
            return np.exp(_cut_normal(u, float(np.log(median)), sigma, *cuts))
        case language.Percentiles():
            return _metalog(u, distribution)
        case language.Discrete(values=values):
            weights = (
                np.ones(len(values))
                if distribution.weights is None
                else np.array(distribution.weights)
            )
            edges = np.cumsum(weights) / weights.sum()
            place = np.minimum(np.searchsorted(edges, u, side="right"), len(edges) - 1)
            return (
                np.array(values, dtype=np.float64)[place]
                if is_numeric(distribution)
                else place.astype(np.float64)
            )


def is_numeric(distribution: Resolved) -> bool:
    """Return whether draws are numbers rather than indices into a list of words or dates."""
    if not isinstance(distribution, language.Discrete):
        return True
    return all(
        isinstance(value, int | float) and not isinstance(value, bool)
        for value in distribution.values
    )


def value_of(distribution: Resolved, drawn: float) -> float | int | bool | str | datetime.date:
    """Return the value of a draw: the number itself, or the word or date at that index."""
    if isinstance(distribution, language.Discrete) and not is_numeric(distribution):
        return distribution.values[round(drawn)]
    return float(drawn)


def is_smooth(distribution: language.Percentiles) -> bool:
    """Return whether the metalog through these percentiles is monotone, and so a distribution."""
    low = distribution.low
    high = distribution.high
    if (low is not None and low >= distribution.p10) or (
        high is not None and high <= distribution.p90
    ):
        return False
    grid = np.concatenate(
        [
            np.geomspace(TAIL, 0.01, 200),
            np.linspace(0.01, 0.99, 400),
            1 - np.geomspace(0.01, TAIL, 200),
        ]
    )
    return bool(np.all(np.diff(_metalog_exponent(grid, distribution)) >= 0.0))


def _cut_normal(u: Floats, mean: float, sd: float, low: float | None, high: float | None) -> Floats:
    """Return quantiles of a normal distribution, truncated where stated."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - only where a study asks for it

    below = 0.0 if low is None else float(ndtr((low - mean) / sd))
    above = 1.0 if high is None else float(ndtr((high - mean) / sd))
    drawn = ndtri(np.clip(below + u * (above - below), 1e-300, 1.0 - 1e-16))
    return np.asarray(mean + sd * drawn, dtype=np.float64)


def _metalog(u: Floats, distribution: language.Percentiles) -> Floats:
    """Return the symmetric-percentile-triplet metalog, in logs with one bound, in logits with two (Keelin 2016)."""
    from scipy.special import expit  # noqa: PLC0415 - only where a study asks for it

    exponent = _metalog_exponent(u, distribution)
    match distribution.low, distribution.high:
        case None, None:
            return exponent
        case low, None:
            return np.asarray(low + np.exp(exponent), dtype=np.float64)
        case None, high:
            return np.asarray(high - np.exp(-exponent), dtype=np.float64)
        case low, high:
            return np.asarray(low + (high - low) * expit(exponent), dtype=np.float64)


def _metalog_exponent(u: Floats, distribution: language.Percentiles) -> Floats:
    """Return a₁ + a₂ logit(u) + a₃ (u − ½) logit(u) through the three transformed percentiles."""
    points = np.array([distribution.p10, distribution.p50, distribution.p90])
    match distribution.low, distribution.high:
        case None, None:
            z = points
        case low, None:
            z = np.log(points - low)
        case None, high:
            z = -np.log(high - points)
        case low, high:
            z = np.log((points - low) / (high - points))
    slope = (z[2] - z[0]) / (2.0 * _LN_9)
    skew = (z[2] + z[0] - 2.0 * z[1]) / (0.8 * _LN_9)
    logit = np.log(u / (1.0 - u))
    return np.asarray(z[1] + slope * logit + skew * (u - 0.5) * logit, dtype=np.float64)


def score_correlation(ranks: Floats) -> Floats:
    """Return the normal scores' correlations for a matrix of rank correlations."""
    return np.asarray(2.0 * np.sin(np.pi * ranks / 6.0), dtype=np.float64)


def is_valid(ranks: Floats) -> bool:
    """Return whether inputs with these rank correlations can exist under the copula."""
    return bool(np.linalg.eigvalsh(score_correlation(ranks)).min() >= -1e-9)


def nearest_valid(ranks: Floats) -> Floats:
    """Return the nearest valid matrix of rank correlations, by alternating projections (Higham 2002).

    Between the cone of matrices without negative eigenvalues and the matrices with unit diagonal, with Dykstra's
    correction; then drawn in by a hair so that it is valid to the digits a user would copy.
    """
    target = score_correlation(ranks)
    correction = np.zeros_like(target)
    for _ in range(500):
        reduced = target - correction
        values, vectors = np.linalg.eigh(reduced)
        projected = (vectors * np.maximum(values, 0.0)) @ vectors.T
        correction = projected - reduced
        target = projected.copy()
        np.fill_diagonal(target, 1.0)
    scores = target * (1.0 - 1e-3) + np.eye(len(target)) * 1e-3
    return np.asarray(6.0 / np.pi * np.arcsin(np.clip(scores, -1.0, 1.0) / 2.0), dtype=np.float64)


def factor(ranks: Floats) -> Floats:
    """Return the symmetric root A, A Aᵀ being the scores' correlations.

    It leaves inputs without correlations as they are, and unlike Cholesky's factor it takes perfect correlations.
    """
    values, vectors = np.linalg.eigh(score_correlation(ranks))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, dtype=np.float64)


def correlate(points: Floats, mixing: Floats) -> Floats:
    """Return points of the unit cube, shape (points, inputs), moved to have the given correlations."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - only where inputs are correlated

    return np.asarray(ndtr(ndtri(np.clip(points, 1e-12, 1.0 - 1e-12)) @ mixing.T), dtype=np.float64)
