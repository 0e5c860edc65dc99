"""``planner calibrate``: fit the throughput formula to a table of measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, Quiet


def calibrate(
    table: Annotated[
        Path,
        typer.Argument(metavar="FILE.csv", help="Measurements, as check-benchmarks reads them.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE.yaml", help="Where to write the calibration.")],
    cross_validation: Annotated[
        bool, typer.Option(help="Fit again without each accelerator, engine and model; takes some ten times as long.")
    ] = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit the throughput coefficients to measurements and write them with their errors."""
    from planner.catalog.calibration import write_calibration
    from planner.tools.benchmarks.calibrate import calibrate as fit_table
    from planner.tools.benchmarks.report import calibration_table

    if not quiet:
        typer.echo(f"fitting {table}", err=True)
    found = fit_table(table, cross_validation=cross_validation)
    write_calibration(found, out)
    if as_json:
        from planner.reporting.folder import json_text

        typer.echo(json_text(found.model_dump()), nl=False)
    elif not quiet:
        typer.echo(calibration_table(found))
        typer.echo(f"\nwritten to {out}")
