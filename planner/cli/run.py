"""``planner run``: a scenario to a folder of results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import (
    AsJson,
    ByteOrderMark,
    DecimalComma,
    Draws,
    Overrides,
    Quiet,
    ScenarioFile,
    Seed,
    Strict,
    tell,
)
from planner.cli.progress import stages
from planner.simulation.measure_names import DRAWS


def run(
    scenario: ScenarioFile,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Output folder [default: outputs/<name>].")
    ] = None,
    draws: Draws = DRAWS,
    hourly: Annotated[bool, typer.Option("--hourly", help="Also write timeline_hourly.csv (about 8 MB).")] = False,
    parquet: Annotated[bool, typer.Option("--parquet", help="Also write the timelines as Parquet.")] = False,
    strict: Strict = False,
    decimal_comma: DecimalComma = False,
    byte_order_mark: ByteOrderMark = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate a scenario and write its timelines, ledger, measures, events, assumptions and workbook."""
    from planner.build import build_plan
    from planner.errors import printable
    from planner.reporting.csv_table import CsvFormat
    from planner.reporting.folder import check_target, json_text
    from planner.reporting.run_folder import Wanted, write_run
    from planner.reporting.sparkline import month_lines
    from planner.reporting.summary import summary, summary_table
    from planner.scenario.loading import load_scenario
    from planner.simulation.chance import draw_again
    from planner.simulation.run import simulate_plan

    loaded = load_scenario(scenario, overrides or ())
    folder = out or Path("outputs") / loaded.name
    check_target(folder)
    with stages(f"{loaded.name}, {loaded.horizon_months} months from {loaded.start}", 4, quiet=quiet) as begin:
        begin("compiling")
        plan = build_plan(loaded)
        begin("simulating")
        result = simulate_plan(loaded, plan, plan.seed if seed is None else seed)
        tell(result.warnings if strict else (), strict=strict, quiet=quiet)  # before anything is written
        begin("drawing again")
        chance = draw_again(result, draws) if draws > 1 else None
        begin("writing")
        form = CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)
        wanted = Wanted(form=form, hourly=hourly, parquet=parquet)
        write_run(result, folder, overrides or (), chance=chance, wanted=wanted)
    tell(result.warnings, plan.notes, strict=strict, quiet=quiet)
    if as_json:
        typer.echo(json_text(summary(result, chance)), nl=False)
    elif not quiet:
        typer.echo(summary_table(summary(result, chance)))
        typer.echo("\n" + month_lines(result, sys.stdout.encoding or "ascii"))
        typer.echo(f"\nresults in {printable(str(folder))}; open report.html there")
