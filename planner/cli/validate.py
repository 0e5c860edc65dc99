"""``planner validate`` and ``schema``: check scenarios and studies without running them, here or in an editor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from planner.cli.options import AsJson, Overrides, Quiet, Strict


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Scenario or study files (YAML).")],
    overrides: Overrides = None,
    strict: Strict = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Check scenario and study files without running them; list every problem of every file."""
    from planner.errors import Problem, ScenarioError, printable, raise_all, refuse
    from planner.files import json_text

    problems: list[Problem] = []
    told: list[dict[str, Any]] = []
    for file in files:
        try:
            kind, warnings, notes = _check(file, overrides or ())
            refuse(warnings, strict=strict)
        except ScenarioError as error:
            problems += error.problems
            told.append({"file": str(file), "ok": False, "problems": [str(one) for one in error.problems]})
            continue
        told.append({"file": str(file), "ok": True, "kind": kind, "warnings": warnings, "notes": notes})
        if not (as_json or quiet):
            for severity, lines in (("warning", warnings), ("note", notes)):
                for line in lines:
                    typer.echo(f"{printable(str(file))}: {severity}: {line}", err=True)
            typer.echo(f"{printable(str(file))}: ok, a {kind}")
    if as_json:
        typer.echo(json_text({"files": told}), nl=False)
        raise typer.Exit(ScenarioError.exit_code if problems else 0)
    raise_all(problems)


def schema(
    kind: Annotated[Literal["scenario", "study"], typer.Option("--kind", help="What the files are.")] = "scenario",
) -> None:
    """Print the JSON schema of a scenario or a study, for editors that complete and check YAML."""
    from planner.files import json_text
    from planner.scenario.schema import scenario_schema, study_schema
    from planner.studies.headlines import headline_names

    typer.echo(json_text(scenario_schema() if kind == "scenario" else study_schema(headline_names())), nl=False)


def _check(file: Path, overrides: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """Return what a sound file is, its warnings and its notes; raise ScenarioError with all that is wrong with it."""
    from planner.plan.build import build_plan
    from planner.plan.contradictions import hardly_meant
    from planner.scenario.loading import kind_of, load_scenario
    from planner.yaml_io import read_document

    if kind_of(read_document(file)) == "scenario":
        scenario = load_scenario(file, overrides)
        plan = build_plan(scenario)
        return "scenario", hardly_meant(scenario, plan), list(plan.notes)
    from planner.studies.prepare import prepare

    prepared = prepare(file, overrides)
    notes = [f"{base.name}: {note}" for base in prepared.scenarios for note in build_plan(base.scenario).notes]
    return "study", list(prepared.warnings), notes
