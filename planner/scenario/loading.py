"""Reading a scenario.

Precedence, from weakest to strongest, key by key:

1. the defaults in the field reference,
2. the file at the end of the ``extends`` chain, then each file that extends it, down to the one that was named,
3. ``--set path=value``, in the order given.

Mappings merge key by key; lists and plain values replace. ``null`` takes a key away again, so that a what-if can drop
a cluster of its base: ``clusters: {h200: null}``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from planner.documents import Document, KeyPath, Location, dotted, parse_document, read_document
from planner.errors import Problem, ScenarioError
from planner.scenario.checks import check_scenario
from planner.scenario.scenario import Scenario
from planner.validation import validate

MAX_EXTENDS = 16


def load_scenario(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Scenario:
    """Read and check a scenario file; ``overrides`` are ``dotted.path=value`` strings as ``--set`` takes them."""
    document = _read_chain(Path(path), ())
    for number, override in enumerate(overrides, start=1):
        _apply_override(document, override, f"--set #{number}")
    return scenario_from_document(document)


def scenario_from_document(document: Document) -> Scenario:
    """Validate merged content and everything that only shows across fields."""
    scenario = validate(Scenario, document)
    scenario._document = document
    check_scenario(scenario)
    return scenario


def _read_chain(path: Path, below: tuple[Path, ...]) -> Document:
    """Read a file over what it extends."""
    document = read_document(path)
    if not isinstance(document.content, dict):
        return document
    chain = (*below, path.resolve())
    base_name = document.content.get("extends")
    if base_name is None:
        return document
    place = document.locations[("extends",)]
    if not isinstance(base_name, str):
        raise ScenarioError(Problem(file=str(path), line=place.line, path="extends", message="must be a file name"))
    base_path = path.parent / base_name
    if base_path.resolve() in chain or len(chain) > MAX_EXTENDS:
        circle = " -> ".join(part.name for part in (*chain, base_path))
        reason = "extends itself" if base_path.resolve() in chain else f"extends more than {MAX_EXTENDS} deep"
        raise ScenarioError(Problem(file=str(path), line=place.line, path="extends", message=f"{reason}: {circle}"))
    if not base_path.exists():
        message = f"no such file: {base_path}"
        raise ScenarioError(Problem(file=str(path), line=place.line, path="extends", message=message))
    base = _read_chain(base_path, chain)
    if not isinstance(base.content, dict):
        raise ScenarioError(Problem(file=str(base_path), message="expected a mapping of keys to values"))
    merge(base, document)
    return base


def merge(base: Document, layer: Document) -> None:
    """Lay one document over another in place: mappings merge, the rest replaces, null removes."""
    base.content = _merged(base.content, layer.content)
    base.locations.update(layer.locations)


def _merged(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    result = dict(below)
    for key, value in above.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _apply_override(document: Document, override: str, origin: str) -> None:
    """Apply one ``dotted.path=value``; the value is YAML, so ``[1, 2]``, ``{a: 1}`` and dates work."""
    path_text, equals, value_text = override.partition("=")
    keys = path_text.strip().split(".")
    if not equals or not all(keys):
        message = f"{override!r} is not of the form dotted.path=value"
        raise ScenarioError(Problem(file=origin, message=message, hint="for example clusters.h200.nodes=80"))
    value = parse_document(value_text, origin).content
    layer: Any = value
    for key in reversed(keys):
        layer = {key: layer}
    path: KeyPath = tuple(keys)
    locations = {path[:end]: Location(origin, None) for end in range(1, len(path) + 1)}
    kept = {key: place for key, place in locations.items() if key not in document.locations or key == path}
    parent = _walk(document.content, path[:-1])
    if parent is not None and not isinstance(parent, dict):
        raise ScenarioError(Problem(file=origin, path=dotted(path), message=f"{dotted(path[:-1])} holds no keys"))
    merge(document, Document(layer, kept))


def _walk(content: Any, path: KeyPath) -> Any:
    """Follow keys through mappings; None where the path does not exist yet."""
    for key in path:
        if not isinstance(content, dict):
            return content
        content = content.get(key)
        if content is None:
            return None
    return content
