"""``planner report``, ``memo`` and ``charts``: what a folder says, written from its files without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.options import AsJson, Quiet

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Output folder that planner wrote.")]


def report(folder: Folder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write report.html of an output folder anew from the files in it."""
    from planner.verbs import report

    written = report(folder)
    _tell({"report": str(written), "bytes": written.stat().st_size}, [written], as_json, quiet)


def memo(folder: Folder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write the two-page memo of a run, comparison, sweep, study or sizing: memo.html, which prints, and memo.md."""
    from planner.verbs import memo

    written = memo(folder)
    _tell({"memo": [str(path) for path in written]}, written, as_json, quiet)


def charts(
    folder: Folder,
    formats: Annotated[str, typer.Option("--format", help="png, svg or both by comma.")] = "png,svg",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Draw an output folder's charts for slides, as PNG and SVG, into its folder charts."""
    from planner.errors import Problem, ScenarioError
    from planner.output.charts import write_charts
    from planner.output.picture import FORMATS

    wanted = [word.strip() for word in formats.split(",")]
    if wrong := [word for word in wanted if word not in FORMATS]:
        message = f"takes {', '.join(FORMATS)} by comma, not {wrong[0]!r}"
        raise ScenarioError(Problem(path="--format", message=message))
    written = write_charts(folder, list(dict.fromkeys(wanted)))
    _tell({"charts": [str(path) for path in written]}, written, as_json, quiet)


def _tell(content: dict[str, Any], written: Sequence[Path], as_json: bool, quiet: bool) -> None:
    """Print what was written, as JSON or a line a file."""
    from planner.errors import printable
    from planner.files import json_text

    if as_json:
        typer.echo(json_text(content), nl=False)
    elif not quiet:
        for path in written:
            typer.echo(f"wrote {printable(str(path))}")
