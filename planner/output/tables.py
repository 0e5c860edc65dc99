r"""Tables: their columns described once, their cells as files and reports show them, and the one CSV writer.

The same table always gives the same bytes, and a spreadsheet opens them as meant. Numbers are plain decimals without
exponent or thousands mark; an unknown number (NaN, None) is an empty cell; money held in cents is written from the
integer, so no float ever touches it. Text that a spreadsheet would run as a formula (=, +, −, @, tab, carriage return
or line feed at the start, and the full-width forms of the four signs) is given a leading apostrophe, as OWASP advises
on CSV injection. Line ends are ``\n`` on every system.

Beside the files lies their dictionary, ``datapackage.json`` to the Data Package v1 specification: every column of every
file with its unit, the separator, the decimal mark and a checksum, so that a tool (or a person a year later) can read
the files without this program.

One currency rule: all money is in US dollars, its column name ends in ``_usd`` or ``_usd_per_…``, and no file
has two currencies.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import ConservationError, Problem, ScenarioError
from planner.units import DOLLARS, unit_of

Cells = Sequence[Any] | NDArray[Any]
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_KEPT_FROM_RUNNING = tuple(f"'{sign}" for sign in FORMULA_STARTS)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
SCHEMA_VERSION = "2.0.0"
"""Version of the columns: the first number changes when a column is renamed, removed or changes meaning."""


class ColumnKind(StrEnum):
    """What the cells of a column are."""

    TEXT = "text"
    """Any text; neutralised where a spreadsheet would run it."""
    DATE = "date"
    """A day as 2026-03-01."""
    MONTH = "month"
    """A month as 2026-03-01, its first day, made of 2026-03."""
    INTEGER = "integer"
    """A whole number."""
    DECIMAL = "decimal"
    """A number with a fixed count of decimals."""
    CENTS = "cents"
    """Money held in whole cents, written in dollars with two decimals, exactly."""
    BOOLEAN = "boolean"
    """true or false."""


_OTHERWISE = {"text": "string", "month": "date", "decimal": "number", "cents": "number"}
FRICTIONLESS_TYPES = {kind: _OTHERWISE.get(kind, kind.value) for kind in ColumnKind}
"""The Table Schema type of each kind (specs.frictionlessdata.io/table-schema)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of an output file."""

    name: str
    """Heading, in snake case with its unit as suffix; never renamed within a schema version."""
    kind: ColumnKind
    """What its cells are."""
    description: str
    """One sentence for the data dictionary."""
    unit: str = ""
    """Unit of the cells; empty for text and dates."""
    decimals: int = 6
    """Decimals written, for DECIMAL columns."""
    measured_by: str = ""
    """Column whose cells name what this one measures, row by row: an amount of dollars then has two decimals."""


def text_column(name: str, description: str) -> Column:
    """Return a column of text."""
    return Column(name=name, kind=ColumnKind.TEXT, description=description)


def number_column(
    name: str, description: str, decimals: int = 6, unit: str | None = None
) -> Column:
    """Return a column of numbers, in the unit that its name states unless another is."""
    unit = unit_of(name) or "" if unit is None else unit
    return Column(
        name=name, kind=ColumnKind.DECIMAL, description=description, unit=unit, decimals=decimals
    )


def cents_column(name: str, description: str) -> Column:
    """Return a column of money to the cent."""
    return Column(name=name, kind=ColumnKind.CENTS, description=description, unit=DOLLARS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """One output file: its name, what a row is, and its columns."""

    name: str
    """File name without suffix."""
    description: str
    """What the file holds and what one row is."""
    columns: tuple[Column, ...]
    """Its columns, in order."""
    key: tuple[str, ...] = ()
    """Columns that together name a row once."""

    def of_rows(self, rows: Iterable[Sequence[Any]]) -> Table:
        """Return the table of some rows, their cells in the order of the columns."""
        cells = list(zip(*rows, strict=True)) or [()] * len(self.columns)
        return Table(
            self,
            {column.name: list(below) for column, below in zip(self.columns, cells, strict=True)},
        )


class Table:
    """A table of an answer, made in this process or read from its file: cells as made, as text and as numbers.

    What a report says of a number is what the file says of it: ``numbers`` are rounded as the file has them, so a
    report that is made anew from a folder is the same to the byte.
    """

    def __init__(self, description: TableDescription, columns: Mapping[str, Cells]) -> None:
        """Take the columns that the description names, all of one length."""
        wanted = [column.name for column in description.columns]
        whose = f"table {description.name}"
        if odd := sorted(set(wanted) ^ set(columns)):
            raise ConservationError(
                f"{whose}: the columns do not match its description: {', '.join(odd)}"
            )
        lengths = {len(columns[name]) for name in wanted}
        if len(lengths) > 1:
            raise ConservationError(f"{whose}: columns of different length: {sorted(lengths)}")
        self.description = description
        self.columns = {name: columns[name] for name in wanted}
        self._length = lengths.pop() if lengths else 0
        self._texts: dict[str, list[str]] = {}
        self._numbers: dict[str, list[float | None]] = {}

    @property
    def name(self) -> str:
        """File name without suffix."""
        return self.description.name

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def __len__(self) -> int:
        return self._length

    def texts(self, column: str) -> list[str]:
        """Return a column as a reader of the file has it: text without quotes, numbers with their decimals."""
        if column not in self.columns:
            raise ScenarioError(
                Problem(file=f"{self.name}.csv", path=column, message="the column is not there")
            )
        if column not in self._texts:
            described = next(one for one in self.description.columns if one.name == column)
            names = self.columns[described.measured_by] if described.measured_by else None
            self._texts[column] = _formatted(described, self.columns[column], names)
        return self._texts[column]

    def numbers(self, column: str) -> list[float | None]:
        """Return a column as numbers; None for an empty cell."""
        if column not in self._numbers:
            numbers: list[float | None] = []
            for line, cell in enumerate(self.texts(column), start=2):
                try:
                    numbers.append(float(cell) if cell else None)
                except ValueError:
                    message = f"holds {cell!r}, which is no number"
                    file = f"{self.name}.csv"
                    raise ScenarioError(
                        Problem(file=file, line=line, path=column, message=message)
                    ) from None
            self._numbers[column] = numbers
        return self._numbers[column]

    def totals(self, column: str) -> list[float]:
        """Return a column as numbers to be summed: an empty cell is nothing."""
        return [number or 0.0 for number in self.numbers(column)]

    def rows(
        self, *texts: str, numbers: Iterable[str] = (), totals: Iterable[str] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Return the rows of some columns: first those of text, then numbers, then numbers to be summed."""
        return zip(
            *map(self.texts, texts),
            *map(self.numbers, numbers),
            *map(self.totals, totals),
            strict=True,
        )

    def where(self, column: str, wanted: str) -> Table:
        """Return the rows whose cell in a column is the one wanted, without that column, as a file has them."""
        kept = [i for i, cell in enumerate(self.texts(column)) if cell == wanted]
        texts = {name: self.texts(name) for name in self.columns if name != column}
        return of_texts(
            self.name, {name: [cells[i] for i in kept] for name, cells in texts.items()}
        )

    def summed(self, by: str, column: str) -> dict[str, float]:
        """Return the sums of a column by the cells of another; what is not there is zero."""
        sums: dict[str, float] = defaultdict(float)
        for name, number in self.rows(by, totals=[column]):
            sums[name] += number
        return sums

    def sums(self, first: str, second: str, column: str) -> dict[str, dict[str, float]]:
        """Return the sums of a column by the cells of two others; what is not there is zero."""
        sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for one, other, number in self.rows(first, second, totals=[column]):
            sums[one][other] += number
        return sums

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as mappings of plain data, with None for what is not known."""
        columns = [
            cells.tolist() if isinstance(cells, np.ndarray) else cells
            for cells in self.columns.values()
        ]
        return [
            {
                name: None if cell != cell else cell  # noqa: PLR0124 - NaN is the one that differs
                for name, cell in zip(self.columns, row, strict=True)
            }
            for row in zip(*columns, strict=True)
        ]


def of_texts(name: str, columns: Mapping[str, Sequence[str]]) -> Table:
    """Return a table whose cells are text already, as the reader of a file has them."""
    described = tuple(text_column(column, "") for column in columns)
    return Table(TableDescription(name=name, description="", columns=described), columns)


def stacked(description: TableDescription, by_name: Mapping[str, Table]) -> Table:
    """Put the same table of several scenarios on top of one another, their names as first column."""
    first, *others = (column.name for column in description.columns)
    columns = {first: [name for name, table in by_name.items() for _ in range(len(table))]}
    columns |= {
        name: [cell for table in by_name.values() for cell in table.columns[name]]
        for name in others
    }
    return Table(description, columns)


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
    def options(self) -> dict[str, object]:
        """The options of a command that ask for this format."""
        return {"--decimal-comma": self.decimal_comma, "--bom": self.byte_order_mark}


DEFAULT_FORMAT = CsvFormat()


def _formatted(column: Column, cells: Cells, names: Cells | None) -> list[str]:
    """Return the cells of one column as text with a decimal point; ``names`` say what each cell measures."""
    listed = cells.tolist() if isinstance(cells, np.ndarray) else list(cells)
    match column.kind:
        case ColumnKind.CENTS:
            cents = np.asarray(cells)
            if cents.size and not np.issubdtype(cents.dtype, np.integer):
                raise ConservationError(f"money must come in whole cents, not {cents.dtype}")
            parts = (
                part.tolist()
                for part in (cents < 0, *np.divmod(np.abs(cents.astype(np.int64)), 100))
            )
            return [
                f"{'-' if below else ''}{dollar}.{rest:02d}"
                for below, dollar, rest in zip(*parts, strict=True)
            ]
        case ColumnKind.DECIMAL:  # NaN and None are empty, −0 is 0
            numbers = np.array(listed, dtype=np.float64)
            if np.isinf(numbers).any():
                raise ConservationError(f"column {column.name} holds an infinite number")
            form = f"%.{column.decimals}f"
            measured = [] if names is None else list(names)
            forms = ["%.2f" if unit_of(name) == DOLLARS else form for name in measured] or [
                form
            ] * len(listed)
            written = [
                shown % number for shown, number in zip(forms, numbers.tolist(), strict=True)
            ]
            for row in np.flatnonzero(np.isnan(numbers)).tolist():
                written[row] = ""
            for row in np.flatnonzero(np.signbit(numbers) & (np.abs(numbers) < 1.0)).tolist():
                if not written[row].strip("-0."):
                    written[row] = written[row].removeprefix("-")
            return written
        case ColumnKind.INTEGER:
            return ["" if number is None else str(int(number)) for number in listed]
        case ColumnKind.BOOLEAN:
            return ["" if truth is None else "true" if truth else "false" for truth in listed]
        case ColumnKind.DATE:  # a date, a numpy date or nothing
            return ["" if day is None else str(np.datetime64(str(day)[:10], "D")) for day in listed]
        case ColumnKind.MONTH:
            return [f"{month}-01" if month else "" for month in listed]
        case ColumnKind.TEXT:
            return ["" if cell is None else str(cell) for cell in listed]


def neutralised(text: str) -> str:
    """Return text that no spreadsheet runs as a formula."""
    return "'" + text if text.startswith(FORMULA_STARTS) else text


def write_csv(table: Table, form: CsvFormat = DEFAULT_FORMAT, *, header: bool = True) -> bytes:
    """Return the file of a table."""
    written = []
    for column in table.description.columns:
        cells = table.texts(column.name)
        if column.kind is ColumnKind.TEXT:
            known = {
                text: _quoted(neutralised(text), form.separator) for text in dict.fromkeys(cells)
            }  # names repeat
            cells = [known[text] for text in cells]
        elif form.decimal_comma and column.kind in (ColumnKind.DECIMAL, ColumnKind.CENTS):
            cells = [cell.replace(".", form.decimal_mark) for cell in cells]
        written.append(cells)
    lines = (
        [form.separator.join(_quoted(name, form.separator) for name in table.columns)]
        if header
        else []
    )
    text = "\n".join([*lines, *map(form.separator.join, zip(*written, strict=True)), ""])
    return (BYTE_ORDER_MARK if form.byte_order_mark and header else b"") + text.encode("utf-8")


def _quoted(text: str, separator: str) -> str:
    """Return text quoted where CSV (RFC 4180) needs it."""
    needs = any(sign in text for sign in (separator, '"', "\n", "\r"))
    return '"' + text.replace('"', '""') + '"' if needs else text


def read_csv(
    name: str, content: bytes, form: CsvFormat = DEFAULT_FORMAT, numbers: Collection[str] = ()
) -> Table:
    """Return the table of a file that the planner wrote, whose cells are text; ``numbers`` are columns of decimals.

    Cells have a decimal point, and no apostrophe that keeps a spreadsheet from running them.
    """
    file = f"{name}.csv"
    try:
        text = content.removeprefix(BYTE_ORDER_MARK).decode("utf-8")
        rows = list(
            csv.reader(io.StringIO(text, newline=""), delimiter=form.separator, strict=True)
        )
    except (UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(Problem(file=file, message=f"is not a CSV file: {error}")) from None
    if not rows:
        raise ScenarioError(Problem(file=file, message="is empty"))
    header, *body = rows
    for line, cells in enumerate(body, start=2):
        if len(cells) != len(header):
            message = f"has {len(cells)} cells where the heading has {len(header)}"
            raise ScenarioError(Problem(file=file, line=line, message=message))
    columns = dict(
        zip(
            header,
            map(list, zip(*body, strict=True)) if body else ([] for _ in header),
            strict=True,
        )
    )
    for column, texts in columns.items():
        if form.decimal_comma and column in numbers:
            columns[column] = [cell.replace(form.decimal_mark, ".") for cell in texts]
        else:
            columns[column] = [cell[cell.startswith(_KEPT_FROM_RUNNING) :] for cell in texts]
    return of_texts(name, columns)


def csv_files(
    name: str,
    tables: Iterable[Table],
    form: CsvFormat = DEFAULT_FORMAT,
    streamed: Sequence[Mapping[str, object]] = (),
    ready: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Return the CSV file of each table and their data dictionary; the same tables give the same bytes.

    ``streamed`` are entries of tables that lie there already, ``ready`` the files of tables by name that were written
    before.
    """
    entries = list(streamed)
    files = dict[str, bytes]()
    for table in tables:
        content = files[f"{table.name}.csv"] = (ready or {}).get(table.name) or write_csv(
            table, form
        )
        entries.append(
            dictionary_entry(
                table.description, len(content), hashlib.sha256(content).hexdigest(), form
            )
        )
    head = {
        "profile": "tabular-data-package",
        "name": name,
        "version": SCHEMA_VERSION,
        "currency": "USD",
    }
    text = json.dumps({**head, "resources": entries}, indent=2, ensure_ascii=False)
    files["datapackage.json"] = f"{text}\n".encode()
    return files


def dictionary_entry(
    table: TableDescription, size_bytes: int, sha256: str, form: CsvFormat
) -> dict[str, object]:
    """Return the resource entry of one file, each of its columns a Table Schema field."""
    fields = []
    for column in table.columns:
        kind = FRICTIONLESS_TYPES[column.kind]
        field: dict[str, object] = {
            "name": column.name,
            "type": kind,
            "description": column.description,
        }
        if column.unit:
            field["unit"] = column.unit
        if kind == "number":
            decimals = 2 if column.kind is ColumnKind.CENTS else column.decimals
            field |= {"decimalChar": form.decimal_mark, "decimals": decimals}
        fields.append(field)
    dialect = {
        "delimiter": form.separator,
        "lineTerminator": "\n",
        "quoteChar": '"',
        "doubleQuote": True,
    }
    return {
        "name": table.name.replace("_", "-"),
        "path": f"{table.name}.csv",
        "profile": "tabular-data-resource",
        "description": table.description,
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "bytes": size_bytes,
        "hash": f"sha256:{sha256}",
        "dialect": {**dialect, "header": True},
        "schema": {"fields": fields, "missingValues": [""]}
        | ({"primaryKey": list(table.key)} if table.key else {}),
    }
