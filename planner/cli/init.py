"""A plan from what one has: ``planner init``, a commented scenario."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from planner import api
from planner.cli.options import AsJson, Overlay, Quiet, with_overlay
from planner.files import json_text
from planner.onramp.command import TimeUnit

_FROM = (
    "Traffic of a workload: a request log or hourly rates (CSV, JSON lines, .gz), a Prometheus range query (JSON), "
    "vLLM's metrics as text, or http(s)://SERVER. Can be repeated; sources with the same NAME describe one workload. "
    "An inventory or a list of quotes can be given too: its columns identify it."
)
_MODEL = (
    "Catalogue name of the model, for one workload or for all [default: the one in the files]. Can "
    "be repeated."
)
_PRESET = (
    "Kind of traffic, which fills in what no file shows, for one workload or for all: chat, code-completion, "
    "long-context, reasoning, agentic, batch or bulk-api [default: chat]. Can be repeated."
)
_RATE = (
    "Request rate to use instead of the fitted one, for one workload or for all. Can be repeated."
)
_GROWTH = (
    "Yearly growth to use instead of the fitted one, e.g. 0.4; for one workload or for all. Can be "
    "repeated."
)
_SET = "Write a value into the scenario, e.g. workloads.*.slo.ttft_s=1. Can be repeated."
_START = "First day of the plan [default: after the series]."


def init(
    name: Annotated[str, Argument(help="Name of the scenario, written as NAME.yaml.")],
    sources: Annotated[
        list[str] | None, Option("--from", metavar="[NAME=]FILE", help=_FROM)
    ] = None,
    fleet: Annotated[
        Path | None,
        Option(
            metavar="FILE.csv",
            help="Machines you own, with the columns accelerator, nodes, bought and others.",
        ),
    ] = None,
    quotes: Annotated[
        Path | None,
        Option(
            metavar="FILE.csv",
            help="Vendors' quotes, with the columns accelerator, price_usd and others.",
        ),
    ] = None,
    overlay: Overlay = None,
    model: Annotated[list[str] | None, Option(metavar="[NAME=]MODEL", help=_MODEL)] = None,
    preset: Annotated[list[str] | None, Option(metavar="[NAME=]PRESET", help=_PRESET)] = None,
    timezone: Annotated[
        str, Option(help="IANA time zone of the users, for daily patterns that are assumed.")
    ] = "UTC",
    columns: Annotated[
        str | None, Option(metavar="ROLE=COLUMN,...", help="Columns of logs, e.g. input=prompt.")
    ] = None,
    rate: Annotated[
        str | None, Option(metavar="COLUMN", help="Which column of hourly rates to use.")
    ] = None,
    time_unit: Annotated[TimeUnit, Option(help="Unit of numeric timestamps.")] = "auto",
    requests_per_s: Annotated[list[str] | None, Option(metavar="[NAME=]RATE", help=_RATE)] = None,
    growth: Annotated[list[str] | None, Option(metavar="[NAME=]SHARE", help=_GROWTH)] = None,
    start: Annotated[
        datetime.datetime | None, Option(formats=["%Y-%m-%d"], metavar="DATE", help=_START)
    ] = None,
    overrides: Annotated[list[str] | None, Option("--set", metavar="PATH=VALUE", help=_SET)] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented scenario, ready to run, from the files you have, and the schema for your editor next to it.

    Without files it writes a small scenario to start from, with the values that you state. If you give quotes,
    ``planner size`` finds what to buy from them, and when. No server is contacted unless you name one.
    """
    from planner.output.terminal import text_table
    from planner.scenario.schema import SCHEMA_FILE

    draft = api.init(
        name,
        sources or (),
        fleet=fleet,
        quotes=quotes,
        model=model or (),
        preset=preset or (),
        timezone=timezone,
        columns=columns,
        rate=rate,
        time_unit=time_unit,
        requests_per_s=requests_per_s or (),
        growth=growth or (),
        start=None if start is None else start.date(),
        overrides=with_overlay(overrides, overlay),
    )
    file = f"{draft.name}.yaml"
    if as_json:
        fits = {fitted.name: fitted.json() for fitted in draft.workloads}
        answer = {"scenario": file, "workloads": fits}
        typer.echo(json_text(answer), nl=False)
    elif not quiet:
        # Without files nothing was fitted, and there is nothing to show.
        for fitted in draft.workloads if sources else ():
            table = text_table(("figure", "fitted", "error or origin"), fitted.rows())
            typer.echo(f"{fitted.name}, from {fitted.source}\n\n{table}\n")
        # With quotes the question is what to buy of them.
        verb = "size" if draft.has_quotes else "run"
        files = f"{file}, and {SCHEMA_FILE} for your editor"
        typer.echo(f"wrote {files}; try: planner {verb} {file}")
