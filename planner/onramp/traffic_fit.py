"""A workload fitted to what files show of it, whatever their format: level, growth, day and week, lengths, latencies.

Every reader makes an ``ObservedTraffic`` of its file. Each figure is fitted with its error, which stands beside it;
what no file shows is assumed, and says so.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.catalog.load import workload_preset as preset_figures
from planner.demand.bursts import LOWEST_MEASURED_REQUESTS_PER_S
from planner.demand.shape import HOURS_PER_WEEK
from planner.demand.tokens import LengthDistribution, RequestLog
from planner.errors import Problem, ScenarioError, printable
from planner.onramp.hourly import HourlyCounts, HourlyRates
from planner.onramp.trend import SURE, Mixture, Trend, fit_weeks, season_prior, short_error
from planner.records import record
from planner.units import DAYS_PER_YEAR, HOURS_PER_YEAR, MONTHS_PER_YEAR, SECONDS_PER_HOUR
from planner.yaml_io import with_value

MINUTES_FOR_DISPERSION = 10
"""Whole minutes a log needs before counts per minute say anything of their variance."""
HOURS_FOR_DAILY_SHAPE = 48
"""Hours needed to see a daily peak twice."""
WEEKS_FOR_GROWTH = 26
"""Whole weeks needed before a trend may be carried into the years to come."""
WEEKS_FOR_SEASON = 104
"""Whole weeks needed to tell growth from a yearly wave."""
MIN_USUAL_REQUESTS = 20.0
"""Requests that an hour has in other weeks, from which on none at all is no chance: e^-20 of a Poisson process."""
MIN_WEEKS = 1.5
"""Weeks with requests, of two and more, that noise about the week needs."""
EPOCH_HOUR_OF_WEEK = 72  # 1 January 1970 00:00 UTC was a Thursday


FITTED_QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)
"""Shares of requests whose lengths every fit takes from the log."""
MEAN_ERROR_FRACTION = 0.005
"""More quantiles are taken until the mean, which decides load, comes out this close."""
LARGEST_EMPTY_SHARE = 0.001
"""Of requests, which a rounding of counts may put into an empty bucket."""
LARGEST_GAP = 0.03
"""More quantiles are taken until the cumulative fractions come out this close."""
_MAX_QUANTILES = 40
_MAX_POINTS = 2000

_Stated = TypeVar("_Stated")


@record
class LengthFit:
    """Length quantiles of a log or a histogram, and the errors of the distribution through them."""

    quantiles: dict[float, float]
    """Tokens by share of requests not longer."""
    mean_tokens: float
    """The mean of what was counted."""
    largest_distribution_error: float | None
    """The largest gap between the two cumulative fractions (Kolmogorov and Smirnov); None of a histogram, whose bounds
    are met and between which nothing is known."""
    note: str = ""
    """What was done to a histogram's bounds."""

    @property
    def distribution(self) -> LengthDistribution:
        """The fitted length distribution."""
        return LengthDistribution.from_quantiles(self.quantiles)

    @property
    def mean_error_fraction(self) -> float:
        """Return fitted ÷ counted mean − 1."""
        return self.distribution.mean_tokens / self.mean_tokens - 1.0

    def within(self, source: str, side: str, model: ServedModel) -> LengthFit:
        """Return the lengths without those that the model does not accept; raise an error where there are some.

        A bucket of a histogram that reaches beyond the context ends there: nothing longer was served.
        """
        longest = model.longest_tokens
        shares = sorted(self.quantiles)
        beyond = [share for share in shares if self.quantiles[share] > longest]
        if not beyond:
            return self
        before = [share for share in shares if self.quantiles[share] <= longest]
        first_share = max(before, default=0.0)
        # What lies in the one bucket around the limit may be shorter, and all beyond it may not.
        shown_beyond = 1.0 - min(beyond)
        if self.largest_distribution_error is not None or shown_beyond > LARGEST_EMPTY_SHARE:
            share = 1.0 - first_share
            message = (
                f"{side}: up to {share:.2%} of requests are longer than the {longest:,.0f} tokens"
            )
            message += f" that {model.figure.fitted} accepts"
            hint = "name the model that serves them: --model NAME=MODEL"
            raise ScenarioError(Problem(file=source, message=message, hint=hint))
        quantiles = {share: self.quantiles[share] for share in before}
        quantiles[max(beyond)] = longest
        note = f"; a bucket up to {self.quantiles[beyond[0]]:,.0f} ends at the model's context, {longest:,.0f}"
        return replace(self, quantiles=quantiles, note=note)

    @property
    def remark(self) -> str:
        """The fit's error in words."""
        errors = (
            f"counted mean {self.mean_tokens:,.0f}, fitted mean {self.mean_error_fraction:+.1%}"
        )
        gap = self.largest_distribution_error
        if gap is None:
            return f"{errors}; from a histogram{self.note}"
        return f"{errors}; the fitted distribution is off by at most {gap:.2f}"


