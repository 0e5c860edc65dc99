"""``planner memo``: an answer on two pages."""

from __future__ import annotations

from planner import api
from planner.cli.options import AsJson, Folder, Quiet
from planner.cli.terminal import print_files


def memo(folder: Folder, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Write the two-page memo of an output folder: memo.html, which prints, and memo.md."""
    paths = api.memo(folder)
    content = {"memo": [str(path) for path in paths]}
    print_files(content, paths, as_json=as_json, quiet=quiet)
