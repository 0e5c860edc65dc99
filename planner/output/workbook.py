"""Tables as workbooks: one sheet for each page, cells that may be formulas, and charts of their columns.

Nothing here knows what a run or a study is. A page is headings and rows; a cell is text, a number, or a :class:`Cell`
with a formula, which is always stored with its value, so that a reader that does not calculate shows the right figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import xlsxwriter  # type: ignore[import-untyped]

_MONEY = "#,##0.00;(#,##0.00);–"
"""Accounting signs: what is below zero stands in brackets, nothing is a dash."""
_IN_MILLIONS = '[>=1000000]#,##0.0,,"M";[<=-1000000]-#,##0.0,,"M";#,##0'
_NUMBERS = {
    "usd": _MONEY,
    "unit_usd": "#,##0.000000",
    "count": "#,##0",
    "percent": "0.00%",
    "number": "#,##0.00####",
}
_CHART_NUMBERS = {"percent": "0.0%", "unit_usd": "0.00", "count": "0.0E+0"}
_FORMATS: dict[str, dict[str, Any]] = {
    "heading": {"bold": True, "bg_color": "#DDE6F0", "text_wrap": True, "valign": "top"},
    "note": {"italic": True, "font_color": "#555555"},
    **{name: {"num_format": shown} for name, shown in _NUMBERS.items()},
    **{
        f"{name}_typed": {"num_format": shown, "bg_color": "#FFF4C2", "border": 1}
        for name, shown in _NUMBERS.items()
    },
}
_UNITS = {
    "_usd": ", USD",
    "_fraction": "",
    "_kwh": ", kWh",
    "_kw": ", kW",
    "_kg": ", kg",
    "_h": ", hours",
}
_INITIALS = {
    "npv": "NPV",
    "tco": "TCO",
    "irr": "IRR",
    "slo": "SLO",
    "rma": "RMA",
    "sla": "SLA",
    "usd": "USD",
}
_CHART_ROWS = 20
"""Rows that a chart takes."""
_WIDTH = 18
_MOST_WIDTH = 52
"""Of a column, in characters: of numbers, and at most of text."""


class Cell(NamedTuple):
    """A cell that is more than a plain number or text."""

    value: Any
    """What stands there: a number, text, a date, None or NaN for nothing; of a formula, what it comes to."""
    formula: str = ""
    """Without its equals sign."""
    style: str = ""
    """How a number is shown; empty for what its column's name says."""
    limits: tuple[float, float] | None = None
    """Between which numbers a person may type another: the cell is then yellow."""


class SheetChart(NamedTuple):
    """A chart of a page's columns by their names, over a run of its rows."""

    title: str
    columns: tuple[str, ...]
    first: int = 0
    """First row of the table that is drawn."""
    last: int | None = None
    """The row after the last that is drawn; None for all."""
    kind: str = "line"
    """line, column, or stacked for columns on top of one another."""
    across: int = 0
    """Column that holds the labels of the axis."""
    across_columns: int = 1
    """How many columns hold them, from that one on."""
    style: str = ""
    """Format of the numbers, where it is not what the first column's name says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A sheet: a table, what a reader has to know above it, and charts of its columns."""

    headings: tuple[str, ...]
    """Names of the columns; shown in words, and what they end in decides how numbers are shown."""
    rows: Sequence[Sequence[object]]
    """Cells: text, numbers, dates, None for an empty one, or :class:`Cell`."""
    note: str = ""
    """A line above the headings."""
    charts: tuple[SheetChart, ...] = ()
    names: frozenset[str] = frozenset()
    """Headings that are names, of plans for instance, and stay as they are."""
    fixed_columns: int = 1
    """Columns that stay in sight."""

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Any],
        *,
        most: int | None = None,
        note: str = "",
        charts: tuple[SheetChart, ...] = (),
    ) -> Page:
        """Return columns as a page of at most ``most`` rows; a last row says where the others are."""
        rows = list(zip(*(_plain(column, most) for column in columns.values()), strict=True))
        length = len(next(iter(columns.values()))) if columns else 0
        if most is not None and length > most:
            rows.append((f"and {length - most} more in the CSV file", *[None] * (len(columns) - 1)))
        return cls(headings=tuple(columns), rows=rows, note=note, charts=charts)

    def heading(self, column: str) -> str:
        """Return a column's heading in words."""
        return column if column in self.names else words(column)

    @property
    def first_row(self) -> int:
        """Row of the sheet that holds the first row of the table, counting from zero."""
        return 2 if self.note else 1


