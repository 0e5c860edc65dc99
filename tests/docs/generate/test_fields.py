from __future__ import annotations

import datetime
import functools
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, TypeAdapter, ValidationError

from docs.generate.fields import ScenarioField, Section, scenario_sections
from planner.scenario.scenario import Scenario
from planner.validation import Strict

ROOT = Path(__file__).parents[3]


class Square(Strict):
    """A square."""

    kind: Literal["square"]
    """A square."""
    side_h: Annotated[float, Field(gt=0, le=5)]
    """Side."""


class Circle(Strict):
    """A circle.

    With a second paragraph, which no table needs.
    """

    kind: Literal["circle"] = "circle"
    """A circle. Default circle: rounder."""
    radius_kw: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Radius. Default: none."""


class Tree(Strict):
    """A tree, which holds trees."""

    branches: dict[str, Tree] = Field(default_factory=dict)
    """Branches by name. Default: none."""
    leaves: Annotated[int, Field(ge=1, le=10**9)] = 3
    """Leaves. Default 3."""


class Picture(Strict):
    """Everything a schema may hold."""

    shape: Annotated[Square | Circle, Field(discriminator="kind")]
    """One of two."""
    shapes: Annotated[list[Square], Field(min_length=1, default_factory=list)]
    """Many. Default: no more."""
    tree: Tree = Tree()
    """A tree. Default small: it grows."""
    day: datetime.date = datetime.date(2026, 1, 2)
    """Day. Default 2026-01-02: a Friday."""
    is_dark: bool = True
    """Dark. Default true: easier on the eye."""
    mode: Literal["a", "b"] | None = None
    """Mode. Default: a for squares, b for circles."""
    words: list[str] = Field(default_factory=list)
    """Words. Default: none."""
    from_: Annotated[str, Field(alias="from")] = "here"
    """Where from. Default here: there is no other place."""


@pytest.fixture(scope="module")
def picture() -> dict[str, Section]:
    sections = scenario_sections(Picture.model_json_schema(by_alias=True))
    return {f"{section.path}|{section.tag or ''}": section for section in sections}


def _by_key(section: Section) -> dict[str, ScenarioField]:
    return {field.path.rpartition(".")[2]: field for field in section.fields}


def test_default_and_reason_are_told_apart(picture: dict[str, Section]) -> None:
    top = _by_key(picture["|"])
    assert (top["from"].default, top["from"].reason) == ("here", "there is no other place")
    assert (top["is_dark"].default, top["is_dark"].reason) == ("true", "easier on the eye")
    assert (top["day"].default, top["day"].reason) == ("2026-01-02", "a Friday")
    assert (top["mode"].default, top["mode"].reason) == (None, "a for squares, b for circles")
    assert (top["tree"].default, top["tree"].reason) == (None, "small: it grows")
    leaves = _by_key(picture["tree|"])["leaves"]
    assert (leaves.default, leaves.reason, leaves.meaning) == ("3", "", "Leaves.")
    assert top["shape"].required
    assert not top["tree"].required


SIGNS = {"<": operator.lt, "≤": operator.le}


def _holds(allowed: str, x: float) -> bool:
    """Read an inequality as a reader does."""
    found = re.fullmatch(r"(?:(\S+) (\S) )?x(?: (\S) (\S+))?", allowed)
    assert found is not None, allowed
    low, low_sign, high_sign, high = found.groups()
    is_above = low is None or SIGNS[low_sign](float(low.replace(",", "")), x)
    return is_above and (high is None or SIGNS[high_sign](x, float(high.replace(",", ""))))


BOUND = st.integers(-(10**15), 10**15)


@given(
    low=BOUND,
    high=BOUND,
    keys=st.tuples(st.sampled_from(["ge", "gt"]), st.sampled_from(["le", "lt"])),
    data=st.data(),
)
def test_bounds_say_what_pydantic_accepts(
    low: int, high: int, keys: tuple[str, str], data: st.DataObject
) -> None:
    bounds: dict[str, Any] = {keys[0]: low, keys[1]: high}
    annotation: Any = Annotated[int, Field(**bounds)]
    schema = {"properties": {"x": TypeAdapter(annotation).json_schema()}}
    allowed = scenario_sections(schema)[0].fields[0].allowed
    x = data.draw(st.sampled_from([low - 1, low, low + 1, high - 1, high, high + 1]) | BOUND)
    try:
        TypeAdapter(annotation).validate_python(x)
        accepted = True
    except ValidationError:
        accepted = False
    assert _holds(allowed, x) == accepted


@functools.cache
def every_field() -> list[ScenarioField]:
    return [field for section in scenario_sections() for field in section.fields]


def _written_paths(content: Any, path: str = "") -> Iterator[str]:
    """Yield the documented form of every path in a file: names of workloads, clusters, models become <name>."""
    if not isinstance(content, dict):
        yield path
        return
    for key, value in content.items():
        is_name = path in ("workloads", "clusters", "sizing.clusters") or path.endswith(
            ".contract.token_prices"
        )
        shown = "<name>" if is_name else key
        yield from _written_paths(value, f"{path}.{shown}" if path else shown)


@pytest.mark.parametrize(
    "file", sorted((ROOT / "scenarios").rglob("*.yaml")), ids=lambda file: file.name
)
def test_every_key_of_the_shipped_scenarios_is_in_the_reference(file: Path) -> None:
    known = {field.path for field in every_field()}
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    # A study is no scenario, but what it changes in its scenarios is scenario language.
    is_study = "uncertain" in content
    futures = content.pop("futures", {}).values()  # which set dotted paths, as --set does
    assert {path.partition(".")[0] for future in futures for path in future["set"]} <= set(
        Scenario.model_fields
    )
    layers = (
        [entry.get("set", {}) for entry in content["scenarios"].values()] if is_study else [content]
    )
    written = {re.sub(r"\[\d+\]", "[]", path) for layer in layers for path in _written_paths(layer)}
    assert {
        path for path in written if path not in known and not _is_map_of_numbers(path, known)
    } == set()


def _is_map_of_numbers(path: str, known: set[str]) -> bool:
    """Tell whether a key is a free name in a documented mapping whose entries are plain values."""
    return path.rpartition(".")[0] in known


def test_defaults_shown_are_the_defaults_used() -> None:
    top = {field.path: field for field in every_field() if "." not in field.path}
    assert top["horizon_months"].default == str(Scenario.model_fields["horizon_months"].default)
    finance = Scenario.model_fields["finance"].default
    for name in type(finance).model_fields:
        shown = next(field for field in every_field() if field.path == f"finance.{name}").default
        value = getattr(finance, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert shown is not None
            assert float(shown) == value
