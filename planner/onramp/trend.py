"""Growth, season and launches in weeks of traffic, and how sure the level and the growth are.

ln(mean of a week) is a level, a trend, a yearly wave of two harmonics, steps (launches), a slow drift and noise. Less
than two years cannot tell trend from wave: what is believed of waves beforehand is part of every interval. All is
normal, given the sizes of wave, drift and noise; those are summed over a grid by how well each explains the weeks.
"""

from __future__ import annotations

import functools
from statistics import NormalDist

import numpy as np

from planner.arrays import Floats
from planner.catalog.entries import Range
from planner.catalog.load import load_catalog
from planner.records import record

SURE = 0.9
"""Share of the intervals that are shown."""
_Z = NormalDist().inv_cdf(0.5 + SURE / 2.0)
_P90 = NormalDist().inv_cdf(0.9)
_MAX_WEEKS = 104
"""More are taken two, three or more at a time: a longer history has no finer steps to show."""
_GROWTH_SIGMA = 0.7
"""Of ln growth a year before any week is seen: from half to twice, give or take."""
_STEP_SIGMA = 0.4
"""Of the logarithm of a launch or a customer lost."""
_STEPS_PER_YEAR = 1.0
_MAX_STEPS = 6
_SECOND_HARMONIC = 0.4
"""Of the first, in size: dips are sharper than a cosine."""
_NOISES = (0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.2, 0.4)
"""Of a week, as a share."""
_DRIFTS = (0.01, 0.04, 0.12, 0.3)
"""Of a year, as a share: what neither trend nor wave nor steps explain."""


@record
class Mixture:
    """Normal distributions with weights that sum to one."""

    weights: Floats
    means: Floats
    sigmas: Floats

    @property
    def mean(self) -> float:
        """Return the mean of all."""
        return float(self.weights @ self.means)

    @property
    def sigma(self) -> float:
        """Return the standard deviation of all."""
        variance = self.weights @ (self.sigmas**2 + (self.means - self.mean) ** 2)
        return float(np.sqrt(variance))

    def interval(self) -> tuple[float, float]:
        """Return the bounds between which nine tenths lie."""
        tail = (1.0 - SURE) / 2.0
        return self._quantile(tail), self._quantile(1.0 - tail)

    def _quantile(self, share: float) -> float:
        low = float((self.means - 8.0 * self.sigmas).min())
        high = float((self.means + 8.0 * self.sigmas).max())
        parts = [
            (weight, NormalDist(mean, sigma))
            for weight, mean, sigma in zip(
                self.weights.tolist(), self.means.tolist(), self.sigmas.tolist(), strict=True
            )
            if weight > 1e-6
        ]
        # Halved to a millionth of the range: intervals are read to three digits.
        for _ in range(40):
            middle = 0.5 * (low + high)
            below = sum(weight * normal.cdf(middle) for weight, normal in parts)
            if below < share:
                low = middle
            else:
                high = middle
        return 0.5 * (low + high)


@record
class Trend:
    """What weeks of traffic show, time in years before their end."""

    level: Mixture
    """ln of the level at the end, without its season."""
    growth: Mixture
    """ln of the growth of a year."""
    level_growth_correlation: float
    wave: tuple[float, float, float]
    """First harmonic of the logarithm: cosine and sine of the time of year at the end, and their standard error."""
    steps: list[tuple[float, float]]
    """Years before the end, and the logarithm of what was added then."""
    fitted: Floats
    """ln of each week ÷ the level at the end: trend, season, steps and drift, shape (weeks,)."""

    def level_after(self, years: float) -> Mixture:
        """Return ln of the level some years after the end of the series, as trend alone takes it there."""
        covariance = self.level_growth_correlation * self.level.sigmas * self.growth.sigmas
        variances = (
            self.level.sigmas**2 + 2.0 * years * covariance + years**2 * self.growth.sigmas**2
        )
        return Mixture(
            weights=self.level.weights,
            means=self.level.means + years * self.growth.means,
            sigmas=np.sqrt(np.maximum(variances, 1e-12)),
        )


def season_prior() -> Range:
    """Return what is believed of the height of a yearly wave where less than two years show it."""
    return load_catalog().prior("traffic_season_amplitude")


@functools.cache
def season_sizes() -> tuple[tuple[float, float], ...]:
    """Return sizes of a wave's cosine and sine, and how likely each is: lognormal through P10, P50 and P90."""
    prior = season_prior()
    spread = np.log(prior.high / prior.low) / (2.0 * _P90)
    scores = (-1.8, -0.9, 0.0, 0.9, 1.8)
    chances = np.exp(-0.5 * np.square(scores))
    chances /= chances.sum()
    # A height of a has cosine and sine of a standard deviation of a ÷ √2.
    heights = prior.base * np.exp(spread * np.array(scores))
    return tuple(zip((heights / np.sqrt(2.0)).tolist(), chances.tolist(), strict=True))


def season_sigma() -> float:
    """Return the standard deviation of ln(traffic ÷ yearly mean) on a day of which only the prior is known."""
    return float(np.sqrt(sum(chance * size**2 for size, chance in season_sizes())))


def short_error(sigma_of_mean: float, years: float) -> float:
    """Return the standard error of ln level of a series too short for a trend.

    Its own noise, the season it happened to fall into, and the growth from its middle to its end.
    """
    return float(np.hypot(np.hypot(sigma_of_mean, season_sigma()), 0.5 * years * _GROWTH_SIGMA))


