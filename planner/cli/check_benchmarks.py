"""``planner check-benchmarks``: hold the throughput formula against measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson


def check_benchmarks(
    table: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Measured runs.", show_default=False)],
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", metavar="FILE.yaml", help="Coefficients to use [default: those shipped]."),
    ] = None,
    worst: Annotated[int, typer.Option("--worst", min=0, help="How many of the worst rows to print.")] = 15,
    by_request: Annotated[
        bool,
        typer.Option(
            "--by-request",
            help="Simulate request by request: the clients of rows that state a concurrency, the arrivals of "
            "Server and Interactive rows; no others.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Predict each measured run and print the errors by accelerator, engine and model, worst rows first."""
    from planner.catalog.calibration import SHIPPED_CALIBRATION, read_calibration
    from planner.catalog.load import load_catalog
    from planner.tools.benchmarks.check import check_benchmarks as check_table
    from planner.tools.benchmarks.check import entries, summary
    from planner.tools.benchmarks.report import check_report
    from planner.tools.benchmarks.table import read_benchmarks

    frame = read_benchmarks(table)
    coefficients = read_calibration(calibration or SHIPPED_CALIBRATION).calibration()
    if by_request:
        from planner.tools.benchmarks.clients import predict_by_request, rows_by_request

        frame = rows_by_request(frame)
        checked = check_table(frame, load_catalog(), coefficients, predict_by_request)
    else:
        checked = check_table(frame, load_catalog(), coefficients)
    if as_json:
        import json

        text = json.dumps({"rows": list(entries(checked)), "summary": summary(checked)}, indent=None, allow_nan=False)
        typer.echo(text)
        return
    typer.echo(check_report(checked, worst))
