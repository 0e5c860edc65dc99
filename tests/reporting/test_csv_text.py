from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reporting.csv_text import csv_text, quote


def parsed(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


def test_decimals_follow_the_unit_in_the_name() -> None:
    columns = {
        "cost_usd": np.array([1.005, 2.0]),
        "served_tokens": np.array([1.5e15, 0.4]),
        "availability_fraction": np.array([0.5, np.nan]),
        "energy_kwh": np.array([1.23456, -1e-9]),
        "nodes": np.array([1, 2]),
        "cluster": ["a", "b"],
    }
    assert csv_text(columns) == (
        "cost_usd,served_tokens,availability_fraction,energy_kwh,nodes,cluster\n"
        "1.00,1500000000000000,0.500000,1.235,1,a\n"
        "2.00,0,,0.000,2,b\n"
    )


def test_nothing_is_written_in_exponents_and_no_zero_is_negative() -> None:
    text = csv_text({"energy_kwh": np.array([1e22, 1e-12, -1e-12, -0.0])})
    assert "e+" not in text
    assert parsed(text)[2:] == [["0.000"]] * 3


def test_a_table_without_rows_is_its_header() -> None:
    assert csv_text({"a": [], "b_usd": np.array([])}) == "a,b_usd\n"


def test_columns_of_different_length_are_our_bug() -> None:
    with pytest.raises(ValueError, match="zip"):
        csv_text({"a": ["x"], "b": ["x", "y"]})


@pytest.mark.parametrize(
    "text", ["=1+1", "+1-x", "-x", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "=cmd|' /C calc'!A0", "＝1"]
)
def test_a_formula_is_neutralised(text: str) -> None:
    ((cell,),) = parsed(quote(text))
    assert cell == "'" + text


@pytest.mark.parametrize("text", ["-0.5", "+3", "-1e-05", "-12", "a=b", "1=1", "", "2026-01-01", "-1.5e+20"])
def test_a_number_and_plain_text_are_left_alone(text: str) -> None:
    assert quote(text) == text


@pytest.mark.parametrize("text", ["a,b", 'say "x"', "two\nlines", "a\rb"])
def test_what_would_split_is_quoted(text: str) -> None:
    assert parsed(quote(text)) == [[text]]


@given(st.lists(st.tuples(st.text(max_size=12), st.text(max_size=12)), min_size=1, max_size=5))
def test_any_text_survives_another_reader_and_never_runs(rows: list[tuple[str, str]]) -> None:
    rows = [(a.replace("\0", ""), b.replace("\0", "") or "x") for a, b in rows]
    table = parsed(csv_text({"one": [a for a, _ in rows], "two": [b for _, b in rows]}))
    assert table[0] == ["one", "two"]
    for written, read in zip(rows, table[1:], strict=True):
        for before, after in zip(written, read, strict=True):
            assert after in (before, "'" + before)
            if after and after[0] in "=+-@\t\r\n":
                float(after)
