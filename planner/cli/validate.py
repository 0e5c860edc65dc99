"""``planner validate``: check scenarios without running them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.options import AsJson, Overrides, Quiet


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenario files (YAML).", show_default=False)],
    overrides: Overrides = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Check scenario files without running them; list every problem of every file."""
    from planner.build import build_plan
    from planner.errors import Problem, ScenarioError, printable
    from planner.reporting.folder import json_text
    from planner.scenario.loading import load_scenario

    problems: list[Problem] = []
    told: list[dict[str, Any]] = []
    for file in files:
        try:
            plan = build_plan(load_scenario(file, overrides or ()))
        except ScenarioError as error:
            problems += error.problems
            told.append({"file": str(file), "ok": False, "problems": [str(one) for one in error.problems]})
            continue
        told.append({"file": str(file), "ok": True, "warnings": list(plan.warnings)})
        if not (as_json or quiet):
            for warning in plan.warnings:
                typer.echo(f"{printable(str(file))}: warning: {warning}", err=True)
            typer.echo(f"{printable(str(file))}: ok")
    if as_json:
        typer.echo(json_text({"files": told}), nl=False)
        raise typer.Exit(ScenarioError.exit_code if problems else 0)
    if problems:
        raise ScenarioError(problems)
