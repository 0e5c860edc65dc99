"""``planner calibrate``: bring measurements of one's own into the throughput model."""

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
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE.yaml", help="What to update [default: the shipped calibration]."),
    ] = None,
    refit: Annotated[
        bool, typer.Option("--refit", help="Fit every coefficient anew to these rows alone; takes hundreds of them.")
    ] = False,
    cross_validation: Annotated[
        bool, typer.Option(help="With --refit, fit again without each campaign, model and part; ten times as long.")
    ] = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Update the throughput model by measurements of your own; a scenario's key calibration brings it into runs."""
    from planner.catalog.calibration import SHIPPED_CALIBRATION, read_calibration, write_calibration
    from planner.tools.benchmarks.calibrate import calibrate as fit_table
    from planner.tools.benchmarks.report import calibration_table, update_table
    from planner.tools.benchmarks.update import update_calibration

    if not quiet:
        typer.echo(f"fitting {table}", err=True)
    base = read_calibration(calibration or SHIPPED_CALIBRATION)
    file = fit_table(table, cross_validation=cross_validation) if refit else update_calibration(table, base)
    write_calibration(file, out)
    if as_json:
        from planner.files import json_text

        typer.echo(json_text(file.model_dump(mode="json", exclude_none=True)), nl=False)
    elif not quiet:
        own_rows = file.own
        typer.echo(
            update_table(own_rows, base.calibration(), file.calibration()) if own_rows else calibration_table(file)
        )
        typer.echo(f"\nwritten to {out}")
