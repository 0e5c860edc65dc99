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
    "vLLM's metrics as text, or http(s)://SERVER; repeatable. Sources of one NAME are one workload's. "
    "An inventory or a list of quotes is told by its columns."
)
_MODEL = "Served model, by its catalogue name [default: the files'], of a workload or of all; repeatable."
_PRESET = (
    "For what no file shows, of a workload or of all: chat, code-completion, long-context, reasoning, agentic, batch "
    "or bulk-api [default: chat]; repeatable."
)
_RATE = "State the rate instead of fitting it, of a workload or of all; repeatable."
_GROWTH = "Growth a year, in place of the fitted: 0.4, of a workload or of all; repeatable."
_SET = "Write a value into the scenario, e.g. workloads.*.slo.ttft_s=1; repeatable."
_START = "First day [default: after the series]."


def init(
    name: Annotated[str, Argument(help="Name of the scenario; NAME.yaml is written.")],
    sources: Annotated[
        list[str] | None, Option("--from", metavar="[NAME=]FILE", help=_FROM)
    ] = None,
    fleet: Annotated[
        Path | None,
        Option(metavar="FILE.csv", help="Machines owned: accelerator, nodes, bought, ..."),
    ] = None,
    quotes: Annotated[
        Path | None, Option(metavar="FILE.csv", help="Vendors' quotes: accelerator, price_usd, ...")
    ] = None,
    overlay: Overlay = None,
    model: Annotated[list[str] | None, Option(metavar="[NAME=]MODEL", help=_MODEL)] = None,
    preset: Annotated[list[str] | None, Option(metavar="[NAME=]PRESET", help=_PRESET)] = None,
    timezone: Annotated[str, Option(help="IANA zone of the users, for class shapes.")] = "UTC",
    columns: Annotated[
        str | None, Option(metavar="ROLE=COLUMN,...", help="Of logs, e.g. input=prompt.")
    ] = None,
    rate: Annotated[
        str | None, Option(metavar="COLUMN", help="Rate column of hourly rates.")
    ] = None,
    time_unit: Annotated[TimeUnit, Option(help="Of numeric timestamps.")] = "auto",
    requests_per_s: Annotated[list[str] | None, Option(metavar="[NAME=]RATE", help=_RATE)] = None,
    growth: Annotated[list[str] | None, Option(metavar="[NAME=]SHARE", help=_GROWTH)] = None,
    start: Annotated[
        datetime.datetime | None, Option(formats=["%Y-%m-%d"], metavar="DATE", help=_START)
    ] = None,
    overrides: Annotated[list[str] | None, Option("--set", metavar="PATH=VALUE", help=_SET)] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a commented scenario that runs, from the files you have, and beside it the schema for your editor.

    Without files it is a small one to start from, with what is stated of its workload. With quotes, ``planner size``
    finds what to buy of them, and when. A server is read only where you name one.
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
