"""``planner report``: write a folder's report anew, without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import AsJson, Quiet

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder that planner wrote.", show_default=False)]


def report(folder: Folder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write report.html of an output folder anew from the files in it."""
    from planner.errors import printable
    from planner.reporting.folder import json_text
    from planner.verbs import report

    written = report(folder)
    if as_json:
        typer.echo(json_text({"report": str(written), "bytes": written.stat().st_size}), nl=False)
    elif not quiet:
        typer.echo(f"wrote {printable(str(written))}")
