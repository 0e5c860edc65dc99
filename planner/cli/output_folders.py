"""Commands about output folders: report and charts."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from planner import api
from planner.cli.options import AsJson, Folder, Quiet
from planner.cli.terminal import print_files
from planner.errors import Problem, ScenarioError


def report(folder: Folder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write report.html of an output folder anew from the files in it."""
    path = api.report(folder)
    content = {"report": str(path), "bytes": path.stat().st_size}
    print_files(content, [path], as_json=as_json, quiet=quiet)


def charts(
    folder: Folder,
    formats: Annotated[str, Option("--format", help="png, svg or both by comma.")] = "png,svg",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Draw an output folder's charts for slides, as PNG and SVG, into its folder charts."""
    from planner.answers.charts import write_charts
    from planner.output.svg import FORMATS

    names = [word.strip() for word in formats.split(",")]
    # Before any is drawn: a folder has all charts that were asked for, or none.
    for name in names:
        if name not in FORMATS:
            message = f"takes {', '.join(FORMATS)} by comma, not {name!r}"
            raise ScenarioError(Problem(path="--format", message=message))
    # Each format once, in the order in which they are named.
    paths = write_charts(folder, list(dict.fromkeys(names)))
    content = {"charts": [str(path) for path in paths]}
    print_files(content, paths, as_json=as_json, quiet=quiet)
