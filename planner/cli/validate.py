"""``planner validate``: check scenarios without running them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.options import Overrides


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenario files (YAML).", show_default=False)],
    overrides: Overrides = None,
) -> None:
    """Check scenario files without running them; list every problem of every file."""
    from planner.build import build_plan
    from planner.errors import Problem, ScenarioError, printable
    from planner.scenario.loading import load_scenario

    problems: list[Problem] = []
    for file in files:
        try:
            plan = build_plan(load_scenario(file, overrides or ()))
            for warning in plan.warnings:
                typer.echo(f"{printable(str(file))}: warning: {warning}", err=True)
            typer.echo(f"{printable(str(file))}: ok")
        except ScenarioError as error:
            problems += error.problems
    if problems:
        raise ScenarioError(problems)
