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
from planner.yaml_io import Document, KeyPath, at, parse_scalar

ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_PROBLEMS = 50
_ROUNDS = 4  # leaving out a value can make its entry incomplete, and that its section empty
_PHRASES = {row["error"]: row["phrase"] for row in data_rows(__file__, "phrases.csv")}
NOT_MODELLED = {
    row["pattern"]: (row["message"], row["hint"]) for row in data_rows(__file__, "not_modelled.csv")
}
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
        shown = handler(schema)
        properties = handler.resolve_ref_schema(shown)["properties"]
        for name, field in cls.model_fields.items():
            if text := field_docstring(cls, name):
                properties[field.alias or name]["description"] = text
        return shown


def field_docstring(model: type[BaseModel], name: str) -> str:
    """Return the docstring under a field, from the class that defines it; empty where there is none."""
    texts = (
        _docstrings(kind.__module__).get(kind.__name__.partition("[")[0], {})
        for kind in model.__mro__
    )
    return next((text[name] for text in texts if name in text), "")


@functools.cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings under fields in a module's source, by class and field."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # no source: a builtin, or one that was typed in
        return {}
    texts: dict[str, dict[str, str]] = {}
    for node in (
        node for node in tree.body if isinstance(node, ast.ClassDef)
    ):  # models stand in no function
        texts[node.name] = {}
        for field, below in itertools.pairwise(node.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
            ):
                text = below.value.value if isinstance(below.value, ast.Constant) else None
                if isinstance(text, str):
                    texts[node.name][field.target.id] = inspect.cleandoc(text)
    return texts


def validate(model: type[ModelT], document: Document) -> ModelT:
    """Return a document as a pydantic model; raise one ScenarioError that lists every problem."""
    if not isinstance(document.content, dict):
        holds = "is empty" if document.content is None else f"holds {_describe(document.content)}"
        raise ScenarioError(document.problem((), f"{holds}; expected a mapping of keys to values"))
    try:
        return model.model_validate(frozen(document.content))
    except ValidationError as error:
        details = error.errors(include_url=False)
    problems: dict[Problem, None] = {}
    for count, detail in enumerate(
        details
    ):  # a file can be wrong in 100,000 places; nobody waits for them all
        if len(problems) == MAX_PROBLEMS:
            place = document.locate(())
            rest = f"and {len(details) - count} more problems"
            problems[Problem(file=place.file if place else None, message=rest)] = None
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
            path = path[:-1] if detail["type"] == "missing" else path
            if not path:
                return None
            while not isinstance(parent := at(content, path[:-1]), dict):
                path = path[:-1]  # an item of a list takes its list with it
            parent.pop(path[-1], None)
    return None


def frozen(content: Any) -> Any:
    """Return plain data with tuples for lists."""
    if isinstance(content, dict):
        return {key: frozen(part) for key, part in content.items()}
    return tuple(map(frozen, content)) if isinstance(content, list | tuple) else content


def nearest(word: str, known: typing.Iterable[str]) -> str | None:
    """Return ``did you mean X?`` for the closest known word, ignoring case, or None."""
    import difflib  # noqa: PLC0415 - only where something is wrong

    by_lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]}?" if close else None


def choices(known: typing.Iterable[str]) -> str:
    """Return a list of allowed values as text, shortened when long."""
    names = sorted(known)
    return (
        ", ".join(names)
        if len(names) <= 24
        else ", ".join(names[:24]) + f" and {len(names) - 24} more"
    )


def _problem(model: type[BaseModel], document: Document, detail: Any) -> Problem:
    """Return one pydantic error as a Problem."""
    path, owner = _resolve(model, detail["loc"], document.content)
    hint = None
    kind = detail["type"]
    key = str(path[-1]) if path else ""
    word = {"extra_forbidden": key, "literal_error": str(detail.get("input"))}.get(kind, "").lower()
    if refused := next(
        (said for pattern, said in NOT_MODELLED.items() if re.search(pattern, word)), None
    ):
        message, hint = refused
    elif kind == "extra_forbidden":
        message = "unknown key"
        known = _keys(owner)
        hint = nearest(key, known) or f"allowed: {choices(known)}"
    elif kind == "missing":
        message = _PHRASES[kind]
        where = at(document.content, path[:-1])
        if isinstance(where, dict) and (close := nearest(key, where)):
            hint = close.replace("did you mean", "is it").replace("?", ", misspelt?")
    else:
        message = _PHRASES.get(kind) or _plain(detail)
        written = detail.get("input")
        if not isinstance(written, dict | tuple) or kind in _PHRASES:
            message += f", not {_describe(written)}"
        if (
            kind == "date_type"
            and isinstance(written, str)
            and isinstance(parse_scalar(written), datetime.date)
        ):
            hint = "write it without quotes"
    return document.problem(path, message, hint)


def _plain(detail: Any) -> str:
    """Return pydantic's message in the wording of the other messages."""
    message: str = detail["msg"]
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
    text = repr(value[:60]) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _resolve(model: type[BaseModel], loc: KeyPath, content: Any) -> tuple[KeyPath, Any]:
    """Return a pydantic location without tags and type names, and the model that owns its last key."""
    path: list[str | int] = []
    owner: Any = model
    annotation: Any = model
    for index, part in enumerate(loc):
        last = index == len(loc) - 1
        models = _models(annotation)
        fields = {name: field for model in models for name, field in model.model_fields.items()}
        aliases = {field.alias: field for field in fields.values() if field.alias}
        known = isinstance(content, dict) and part in content
        is_item = isinstance(content, list) and isinstance(part, int)
        if not (known or is_item or (last and part in (fields | aliases))):
            tagged = [model for model in models if part in (_tag(model), model.__name__)]
            annotation = tagged[0] if tagged else annotation
            continue
        path.append(part)
        owner = annotation
        field = fields.get(str(part)) or aliases.get(str(part))
        annotation = field.annotation if field is not None and models else _item(annotation)
        content = at(content, (part,))
    return tuple(path), owner


def _keys(annotation: Any) -> list[str]:
    """Return the keys a user may write where ``annotation`` is expected."""
    return [
        field.alias or name
        for model in _models(annotation)
        for name, field in model.model_fields.items()
    ]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Collect the models in an annotation, looking through Annotated, Optional and unions but not containers."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return [model for part in typing.get_args(annotation) for model in _models(part)]
    if origin is typing.Annotated:
        return _models(typing.get_args(annotation)[0])
    return []


def _item(annotation: Any) -> Any:
    """Return the item type of a mapping or list annotation."""
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return next((_item(part) for part in arguments if _item(part) is not None), None)
    if origin is typing.Annotated:
        return _item(arguments[0])
    if origin is dict or getattr(origin, "__name__", "") in ("Mapping", "dict"):
        return arguments[1]
    return arguments[0] if origin in (list, tuple) and arguments else None


def _tag(model: type[BaseModel]) -> str | None:
    """Return the value of a model's ``kind`` field, which distinguishes union members."""
    field = model.model_fields.get("kind")
    arguments = typing.get_args(field.annotation) if field else ()
    return str(arguments[0]) if arguments else None
