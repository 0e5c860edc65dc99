"""A worksheet of XlsxWriter's that writes what ours hold in half the time, byte for byte the same.

XlsxWriter looks in each formula for the thirty functions that Excel gained of late; ours use none. It looks in each
attribute for what XML would read otherwise; most are the address and the format of a cell. Whoever writes a cell is
asked whether its place is a row and a column, or text such as A1. And what a cell holds is handed through five
functions on its way into the file. A workbook has tens of thousands of cells, so that is most of its time.

These methods are not promised by XlsxWriter. Should it do without them one day, they are not called, or see that what
they know is not there, and all is as before.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from xlsxwriter.utility import xl_col_to_name  # type: ignore[import-untyped]
from xlsxwriter.worksheet import CellFormulaTuple, Worksheet  # type: ignore[import-untyped]

_KNOWN = frozenset({"table", "row_info", "comments", "constant_memory", "fh"})
_BLOCK = 16  # rows that say together from which column to which they have cells
_letters = functools.cache(xl_col_to_name)


class PlainWorksheet(Worksheet):  # type: ignore[misc]
    """A worksheet that takes places, formulas and attributes as they are; only its cells have formats."""

    def write_formula(self, row: int, col: int, formula: str, cell_format: Any = None, value: object = 0) -> int:
        """Write a formula with the value that it has now."""
        if self._check_dimensions(row, col):
            return -1
        self.table[row][col] = CellFormulaTuple(formula.removeprefix("="), cell_format, value)
        return 0

    def _escape_attributes(self, attribute: object) -> object:
        is_plain = not isinstance(attribute, str) or attribute.isalnum()
        return attribute if is_plain else super()._escape_attributes(attribute)

    def _write_rows(self) -> None:
        if not vars(self).keys() >= _KNOWN or self.comments or self.constant_memory:
            super()._write_rows()
            return
        spans = _spans(self.table)
        styles = {None: ""}
        for row in sorted({*self.table, *self.row_info}):
            span, height = spans.get(row // _BLOCK), self.row_info.get(row)
            if not (cells := self.table.get(row)):
                if height is not None:
                    self._write_empty_row(row, span, height)
                continue
            self._write_row(row, span, height)
            for column in sorted(cells):
                cell = cells[column]
                if (style := styles.get(cell.format)) is None:
                    style = styles[cell.format] = f' s="{cell.format._get_xf_index()}"'
                begin = f'<c r="{_letters(column)}{row + 1}"{style}'
                kind = cell.__class__.__name__
                if kind == "String":
                    self.fh.write(f'{begin} t="s"><v>{cell.string}</v></c>')
                elif kind in ("Number", "Datetime"):
                    self.fh.write(f"{begin}><v>{cell.number:.16G}</v></c>")
                elif kind == "Formula" and isinstance(cell.value, float):
                    self.fh.write(f"{begin}><f>{self._escape_data(cell.formula)}</f><v>{cell.value}</v></c>")
                else:
                    self._write_cell(row, column, cell)
            self._xml_end_tag("row")


for _name in ("write_string", "write_number", "write_datetime"):
    setattr(PlainWorksheet, _name, inspect.unwrap(getattr(Worksheet, _name)))


def _spans(table: dict[int, dict[int, Any]]) -> dict[int, str]:
    """Return the first and the last column, counting from one, in which each block of rows has cells."""
    ends: dict[int, tuple[int, int]] = {}
    for row, cells in table.items():
        if cells:
            first, last = ends.get(row // _BLOCK, (min(cells), max(cells)))
            ends[row // _BLOCK] = min(first, *cells), max(last, *cells)
    return {block: f"{first + 1}:{last + 1}" for block, (first, last) in ends.items()}
