"""A workload fitted to files: as a table, as JSON, and as YAML for a scenario, the error beside each figure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.catalog.load import workload_class as class_figures
from planner.errors import Problem, ScenarioError
from planner.onramp.traffic_log import parse_columns, read_hourly_rates, read_request_log
from planner.onramp.traffic_statistics import (
    LengthFit,
    ShapeFit,
    TrafficFit,
    TrendFit,
    fit_hourly_shape,
    fit_traffic,
    fit_trend,
)

SHOWN_QUANTILES = (0.5, 0.95, 0.99)
"""Those that a table has room for."""
_UNITS_IN_NAMES = {"per_min": 60.0, "rps": 1.0, "per_s": 1.0, "req_per_s": 1.0, "per_hour": 3600.0}
GROWTH = "growth.per_year"
_ASSUMED_REQUESTS_PER_S = 80.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of a fit."""

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
        """What is fitted, of a figure that is one number; 0 where there is none."""
        return self.fitted if isinstance(self.fitted, float | int) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What a fitted workload is called and served by."""

    name: str
    model: str
    workload_class: str
    source: str
    """Names of the files; empty where there is none."""
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How files of traffic are to be read, and what the workload is called."""

    name: str
    model: str
    workload_class: str
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
    """A workload fitted to a log, a series, or both; of neither, what is stated and what its class says."""

    heading: Heading
    figures: list[Figure]
    shape: ShapeFit | None
    log: TrafficFit | None
    """What the log alone showed; None without one."""
    end_s: float | None
    """End of the series, to whose level the rate belongs, seconds since 1970 UTC; None without one, or its dates."""

    def yaml(self) -> str:
        """Return the ``workloads`` section of a scenario."""
        return workload_yaml(self.heading, self.figures, self.shape)


def fit_files(log: Path | None, series: Path | None, asked: Asked) -> Fitted:
    """Fit a workload: level, growth, day and week from an hourly series where there is one, the rest from a log.

    Without either it has the rate that is stated, and all else of its class.
    """
    defaults = class_figures(asked.workload_class)
    fit = shape = end_s = None
    figures: list[Figure] = []
    if log is not None:
        fit = _fit_log(log, asked, needs_rate=series is None and asked.requests_per_s is None)
        figures, shape = log_figures(fit, defaults, asked.requests_per_s), fit.shape
    if series is not None:
        seen, shape, end_s = _fit_series(series, asked, defaults)
        figures = laid_over(figures, seen) if log is not None else seen
    if log is None and series is None:
        figures = _stated_figures(asked.requests_per_s, defaults)
    has_profile = shape is not None and shape.weekly_profile is not None
    heading = Heading(
        name=asked.name,
        model=asked.model,
        workload_class=asked.workload_class,
        source=" and ".join(path.name for path in (log, series) if path is not None),
        timezone="UTC" if has_profile else asked.timezone,  # a profile read off a log is in UTC
    )
    return Fitted(heading=heading, figures=figures, shape=shape, log=fit, end_s=end_s)


def _stated_figures(requests_per_s: float | None, defaults: Mapping[str, Any]) -> list[Figure]:
    rate, remark = requests_per_s, "mean on the first day, as given"
    if rate is None:
        rate, remark = _ASSUMED_REQUESTS_PER_S, "ASSUMPTION: mean on the first day; state yours"
    level = Figure(field="requests_per_s", fitted=rate, remark=remark)
    return [level, *shape_figures(None, defaults, "no file of rates"), *class_length_figures(defaults, "no log")]


def _fit_log(path: Path, asked: Asked, *, needs_rate: bool) -> TrafficFit:
    log = read_request_log(path, parse_columns(asked.columns), asked.time_unit)
    if not log.one_clock and needs_rate:
        message = "every client's times start at its own zero, so the log shows no rate"
        raise ScenarioError(Problem(file=str(path), message=message, hint="state it with --requests-per-s"))
    return fit_traffic(log)


def _fit_series(
    path: Path, asked: Asked, defaults: Mapping[str, Any]
) -> tuple[list[Figure], ShapeFit | None, float | None]:
    """Return a series' figures, its shape with the trend taken out, and the moment its level belongs to."""
    hourly = read_hourly_rates(path, asked.rate_column)
    trend = fit_trend(hourly.rates)
    shape = fit_hourly_shape(hourly.rates / (1.0 if trend is None else trend.factors), hourly.first_hour_of_week)
    rate, remark = asked.requests_per_s, "as given"
    if rate is None:
        words = f"{path.name} {hourly.column}".lower()
        known = [seconds for unit, seconds in _UNITS_IN_NAMES.items() if unit in words]
        if not known:
            message = "the unit of the series is in neither its name nor the file's"
            raise ScenarioError(Problem(file=str(path), message=message, hint="state --requests-per-s"))
        rate = float(hourly.rates.mean()) / known[0]
        remark = f"mean of {hourly.rates.size} hours of {hourly.column}"
        if trend is not None:
            remark = f"level at the end; the {remark} is {_number(rate)}"
            rate *= trend.end_to_mean
    figures = [Figure(field="requests_per_s", fitted=rate, remark=remark), *_trend_figures(trend, hourly.rates.size)]
    figures += shape_figures(shape, defaults, f"not visible in {hourly.rates.size} h")
    return figures + class_length_figures(defaults, "a series of rates shows no lengths"), shape, hourly.end_s


