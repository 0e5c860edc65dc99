"""Commands about output folders: report and charts."""

from __future__ import annotations

from planner import api
from planner.cli.options import AsJson, Folder, Quiet
from planner.cli.terminal import print_files


def report(folder: Folder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write report.html of an output folder again from the files in the folder."""
    path = api.report(folder)
    content = {"report": str(path), "bytes": path.stat().st_size}
    print_files(content, [path], as_json=as_json, quiet=quiet)


def charts(folder: Folder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Draw an output folder's charts for slides, as PNG and SVG, into its subfolder charts."""
    from planner.answers.charts import write_charts

    paths = write_charts(folder)
    content = {"charts": [str(path) for path in paths]}
    print_files(content, paths, as_json=as_json, quiet=quiet)
