from __future__ import annotations

import csv
import io
from datetime import date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ConservationError
from planner.output import tables
from planner.output.tables import (
    Cells,
    Column,
    ColumnKind,
    Table,
    TableDescription,
    neutralised,
)

NAME = Column(name="name", kind=ColumnKind.TEXT, description="Who.")
SHARE = Column(
    name="share", kind=ColumnKind.DECIMAL, decimals=3, description="How much.", unit="fraction"
)
AMOUNT = Column(name="amount_usd", kind=ColumnKind.CENTS, description="Money.", unit="USD")
TABLE = TableDescription(
    name="things", description="Things, one a row.", columns=(NAME, SHARE, AMOUNT), key=("name",)
)


def write_csv(description: TableDescription, columns: dict[str, Any]) -> bytes:
    return tables.write_csv(Table(description, columns))


def format_cells(described: Column, cells: Cells) -> list[str]:
    description = TableDescription(name="t", description="T.", columns=(described,))
    return Table(description, {described.name: cells}).texts(described.name)


def column(kind: ColumnKind, decimals: int = 6) -> Column:
    return Column(name="x", kind=kind, description="X.", decimals=decimals)


def test_a_table_is_written_as_documented() -> None:
    content = write_csv(
        TABLE, {"name": ["a", "b, c"], "share": [0.5, np.nan], "amount_usd": np.array([1999, -5])}
    )
    assert content == b'name,share,amount_usd\na,0.500,19.99\n"b, c",,-0.05\n'


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＠"])
def test_names_a_spreadsheet_would_run_are_neutralised(start: str) -> None:
    assert neutralised(f"{start}cmd|' /C calc'!A0").startswith("'" + start)


@given(texts=st.lists(st.text(), min_size=1, max_size=5))
def test_any_text_comes_back_whole_and_harmless(texts: list[str]) -> None:
    table = TableDescription(name="t", description="T.", columns=(NAME,))
    content = write_csv(table, {"name": [*texts, "end"]}).decode()
    rows = list(csv.reader(io.StringIO(content, newline=""), strict=True))
    back = [row[0] if row else "" for row in rows[1:-1]]
    for written, given_text in zip(back, texts, strict=True):
        assert written in (given_text, "'" + given_text)
        assert not written.startswith(("=", "+", "-", "@", "\t", "\r"))


@given(
    numbers=st.lists(
        st.floats(allow_nan=False, allow_infinity=False, min_value=-1e18, max_value=1e18)
    )
)
def test_numbers_have_no_exponent_and_come_back(numbers: list[float]) -> None:
    for cell, number in zip(
        format_cells(column(ColumnKind.DECIMAL, 6), numbers), numbers, strict=True
    ):
        assert "e" not in cell.lower()
        assert float(cell) == pytest.approx(number, abs=5.1e-7, rel=1e-15)
        assert cell != "-0.000000"


@given(amounts=st.lists(st.integers(-(2**62), 2**62)))
def test_cents_are_exact_whatever_their_size(amounts: list[int]) -> None:
    cells = format_cells(column(ColumnKind.CENTS), np.array(amounts, dtype=np.int64))
    assert [int(cell.replace(".", "")) for cell in cells] == amounts


def test_dates_in_any_dress() -> None:
    days = [date(2026, 3, 1), datetime(2026, 3, 1, 5), np.datetime64("2026-03-01T05"), None]
    assert format_cells(column(ColumnKind.DATE), days) == ["2026-03-01"] * 3 + [""]
    array = np.array(["2026-03-01", "2026-12-31"], dtype="datetime64[D]")
    assert format_cells(column(ColumnKind.DATE), array) == ["2026-03-01", "2026-12-31"]


def test_whole_numbers_and_truths() -> None:
    assert format_cells(column(ColumnKind.INTEGER), np.array([1, -2], dtype=np.int32)) == [
        "1",
        "-2",
    ]
    assert format_cells(column(ColumnKind.INTEGER), [None, 10**20]) == ["", "100000000000000000000"]
    assert format_cells(column(ColumnKind.BOOLEAN), [True, False, None]) == ["true", "false", ""]
    assert format_cells(column(ColumnKind.MONTH), ["2026-03", ""]) == ["2026-03-01", ""]


def test_an_empty_table_keeps_its_heading() -> None:
    content = write_csv(TABLE, {"name": [], "share": [], "amount_usd": np.zeros(0, dtype=np.int64)})
    assert content == b"name,share,amount_usd\n"


def test_wrong_tables_are_our_bug() -> None:
    good: dict[str, Any] = {"name": ["a"], "share": [1.0], "amount_usd": np.array([1])}
    for change, message in (
        ({"extra": [1]}, "extra has cells and is not described"),
        ({"name": ["a", "b"]}, "different length"),
        ({"amount_usd": [1.5]}, "whole cents"),
        ({"share": [float("inf")]}, "share holds an infinite number"),
    ):
        with pytest.raises(ConservationError, match=message):
            write_csv(TABLE, good | change)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("a", 1.0), "2 cells for 3 columns.*name: 'a', share: 1.0, amount_usd: nothing"),
        (("a", 1.0, 1, 2), "4 cells for 3 columns.*amount_usd: 1, nothing: 2"),
    ],
)
def test_a_row_that_does_not_fit_is_shown_beside_its_columns(
    row: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ConservationError, match=f"table {TABLE.name}: a row has {message}"):
        TABLE.of_rows([("b", 1.0, 1), row])


def test_dollars_have_cents_among_measures_of_other_units() -> None:
    measure = Column(name="measure", kind=ColumnKind.TEXT, description="What.")
    value = Column(
        name="value", kind=ColumnKind.DECIMAL, description="How much.", measured_by="measure"
    )
    table = TableDescription(name="m", description="Measures.", columns=(measure, value))
    names = ["cost_usd", "cost_per_million_tokens_usd", "npv_usd", "irr_per_year", "lease_usd"]
    content = write_csv(
        table, {"measure": names, "value": [95798392.87, 0.0885974, -0.001, -1e-9, None]}
    )
    cells = [line.split(",")[1] for line in content.decode().splitlines()[1:]]
    assert cells == ["95798392.87", "0.088597", "0.00", "0.000000", ""]


def test_a_column_whose_name_has_the_separator_is_quoted_too() -> None:
    name = "clusters.{b200,b200-2027}.accelerator_price_usd"
    table = TableDescription(
        name="t", description="", key=(), columns=(tables.number_column(name, "Input drawn."),)
    )
    content = write_csv(table, {name: np.array([1.0])}).decode()
    assert next(csv.reader(content.splitlines())) == [name]
