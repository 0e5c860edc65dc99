"""Records are what the standard library's dataclasses would be, but for what it takes to define them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner import records

Decorator = Callable[..., Any]
FROZEN = {"frozen": True, "slots": True, "kw_only": True}


def classes(dataclass: Decorator) -> dict[str, type]:
    """Return classes of each kind that the planner has, as a decorator makes them."""

    @dataclass(**FROZEN)
    class Plain:
        """Fields of every kind."""

        number: float
        words: tuple[str, ...] = ()
        by_name: dict[str, int] = dataclasses.field(default_factory=dict)
        hidden: int = dataclasses.field(default=3, repr=False, compare=False)
        kept: list[int] = dataclasses.field(default_factory=list, init=False)
        fixed: int = dataclasses.field(default=7, init=False)

    @dataclass(**FROZEN)
    class Derived(Plain):
        """One that has more than the one it extends, and works some of it out."""

        more: int = 1
        twice: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.more)

    @dataclass(frozen=True, slots=True)
    class ByPlace:
        """Given in order."""

        first: int
        second: int = 2

    @dataclass(**FROZEN)
    class One:
        """With one field, and a text that says it."""

        only: object

        def __repr__(self) -> str:
            return f"one {self.only}"

    @dataclass(**FROZEN)
    class Nothing:
        """Without fields."""

    @dataclass(**FROZEN, eq=False, repr=False, weakref_slot=True)
    class Itself:
        """Equal to itself alone."""

        number: int

    @dataclass(slots=True)
    class Open:
        """May be changed."""

        number: int

    @dataclass(**FROZEN, order=True)
    class Ordered:
        """May be sorted."""

        number: int

    return {made.__name__: made for made in (Plain, Derived, ByPlace, One, Nothing, Itself, Open, Ordered)}


STANDARD, OURS = classes(dataclasses.dataclass), classes(records.dataclass)
GIVEN: dict[str, dict[str, Any]] = {
    "Plain": {"number": 1.5, "words": ("a",)},
    "Derived": {"number": 0.0, "more": 4, "by_name": {"b": 1}},
    "ByPlace": {"first": 1},
    "One": {"only": (1, 2)},
    "Nothing": {},
    "Itself": {"number": 1},
    "Open": {"number": 1},
    "Ordered": {"number": 1},
}


def asked_for(cls: type) -> list[tuple[str, object, object, bool]]:
    """Return the name, kind and type of what a class is made of, and whether it may be left out."""
    asked = inspect.signature(cls).parameters.values()
    return [(given.name, given.kind, given.annotation, given.default is given.empty) for given in asked]


@pytest.mark.parametrize("name", GIVEN)
def test_a_record_is_what_the_standard_library_would_make_of_it(name: str) -> None:
    standard, ours = STANDARD[name](**GIVEN[name]), OURS[name](**GIVEN[name])
    assert asked_for(OURS[name]) == asked_for(STANDARD[name])
    assert [field.name for field in dataclasses.fields(ours)] == [field.name for field in dataclasses.fields(standard)]
    assert dataclasses.asdict(ours) == dataclasses.asdict(standard)
    assert vars(OURS[name])["__slots__"] == vars(STANDARD[name])["__slots__"]
    if name != "Itself":
        assert repr(ours) == repr(standard)
    assert (ours == OURS[name](**GIVEN[name])) is (standard == STANDARD[name](**GIVEN[name]))
    assert ours == ours  # noqa: PLR0124 - that it is itself
    assert ours != standard
    assert (OURS[name].__hash__ is None) is (STANDARD[name].__hash__ is None)


@pytest.mark.parametrize(("name", "key"), [("ByPlace", (1, 2)), ("One", ((1, 2),)), ("Nothing", ())])
def test_hashes_are_those_of_the_fields(name: str, key: tuple[object, ...]) -> None:
    assert hash(OURS[name](**GIVEN[name])) == hash(STANDARD[name](**GIVEN[name])) == hash(key)


def test_what_is_hidden_from_comparison_is_not_compared() -> None:
    assert OURS["Plain"](number=1.0, hidden=4) == OURS["Plain"](number=1.0)
    assert OURS["Plain"](number=1.0) != OURS["Plain"](number=2.0)


def test_a_record_cannot_be_changed() -> None:
    record = OURS["ByPlace"](1)
    for change in (lambda: setattr(record, "first", 2), lambda: delattr(record, "first"), lambda: vars(record)):
        with pytest.raises((dataclasses.FrozenInstanceError, TypeError), match=r"first|__dict__"):
            change()
    assert record.first == 1


def test_what_is_made_anew_is_shared_by_no_two_records() -> None:
    one, other = OURS["Plain"](number=1.0), OURS["Plain"](number=1.0)
    assert one.by_name == {}
    assert one.by_name is not other.by_name
    assert one.kept is not other.kept


def test_records_are_replaced_and_copied() -> None:
    record = OURS["Derived"](number=1.0, more=4)
    assert record.twice == 8
    assert dataclasses.replace(record, more=5).twice == 10
    assert copy.copy(record) == copy.deepcopy(record) == record


def test_a_field_that_is_unknown_or_missing_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'numbre'"):
        OURS["Plain"](numbre=1.0)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'number'"):
        OURS["Plain"]()


@records.dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What a pickle can name."""

    number: int
    words: tuple[str, ...] = ()


def test_records_are_pickled() -> None:
    sent = Sent(number=1, words=("a",))
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(sent, protocol)) == sent


def test_a_constructor_is_compiled_for_the_first_record_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, real = list[str](), records._constructor

    def counted(cls: type) -> Callable[..., None]:
        compiled.append(cls.__name__)
        return real(cls)

    monkeypatch.setattr(records, "_constructor", counted)

    @records.dataclass(frozen=True, slots=True)
    class Pair:
        """Two."""

        first: int
        second: int = 2

    @records.dataclass(frozen=True, slots=True)
    class Triple(Pair):
        """One more."""

        third: int = 3

    assert compiled == []
    assert (Pair(1), Pair(1, 5), Triple(1, third=4)) == (Pair(1, 2), Pair(1, 5), Triple(1, 2, 4))
    assert compiled == ["Pair", "Triple"]
    assert list(inspect.signature(Triple).parameters) == ["first", "second", "third"]


def test_records_are_defined_sooner_than_dataclasses() -> None:
    program = """
import dataclasses, time
from planner import records
times = []
for dataclass in (dataclasses.dataclass, records.dataclass):
    begun = time.process_time()
    for _ in range(200):
        stated = {"__annotations__": {"first": int, "second": int}, "__doc__": ""}
        dataclass(frozen=True, slots=True, kw_only=True)(type("Record", (), stated))
    times.append(time.process_time() - begun)
print(times[1] / times[0])
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(answer.stdout) < 0.7


def test_every_dataclass_of_the_planner_is_one_of_these() -> None:
    sources = {path: path.read_text() for path in Path(records.__file__).parent.rglob("*.py")}
    pattern = re.compile(r"^from dataclasses import .*\bdataclass\b|@dataclasses\.dataclass", re.MULTILINE)
    assert [path.name for path, text in sources.items() if pattern.search(text)] == []
