from __future__ import annotations

import io
import json
import unicodedata
from collections.abc import Callable

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import (
    CapacityError,
    ConservationError,
    PlannerError,
    Problem,
    ScenarioError,
    line_of,
    printable,
)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (
            Problem(
                file="a.yaml", line=3, path="site", message="unknown key", hint="is it tariff?"
            ),
            "a.yaml:3: site: unknown key (is it tariff?)",
        ),
        (Problem(message="empty"), "empty"),
        (Problem(message="empty", file="a.yaml"), "a.yaml: empty"),
        (Problem(message="empty", path="site"), "site: empty"),
        (Problem(message="empty", line=0, file="a"), "a:0: empty"),
    ],
)
def test_a_problem_reads_place_path_message_and_hint_as_far_as_known(
    problem: Problem, text: str
) -> None:
    assert str(problem) == text


def test_an_error_lists_every_problem() -> None:
    error = ScenarioError([Problem(message="one"), Problem(message="two")])
    assert str(error) == "one\ntwo"
    assert str(ScenarioError("alone", file="a.yaml", line=2)) == "a.yaml:2: alone"


def test_exit_codes_follow_whose_fault_it_is() -> None:
    codes = [
        kind.exit_code for kind in (PlannerError, ScenarioError, CapacityError, ConservationError)
    ]
    assert codes == [1, 2, 1, 1]


@given(st.text(st.characters(), max_size=30))
def test_nothing_that_a_terminal_obeys_is_printed(text: str) -> None:
    shown = str(Problem(message=text, file=text, path=text, hint=text))
    assert shown.isprintable()
    assert len(shown.splitlines()) <= 1
    assert not any(unicodedata.category(mark) in ("Cc", "Cf", "Cs", "Zl", "Zp") for mark in shown)
    shown.encode()


@given(st.text(st.characters(categories=("L", "N", "P", "S")), max_size=30))
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    ("read", "line"),
    [
        (b"a\nb\xff\n".decode, 2),
        (lambda: json.loads('{"a": 1,\n\n"b" 2}'), 3),
        (lambda: pd.read_csv(io.StringIO("a,b\n1,2\n1,2,3\n")), 3),
        (lambda: pd.read_csv(io.StringIO('a,b\n1,2\n1,"2\n')), 3),
        (lambda: float("x"), None),
    ],
)
def test_the_line_of_a_reader_that_failed(read: Callable[[], object], line: int | None) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - each reader has its own words
        read()
    assert line_of(caught.value) == line
