"""``planner fit-traffic``: a workload from a request log or an hourly series."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.options import AsJson

if TYPE_CHECKING:
    from planner.tools.traffic_fit import Figure
    from planner.tools.traffic_statistics import ShapeFit, TrafficFit

_UNITS_IN_NAMES = {"per_min": 60.0, "rps": 1.0, "per_s": 1.0, "req_per_s": 1.0, "per_hour": 3600.0}


def fit_traffic(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="Request log (CSV, JSON lines, .gz) or hourly series (CSV).")
    ],
    name: Annotated[str, typer.Option("--name", help="Name of the workload.")] = "fitted",
    model: Annotated[str, typer.Option("--model", help="Served model, by its catalogue name.")] = "llama-3.1-70b",
    workload_class: Annotated[
        str, typer.Option("--class", help="Class that stands in for what the log cannot show.")
    ] = "chat",
    timezone: Annotated[str, typer.Option("--timezone", help="IANA zone of the users, for class shapes.")] = "UTC",
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="ROLE=COLUMN,...", help="timestamp=, input=, output=, cached=, client="),
    ] = None,
    hourly: Annotated[
        Path | None,
        typer.Option("--hourly", metavar="FILE.csv", help="Hourly series, for level and shape beside a log."),
    ] = None,
    series: Annotated[str | None, typer.Option("--series", help="Rate column of an hourly series.")] = None,
    time_unit: Annotated[
        str, typer.Option("--time-unit", help="Of numeric timestamps: auto, s, ms, us, ns, excel.")
    ] = "auto",
    requests_per_s: Annotated[
        float | None, typer.Option("--requests-per-s", min=0.0, help="State the rate instead of fitting it.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.yaml", help="Write the workload here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a workload to a request log and write it as scenario YAML with the fit's error."""
    from planner.catalog.load import workload_class as class_figures
    from planner.demand.calendar import zone
    from planner.errors import Problem, ScenarioError
    from planner.reporting.folder import json_text
    from planner.reporting.text_table import text_table
    from planner.tools import traffic_fit as report
    from planner.tools.traffic_log import is_hourly_series

    _check_options(name, model, time_unit, out)
    zone(timezone)
    defaults = class_figures(workload_class)
    if is_hourly_series(trace, columns is not None):
        if hourly is not None:
            message, hint = (
                "is an hourly series itself",
                f"name the log first: fit-traffic LOG --hourly {trace}",
            )
            raise ScenarioError(Problem(file=str(trace), message=message, hint=hint))
        fit, (figures, shape) = None, _from_series(trace, series, requests_per_s, defaults)
    else:
        fit = _from_log(trace, columns, time_unit, 0.0 if hourly is not None else requests_per_s)
        figures, shape = report.log_figures(fit, defaults, requests_per_s), fit.shape
        if hourly is not None:
            seen, shape = _from_series(hourly, series, requests_per_s, defaults)
            figures = report.laid_over(figures, seen)
    has_profile = shape is not None and shape.weekly_profile is not None
    heading = report.Heading(
        name=name,
        model=model,
        workload_class=workload_class,
        source=trace.name if hourly is None else f"{trace.name} and {hourly.name}",
        timezone="UTC" if has_profile else timezone,  # a profile read off a log is in UTC
    )
    text = report.workload_yaml(heading, figures, shape)
    if out is not None:
        _write_new(out, text)
    if as_json:
        typer.echo(json_text(report.fit_json(heading, figures, fit)), nl=False)
        return
    rows = report.figure_rows(figures) + (report.reported_rows(fit) if fit else [])
    typer.echo(text_table(("figure", "fitted", "error or origin"), rows))
    typer.echo(f"\nwrote {out}" if out is not None else f"\n{text}", nl=out is not None)


def _from_log(trace: Path, columns: str | None, time_unit: str, requests_per_s: float | None) -> TrafficFit:
    from planner.errors import Problem, ScenarioError
    from planner.tools import traffic_statistics as fitting
    from planner.tools.traffic_log import parse_columns, read_request_log

    log = read_request_log(trace, parse_columns(columns), time_unit)
    if not log.one_clock and requests_per_s is None:
        message = "every client's times start at its own zero, so the log shows no rate"
        raise ScenarioError(Problem(file=str(trace), message=message, hint="state it with --requests-per-s"))
    return fitting.fit_traffic(log)


def _from_series(
    trace: Path, series: str | None, requests_per_s: float | None, defaults: dict[str, float]
) -> tuple[list[Figure], ShapeFit | None]:
    from planner.errors import Problem, ScenarioError
    from planner.tools import traffic_fit as report
    from planner.tools.traffic_log import read_hourly_rates
    from planner.tools.traffic_statistics import fit_hourly_shape

    hourly = read_hourly_rates(trace, series)
    shape = fit_hourly_shape(hourly.rates, hourly.first_hour_of_week)
    remark = "as given"
    if requests_per_s is None:
        known = [
            seconds for unit, seconds in _UNITS_IN_NAMES.items() if unit in f"{trace.name} {hourly.column}".lower()
        ]
        if not known:
            message = "the unit of the series is in neither its name nor the file's"
            raise ScenarioError(Problem(file=str(trace), message=message, hint="state --requests-per-s"))
        requests_per_s = float(hourly.rates.mean()) / known[0]
        remark = f"mean of {hourly.rates.size} hours of {hourly.column}"
    figures = [report.Figure(field="requests_per_s", fitted=requests_per_s, remark=remark)]
    figures += report.shape_figures(shape, defaults, f"not visible in {hourly.rates.size} h")
    return figures + report.class_length_figures(defaults), shape


def _check_options(name: str, model: str, time_unit: str, out: Path | None) -> None:
    """Raise every problem with the options before a large file is read."""
    import re

    from planner.errors import Problem, ScenarioError
    from planner.tools.traffic_log import TIME_UNITS

    problems = []
    if not re.fullmatch(r"[^\W_][\w-]{0,63}", name):
        problems.append(Problem(path="--name", message=f"{name!r} is not 1 to 64 letters, digits, '-' or '_'"))
    if not re.fullmatch(r"[^\W_][\w.-]{0,63}", model):
        problems.append(Problem(path="--model", message=f"{model!r} is not a model's name"))
    if time_unit not in ("auto", *TIME_UNITS):
        message = f"{time_unit!r} is not one of auto, {', '.join(TIME_UNITS)}"
        problems.append(Problem(path="--time-unit", message=message))
    if out is not None and out.exists():
        problems.append(Problem(file=str(out), message="exists and will not be overwritten"))
    if problems:
        raise ScenarioError(problems)


def _write_new(path: Path, text: str) -> None:
    """Write a file that was not there, whole or not at all."""
    import os
    import tempfile

    from planner.errors import Problem, ScenarioError

    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as stream:
            stream.write(text)
        Path(stream.name).chmod(0o644)
        os.link(stream.name, path)
        Path(stream.name).unlink()
    except OSError as error:
        raise ScenarioError(Problem(file=str(path), message=f"cannot be written: {error.strerror}")) from None
