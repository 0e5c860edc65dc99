"""From pydantic's errors to messages with file, line, dotted path, value, allowed values and nearest key."""

from __future__ import annotations

import ast
import copy
import datetime
import functools
import inspect
import itertools
import re
import sys
import types
import typing
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from planner.data_files import data_rows
from planner.errors import Problem, ScenarioError
from planner.yaml_io import Document, KeyPath, parse_scalar, value_at

ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_PROBLEMS = 50
"""Most problems named at once: a file can be wrong in 100,000 places, and nobody waits for them all."""
_ROUNDS = 4
"""Times that invalid values are left out: without one its entry may be incomplete, and so its section."""
_MOST_CHOICES = 24
"""Names of a list that a message has room for: one of all models fills a screen and helps nobody."""
_PHRASE_ROWS = data_rows(__file__, "phrases.csv")
_PHRASES = {row["error"]: row["phrase"] for row in _PHRASE_ROWS}
_REFUSAL_ROWS = data_rows(__file__, "not_modelled.csv")
NOT_MODELLED = {row["pattern"]: (row["message"], row["hint"]) for row in _REFUSAL_ROWS}
"""What operators use and nobody has published a measured gain of, by keys that ask for it: why not, and what to do."""


class Strict(BaseModel):
    """Base of all user-facing models: unknown keys are errors, values are frozen, fields have docstrings.

    Nothing is converted: ``nodes: "12"`` and ``nodes: true`` are mistakes, not numbers. Sequences are tuples, which
    are frozen too. Docstrings are read from the source when somebody asks for them: pydantic would read them whenever
    a model is imported, which takes longer than all the rest of an import. For the same reason modules of models do
    without ``from __future__ import annotations``: pydantic would evaluate each annotation's text again.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        populate_by_name=True,
        defer_build=True,
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the JSON schema with the docstring of each field."""
        json_schema = handler(schema)
        properties = handler.resolve_ref_schema(json_schema)["properties"]
        for name, field in cls.model_fields.items():
            if text := field_docstring(cls, name):
                properties[field.alias or name]["description"] = text
        return json_schema


def field_docstring(model: type[BaseModel], name: str) -> str:
    """Return the docstring under a field, from the class that defines it; empty where there is none."""
    for owner in model.__mro__:
        class_name = owner.__name__.partition("[")[0]  # Sourced[float] is written as Sourced
        docstrings = _docstrings(owner.__module__)
        text = docstrings.get((class_name, name))
        if text is not None:
            return text
    return ""


@functools.cache
def _docstrings(module: str) -> dict[tuple[str, str], str]:
    """Return the docstrings under fields in a module's source, by class and field."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (OSError, TypeError):  # no source: a builtin, or one that was typed in
        return {}
    texts: dict[tuple[str, str], str] = {}
    # Models are defined at the top of a module, never inside a function.
    for definition in ast.parse(source).body:
        if not isinstance(definition, ast.ClassDef):
            continue
        for statement, successor in itertools.pairwise(definition.body):
            match statement, successor:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[definition.name, name] = inspect.cleandoc(text)
    return texts


def validate(model: type[ModelT], document: Document) -> ModelT:
    """Return a document as a pydantic model; raise one ScenarioError that lists every problem."""
    if not isinstance(document.content, dict):
        holds = "is empty"
        if document.content is not None:
            holds = f"holds {_describe(document.content)}"
        message = f"{holds}; expected a mapping of keys to values"
        raise ScenarioError(document.problem((), message))
    try:
        return model.model_validate(frozen(document.content))
    except ValidationError as error:
        details = error.errors(include_url=False)
    # A dict, not a list: the members of a union may each refuse a value in the same words.
    problems: dict[Problem, None] = {}
    for count, detail in enumerate(details):
        if len(problems) == MAX_PROBLEMS:
            place = document.locate(())
            file = place.file if place else None
            message = f"and {len(details) - count} more problems"
            problems[Problem(file=file, message=message)] = None
            break
        problems[_problem(model, document, detail)] = None
    raise ScenarioError(list(problems))


def sound_part(model: type[ModelT], document: Document) -> ModelT | None:
    """Return a document validated without its invalid values; None where nothing usable is left.

    One message can then name both the values that are wrong in themselves and those that contradict each other.
    """
    content = copy.deepcopy(document.content)
    for _ in range(_ROUNDS):
        try:
            return model.model_validate(frozen(content))
        except ValidationError as error:
            details = error.errors(include_url=False)
        for detail in details[:MAX_PROBLEMS]:
            path, _owner = _resolve(model, detail["loc"], content)
            # Where a key is missing, the mapping that lacks it is what is invalid.
            if detail["type"] == "missing":
                path = path[:-1]
            # The document itself is invalid: nothing is left of it.
            if not path:
                return None
            parent = value_at(content, path[:-1])
            while not isinstance(parent, dict):
                path = path[:-1]  # an item of a list takes its list with it
                parent = value_at(content, path[:-1])
            parent.pop(path[-1], None)
    return None


def frozen(content: Any) -> Any:
    """Return plain data with tuples for lists."""
    if isinstance(content, dict):
        return {key: frozen(part) for key, part in content.items()}
    if isinstance(content, list | tuple):
        return tuple(map(frozen, content))
    return content


def nearest(word: str, names: typing.Iterable[str]) -> str | None:
    """Return ``did you mean X?`` for the closest known word, ignoring case, or None."""
    import difflib  # noqa: PLC0415 - only where something is wrong

    # Case is the commonest slip of all, and no distance at all.
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    if not close:
        return None
    return f"did you mean {by_lower[close[0]]}?"


def choices(names: typing.Iterable[str]) -> str:
    """Return a list of allowed values as text, shortened when long."""
    ordered = sorted(names)
    text = ", ".join(ordered[:_MOST_CHOICES])
    omitted = len(ordered) - _MOST_CHOICES
    if omitted > 0:
        text += f" and {omitted} more"
    return text


def _problem(model: type[BaseModel], document: Document, detail: Any) -> Problem:
    """Return one pydantic error as a Problem."""
    path, owner = _resolve(model, detail["loc"], document.content)
    kind = detail["type"]
    key = str(path[-1]) if path else ""
    hint: str | None
    if refusal := _not_modelled(kind, key, detail.get("input")):
        message, hint = refusal
    elif kind == "extra_forbidden":
        message = "unknown key"
        keys = _fields(owner)
        hint = nearest(key, keys) or f"allowed: {choices(keys)}"
    elif kind == "missing":
        message = _PHRASES[kind]
        parent = value_at(document.content, path[:-1])
        hint = _misspelt(key, parent)
    else:
        message, hint = _wrong_value(detail)
    return document.problem(path, message, hint)


def _not_modelled(kind: str, key: str, value: object) -> tuple[str, str] | None:
    """Return why a key or a choice is not modelled, and what to do instead, where it names such a thing."""
    words = {"extra_forbidden": key, "literal_error": str(value)}
    word = words.get(kind, "").lower()
    for pattern, refusal in NOT_MODELLED.items():
        if re.search(pattern, word):
            return refusal
    return None


def _misspelt(key: str, parent: object) -> str | None:
    """Return a hint at the key of a mapping that may be the missing one, misspelt."""
    close = nearest(key, parent) if isinstance(parent, dict) else None
    if close is None:
        return None
    question = close.replace("did you mean", "is it")
    return question.replace("?", ", misspelt?")


def _wrong_value(detail: Any) -> tuple[str, str | None]:
    """Return message and hint for a value of the wrong type or outside its range."""
    kind = detail["type"]
    value = detail.get("input")
    message = _PHRASES.get(kind) or _plain(detail)
    # A validator's own words on a section say what is wrong in it; "not a mapping" would add nothing.
    if kind in _PHRASES or not isinstance(value, dict | tuple):
        message += f", not {_describe(value)}"
    hint = None
    # In quotes a date is text: the commonest reason why a date is refused.
    if kind == "date_type" and isinstance(value, str):
        is_date = isinstance(parse_scalar(value), datetime.date)
        hint = "write it without quotes" if is_date else None
    return message, hint


def _plain(detail: Any) -> str:
    """Return pydantic's message in the wording of the other messages."""
    message: str = detail["msg"]
    # pydantic puts its own words before those of our validators.
    for start in ("Value error, ", "Assertion failed, "):
        message = message.removeprefix(start)
    if detail["type"] in ("literal_error", "enum"):
        return f"must be one of {detail['ctx']['expected']}"
    if detail["type"] in ("union_tag_invalid", "union_tag_not_found"):
        tags = detail["ctx"].get("expected_tags")
        return f"needs kind: one of {tags}" if tags else "needs a kind"
    return message.replace("Input should be", "must be").replace("String should", "must")


