"""``planner mcp``: the planner's commands as tools of an assistant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from planner.errors import ScenarioError

_PACKAGES = ("mcp", "mcp_types", "anyio")
"""What only the server needs, and a plain installation lacks."""


def mcp(
    folder: Annotated[
        Path,
        Option("--folder", metavar="DIR", help="The folder whose files are read and written."),
    ],
) -> None:
    """Offer validate, run, compare, size, catalogue and explain to an assistant, over the Model Context Protocol.

    It speaks on standard input and output, and ends with them. Files outside the folder are refused, and Python files
    that scenarios name are never run.
    """
    try:
        from planner.mcp.server import serve
    except ModuleNotFoundError as error:
        # Any other missing module is a fault of ours, and keeps its traceback.
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        message = "planner mcp needs the package mcp: pip install 'datacenter-planner[mcp]'"
        raise ScenarioError(message) from None
    if not folder.is_dir():
        raise ScenarioError("is not a folder", file=str(folder), hint="choose another --folder")
    serve(folder)
