"""What holds for every field of the scenario language and of the catalogue."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from planner.catalog.entries import Entry, Range, Source, Sourced
from planner.catalog.load import Catalog
from planner.scenario.scenario import Scenario
from planner.units import unit_of
from planner.validation import field_docstring
from tests.contracts.source import trees

# How a number whose name carries no unit may say what it counts, in its documentation.
UNIT_IN_WORDS = re.compile(
    r"tokens|in the unit of|standard deviation|variance over mean|engineers|probability|weight|share|times"
    r"|day of the year|people",
    re.IGNORECASE,
)
REASON = re.compile(r"Default[^:]*(:\s*\S| for | \(assum)")


class Place(NamedTuple):
    """One field of one model."""

    owner: type[BaseModel]
    name: str
    field: FieldInfo

    def __str__(self) -> str:
        return f"{self.owner.__name__}.{self.name}"


def parts(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and everything inside it."""
    yield annotation
    for part in typing.get_args(annotation):
        if not isinstance(part, str | int | float):
            yield from parts(part)


def models(root: type[BaseModel]) -> list[type[BaseModel]]:
    """Collect a model and every model that its fields hold."""
    found: list[type[BaseModel]] = []
    waiting: list[Any] = [root]
    while waiting:
        model = waiting.pop()
        if model in found:
            continue
        found.append(model)
        for field in model.model_fields.values():
            waiting += [
                p
                for p in parts(field.annotation)
                if isinstance(p, type) and issubclass(p, BaseModel)
            ]
    return found


def places(root: type[BaseModel]) -> list[Place]:
    return [
        Place(model, name, field)
        for model in models(root)
        for name, field in model.model_fields.items()
    ]


def own(annotation: Any) -> Iterator[Any]:
    """Yield what a field holds itself: unions and annotations looked through, models and containers not."""
    origin = typing.get_origin(annotation)
    if origin in (dict, tuple, list):
        return
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        yield from own(arguments[0])
    elif arguments and origin is not typing.Literal:
        for part in arguments:
            yield from own(part)
    else:
        yield annotation


def limits(place: Place) -> set[str]:
    """Return which of ge, gt, le, lt bind a field."""
    marks = [*place.field.metadata]
    for part in parts(place.field.annotation):
        if typing.get_origin(part) is typing.Annotated:
            for mark in typing.get_args(part)[1:]:
                marks += [mark, *getattr(mark, "metadata", ())]
    return {
        name
        for mark in marks
        for name in ("ge", "gt", "le", "lt")
        if getattr(mark, name, None) is not None
    }


SCENARIO = places(Scenario)
CATALOG = places(Catalog)
NUMBERS = [place for place in SCENARIO if {int, float} & set(own(place.field.annotation))]


def explained(found: list[Place]) -> list[tuple[str, str]]:
    """Return fields by name with their documentation."""
    return [(str(place), field_docstring(place.owner, place.name)) for place in found]


def test_every_field_is_documented_in_a_sentence() -> None:
    texts = explained([*SCENARIO, *CATALOG])
    assert len(texts) > 500
    assert [
        (place, text) for place, text in texts if not text.rstrip().endswith((".", ")", ";"))
    ] == []


def test_every_model_is_documented_and_strict() -> None:
    for model in dict.fromkeys([*models(Scenario), *models(Catalog)]):
        assert inspect.getdoc(model), model
        assert model.model_config.get("extra") == "forbid", model
        assert model.model_config.get("frozen"), model
        assert model.model_config.get("strict"), model


def test_every_number_has_a_unit_or_says_what_it_counts() -> None:
    bare = [
        place
        for place in NUMBERS
        if not unit_of(place.name) and float in set(own(place.field.annotation))
    ]
    bare_in_words = [
        (place, text) for place, text in explained(bare) if not UNIT_IN_WORDS.search(text)
    ]
    assert not bare_in_words, f"planner/units.csv has no suffix of {bare_in_words}"


def test_every_number_is_read() -> None:
    read = {
        node.attr
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
    }
    unread = [str(place) for place in NUMBERS if place.name not in read]
    assert not unread, f"nothing in planner reads {unread}: who states one changes nothing"


def test_every_number_has_a_range() -> None:
    assert [str(place) for place in NUMBERS if not limits(place) & {"ge", "gt"}] == []
    assert [str(place) for place in NUMBERS if not limits(place) & {"le", "lt"}] == []


def test_every_default_is_stated_with_a_reason() -> None:
    texts = explained([place for place in SCENARIO if not place.field.is_required()])
    assert [
        (place, text) for place, text in texts if "Default" not in text or not REASON.search(text)
    ] == []


def test_nothing_required_claims_a_default() -> None:
    texts = explained([place for place in SCENARIO if place.field.is_required()])
    assert [(place, text) for place, text in texts if "Default" in text] == []


def test_no_sequence_can_be_changed_after_validation() -> None:
    for place in [*SCENARIO, *CATALOG]:
        assert not any(
            typing.get_origin(part) is list or part is list
            for part in parts(place.field.annotation)
        ), place


def test_every_catalogue_value_carries_its_provenance() -> None:
    for model in models(Catalog):
        if issubclass(model, Entry) and model is not Entry:
            for name, field in model.model_fields.items():
                held = set(own(field.annotation)) - {type(None)}
                assert all(issubclass(part, Sourced | Range) for part in held), (model, name)
        elif not issubclass(model, Sourced | Range | Source | Catalog):
            raise AssertionError(f"{model} holds values without provenance")
    for model in (Sourced, Range):
        assert model.model_fields["source"].is_required()
        assert model.model_fields["grade"].is_required()


def test_every_catalogue_number_has_a_lower_limit() -> None:
    for model in models(Catalog):
        if issubclass(model, Sourced) and {int, float} & set(
            parts(model.model_fields["value"].annotation)
        ):
            assert limits(Place(model, "value", model.model_fields["value"])) & {"ge", "gt"}, model
