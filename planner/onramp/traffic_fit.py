"""A workload fitted to what files show of it, whatever their format: level, growth, day and week, lengths, latencies.

Every reader makes an ``ObservedTraffic`` of its file. Each figure is fitted with its error, which stands beside it;
what no file shows is assumed, and says so.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.catalog.load import workload_preset as class_figures
from planner.demand.shape import HOURS_PER_WEEK
from planner.demand.tokens import LengthDistribution, RequestLog
from planner.errors import ScenarioError, printable
from planner.onramp.traffic_log import HourlyRates
from planner.units import DAYS_PER_YEAR, HOURS_PER_YEAR, MONTHS_PER_YEAR, SECONDS_PER_HOUR
from planner.yaml_io import replaced

MINUTES_FOR_DISPERSION = 10
"""Whole minutes a log needs before counts per minute say anything of their variance."""
HOURS_FOR_DAILY_SHAPE = 48
"""Hours needed to see a daily peak twice."""
WEEKS_FOR_GROWTH = 26
WEEKS_FOR_SEASON = 104
"""Whole weeks needed before a trend may be carried into the years to come, and to tell it from a yearly wave."""
LEAST_USUAL_REQUESTS = 20.0
"""Requests that an hour has in other weeks, from which on none at all is no chance: e^-20 of a Poisson process."""
LEAST_WEEKS = 1.5
"""Weeks with requests, of two and more, that noise about the week needs."""
EPOCH_HOUR_OF_WEEK = 72  # 1 January 1970 00:00 UTC was a Thursday


FITTED_QUANTILES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)
"""Shares of requests whose lengths every fit takes from the log."""
MEAN_ERROR_FRACTION = 0.005
LARGEST_GAP = 0.03
"""More quantiles are taken until the mean, which decides load, and the cumulative fractions come out this close."""
_MOST_QUANTILES = 40
_MOST_POINTS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthFit:
    """Length quantiles of a log or a histogram, and the errors of the distribution through them."""

    quantiles: dict[float, float]
    """Tokens by share of requests not longer."""
    mean_tokens: float
    """The mean of what was counted."""
    largest_distribution_error: float | None
    """The largest gap between the two cumulative fractions (Kolmogorov and Smirnov); None of a histogram, whose bounds
    are met and between which nothing is known."""

    @property
    def distribution(self) -> LengthDistribution:
        """The fitted length distribution."""
        return LengthDistribution.from_quantiles(self.quantiles)

    @property
    def mean_error_fraction(self) -> float:
        """Return fitted ÷ counted mean − 1."""
        return self.distribution.mean_tokens / self.mean_tokens - 1.0

    @property
    def remark(self) -> str:
        """The fit's error in words."""
        errors = f"mean {self.mean_tokens:,.0f} counted, {self.mean_error_fraction:+.1%} in the fit"
        gap = self.largest_distribution_error
        return f"{errors}; " + (
            "from a histogram" if gap is None else f"largest gap in the distribution {gap:.2f}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Observations counted up to bounds, as Prometheus has them."""

    bounds: Floats
    """Rising; the last is infinite."""
    counts: Floats
    """Observations not above each bound."""
    total: float
    """Sum of all observations; 0 where it is not known."""

    def share_within(self, bound: float) -> float:
        """Return the share of observations not above a bound, a bucket's taken as evenly spread."""
        shares = self.counts / self.counts[-1]
        return float(np.interp(bound, [0.0, *self.bounds[:-1]], [0.0, *shares[:-1]]))

    def lengths(self) -> LengthFit | None:
        """Fit lengths through the bounds; None where fewer than two lie within the distribution.

        The bound up to which nothing was seen is the shortest length, that by which everything was the longest.
        """
        quantiles: dict[float, float] = {}
        for share, bound in zip(
            (self.counts / self.counts[-1]).round(5).tolist(), self.bounds.tolist(), strict=True
        ):
            if share == 0.0:
                quantiles[0.0] = bound
            elif np.isfinite(
                bound
            ):  # beyond a bucket that is empty, lengths go on at its upper bound
                known = share in quantiles and share < 1.0
                quantiles.setdefault(round(share + 1e-5, 5) if known else share, bound)
        if len(quantiles.keys() - {0.0, 1.0}) < 2:
            return None
        mean = (
            float(self.total / self.counts[-1])
            or LengthDistribution.from_quantiles(quantiles).mean_tokens
        )
        return LengthFit(quantiles=quantiles, mean_tokens=mean, largest_distribution_error=None)


@dataclass(frozen=True, slots=True, kw_only=True)
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
    prefix_cache_hit_fraction: float | None = None
    bursts: tuple[float, str] | None = None
    """Index of dispersion with its error, and what the largest client sends."""
    latencies: Mapping[str, Histogram] = field(default_factory=dict)
    """Measured latencies by the objective that they belong to: ``ttft_s``, ``tpot_s``."""

    def beside(self, other: ObservedTraffic) -> ObservedTraffic:
        """Return what two files of one workload show: the longer series, and otherwise the first that shows it."""
        longest = max(self.rates, other.rates, key=lambda rates: rates.rates.size if rates else 0)
        shown = {name: getattr(self, name) for name in ObservedTraffic.__dataclass_fields__}
        seen = {
            name: shows
            for name, shows in shown.items()
            if shows is not None and shows not in ((), {})
        }
        return replace(
            other, **seen | {"rates": longest, "source": f"{self.source} and {other.source}"}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrendFit:
    """Compound growth, and from two years on a yearly wave, fitted to the weeks of a series."""

    per_year: float
    """Growth of a year, as a share."""
    per_year_error: float
    """Its standard error, weeks taken as independent."""
    season: tuple[float, float, float] | None
    """Amplitude of the wave, its standard error, and the day of the year of its peak; None for less than two years."""
    factors: Floats
    """Growth and season of each hour ÷ the level at the end, shape (hours,)."""


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
    level = rates = bursts = None
    if log.one_clock:
        dispersion = index_of_dispersion(log.times_s)
        error = float(np.sqrt((dispersion[0] if dispersion else 1.0) / requests))
        if dispersion is not None:
            bursts = max(dispersion[0], 1.0), f"±{dispersion[1]:.2g} standard error; Poisson is 1"
            if log.clients is not None:
                sent = np.bincount(log.clients)
                share = f"{sent.max() / requests:.1%} of one of {np.count_nonzero(sent):,} clients: see tenants"
                bursts = bursts[0], f"{bursts[1]}; {share}"
        level = (requests - 1) / duration_s, level_remark(requests, error, duration_s)
        first_hour = int(
            np.ceil(log.times_s[0] / SECONDS_PER_HOUR)
        )  # whole hours alone have a shape
        hour = (log.times_s // SECONDS_PER_HOUR).astype(np.int64) - first_hour
        counts = np.bincount(np.maximum(hour, -1) + 1)[1:-1]
        if counts.size >= HOURS_FOR_DAILY_SHAPE:
            rates = HourlyRates(column="the log", rates=counts / SECONDS_PER_HOUR)
            if log.has_date:
                week_hour = (first_hour + EPOCH_HOUR_OF_WEEK) % HOURS_PER_WEEK
                end_h = first_hour + counts.size
                rates = replace(rates, first_hour_of_week=week_hour, end_s=end_h * SECONDS_PER_HOUR)
    return ObservedTraffic(
        source=source,
        model=model,
        level=level,
        rates=rates,
        lengths={
            side: fit_lengths(getattr(log, f"{side}_tokens"), side) for side in ("input", "output")
        },
        prefix_cache_hit_fraction=log.prefix_cache_hit_fraction,
        bursts=bursts,
    )


def level_remark(requests: float, error_fraction: float, duration_s: float) -> str:
    """Return how sure the rate of a stretch of time is, in words."""
    said = f"±{error_fraction:.1%} standard error, {requests:,.0f} requests in {duration_s / SECONDS_PER_HOUR:.3g} h"
    return f"{said}: the level of those hours, not of a week"


def fit_lengths(tokens: Floats, which: str = "request") -> LengthFit:
    """Fit a distribution through a log's length quantiles; empty requests count as one token."""
    if not np.any(tokens > 0.0):
        raise ScenarioError(f"all {which} lengths are zero, so no distribution can be fitted")
    lengths = np.sort(np.maximum(tokens, 1.0))
    points = min(lengths.size, _MOST_POINTS)
    shares = (np.arange(points) + 0.5) / points
    scores = np.array([NormalDist().inv_cdf(share) for share in shares.tolist()])
    logged = np.quantile(lengths, shares)
    taken = list(FITTED_QUANTILES)
    while True:
        quantiles = dict(zip(taken, np.quantile(lengths, taken).tolist(), strict=True))
        distribution = LengthDistribution.from_quantiles(quantiles)
        fitted = distribution.at_scores(scores)
        # Lengths are whole tokens and many alike: a share is met between those below and those up to its length.
        below = np.searchsorted(lengths, np.floor(fitted), side="left") / lengths.size
        up_to = np.searchsorted(lengths, np.ceil(fitted), side="right") / lengths.size
        gaps = np.maximum(np.maximum(below - shares, shares - up_to), 0.0)
        is_mean_met = abs(distribution.mean_tokens / lengths.mean() - 1.0) < MEAN_ERROR_FRACTION
        if (is_mean_met and gaps.max() < LARGEST_GAP) or len(taken) >= _MOST_QUANTILES:
            break
        # Where the log departs most from its line, as where prompts pile up at a template's length, the line is parted.
        cell = np.searchsorted(taken, shares)
        place = (
            cell[np.argmax(gaps)]
            if is_mean_met
            else np.argmax(np.abs(np.bincount(cell, fitted - logged)))
        )
        taken.insert(
            int(place), round(0.5 * ((taken[place - 1] if place else 0.0) + taken[place]), 6)
        )
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
    counts = np.bincount(((times_s - times_s[0]) // 60.0).astype(np.int64))[:-1].astype(np.float64)
    if counts.size < MINUTES_FOR_DISPERSION or counts.mean() == 0.0:
        return None
    minutes = 60 if counts.size >= 120 else counts.size
    parts = counts[: counts.size // minutes * minutes].reshape(-1, minutes)
    index = float(parts.var(axis=1, ddof=1).mean()) / float(parts.mean())
    return index, index * float(np.sqrt(2.0 / (len(parts) * (minutes - 1))))


def fit_trend(rates: Floats, end_s: float | None = None) -> TrendFit | None:
    """Fit growth and season to hourly rates, shape (hours,), NaN where unknown; None below half a year.

    By least squares over weeks, t in years, ln(mean of week) = c + b t + A cos 2π(t − p), without the wave below two
    years or without dates. Growth is e^b − 1, its standard error e^b times that of b. The wave 1 + a cos x has
    A = 2 (1 − √(1 − a²)) / a as the first harmonic of its logarithm, so a = A / (1 + A²/4). None, too, with a week of
    no traffic.
    """
    weeks = rates.size // HOURS_PER_WEEK
    if weeks < WEEKS_FOR_GROWTH:
        return None
    by_week = rates[rates.size - weeks * HOURS_PER_WEEK :].reshape(weeks, HOURS_PER_WEEK)
    is_seen = np.isfinite(by_week).mean(axis=1) > 0.5
    means = np.nanmean(by_week[is_seen], axis=1)
    if is_seen.sum() < WEEKS_FOR_GROWTH or means.min() <= 0.0:
        return None
    years = (np.arange(weeks)[is_seen] - weeks + 0.5) * HOURS_PER_WEEK / HOURS_PER_YEAR
    has_season = end_s is not None and weeks >= WEEKS_FOR_SEASON
    begun = (
        datetime.datetime.fromtimestamp(end_s or 0.0, tz=datetime.UTC).timetuple().tm_yday
        / DAYS_PER_YEAR
    )
    turn = 2.0 * np.pi * (years + begun)
    columns = [np.ones(years.size), years, *((np.cos(turn), np.sin(turn)) if has_season else ())]
    design = np.stack(columns, axis=1)
    fitted, *_ = np.linalg.lstsq(design, np.log(means))
    residual = np.log(means) - design @ fitted
    variance = residual @ residual / (years.size - fitted.size)
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * variance)
    hours_years = (np.arange(rates.size) - rates.size + 0.5) / HOURS_PER_YEAR
    factors = np.exp(fitted[1] * hours_years)
    season = None
    if has_season:
        wave = float(np.hypot(*fitted[2:]))
        peak = float(np.arctan2(fitted[3], fitted[2]) / (2.0 * np.pi)) % 1.0
        season = (
            wave / (1.0 + wave**2 / 4.0),
            float(np.hypot(*errors[2:]) / np.sqrt(2.0)),
            max(peak * DAYS_PER_YEAR, 1.0),
        )
        factors *= 1.0 + season[0] * np.cos(2.0 * np.pi * (hours_years + begun - peak))
    return TrendFit(
        per_year=float(np.expm1(fitted[1])),
        per_year_error=float(np.exp(fitted[1]) * errors[1]),
        season=season,
        factors=factors,
    )


def silent_hours(rates: Floats) -> Bools:
    """Return which hours had no request although that hour of other weeks has: an outage, or a gap in the records.

    An hour beside them with less than half its usual traffic was silent in part, and counts as one. Below two weeks
    nothing is usual. Hours that usually have few requests may be empty by chance.
    """
    if rates.size < 2 * HOURS_PER_WEEK:
        return np.zeros(rates.size, dtype=bool)
    padded = np.full((rates.size // HOURS_PER_WEEK + 1) * HOURS_PER_WEEK, np.nan)
    padded[: rates.size] = rates
    usual = np.tile(
        np.nanmedian(padded.reshape(-1, HOURS_PER_WEEK), axis=0), padded.size // HOURS_PER_WEEK
    )
    is_silent = (rates == 0.0) & (usual[: rates.size] * SECONDS_PER_HOUR >= LEAST_USUAL_REQUESTS)
    beside = np.convolve(is_silent, [1, 1, 1], "same") > 0
    return np.asarray(beside & (rates < 0.5 * usual[: rates.size]))


def fit_hourly_shape(rates: Floats, first_hour_of_week: int | None) -> ShapeFit | None:
    """Fit daily and weekly profiles to hourly rates, shape (hours,), NaN where unknown; None for less than two days.

    ``first_hour_of_week`` is 0 for Monday 00:00 UTC, None where the dates are unknown.
    """
    if rates.size < HOURS_FOR_DAILY_SHAPE or not np.any(rates > 0.0):
        return None
    hour = ((first_hour_of_week or 0) + np.arange(rates.size)) % HOURS_PER_WEEK
    noise = None
    if is_week := rates.size >= HOURS_PER_WEEK:
        profile = _relative(rates, hour, HOURS_PER_WEEK)
        noise = _residual_noise(rates, profile[hour])
    if not (
        has_week := is_week and first_hour_of_week is not None
    ):  # the mean day alone, from the first row
        profile = _relative(rates, np.arange(rates.size) % 24, 24)
    return ShapeFit(
        peak_to_mean=float(profile.max()),
        weekend_fraction=float(profile[120:].mean() / profile[:120].mean()) if has_week else None,
        weekly_profile=tuple(profile.tolist()) if has_week else None,
        noise=noise,
    )


def _relative(numbers: Floats, group: Ints, groups: int) -> Floats:
    """Return the mean of each group over the mean of all groups, shape (groups,); a group never seen has the mean."""
    seen = np.isfinite(numbers)
    counts = np.bincount(group[seen], minlength=groups)
    means = np.bincount(group[seen], weights=numbers[seen], minlength=groups) / np.maximum(
        counts, 1
    )
    means[counts == 0] = means[counts > 0].mean()
    return np.asarray(means / means.mean())


def _residual_noise(rates: Floats, expected: Floats) -> tuple[float, float] | None:
    """Return σ and correlation hours of ln(rate ÷ profile), or None for less than two weeks.

    The profile is fitted from the same w weeks, which takes 1/w of the variance away: it is given back.
    """
    usable = (rates > 0.0) & (expected > 0.0)  # NaN is not above zero
    weeks = float(
        usable.sum() / (expected > 0.0).mean() / HOURS_PER_WEEK
    )  # hours that are always empty are no gap
    if rates.size < 2 * HOURS_PER_WEEK or weeks < LEAST_WEEKS:
        return None
    residual = np.zeros(rates.size)
    residual[usable] = np.log(rates[usable] / expected[usable])
    residual[usable] -= residual[usable].mean()
    variance = float(np.mean(residual[usable] ** 2)) * weeks / (weeks - 1.0)
    lagged = _correlation(residual[1:], residual[:-1])
    return float(np.sqrt(variance)), float(-1.0 / np.log(lagged)) if 0.0 < lagged < 1.0 else 0.0


def _correlation(first: Floats, second: Floats) -> float:
    """Return Pearson's correlation, 0 where one of the two is constant."""
    first = first - first.mean()
    second = second - second.mean()
    scale = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / scale if scale > 0.0 else 0.0


SHOWN_QUANTILES = (0.5, 0.95, 0.99)
"""Those that a table has room for."""
GROWTH = "growth.per_year"
_ASSUMED_REQUESTS_PER_S = 80.0
_ASSUMED_GROWTH = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One fitted figure, with its error or origin."""

    field: str
    """Dotted path inside the workload, or a name for what is only reported."""
    fitted: float | str | Mapping[float, float]
    """What goes into the scenario, quantiles by share."""
    remark: str
    """The fit's error; ``assumed: ...`` where no file shows the figure."""

    @property
    def number(self) -> float:
        """The fitted value of a figure that is one number; 0 where it is none."""
        return self.fitted if isinstance(self.fitted, float | int) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """What is stated of the workloads, and how their files are to be read."""

    model: str | None = None
    workload_preset: str | None = None
    timezone: str = "UTC"
    columns: str | None = None
    """Roles of a log's columns, as ``--columns`` takes them."""
    rate_column: str | None = None
    """Column of an hourly series; None: its only one."""
    time_unit: str = "auto"
    requests_per_s: float | None = None
    """Rate in place of the fitted one."""
    growth_per_year: float | None = None
    """Growth in place of the fitted one."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
                tree = replaced(tree, tuple(figure.field.split(".")), figure)
        profile = self.shape.weekly_profile if self.shape is not None else None
        # A profile read off a log is in UTC.
        tree.setdefault("load_profile", {})["timezone"] = "UTC" if profile else self.timezone
        origin = f"  # fitted to {_line(self.source)}" if self.source else ""
        lines = [f"  {self.name}:{origin}", *_branch_lines(tree, indent=4)]
        if profile is not None:
            at = lines.index("    load_profile:") + 1
            days = (
                ", ".join(f"{factor:.3f}" for factor in profile[day * 24 : day * 24 + 24])
                for day in range(7)
            )
            head = "      weekly_profile:  # Monday 00:00 first, a day a line"
            lines[at:at] = [head, "        [", *(f"          {day}," for day in days), "        ]"]
        return "\n".join(lines) + "\n"

    def rows(self) -> list[tuple[str, str, str]]:
        """Return (figure, fitted, error or origin) as text, for a table."""
        return [(f.field, _written(f.fitted, SHOWN_QUANTILES), f.remark) for f in self.figures]

    def json(self) -> dict[str, Any]:
        """Return the fit as plain data."""
        plain = {f.field: {"value": f.fitted, "remark": f.remark} for f in self.figures}
        return {"source": self.source, "figures": plain}


def fitted_workload(
    name: str, traffic: ObservedTraffic, stated: TrafficOptions, model: Figure, start: datetime.date
) -> Fitted:
    """Return a workload with all that its files show; the rest is stated, or the preset's and marked as assumed.

    A level at the end of a series grows until the scenario's first day, where growth is fitted or stated.
    """
    preset = stated.workload_preset or "chat"
    defaults = class_figures(preset)

    def figure(path: str, key: str, why: str, seen: tuple[float, str] | None = None) -> Figure:
        """Return what was seen of a figure, else the preset's own, with why nothing was."""
        fitted, remark = seen or (float(defaults[key]), f"assumed: preset {preset}, {why}")
        return Figure(field=path, fitted=fitted, remark=remark)

    said = "as given" if stated.workload_preset else "assumed: for what no file shows"
    figures = [model, Figure(field="preset", fitted=preset, remark=said)]
    shape = None
    growth = None
    season = list[Figure]()
    level = traffic.level
    hourly = traffic.rates
    why = f"not visible in {traffic.source}" if traffic.source else "no file of traffic"
    if hourly is not None:
        silent = silent_hours(hourly.rates)
        rates = np.where(silent, np.nan, hourly.rates)
        hours = rates.size
        trend = fit_trend(rates, hourly.end_s)
        shape = fit_hourly_shape(
            rates / (1.0 if trend is None else trend.factors), hourly.first_hour_of_week
        )
        mean = float(np.nanmean(rates))
        remark = f"mean of {hours} hours of {hourly.column}"
        why = f"only {hours} h"
        if shape is not None and shape.noise is not None:
            error = shape.noise[0] * np.sqrt((1.0 + 2.0 * shape.noise[1]) / hours)
            remark = f"±{error:.1%} standard error, {remark}"
        remark += _hours_named(
            silent, hourly, "without a request", "left out: an outage, or a gap in the records"
        )
        remark += _hours_named(np.isnan(hourly.rates), hourly, "without a record", "left out")
        remark += _hours_named(
            (hourly.rates == 0.0) & ~silent, hourly, "without a request", "counted"
        )
        level = mean, remark
        if trend is not None:
            at_end = mean / float(trend.factors[np.isfinite(rates)].mean())
            level = at_end, f"level at the end, where the mean is {_number(mean)}; {remark}"
            weeks = hours // HOURS_PER_WEEK
            said = f"±{trend.per_year_error:.2g} standard error over {weeks} weeks"
            said += "" if trend.season else "; under two years cannot tell growth from season"
            growth = Figure(field=GROWTH, fitted=trend.per_year, remark=said)
            if trend.season is not None:
                amplitude, error, peak_day = trend.season
                path = "load_profile.season"
                said = f"±{error:.2g} standard error over {weeks} weeks"
                season = [
                    Figure(
                        field=f"{path}.amplitude_fraction", fitted=min(amplitude, 1.0), remark=said
                    )
                ]
                season.append(
                    Figure(
                        field=f"{path}.peak_day", fitted=round(peak_day), remark="day of the year"
                    )
                )
    level = level or (_ASSUMED_REQUESTS_PER_S, "assumed: mean on the first day; state yours")
    if stated.growth_per_year is not None:
        growth = Figure(field=GROWTH, fitted=stated.growth_per_year, remark="as given")
    if growth is not None and hourly is not None and hourly.end_s is not None:
        begin = datetime.datetime.combine(start, datetime.time(), tzinfo=datetime.UTC).timestamp()
        years = (begin - hourly.end_s) / SECONDS_PER_HOUR / HOURS_PER_YEAR
        remark = (
            f"on the first day, {years * MONTHS_PER_YEAR:.1f} months after the series; {level[1]}"
        )
        level = level[0] * (1.0 + growth.number) ** years, remark
    level = (
        level
        if stated.requests_per_s is None
        else (stated.requests_per_s, "mean on the first day, as given")
    )
    assumed = "assumed: growth does not show in less than half a year; state yours"
    growth = growth or Figure(field=GROWTH, fitted=_ASSUMED_GROWTH, remark=assumed)
    figures += [Figure(field="requests_per_s", fitted=level[0], remark=level[1]), growth]

    peak = weekend = sigma = memory = None
    why_no_week = why
    if shape is not None and shape.weekend_fraction is not None:
        spread = 0.0 if shape.noise is None else shape.noise[0] / np.sqrt(hours / HOURS_PER_WEEK)
        error = f"; ±{spread:.1%} standard error" if shape.noise is not None else ""
        peak = shape.peak_to_mean, f"busiest hour of the week ÷ mean{error}"
        weekend = shape.weekend_fraction, "weekend hour ÷ weekday hour"
    elif shape is not None:
        # A mean day's peak is raised to the week's by the weekday level that the class implies.
        usual = float(defaults["weekend_fraction"])
        why_no_week = "less than a week, or no dates"
        raised = max(1.0, usual) * 7.0 / (5.0 + 2.0 * usual)
        remark = f"mean day's peak {shape.peak_to_mean:.4g} × {raised:.4g}, the busier days' level"
        peak = shape.peak_to_mean * raised, remark
    if shape is not None and shape.noise is not None:
        sigma = min(shape.noise[0], 2.0), "ln(hour ÷ mean week)"
        memory = shape.noise[1], "from the correlation of neighbouring hours"
    figures += [
        figure("load_profile.peak_to_mean", "peak_to_mean", why, peak),
        figure("load_profile.weekend_fraction", "weekend_fraction", why_no_week, weekend),
        *season,
        figure("noise.sigma", "noise_sigma", "needs two weeks", sigma),
        figure("noise.correlation_h", "noise_correlation_h", "needs two weeks", memory),
    ]
    for side in ("input", "output"):
        if (
            lengths := traffic.lengths.get(side)
        ) is not None:  # without any mean or p95 of the preset
            path = f"lengths.{side}.quantiles"
            figures.append(Figure(field=path, fitted=lengths.quantiles, remark=lengths.remark))
            continue
        for what in ("mean", "p95"):
            figures.append(
                figure(f"lengths.{side}.{what}", f"{side}_{what}_tokens", "no file shows lengths")
            )
    hit = traffic.prefix_cache_hit_fraction
    cached = None if hit is None else (min(hit, 0.999), "cached ÷ all prompt tokens, counted")
    key = "prefix_cache_hit_fraction"
    burst = "burst_index_of_dispersion"
    figures.append(figure(key, key, "no cached tokens or block hashes seen", cached))
    figures.append(figure(burst, burst, "no ten minutes of requests one by one", traffic.bursts))
    for objective in ("ttft_s", "tpot_s"):
        why = "your SLO is in no file"
        if (measured := traffic.latencies.get(objective)) is not None:
            why += f"; {measured.share_within(float(defaults[objective])):.2%} of those measured lie within it"
        figures.append(figure(f"slo.{objective}", objective, why))
    return Fitted(
        name=name, source=traffic.source, figures=figures, timezone=stated.timezone, shape=shape
    )


def _hours_named(hours: Bools, rates: HourlyRates, what: str, treated: str) -> str:
    """Return how many hours there are of a kind, where the first stretch of them is, and how they are treated."""
    if not (count := int(hours.sum())):
        return ""
    first = int(np.argmax(hours))
    stretch = int(np.argmin(np.append(hours[first:], False)))
    begin = f"hour {first}"
    if rates.end_s is not None:
        begin_s = rates.end_s - (hours.size - first) * SECONDS_PER_HOUR
        begin = f"{datetime.datetime.fromtimestamp(begin_s, tz=datetime.UTC):%Y-%m-%d %H:%M} UTC"
    return f"; {count} hours {what} ({stretch} from {begin} on) {treated}"


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


def _written(fitted: float | str | Mapping[float, float], shown: Collection[float] = ()) -> str:
    """Return a figure as YAML, with the displayed quantiles or all."""
    if isinstance(fitted, Mapping):
        kept = {
            share: LengthDistribution.from_quantiles(fitted).quantile(share) for share in shown
        } or fitted
        return (
            "{" + ", ".join(f"{share:g}: {_number(tokens)}" for share, tokens in kept.items()) + "}"
        )
    return fitted if isinstance(fitted, str) else _number(fitted)


def _number(number: float) -> str:
    """Return a number as text to four significant digits, whole where large, never in exponent form."""
    if abs(number) >= 1000.0:
        return f"{number:.0f}"
    text = f"{number:.4g}"
    return f"{number:.10f}".rstrip("0") if "e" in text else text
