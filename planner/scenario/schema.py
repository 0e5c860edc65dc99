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
        # A file that extends another may state any part; one that does not states a whole.
        "if": {"required": ["extends"], "properties": {"extends": {"type": ["string", "array"]}}},
        "then": {"$ref": f"{_PREFIX}{_CHANGE}{_SCENARIO}"},
        "else": {"$ref": f"{_PREFIX}{_SCENARIO}"},
        "$defs": definitions,
    }


def study_schema(objectives: Sequence[str]) -> dict[str, Any]:
    """Return the schema of a study; ``objectives`` are the measures that may decide it."""
    study = Study.model_json_schema(by_alias=True)
    definitions = study.pop("$defs")
    _offer(definitions["Prior"], "prior", load_catalog().priors)
    properties = definitions["StudyScenario"]["properties"]
    properties["set"] = {
        "description": properties["set"]["description"],
        "$ref": f"{_PREFIX}{_CHANGE}{_SCENARIO}",
    }
    study["properties"]["objective"]["enum"] = list(objectives)
    return {
        "$schema": _DIALECT,
        "$comment": WRITTEN_BY,
        **study,
        "$defs": _definitions() | definitions,
    }


def _definitions() -> dict[str, Any]:
    """Return the schemas of a scenario's parts, each as a whole and as a change."""
    schema = Scenario.model_json_schema(by_alias=True)
    definitions: dict[str, Any] = schema.pop("$defs", {})
    definitions[_SCENARIO] = schema
    catalog = load_catalog()
    _offer(definitions["Cluster"], "accelerator", catalog.accelerators)
    engines = [stack.engine.value for stack in catalog.stacks.values()]
    # An engine has a stack for each vendor: its name is offered once, in the catalogue's order.
    _offer(definitions["Cluster"], "engine", dict.fromkeys(["auto", *engines]))
    _offer(definitions["Workload"], "model", catalog.models)
    _offer(definitions["Cluster"], "precision", catalog.precisions)
    _offer(definitions["Site"], "tariff", catalog.tariffs)
    # In a workload a preset may stand in for lengths, and a part of them may be stated.
    workload = definitions["Workload"]
    lengths = workload["properties"]["lengths"]
    definitions["PresetLengths"] = {
        "anyOf": [lengths, {**lengths, "$ref": f"{_PREFIX}{_CHANGE}TokenLengths"}]
    }
    preset_lengths = {"description": lengths["description"], "$ref": f"{_PREFIX}PresetLengths"}
    definitions["Workload"] = {
        **workload,
        "properties": {**workload["properties"], "lengths": preset_lengths},
        "required": [name for name in workload["required"] if name != "lengths"],
        "if": {"properties": {"preset": {"type": "string"}}, "required": ["preset"]},
        "else": {"required": ["lengths"], "properties": {"lengths": lengths}},
    }
    # Every definition twice: as a whole, and as a change that an extending file may make.
    changes = {_CHANGE + name: _loosened(part) for name, part in definitions.items()}
    return definitions | changes


def _offer(definition: dict[str, Any], field: str, names: Iterable[str]) -> None:
    """Add the catalogue's names to a field as completions, still allowing those of a user's overlay."""
    schema = definition["properties"][field]
    completions: list[dict[str, Any]] = [{"enum": list(names)}, {"type": "string"}]
    is_optional = {"type": "null"} in schema.get("anyOf", ())
    if is_optional:
        completions.append({"type": "null"})
    offered = {**_documentation(schema), "anyOf": completions}
    definition["properties"][field] = offered


def _documentation(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what an editor shows of a field, which it reads at the top level alone."""
    shown_keys = ("description", "default", "title")
    return {key: schema[key] for key in shown_keys if key in schema}


def _loosened(schema: Any) -> Any:
    """Return a schema with nothing required and null allowed, whose references point to such schemas."""
    if isinstance(schema, list):
        return [_loosened(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    loose: dict[str, Any] = {}
    for key, part in schema.items():
        match key:
            # What makes a whole is not asked of a change; its tag may stand in the base.
            case "required" | "minProperties" | "discriminator" | "if" | "else":
                continue
            case "$ref":
                name = part.removeprefix(_PREFIX).removeprefix(_CHANGE)
                loose[key] = f"{_PREFIX}{_CHANGE}{name}"
            case "oneOf":  # without its tag a change may fit several alternatives
                loose["anyOf"] = _loosened(part)
            case "properties":
                fields = {name: _loosened(field) for name, field in part.items()}
                loose[key] = {name: _or_null(field) for name, field in fields.items()}
            case "additionalProperties" if isinstance(part, dict):
                loose[key] = _or_null(_loosened(part))
            case "default" | "const" | "enum" | "examples":
                loose[key] = part
            case _:
                loose[key] = _loosened(part)
    return loose


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with null allowed."""
    return {**_documentation(schema), "anyOf": [schema, {"type": "null"}]}
