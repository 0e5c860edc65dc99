"""``planner run``: a scenario to a folder of results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, ByteOrderMark, DecimalComma, Draws, Overrides, Quiet, ScenarioFile, Seed, Strict
from planner.cli.progress import stages, tell
from planner.results.measure_names import DRAWS


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
    processes: Annotated[
        list[str] | None,
        typer.Option(
            "--process",
            metavar="MODULE:FUNCTION",
            help="Run a SimPy process of your own with it, e.g. rounds:weekly from rounds.py here; repeatable.",
            show_default=False,
        ),
    ] = None,
    strict: Strict = False,
    decimal_comma: DecimalComma = False,
    byte_order_mark: ByteOrderMark = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Simulate a scenario and write its timelines, ledger, measures, events, assumptions and workbook."""
    from planner.language.loading import load_scenario
    from planner.verbs import run

    loaded = load_scenario(scenario, overrides or ())
    with stages(f"{loaded.name}, {loaded.horizon_months} months from {loaded.start}", 4, quiet=quiet) as begin:
        answer = run(
            loaded,
            out,
            seed=seed,
            strict=strict,
            draws=draws,
            hourly=hourly,
            parquet=parquet,
            decimal_comma=decimal_comma,
            byte_order_mark=byte_order_mark,
            processes=processes or (),
            progress=begin,
        )
    tell(answer, as_json=as_json, quiet=quiet, more="; open report.html there")
