"""The workbook's sheets, their cell formats, and the sheets that only list: ledger, assumptions, events."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.finance.accounts import ACCOUNT_ORDER
from planner.finance.present_value import discount_factors
from planner.results.measure_names import SITE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.reporting.workbook import SheetTable, WorkbookContent

SHEET_NAMES = (
    "Summary",
    "Monthly P&L",
    "Cash flow",
    "Depreciation",
    "Energy",
    "Tax",
    "Ledger",
    "Assumptions",
    "Events",
)
RATE_CELL = "Summary!$B$5"
FIRST_ROW = 1
"""Row of the first record below the headings, counting from zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheets:
    """The open workbook: its sheets and formats (XlsxWriter objects)."""

    book: Any
    summary: Any
    profit: Any
    cash: Any
    depreciation: Any
    energy: Any
    tax: Any
    ledger: Any
    assumptions: Any
    events: Any
    formats: dict[str, Any]

    @classmethod
    def add_to(cls, book: Any) -> Sheets:
        """Add every sheet, in order, and the cell formats."""
        formats = {
            "heading": book.add_format({"bold": True, "bg_color": "#DDE6F0", "text_wrap": True, "valign": "top"}),
            "title": book.add_format({"bold": True, "font_size": 14}),
            "note": book.add_format({"italic": True, "font_color": "#555555"}),
            "month": book.add_format({"num_format": "yyyy-mm"}),
            "usd": book.add_format({"num_format": "#,##0.00"}),
            "usd_bold": book.add_format({"num_format": "#,##0.00", "bold": True}),
            "unit_usd": book.add_format({"num_format": "#,##0.000000"}),
            "count": book.add_format({"num_format": "#,##0"}),
            "plain": book.add_format({"num_format": "0.000000"}),
            "percent_in": book.add_format({"num_format": "0.00%", "bg_color": "#FFF4C2", "border": 1}),
            "number_in": book.add_format({"num_format": "0.000000", "bg_color": "#FFF4C2", "border": 1}),
            "percent": book.add_format({"num_format": "0.00%"}),
        }
        names = ("summary", "profit", "cash", "depreciation", "energy", "tax", "ledger", "assumptions", "events")
        kind = _plain_formulas()
        pages = {key: book.add_worksheet(name, kind) for key, name in zip(names, SHEET_NAMES, strict=True)}
        for page in pages.values():
            page.set_landscape()
            page.fit_to_pages(1, 0)
        return cls(book=book, formats=formats, **pages)


def _plain_formulas() -> type[Any]:
    """Return a worksheet that takes formulas as they are.

    XlsxWriter looks in each for the thirty functions that Excel gained of late, which takes half a workbook's time;
    ours use none. Should it do so by another method one day, this one is not called, and all is as before.
    """
    from xlsxwriter.worksheet import Worksheet  # type: ignore[import-untyped]  # noqa: PLC0415 - when a book is open

    class PlainWorksheet(Worksheet):  # type: ignore[misc]
        def _prepare_formula(self, formula: str, _expand_future_functions: bool = False) -> str:
            return formula.removeprefix("=")

    return PlainWorksheet


def column_letters(column: int) -> str:
    """Return a column's letters, counting columns from zero: 0 is A, 26 is AA."""
    letters = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        letters = chr(65 + rest) + letters
    return letters


def address(row: int, column: int, *, fixed: str = "") -> str:
    """Return a cell's address; ``fixed`` holds R and C where the row or the column must not move."""
    column_mark = "$" if "C" in fixed else ""
    row_mark = "$" if "R" in fixed else ""
    return f"{column_mark}{column_letters(column)}{row_mark}{row + 1}"


def month_dates(content: WorkbookContent) -> list[date]:
    """Return the first day of each calendar month of the horizon."""
    return [edge.replace(day=1) for edge in content.grid.edges[:-1]]


def write_headings(sheet: Any, sheets: Sheets, headings: tuple[str, ...] | list[str], row: int = 0) -> None:
    """Write a row of headings and keep it in sight."""
    sheet.write_row(row, 0, headings, sheets.formats["heading"])
    sheet.freeze_panes(row + 1, 1)


def ledger_range(content: WorkbookContent, column: str) -> str:
    """Return the address of one column of the ledger sheet's records."""
    last = max(content.ledger.row_count, 1) + FIRST_ROW
    return f"Ledger!${column}${FIRST_ROW + 1}:${column}${last}"


def write_ledger(sheets: Sheets, content: WorkbookContent) -> None:
    """Write every ledger row: month, cluster, cohort, account, amount; what has a day of its own also discounted."""
    ledger, sheet = content.ledger, sheets.ledger
    headings = ("month", "cluster", "cohort", "account", "amount_usd", "day_offset_months", "discounted_usd")
    write_headings(sheet, sheets, headings)
    months = month_dates(content)
    clusters, cohorts = (*ledger.labels.clusters, SITE), (*ledger.labels.cohorts, "")
    columns = (ledger.month_index, ledger.cluster_index, ledger.cohort_index, ledger.account_code, ledger.amount_cents)
    for row, (month, cluster, cohort, code, amount) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True), start=FIRST_ROW
    ):
        sheet.write_datetime(row, 0, months[month], sheets.formats["month"])
        sheet.write_string(row, 1, clusters[cluster])
        sheet.write_string(row, 2, cohorts[cohort])
        sheet.write_string(row, 3, str(ACCOUNT_ORDER[code]))
        sheet.write_number(row, 4, amount / 100, sheets.formats["usd"])
    discounted = dated_present_usd(content)
    for place, offset, present in zip(content.dated_rows.tolist(), content.dated_months, discounted, strict=True):
        row = FIRST_ROW + place
        formula = f"={address(row, 4)}*(1+{RATE_CELL})^(-{address(row, 5)}/12)"
        sheet.write_number(row, 5, offset, sheets.formats["plain"])
        sheet.write_formula(row, 6, formula, sheets.formats["usd"], present)
    sheet.autofilter(0, 0, max(ledger.row_count, 1), len(headings) - 1)
    sheet.set_column(0, len(headings) - 1, 18)


def dated_present_usd(content: WorkbookContent) -> NDArray[np.float64]:
    """Return the present value of each ledger row that counts on a day of its own, in the order of the content."""
    amounts = content.ledger.amount_cents[content.dated_rows] / 100
    return np.asarray(amounts * discount_factors(content.discount_rate_per_year, content.dated_months))


def write_plain(sheet: Any, sheets: Sheets, table: SheetTable) -> None:
    """Write a table as it is: numbers as numbers, dates as dates, all else as text that is never run."""
    write_headings(sheet, sheets, table.headings)
    for row, cells in enumerate(table.rows, start=FIRST_ROW):
        for column, cell in enumerate(cells):
            match cell:
                case None:
                    pass
                case bool():
                    sheet.write_boolean(row, column, cell)
                case int() | float():
                    sheet.write_number(row, column, cell)
                case date():
                    sheet.write_string(row, column, cell.isoformat())
                case _:
                    sheet.write_string(row, column, str(cell))
    sheet.set_column(0, max(len(table.headings) - 1, 0), 22)