def write_tables(
    title: str, start: date, pages: Mapping[str, Page], *, charts_on: str = "Charts"
) -> bytes:
    """Return a workbook of pages by the names of their sheets; the same pages give the same bytes.

    Charts stand to the right of the table on the sheet named, or on one of their own before all others.
    """
    target = BytesIO()
    book = xlsxwriter.Workbook(
        target, {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    )
    # The time stamp is given, so that bytes do not differ.
    book.set_properties({"title": title, "created": datetime.combine(start, time())})
    formats = {name: book.add_format(style) for name, style in _FORMATS.items()}
    if charts_on not in pages and any(page.charts for page in pages.values()):
        pages = {charts_on: Page(headings=(title,), rows=(), names=frozenset({title})), **pages}
    with book:
        sheets = {name: book.add_worksheet(name) for name in pages}
        row = 1
        for name, page in pages.items():
            _write_page(sheets[name], page, formats)
            for heading in dict.fromkeys(chart.title for chart in page.charts):
                drawn = [chart for chart in page.charts if chart.title == heading]
                place = row, len(pages[charts_on].headings) + 1
                sheets[charts_on].insert_chart(*place, _chart(book, name, page, drawn))
                row += _CHART_ROWS
        if row > 1:
            sheets[charts_on].set_h_pagebreaks(range(1 + 2 * _CHART_ROWS, row, 2 * _CHART_ROWS))
    return target.getvalue()


def _write_page(sheet: Any, page: Page, formats: Mapping[str, Any]) -> None:
    """Write a page: numbers as numbers, formulas with their values, all else as text that is never run."""
    headings = page.first_row - 1
    if page.note:
        sheet.write_string(0, 0, page.note, formats["note"])
    sheet.write_row(headings, 0, [page.heading(name) for name in page.headings], formats["heading"])
    styles = [style_of(heading) for heading in page.headings]
    widths = [_WIDTH] * len(page.headings)
    is_record = True
    for row, cells in enumerate(page.rows, start=page.first_row):
        for column, cell in enumerate(cells):
            value, formula, style, limits = cell if isinstance(cell, Cell) else Cell(cell)
            style = style or styles[column]
            if isinstance(value, float) and math.isnan(value):
                value = None
            is_record &= not (formula or limits)
            if formula:
                sheet.write_formula(
                    row, column, f"={formula}", formats[style], "" if value is None else value
                )
            elif isinstance(value, bool):
                sheet.write_boolean(row, column, value)
            elif isinstance(value, int | float) and math.isfinite(value):
                sheet.write_number(
                    row, column, value, formats[f"{style}_typed" if limits else style]
                )
                if limits:
                    kind = "integer" if isinstance(limits[0], int) else "decimal"
                    (low, high) = limits
                    rule = {
                        "validate": kind,
                        "criteria": "between",
                        "minimum": low,
                        "maximum": high,
                    }
                    sheet.data_validation(row, column, row, column, rule)
            elif value is not None:  # no cell holds infinity: it is text, as in the CSV
                sheet.write_string(row, column, str(value))
                widths[column] = min(max(widths[column], len(str(value))), _MOST_WIDTH)
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
    for column, width in enumerate(widths):
        sheet.set_column(column, column, width)
    sheet.set_row(headings, 45)
    sheet.freeze_panes(page.first_row, page.fixed_columns)
    sheet.repeat_rows(headings)
    if is_record and page.rows:  # to sort rows that formulas elsewhere point at would mix them up
        sheet.autofilter(headings, 0, headings + len(page.rows), len(page.headings) - 1)


def _chart(book: Any, name: str, page: Page, drawn: Sequence[SheetChart]) -> Any:
    """Return a chart; those of one title are its series."""
    is_stacked = drawn[0].kind == "stacked"
    chart = book.add_chart(
        {"type": "column", "subtype": "stacked"} if is_stacked else {"type": drawn[0].kind}
    )
    for series in drawn:
        first = page.first_row + series.first
        last = page.first_row + (len(page.rows) if series.last is None else series.last) - 1
        for heading in series.columns:
            column = page.headings.index(heading)
            across = series.across + series.across_columns - 1
            axis = [name, first, series.across, last, across]
            values = [name, first, column, last, column]
            chart.add_series(
                {"name": page.heading(heading), "categories": axis, "values": values, "gap": 30}
            )
    style = drawn[0].style or style_of(drawn[0].columns[0])
    chart.set_title({"name": drawn[0].title, "name_font": {"size": 11}})
    chart.set_y_axis({"num_format": _CHART_NUMBERS.get(style, _IN_MILLIONS)})
    chart.set_x_axis({"text_axis": True, "label_position": "low"})
    chart.set_legend(
        {"position": "bottom", "none": sum(len(series.columns) for series in drawn) == 1}
    )
    chart.set_size({"width": 760, "height": 380})
    return chart


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


def _plain(column: Any, most: int | None) -> list[object]:
    """Return the first cells of a column; NaN is an empty one."""
    cells = column[:most].tolist() if isinstance(column, np.ndarray) else list(column[:most])
    return [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in cells]
