"""``planner sweep``: a grid of what-ifs to one CSV."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, ByteOrderMark, DecimalComma, Overrides, Quiet, ScenarioFile, Seed, Strict, tell


def sweep(
    scenario: ScenarioFile,
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary",
            metavar="PATH=VALUES",
            help="Key and its values, start:stop:step (stop included) or a,b,c; repeatable, all combinations are run.",
            show_default=False,
        ),
    ],
    overrides: Overrides = None,
    seed: Seed = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Output folder [default: outputs/<name>-sweep].")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Run more than 10,000 points without asking.")] = False,
    strict: Strict = False,
    decimal_comma: DecimalComma = False,
    byte_order_mark: ByteOrderMark = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run every combination of some values and write one tidy CSV."""
    from planner.errors import printable
    from planner.reporting.csv_table import CsvFormat
    from planner.reporting.folder import check_target, command_line, json_text
    from planner.reporting.sweep_table import sweep_rows, sweep_text, write_sweep
    from planner.scenario.loading import load_scenario
    from planner.studies.axes import check_size, count_points, parse_axes
    from planner.studies.sweep import check_values, sweep, warnings_of_points

    axes = parse_axes(vary)
    check_size(axes, confirmed=yes)
    loaded = load_scenario(scenario, overrides or ())
    folder = out or Path("outputs") / f"{loaded.name}-sweep"
    check_target(folder)
    check_values(scenario, axes, overrides or ())
    total = count_points(axes)

    def say(number: int) -> None:
        if not quiet and (number % 10 == 0 or total <= 10):
            print(f"point {number + 1} of {total}", file=sys.stderr)

    points = sweep(scenario, axes, overrides or (), seed, say, strict=strict)
    warnings = warnings_of_points(points)
    form = CsvFormat(decimal_comma=decimal_comma, byte_order_mark=byte_order_mark)
    used = loaded.seed if seed is None else seed
    options = [word for axis in vary for word in ("--vary", axis)]
    options += ["--seed", str(used), *(["--yes"] if yes else []), *form.options]
    manifest = {
        "scenario_file": str(scenario),
        "overrides": list(overrides or ()),
        "seed": used,
        "warnings": warnings,
        "command": command_line("sweep", [str(scenario)], options, overrides or ()),
    }
    write_sweep(loaded, axes, points, folder, manifest, form)
    tell(warnings, strict=strict, quiet=quiet)
    if as_json:
        rows = sweep_rows(axes, points)
        typer.echo(json_text([dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]), nl=False)
    elif not quiet:
        typer.echo(sweep_text(axes, points))
        typer.echo(f"\nresults in {printable(str(folder))}")
