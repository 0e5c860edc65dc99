"""``planner ui``: the page on which settings of scenarios are changed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from planner import api
from planner.cli.options import AllowCode, Overrides
from planner.errors import ScenarioError

_WEB_PACKAGES = ("starlette", "uvicorn", "anyio")
"""What only the page needs, and a plain installation lacks."""


def ui(
    scenarios: Annotated[
        list[Path] | None,
        Argument(metavar="[SCENARIO]...", help="Scenario files (YAML).", show_default=False),
    ] = None,
    overrides: Overrides = None,
    port: Annotated[
        int, Option(min=0, max=65535, metavar="N", help="Port to listen on; 0 takes any free one.")
    ] = 0,
    no_browser: Annotated[
        bool, Option("--no-browser", help="Print the address without opening a browser.")
    ] = False,
    _allow_code: AllowCode = False,
) -> None:
    """Plan on a page, from your own files or from scenarios, and see plans in several futures. Ctrl-C ends it.

    Without a scenario the page asks ten questions and takes the files you have. Only this machine can open it
    (127.0.0.1), under an address that nobody can guess, and it loads nothing from anywhere. It writes files only when
    asked: a scenario into the current folder, a what-if next to its scenario, and a run with its memo, a sizing or one
    HTML file under outputs.
    """
    from planner.ui.workbench import EXAMPLES, Workbench

    try:
        from planner.ui.server import listen, serve
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # Any other missing module is a fault of ours, and keeps its traceback.
        if package not in _WEB_PACKAGES:
            raise
        message = "planner ui needs starlette and uvicorn: pip install 'datacenter-planner[ui]' (make run does)"
        raise ScenarioError(message) from None

    files = scenarios or sorted(EXAMPLES.glob("*.yaml"))
    plans = [api.load(file, overrides or ()) for file in files]
    workbench = Workbench(plans, asks_first=not scenarios)
    # The port is taken before the first run, so that one in use is refused at once.
    listening = listen(port)
    if workbench.asks_first:
        typer.echo("Ctrl-C ends it", err=True)
        # While somebody answers: the first plan of theirs then comes sooner.
        threading.Thread(target=workbench.run_first_plan, daemon=True).start()
    else:
        typer.echo(f"running {next(iter(workbench.scenarios))} once; Ctrl-C ends it", err=True)
        workbench.run_first_plan()
    serve(workbench, listening, typer.echo, browser=not no_browser)
    typer.echo("stopped", err=True)
