"""Lists of machines and quotes as people keep them: CSV, or the first sheet of an Excel or OpenDocument file."""

from __future__ import annotations

import csv
import datetime
import io
from collections.abc import Iterator
from pathlib import Path

from planner.errors import Problem, ScenarioError, line_of
from planner.yaml_io import read_bytes

_MAX_BYTES = 1_000_000
_MAX_BOOK_BYTES = 20_000_000
_MAX_ROWS = 100_000
_ZIP = b"PK\x03\x04"
_COMPOUND = b"\xd0\xcf\x11\xe0"
"""First bytes of .xlsx and .ods, and of .xls."""


def sheet_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Return the rows of a list with their lines, the header first, empty ones left out; texts without outer blanks."""
    content = read_bytes(path, _MAX_BOOK_BYTES)
    rows = _book_rows(path, content) if is_book(content) else _csv_rows(path, content)
    return [(line, cells) for line, cells in rows if any(cells)]


def is_book(content: bytes) -> bool:
    """Return whether a file is a workbook, by its first bytes."""
    return content.startswith((_ZIP, _COMPOUND))


def _csv_rows(path: Path, content: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a CSV."""
    if len(content) > _MAX_BYTES:
        message = f"is {len(content):,} bytes; a file may have {_MAX_BYTES:,}"
        raise ScenarioError(Problem(file=str(path), message=message))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = "is not UTF-8 text, as a CSV file must be, and not a workbook"
        raise ScenarioError(Problem(file=str(path), line=line_of(error), message=message)) from None
    # Spreadsheets of countries with a decimal comma separate cells by semicolons.
    header_line = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text), delimiter=";" if ";" in header_line else ",")
    try:
        for cells in reader:
            yield reader.line_num, [cell.strip() for cell in cells]
    except csv.Error as error:
        message = f"is not a CSV: {error}"
        problem = Problem(file=str(path), line=reader.line_num, message=message)
        raise ScenarioError(problem) from None


def _book_rows(path: Path, content: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a workbook's first sheet that has any."""
    # Loaded for workbooks alone.
    import python_calamine  # noqa: PLC0415

    try:
        book = python_calamine.load_workbook(io.BytesIO(content))
        sheets = (book.get_sheet_by_index(index) for index in range(len(book.sheet_names)))
        filled = [sheet for sheet in sheets if sheet.total_height]
        if not filled:
            raise ScenarioError(Problem(file=str(path), message="holds no rows"))
        first = filled[0]
        if first.total_height > _MAX_ROWS or first.total_width > 1000:
            raise ScenarioError(Problem(file=str(path), message=f"has over {_MAX_ROWS:,} rows"))
        rows = first.to_python(skip_empty_area=False)
    except (python_calamine.CalamineError, ValueError, OSError) as error:
        reason = str(error).partition("\n")[0]
        message = f"is not a workbook that can be read: {reason}"
        raise ScenarioError(Problem(file=str(path), message=message)) from None
    for line, cells in enumerate(rows, start=1):
        yield line, [_text(cell) for cell in cells]


def _text(cell: object) -> str:
    """Return a cell as it would stand in a CSV: whole numbers without a point, dates without a time."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15:
        return str(int(cell))
    if isinstance(cell, datetime.datetime):
        return cell.date().isoformat()
    return str(cell).strip()
