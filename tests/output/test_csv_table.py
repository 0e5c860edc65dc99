from __future__ import annotations

import csv
import io
import time
from datetime import date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generate.pages import columns_page
from planner.answers.comparison import COMPARISON_TABLES, sweep_description
from planner.answers.study import STUDY_TABLES
from planner.answers.tables import RUN_TABLES
from planner.errors import ConservationError
from planner.output import tables
from planner.output.tables import (
    Cells,
    Column,
    ColumnKind,
    CsvFormat,
    Table,
    TableDescription,
    neutralised,
)
from planner.studies.sweep import parse_axes

NAME = Column(name="name", kind=ColumnKind.TEXT, description="Who.")
SHARE = Column(
    name="share", kind=ColumnKind.DECIMAL, decimals=3, description="How much.", unit="fraction"
)
AMOUNT = Column(name="amount_usd", kind=ColumnKind.CENTS, description="Money.", unit="USD")
TABLE = TableDescription(
    name="things", description="Things, one a row.", columns=(NAME, SHARE, AMOUNT), key=("name",)
)
EUROPEAN = CsvFormat(decimal_comma=True, byte_order_mark=True)


def write_csv(
    description: TableDescription,
    columns: dict[str, Any],
    form: CsvFormat = CsvFormat(),  # noqa: B008 - frozen
) -> bytes:
    return tables.write_csv(Table(description, columns), form)


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


def test_decimal_comma_brings_semicolons_and_the_mark_comes_first() -> None:
    content = write_csv(
        TABLE, {"name": ["a;b"], "share": [1.25], "amount_usd": np.array([100])}, EUROPEAN
    )
    assert content == b'\xef\xbb\xbfname;share;amount_usd\n"a;b";1,250;1,00\n'


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＠"])
def test_names_a_spreadsheet_would_run_are_neutralised(start: str) -> None:
    assert neutralised(f"{start}cmd|' /C calc'!A0").startswith("'" + start)


def test_negative_numbers_are_left_as_numbers() -> None:
    assert format_cells(column(ColumnKind.DECIMAL, 2), [-1.5]) == ["-1.50"]
    assert format_cells(column(ColumnKind.CENTS), np.array([-150])) == ["-1.50"]


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


def test_minus_zero_is_zero() -> None:
    assert format_cells(column(ColumnKind.DECIMAL, 2), [-0.0, -0.001]) == ["0.00", "0.00"]


def test_an_empty_table_keeps_its_heading() -> None:
    content = write_csv(TABLE, {"name": [], "share": [], "amount_usd": np.zeros(0, dtype=np.int64)})
    assert content == b"name,share,amount_usd\n"


def test_wrong_tables_are_our_bug() -> None:
    good: dict[str, Any] = {"name": ["a"], "share": [1.0], "amount_usd": np.array([1])}
    for change, message in (
        ({"extra": [1]}, "extra"),
        ({"name": ["a", "b"]}, "different length"),
        ({"amount_usd": [1.5]}, "whole cents"),
        ({"share": [float("inf")]}, "share holds an infinite number"),
    ):
        with pytest.raises(ConservationError, match=message):
            write_csv(TABLE, good | change)


def test_the_order_of_the_columns_is_that_of_the_description() -> None:
    first: dict[str, Any] = {"name": ["a"], "share": [1.0], "amount_usd": np.array([1])}
    assert write_csv(TABLE, first) == write_csv(TABLE, dict(reversed(first.items())))


def test_a_hundred_thousand_rows_take_about_a_second_at_most() -> None:
    count = 100_000
    columns: dict[str, Any] = {
        "name": ["cluster"] * count,
        "share": np.linspace(0, 1, count),
        "amount_usd": np.arange(count),
    }
    begin = time.process_time()
    content = write_csv(TABLE, columns)
    assert content.count(b"\n") == count + 1
    assert time.process_time() - begin < 2.0


def test_the_reference_page_lists_every_column() -> None:
    page = columns_page([TABLE])
    assert "## `things.csv`" in page
    assert "| `share` | number | fraction | How much. |" in page
    assert "One row for each `name`." in page


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


def test_every_amount_of_dollars_in_every_file_has_cents() -> None:
    described = (*RUN_TABLES, *COMPARISON_TABLES.values(), *STUDY_TABLES.values())
    tables = [*described, sweep_description(parse_axes(["seed=1,2"]))]
    for table in tables:
        for one in table.columns:
            if one.kind is ColumnKind.DECIMAL and one.unit == "USD":
                assert one.decimals == 2, (table.name, one.name)


def test_a_column_whose_name_has_the_separator_is_quoted_too() -> None:
    name = "clusters.{b200,b200-2027}.accelerator_price_usd"
    table = TableDescription(
        name="t", description="", key=(), columns=(tables.number_column(name, "Input drawn."),)
    )
    content = write_csv(table, {name: np.array([1.0])}).decode()
    assert next(csv.reader(content.splitlines())) == [name]
