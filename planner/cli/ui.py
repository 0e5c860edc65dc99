"""``planner serve``: a page on this machine for turning a scenario's knobs."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.options import Overrides, ScenarioFile
from planner.errors import ScenarioError

MISSING = "planner serve needs starlette and uvicorn: pip install 'datacenter-planner[serve]' (make run does)"


def serve(
    scenario: ScenarioFile,
    overrides: Overrides = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="Port to listen on; 0 takes any that is free.")
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address, and open nothing.")] = False,
) -> None:
    """Turn a scenario's knobs on a page: each move runs it again and redraws its report. Ctrl-C ends it.

    The page is served to this machine alone (127.0.0.1), under an address that nobody can guess, and loads nothing
    from anywhere. What it writes, it writes when asked: a what-if beside the scenario, a run folder under outputs.
    """
    from planner.scenario.loading import load_scenario
    from planner.ui.desk import Desk

    try:
        from planner.ui.server import listen, serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
            raise
        raise ScenarioError(MISSING) from None

    desk = Desk(load_scenario(scenario, overrides or ()))
    listening = listen(port)
    typer.echo(f"running {desk.stated.name} once; Ctrl-C ends it", err=True)
    desk.begin()
    serve(desk, listening, typer.echo, browser=not no_browser)
    typer.echo("stopped", err=True)
