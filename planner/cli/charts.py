"""``planner charts``: a folder's charts as picture files."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.options import AsJson, Quiet
from planner.cli.report import Folder


def charts(
    folder: Folder,
    formats: Annotated[str, typer.Option("--format", help="png, svg or both by comma.")] = "png,svg",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Draw an output folder's charts for slides, as PNG and SVG, into its folder charts."""
    from planner.errors import Problem, ScenarioError, printable
    from planner.reporting.charts import write_charts
    from planner.reporting.folder import json_text
    from planner.reporting.picture import FORMATS

    wanted = [word.strip() for word in formats.split(",")]
    if wrong := [word for word in wanted if word not in FORMATS]:
        message = f"takes {', '.join(FORMATS)} by comma, not {wrong[0]!r}"
        raise ScenarioError(Problem(path="--format", message=message))
    written = write_charts(folder, list(dict.fromkeys(wanted)))
    if as_json:
        typer.echo(json_text({"charts": [str(path) for path in written]}), nl=False)
    elif not quiet:
        for path in written:
            typer.echo(f"wrote {printable(str(path))}")