@record
class Histogram:
    """Observations counted up to bounds, as Prometheus has them."""

    bounds: Floats
    """Rising; the last is infinite."""
    counts: Floats
    """Observations not above each bound."""
    total: float
    """Sum of all observations; 0 where it is not known."""

    def share_within(self, limit: float) -> float:
        """Return the share of observations not above a limit, a bucket's taken as evenly spread."""
        shares = self.counts / self.counts[-1]
        # Nothing lies below zero; the infinite bound has no place on the line.
        bounds = [0.0, *self.bounds[:-1]]
        return float(np.interp(limit, bounds, [0.0, *shares[:-1]]))

    def lengths(self) -> LengthFit | None:
        """Fit lengths through the bounds; None where fewer than two lie within the distribution.

        The bound up to which nothing was seen is the shortest length, that by which everything was the longest.
        """
        quantiles: dict[float, float] = {}
        all_shares = self.counts / self.counts[-1]
        shares = all_shares.round(5).tolist()
        for share, upper_tokens in zip(shares, self.bounds.tolist(), strict=True):
            if share == 0.0:
                quantiles[0.0] = upper_tokens
            elif np.isfinite(upper_tokens):
                # Two bounds of one share enclose an empty bucket: lengths go on at its upper bound,
                # a hair above the share, since a share has one length.
                is_empty_bucket = share in quantiles and share < 1.0
                own_share = round(share + 1e-5, 5) if is_empty_bucket else share
                quantiles.setdefault(own_share, upper_tokens)
        if len(quantiles.keys() - {0.0, 1.0}) < 2:
            return None
        mean = float(self.total / self.counts[-1])
        # A file without sums: the mean of the fitted line stands for the counted one.
        if not mean:
            mean = LengthDistribution.from_quantiles(quantiles).mean_tokens
        return LengthFit(quantiles=quantiles, mean_tokens=mean, largest_distribution_error=None)


@record
class ObservedTraffic:
    """What a file shows of one workload; None or empty where it does not."""

    source: str
    """Name of the file."""
    model: str | None = None
    """Name under which the model is served."""
    level: tuple[float, str] | None = None
    """Requests per second with the error, of a time too short for hours."""
    rates: HourlyRates | None = None
    lengths: Mapping[str, LengthFit] = field(default_factory=dict)
    """By side: ``input``, ``output``."""
    mean_tokens: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mean lengths by side with half their intervals as a share, where a file has totals alone."""
    prefix_cache_hit_fraction: float | None = None
    reuse: Mapping[float, float] | None = None
    """Share of input tokens by the seconds since they were last used."""
    bursts: tuple[float, str] | None = None
    """Index of dispersion with its error, and what the largest client sends."""
    burst_rate: tuple[float, str] | None = None
    """Requests per second from which on that index is taken to hold, and why."""
    latencies: Mapping[str, Histogram] = field(default_factory=dict)
    """Measured latencies by the objective that they belong to: ``ttft_s``, ``tpot_s``."""

    def merge(self, second: ObservedTraffic) -> ObservedTraffic:
        """Return what two files of one workload show: the longer series, and otherwise the first that shows it."""
        longest = max(self.rates, second.rates, key=lambda rates: rates.rates.size if rates else 0)
        fields = {name: getattr(self, name) for name in ObservedTraffic.__dataclass_fields__}
        observed = {
            name: content for name, content in fields.items() if content not in (None, (), {})
        }
        observed["rates"] = longest
        observed["source"] = f"{self.source} and {second.source}"
        return replace(second, **observed)


@record
class ShapeFit:
    """Daily and weekly profile fitted to hourly rates."""

    peak_to_mean: float
    """Busiest hour of the (mean) week or day ÷ mean."""
    weekend_fraction: float | None
    """Mean weekend hour ÷ mean weekday hour; None where the log is shorter than a week or has no dates."""
    weekly_profile: tuple[float, ...] | None
    """168 factors of mean 1, Monday 00:00 UTC first; None as above."""
    noise: tuple[float, float] | None
    """Standard deviation of ln(rate ÷ profile), from hours of the week seen at least twice, and the hours in which that
    residual's correlation falls to 1/e."""


@record
class TrendFit:
    """Compound growth, and from two years on a yearly wave, fitted to the weeks of a series."""

    trend: Trend
    season: tuple[float, float, float] | None
    """Amplitude of the wave, its standard error, and the day of the year of its peak; None for less than two years."""
    factors: Floats
    """Traffic expected of each hour's week ÷ the level at the end, shape (hours,)."""

    @property
    def per_year(self) -> float:
        """Growth of a year, as a share."""
        return float(np.expm1(self.trend.growth.mean))


def traffic_of_log(log: RequestLog, source: str = "", model: str | None = None) -> ObservedTraffic:
    """Return all that a log shows; the standard error of the rate includes burstiness: √(I / n)."""
    requests = log.times_s.size
    if requests < 2:
        raise ScenarioError(f"a fit needs at least two requests; the log has {requests}")
    duration_s = float(log.times_s[-1] - log.times_s[0])
    if duration_s <= 0.0:
        raise ScenarioError(
            f"all {requests} requests carry the same time, so no rate can be fitted"
        )
    level = rates = bursts = burst_rate = None
    # Clients that each have a clock of their own show lengths, but neither rate nor bursts.
    if log.one_clock:
        dispersion = index_of_dispersion(log.times_s)
        variance_ratio = dispersion[0] if dispersion else 1.0
        error = float(np.sqrt(variance_ratio / requests))
        level = (requests - 1) / duration_s, level_remark(requests, error, duration_s)
        rates = _hourly_counts(log)
        if dispersion is not None:
            remark = f"±{dispersion[1]:.2g} standard error; Poisson is 1"
            if log.clients is not None:
                by_client = np.bincount(log.clients)
                share = f"{by_client.max() / requests:.1%}"
                clients = f"{np.count_nonzero(by_client):,}"
                remark += f"; one of {clients} clients sends {share}: see tenants"
            bursts = max(dispersion[0], 1.0), remark
            burst_rate = level[0], "mean of the log"
            if level[0] > LOWEST_MEASURED_REQUESTS_PER_S:
                burst_rate = LOWEST_MEASURED_REQUESTS_PER_S, "lowest rate of public chat logs"
    return ObservedTraffic(
        source=source,
        model=model,
        level=level,
        rates=rates,
        lengths={
            "input": fit_lengths(log.input_tokens, "input"),
            "output": fit_lengths(log.output_tokens, "output"),
        },
        prefix_cache_hit_fraction=log.prefix_cache_hit_fraction,
        reuse=log.reuse,
        bursts=bursts,
        burst_rate=burst_rate,
    )


