"""Workbooks: their cell formats, headings in words, plain tables as sheets, and charts of their columns."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from io import BytesIO
from typing import Any

import numpy as np

_MONEY = "#,##0.00;(#,##0.00);–"
"""Accounting signs: what is below zero stands in brackets, nothing is a dash."""
_IN_MILLIONS = '[>=1000000]#,##0.0,,"M";[<=-1000000]-#,##0.0,,"M";#,##0'
_INPUT = {"bg_color": "#FFF4C2", "border": 1}
FORMATS: dict[str, dict[str, Any]] = {
    "heading": {"bold": True, "bg_color": "#DDE6F0", "text_wrap": True, "valign": "top"},
    "title": {"bold": True, "font_size": 14},
    "note": {"italic": True, "font_color": "#555555"},
    "month": {"num_format": "yyyy-mm"},
    "month_heading": {"num_format": "yyyy-mm", "bold": True, "bg_color": "#DDE6F0"},
    "date": {"num_format": "yyyy-mm-dd"},
    "text": {},
    "usd": {"num_format": _MONEY},
    "usd_bold": {"num_format": _MONEY, "bold": True, "top": 1},
    "unit_usd": {"num_format": "#,##0.000000"},
    "count": {"num_format": "#,##0"},
    "plain": {"num_format": "0.000000"},
    "percent": {"num_format": "0.00%"},
    "number": {"num_format": "#,##0.00####"},
    "unit": {"indent": 1},
    "percent_in": {"num_format": "0.00%", **_INPUT},
    "number_in": {"num_format": "#,##0.00####", **_INPUT},
    "count_in": {"num_format": "#,##0", **_INPUT},
}
_UNITS = {"_usd": ", USD", "_fraction": "", "_kwh": ", kWh", "_kw": ", kW", "_kg": ", kg", "_h": ", hours"}
_INITIALS = {"npv": "NPV", "tco": "TCO", "irr": "IRR", "slo": "SLO", "rma": "RMA", "sla": "SLA", "usd": "USD"}
CHART_ROWS = 20
"""Rows that a chart takes."""
FIRST_ROW = 1
"""Row of the first record below the headings of a plain table, counting from zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetTable:
    """A plain table for a sheet: headings and rows of text and numbers."""

    headings: tuple[str, ...]
    """Column headings."""
    rows: Sequence[Sequence[object]]
    """Rows of cells; None is an empty cell."""
    names: frozenset[str] = frozenset()
    """Headings that are names, of plans for instance, and stay as they are."""

    def heading(self, column: str) -> str:
        """Return a column's heading in words."""
        return column if column in self.names else words(column)


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetChart:
    """A chart of a plain table's columns by their names, over a run of its rows."""

    title: str
    columns: tuple[str, ...]
    first: int = 0
    """First row of the table that is drawn."""
    last: int | None = None
    """The row after the last that is drawn; None for all."""
    kind: str = "line"
    across: int = 0
    """Column that holds the labels of the axis."""
    across_columns: int = 1
    """How many columns hold them, from that one on."""
    style: str = ""
    """Format of the numbers, where it is not what the first column's name says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A sheet of a plain workbook."""

    table: SheetTable
    charts: tuple[SheetChart, ...] = ()
    note: str = ""
    """What a reader has to know, to the right of the table."""


@dataclass(frozen=True, slots=True)
class Sheets:
    """An open workbook: its sheets by name and its formats (XlsxWriter objects)."""

    book: Any
    formats: dict[str, Any]
    _kind: Any
    _pages: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, book: Any) -> Sheets:
        """Add the cell formats to a new workbook."""
        from planner.output.worksheet import PlainWorksheet  # noqa: PLC0415 - as above, when a book is open

        return cls(book, {name: book.add_format(style) for name, style in FORMATS.items()}, PlainWorksheet)

    def __getitem__(self, name: str) -> Any:
        """Return a sheet, added on first sight."""
        if name not in self._pages:
            page = self._pages[name] = self.book.add_worksheet(name, self._kind)
            page.set_landscape()
            page.fit_to_pages(1, 0)
        return self._pages[name]


def open_book(title: str, start: date) -> tuple[BytesIO, Any]:
    """Return where a workbook is written and the workbook; its time stamp is given, so that bytes do not differ."""
    import xlsxwriter  # type: ignore[import-untyped]  # noqa: PLC0415 - a tenth of a second that only workbooks cost

    target = BytesIO()
    options: dict[str, Any] = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    book = xlsxwriter.Workbook(target, options)
    book.set_properties({"title": title, "created": datetime.combine(start, time())})
    return target, book


def write_tables(title: str, start: date, pages: Mapping[str, Page]) -> bytes:
    """Return a workbook of plain tables, one a sheet, with their charts; the same tables give the same bytes."""
    target, book = open_book(title, start)
    with book:
        sheets = Sheets.of(book)
        row, drawn = 1, "Charts"
        if any(page.charts for page in pages.values()):
            sheets[drawn].write_string(0, 0, title, sheets.formats["title"])
        for name, page in pages.items():
            write_page(sheets, name, page)
            row = draw_charts(sheets, name, page, (drawn, row, 0))
        if row > 1:
            sheets[drawn].set_portrait()
            sheets[drawn].set_h_pagebreaks(range(1 + 2 * CHART_ROWS, row, 2 * CHART_ROWS))
    return target.getvalue()


