"""What holds for every field of the scenario language and of the catalogue."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from planner.catalog.entries import Entry, Range, Source, Sourced
from planner.catalog.load import Catalog
from planner.scenario.scenario import Scenario
from planner.units import unit_of
from planner.validation import field_docstring

# How a number whose name carries no unit may say what it counts, in its documentation.
UNIT_IN_WORDS = re.compile(
    r"tokens|in the unit of|standard deviation|variance over mean|engineers|probability|weight|share|times"
    r"|day of the year",
    re.IGNORECASE,
)
REASON = re.compile(r"Default[^:]*(: *\S| for | \(assum)")


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
            waiting += [p for p in parts(field.annotation) if isinstance(p, type) and issubclass(p, BaseModel)]
    return found


def places(root: type[BaseModel]) -> list[Place]:
    return [Place(model, name, field) for model in models(root) for name, field in model.model_fields.items()]


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
    return {name for mark in marks for name in ("ge", "gt", "le", "lt") if getattr(mark, name, None) is not None}


SCENARIO = places(Scenario)
CATALOG = places(Catalog)
NUMBERS = [place for place in SCENARIO if {int, float} & set(own(place.field.annotation))]


def test_the_walk_reaches_the_far_corners() -> None:
    names = {str(place) for place in SCENARIO}
    assert {"Compound.per_year", "Length.p95", "Cluster.nodes", "CatalogChoice.overlay", "Scenario.seed"} <= names
    assert len(NUMBERS) > 15


@pytest.mark.parametrize("place", [*SCENARIO, *CATALOG], ids=str)
def test_every_field_is_documented_in_a_sentence(place: Place) -> None:
    text = field_docstring(place.owner, place.name)
    assert text, f"{place} has no docstring"
    assert text.rstrip().endswith((".", ")", ";")), text


@pytest.mark.parametrize(
    "model", dict.fromkeys([*models(Scenario), *models(Catalog)]), ids=lambda model: model.__name__
)
def test_every_model_is_documented_and_strict(model: type[BaseModel]) -> None:
    assert inspect.getdoc(model)
    assert model.model_config.get("extra") == "forbid"
    assert model.model_config.get("frozen")
    assert model.model_config.get("strict")


@pytest.mark.parametrize("place", NUMBERS, ids=str)
def test_every_number_has_a_unit_or_says_what_it_counts(place: Place) -> None:
    is_count = float not in set(own(place.field.annotation))
    assert unit_of(place.name) or is_count or UNIT_IN_WORDS.search(field_docstring(place.owner, place.name)), place


@pytest.mark.parametrize("place", NUMBERS, ids=str)
def test_every_number_has_a_range(place: Place) -> None:
    found = limits(place)
    assert found & {"ge", "gt"}, f"{place} has no lower limit"
    assert found & {"le", "lt"}, f"{place} has no upper limit"


@pytest.mark.parametrize("place", [p for p in SCENARIO if not p.field.is_required()], ids=str)
def test_every_default_is_stated_with_a_reason(place: Place) -> None:
    text = field_docstring(place.owner, place.name)
    assert "Default" in text, f"{place}: {text}"
    assert REASON.search(text), f"{place}: {text}"


@pytest.mark.parametrize("place", [p for p in SCENARIO if p.field.is_required()], ids=str)
def test_nothing_required_claims_a_default(place: Place) -> None:
    assert "Default" not in field_docstring(place.owner, place.name), place


def test_no_sequence_can_be_changed_after_validation() -> None:
    for place in [*SCENARIO, *CATALOG]:
        assert not any(typing.get_origin(part) is list or part is list for part in parts(place.field.annotation)), place


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
        if issubclass(model, Sourced) and {int, float} & set(parts(model.model_fields["value"].annotation)):
            assert limits(Place(model, "value", model.model_fields["value"])) & {"ge", "gt"}, model
