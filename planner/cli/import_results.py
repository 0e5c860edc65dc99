"""``planner import``: results of other projects as tables that check-benchmarks and calibrate read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Quiet

app = typer.Typer(help="Turn results of other projects into a table of measurements.", rich_markup_mode=None)


@app.callback()
def _import() -> None:
    """Turn results of other projects into a table of measurements."""


@app.command("inferencex")
def inferencex(
    file: Annotated[Path, typer.Argument(metavar="FILE.json", help="Results as published.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", metavar="FILE.csv", help="Where to write the table.")],
    quiet: Quiet = False,
) -> None:
    """Read results of the InferenceX benchmark, one or a list of them, and write a row for each."""
    from planner.files import replace_synced, unwritable
    from planner.tools.benchmarks.inferencex import csv_of, read_inferencex

    rows, left_out = read_inferencex(file)
    try:
        replace_synced(out, csv_of(rows).encode())
    except OSError as error:
        raise unwritable(out, error) from None
    if not quiet:
        typer.echo(f"{len(rows)} rows written to {out}")
        for reason, count in left_out.items():
            typer.echo(f"left out {count}: {reason}", err=True)