def words(name: str) -> str:
    """Return a column's name in words: ``cost_per_million_tokens_usd`` is Cost per million tokens, USD."""
    if "." in name:
        return name  # a key of the scenario
    suffix = next((suffix for suffix in _UNITS if name.endswith(suffix)), "")
    parts = [_INITIALS.get(part, part) for part in name.removesuffix(suffix).split("_")]
    said = " ".join(parts) + _UNITS.get(suffix, "")
    return said[:1].upper() + said[1:]


def style_of(name: str) -> str:
    """Return the format of a column's numbers, by the unit that its name ends in."""
    if name.endswith("_usd"):
        return "unit_usd" if "_per_" in name else "usd"
    if name.endswith(("_tokens", "_kwh")):
        return "count"
    return "percent" if name.endswith("_fraction") else "number"


@functools.cache
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


def down(sheet: str, column: int, first: int, count: int) -> str:
    """Return the fixed address of some rows of a column."""
    return f"'{sheet}'!{address(first, column, fixed='RC')}:{address(first + count - 1, column, fixed='RC')}"


def sheet_of(columns: Mapping[str, Any], most: int | None = None) -> SheetTable:
    """Return columns as rows, at most so many; a row then says where the others are."""
    rows = list(zip(*(_cells(column, most) for column in columns.values()), strict=True))
    length = len(next(iter(columns.values()))) if columns else 0
    if most is not None and length > most:
        rows.append((f"and {length - most} more in the CSV file", *[None] * (len(columns) - 1)))
    return SheetTable(headings=tuple(columns), rows=rows)


def in_usd(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table whose amounts are cents in dollars."""
    return {name: np.asarray(column) / 100 if name.endswith("_usd") else column for name, column in table.items()}


def _cells(column: Any, most: int | None) -> list[object]:
    """Return plain cells; NaN is an empty one."""
    cells = column[:most].tolist() if isinstance(column, np.ndarray) else list(column[:most])
    return [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in cells]


def write_headings(sheet: Any, sheets: Sheets, headings: Sequence[str], row: int = 0) -> None:
    """Write a row of headings and keep it in sight."""
    sheet.write_row(row, 0, headings, sheets.formats["heading"])
    sheet.set_row(row, 45)
    sheet.freeze_panes(row + 1, 1)


def write_plain(sheet: Any, sheets: Sheets, table: SheetTable, row: int = 0) -> None:
    """Write a table as it is: numbers as numbers, dates as dates, all else as text that is never run."""
    sheet.write_row(row, 0, [table.heading(name) for name in table.headings], sheets.formats["heading"])
    styles = [sheets.formats[style_of(heading)] for heading in table.headings]
    for place, cells in enumerate(table.rows, start=row + 1):
        for column, cell in enumerate(cells):
            match cell:
                case None:
                    pass
                case bool():
                    sheet.write_boolean(place, column, cell)
                case float() if not math.isfinite(cell):  # no cell holds it: nothing, or "inf" as in the CSV
                    sheet.write_string(place, column, "" if math.isnan(cell) else str(cell))
                case int() | float():
                    sheet.write_number(place, column, cell, styles[column])
                case date():
                    sheet.write_string(place, column, cell.isoformat())
                case _:
                    sheet.write_string(place, column, str(cell))
    sheet.set_column(0, max(len(table.headings) - 1, 0), 22)


def write_page(sheets: Sheets, name: str, page: Page) -> None:
    """Write a plain table as a sheet of its own."""
    sheet = sheets[name]
    write_plain(sheet, sheets, page.table)
    sheet.set_row(0, 45)
    sheet.freeze_panes(FIRST_ROW, 1)
    sheet.autofilter(0, 0, max(len(page.table.rows), 1), len(page.table.headings) - 1)
    if page.note:
        sheet.write_string(0, len(page.table.headings) + 1, page.note, sheets.formats["note"])


def draw_charts(sheets: Sheets, name: str, page: Page, place: tuple[str, int, int]) -> int:
    """Draw a table's charts onto a sheet from a row and column on, below one another; return the row after them."""
    onto, row, column = place
    for title in dict.fromkeys(chart.title for chart in page.charts):
        drawn = [chart for chart in page.charts if chart.title == title]
        sheets[onto].insert_chart(row, column, _chart(sheets, name, page.table, drawn))
        row += CHART_ROWS
    return row


def _chart(sheets: Sheets, name: str, table: SheetTable, drawn: Sequence[SheetChart]) -> Any:
    """Return a chart; those of one title are its series."""
    chart = sheets.book.add_chart({"type": drawn[0].kind})
    for series in drawn:
        first, last = (
            FIRST_ROW + series.first,
            FIRST_ROW + (len(table.rows) if series.last is None else series.last) - 1,
        )
        for heading in series.columns:
            column = table.headings.index(heading)
            chart.add_series(
                {
                    "name": table.heading(heading),
                    "categories": [name, first, series.across, last, series.across + series.across_columns - 1],
                    "values": [name, first, column, last, column],
                }
            )
    return finish_chart(
        chart, drawn[0].title, legend=len(chart.series) > 1, style=drawn[0].style or style_of(drawn[0].columns[0])
    )


def finish_chart(chart: Any, title: str, *, legend: bool, style: str, axis: str = "General") -> Any:
    """Set a chart's title, axes and size."""
    chart.set_title({"name": title, "name_font": {"size": 11}})
    chart.set_y_axis(
        {"num_format": {"percent": "0.0%", "unit_usd": "0.00", "count": "0.0E+0"}.get(style, _IN_MILLIONS)}
    )
    chart.set_x_axis({"text_axis": True, "num_format": axis, "label_position": "low"})
    chart.set_legend({"position": "bottom", "none": not legend})
    chart.set_size({"width": 760, "height": 380})
    return chart
