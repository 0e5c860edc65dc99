"""Fit a workload to a request log: rate, lengths, bursts, shape and clients, each with the fit's error."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.demand.calendar import HOURS_PER_WEEK
from planner.demand.tokens import LengthDistribution, RequestLog
from planner.errors import ScenarioError
from planner.units import HOURS_PER_YEAR

MINUTES_FOR_DISPERSION = 10
"""Whole minutes a log needs before counts per minute say anything of their variance."""
HOURS_FOR_DAILY_SHAPE = 48
"""Hours needed to see a daily peak twice."""
WEEKS_FOR_GROWTH = 26
"""Whole weeks needed before a trend may be carried into the years to come."""
_EPOCH_HOUR_OF_WEEK = 72  # 1 January 1970 00:00 UTC was a Thursday


FITTED_QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)
"""Shares of requests whose lengths every fit takes from the log."""
MEAN_ERROR_FRACTION, LARGEST_GAP = 0.005, 0.03
"""More quantiles are taken until the mean, which decides load, and the cumulative fractions come out this close."""
_MOST_QUANTILES, _MOST_POINTS = 40, 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFit:
    """A log's quantiles of length, and how far the distribution through them lies from the log elsewhere."""

    quantiles: dict[float, float]
    """Tokens by share of requests not longer."""
    mean_tokens: float
    """The log's mean."""
    log_mu: float
    """Maximum likelihood: mean of ln L over non-empty requests."""
    log_sigma: float
    """Maximum likelihood: standard deviation of ln L over non-empty requests."""
    largest_distribution_error: float
    """The largest gap between the two cumulative fractions (Kolmogorov and Smirnov)."""

    @property
    def distribution(self) -> LengthDistribution:
        """The fit."""
        return LengthDistribution.from_quantiles(self.quantiles)

    @property
    def mean_error_fraction(self) -> float:
        """Return fitted ÷ logged mean − 1."""
        return self.distribution.mean_tokens / self.mean_tokens - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeFit:
    """What hourly rates say of the day and the week."""

    peak_to_mean: float
    """Busiest hour of the (mean) week or day ÷ mean."""
    trough_to_mean: float
    """Quietest hour ÷ mean."""
    weekend_fraction: float | None
    """Mean weekend hour ÷ mean weekday hour; None where the log is shorter than a week or has no dates."""
    weekly_profile: tuple[float, ...] | None
    """168 factors of mean 1, Monday 00:00 UTC first; None as above."""
    noise_sigma: float | None
    """Standard deviation of ln(rate ÷ profile), from hours of the week seen at least twice."""
    noise_correlation_h: float | None
    """Hours in which that residual's correlation falls to 1/e."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendFit:
    """Compound growth through the weeks of a series."""

    per_year: float
    """Growth of a year, as a share."""
    per_year_error: float
    """Its standard error, weeks taken as independent."""
    end_to_mean: float
    """Level at the end of the series ÷ its mean."""
    factors: Floats
    """The trend at each hour ÷ its mean, shape (hours,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficFit:
    """One workload fitted to one log; None where the log cannot show it."""

    requests: int
    duration_h: float
    requests_per_s: float | None
    requests_per_s_error_fraction: float | None
    input: LengthFit
    output: LengthFit
    input_output_correlation: float
    index_of_dispersion: float | None
    index_of_dispersion_error: float | None
    interarrival_cv: float | None
    shape: ShapeFit | None
    prefix_cache_hit_fraction: float | None
    largest_client_fraction: float | None
    clients: int | None


def fit_traffic(log: RequestLog) -> TrafficFit:
    """Fit all a log can show. The standard error of the rate counts burstiness: √(I / n)."""
    requests = log.times_s.size
    if requests < 2:
        raise ScenarioError(f"a fit needs at least two requests; the log has {requests}")
    duration_s = float(log.times_s[-1] - log.times_s[0])
    if duration_s <= 0.0:
        raise ScenarioError(f"all {requests} requests carry the same time, so no rate can be fitted")
    dispersion = dispersion_error = interarrival_cv = rate = rate_error = None
    if log.one_clock:
        dispersion, dispersion_error = index_of_dispersion(log.times_s)
        gaps_s = np.diff(log.times_s)
        interarrival_cv = float(gaps_s.std() / gaps_s.mean())
        rate = (requests - 1) / duration_s
        rate_error = float(np.sqrt((dispersion or 1.0) / requests))
    largest = clients = None
    if log.clients is not None:
        counts = np.bincount(log.clients)
        largest, clients = float(counts.max() / requests), int(counts.size)
    return TrafficFit(
        requests=requests,
        duration_h=duration_s / 3600.0,
        requests_per_s=rate,
        requests_per_s_error_fraction=rate_error,
        input=fit_lengths(log.input_tokens, "input"),
        output=fit_lengths(log.output_tokens, "output"),
        input_output_correlation=_correlation(log.input_tokens, log.output_tokens),
        index_of_dispersion=dispersion,
        index_of_dispersion_error=dispersion_error,
        interarrival_cv=interarrival_cv,
        shape=_shape_of_log(log) if log.one_clock else None,
        prefix_cache_hit_fraction=log.prefix_cache_hit_fraction,
        largest_client_fraction=largest,
        clients=clients,
    )


def fit_lengths(tokens: Floats, which: str = "request") -> LengthFit:
    """Fit a distribution through a log's quantiles; an empty request counts as one token, the least a scenario has."""
    if not np.any(tokens > 0.0):
        raise ScenarioError(f"all {which} lengths are zero, so no distribution can be fitted")
    lengths = np.sort(np.maximum(tokens, 1.0))
    logs = np.log(tokens[tokens > 0.0])
    points = min(lengths.size, _MOST_POINTS)
    shares = (np.arange(points) + 0.5) / points
    scores = np.array([NormalDist().inv_cdf(share) for share in shares.tolist()])
    logged, taken = np.quantile(lengths, shares), list(FITTED_QUANTILES)
    while True:
        quantiles = dict(zip(taken, np.quantile(lengths, taken).tolist(), strict=True))
        distribution = LengthDistribution.from_quantiles(quantiles)
        fitted = distribution.at_scores(scores)
        gaps = _gaps(lengths, shares, fitted)
        is_mean_met = abs(distribution.mean_tokens / lengths.mean() - 1.0) < MEAN_ERROR_FRACTION
        if (is_mean_met and gaps.max() < LARGEST_GAP) or len(taken) >= _MOST_QUANTILES:
            break
        # Where the log departs most from its line, as where prompts pile up at a template's length, the line is parted.
        cell = np.searchsorted(taken, shares)
        place = cell[np.argmax(gaps)] if is_mean_met else np.argmax(np.abs(np.bincount(cell, fitted - logged)))
        taken.insert(int(place), round(0.5 * ((taken[place - 1] if place else 0.0) + taken[place]), 6))
    return LengthFit(
        quantiles=quantiles,
        mean_tokens=float(tokens.mean()),
        log_mu=float(logs.mean()),
        log_sigma=float(logs.std()),
        largest_distribution_error=float(gaps.max()),
    )


def index_of_dispersion(times_s: Floats) -> tuple[float | None, float | None]:
    """Return variance ÷ mean of counts per whole minute, and its standard error, or None for too short a log.

    In logs of two hours and more the variance is taken within each hour and averaged, so that the day's shape does not
    count as bursts. The error is I √(2 / degrees of freedom), as for normal counts.
    """
    minute = ((times_s - times_s[0]) // 60.0).astype(np.int64)
    counts = np.bincount(minute)[:-1].astype(np.float64)
    if counts.size < MINUTES_FOR_DISPERSION or counts.mean() == 0.0:
        return None, None
    if counts.size >= 120:
        hourly = counts[: counts.size // 60 * 60].reshape(-1, 60)
        variance, freedom = float(hourly.var(axis=1, ddof=1).mean()), hourly.shape[0] * 59
        mean = float(hourly.mean())
    else:
        variance, freedom, mean = float(counts.var(ddof=1)), counts.size - 1, float(counts.mean())
    index = variance / mean
    return index, index * float(np.sqrt(2.0 / freedom))


def fit_trend(rates: Floats) -> TrendFit | None:
    """Fit compound growth to hourly rates, shape (hours,); None for less than half a year, or a week without traffic.

    ln(mean of week k) = a + b t_k by least squares, t in years; growth is e^b − 1, its standard error e^b times that
    of b. The series' mean is kept: its level at the end is mean · e^(b T) ÷ mean of e^(b t).
    """
    weeks = rates.size // HOURS_PER_WEEK
    if weeks < WEEKS_FOR_GROWTH:
        return None
    means = rates[rates.size - weeks * HOURS_PER_WEEK :].reshape(weeks, HOURS_PER_WEEK).mean(axis=1)
    if means.min() <= 0.0:
        return None
    years = np.arange(weeks) * HOURS_PER_WEEK / HOURS_PER_YEAR
    slope, level = np.polyfit(years, np.log(means), 1)
    residual = np.log(means) - level - slope * years
    error = np.sqrt(residual @ residual / (weeks - 2) / np.sum((years - years.mean()) ** 2))
    trend = np.exp(slope * np.arange(rates.size) / HOURS_PER_YEAR)
    return TrendFit(
        per_year=float(np.expm1(slope)),
        per_year_error=float(np.exp(slope) * error),
        end_to_mean=float(np.exp(slope * rates.size / HOURS_PER_YEAR) / trend.mean()),
        factors=trend / trend.mean(),
    )


def fit_hourly_shape(rates: Floats, first_hour_of_week: int | None) -> ShapeFit | None:
    """Fit day and week to hourly rates, shape (hours,); None for less than two days.

    ``first_hour_of_week`` is 0 for Monday 00:00 UTC, None where the dates are unknown.
    """
    if rates.size < HOURS_FOR_DAILY_SHAPE or not np.any(rates > 0.0):
        return None
    hour = ((first_hour_of_week or 0) + np.arange(rates.size)) % HOURS_PER_WEEK
    if rates.size < HOURS_PER_WEEK:
        return _daily_shape(rates, None, None)
    profile = _mean_by(rates, hour, HOURS_PER_WEEK)
    profile /= profile.mean()
    sigma, correlation_h = _residual_noise(rates, profile[hour])
    if first_hour_of_week is None:
        return _daily_shape(rates, sigma, correlation_h)
    return ShapeFit(
        peak_to_mean=float(profile.max()),
        trough_to_mean=float(profile.min()),
        weekend_fraction=float(profile[120:].mean() / profile[:120].mean()),
        weekly_profile=tuple(profile.tolist()),
        noise_sigma=sigma,
        noise_correlation_h=correlation_h,
    )


def _daily_shape(rates: Floats, sigma: float | None, correlation_h: float | None) -> ShapeFit:
    """Fit the mean day alone, counted from the first row."""
    by_hour = _mean_by(rates, np.arange(rates.size) % 24, 24)
    relative = by_hour / by_hour.mean()
    return ShapeFit(
        peak_to_mean=float(relative.max()),
        trough_to_mean=float(relative.min()),
        weekend_fraction=None,
        weekly_profile=None,
        noise_sigma=sigma,
        noise_correlation_h=correlation_h,
    )


def _shape_of_log(log: RequestLog) -> ShapeFit | None:
    """Fit the shape to a log's whole hours."""
    first_hour = int(np.ceil(log.times_s[0] / 3600.0))
    counts = np.bincount(np.maximum((log.times_s // 3600.0).astype(np.int64) - first_hour, -1) + 1)[1:-1]
    week_hour = (first_hour + _EPOCH_HOUR_OF_WEEK) % HOURS_PER_WEEK if log.has_date else None
    return fit_hourly_shape(counts.astype(np.float64), week_hour)


def _mean_by(numbers: Floats, group: NDArray[np.int64], groups: int) -> Floats:
    """Return the mean of each group, shape (groups,)."""
    return np.bincount(group, weights=numbers, minlength=groups) / np.bincount(group, minlength=groups)


def _residual_noise(rates: Floats, expected: Floats) -> tuple[float | None, float | None]:
    """Return σ and correlation hours of ln(rate ÷ profile), or None for less than two weeks.

    The profile is fitted from the same w weeks, which takes 1/w of the variance away: it is given back.
    """
    weeks = rates.size / HOURS_PER_WEEK
    usable = (rates > 0.0) & (expected > 0.0)
    if weeks < 2.0 or usable.sum() < HOURS_PER_WEEK:
        return None, None
    residual = np.zeros(rates.size)
    residual[usable] = np.log(rates[usable] / expected[usable])
    residual[usable] -= residual[usable].mean()
    variance = float(np.mean(residual[usable] ** 2)) * weeks / (weeks - 1.0)
    lagged = _correlation(residual[1:], residual[:-1])
    return float(np.sqrt(variance)), float(-1.0 / np.log(lagged)) if 0.0 < lagged < 1.0 else 0.0


def _correlation(first: Floats, second: Floats) -> float:
    """Return Pearson's correlation, 0 where one of the two never changes."""
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / scale if scale > 0.0 else 0.0


def _gaps(lengths: Floats, shares: Floats, fitted: Floats) -> Floats:
    """Return the gaps between the log's and the fit's cumulative fractions at shares of the fit, in their shape.

    Lengths are whole tokens and many alike: a share is met where it lies between those below and up to its length.
    """
    below = np.searchsorted(lengths, np.floor(fitted), side="left") / lengths.size
    up_to = np.searchsorted(lengths, np.ceil(fitted), side="right") / lengths.size
    return np.asarray(np.maximum(np.maximum(below - shares, shares - up_to), 0.0))
