"""Dotted paths into scenarios: which fields a path reaches, what range they have, and a scenario with them changed."""

from __future__ import annotations

import fnmatch
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from planner.scenario.loading import SUCCESSORS
from planner.scenario.scenario import Scenario
from planner.validation import choices, nearest
from planner.yaml_io import KeyPath, dotted

FIXED = ("name", "description", "extends", "seed", "start", "horizon_months", "catalog", "calibration")
"""What a study cannot vary: the months that scenarios share, and the catalogue and the calibration that compiled parts
are kept by."""


def reach(pattern: str, stated: dict[str, Any]) -> list[KeyPath]:
    """Return the fields of a dumped scenario that a dotted path reaches, ``*`` standing for any part of a name.

    ``{a,b}`` stands for either name. A path as older studies write it reaches the field that took its place.
    """
    if (choice := re.search(r"\{([^{}]*)\}", pattern)) is not None:
        before, after = pattern[: choice.start()], pattern[choice.end() :]
        return [path for name in choice[1].split(",") for path in reach(f"{before}{name.strip()}{after}", stated)]
    reached = [path for path, _ in _walk(tuple(pattern.split(".")), stated, ())]
    moved = [new for old, new in SUCCESSORS.items() if fnmatch.fnmatchcase(dotted(old), pattern)]
    return reached + [new for new in moved if any(True for _ in _walk(tuple(map(str, new)), stated, ()))]


def _walk(rest: tuple[str, ...], content: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if not rest:
        yield path, content
        return
    if isinstance(content, dict):
        for key in fnmatch.filter(content, rest[0]):
            yield from _walk(rest[1:], content[key], (*path, key))
    elif isinstance(content, tuple | list) and rest[0].isdigit() and int(rest[0]) < len(content):
        yield from _walk(rest[1:], content[int(rest[0])], (*path, int(rest[0])))


def why_unreachable(pattern: str, dumps: list[dict[str, Any]]) -> str:
    """Return the hint for a path that reaches nothing: the nearest key at the level where it goes astray."""
    parts = pattern.split(".")
    for depth in range(len(parts), 0, -1):
        known = {
            str(key)
            for dump in dumps
            for _, content in _walk(tuple(parts[: depth - 1]), dump, ())
            if isinstance(content, dict)
            for key in content
        }
        if known:
            return nearest(parts[depth - 1], known) or f"there are {choices(known)}"
    return "paths are those that --set takes"


def at(content: Any, path: KeyPath) -> Any:
    """Return what stands at a path."""
    for key in path:
        content = content[key]
    return content


def replaced(content: Any, path: KeyPath, value: Any) -> Any:
    """Return content with one value replaced; what does not lie on the path is shared, not copied."""
    if not path:
        return value
    key = path[0]
    if isinstance(content, tuple):
        index = int(key)
        return (*content[:index], replaced(content[index], path[1:], value), *content[index + 1 :])
    below = content if isinstance(content, dict) else {}
    return {**below, key: replaced(below.get(key), path[1:], value)}


def bounds(path: KeyPath) -> tuple[float | None, float | None]:
    """Return the lowest and highest number a scenario's field may hold, None where there is no limit."""
    annotations: list[Any] = [Scenario]
    limits: list[Any] = []
    for key in path:
        ends: list[Any] = []
        limits = []
        for annotation in annotations:
            for model in _parts(annotation):
                if isinstance(model, type) and issubclass(model, BaseModel):
                    for name, field in model.model_fields.items():
                        if key in (name, field.alias):
                            ends.append(field.annotation)
                            limits += field.metadata
                elif typing.get_origin(model) in (dict, tuple):
                    ends.append(typing.get_args(model)[1 if typing.get_origin(model) is dict else 0])
        annotations = ends
    for annotation in annotations:
        limits += _marks(annotation)
    low = [getattr(mark, side) for mark in limits for side in ("ge", "gt") if getattr(mark, side, None) is not None]
    high = [getattr(mark, side) for mark in limits for side in ("le", "lt") if getattr(mark, side, None) is not None]
    numbers = (int, float)
    return (
        max((float(limit) for limit in low if isinstance(limit, numbers)), default=None),
        min((float(limit) for limit in high if isinstance(limit, numbers)), default=None),
    )


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield what an annotation may hold, looking through Annotated, Optional and unions."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        yield from _parts(typing.get_args(annotation)[0])
    elif origin in (typing.Union, types.UnionType):
        for part in typing.get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation


def _marks(annotation: Any) -> Iterator[Any]:
    """Yield the limits written into an annotation."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        for mark in arguments[1:]:
            yield from getattr(mark, "metadata", ()) or (mark,)
        yield from _marks(arguments[0])
    elif origin in (typing.Union, types.UnionType):
        for part in arguments:
            yield from _marks(part)
