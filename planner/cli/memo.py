"""``planner memo``: two pages for the board from what a folder holds, without running anything."""

from __future__ import annotations

import typer

from planner.cli.options import AsJson, Quiet
from planner.cli.report import Folder


def memo(folder: Folder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write the two-page memo of a run, comparison, sweep, study or sizing: memo.html, which prints, and memo.md."""
    from planner.errors import printable
    from planner.reporting.folder import json_text
    from planner.verbs import memo

    written = memo(folder)
    if as_json:
        typer.echo(json_text({"memo": [str(path) for path in written]}), nl=False)
    elif not quiet:
        for path in written:
            typer.echo(f"wrote {printable(str(path))}")
