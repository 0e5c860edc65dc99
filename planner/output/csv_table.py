r"""The one CSV writer, and the data dictionary beside its files: a Frictionless ``datapackage.json``.

The same table always gives the same bytes, and a spreadsheet opens them as meant. Numbers are plain decimals without
exponent or thousands mark; an unknown number (NaN, None) is an empty cell; money held in cents is written from the
integer, so no float ever touches it. Text that a spreadsheet would run as a formula (=, +, −, @, tab, carriage return
or line feed at the start, and the full-width forms of the four signs) is given a leading apostrophe, as OWASP advises
on CSV injection. Line ends are ``\n`` on every system.

The dictionary describes every column of every file, with units, the separator, the decimal mark and a checksum, so that
a tool (or a person a year later) can read the files without this program. Written by hand to the Data Package v1
specification.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import ConservationError
from planner.output.columns import FRICTIONLESS_TYPES, Column, ColumnKind, DescribedTable, TableDescription
from planner.units import DOLLARS, unit_of

Cells = Sequence[Any] | NDArray[Any]

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """How files are written for the reader's spreadsheet."""

    decimal_comma: bool = False
    """Write 1,5 and separate cells by semicolons, as spreadsheets in much of Europe expect."""
    byte_order_mark: bool = False
    """Begin with the UTF-8 mark some versions of Excel need to read accents."""

    @property
    def separator(self) -> str:
        """The cell separator."""
        return ";" if self.decimal_comma else ","

    @property
    def decimal_mark(self) -> str:
        """The decimal mark."""
        return "," if self.decimal_comma else "."

    @property
    def options(self) -> list[str]:
        """The options of a command that ask for this format."""
        asked = {"--decimal-comma": self.decimal_comma, "--bom": self.byte_order_mark}
        return [option for option, is_asked in asked.items() if is_asked]


DEFAULT_FORMAT = CsvFormat()


def neutralised(text: str) -> str:
    """Return text that no spreadsheet runs as a formula."""
    return "'" + text if text.startswith(FORMULA_STARTS) else text


def _quoted(text: str, separator: str) -> str:
    """Return a cell quoted where CSV (RFC 4180) needs it."""
    if separator in text or '"' in text or "\n" in text or "\r" in text:
        return '"' + text.replace('"', '""') + '"'
    return text


def _text_cells(cells: Sequence[object], separator: str) -> list[str]:
    """Return text cells; each different text is worked out once, since names repeat down a column."""
    texts = ["" if cell is None else str(cell) for cell in cells]
    starts, together = {text[:1] for text in texts}, "".join(texts)
    # Where nothing is to be done to any, as with half a million times, that is soon seen.
    if starts.isdisjoint(FORMULA_STARTS) and not any(mark in together for mark in (separator, '"', "\n", "\r")):
        return texts
    known = {text: _quoted(neutralised(text), separator) for text in dict.fromkeys(texts)}
    return [known[text] for text in texts]


def _cents_cells(cells: NDArray[np.int64], decimal_mark: str) -> list[str]:
    """Return dollars with two decimals from whole cents."""
    if not np.issubdtype(cells.dtype, np.integer):
        msg = f"money must come in whole cents, not {cells.dtype}"
        raise ConservationError(msg)
    signs = ["-" if is_below else "" for is_below in (cells < 0).tolist()]
    dollars, rests = (part.tolist() for part in np.divmod(np.abs(cells), 100))
    parts = zip(signs, dollars, rests, strict=True)
    return [f"{sign}{dollar}{decimal_mark}{rest:02d}" for sign, dollar, rest in parts]


def _decimal_cells(cells: Sequence[float | None], column: Column, decimal_mark: str, names: Cells | None) -> list[str]:
    """Return numbers with the column's decimals, or those of what each measures; NaN and None are empty, −0 is 0."""
    numbers = np.array(cells, dtype=np.float64)
    if np.isinf(numbers).any():
        msg = f"column {column.name} holds an infinite number"
        raise ConservationError(msg)
    if names is None:
        form = f"%.{column.decimals}f"
        written = [form % number for number in numbers.tolist()]
    else:
        decimals = [2 if unit_of(name) == DOLLARS else column.decimals for name in names]
        written = [f"{number:.{places}f}" for number, places in zip(numbers.tolist(), decimals, strict=True)]
    for row in np.flatnonzero(np.isnan(numbers)).tolist():
        written[row] = ""
    for row in np.flatnonzero(np.signbit(numbers) & (np.abs(numbers) < 1.0)).tolist():
        if not written[row].strip("-0."):
            written[row] = written[row].removeprefix("-")
    if decimal_mark != ".":
        written = [cell.replace(".", decimal_mark) for cell in written]
    return written


def _date_cell(day: object) -> str:
    """Return a day as 2026-03-01, whether it comes as a date, a numpy date or nothing."""
    match day:
        case None:
            return ""
        case datetime():
            return day.date().isoformat()
        case date():
            return day.isoformat()
        case _:
            return str(np.datetime64(str(day), "D"))