def traffic_of_counts(
    counts: HourlyCounts, source: str = "", model: str | None = None
) -> ObservedTraffic:
    """Return all that counts by the hour or day show: rates, and tokens ÷ requests as mean lengths."""
    means: dict[str, tuple[float, float]] = {}
    totals = counts.totals
    hit_fraction = None
    if totals is not None and np.nansum(totals.requests) > 0.0:
        for side in ("input", "output"):
            if side in totals.tokens and totals.mean(side) > 0.0:
                means[side] = totals.mean(side), totals.half_interval(side)
        if {"input", "cached"} <= totals.tokens.keys() and "input" in means:
            hit_fraction = totals.mean("cached") / totals.mean("input")
    return ObservedTraffic(
        source=source,
        model=model,
        rates=counts.rates,
        mean_tokens=means,
        prefix_cache_hit_fraction=hit_fraction,
    )


def _hourly_counts(log: RequestLog) -> HourlyRates | None:
    """Return a log's rates by whole hours; None where there are too few to show a day."""
    # The hours in which a log begins and ends are seen in part, so they are no rates. What comes
    # before the first whole hour is counted in a cell of its own, which goes, as the last cell does.
    # Whole hours since 1970, so that the hour of the week follows.
    first_hour = int(np.ceil(log.times_s[0] / SECONDS_PER_HOUR))
    hour = (log.times_s // SECONDS_PER_HOUR).astype(np.int64) - first_hour
    cells = np.bincount(np.maximum(hour, -1) + 1)
    counts = cells[1:-1]
    if counts.size < HOURS_FOR_DAILY_SHAPE:
        return None
    rates = HourlyRates(column="the log", rates=counts / SECONDS_PER_HOUR)
    if not log.has_date:
        return rates
    week_hour = (first_hour + EPOCH_HOUR_OF_WEEK) % HOURS_PER_WEEK
    end_s = (first_hour + counts.size) * SECONDS_PER_HOUR
    return replace(rates, first_hour_of_week=week_hour, end_s=end_s)


def level_remark(requests: float, error_fraction: float, duration_s: float) -> str:
    """Return how sure the rate of a stretch of time is, in words."""
    hours = f"{duration_s / SECONDS_PER_HOUR:.3g} h"
    error = f"±{error_fraction:.1%} standard error, {requests:,.0f} requests in {hours}"
    return f"{error}: this is the level of those hours, not of a week"


def fit_lengths(tokens: Floats, side: str = "request") -> LengthFit:
    """Fit a distribution through a log's length quantiles; empty requests count as one token."""
    if not np.any(tokens > 0.0):
        raise ScenarioError(f"all {side} lengths are zero, so no distribution can be fitted")
    lengths = np.sort(np.maximum(tokens, 1.0))
    points = min(lengths.size, _MAX_POINTS)
    shares = (np.arange(points) + 0.5) / points
    normal_scores = [NormalDist().inv_cdf(share) for share in shares.tolist()]
    scores = np.array(normal_scores)
    logged = np.quantile(lengths, shares)
    knots = list(FITTED_QUANTILES)
    # Every round adds a knot where the fit is worst, so it ends at the latest with the largest number.
    while True:
        # Quantiles of the log itself: the line passes through it at every knot.
        lengths_at_knots = np.quantile(lengths, knots).tolist()
        quantiles = dict(zip(knots, lengths_at_knots, strict=True))
        distribution = LengthDistribution.from_quantiles(quantiles)
        fitted = distribution.at_scores(scores)
        # Lengths are whole tokens and many alike: a share is met between those below and those up to its length.
        below = np.searchsorted(lengths, np.floor(fitted), side="left")
        lower = below / lengths.size
        up_to = np.searchsorted(lengths, np.ceil(fitted), side="right")
        upper = up_to / lengths.size
        deviation = np.maximum(lower - shares, shares - upper)
        gaps = np.maximum(deviation, 0.0)
        mean_ratio = distribution.mean_tokens / lengths.mean()
        is_mean_met = abs(mean_ratio - 1.0) < MEAN_ERROR_FRACTION
        is_fitted = is_mean_met and gaps.max() < LARGEST_GAP
        if is_fitted or len(knots) >= _MAX_QUANTILES:
            break
        # Where the log departs most from its line, as where prompts pile up at a template's length, the line is parted.
        interval = np.searchsorted(knots, shares)
        if is_mean_met:
            worst = int(interval[np.argmax(gaps)])
        else:
            excess_tokens = np.bincount(interval, fitted - logged)
            worst = int(np.argmax(np.abs(excess_tokens)))
        previous = 0.0
        if worst:
            previous = knots[worst - 1]
        # Halfway between its neighbours, to a millionth: shares are keys of a mapping.
        middle = 0.5 * (previous + knots[worst])
        knots.insert(worst, round(middle, 6))
    return LengthFit(
        quantiles=quantiles,
        mean_tokens=float(tokens.mean()),
        largest_distribution_error=float(gaps.max()),
    )


def index_of_dispersion(times_s: Floats) -> tuple[float, float] | None:
    """Return variance ÷ mean of counts per whole minute, and its standard error, or None for too short a log.

    In logs of two hours and more the variance is taken within each hour and averaged, so that the day's shape does not
    count as bursts. The error is I √(2 / degrees of freedom), as for normal counts.
    """
    elapsed_s = times_s - times_s[0]
    minute = (elapsed_s // 60.0).astype(np.int64)
    counts_by_minute = np.bincount(minute)[:-1]
    counts = counts_by_minute.astype(np.float64)
    if counts.size < MINUTES_FOR_DISPERSION or counts.mean() == 0.0:
        return None
    # Whole hours, so that the last, partial one is left out.
    minutes = 60 if counts.size >= 120 else counts.size
    whole_minutes = counts.size // minutes * minutes
    parts = counts[:whole_minutes].reshape(-1, minutes)
    variances = parts.var(axis=1, ddof=1)
    variance = float(variances.mean())
    index = variance / float(parts.mean())
    freedom = len(parts) * (minutes - 1)
    return index, index * float(np.sqrt(2.0 / freedom))


def fit_trend(rates: Floats, end_s: float | None = None) -> TrendFit | None:
    """Fit growth and season to hourly rates, shape (hours,), NaN where unknown; None below half a year.

    A season is given from two years on and with dates: the wave 1 + a cos x has A = 2 (1 − √(1 − a²)) / a as the first
    harmonic of its logarithm, so a = A / (1 + A²/4). None, too, with a week of no traffic.
    """
    weeks = rates.size // HOURS_PER_WEEK
    if weeks < WEEKS_FOR_GROWTH:
        return None
    first_hour = rates.size - weeks * HOURS_PER_WEEK
    by_week = rates[first_hour:].reshape(weeks, HOURS_PER_WEEK)
    # A week seen by half is a week.
    is_known = np.isfinite(by_week)
    is_seen = is_known.mean(axis=1) > 0.5
    means = np.nanmean(by_week[is_seen], axis=1)
    # The logarithm of a week without traffic is not finite.
    if is_seen.sum() < WEEKS_FOR_GROWTH or means.min() <= 0.0:
        return None
    # Hours that an outage took were not average ones: what they usually have is put back.
    usual_week = np.nanmedian(by_week[is_seen] / means[:, None], axis=0)
    seen_shares = (is_known[is_seen] * usual_week).sum(axis=1) / is_known[is_seen].sum(axis=1)
    log_means = np.log(means / (seen_shares / usual_week.mean()))
    week_numbers = np.arange(weeks)[is_seen]
    years = (week_numbers - weeks + 0.5) * HOURS_PER_WEEK / HOURS_PER_YEAR
    # Years count back from the end of the series, whose place in the year sets the wave's phase.
    end = datetime.datetime.fromtimestamp(end_s or 0.0, tz=datetime.UTC)
    end_phase = end.timetuple().tm_yday / DAYS_PER_YEAR
    trend = fit_weeks(log_means, years, end_phase)
    hours_years = (np.arange(rates.size) - rates.size + 0.5) / HOURS_PER_YEAR
    season = None
    if end_s is not None and weeks >= WEEKS_FOR_SEASON:
        # The angle of cosine and sine is the peak of the wave.
        cosine, sine, error = trend.wave
        wave = float(np.hypot(cosine, sine))
        peak = float(np.arctan2(sine, cosine) / (2.0 * np.pi)) % 1.0
        season = wave / (1.0 + wave**2 / 4.0), error, max(peak * DAYS_PER_YEAR, 1.0)
    return TrendFit(
        trend=trend,
        season=season,
        factors=np.exp(np.interp(hours_years, years, trend.fitted)),
    )


def silent_hours(rates: Floats) -> Bools:
    """Return which hours had no request although that hour of other weeks has: an outage, or a gap in the records.

    An hour beside them with less than half its usual traffic was silent in part, and counts as one. Below two weeks
    nothing is usual. Hours that usually have few requests may be empty by chance.
    """
    if rates.size < 2 * HOURS_PER_WEEK:
        return np.zeros(rates.size, dtype=bool)
    weeks = rates.size // HOURS_PER_WEEK + 1
    padded = np.full(weeks * HOURS_PER_WEEK, np.nan)
    padded[: rates.size] = rates
    by_week = padded.reshape(-1, HOURS_PER_WEEK)
    # The median over weeks is what the hour usually has, also where one week was an outage.
    usual_week = np.nanmedian(by_week, axis=0)
    usual = np.tile(usual_week, len(by_week))[: rates.size]
    usual_requests = usual * SECONDS_PER_HOUR
    is_silent = (rates == 0.0) & (usual_requests >= MIN_USUAL_REQUESTS)
    is_adjacent = (
        np.convolve(is_silent, [1, 1, 1], "same") > 0
    )  # each silent hour and its neighbours
    return np.asarray(is_adjacent & (rates < 0.5 * usual))


def fit_hourly_shape(rates: Floats, first_hour_of_week: int | None) -> ShapeFit | None:
    """Fit daily and weekly profiles to hourly rates, shape (hours,), NaN where unknown; None for less than two days.

    ``first_hour_of_week`` is 0 for Monday 00:00 UTC, None where the dates are unknown.
    """
    if rates.size < HOURS_FOR_DAILY_SHAPE or not np.any(rates > 0.0):
        return None
    start_hour = first_hour_of_week or 0
    hour = (start_hour + np.arange(rates.size)) % HOURS_PER_WEEK
    noise = None
    is_week = rates.size >= HOURS_PER_WEEK
    if is_week:
        profile = _relative(rates, hour, HOURS_PER_WEEK)
        noise = _residual_noise(rates, profile[hour])
    has_week = is_week and first_hour_of_week is not None
    if not has_week:  # the mean day alone, from the first row
        hour_of_day = np.arange(rates.size) % 24
        profile = _relative(rates, hour_of_day, 24)
    return ShapeFit(
        peak_to_mean=float(profile.max()),
        weekend_fraction=float(profile[120:].mean() / profile[:120].mean()) if has_week else None,
        weekly_profile=tuple(profile.tolist()) if has_week else None,
        noise=noise,
    )


def _relative(numbers: Floats, group: Ints, groups: int) -> Floats:
    """Return the mean of each group over the mean of all groups, shape (groups,); a group never seen has the mean."""
    is_known = np.isfinite(numbers)
    counts = np.bincount(group[is_known], minlength=groups)
    sums = np.bincount(group[is_known], weights=numbers[is_known], minlength=groups)
    means = sums / np.maximum(counts, 1)
    # An hour of the week that was never seen is taken as a usual one.
    means[counts == 0] = means[counts > 0].mean()
    return np.asarray(means / means.mean())


def _residual_noise(rates: Floats, expected: Floats) -> tuple[float, float] | None:
    """Return σ and correlation hours of ln(rate ÷ profile), or None for less than two weeks.

    The profile is fitted from the same w weeks, which takes 1/w of the variance away: it is given back.
    """
    usable = (rates > 0.0) & (expected > 0.0)  # NaN is not above zero
    # Hours that are always empty are no gap: only those that usually have traffic count.
    usual_fraction = (expected > 0.0).mean()
    weeks = float(usable.sum() / usual_fraction / HOURS_PER_WEEK)
    if rates.size < 2 * HOURS_PER_WEEK or weeks < MIN_WEEKS:
        return None
    residual = np.zeros(rates.size)
    # Unknown hours stay at zero, the mean: they neither add nor remove correlation.
    residual[usable] = np.log(rates[usable] / expected[usable])
    residual[usable] -= residual[usable].mean()
    seen_variance = float(np.mean(residual[usable] ** 2))
    variance = seen_variance * weeks / (weeks - 1.0)
    lagged = _correlation(residual[1:], residual[:-1])
    # A residual that falls by a factor r each hour is down to 1/e after −1 / ln r of them.
    correlation_h = 0.0
    if 0.0 < lagged < 1.0:
        correlation_h = float(-1.0 / np.log(lagged))
    return float(np.sqrt(variance)), correlation_h


def _correlation(x: Floats, y: Floats) -> float:
    """Return Pearson's correlation, 0 where one of the two is constant."""
    x = x - x.mean()
    y = y - y.mean()
    square = (x @ x) * (y @ y)
    scale = float(np.sqrt(square))
    if scale > 0.0:
        return float(x @ y) / scale
    return 0.0


SHOWN_QUANTILES = (0.5, 0.95, 0.99)
"""Those that a table has room for."""
GROWTH = "growth.per_year"
_ASSUMED_REQUESTS_PER_S = 80.0
_ASSUMED_GROWTH = 0.5


@record
class Figure:
    """One fitted figure, with its error or origin."""

    field: str
    """Dotted path inside the workload, or a name for what is only reported."""
    fitted: float | str | Mapping[float, float]
    """What goes into the scenario, quantiles by share."""
    remark: str
    """The fit's error; ``assumed: ...`` where no file shows the figure."""
    interval: tuple[float, float] | None = None
    """Between what the figure lies nine times in ten; None where that is not known."""

    @property
    def number(self) -> float:
        """The fitted value of a figure that is one number; 0 where it is none."""
        if isinstance(self.fitted, float | int):
            return self.fitted
        return 0.0

    def json(self) -> dict[str, Any]:
        """Return the figure as plain data."""
        plain: dict[str, Any] = {"value": self.fitted, "remark": self.remark}
        if self.interval is not None:
            plain["interval"] = list(self.interval)
        return plain


@record
class ServedModel:
    """The model of a workload."""

    figure: Figure
    """Its name, and where that is from."""
    longest_tokens: float
    """Longest prompt and reply that it accepts."""


@record
class TrafficOptions:
    """What is stated of the workloads, and how their files are to be read."""

    models: Mapping[str, str] = field(default_factory=dict)
    """Served model by workload; of all others under the empty name."""
    presets: Mapping[str, str] = field(default_factory=dict)
    """Preset by workload, as above."""
    timezone: str = "UTC"
    columns: str | None = None
    """Roles of a log's columns, as ``--columns`` takes them."""
    rate_column: str | None = None
    """Column of an hourly series; None: its only one."""
    time_unit: str = "auto"
    requests_per_s: Mapping[str, float] = field(default_factory=dict)
    """Rate in place of the fitted one, by workload as above."""
    growth_per_year: Mapping[str, float] = field(default_factory=dict)
    """Growth in place of the fitted one, by workload as above."""

    @staticmethod
    def of(stated: Mapping[str, _Stated], workload: str) -> _Stated | None:
        """Return what is stated for a workload, or for all of them; None where nothing is."""
        return stated.get(workload, stated.get(""))


@record
class Fitted:
    """A workload fitted to files; without any, what is stated and assumed."""

    name: str
    source: str
    """Names of the files; empty where there is none."""
    figures: Sequence[Figure]
    """In scenario order: model, preset, level, growth, and all others."""
    timezone: str = "UTC"
    shape: ShapeFit | None = None

    def yaml(self) -> str:
        """Return the workload as part of a scenario's ``workloads``, with errors and assumptions as comments."""
        tree: dict[str, Any] = {}
        for figure in self.figures:
            if figure.field == GROWTH:
                tree["growth"] = {"kind": "compound", "per_year": figure}
            else:
                path = tuple(figure.field.split("."))
                tree = with_value(tree, path, figure)
        profile = None
        if self.shape is not None:
            profile = self.shape.weekly_profile
        # A profile read off a log is in UTC.
        load_profile = tree.setdefault("load_profile", {})
        load_profile["timezone"] = "UTC" if profile else self.timezone
        origin = f"  # fitted to {_line(self.source)}" if self.source else ""
        lines = [f"  {self.name}:{origin}", *_branch_lines(tree, indent=4)]
        if profile is not None:
            # By hand, because a YAML writer would put each of the 168 factors on a line of its own.
            block = ["      weekly_profile:  # Monday 00:00 first, a day a line", "        ["]
            for start in range(0, HOURS_PER_WEEK, 24):
                day = profile[start : start + 24]
                factors = ", ".join(f"{factor:.3f}" for factor in day)
                block.append(f"          {factors},")
            position = lines.index("    load_profile:") + 1
            lines[position:position] = [*block, "        ]"]
        return "\n".join(lines) + "\n"

    def rows(self) -> list[tuple[str, str, str]]:
        """Return (figure, fitted, error or origin) as text, for a table."""
        rows = []
        for figure in self.figures:
            shown = SHOWN_QUANTILES if figure.field.endswith("quantiles") else ()
            text = _written(figure.fitted, shown)
            rows.append((figure.field, text, figure.remark))
        return rows

    def json(self) -> dict[str, Any]:
        """Return the fit as plain data."""
        plain = {figure.field: figure.json() for figure in self.figures}
        return {"source": self.source, "figures": plain}


@record
class _Preset:
    """A preset's figures, for what no file shows."""

    name: str
    defaults: Mapping[str, Any]

    def figure(
        self, path: str, key: str, reason: str, observed: tuple[float, str] | None = None
    ) -> Figure:
        """Return what was observed of a figure, else the preset's own, with the reason why nothing was."""
        assumed = (float(self.defaults[key]), f"assumed: preset {self.name}, {reason}")
        fitted, remark = observed or assumed
        return Figure(field=path, fitted=fitted, remark=remark)


@record
class _HourlyFit:
    """What hourly rates show: level, growth, season and shape."""

    hours: int
    level: float
    """Requests per second: the mean, or with growth the level at the end."""
    remark: str
    """Of the level."""
    short_error: float
    """Standard error of its logarithm where there is no trend."""
    trend: TrendFit | None
    season: Sequence[Figure]
    shape: ShapeFit | None

    def level_after(self, years: float) -> Mixture:
        """Return ln of the level some years after the series ends, without assumed growth."""
        if self.trend is not None:
            return self.trend.trend.level_after(years)
        return Mixture(
            weights=np.ones(1),
            means=np.array([np.log(max(self.level, 1e-12))]),
            sigmas=np.array([self.short_error]),
        )


def _fit_hours(hourly: HourlyRates) -> _HourlyFit:
    """Fit level, growth, season and shape to hourly rates; hours of an outage are left out."""
    is_silent = silent_hours(hourly.rates)
    rates = np.where(is_silent, np.nan, hourly.rates)
    hours = rates.size
    trend = fit_trend(rates, hourly.end_s)
    # The shape of a week is that of traffic without growth: a later week would count for more.
    level_rates = rates if trend is None else rates / trend.factors
    shape = None
    if hourly.shows_hours:
        shape = fit_hourly_shape(level_rates, hourly.first_hour_of_week)
    mean = float(np.nanmean(rates))
    remark = f"mean of {hours} hours of {hourly.column}"
    outage = "left out: an outage, or a gap in the records"
    remark += _hours_named(is_silent, hourly, "without a request", outage)
    remark += _hours_named(np.isnan(hourly.rates), hourly, "without a record", "left out")
    is_empty = (hourly.rates == 0.0) & ~is_silent
    remark += _hours_named(is_empty, hourly, "without a request", "counted")
    if trend is None:
        # Neighbouring hours repeat one another: (1 + 2τ) of them count as one.
        sigma, correlation_h = (0.1, 12.0)
        if shape is not None and shape.noise is not None:
            sigma, correlation_h = shape.noise
        independent_hours = (1.0 + 2.0 * correlation_h) / hours
        error = short_error(sigma * float(np.sqrt(independent_hours)), hours / HOURS_PER_YEAR)
        return _HourlyFit(
            hours=hours,
            level=mean,
            remark=remark,
            short_error=error,
            trend=None,
            season=(),
            shape=shape,
        )
    season = list[Figure]()
    if trend.season is not None:
        path = "load_profile.season"
        amplitude, error, peak_day = trend.season
        season = [
            Figure(
                field=f"{path}.amplitude_fraction",
                fitted=min(amplitude, 1.0),
                remark=f"±{error:.2g} standard error over {hours // HOURS_PER_WEEK} weeks",
            ),
            Figure(field=f"{path}.peak_day", fitted=round(peak_day), remark="day of the year"),
        ]
    remark = f"level at the end, where the mean is {_number(mean)}; {remark}"
    return _HourlyFit(
        hours=hours,
        level=float(np.exp(trend.trend.level.mean)),
        remark=remark,
        short_error=0.0,
        trend=trend,
        season=season,
        shape=shape,
    )


def _growth_figure(fit: TrendFit, hours: int, end_s: float | None) -> Figure:
    """Return the growth with its interval, and the launches that are no part of it."""
    low, high = fit.trend.growth.interval()
    interval = (float(np.expm1(low)), float(np.expm1(high)))
    remark = f"{_between(interval)}, over {hours // HOURS_PER_WEEK} weeks"
    if fit.season is None:
        prior = season_prior()
        remark += f", too short to show the season: the interval includes a wave of {prior.low:.0%} to {prior.high:.0%}"
    for years, size in sorted(fit.trend.steps, reverse=True):
        place = f"{years * DAYS_PER_YEAR / 7.0:.0f} weeks before the end"
        if end_s is not None:
            moment_s = end_s - years * HOURS_PER_YEAR * SECONDS_PER_HOUR
            moment = datetime.datetime.fromtimestamp(moment_s, tz=datetime.UTC)
            place = f"about {moment:%Y-%m-%d}"
        remark += f"; a step of {np.expm1(size):+.0%} {place} counts as a launch, not as growth"
    return Figure(field=GROWTH, fitted=fit.per_year, remark=remark, interval=interval)


def _between(interval: tuple[float, float]) -> str:
    """Return an interval in words."""
    low, high = (_number(bound) for bound in interval)
    return f"{SURE:.0%} between {low} and {high}"


def fitted_workload(
    name: str,
    traffic: ObservedTraffic,
    stated: TrafficOptions,
    model: ServedModel,
    start: datetime.date,
) -> Fitted:
    """Return a workload with all that its files show; the rest is stated, or the preset's and marked as assumed.

    A level at the end of a series grows until the scenario's first day, where growth is fitted or stated.
    """
    preset_name = stated.of(stated.presets, name) or "chat"
    preset = _Preset(name=preset_name, defaults=preset_figures(preset_name))
    hourly = None
    if traffic.rates is not None:
        hourly = _fit_hours(traffic.rates)
    is_given = stated.of(stated.presets, name) is not None
    remark = "as given" if is_given else "assumed: it fills in what no file shows"
    figures = [
        model.figure,
        Figure(field="preset", fitted=preset_name, remark=remark),
        *_level_and_growth(
            traffic,
            hourly,
            stated.of(stated.requests_per_s, name),
            stated.of(stated.growth_per_year, name),
            start,
        ),
        *_profile_figures(traffic, hourly, preset),
        *_length_figures(traffic, preset, model),
    ]
    figures.append(_found_again(traffic, preset))
    key = "burst_index_of_dispersion"
    reason = "no file has single requests of ten minutes"
    figures.append(preset.figure(key, key, reason, traffic.bursts))
    key = "burst_index_requests_per_s"
    figures.append(preset.figure(key, key, reason, traffic.burst_rate))
    for objective in ("ttft_s", "tpot_s"):
        reason = "no file contains your SLO"
        latencies = traffic.latencies.get(objective)
        if latencies is not None:
            objective_s = float(preset.defaults[objective])
            share = latencies.share_within(objective_s)
            reason += f"; {share:.2%} of those measured lie within it"
        figures.append(preset.figure(f"slo.{objective}", objective, reason))
    return Fitted(
        name=name,
        source=traffic.source,
        figures=figures,
        timezone=stated.timezone,
        shape=None if hourly is None else hourly.shape,
    )


def _found_again(traffic: ObservedTraffic, preset: _Preset) -> Figure:
    """Return what a prefix cache may find: by time since the last use where it is seen, else the share counted."""
    key = "prefix_cache_hit_fraction"
    hit_fraction = traffic.prefix_cache_hit_fraction
    if traffic.reuse is not None:
        remark = "share of prompt tokens by seconds since their last use, from arrival to arrival"
        if hit_fraction is not None:
            remark += f"; {hit_fraction:.1%} were cached"
        return Figure(field="reuse.points", fitted=traffic.reuse, remark=remark)
    cached = None
    if hit_fraction is not None:
        cached = (min(hit_fraction, 0.999), "cached ÷ all prompt tokens, counted")
    return preset.figure(key, key, "no cached tokens, sessions or block hashes seen", cached)


def _level_and_growth(
    traffic: ObservedTraffic,
    hourly: _HourlyFit | None,
    stated_rate: float | None,
    stated_growth: float | None,
    start: datetime.date,
) -> list[Figure]:
    """Return the rate on the scenario's first day, and its growth; what is stated goes before what is fitted."""
    assumed = (_ASSUMED_REQUESTS_PER_S, "assumed: mean on the first day; state yours")
    level, remark = traffic.level or assumed
    growth = None
    end_s = None
    if traffic.rates is not None:
        end_s = traffic.rates.end_s
    if hourly is not None and hourly.trend is not None:
        growth = _growth_figure(hourly.trend, hourly.hours, end_s)
    if stated_growth is not None:
        growth = Figure(field=GROWTH, fitted=stated_growth, remark="as given")
    interval = None
    if hourly is not None:
        years = 0.0
        if growth is not None and end_s is not None:
            midnight = datetime.time(tzinfo=datetime.UTC)
            begin = datetime.datetime.combine(start, midnight)
            years = (begin.timestamp() - end_s) / SECONDS_PER_HOUR / HOURS_PER_YEAR
        known_years = years if stated_growth is None else 0.0
        bounds = hourly.level_after(known_years).interval()
        stated_factor = 1.0
        level = hourly.level
        if growth is not None:
            level *= (1.0 + growth.number) ** years
        if stated_growth is not None:
            stated_factor = (1.0 + stated_growth) ** years
        interval = (
            float(np.exp(bounds[0])) * stated_factor,
            float(np.exp(bounds[1])) * stated_factor,
        )
        remark = f"{_between(interval)}, season included; {hourly.remark}"
        if years:
            months = years * MONTHS_PER_YEAR
            remark = f"on the first day, {months:.1f} months after the series; {remark}"
    if stated_rate is not None:
        level = stated_rate
        remark = "mean on the first day, as given"
        interval = None
    if growth is None:
        assumption = "assumed: growth does not show in less than half a year; state yours"
        growth = Figure(field=GROWTH, fitted=_ASSUMED_GROWTH, remark=assumption)
    return [
        Figure(field="requests_per_s", fitted=level, remark=remark, interval=interval),
        growth,
    ]


def _profile_figures(
    traffic: ObservedTraffic, hourly: _HourlyFit | None, preset: _Preset
) -> list[Figure]:
    """Return the peak of the week, its weekend, the season, and the noise about all of them."""
    reason = f"not visible in {traffic.source}" if traffic.source else "no file of traffic"
    if hourly is not None:
        reason = f"only {hourly.hours} h"
        if traffic.rates is not None and not traffic.rates.shows_hours:
            reason = "daily counts do not show hours"
    weekend_reason = reason
    shape = None if hourly is None else hourly.shape
    peak = weekend = sigma = correlation = None
    noise = None if shape is None else shape.noise
    if hourly is not None and shape is not None:
        peak_to_mean = shape.peak_to_mean
        if shape.weekend_fraction is not None:
            remark = "busiest hour of the week ÷ mean"
            if noise is not None:
                weeks = hourly.hours / HOURS_PER_WEEK
                spread = noise[0] / np.sqrt(weeks)
                remark += f"; ±{spread:.1%} standard error"
            peak = peak_to_mean, remark
            weekend = shape.weekend_fraction, "weekend hour ÷ weekday hour"
        else:
            # A mean day's peak is raised to the week's by the weekday level that the preset implies.
            usual = float(preset.defaults["weekend_fraction"])
            weekend_reason = "the series is shorter than a week or has no dates"
            weekdays_and_weekend = 5.0 + 2.0 * usual
            factor = max(1.0, usual) * 7.0 / weekdays_and_weekend
            remark = f"mean day's peak {peak_to_mean:.4g} × {factor:.4g}, the busier days' level"
            peak = peak_to_mean * factor, remark
    if noise is not None:
        sigma = min(noise[0], 2.0), "ln(hour ÷ mean week)"
        # Less than a quarter of an hour does not show in hours.
        correlation_h = min(max(noise[1], 0.25), 1000.0)
        correlation = correlation_h, "from the correlation of neighbouring hours"
    return [
        preset.figure("load_profile.peak_to_mean", "peak_to_mean", reason, peak),
        preset.figure("load_profile.weekend_fraction", "weekend_fraction", weekend_reason, weekend),
        *(() if hourly is None else hourly.season),
        preset.figure("noise.sigma", "noise_sigma", "needs two weeks", sigma),
        preset.figure("noise.correlation_h", "noise_correlation_h", "needs two weeks", correlation),
    ]


def _length_figures(
    traffic: ObservedTraffic, preset: _Preset, model: ServedModel
) -> Iterator[Figure]:
    """Yield the quantiles or the mean of lengths that a file shows, else the preset's mean and 95th percentile."""
    for side in ("input", "output"):
        lengths = traffic.lengths.get(side)
        if lengths is not None:
            path = f"lengths.{side}.quantiles"
            clipped = lengths.within(traffic.source, side, model)
            yield Figure(field=path, fitted=clipped.quantiles, remark=clipped.remark)
            continue
        if side in traffic.mean_tokens:
            mean, half = traffic.mean_tokens[side]
            interval = mean * (1.0 - half), mean * (1.0 + half)
            remark = f"tokens ÷ requests; {_between(interval)}"
            yield Figure(
                field=f"lengths.{side}.mean", fitted=mean, remark=remark, interval=interval
            )
            usual_mean = float(preset.defaults[f"{side}_mean_tokens"])
            spread = float(preset.defaults[f"{side}_p95_tokens"]) / usual_mean
            remark = f"assumed: {spread:.3g} times the mean, as in preset {preset.name}"
            p95 = min(mean * spread, model.longest_tokens)
            yield Figure(field=f"lengths.{side}.p95", fitted=p95, remark=remark)
            continue
        for statistic in ("mean", "p95"):
            path = f"lengths.{side}.{statistic}"
            key = f"{side}_{statistic}_tokens"
            yield preset.figure(path, key, "no file shows lengths")


def _hours_named(is_named: Bools, hourly: HourlyRates, kind: str, treatment: str) -> str:
    """Return how many hours there are of a kind, where the first stretch of them is, and how they are treated."""
    count = int(is_named.sum())
    if not count:
        return ""
    start = int(np.argmax(is_named))
    # The appended hour ends a stretch that lasts to the end of the series.
    rest = np.append(is_named[start:], False)
    stretch = int(np.argmin(rest))
    begin = f"hour {start}"
    if hourly.end_s is not None:
        hours_to_end = is_named.size - start
        begin_s = hourly.end_s - hours_to_end * SECONDS_PER_HOUR
        begin_time = datetime.datetime.fromtimestamp(begin_s, tz=datetime.UTC)
        begin = f"{begin_time:%Y-%m-%d %H:%M} UTC"
    return f"; {count} hours {kind} ({stretch} from {begin} on) {treatment}"


def _branch_lines(tree: Mapping[str, Any], indent: int) -> list[str]:
    lines = []
    for key, node in tree.items():
        pad = " " * indent
        if isinstance(node, dict):
            lines += [f"{pad}{key}:", *_branch_lines(node, indent + 2)]
        elif isinstance(node, Figure):
            lines.append(f"{pad}{key}: {_written(node.fitted)}  # {_line(node.remark)}")
        else:
            lines.append(f"{pad}{key}: {node}")
    return lines


def _line(text: str) -> str:
    """Return what a file or its columns are called as one line of a comment."""
    return printable(" ".join(text.split()))


def _written(fitted: float | str | Mapping[float, float], shares: Collection[float] = ()) -> str:
    """Return a figure as YAML, with the quantiles at some shares, or all of them."""
    if isinstance(fitted, str):
        return fitted
    if not isinstance(fitted, Mapping):
        return _number(fitted)
    quantiles = fitted
    if shares:
        distribution = LengthDistribution.from_quantiles(fitted)
        quantiles = {share: distribution.quantile(share) for share in shares}
    cells = [f"{share:g}: {_number(tokens)}" for share, tokens in quantiles.items()]
    return "{" + ", ".join(cells) + "}"


def _number(number: float) -> str:
    """Return a number as text to four significant digits, whole where large, never in exponent form."""
    if abs(number) >= 1000.0:
        return f"{number:.0f}"
    text = f"{number:.4g}"
    if "e" in text:
        return f"{number:.10f}".rstrip("0")
    return text
