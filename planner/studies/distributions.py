"""Quantile functions of the distributions a study may name.

Every draw is the quantile of a number between 0 and 1, so that plain, Latin hypercube and Sobol points all pass
through the same functions, and correlations can be set before them. Tails are cut at one in a million.
"""

from __future__ import annotations

import datetime

import numpy as np

from planner.arrays import Floats
from planner.scenario import study as language

TAIL = 1e-6
"""Where an endless tail is cut: no study of feasible size sees one in a million."""
_LN_9 = float(np.log(9.0))

Resolved = (
    language.Triangular
    | language.Pert
    | language.Uniform
    | language.Normal
    | language.Lognormal
    | language.Percentiles
    | language.Discrete
)


def quantile(distribution: Resolved, probability: Floats) -> Floats:
    """Return quantiles in the shape of ``probability``; of words and dates, their places in the list."""
    u = np.clip(np.asarray(probability, dtype=np.float64), TAIL, 1.0 - TAIL)
    match distribution:
        case language.Triangular(low=low, mode=mode, high=high):
            return _triangular(u, low, mode, high)
        case language.Pert():
            return _pert(u, distribution)
        case language.Uniform(low=low, high=high):
            return low + u * (high - low)
        case language.Normal() | language.Lognormal():
            return _normal(u, distribution)
        case language.Percentiles():
            return _metalog(u, distribution)
        case language.Discrete():
            return _discrete(u, distribution)


def is_numeric(distribution: Resolved) -> bool:
    """Say whether draws are numbers rather than places in a list of words or dates."""
    if not isinstance(distribution, language.Discrete):
        return True
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in distribution.values)


def value_of(distribution: Resolved, drawn: float) -> float | int | bool | str | datetime.date:
    """Return what a draw means: the number itself, or the word or date at that place."""
    if isinstance(distribution, language.Discrete) and not is_numeric(distribution):
        return distribution.values[round(drawn)]
    return float(drawn)


def is_smooth(distribution: language.Percentiles) -> bool:
    """Say whether a metalog through these percentiles rises everywhere, so that it is a distribution."""
    if not (_below(distribution.low, distribution.p10) and _below(distribution.p90, distribution.high)):
        return False
    grid = np.concatenate(
        [np.geomspace(TAIL, 0.01, 200), np.linspace(0.01, 0.99, 400), 1 - np.geomspace(0.01, TAIL, 200)]
    )
    return bool(np.all(np.diff(_metalog_exponent(grid, distribution)) >= 0.0))


def _below(low: float | None, high: float | None) -> bool:
    return low is None or high is None or low < high


def _triangular(u: Floats, low: float, mode: float, high: float) -> Floats:
    """Invert the triangle's distribution function, two half parabolas that meet at the mode."""
    split = (mode - low) / (high - low)
    rising = low + np.sqrt(u * (high - low) * (mode - low))
    falling = high - np.sqrt((1.0 - u) * (high - low) * (high - mode))
    return np.where(u < split, rising, falling)


def _pert(u: Floats, pert: language.Pert) -> Floats:
    """Invert the beta distribution with α = 1 + w (mode − low) / width, β = 1 + w (high − mode) / width."""
    from scipy.special import betaincinv  # noqa: PLC0415 - only where a study asks for it

    width = pert.high - pert.low
    alpha = 1.0 + pert.weight * (pert.mode - pert.low) / width
    beta = 1.0 + pert.weight * (pert.high - pert.mode) / width
    return np.asarray(pert.low + width * betaincinv(alpha, beta, u), dtype=np.float64)


def _normal(u: Floats, distribution: language.Normal | language.Lognormal) -> Floats:
    """Invert a normal or lognormal, cut where it says."""
    from scipy.special import ndtr, ndtri  # noqa: PLC0415 - only where a study asks for it

    is_log = isinstance(distribution, language.Lognormal)
    if isinstance(distribution, language.Lognormal):
        centre, spread = float(np.log(distribution.median)), distribution.sigma
    else:
        centre, spread = distribution.mean, distribution.sd

    def at(cut: float | None, otherwise: float) -> float:
        if cut is None or (is_log and cut <= 0.0):
            return otherwise
        return float(ndtr(((np.log(cut) if is_log else cut) - centre) / spread))

    lower, upper = at(distribution.low, 0.0), at(distribution.high, 1.0)
    drawn = centre + spread * ndtri(np.clip(lower + u * (upper - lower), 1e-300, 1.0 - 1e-16))
    return np.asarray(np.exp(drawn) if is_log else drawn, dtype=np.float64)


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


def _discrete(u: Floats, distribution: language.Discrete) -> Floats:
    """Return the value, or its place in the list, that each probability falls on."""
    weights = np.ones(len(distribution.values)) if distribution.weights is None else np.array(distribution.weights)
    edges = np.cumsum(weights) / weights.sum()
    place = np.minimum(np.searchsorted(edges, u, side="right"), len(edges) - 1)
    if is_numeric(distribution):
        return np.array(distribution.values, dtype=np.float64)[place]
    return place.astype(np.float64)