def format_cells(
    column: Column, cells: Cells, form: CsvFormat = DEFAULT_FORMAT, names: Cells | None = None
) -> list[str]:
    """Return the cells of one column as they stand in the file; ``names`` say what each cell measures."""
    listed = cells.tolist() if isinstance(cells, np.ndarray) else list(cells)
    match column.kind:
        case ColumnKind.CENTS:
            return _cents_cells(np.asarray(cells), form.decimal_mark)
        case ColumnKind.DECIMAL:
            return _decimal_cells(listed, column, form.decimal_mark, names)
        case ColumnKind.INTEGER:
            return ["" if number is None else str(int(number)) for number in listed]
        case ColumnKind.BOOLEAN:
            return ["" if truth is None else "true" if truth else "false" for truth in listed]
        case ColumnKind.DATE:
            known = {day: _date_cell(day) for day in dict.fromkeys(listed)}
            return [known[day] for day in listed]
        case ColumnKind.TEXT | ColumnKind.MONTH:
            return _text_cells(listed, form.separator)


def shown_cells(column: Column, cells: Cells, names: Cells | None = None) -> list[str]:
    """Return the cells of one column as a reader of the file has them: text without its quotes and apostrophes."""
    if column.kind in (ColumnKind.TEXT, ColumnKind.MONTH):
        return ["" if cell is None else str(cell) for cell in cells]
    return format_cells(column, cells, names=names)


def write_csv(table: TableDescription, columns: Mapping[str, Cells], form: CsvFormat = DEFAULT_FORMAT) -> bytes:
    """Return the file of a table: the columns named in its description, in that order, all of one length."""
    wanted, given = [column.name for column in table.columns], list(columns)
    if set(wanted) != set(given):
        odd = sorted(set(wanted) ^ set(given))
        msg = f"table {table.name}: the columns do not match its description: {', '.join(odd)}"
        raise ConservationError(msg)
    written = [
        format_cells(column, columns[column.name], form, columns[column.measured_by] if column.measured_by else None)
        for column in table.columns
    ]
    lengths = {len(cells) for cells in written}
    if len(lengths) > 1:
        msg = f"table {table.name}: columns of different length: {sorted(lengths)}"
        raise ConservationError(msg)
    lines = [form.separator.join(wanted), *map(form.separator.join, zip(*written, strict=True))]
    text = "\n".join(lines) + "\n"
    return (BYTE_ORDER_MARK if form.byte_order_mark else b"") + text.encode("utf-8")


SCHEMA_VERSION = "1.0.0"
"""Version of the columns: the first number changes when a column is renamed, removed or changes meaning."""
CURRENCY = "USD"
"""All money in all files; a second currency would need a column of its own, and there is none."""

Json = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """A table and the file it was written to."""

    description: TableDescription
    """What the file holds."""
    size_bytes: int
    """Length of the file."""
    sha256: str
    """Checksum of the file."""


def csv_files(
    name: str,
    tables: Iterable[DescribedTable],
    form: CsvFormat = DEFAULT_FORMAT,
    streamed: Sequence[WrittenTable] = (),
) -> dict[str, bytes]:
    """Return the CSV file of each table and their data dictionary; ``streamed`` are tables that lie there already."""
    return packaged(name, [(table, write_csv(table, columns, form)) for table, columns in tables], form, streamed)


def packaged(
    name: str,
    contents: Iterable[tuple[TableDescription, bytes]],
    form: CsvFormat = DEFAULT_FORMAT,
    streamed: Sequence[WrittenTable] = (),
) -> dict[str, bytes]:
    """Return CSV files that were written before, by name, and their data dictionary."""
    written, files = list(streamed), dict[str, bytes]()
    for table, content in contents:
        files[f"{table.name}.csv"] = content
        digest = hashlib.sha256(content).hexdigest()
        written.append(WrittenTable(description=table, size_bytes=len(content), sha256=digest))
    return {**files, "datapackage.json": data_package(name, written, form)}


def _field(column: Column, form: CsvFormat) -> Json:
    """Return the Table Schema field of one column."""
    entry: Json = {
        "name": column.name,
        "type": FRICTIONLESS_TYPES[column.kind],
        "description": column.description,
    }
    if column.unit:
        entry["unit"] = column.unit
    if entry["type"] == "number":
        entry["decimalChar"] = form.decimal_mark
    if column.kind is ColumnKind.CENTS:
        entry["decimals"] = 2
    elif column.kind is ColumnKind.DECIMAL:
        entry["decimals"] = column.decimals
    return entry


def _resource(table: WrittenTable, form: CsvFormat) -> Json:
    """Return the resource entry of one file."""
    schema: Json = {
        "fields": [_field(column, form) for column in table.description.columns],
        "missingValues": [""],
    }
    if table.description.key:
        schema["primaryKey"] = list(table.description.key)
    return {
        "name": table.description.name.replace("_", "-"),
        "path": f"{table.description.name}.csv",
        "profile": "tabular-data-resource",
        "description": table.description.description,
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "bytes": table.size_bytes,
        "hash": "sha256:" + table.sha256,
        "dialect": {
            "delimiter": form.separator,
            "lineTerminator": "\n",
            "quoteChar": '"',
            "doubleQuote": True,
            "header": True,
        },
        "schema": schema,
    }


def data_package(name: str, tables: Sequence[WrittenTable], form: CsvFormat = DEFAULT_FORMAT) -> bytes:
    """Return ``datapackage.json`` for the files of one run; the same files give the same bytes."""
    package: Json = {
        "profile": "tabular-data-package",
        "name": name,
        "version": SCHEMA_VERSION,
        "currency": CURRENCY,
        "resources": [_resource(table, form) for table in tables],
    }
    return (json.dumps(package, indent=2, ensure_ascii=False) + "\n").encode("utf-8")
