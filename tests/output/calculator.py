"""A small calculator of workbooks: reads the formulas of a file and works each out anew, from the cells it names.

It knows what the planner's sheets use (arithmetic, comparison, SUM, SUMIFS, SUMPRODUCT, ROUND, MIN, MAX, IF), and
stops at anything else. Stored results of formulas are not read.
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from typing import Any
from xml.etree import ElementTree

import numpy as np

from tests.output.office import Sheet, sheets_of

_XML = {"x": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
_TOKEN = re.compile(
    r"""(?P<text>"[^"]*")"""
    r"""|(?P<area>'[^']+'!\$?[A-Z]+\$?\d+(?::\$?[A-Z]+\$?\d+)?)"""
    r"""|(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?)"""
    r"""|(?P<function>[A-Z]+(?=\())"""
    r"""|(?P<sign><>|>=|<=|[-+*/^(),=<>])"""
)
_PYTHON = {"^": "**", "=": "==", "<>": "!="}
Place = tuple[str, int, int]


def _column(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def _number(value: Any) -> Any:
    """Return a value as arithmetic takes it: nothing and blanks are zero."""
    return 0.0 if value in (None, "") else np.float64(value) if isinstance(value, int) else value


def _round(value: Any, digits: Any) -> Any:
    """Round half away from zero, as spreadsheets do, on the decimal number that a float stands for."""
    scaled = np.asarray(value, dtype=np.float64) * 10.0 ** int(digits)
    # A spreadsheet takes 15 digits: 0.285 is not a hair less than itself.
    nudged = np.abs(scaled) * (1.0 + 4e-16)
    return np.sign(scaled) * np.floor(nudged + 0.5) / 10.0 ** int(digits)


class Calculator:
    """A workbook whose formulas are worked out when asked for."""

    def __init__(self, content: bytes) -> None:
        self.stored = sheets_of(content)
        self.formulas: dict[Place, str] = {}
        self.values: dict[Place, Any] = {}
        self.areas: dict[str, Any] = {}
        with zipfile.ZipFile(io.BytesIO(content)) as book:
            for number, name in enumerate(self.stored, start=1):
                root = ElementTree.fromstring(book.read(f"xl/worksheets/sheet{number}.xml"))
                for cell in root.iterfind(".//x:c", _XML):
                    formula = cell.find("x:f", _XML)
                    found = re.fullmatch(r"([A-Z]+)(\d+)", cell.get("r", ""))
                    assert found
                    if formula is not None:
                        self.formulas[name, int(found[2]) - 1, _column(found[1])] = str(
                            formula.text
                        )
        self.functions = {
            "SUM": lambda *parts: sum(np.sum(self._numbers(part)) for part in parts),
            "MIN": lambda *parts: min(float(np.min(self._numbers(part))) for part in parts),
            "MAX": lambda *parts: max(float(np.max(self._numbers(part))) for part in parts),
            "ROUND": lambda value, digits: _round(self._numbers(value), digits),
            "SUMPRODUCT": lambda *parts: np.sum(np.prod([self._numbers(p) for p in parts], axis=0)),
            "SUMIFS": self._sumifs,
            "IF": lambda test, yes, no: yes if test else no,
            "np": np,
            "cell": self.at,
            "area": self._area,
        }

    def sheets(self) -> dict[str, Sheet]:
        """Return every sheet with its formulas worked out."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(20_000)
        try:
            with np.errstate(all="ignore"):
                found = {name: [list(row) for row in rows] for name, rows in self.stored.items()}
                for sheet, row, column in self.formulas:
                    value = self.at(sheet, row, column)
                    found[sheet][row][column] = value if isinstance(value, str) else float(value)
        finally:
            sys.setrecursionlimit(limit)
        return found

    def at(self, sheet: str, row: int, column: int) -> Any:
        """Return the value of a cell."""
        place = (sheet, row, column)
        if place not in self.formulas:
            cells = self.stored[sheet]
            inside = row < len(cells) and column < len(cells[row])
            # An empty cell is zero in arithmetic.
            stored = (cells[row][column] if inside else "") or 0.0
            # Division of these by zero is no exception, as an IF works out both its branches here.
            return np.float64(stored) if isinstance(stored, int | float) else stored
        if place not in self.values:
            self.values[place] = self._work_out(self.formulas[place])
        return self.values[place]

    def _work_out(self, formula: str) -> Any:
        parts = []
        end = 0
        for token in _TOKEN.finditer(formula):
            assert not formula[end : token.start()].strip(), formula
            end = token.end()
            parts.append(self._python(token))
        assert end == len(formula), formula
        return eval("".join(parts), dict(self.functions))

    def _python(self, token: re.Match[str]) -> str:
        text = token[0]
        if token["number"]:
            return f"np.float64({float(text)!r})"
        if token["area"]:
            sheet, address = text.replace("$", "").split("!")
            corners = [re.fullmatch(r"([A-Z]+)(\d+)", corner) for corner in address.split(":")]
            places = [(int(found[2]) - 1, _column(found[1])) for found in corners if found]
            name = sheet.strip("'")
            if len(places) == 1:
                return f"cell({name!r},{places[0][0]},{places[0][1]})"
            return f"area({name!r},{places[0]},{places[1]})"
        return _PYTHON.get(text, text)

    def _area(self, sheet: str, first: tuple[int, int], last: tuple[int, int]) -> Any:
        key = f"{sheet}{first}{last}"
        if key not in self.areas:
            rows = range(first[0], last[0] + 1)
            columns = range(first[1], last[1] + 1)
            cells = [[self.at(sheet, row, column) for column in columns] for row in rows]
            self.areas[key] = np.array(cells, dtype=object)
        return self.areas[key]

    @staticmethod
    def _numbers(value: Any) -> Any:
        if not isinstance(value, np.ndarray) or value.dtype != object:
            return value if isinstance(value, np.ndarray) else np.float64(_number(value))
        plain = [
            0.0 if isinstance(cell, str) or cell is None else float(cell) for cell in value.flat
        ]
        return np.array(plain).reshape(value.shape)

    def _sumifs(self, summed: Any, *criteria: Any) -> float:
        is_counted = np.ones(summed.shape, dtype=bool)
        for cells, wanted in zip(criteria[::2], criteria[1::2], strict=True):
            is_counted &= np.array([cell == wanted for cell in cells.flat]).reshape(cells.shape)
        return float(self._numbers(summed)[is_counted].sum())


def calculate(content: bytes) -> dict[str, Sheet]:
    """Return the sheets of a workbook with every formula worked out anew."""
    return Calculator(content).sheets()
