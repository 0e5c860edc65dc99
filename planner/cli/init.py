"""A plan from what one has: ``planner init``, a commented scenario."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from planner.cli.options import AsJson, Overlay, Quiet
from planner.errors import Problem, ScenarioError, raise_all
from planner.files import json_text

_FROM = (
    "Traffic of a workload: a request log or hourly rates (CSV, JSON lines, .gz), a Prometheus range query (JSON), "
    "vLLM's metrics as text, or http(s)://SERVER; repeatable. Sources of one NAME are one workload's."
)
TimeUnit = Literal["auto", "s", "ms", "us", "ns", "excel"]
_MODEL = "Served model, by its catalogue name [default: the files'], of a workload or of all; repeatable."
_PRESET = (
    "Workload preset for what no file shows, of one workload or of all [default: chat]; repeatable."
)
_START = "First day [default: after the series]."


def init(
    name: Annotated[str, Argument(help="Name of the scenario; NAME.yaml is written.")],
    sources: Annotated[
        list[str] | None, Option("--from", metavar="[NAME=]FILE", help=_FROM)
    ] = None,
    fleet: Annotated[
        Path | None, Option(metavar="FILE.csv", help="Machines owned: part, nodes, bought, ...")
    ] = None,
    quotes: Annotated[
        Path | None, Option(metavar="FILE.csv", help="Vendors' quotes: part, price_usd, ...")
    ] = None,
    overlay: Overlay = None,
    model: Annotated[list[str] | None, Option(metavar="[NAME=]MODEL", help=_MODEL)] = None,
    preset: Annotated[list[str] | None, Option(metavar="[NAME=]PRESET", help=_PRESET)] = None,
    timezone: Annotated[
        str | None, Option(help="IANA zone of the users, for class shapes [default: UTC].")
    ] = None,
    columns: Annotated[
        str | None, Option(metavar="ROLE=COLUMN,...", help="Of logs, e.g. input=prompt.")
    ] = None,
    rate: Annotated[
        str | None, Option(metavar="COLUMN", help="Rate column of hourly rates.")
    ] = None,
    time_unit: Annotated[TimeUnit, Option(help="Of numeric timestamps.")] = "auto",
    requests_per_s: Annotated[
        float | None, Option(min=0.0, help="State the rate instead of fitting it.")
    ] = None,
    growth: Annotated[
        float | None, Option(metavar="SHARE", help="Growth a year, in place of the fitted: 0.4.")
    ] = None,
    start: Annotated[
        datetime.datetime | None, Option(formats=["%Y-%m-%d"], metavar="DATE", help=_START)
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented scenario that runs, from the files you have, and beside it the schema for your editor.

    Without files it is a small one to start from, with what is stated of its workload. With quotes, ``planner size``
    finds what to buy of them, and when. A server is read only where you name one.
    """
    from planner.catalog.load import load_catalog
    from planner.demand.shape import zone
    from planner.onramp import first_scenario
    from planner.onramp.traffic_fit import TrafficOptions
    from planner.output.terminal import text_table
    from planner.scenario.schema import SCHEMA_FILE

    scenario_path = Path(f"{name}.yaml")
    schema_path = Path(SCHEMA_FILE)
    stated = TrafficOptions(
        models=first_scenario.by_workload("--model", model or ()),
        presets=first_scenario.by_workload("--preset", preset or ()),
        timezone=timezone or "UTC",
        columns=columns,
        rate_column=rate,
        time_unit=time_unit,
        requests_per_s=requests_per_s,
        growth_per_year=growth,
    )
    # Options that only logs have would be ignored in silence.
    if not sources:
        message = "has no effect without --from FILE"
        texts = {"--columns": columns, "--rate": rate}
        options = [option for option, text in texts.items() if text]
        raise_all([Problem(path=option, message=message) for option in options])
    zone(stated.timezone)  # an unknown zone is refused before any file is read
    # Before any fit, which may take long on a large log.
    _check_schema(schema_path)
    catalog = load_catalog(overlay=overlay)
    start_day = None
    if start is not None:
        start_day = start.date()
    workloads, start_day = first_scenario.fit_workloads(sources or (), stated, catalog, start_day)
    if not sources and stated == TrafficOptions():
        workloads = []  # the starter has one of its own
    machines = first_scenario.read_fleet(fleet) if fleet is not None else ()
    machines += first_scenario.read_quotes(quotes) if quotes is not None else ()
    text = first_scenario.scenario_text(name, start_day, workloads, machines, overlay)
    _write_files(scenario_path, text, schema_path)
    if as_json:
        fits = {fitted.name: fitted.json() for fitted in workloads}
        answer = {"scenario": str(scenario_path), "workloads": fits}
        typer.echo(json_text(answer), nl=False)
    elif not quiet:
        # Without files nothing was fitted, and there is nothing to show.
        for fitted in workloads if sources else ():
            table = text_table(("figure", "fitted", "error or origin"), fitted.rows())
            typer.echo(f"{fitted.name}, from {fitted.source}\n\n{table}\n")
        # With quotes the question is what to buy of them.
        verb = "size" if quotes is not None else "run"
        files = f"{scenario_path}, and {schema_path} for your editor"
        typer.echo(f"wrote {files}; try: planner {verb} {scenario_path}")


def _write_files(scenario_path: Path, text: str, schema_path: Path) -> None:
    """Write a new scenario and the schema for editors; raise an error where that is not possible."""
    from planner.scenario.schema import scenario_schema

    try:
        # Opened as new in one step: a scenario that somebody has edited is never overwritten.
        with scenario_path.open("x", encoding="utf-8") as stream:
            stream.write(text)
        # The schema is planner's own, and follows its version.
        schema_path.write_text(json_text(scenario_schema()), encoding="utf-8")
    except FileExistsError:
        message = "exists and will not be overwritten"
        raise ScenarioError(Problem(file=str(scenario_path), message=message)) from None
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise ScenarioError(Problem(file=str(scenario_path), message=message)) from None


def _check_schema(path: Path) -> None:
    """Raise an error where a file of the schema's name is somebody else's."""
    from planner.scenario.schema import WRITTEN_BY

    if not path.exists():
        return
    # By its mark: every schema that planner writes says so.
    text = path.read_text(encoding="utf-8", errors="replace")
    if f'"$comment": "{WRITTEN_BY}"' not in text:
        message = "is not a schema that planner wrote, and will not be overwritten"
        hint = "move it away, or work in another folder"
        problem = Problem(file=str(path), message=message, hint=hint)
        raise ScenarioError(problem)
