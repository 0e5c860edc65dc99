"""``planner compare``: several scenarios under the same traffic and random numbers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, ByteOrderMark, DecimalComma, Draws, Overrides, Quiet, Seed, Strict, tell
from planner.simulation.measure_names import DRAWS


def compare(
    scenarios: Annotated[
        list[Path], typer.Argument(metavar="SCENARIO...", help="Two or more scenario files.", show_default=False)
    ],
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="NAME", help="Scenario to hold the others against [default: the first]."),
    ] = None,
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Output folder [default: outputs/<names>].")
    ] = None,
    draws: Draws = DRAWS,
    strict: Strict = False,
    decimal_comma: DecimalComma = False,
    byte_order_mark: ByteOrderMark = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run scenarios side by side: measures, savings, and why a token costs more or less."""
    from planner.errors import Problem, ScenarioError, printable
    from planner.reporting.comparison import comparison_summary, comparison_table, write_comparison
    from planner.reporting.csv_table import CsvFormat
    from planner.reporting.folder import check_target, json_text
    from planner.scenario.loading import load_scenario
    from planner.studies.compare import check_comparable, compare, find_baseline

    if len(scenarios) < 2:
        raise ScenarioError(Problem(message="a comparison needs two scenarios or more", hint="name another file"))
    loaded = [load_scenario(path, overrides or ()) for path in scenarios]
    files = {str(path): scenario.name for path, scenario in zip(scenarios, loaded, strict=True)}
    position = find_baseline(loaded, files.get(baseline, baseline) if baseline else None)
    check_comparable(loaded, position)
    folder = out or Path("outputs") / "-vs-".join(scenario.name for scenario in loaded)[:120]
    check_target(folder)

    def say(name: str) -> None:
        if not quiet:
            print(f"simulating {name}", file=sys.stderr)

    comparison = compare(loaded, position, seed, say, draws)
    tell(comparison.warnings, comparison.notes, strict=strict, quiet=quiet)
    form = CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)
    write_comparison(comparison, folder, overrides or (), form)
    if as_json:
        typer.echo(json_text(comparison_summary(comparison)), nl=False)
    elif not quiet:
        typer.echo(comparison_table(comparison))
        typer.echo(f"\nresults in {printable(str(folder))}")
