"""Typed records at the edge to JSON: the fields of a dataclass are the keys, in the order of their declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Protocol, TypeVar, runtime_checkable

from pydantic import TypeAdapter, ValidationError

from planner.errors import Problem, ScenarioError

Json = dict[str, object]
"""A JSON object on its way to a file or from one."""
OPTIONAL = {"optional": True}
"""Metadata of a field whose key a file has only where there is something to say."""
Record = TypeVar("Record")


@runtime_checkable
class _OwnJson(Protocol):
    def to_json(self) -> Json: ...


def fields_json(record: object) -> Json:
    """Return the fields of a dataclass as JSON has them, one key each."""
    assert is_dataclass(record)
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    # Keys that were never there keep away, so that files stay as they were.
    absent = {field.name for field in fields(record) if field.metadata == OPTIONAL}
    return {
        name: json_value(value)
        for name, value in values.items()
        if value is not None or name not in absent
    }


def json_value(value: object) -> object:
    """Return a record, or records within mappings and sequences, as JSON has them."""
    if isinstance(value, _OwnJson):
        return value.to_json()
    if is_dataclass(value):
        return fields_json(value)
    if isinstance(value, Mapping):
        return {key: json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        # A named tuple is a record too, a plain one a list.
        names = getattr(value, "_fields", None)
        entries = [json_value(entry) for entry in value]
        if names is None:
            return entries
        return dict(zip(names, entries, strict=True))
    return value


_adapters: dict[object, TypeAdapter[object]] = {}
"""Building one takes some milliseconds, and a report reads several records of a type."""


def read_record(record_type: type[Record], content: object, file: str) -> Record:
    """Return a record from JSON; raise ScenarioError, with the file's name, where it does not fit."""
    if record_type not in _adapters:
        _adapters[record_type] = TypeAdapter(record_type)
    try:
        record = _adapters[record_type].validate_python(content)
    except ValidationError as error:
        # One problem is enough: a summary that was changed by hand is to be written anew, not mended.
        detail = error.errors()[0]
        place = ".".join(map(str, detail["loc"]))
        problem = Problem(
            file=file, message=f"does not fit: {place}: {detail['msg']}", hint="run again"
        )
        raise ScenarioError(problem) from None
    assert isinstance(record, record_type)
    return record
