"""``planner schema``: the JSON schema of the scenario language."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON schema of a scenario, for editors that complete and check YAML."""
    from planner.reporting.folder import json_text
    from planner.scenario.schema import scenario_schema

    typer.echo(json_text(scenario_schema()), nl=False)
