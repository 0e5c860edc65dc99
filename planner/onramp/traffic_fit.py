"""A workload fitted to files: the statistics of a log or a series, and the fit as a table, as JSON and as YAML.

Rate, lengths, bursts, shape and clients are fitted each with the fit's error, which stands beside every figure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from planner.arrays import Floats, Ints
from planner.catalog.load import workload_preset as class_figures
from planner.demand.shape import HOURS_PER_WEEK
from planner.demand.tokens import LengthDistribution, RequestLog
from planner.errors import Problem, ScenarioError
from planner.onramp.traffic_log import parse_columns, read_hourly_rates, read_request_log
from planner.units import HOURS_PER_YEAR
from planner.yaml_io import replaced

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
    """Length quantiles of a log, and the errors of the distribution through them."""

    quantiles: dict[float, float]
    """Tokens by share of requests not longer."""
    mean_tokens: float
    """The log's mean."""
    largest_distribution_error: float
    """The largest gap between the two cumulative fractions (Kolmogorov and Smirnov)."""

    @property
    def distribution(self) -> LengthDistribution:
        """The fitted length distribution."""
        return LengthDistribution.from_quantiles(self.quantiles)

    @property
    def mean_error_fraction(self) -> float:
        """Return fitted ÷ logged mean − 1."""
        return self.distribution.mean_tokens / self.mean_tokens - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeFit:
    """Daily and weekly profile fitted to hourly rates."""

    peak_to_mean: float
    """Busiest hour of the (mean) week or day ÷ mean."""
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
    """Compound growth fitted to the weeks of a series."""

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
    """One workload fitted to one log; None for figures that the log cannot show."""

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
    """Fit all figures that a log can show; the standard error of the rate includes burstiness: √(I / n)."""
    requests = log.times_s.size
    if requests < 2:
        raise ScenarioError(f"a fit needs at least two requests; the log has {requests}")
    duration_s = float(log.times_s[-1] - log.times_s[0])
    if duration_s <= 0.0:
        raise ScenarioError(f"all {requests} requests carry the same time, so no rate can be fitted")
    dispersion = dispersion_error = interarrival_cv = rate = rate_error = shape = None
    if log.one_clock:
        dispersion, dispersion_error = index_of_dispersion(log.times_s)
        gaps_s = np.diff(log.times_s)
        interarrival_cv = float(gaps_s.std() / gaps_s.mean())
        rate = (requests - 1) / duration_s
        rate_error = float(np.sqrt((dispersion or 1.0) / requests))
        first_hour = int(np.ceil(log.times_s[0] / 3600.0))  # whole hours alone have a shape
        counts = np.bincount(np.maximum((log.times_s // 3600.0).astype(np.int64) - first_hour, -1) + 1)[1:-1]
        week_hour = (first_hour + _EPOCH_HOUR_OF_WEEK) % HOURS_PER_WEEK if log.has_date else None
        shape = fit_hourly_shape(counts.astype(np.float64), week_hour)
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
        shape=shape,
        prefix_cache_hit_fraction=log.prefix_cache_hit_fraction,
        largest_client_fraction=largest,
        clients=clients,
    )


def fit_lengths(tokens: Floats, which: str = "request") -> LengthFit:
    """Fit a distribution through a log's length quantiles; empty requests count as one token."""
    if not np.any(tokens > 0.0):
        raise ScenarioError(f"all {which} lengths are zero, so no distribution can be fitted")
    lengths = np.sort(np.maximum(tokens, 1.0))
    points = min(lengths.size, _MOST_POINTS)
    shares = (np.arange(points) + 0.5) / points
    scores = np.array([NormalDist().inv_cdf(share) for share in shares.tolist()])
    logged, taken = np.quantile(lengths, shares), list(FITTED_QUANTILES)
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
        place = cell[np.argmax(gaps)] if is_mean_met else np.argmax(np.abs(np.bincount(cell, fitted - logged)))
        taken.insert(int(place), round(0.5 * ((taken[place - 1] if place else 0.0) + taken[place]), 6))
    return LengthFit(
        quantiles=quantiles,
        mean_tokens=float(tokens.mean()),
        largest_distribution_error=float(gaps.max()),
    )


def index_of_dispersion(times_s: Floats) -> tuple[float | None, float | None]:
    """Return variance ÷ mean of counts per whole minute, and its standard error, or None for too short a log.

    In logs of two hours and more the variance is taken within each hour and averaged, so that the day's shape does not
    count as bursts. The error is I √(2 / degrees of freedom), as for normal counts.
    """
    counts = np.bincount(((times_s - times_s[0]) // 60.0).astype(np.int64))[:-1].astype(np.float64)
    if counts.size < MINUTES_FOR_DISPERSION or counts.mean() == 0.0:
        return None, None
    minutes = 60 if counts.size >= 120 else counts.size
    parts = counts[: counts.size // minutes * minutes].reshape(-1, minutes)
    index = float(parts.var(axis=1, ddof=1).mean()) / float(parts.mean())
    return index, index * float(np.sqrt(2.0 / (len(parts) * (minutes - 1))))


def fit_trend(rates: Floats) -> TrendFit | None:
    """Fit compound growth to hourly rates, shape (hours,); None below half a year, or with a week of no traffic.

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
    """Fit daily and weekly profiles to hourly rates, shape (hours,); None for less than two days.

    ``first_hour_of_week`` is 0 for Monday 00:00 UTC, None where the dates are unknown.
    """
    if rates.size < HOURS_FOR_DAILY_SHAPE or not np.any(rates > 0.0):
        return None
    hour = ((first_hour_of_week or 0) + np.arange(rates.size)) % HOURS_PER_WEEK
    sigma = correlation_h = None
    if is_week := rates.size >= HOURS_PER_WEEK:
        profile = _relative(rates, hour, HOURS_PER_WEEK)
        sigma, correlation_h = _residual_noise(rates, profile[hour])
    if not (has_week := is_week and first_hour_of_week is not None):  # the mean day alone, from the first row
        profile = _relative(rates, np.arange(rates.size) % 24, 24)
    return ShapeFit(
        peak_to_mean=float(profile.max()),
        weekend_fraction=float(profile[120:].mean() / profile[:120].mean()) if has_week else None,
        weekly_profile=tuple(profile.tolist()) if has_week else None,
        noise_sigma=sigma,
        noise_correlation_h=correlation_h,
    )


def _relative(numbers: Floats, group: Ints, groups: int) -> Floats:
    """Return the mean of each group over the mean of all groups, shape (groups,)."""
    means = np.bincount(group, weights=numbers, minlength=groups) / np.bincount(group, minlength=groups)
    return np.asarray(means / means.mean())


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
    """Return Pearson's correlation, 0 where one of the two is constant."""
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / scale if scale > 0.0 else 0.0


SHOWN_QUANTILES = (0.5, 0.95, 0.99)
"""Those that a table has room for."""
_UNITS_IN_NAMES = {"per_min": 60.0, "rps": 1.0, "per_s": 1.0, "req_per_s": 1.0, "per_hour": 3600.0}
GROWTH = "growth.per_year"
_ASSUMED_REQUESTS_PER_S = 80.0
_REPORTED = ("requests", "duration_h", "interarrival_cv", "input_output_correlation", "largest_client_fraction")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One fitted figure, with its error or origin."""

    field: str
    """Dotted path inside the workload, or a name for what is only reported."""
    fitted: float | Mapping[float, float] | None
    """What goes into the scenario, quantiles by share; None: only reported or left to the class."""
    remark: str
    """The fit's error, or where the figure comes from if not from the log."""
    from_class: bool = False
    """Whether the class stands in for what the log cannot show."""

    @property
    def number(self) -> float:
        """The fitted value of a figure that is one number; 0 where there is none."""
        return self.fitted if isinstance(self.fitted, float | int) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """Options for reading traffic files, and the workload's name."""

    name: str
    model: str
    workload_preset: str
    timezone: str = "UTC"
    columns: str | None = None
    """Roles of a log's columns, as ``--columns`` takes them."""
    rate_column: str | None = None
    """Column of an hourly series; None: its only one."""
    time_unit: str = "auto"
    requests_per_s: float | None = None
    """Rate stated in place of the fitted one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A workload fitted to a log, a series, or both; without either, stated figures and the preset's."""

    asked: LogReading
    source: str
    """Names of the files; empty where there is none."""
    figures: list[Figure]
    shape: ShapeFit | None = None
    log: TrafficFit | None = None
    """What the log alone showed; None without one."""
    end_s: float | None = None
    """End of the series, to whose level the rate belongs, seconds since 1970 UTC; None without one, or its dates."""

    def yaml(self) -> str:
        """Return the ``workloads`` section of a scenario, with the fit's errors as comments."""
        tree: dict[str, Any] = {"model": self.asked.model, "preset": self.asked.workload_preset}
        for figure in self.figures:
            if figure.field == GROWTH:
                tree["growth"] = {"kind": "compound", "per_year": figure}
            elif figure.fitted is not None:
                tree = replaced(tree, tuple(figure.field.split(".")), figure)
        profile = self.shape.weekly_profile if self.shape is not None else None
        # A profile read off a log is in UTC.
        tree.setdefault("load_profile", {})["timezone"] = "UTC" if profile else self.asked.timezone
        origin = f"Fitted by planner fit-traffic to {' '.join(self.source.split())}" if self.source else "As stated"
        lines = [f"# {origin}", "workloads:", f"  {self.asked.name}:", *_branch_lines(tree, indent=4)]
        if profile is not None:
            at = lines.index("    load_profile:") + 1
            days = (", ".join(f"{factor:.3f}" for factor in profile[day * 24 : day * 24 + 24]) for day in range(7))
            head = "      weekly_profile:  # Monday 00:00 first, a day a line"
            lines[at:at] = [head, "        [", *(f"          {day}," for day in days), "        ]"]
        return "\n".join(lines) + "\n"

    def json(self) -> dict[str, Any]:
        """Return the fit as plain data, with figures that are only reported."""

        def plain(figure: Figure) -> object:  # keys of JSON are words
            fitted = figure.fitted
            return {f"{share:g}": tokens for share, tokens in fitted.items()} if isinstance(fitted, Mapping) else fitted

        reported = {name: getattr(self.log, name) for name in (*_REPORTED, "clients")} if self.log is not None else {}
        return {
            "name": self.asked.name,
            "model": self.asked.model,
            "preset": self.asked.workload_preset,
            "source": self.source,
            "figures": {
                f.field: {"value": plain(f), "remark": f.remark, "from_class": f.from_class} for f in self.figures
            },
            "reported": reported,
        }


def fit_files(log: Path | None, series: Path | None, asked: LogReading) -> Fitted:
    """Return a workload with level, growth and profile from an hourly series, if any, and the rest from a log.

    Without either it has the rate that is stated, and all else of its class.
    """
    defaults = class_figures(asked.workload_preset)
    fit = shape = end_s = None
    figures: list[Figure] = []
    if log is not None:
        read = read_request_log(log, parse_columns(asked.columns), asked.time_unit)
        if not read.one_clock and series is None and asked.requests_per_s is None:
            message = "every client's times start at its own zero, so the log shows no rate"
            raise ScenarioError(Problem(file=str(log), message=message, hint="state it with --requests-per-s"))
        fit = fit_traffic(read)
        figures, shape = log_figures(fit, defaults, asked.requests_per_s), fit.shape
    if series is not None:
        hourly = read_hourly_rates(series, asked.rate_column)
        hours, end_s, trend = hourly.rates.size, hourly.end_s, fit_trend(hourly.rates)
        shape = fit_hourly_shape(hourly.rates / (1.0 if trend is None else trend.factors), hourly.first_hour_of_week)
        rate, remark = asked.requests_per_s, "as given"
        if rate is None:
            words = f"{series.name} {hourly.column}".lower()
            known = [seconds for unit, seconds in _UNITS_IN_NAMES.items() if unit in words]
            if not known:
                message = "the unit of the series is in neither its name nor the file's"
                raise ScenarioError(Problem(file=str(series), message=message, hint="state --requests-per-s"))
            rate, remark = float(hourly.rates.mean()) / known[0], f"mean of {hours} hours of {hourly.column}"
            if trend is not None:
                remark = f"level at the end; the {remark} is {_number(rate)}"
                rate *= trend.end_to_mean
        seen = [Figure(field="requests_per_s", fitted=rate, remark=remark)]
        if trend is not None:
            weeks = hours // HOURS_PER_WEEK
            remark = f"±{trend.per_year_error:.2g} standard error over {weeks} weeks"
            remark += "; under two years cannot tell growth from season" if weeks < 104 else ""
            seen.append(Figure(field=GROWTH, fitted=trend.per_year, remark=remark))
        seen += shape_figures(shape, defaults, f"not visible in {hours} h")
        if log is None:
            figures = seen + class_length_figures(defaults, "a series of rates shows no lengths")
        else:  # level, growth, day, week and noise stand in place of the log's
            shown = {figure.field: figure for figure in seen if not figure.from_class}
            level, *rest = [shown.pop(figure.field, figure) for figure in figures]
            figures = [level, *shown.values(), *rest]
    if log is None and series is None:
        rate, remark = asked.requests_per_s, "mean on the first day, as given"
        if rate is None:
            rate, remark = _ASSUMED_REQUESTS_PER_S, "ASSUMPTION: mean on the first day; state yours"
        figures = [Figure(field="requests_per_s", fitted=rate, remark=remark)]
        figures += [*shape_figures(None, defaults, "no file of rates"), *class_length_figures(defaults, "no log")]
    source = " and ".join(path.name for path in (log, series) if path is not None)
    return Fitted(asked=asked, source=source, figures=figures, shape=shape, log=fit, end_s=end_s)


def log_figures(fit: TrafficFit, defaults: Mapping[str, Any], requests_per_s: float | None) -> list[Figure]:
    """Return every figure of a workload fitted to a request log, in scenario order."""
    rate, remark = requests_per_s, "as given"
    if rate is None:
        error = f"±{fit.requests_per_s_error_fraction or 0.0:.1%} standard error, {fit.requests:,} requests"
        rate, remark = fit.requests_per_s, f"{error} in {fit.duration_h:.3g} h: the level of those hours, not of a week"
    figures = [Figure(field="requests_per_s", fitted=rate, remark=remark)]
    figures += shape_figures(fit.shape, defaults, f"not visible in {fit.duration_h:.3g} h")
    for side, lengths in (("input", fit.input), ("output", fit.output)):
        # Quantiles alone: any mean or p95 that the class might lay beneath is left out with them.
        errors = f"mean {lengths.mean_tokens:,.0f} in the log, {lengths.mean_error_fraction:+.1%} in the fit"
        remark = f"{errors}; largest gap in the distribution {lengths.largest_distribution_error:.2f}"
        figures.append(Figure(field=f"lengths.{side}.quantiles", fitted=lengths.quantiles, remark=remark))
    hit, index = fit.prefix_cache_hit_fraction, fit.index_of_dispersion
    cached = None if hit is None else (min(hit, 0.999), "counted in the log")
    error = f"±{fit.index_of_dispersion_error or 0.0:.2g} standard error; Poisson is 1"
    bursts = None if index is None else (max(index, 1.0), error)
    return [
        *figures,
        _figure("prefix_cache_hit_fraction", defaults, "no cached tokens or block hashes in the log", seen=cached),
        _figure("burst_index_of_dispersion", defaults, "no ten minutes on one clock in the log", seen=bursts),
    ]


def shape_figures(shape: ShapeFit | None, defaults: Mapping[str, Any], why: str) -> list[Figure]:
    """Return the figures of day, week and noise; the preset's where the files do not show them."""
    peak = weekend = sigma = memory = None
    why_no_week = why
    if shape is not None and shape.weekend_fraction is not None:
        peak = shape.peak_to_mean, "busiest hour of the week ÷ mean"
        weekend = shape.weekend_fraction, "weekend hour ÷ weekday hour"
    elif shape is not None:
        # A mean day's peak is raised to the week's by the weekday level that the class implies.
        usual, why_no_week = float(defaults["weekend_fraction"]), "less than a week, or no dates"
        level = max(1.0, usual) * 7.0 / (5.0 + 2.0 * usual)
        remark = f"mean day's peak {shape.peak_to_mean:.4g} × {level:.4g}, the busier days' level"
        peak = shape.peak_to_mean * level, remark
    if shape is not None and shape.noise_sigma is not None and shape.noise_correlation_h is not None:
        sigma = min(shape.noise_sigma, 2.0), "ln(hour ÷ mean week)"
        memory = shape.noise_correlation_h, "from the correlation of neighbouring hours"
    return [
        _figure("peak_to_mean", defaults, why, "load_profile.peak_to_mean", peak),
        _figure("weekend_fraction", defaults, why_no_week, "load_profile.weekend_fraction", weekend),
        _figure("noise_sigma", defaults, "needs two weeks", "noise.sigma", sigma),
        _figure("noise_correlation_h", defaults, "needs two weeks", "noise.correlation_h", memory),
    ]


def class_length_figures(defaults: Mapping[str, Any], why: str) -> list[Figure]:
    """Return the preset's lengths, for use without a log."""
    sides = [(side, what) for side in ("input", "output") for what in ("mean", "p95")]
    return [_figure(f"{side}_{what}_tokens", defaults, why, f"lengths.{side}.{what}") for side, what in sides]


def figure_rows(figures: list[Figure]) -> list[tuple[str, str, str]]:
    """Return (field, figure, error or origin) as text, for a table."""
    return [(f.field, _written(f.fitted, SHOWN_QUANTILES), f.remark) for f in figures]


def reported_rows(fit: TrafficFit) -> list[tuple[str, str, str]]:
    """Return table rows for figures of a log that have no scenario field."""
    shown = f"{fit.input_output_correlation:.3f}"
    rows = [("input–output correlation", shown, "the planner takes them as independent")]
    if fit.interarrival_cv is not None:
        rows.append(("inter-arrival CV", f"{fit.interarrival_cv:.2f}", "Poisson is 1"))
    if fit.largest_client_fraction is not None:
        remark = f"of {fit.clients:,} clients; write a large one under tenants"
        rows.append(("largest client's share", f"{fit.largest_client_fraction:.1%}", remark))
    return rows


def _figure(
    name: str, defaults: Mapping[str, Any], why: str, field: str | None = None, seen: tuple[float, str] | None = None
) -> Figure:
    """Return what was seen of a figure, with its remark; else the class's own, with why nothing was."""
    fitted, remark = seen or (float(defaults[name]), f"class default: {why}")
    return Figure(field=field or name, fitted=fitted, remark=remark, from_class=seen is None)


def _branch_lines(tree: Mapping[str, Any], indent: int) -> list[str]:
    lines = []
    for key, node in tree.items():
        pad = " " * indent
        if isinstance(node, dict):
            lines += [f"{pad}{key}:", *_branch_lines(node, indent + 2)]
        elif isinstance(node, Figure):
            lines.append(f"{pad}{key}: {_written(node.fitted)}  # {node.remark}")
        else:
            lines.append(f"{pad}{key}: {node}")
    return lines


def _written(fitted: float | Mapping[float, float] | None, shown: Collection[float] = ()) -> str:
    """Return a figure as YAML, with the displayed quantiles or all."""
    if isinstance(fitted, Mapping):
        kept = {share: tokens for share, tokens in fitted.items() if not shown or share in shown}
        return "{" + ", ".join(f"{share:g}: {_number(tokens)}" for share, tokens in kept.items()) + "}"
    return "" if fitted is None else _number(fitted)


def _number(number: float) -> str:
    """Return a number as text to four significant digits, whole where large, never in exponent form."""
    if abs(number) >= 1000.0:
        return f"{number:.0f}"
    text = f"{number:.4g}"
    return f"{number:.10f}".rstrip("0") if "e" in text else text
