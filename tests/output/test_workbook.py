"""Plain tables as workbooks: words for headings, numbers as numbers, text that is never run."""

from __future__ import annotations

import io
import zipfile
from datetime import date

import pytest

from planner.output.workbook import (
    Cell,
    Page,
    SheetChart,
    style_of,
    words,
    write_tables,
)
from tests.output.office import sheets_of

HEADINGS = ("month", "cost_usd", "slo_attainment_fraction")
ROWS = [("=1+1", 0.5, 0.25), ("b", None, True), (date(2026, 1, 1), -2.0, None)]


@pytest.mark.parametrize(
    ("name", "said", "style"),
    [
        ("cost_per_million_tokens_usd", "Cost per million tokens, USD", "unit_usd"),
        ("npv_usd", "NPV, USD", "usd"),
        ("utilisation_fraction", "Utilisation", "percent"),
        ("energy_kwh", "Energy, kWh", "count"),
        ("payback_months", "Payback months", "number"),
        ("served_tokens", "Served tokens", "count"),
    ],
)
def test_headings_are_words(name: str, said: str, style: str) -> None:
    assert (words(name), style_of(name)) == (said, style)


def test_a_table_is_a_sheet_with_a_chart_and_its_text_is_never_run() -> None:
    chart = SheetChart(title="Cost, USD", columns=("cost_usd",))
    pages = {
        "One": Page(headings=HEADINGS, rows=ROWS, charts=(chart,), note="as simulated"),
        "Two": Page(headings=HEADINGS, rows=ROWS),
    }
    written = write_tables("tables", date(2026, 1, 1), pages)
    assert written == write_tables("tables", date(2026, 1, 1), pages)
    sheets = sheets_of(written)
    assert list(sheets) == ["Charts", "One", "Two"]
    assert sheets["Two"] == [
        ["Month", "Cost, USD", "SLO attainment"], ["=1+1", 0.5, 0.25], ["b", "", True], ["2026-01-01", -2.0, ""],
    ]  # fmt: skip
    assert sheets["One"] == [["as simulated", "", ""], *sheets["Two"]]
    with zipfile.ZipFile(io.BytesIO(written)) as book:
        assert "<f>" not in book.read("xl/worksheets/sheet2.xml").decode()
        assert "<autoFilter" in book.read("xl/worksheets/sheet2.xml").decode()
        drawn = book.read("xl/charts/chart1.xml").decode()
    assert "One!$B$3:$B$5" in drawn
    assert "Cost, USD" in drawn


def test_a_formula_is_stored_with_its_value_and_a_cell_to_type_into_is_yellow_and_bounded() -> None:
    rows = [
        (
            Cell(2.0, limits=(0.0, 5.0)),
            Cell(4.0, "'Live'!$A$2*2", "usd"),
            Cell(float("nan"), 'IF(1=1,"",0)'),
        )
    ]
    chart = SheetChart(title="Twice", columns=("twice_usd",))
    page = Page(headings=("typed", "twice_usd", "none"), rows=rows, charts=(chart,))
    written = write_tables("live", date(2026, 1, 1), {"Live": page}, charts_on="Live")
    assert sheets_of(written) == {"Live": [["Typed", "Twice, USD", "None"], [2.0, 4.0, ""]]}
    with zipfile.ZipFile(io.BytesIO(written)) as book:
        sheet = book.read("xl/worksheets/sheet1.xml").decode()
    assert "<f>'Live'!$A$2*2</f><v>4" in sheet
    assert '<dataValidation type="decimal"' in sheet
    assert "<autoFilter" not in sheet


def test_a_long_table_is_cut_and_says_so() -> None:
    cut = Page.of(
        {"time": [str(number) for number in range(12)], "lost": [float("nan")] * 12}, most=5
    )
    assert len(cut.rows) == 6
    assert cut.rows[0][0] == "0"
    assert cut.rows[-1] == ("and 7 more in the CSV file", None)


def test_what_is_no_number_is_text_or_nothing() -> None:
    rows = (("a", float("inf")), ("b", float("nan")), ("c", 3.0))
    page = Page(headings=("plan", "payback_months"), rows=rows)
    sheets = sheets_of(write_tables("plans", date(2026, 1, 1), {"Plans": page}))
    assert [row[1] for row in sheets["Plans"][1:4]] == ["inf", "", 3.0]
