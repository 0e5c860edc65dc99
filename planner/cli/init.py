"""``planner init``: a commented scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def init(
    name: Annotated[str, typer.Argument(help="Name of the scenario; NAME.yaml is written.", show_default=False)],
) -> None:
    """Write a commented starter scenario that runs, and beside it the schema by which an editor completes it."""
    from planner.errors import Problem, ScenarioError
    from planner.language.schema import SCHEMA_FILE, WRITTEN_BY, scenario_schema
    from planner.language.starter import starter_text
    from planner.reporting.folder import json_text

    text = starter_text(name)
    path, beside = Path(f"{name}.yaml"), Path(SCHEMA_FILE)
    if beside.exists() and f'"$comment": "{WRITTEN_BY}"' not in beside.read_text(encoding="utf-8", errors="replace"):
        message = "is not a schema that planner wrote, and will not be overwritten"
        raise ScenarioError(Problem(file=str(beside), message=message, hint="move it away, or work in another folder"))
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
        beside.write_text(json_text(scenario_schema()), encoding="utf-8")
    except FileExistsError:
        raise ScenarioError(Problem(file=str(path), message="exists and will not be overwritten")) from None
    except OSError as error:
        raise ScenarioError(Problem(file=str(path), message=f"cannot be written: {error.strerror}")) from None
    typer.echo(f"wrote {path}, and {beside} for your editor; try: planner run {path}")
