"""The shipped workload classes: figures that stand in for what a log or a scenario does not say."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from planner.documents import read_document
from planner.errors import Problem, ScenarioError
from planner.validation import choices, nearest

_FILE = Path(__file__).parent / "workload_classes.yaml"


@functools.cache
def workload_class_names() -> tuple[str, ...]:
    """Return the names of the shipped classes."""
    return tuple(read_document(_FILE).content)


@functools.cache
def workload_class(name: str) -> dict[str, Any]:
    """Return one class as field → value, without the sources; raise ScenarioError for an unknown name."""
    classes = read_document(_FILE).content
    if name not in classes:
        hint = nearest(name, list(classes)) or f"classes are {choices(list(classes))}"
        raise ScenarioError(Problem(path="class", message=f"unknown workload class {name!r}", hint=hint))
    return {field: fact["value"] for field, fact in classes[name].items()}