def _trend_figures(trend: TrendFit | None, hours: int) -> list[Figure]:
    if trend is None:
        return []
    weeks = hours // 168
    remark = f"±{trend.per_year_error:.2g} standard error over {weeks} weeks"
    if weeks < 104:
        remark += "; under two years cannot tell growth from season"
    return [Figure(field=GROWTH, fitted=trend.per_year, remark=remark)]


def log_figures(fit: TrafficFit, defaults: Mapping[str, Any], requests_per_s: float | None) -> list[Figure]:
    """Return every figure of a workload fitted to a request log, in the scenario's order."""
    figures = []
    if requests_per_s is not None:
        figures.append(Figure(field="requests_per_s", fitted=requests_per_s, remark="as given"))
    else:
        error = f"±{fit.requests_per_s_error_fraction or 0.0:.1%} standard error, {fit.requests:,} requests"
        remark = f"{error} in {fit.duration_h:.3g} h: the level of those hours, not of a week"
        figures.append(Figure(field="requests_per_s", fitted=fit.requests_per_s, remark=remark))
    figures += shape_figures(fit.shape, defaults, f"not visible in {fit.duration_h:.3g} h")
    for side, lengths in (("input", fit.input), ("output", fit.output)):
        figures += _length_figures(side, lengths)
    hit = fit.prefix_cache_hit_fraction
    if hit is None:
        figures.append(_default("prefix_cache_hit_fraction", defaults, "no cached tokens or block hashes in the log"))
    else:
        figures.append(Figure(field="prefix_cache_hit_fraction", fitted=min(hit, 0.999), remark="counted in the log"))
    if fit.index_of_dispersion is None:
        figures.append(_default("burst_index_of_dispersion", defaults, "no ten minutes on one clock in the log"))
    else:
        index, spread = fit.index_of_dispersion, fit.index_of_dispersion_error or 0.0
        remark = f"±{spread:.2g} standard error; Poisson is 1"
        figures.append(Figure(field="burst_index_of_dispersion", fitted=max(index, 1.0), remark=remark))
    return figures


def shape_figures(shape: ShapeFit | None, defaults: Mapping[str, Any], why: str) -> list[Figure]:
    """Return the figures of day, week and noise; the class stands in for what was not seen."""
    if shape is None:
        names = ("peak_to_mean", "weekend_fraction")
        figures = [_default(name, defaults, why, f"shape.{name}") for name in names]
    else:
        figures = _seen_shape_figures(shape, defaults)
    if shape is None or shape.noise_sigma is None or shape.noise_correlation_h is None:
        figures.append(_default("noise_sigma", defaults, "needs two weeks", "noise.sigma"))
        figures.append(_default("noise_correlation_h", defaults, "needs two weeks", "noise.correlation_h"))
    else:
        figures.append(Figure(field="noise.sigma", fitted=min(shape.noise_sigma, 2.0), remark="ln(hour ÷ mean week)"))
        remark = "from the correlation of neighbouring hours"
        figures.append(Figure(field="noise.correlation_h", fitted=shape.noise_correlation_h, remark=remark))
    return figures


def _seen_shape_figures(shape: ShapeFit, defaults: Mapping[str, Any]) -> list[Figure]:
    """Return peak and weekend; a mean day's peak is raised to the week's by the weekday level the class implies."""
    if shape.weekend_fraction is not None:
        return [
            Figure(field="shape.peak_to_mean", fitted=shape.peak_to_mean, remark="busiest hour of the week ÷ mean"),
            Figure(field="shape.weekend_fraction", fitted=shape.weekend_fraction, remark="weekend hour ÷ weekday hour"),
        ]
    weekend = float(defaults["weekend_fraction"])
    level = max(1.0, weekend) * 7.0 / (5.0 + 2.0 * weekend)
    remark = f"mean day's peak {shape.peak_to_mean:.4g} × {level:.4g}, the busier days' level"
    return [
        Figure(field="shape.peak_to_mean", fitted=shape.peak_to_mean * level, remark=remark),
        _default("weekend_fraction", defaults, "less than a week, or no dates", "shape.weekend_fraction"),
    ]


def class_length_figures(defaults: Mapping[str, Any], why: str) -> list[Figure]:
    """Return the class's lengths, where there is no log."""
    return [
        Figure(
            field=f"tokens.{side}.{what}",
            fitted=float(defaults[f"{side}_{what}_tokens"]),
            remark=f"class default: {why}",
            from_class=True,
        )
        for side in ("input", "output")
        for what in ("mean", "p95")
    ]


def laid_over(figures: list[Figure], seen: list[Figure]) -> list[Figure]:
    """Return a log's figures with a series' in their place: level, growth, day, week and noise."""
    shown = {figure.field: figure for figure in seen if not figure.from_class}
    level, *rest = [shown.pop(figure.field, figure) for figure in figures]
    return [level, *shown.values(), *rest]


