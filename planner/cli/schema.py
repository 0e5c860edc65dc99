"""``planner schema``: the JSON schemas of scenarios and studies."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def schema(
    kind: Annotated[Literal["scenario", "study"], typer.Option("--kind", help="What the files are.")] = "scenario",
) -> None:
    """Print the JSON schema of a scenario or a study, for editors that complete and check YAML."""
    from planner.language.schema import scenario_schema, study_schema
    from planner.reporting.folder import json_text
    from planner.studies.headlines import headline_names

    typer.echo(json_text(scenario_schema() if kind == "scenario" else study_schema(headline_names())), nl=False)
