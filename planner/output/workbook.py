"""Tables as workbooks: one sheet for each page, cells that may be formulas, and charts of their columns.

Nothing here knows what a run or a study is. A page is headings and rows; a cell is text, a number, or a :class:`Cell`
with a formula, which is always stored with its value, so that a reader that does not calculate shows the right figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import xlsxwriter  # type: ignore[import-untyped]

from planner.records import record

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
"""Characters of a column of numbers."""
_MOST_WIDTH = 52
"""Characters of a column of text, at most."""


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


@record
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
        # Plain numbers, which are written several times as fast as numpy's.
        cut = [column[:most] for column in columns.values()]
        plain = [cells.tolist() if isinstance(cells, np.ndarray) else cells for cells in cut]
        rows = list(zip(*plain, strict=True))
        lengths = [len(column) for column in columns.values()]
        length = max(lengths, default=0)
        if most is not None and length > most:
            message = f"and {length - most} more in the CSV file"
            # All rows are as wide as the headings.
            empty = [None] * (len(columns) - 1)
            rows.append((message, *empty))
        return cls(headings=tuple(columns), rows=rows, note=note, charts=charts)

    def heading(self, column: str) -> str:
        """Return a column's heading in words."""
        if column in self.names:
            return column
        return words(column)

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
    # Text of a scenario is never run or opened, whatever it begins with.
    options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    book = xlsxwriter.Workbook(target, options)
    # The time stamp is given, so that bytes do not differ.
    created = datetime.combine(start, time())
    book.set_properties({"title": title, "created": created})
    formats = {name: book.add_format(style) for name, style in _FORMATS.items()}
    # A sheet of charts alone is the first that a reader sees.
    has_charts = any(page.charts for page in pages.values())
    if charts_on not in pages and has_charts:
        own_name = frozenset({title})
        charts_page = Page(headings=(title,), rows=(), names=own_name)
        pages = {charts_on: charts_page, **pages}
    with book:
        sheets = {name: book.add_worksheet(name) for name in pages}
        row = 1
        for name, page in pages.items():
            _write_page(sheets[name], page, formats)
            # Charts of one title are one chart of several series.
            titles = dict.fromkeys(chart.title for chart in page.charts)
            for heading in titles:
                series = [chart for chart in page.charts if chart.title == heading]
                chart = _chart(book, name, page, series)
                column = len(pages[charts_on].headings) + 1
                sheets[charts_on].insert_chart(row, column, chart)
                row += _CHART_ROWS
        if row > 1:
            # Two charts to a printed page.
            step = 2 * _CHART_ROWS
            sheets[charts_on].set_h_pagebreaks(range(1 + step, row, step))
    return target.getvalue()


def _write_page(sheet: Any, page: Page, formats: Mapping[str, Any]) -> None:
    """Write a page: numbers as numbers, formulas with their values, all else as text that is never run."""
    headings = page.first_row - 1
    if page.note:
        sheet.write_string(0, 0, page.note, formats["note"])
    titles = [page.heading(name) for name in page.headings]
    sheet.write_row(headings, 0, titles, formats["heading"])
    styles = [style_of(heading) for heading in page.headings]
    widths = [_WIDTH] * len(page.headings)
    is_record = True
    for row, cells in enumerate(page.rows, start=page.first_row):
        for column, value in enumerate(cells):
            cell = value if isinstance(value, Cell) else Cell(value)
            style = cell.style or styles[column]
            width = _write_cell(sheet, row, column, cell, style, formats)
            width = max(widths[column], width)
            widths[column] = min(width, _MOST_WIDTH)
            is_record &= not (cell.formula or cell.limits)
    sheet.set_landscape()
    sheet.fit_to_pages(1, 0)
    for column, width in enumerate(widths):
        sheet.set_column(column, column, width)
    sheet.set_row(headings, 45)
    sheet.freeze_panes(page.first_row, page.fixed_columns)
    sheet.repeat_rows(headings)
    # To sort rows that formulas elsewhere point at would mix them up.
    if is_record and page.rows:
        last_row = headings + len(page.rows)
        sheet.autofilter(headings, 0, last_row, len(page.headings) - 1)


def _write_cell(
    sheet: Any, row: int, column: int, cell: Cell, style: str, formats: Mapping[str, Any]
) -> int:
    """Write a cell; return the characters that its column needs for it, 0 where any width will do."""
    value = cell.value
    if isinstance(value, float) and math.isnan(value):
        value = None
    if cell.formula:
        result = "" if value is None else value
        sheet.write_formula(row, column, f"={cell.formula}", formats[style], result)
    elif isinstance(value, bool):
        sheet.write_boolean(row, column, value)
    elif value is None:
        return 0
    elif isinstance(value, int | float) and math.isfinite(value):
        # A cell that may be typed over shows it by its colour.
        name = f"{style}_typed" if cell.limits else style
        sheet.write_number(row, column, value, formats[name])
        if cell.limits:
            low, high = cell.limits
            kind = "integer" if isinstance(low, int) else "decimal"
            rule = {"validate": kind, "criteria": "between", "minimum": low, "maximum": high}
            sheet.data_validation(row, column, row, column, rule)
    else:  # no cell holds infinity: it is text, as in the CSV
        text = str(value)
        sheet.write_string(row, column, text)
        return len(text)
    return 0


def _chart(book: Any, name: str, page: Page, parts: Sequence[SheetChart]) -> Any:
    """Return a chart; those of one title are its series."""
    chart_type = {"type": parts[0].kind}
    if parts[0].kind == "stacked":
        chart_type = {"type": "column", "subtype": "stacked"}
    chart = book.add_chart(chart_type)
    count = 0
    for part in parts:
        first_row = page.first_row + part.first
        end = part.last
        if end is None:
            end = len(page.rows)
        last_row = page.first_row + end - 1
        last_label = part.across + part.across_columns - 1
        labels = [name, first_row, part.across, last_row, last_label]
        for heading in part.columns:
            column = page.headings.index(heading)
            values = [name, first_row, column, last_row, column]
            series = {"name": page.heading(heading), "categories": labels, "values": values}
            chart.add_series({**series, "gap": 30})
            count += 1
    lead = parts[0]
    style = lead.style or style_of(lead.columns[0])
    chart.set_title({"name": lead.title, "name_font": {"size": 11}})
    pattern = _CHART_NUMBERS.get(style, _IN_MILLIONS)
    chart.set_y_axis({"num_format": pattern})
    chart.set_x_axis({"text_axis": True, "label_position": "low"})
    chart.set_legend({"position": "bottom", "none": count == 1})
    chart.set_size({"width": 760, "height": 380})
    return chart


def words(name: str) -> str:
    """Return a column's name in words: ``cost_per_million_tokens_usd`` is Cost per million tokens, USD."""
    if "." in name:
        return name  # a key of the scenario
    suffixes = filter(name.endswith, _UNITS)
    suffix = next(suffixes, "")
    stem = name.removesuffix(suffix)
    parts = [_INITIALS.get(part, part) for part in stem.split("_")]
    text = " ".join(parts) + _UNITS.get(suffix, "")
    # Not capitalize(), which would lower the other letters of NPV.
    return text[:1].upper() + text[1:]


def style_of(name: str) -> str:
    """Return the format of a column's numbers, by the unit that its name ends in."""
    if name.endswith("_usd"):
        return "unit_usd" if "_per_" in name else "usd"
    if name.endswith(("_tokens", "_kwh")):
        return "count"
    if name.endswith("_fraction"):
        return "percent"
    return "number"
