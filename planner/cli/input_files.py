"""Commands about input files: validate and schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from planner import api
from planner.cli.options import AllowCode, AsJson, Overrides, Quiet, Strict
from planner.errors import Problem, ScenarioError, printable, raise_all, refuse
from planner.files import json_text
from planner.records import record


@record
class _Checked:
    """A file without errors: what it is, and what is remarkable about it."""

    kind: str
    warnings: Sequence[str]
    notes: Sequence[str]


def _check_file(file: Path, overrides: Sequence[str]) -> _Checked:
    """Read a scenario or a study and compile its plans, without running them."""
    from planner.plan.build import build_plan
    from planner.plan.contradictions import all_warnings
    from planner.scenario.loading import kind_of, plan_in_future
    from planner.yaml_io import read_document

    if kind_of(read_document(file)) == "scenario":
        scenario = api.load(file, overrides)
        # A future of several plans may name what this one lacks: what it does set must be right.
        for future in scenario.futures.values():
            plan_in_future(scenario, future)
        plan = build_plan(scenario)
        warnings = all_warnings(scenario, plan)
        return _Checked(kind="scenario", warnings=warnings, notes=plan.notes)

    # What prepares studies is loaded for a study alone.
    from planner.studies.prepare import prepare

    prepared = prepare(file, overrides)
    notes: list[str] = []
    for base in prepared.scenarios:
        notes += [f"{base.name}: {note}" for note in build_plan(base.scenario).notes]
    return _Checked(kind="study", warnings=prepared.warnings, notes=notes)


def validate(
    files: Annotated[
        list[Path], Argument(metavar="FILE...", help="Scenario or study files (YAML).")
    ],
    overrides: Overrides = None,
    strict: Strict = False,
    _allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Check scenario and study files without running them; list every problem of every file."""
    problems: list[Problem] = []
    entries: list[dict[str, Any]] = []
    for file in files:
        # A file with errors does not end the check: all problems of all files are listed at once.
        try:
            checked = _check_file(file, overrides or ())
            refuse(checked.warnings, strict=strict)
        except ScenarioError as error:
            problems += error.problems
            sentences = [str(problem) for problem in error.problems]
            entry = {"file": str(file), "ok": False, "problems": sentences}
            entries.append(entry)
            continue
        warnings = list(checked.warnings)
        notes = list(checked.notes)
        entry = {"file": str(file), "ok": True, "kind": checked.kind}
        entries.append(entry | {"warnings": warnings, "notes": notes})
        if not (as_json or quiet):
            name = printable(str(file))
            # Remarks to standard error, so that the verdicts alone can be piped.
            for warning in warnings:
                typer.echo(f"{name}: warning: {warning}", err=True)
            for note in notes:
                typer.echo(f"{name}: note: {note}", err=True)
            typer.echo(f"{name}: ok, a {checked.kind}")
    if as_json:
        typer.echo(json_text({"files": entries}), nl=False)
        # The problems are in the JSON: only the status is left to give.
        raise typer.Exit(ScenarioError.exit_code if problems else 0)
    raise_all(problems)


def schema(
    kind: Annotated[Literal["scenario", "study"], Option(help="Kind of the files.")] = "scenario",
) -> None:
    """Print the JSON schema of a scenario or a study, for editors that complete and check YAML."""
    from planner.scenario.schema import scenario_schema, study_schema
    from planner.studies.replicate import objective_names

    content = scenario_schema() if kind == "scenario" else study_schema(objective_names())
    typer.echo(json_text(content), nl=False)
