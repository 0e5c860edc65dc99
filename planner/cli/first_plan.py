"""A plan from what one has: ``planner init``, a commented scenario, and ``fit-traffic``, a workload."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from planner.cli.terminal import AsJson
from planner.errors import Problem, ScenarioError, raise_all
from planner.files import json_text, write_file

_START = "First day [default: after the series]."
_MODEL = "llama-3.1-70b"  # served where none is named


def init(
    name: Annotated[str, Argument(help="Name of the scenario; NAME.yaml is written.")],
    log: Annotated[Path | None, Option(metavar="LOG", help="Request log to fit lengths and bursts to.")] = None,
    series: Annotated[
        Path | None, Option(metavar="FILE.csv", help="Hourly rates: level, growth, day and week.")
    ] = None,
    fleet: Annotated[Path | None, Option(metavar="FILE.csv", help="Machines owned: part, nodes, bought, ...")] = None,
    quotes: Annotated[Path | None, Option(metavar="FILE.csv", help="Vendors' quotes: part, price_usd, ...")] = None,
    workload: Annotated[str | None, Option(help="Name of the workload [default: the log's].")] = None,
    model: Annotated[str | None, Option(help=f"Served model, by its catalogue name [default: {_MODEL}].")] = None,
    workload_preset: Annotated[
        str | None, Option("--preset", help="Class that stands in for what the files cannot show [default: chat].")
    ] = None,
    timezone: Annotated[str | None, Option(help="IANA zone of the users, for class shapes [default: UTC].")] = None,
    columns: Annotated[str | None, Option(metavar="ROLE=COLUMN,...", help="Of the log, as fit-traffic.")] = None,
    rate: Annotated[str | None, Option(metavar="COLUMN", help="Rate column of the series.")] = None,
    requests_per_s: Annotated[float | None, Option(min=0.0, help="State the rate instead of fitting it.")] = None,
    growth: Annotated[
        float | None, Option(metavar="SHARE", help="Growth a year, e.g. 0.4, in place of the fitted.")
    ] = None,
    start: Annotated[datetime.datetime | None, Option(formats=["%Y-%m-%d"], metavar="DATE", help=_START)] = None,
) -> None:
    """Write a commented scenario that runs, from the files you have, and beside it the schema for your editor.

    Without files it is a small one to start from, with what is stated of its workload. With quotes, ``planner size``
    finds what to buy of them, and when.
    """
    from planner.demand.shape import zone
    from planner.onramp import first_scenario as first
    from planner.onramp.traffic_fit import LogReading, fit_files
    from planner.scenario.schema import SCHEMA_FILE, WRITTEN_BY, scenario_schema

    path, beside = Path(f"{name}.yaml"), Path(SCHEMA_FILE)
    is_stated = any(given is not None for given in (workload, model, workload_preset, timezone, requests_per_s, growth))
    asked = LogReading(
        name=workload or (log.name.partition(".")[0] if log is not None else workload_preset or "chat"),
        model=model or _MODEL,
        workload_preset=workload_preset or "chat",
        timezone=timezone or "UTC",
        columns=columns,
        rate_column=rate,
        requests_per_s=requests_per_s,
    )
    check_options(asked.name, asked.model, "auto", None)
    unread = [("--columns", columns, log, "--log"), ("--rate", rate, series, "--series")]
    useless = [(option, needed) for option, stated, file, needed in unread if stated is not None and file is None]
    told = [(option, f"is of no use without {needed}", f"give the file with {needed}") for option, needed in useless]
    raise_all([Problem(path=option, message=message, hint=hint) for option, message, hint in told])
    zone(asked.timezone)
    if beside.exists() and f'"$comment": "{WRITTEN_BY}"' not in beside.read_text(encoding="utf-8", errors="replace"):
        message = "is not a schema that planner wrote, and will not be overwritten"
        raise ScenarioError(Problem(file=str(beside), message=message, hint="move it away, or work in another folder"))
    traffic = fit_files(log, series, asked) if log is not None or series is not None or is_stated else None
    machines = first.read_fleet(fleet) if fleet is not None else ()
    machines += first.read_quotes(quotes) if quotes is not None else ()
    first_day = start.date() if start is not None else first.default_start(traffic)
    text = first.scenario_text(name, first_day, traffic, growth, machines)
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
        beside.write_text(json_text(scenario_schema()), encoding="utf-8")
    except FileExistsError:
        raise ScenarioError(Problem(file=str(path), message="exists and will not be overwritten")) from None
    except OSError as error:
        raise ScenarioError(Problem(file=str(path), message=f"cannot be written: {error.strerror}")) from None
    verb = "size" if quotes is not None else "run"
    typer.echo(f"wrote {path}, and {beside} for your editor; try: planner {verb} {path}")


def fit_traffic(
    trace: Annotated[
        Path, Argument(metavar="TRACE", help="Request log (CSV, JSON lines, .gz) or hourly series (CSV).")
    ],
    name: Annotated[str, Option(help="Name of the workload.")] = "fitted",
    model: Annotated[str, Option(help="Served model, by its catalogue name.")] = _MODEL,
    workload_preset: Annotated[
        str, Option("--preset", help="Class that stands in for what the log cannot show.")
    ] = "chat",
    timezone: Annotated[str, Option(help="IANA zone of the users, for class shapes.")] = "UTC",
    columns: Annotated[
        str | None, Option(metavar="ROLE=COLUMN,...", help="timestamp=, input=, output=, cached=, client=")
    ] = None,
    hourly: Annotated[
        Path | None, Option(metavar="FILE.csv", help="Hourly series, for level and shape beside a log.")
    ] = None,
    series: Annotated[str | None, Option(help="Rate column of an hourly series.")] = None,
    time_unit: Annotated[str, Option(help="Of numeric timestamps: auto, s, ms, us, ns, excel.")] = "auto",
    requests_per_s: Annotated[float | None, Option(min=0.0, help="State the rate instead of fitting it.")] = None,
    out: Annotated[Path | None, Option(metavar="FILE.yaml", help="Write the workload here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a workload to a request log and write it as scenario YAML with the fit's error."""
    from planner.demand.shape import zone
    from planner.onramp import traffic_fit as fitting
    from planner.onramp.traffic_log import is_hourly_series
    from planner.output.terminal import text_table

    check_options(name, model, time_unit, out)
    zone(timezone)
    is_series = is_hourly_series(trace, columns is not None)
    if is_series and hourly is not None:
        hint = f"name the log first: fit-traffic LOG --hourly {trace}"
        raise ScenarioError(Problem(file=str(trace), message="is an hourly series itself", hint=hint))
    asked = fitting.LogReading(
        name=name,
        model=model,
        workload_preset=workload_preset,
        timezone=timezone,
        columns=columns,
        rate_column=series,
        time_unit=time_unit,
        requests_per_s=requests_per_s,
    )
    fitted = fitting.fit_files(None if is_series else trace, trace if is_series else hourly, asked)
    if out is not None:
        write_file(out, fitted.yaml().encode())
    if as_json:
        typer.echo(json_text(fitted.json()), nl=False)
        return
    rows = fitting.figure_rows(fitted.figures) + (fitting.reported_rows(fitted.log) if fitted.log else [])
    typer.echo(text_table(("figure", "fitted", "error or origin"), rows))
    typer.echo(f"\nwrote {out}" if out is not None else f"\n{fitted.yaml()}", nl=out is not None)


def check_options(name: str, model: str, time_unit: str, out: Path | None) -> None:
    """Raise every problem with the options before a large file is read."""
    from planner.onramp.traffic_log import TIME_UNITS

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
    raise_all(problems)
