"""``planner probe``: measures the machine it runs on and writes the rows a calibration reads."""

from __future__ import annotations

import dataclasses
import json as json_library
from pathlib import Path
from typing import Annotated

import typer

from planner.errors import PlannerError


def probe(
    out: Annotated[Path, typer.Option("--out", help="CSV to write.")],
    device: Annotated[str, typer.Option(help="auto, cuda, cuda:<index> (AMD parts too) or cpu.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and shorter runs.")] = False,
    seconds: Annotated[float | None, typer.Option(help="Seconds each point runs.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Measure this machine: bandwidth, matrix rates by precision, decode and prefill steps, board power."""
    from planner.tools.probe.measure import ProbeOptions, measure_machine
    from planner.tools.probe.rows import write_rows

    options = ProbeOptions(device=device, quick=quick, seconds=seconds)
    try:
        rows = measure_machine(options, progress=lambda text: typer.echo(text, err=True))
        write_rows(rows, out)
    except PlannerError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(error.exit_code) from error
    if json:
        typer.echo(json_library.dumps({"rows": [dataclasses.asdict(row) for row in rows]}, indent=2))
        return
    typer.echo(f"{len(rows)} rows written to {out}")
