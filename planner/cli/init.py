"""``planner init``: a commented scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(
    name: Annotated[str, typer.Argument(help="Name of the scenario; NAME.yaml is written.", show_default=False)],
) -> None:
    """Write a commented starter scenario that runs."""
    from planner.errors import Problem, ScenarioError
    from planner.scenario.starter import starter_text

    text = starter_text(name)
    path = Path(f"{name}.yaml")
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise ScenarioError(Problem(file=str(path), message="exists and will not be overwritten")) from None
    except OSError as error:
        raise ScenarioError(Problem(file=str(path), message=f"cannot be written: {error.strerror}")) from None
    typer.echo(f"wrote {path}; try: planner run {path}")
