"""``planner run``: a scenario to a folder of results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, Overrides, Quiet, ScenarioFile, Seed
from planner.cli.progress import stages


def run(
    scenario: ScenarioFile,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Output folder [default: outputs/<name>].")
    ] = None,
    hourly: Annotated[bool, typer.Option("--hourly", help="Also write timeline_hourly.csv (about 8 MB).")] = False,
    decimal_comma: Annotated[bool, typer.Option("--decimal-comma", help="Write 1,5 and separate cells by ;.")] = False,
    byte_order_mark: Annotated[
        bool, typer.Option("--bom", help="Begin CSV files with a UTF-8 byte order mark.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate a scenario and write its timelines, ledger, events and assumptions."""
    from planner.build import build_plan
    from planner.errors import printable
    from planner.reporting.csv_table import CsvFormat
    from planner.reporting.folder import check_target, json_text
    from planner.reporting.run_folder import write_run
    from planner.reporting.summary import summary, summary_table
    from planner.scenario.loading import load_scenario
    from planner.simulation.run import simulate_plan

    loaded = load_scenario(scenario, overrides or ())
    folder = out or Path("outputs") / loaded.name
    check_target(folder)
    with stages(f"{loaded.name}, {loaded.horizon_months} months from {loaded.start}", 3, quiet=quiet) as begin:
        begin("compiling")
        plan = build_plan(loaded)
        begin("simulating")
        result = simulate_plan(loaded, plan, plan.seed if seed is None else seed)
        begin("writing")
        form = CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)
        write_run(result, folder, overrides or (), form=form, hourly=hourly)
    if not quiet:
        for warning in result.plan.warnings:
            print(f"warning: {warning}", file=sys.stderr)
    if as_json:
        typer.echo(json_text(summary(result)), nl=False)
    elif not quiet:
        typer.echo(summary_table(summary(result)))
        typer.echo(f"\nresults in {printable(str(folder))}")