def workload_yaml(heading: Heading, figures: list[Figure], shape: ShapeFit | None) -> str:
    """Return the workload as the ``workloads`` section of a scenario, the fit's error as comments."""
    tree: dict[str, Any] = {"model": heading.model, "class": heading.workload_class}
    for figure in figures:
        if figure.fitted is not None:
            *parents, last = figure.field.split(".")
            branch = tree
            for parent in parents:
                branch = branch.setdefault(parent, {"kind": "compound"} if parent == "growth" else {})
            branch[last] = figure
    tree.setdefault("shape", {})["timezone"] = heading.timezone
    origin = f"Fitted by planner fit-traffic to {_one_line(heading.source)}" if heading.source else "As stated"
    lines = [f"# {origin}", "workloads:", f"  {heading.name}:"]
    lines += _branch_lines(tree, indent=4)
    if shape is not None and shape.weekly_profile is not None:
        at = lines.index("    shape:") + 1
        lines[at:at] = _profile_lines(shape.weekly_profile)
    return "\n".join(lines) + "\n"


def figure_rows(figures: list[Figure]) -> list[tuple[str, str, str]]:
    """Return (field, figure, error or origin) as text, for a table."""
    return [(f.field, _written(f.fitted, SHOWN_QUANTILES), f.remark) for f in figures]


def fit_json(heading: Heading, figures: list[Figure], fit: TrafficFit | None) -> dict[str, Any]:
    """Return the fit as plain data, with what is only reported."""
    reported = {}
    if fit is not None:
        reported = {
            "requests": fit.requests,
            "duration_h": fit.duration_h,
            "interarrival_cv": fit.interarrival_cv,
            "input_output_correlation": fit.input_output_correlation,
            "largest_client_fraction": fit.largest_client_fraction,
            "clients": fit.clients,
            "input_log_mu_sigma": [fit.input.log_mu, fit.input.log_sigma],
            "output_log_mu_sigma": [fit.output.log_mu, fit.output.log_sigma],
        }
    return {
        "name": heading.name,
        "model": heading.model,
        "class": heading.workload_class,
        "source": heading.source,
        "figures": {
            f.field: {"value": _plain(f.fitted), "remark": f.remark, "from_class": f.from_class} for f in figures
        },
        "reported": reported,
    }


def reported_rows(fit: TrafficFit) -> list[tuple[str, str, str]]:
    """Return rows for what a log shows but a scenario has no single field for."""
    rows = [
        ("input–output correlation", f"{fit.input_output_correlation:.3f}", "the planner takes them as independent")
    ]
    if fit.interarrival_cv is not None:
        rows.append(("inter-arrival CV", f"{fit.interarrival_cv:.2f}", "Poisson is 1"))
    if fit.largest_client_fraction is not None:
        remark = f"of {fit.clients:,} clients; write a large one under tenants"
        rows.append(("largest client's share", f"{fit.largest_client_fraction:.1%}", remark))
    return rows


def _length_figures(side: str, fit: LengthFit) -> list[Figure]:
    """Return the quantiles: any mean or p95 that the class might lay beneath is left out with them."""
    errors = f"mean {fit.mean_tokens:,.0f} in the log, {fit.mean_error_fraction:+.1%} in the fit"
    remark = f"{errors}; largest gap in the distribution {fit.largest_distribution_error:.2f}"
    return [Figure(field=f"tokens.{side}.quantiles", fitted=fit.quantiles, remark=remark)]


def _plain(fitted: float | Mapping[float, float] | None) -> float | dict[str, float] | None:
    """Return a figure as JSON has it, whose keys are words."""
    return {f"{share:g}": tokens for share, tokens in fitted.items()} if isinstance(fitted, Mapping) else fitted


def _default(name: str, defaults: Mapping[str, Any], why: str, field: str | None = None) -> Figure:
    return Figure(field=field or name, fitted=float(defaults[name]), remark=f"class default: {why}", from_class=True)


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


def _profile_lines(profile: tuple[float, ...]) -> list[str]:
    lines = ["      weekly_profile:  # Monday 00:00 first, a day a line"]
    days = [profile[day * 24 : day * 24 + 24] for day in range(7)]
    rows = [", ".join(f"{factor:.3f}" for factor in day) for day in days]
    return [*lines, "        [", *(f"          {row}," for row in rows), "        ]"]


def _written(fitted: float | Mapping[float, float] | None, shown: Collection[float] = ()) -> str:
    """Write a figure as YAML has it; of quantiles those shown, or all."""
    if isinstance(fitted, Mapping):
        kept = {share: tokens for share, tokens in fitted.items() if not shown or share in shown}
        return "{" + ", ".join(f"{share:g}: {_number(tokens)}" for share, tokens in kept.items()) + "}"
    return "" if fitted is None else _number(fitted)


def _number(number: float) -> str:
    """Write a number to four significant digits, whole where it is large, never in exponent form."""
    if abs(number) >= 1000.0:
        return f"{number:.0f}"
    text = f"{number:.4g}"
    return f"{number:.10f}".rstrip("0") if "e" in text else text


def _one_line(text: str) -> str:
    return " ".join(text.split())
