"""``planner schema``: the JSON schema of the scenario language."""

from __future__ import annotations

import typer


def schema() -> None:
    """Print the JSON schema of a scenario, for editors that complete and check YAML."""
    from planner.reporting.folder import json_text
    from planner.scenario.scenario import Scenario

    content = Scenario.model_json_schema(by_alias=True)
    typer.echo(json_text({"$schema": "https://json-schema.org/draft/2020-12/schema", **content}), nl=False)