def fit_weeks(log_means: Floats, years: Floats, end_phase: float) -> Trend:
    """Fit ln of weekly means at times ``years``, negative and rising to the end, whose place in the year is a phase."""
    group = -(-years.size // _MAX_WEEKS)
    whole = years.size // group * group
    times = years[-whole:].reshape(-1, group).mean(axis=1)
    logs = log_means[-whole:].reshape(-1, group).mean(axis=1)
    angle = 2.0 * np.pi * (times + end_phase)
    harmonics = np.stack([np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle)])
    shares = np.array([1.0, 1.0, _SECOND_HARMONIC, _SECOND_HARMONIC])
    wave = (harmonics * shares[:, None] ** 2).T @ harmonics
    drift = np.minimum.outer(-times, -times)
    # The level is free; the trend has its own broad prior.
    base = 100.0 + _GROWTH_SIGMA**2 * np.outer(times, times)
    grid = [
        (noise / np.sqrt(group), swing, size, chance)
        for noise in _NOISES
        for swing in _DRIFTS
        for size, chance in season_sizes()
    ]
    # A step's row is one before it happened: the level at the end is the level after all steps. Two
    # weeks before and after it tell it from a week out of the ordinary.
    before = np.tri(times.size, k=-1)[2:-1]
    chances = np.log([chance for *_, chance in grid])
    sizes = np.array([point[:3] for point in grid])[:, :, None, None] ** 2
    covariances = base + sizes[:, 0] * np.eye(times.size) + sizes[:, 1] * drift + sizes[:, 2] * wave
    offset = logs.mean()
    centred = logs - offset
    steps, inverses, evidence = _find_steps(centred, times, covariances, chances, before)
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()
    # Given the sizes of a point of the grid all is normal: its means and variances, then their mixture.
    step_columns = before[steps]
    priors = np.stack(
        [
            np.concatenate(
                [
                    [100.0, _GROWTH_SIGMA**2],
                    size**2 * shares**2,
                    np.full(len(steps), _STEP_SIGMA**2),
                ]
            )
            for _, _, size, _ in grid
        ]
    )
    design = np.concatenate([[np.ones(times.size), times], harmonics, step_columns])
    means = np.zeros((len(grid), len(design)))
    variances = np.zeros_like(means)
    correlations = np.zeros(len(grid))
    fitted = np.zeros(times.size)
    for point, inverse in enumerate(inverses):
        if weights[point] < 1e-6:
            variances[point] = 1e-12
            continue
        loading = priors[point][:, None] * design
        gain = loading @ inverse
        means[point] = gain @ centred
        posterior = np.diag(priors[point]) - gain @ loading.T
        variances[point] = np.maximum(np.diag(posterior), 1e-12)
        correlations[point] = posterior[0, 1] / np.sqrt(variances[point, 0] * variances[point, 1])
        noise = grid[point][0]
        smooth = centred - noise**2 * (inverse @ centred)
        fitted += weights[point] * (smooth - means[point, 0])
    sigmas = np.sqrt(variances)
    # The logarithm of a wave has a mean below that of the year's: I0(a) is 1 + a²/4 for a small one.
    means[:, 0] += (means[:, 2:6] ** 2 + variances[:, 2:6]).sum(axis=1) / 4.0
    mean_of = weights @ means
    return Trend(
        level=Mixture(weights=weights, means=means[:, 0] + offset, sigmas=sigmas[:, 0]),
        growth=Mixture(weights=weights, means=means[:, 1], sigmas=sigmas[:, 1]),
        level_growth_correlation=float(weights @ correlations),
        wave=(float(mean_of[2]), float(mean_of[3]), float(weights @ sigmas[:, 2])),
        steps=[
            (float(-times[step + 2]), -float(mean_of[6 + rank])) for rank, step in enumerate(steps)
        ],
        fitted=np.interp(years, times, fitted),
    )


def _find_steps(
    logs: Floats, times: Floats, covariances: Floats, chances: Floats, before: Floats
) -> tuple[list[int], Floats, Floats]:
    """Return the steps that explain the weeks better than none, and the inverse and evidence of each point of the grid.

    One after another: the likeliest week of a step is taken where a step there is likelier than none anywhere.
    """
    steps: list[int] = []
    # A step in each of the weeks is as likely.
    chance_of_step = -_STEPS_PER_YEAR * times[0] / max(len(before), 1)
    inverses = np.linalg.inv(covariances)
    log_determinants = np.linalg.slogdet(covariances)[1]
    evidence = chances - 0.5 * (inverses @ logs @ logs + log_determinants)
    while len(steps) < _MAX_STEPS and len(before):
        # What a step of each week would add to the evidence, its size not known beforehand.
        through = before @ inverses
        strength = 1.0 + _STEP_SIGMA**2 * np.sum(through * before, axis=2)
        lift = 0.5 * _STEP_SIGMA**2 * (through @ logs) ** 2 / strength
        gains = evidence[:, None] + lift - 0.5 * np.log(strength)
        largest = max(float(gains.max()), float(evidence.max()))
        by_week = np.exp(gains - largest).sum(axis=0) * chance_of_step
        if by_week.sum() <= np.exp(evidence - largest).sum():
            break
        step = int(np.argmax(by_week))
        steps.append(step)
        evidence = gains[:, step]
        column = through[:, step]
        outer = column[:, :, None] * column[:, None, :]
        inverses = inverses - _STEP_SIGMA**2 * outer / strength[:, step, None, None]
    return steps, np.asarray(inverses, dtype=np.float64), np.asarray(evidence, dtype=np.float64)
