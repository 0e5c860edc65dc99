"""The JSON schemas of scenarios and studies, for editors that complete and check YAML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from planner.catalog.load import load_catalog
from planner.scenario.scenario import Scenario
from planner.scenario.study import Study

_PREFIX = "#/$defs/"
_SCENARIO = "Scenario"
_CHANGE = "Change-"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_FILE = "scenario.schema.json"
"""What a scenario's first line calls the schema beside it."""
WRITTEN_BY = "planner schema"
"""Comment by which a schema that planner wrote is known again, and may be written anew."""


def scenario_schema() -> dict[str, Any]:
    """Return the schema of a whole scenario, or of part of one, with nulls, in a file that extends another."""
    definitions = _definitions()
    return {
        "$schema": _DIALECT,
        "$comment": WRITTEN_BY,
        "title": "Scenario",
        "description": definitions[_SCENARIO].get("description", ""),
        "type": "object",
        "if": {"required": ["extends"], "properties": {"extends": {"type": ["string", "array"]}}},
        "then": {"$ref": f"{_PREFIX}{_CHANGE}{_SCENARIO}"},
        "else": {"$ref": f"{_PREFIX}{_SCENARIO}"},
        "$defs": definitions,
    }


def study_schema(headlines: Sequence[str]) -> dict[str, Any]:
    """Return the schema of a study; ``headlines`` are the outputs allowed as objective."""
    study = Study.model_json_schema(by_alias=True)
    definitions = study.pop("$defs")
    _offer(definitions["Prior"], "prior", load_catalog().priors)
    changed = definitions["StudyScenario"]["properties"]["set"]
    reference = f"{_PREFIX}{_CHANGE}{_SCENARIO}"
    definitions["StudyScenario"]["properties"]["set"] = {
        "description": changed["description"],
        "$ref": reference,
    }
    study["properties"]["objective"]["enum"] = list(headlines)
    return {
        "$schema": _DIALECT,
        "$comment": WRITTEN_BY,
        **study,
        "$defs": _definitions() | definitions,
    }


def _definitions() -> dict[str, Any]:
    """Return the schemas of a scenario's parts, each as a whole and as a change."""
    schema = Scenario.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = {**schema.pop("$defs", {}), _SCENARIO: schema}
    catalog = load_catalog()
    _offer(definitions["Cluster"], "accelerator", catalog.accelerators)
    engines = ("auto", *(stack.engine.value for stack in catalog.stacks.values()))
    _offer(definitions["Cluster"], "engine", dict.fromkeys(engines))
    _offer(definitions["Workload"], "model", catalog.models)
    _offer(definitions["Cluster"], "precision", catalog.precisions)
    _offer(definitions["Site"], "tariff", catalog.tariffs)
    # In a workload a class may stand in for lengths, and a part of them may be stated.
    workload = definitions["Workload"]
    lengths = workload["properties"]["lengths"]
    definitions["PresetLengths"] = {
        "anyOf": [lengths, {**lengths, "$ref": f"{_PREFIX}{_CHANGE}TokenLengths"}]
    }
    either = {"description": lengths["description"], "$ref": f"{_PREFIX}PresetLengths"}
    definitions["Workload"] = {
        **workload,
        "properties": {**workload["properties"], "lengths": either},
        "required": [name for name in workload["required"] if name != "lengths"],
        "if": {"properties": {"preset": {"type": "string"}}, "required": ["preset"]},
        "else": {"required": ["lengths"], "properties": {"lengths": lengths}},
    }
    return definitions | {
        _CHANGE + name: _loosened(definition) for name, definition in definitions.items()
    }


def _offer(definition: dict[str, Any], field: str, names: Iterable[str]) -> None:
    """Add the catalogue's names to a field as completions, still allowing those of a user's overlay."""
    text = definition["properties"][field]
    kept = {key: text[key] for key in ("description", "default", "title") if key in text}
    optional = [part for part in text.get("anyOf", ()) if part == {"type": "null"}]
    definition["properties"][field] = {
        **kept,
        "anyOf": [{"enum": list(names)}, {"type": "string"}, *optional],
    }


def _loosened(schema: Any) -> Any:
    """Return a schema with nothing required and null allowed, whose references point to such schemas."""
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
                loose[key] = (
                    part
                    if part.startswith(_PREFIX + _CHANGE)
                    else part.replace(_PREFIX, _PREFIX + _CHANGE)
                )
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
    """Return the schema with null allowed, with the documentation at the top level for editors."""
    kept: dict[str, Any] = {
        key: schema[key] for key in ("description", "default", "title") if key in schema
    }
    return {**kept, "anyOf": [schema, {"type": "null"}]}