def _describe(value: Any) -> str:
    """Return a written value as text, shortened and safe to print."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    # Quoted, so that a number in quotes is seen to be text.
    text = repr(value[:60]) if isinstance(value, str) else str(value)
    if len(text) > 60:
        text = text[:57] + "..."
    return text


def _resolve(model: type[BaseModel], loc: KeyPath, content: Any) -> tuple[KeyPath, Any]:
    """Return a pydantic location without tags and type names, and the model that owns its last key."""
    path: list[str | int] = []
    owner: Any = model
    annotation: Any = model
    for index, part in enumerate(loc):
        fields = _fields(annotation)
        is_key = isinstance(content, dict) and part in content
        is_item = isinstance(content, list) and isinstance(part, int)
        # A missing key is in no content; only at the end may the models alone vouch for it.
        is_missing_key = index == len(loc) - 1 and part in fields
        if not (is_key or is_item or is_missing_key):
            # pydantic puts the union member that it tried into the location: no key of the user's.
            for member in _models(annotation):
                if part in (_tag(member), member.__name__):
                    annotation = member
                    break
            continue
        path.append(part)
        owner = annotation
        field = fields.get(str(part))
        annotation = field.annotation if field is not None else _item(annotation)
        content = value_at(content, (part,))
    return tuple(path), owner


def _fields(annotation: Any) -> dict[str, Any]:
    """Return the fields of the models in an annotation, by the key that a user writes."""
    fields: dict[str, Any] = {}
    for model in _models(annotation):
        for name, field in model.model_fields.items():
            fields[field.alias or name] = field
    return fields


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Collect the models in an annotation, looking through Annotated, Optional and unions but not containers."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        members = map(_models, typing.get_args(annotation))
        return list(itertools.chain.from_iterable(members))
    if origin is typing.Annotated:
        return _models(typing.get_args(annotation)[0])
    return []


def _item(annotation: Any) -> Any:
    """Return the item type of a mapping or list annotation."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        # The first member that holds items: the others are None and plain values.
        items = filter(None, map(_item, arguments))
        return next(items, None)
    if origin is typing.Annotated:
        return _item(arguments[0])
    if getattr(origin, "__name__", "") in ("Mapping", "dict"):
        return arguments[1]
    if origin in (list, tuple) and arguments:
        return arguments[0]
    return None


def _tag(model: type[BaseModel]) -> str | None:
    """Return the value of a model's ``kind`` field, which distinguishes union members."""
    field = model.model_fields.get("kind")
    arguments = typing.get_args(field.annotation) if field else ()
    return str(arguments[0]) if arguments else None
