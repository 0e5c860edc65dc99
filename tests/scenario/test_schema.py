from __future__ import annotations

import datetime
import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # stubs are a package of their own
import pytest

from planner.scenario.schema import scenario_schema, study_schema
from planner.studies.replicate import objective_names
from planner.yaml_io import parse_document, read_document

Valid = Callable[[Any], bool]


def as_json(content: Any) -> Any:
    """Return what an editor sees: dates as text."""
    if isinstance(content, dict):
        return {key: as_json(part) for key, part in content.items()}
    if isinstance(content, list):
        return [as_json(part) for part in content]
    return content.isoformat() if isinstance(content, datetime.date) else content


@pytest.fixture(scope="module")
def valid() -> Valid:
    validator = jsonschema.Draft202012Validator(
        schema_of("scenario"), format_checker=jsonschema.FormatChecker()
    )
    return lambda content: bool(validator.is_valid(as_json(content)))


def test_every_shipped_scenario_is_valid(valid: Valid, root: Path) -> None:
    paths = sorted((root / "scenarios").rglob("*.yaml"))
    assert paths
    for path in paths:
        content = read_document(path).content
        if isinstance(content, dict) and {"workloads", "extends"} & set(content):
            assert valid(content), path


@pytest.mark.parametrize(
    "change",
    [
        ("nodes: 4", "nodes: -4"),
        ("nodes: 4", "nodes: four"),
        ("nodes: 4", "nodess: 4"),
        ("start: 2026-01-01", "start: 5"),
        ("name: tiny\n", ""),
        ("    model: llama-3.1-8b\n", ""),
        ("horizon_months: 3", "horizon_months: 3.5"),
    ],
)
def test_an_editor_sees_the_mistakes_that_the_planner_sees(
    valid: Valid, tiny: str, change: tuple[str, str]
) -> None:
    assert valid(parse_document(tiny, "f").content)
    assert not valid(parse_document(tiny.replace(*change), "f").content)


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("extends: base.yaml", True),
        ("extends: base.yaml\nclusters: {h200: null, b200: {nodes: 5}}", True),
        (
            "extends: base.yaml\nworkloads: {chat: {growth: {per_year: 0.5}, slo: {ttft_s: 1}}}",
            True,
        ),
        ("extends: base.yaml\nsite: null", True),
        ("extends: base.yaml\nsite: {tarif: us-ohio}", False),
        ("extends: base.yaml\nclusters: {b200: {nodes: five}}", False),
        ("extends: null\nname: x", False),
        ("extends: 3", False),
        ("clusters: {b200: {nodes: 5}}", False),
    ],
)
def test_a_what_if_may_state_a_part_and_remove(valid: Valid, text: str, fine: bool) -> None:
    assert valid(parse_document(text, "f").content) is fine


@functools.cache
def schema_of(kind: str) -> dict[str, Any]:
    return scenario_schema() if kind == "scenario" else study_schema(objective_names())


@pytest.mark.parametrize("kind", ["scenario", "study"])
def test_every_reference_leads_somewhere(kind: str) -> None:
    schema = schema_of(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    named = set(re.findall(r'"\$ref": "#/\$defs/([^"]+)"', json.dumps(schema)))
    assert named
    assert named <= set(schema["$defs"])


def test_the_shipped_study_is_valid_and_a_spoiled_one_is_not(root: Path) -> None:
    validator = jsonschema.Draft202012Validator(
        schema_of("study"), format_checker=jsonschema.FormatChecker()
    )
    study = as_json(read_document(root / "scenarios" / "mixed-fleet-study.yaml").content)
    assert validator.is_valid(study)
    assert not validator.is_valid({**study, "objective": "profit"})
    assert not validator.is_valid({**study, "workloads": {}})
