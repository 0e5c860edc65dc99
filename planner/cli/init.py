"""``planner init``: a commented scenario to start from, or from the files one has."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer


def init(
    name: Annotated[str, typer.Argument(help="Name of the scenario; NAME.yaml is written.", show_default=False)],
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="LOG", help="Request log to fit lengths and bursts to.", show_default=False),
    ] = None,
    series: Annotated[
        Path | None,
        typer.Option(
            "--series", metavar="FILE.csv", help="Hourly rates: level, growth, day and week.", show_default=False
        ),
    ] = None,
    fleet: Annotated[
        Path | None,
        typer.Option(
            "--fleet", metavar="FILE.csv", help="Machines owned: part, nodes, bought, ...", show_default=False
        ),
    ] = None,
    quotes: Annotated[
        Path | None,
        typer.Option("--quotes", metavar="FILE.csv", help="Vendors' quotes: part, price_usd, ...", show_default=False),
    ] = None,
    workload: Annotated[
        str | None, typer.Option("--workload", help="Name of the workload [default: the log's].", show_default=False)
    ] = None,
    model: Annotated[str, typer.Option("--model", help="Served model, by its catalogue name.")] = "llama-3.1-70b",
    workload_class: Annotated[
        str, typer.Option("--class", help="Class that stands in for what the files cannot show.")
    ] = "chat",
    timezone: Annotated[str, typer.Option("--timezone", help="IANA zone of the users, for class shapes.")] = "UTC",
    columns: Annotated[
        str | None,
        typer.Option("--columns", metavar="ROLE=COLUMN,...", help="Of the log, as fit-traffic.", show_default=False),
    ] = None,
    rate: Annotated[
        str | None, typer.Option("--rate", metavar="COLUMN", help="Rate column of the series.", show_default=False)
    ] = None,
    requests_per_s: Annotated[
        float | None,
        typer.Option("--requests-per-s", min=0.0, help="State the rate instead of fitting it.", show_default=False),
    ] = None,
    growth: Annotated[
        float | None,
        typer.Option(
            "--growth", metavar="SHARE", help="Growth a year, e.g. 0.4, in place of the fitted.", show_default=False
        ),
    ] = None,
    start: Annotated[
        datetime.datetime | None,
        typer.Option(
            "--start",
            formats=["%Y-%m-%d"],
            metavar="DATE",
            help="First day [default: after the series].",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a commented scenario that runs, from the files you have, and beside it the schema for your editor.

    Without files it is a small one to start from. With quotes, ``planner size`` finds what to buy of them, and when.
    """
    from planner.cli.fit_traffic import check_options
    from planner.demand.calendar import zone
    from planner.errors import Problem, ScenarioError
    from planner.files import json_text
    from planner.language.schema import SCHEMA_FILE, WRITTEN_BY, scenario_schema
    from planner.tools import first_scenario as first
    from planner.tools.traffic_fit import Asked, fit_files

    path, beside = Path(f"{name}.yaml"), Path(SCHEMA_FILE)
    asked = Asked(
        name=workload or (log.name.partition(".")[0] if log is not None else workload_class),
        model=model,
        workload_class=workload_class,
        timezone=timezone,
        columns=columns,
        rate_column=rate,
        requests_per_s=requests_per_s,
    )
    check_options(asked.name, model, "auto", None)
    zone(timezone)
    if beside.exists() and f'"$comment": "{WRITTEN_BY}"' not in beside.read_text(encoding="utf-8", errors="replace"):
        message = "is not a schema that planner wrote, and will not be overwritten"
        raise ScenarioError(Problem(file=str(beside), message=message, hint="move it away, or work in another folder"))
    traffic = fit_files(log, series, asked) if log is not None or series is not None else None
    files = first.Files(
        traffic=traffic,
        fleet=first.read_fleet(fleet) if fleet is not None else (),
        quotes=first.read_quotes(quotes) if quotes is not None else (),
        start=start.date() if start is not None else first.default_start(traffic),
        growth_per_year=growth,
    )
    text = first.scenario_text(name, files)
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
