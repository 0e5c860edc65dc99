"""The JSON schema of the scenario language, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

from planner.scenario.scenario import Scenario

_PREFIX = "#/$defs/"
_WHOLE, _CHANGE = "Scenario", "Change-"


def scenario_schema() -> dict[str, Any]:
    """Return the schema: a whole scenario, or, in a file that extends another, any part of one with nulls to remove."""
    whole = Scenario.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = {**whole.pop("$defs", {}), _WHOLE: whole}
    definitions["Workload"] = _with_classes(definitions["Workload"], definitions)
    changes = {_CHANGE + name: _loosened(definition) for name, definition in definitions.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Scenario",
        "description": whole.get("description", ""),
        "type": "object",
        "if": {"required": ["extends"], "properties": {"extends": {"type": "string"}}},
        "then": {"$ref": f"{_PREFIX}{_CHANGE}{_WHOLE}"},
        "else": {"$ref": f"{_PREFIX}{_WHOLE}"},
        "$defs": definitions | changes,
    }


def _with_classes(workload: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a workload in which a class may stand in for lengths, and a part of them may be stated."""
    lengths = workload["properties"]["tokens"]
    partly = {**lengths, "$ref": f"{_PREFIX}{_CHANGE}Tokens"}
    definitions["ClassedTokens"] = {"anyOf": [lengths, partly]}
    needed = [name for name in workload["required"] if name != "tokens"]
    return {
        **workload,
        "properties": {
            **workload["properties"],
            "tokens": {"description": lengths["description"], "$ref": f"{_PREFIX}ClassedTokens"},
        },
        "required": needed,
        "if": {"properties": {"class": {"type": "string"}}, "required": ["class"]},
        "else": {"required": ["tokens"], "properties": {"tokens": lengths}},
    }


def _loosened(schema: Any) -> Any:
    """Return a schema in which nothing is required, null removes, and references lead to schemas like it."""
    if isinstance(schema, list):
        return [_loosened(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    loose = {}
    for key, part in schema.items():
        match key:
            case "required" | "minProperties" | "discriminator" | "if" | "else":
                continue
            case "$ref":
                loose[key] = part.replace(_PREFIX, _PREFIX + _CHANGE)
            case "oneOf":  # without its tag a change may fit several alternatives
                loose["anyOf"] = _loosened(part)
            case "properties":
                loose[key] = {name: _or_null(_loosened(field)) for name, field in part.items()}
            case "additionalProperties" if isinstance(part, dict):
                loose[key] = _or_null(_loosened(part))
            case "default" | "const" | "enum" | "examples":
                loose[key] = part
            case _:
                loose[key] = _loosened(part)
    return loose


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Allow null, keeping the documentation where an editor looks for it."""
    kept: dict[str, Any] = {key: schema[key] for key in ("description", "default", "title") if key in schema}
    return {**kept, "anyOf": [schema, {"type": "null"}]}
