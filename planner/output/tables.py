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
import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import ConservationError, Problem, ScenarioError
from planner.records import record
from planner.units import DOLLARS, unit_of

Cells = Sequence[Any] | NDArray[Any]
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What text begins with that a spreadsheet would run."""
_NEUTRALISED_STARTS = tuple(f"'{sign}" for sign in FORMULA_STARTS)
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


_OTHER_NAMES = {"text": "string", "month": "date", "decimal": "number", "cents": "number"}
FRICTIONLESS_TYPES = {kind: _OTHER_NAMES.get(kind, kind.value) for kind in ColumnKind}
"""The Table Schema type of each kind (specs.frictionlessdata.io/table-schema)."""


@record
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
    if unit is None:
        unit = unit_of(name) or ""
    return Column(
        name=name, kind=ColumnKind.DECIMAL, description=description, unit=unit, decimals=decimals
    )


def cents_column(name: str, description: str) -> Column:
    """Return a column of money to the cent."""
    return Column(name=name, kind=ColumnKind.CENTS, description=description, unit=DOLLARS)


@record
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
        names = [column.name for column in self.columns]
        cells_by_row = list(rows)
        for row in cells_by_row:
            if len(row) != len(names):
                # Which cell lacks, or is too many, shows where cells stop being of their columns.
                pairs = itertools.zip_longest(names, map(repr, row), fillvalue="nothing")
                column_by_column = ", ".join(f"{name}: {cell}" for name, cell in pairs)
                raise ConservationError(
                    f"table {self.name}: a row has {len(row)} cells for {len(names)} columns. Correct the row, or "
                    f"the columns in planner/answers/tables.csv. Column by column: {column_by_column}"
                )
        # Without rows there are no columns to turn: each is empty.
        columns = list(zip(*cells_by_row, strict=True))
        if not columns:
            columns = [()] * len(names)
        by_name = dict(zip(names, map(list, columns), strict=True))
        return Table(self, by_name)


class Table:
    """A table of an answer, made in this process or read from its file: cells as made, as text and as numbers.

    What a report says of a number is what the file says of it: ``numbers`` are rounded as the file has them, so a
    report that is made anew from a folder is the same to the byte.
    """

    def __init__(self, description: TableDescription, columns: Mapping[str, Cells]) -> None:
        """Take the columns that the description names, all of one length."""
        names = [column.name for column in description.columns]
        faults = [f"{name} is described and has no cells" for name in names if name not in columns]
        faults += [
            f"{name} has cells and is not described" for name in columns if name not in names
        ]
        if faults:
            raise ConservationError(f"table {description.name}: {'; '.join(faults)}")
        lengths = sorted({len(columns[name]) for name in names})
        if len(lengths) > 1:
            message = f"columns of different length: {lengths}"
            raise ConservationError(f"table {description.name}: {message}")
        self.description = description
        self.columns = {name: columns[name] for name in names}
        self._length = lengths[0] if lengths else 0
        # Several renderers ask for the same columns: each is formatted once.
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
        if column not in self._texts:
            if column not in self.columns:
                raise self._problem(column, "the column is not there")
            described = {entry.name: entry for entry in self.description.columns}
            description = described[column]
            measures = description.measured_by and self.columns[description.measured_by]
            texts = _formatted(description, self.columns[column], measures)
            self._texts[column] = texts
        return self._texts[column]

    def numbers(self, column: str) -> list[float | None]:
        """Return a column as numbers; None for an empty cell."""
        if column not in self._numbers:
            numbers: list[float | None] = []
            # Line 1 of the file is the heading.
            for line, cell in enumerate(self.texts(column), start=2):
                try:
                    numbers.append(float(cell) if cell else None)
                except ValueError:
                    message = f"holds {cell!r}, which is not a number"
                    raise self._problem(column, message, line) from None
            self._numbers[column] = numbers
        return self._numbers[column]

    def _problem(self, column: str, message: str, line: int | None = None) -> ScenarioError:
        """Return the error for a file that is not as its description says."""
        file = f"{self.name}.csv"
        problem = Problem(file=file, line=line, path=column, message=message)
        return ScenarioError(problem)

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

    def where(self, column: str, value: str) -> Table:
        """Return the rows whose cell in a column has a value, without that column, as a file has them."""
        cells = enumerate(self.texts(column))
        rows = [row for row, cell in cells if cell == value]
        columns = {}
        for name in self.columns:
            if name != column:
                texts = self.texts(name)
                columns[name] = [texts[row] for row in rows]
        return of_texts(self.name, columns)

    def summed(self, key: str, column: str) -> dict[str, float]:
        """Return the sums of a column by the cells of another; what is not there is zero."""
        sums: dict[str, float] = defaultdict(float)
        for name, number in self.rows(key, totals=[column]):
            sums[name] += number
        return sums

    def sums(self, key: str, inner_key: str, column: str) -> dict[str, dict[str, float]]:
        """Return the sums of a column by the cells of two others; what is not there is zero."""
        sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        rows = self.rows(key, inner_key, totals=[column])
        for name, inner_name, number in rows:
            sums[name][inner_name] += number
        return sums

    def records(self) -> list[dict[str, Any]]:
        """Return the rows as mappings of plain data, with None for what is not known."""
        columns = []
        for cells in self.columns.values():
            values = _plain(cells)
            # NaN is the one value that differs from itself.
            columns.append([None if cell != cell else cell for cell in values])  # noqa: PLR0124
        rows = zip(*columns, strict=True)
        return [dict(zip(self.columns, row, strict=True)) for row in rows]


def of_texts(name: str, columns: Mapping[str, Sequence[str]]) -> Table:
    """Return a table whose cells are text already, as the reader of a file has them."""
    descriptions = tuple(text_column(column, "") for column in columns)
    description = TableDescription(name=name, description="", columns=descriptions)
    return Table(description, columns)


def stacked(description: TableDescription, by_name: Mapping[str, Table]) -> Table:
    """Put the same table of several scenarios on top of one another, their names as first column."""
    columns: dict[str, list[Any]] = {column.name: [] for column in description.columns}
    scenario_column, *names = columns
    for scenario, table in by_name.items():
        columns[scenario_column] += [scenario] * len(table)
        for name in names:
            columns[name] += list(table.columns[name])
    return Table(description, columns)


_CELL_TEXTS: dict[ColumnKind, Callable[[Any], str]] = {
    ColumnKind.INTEGER: lambda number: str(int(number)),
    ColumnKind.BOOLEAN: lambda truth: "true" if truth else "false",
    # A date, a date with its hour or a numpy date.
    ColumnKind.DATE: lambda day: str(np.datetime64(str(day)[:10], "D")),
    ColumnKind.MONTH: lambda month: f"{month}-01",
    ColumnKind.TEXT: str,
}
"""How one cell is written, of the kinds whose cells are written one by one."""


def _formatted(column: Column, cells: Cells, measures: Cells | str) -> list[str]:
    """Return the cells of one column as text with a decimal point; ``measures`` say what each cell measures."""
    if column.kind is ColumnKind.CENTS:
        return _cents_texts(np.asarray(cells))
    values = _plain(cells)
    if column.kind is ColumnKind.DECIMAL:
        return _decimal_texts(column, values, measures)
    text_of = _CELL_TEXTS[column.kind]
    return ["" if cell is None or cell == "" else text_of(cell) for cell in values]


def _plain(cells: Cells) -> list[Any]:
    """Return cells as Python's own numbers, which are formatted several times as fast as numpy's."""
    if isinstance(cells, np.ndarray):
        return list(cells.tolist())
    return list(cells)


def _cents_texts(cents: NDArray[Any]) -> list[str]:
    """Return whole cents as dollars, by integers alone: a float would round large amounts."""
    is_whole = np.issubdtype(cents.dtype, np.integer)
    # An empty column has any type.
    if cents.size and not is_whole:
        raise ConservationError(f"money must come in whole cents, not {cents.dtype}")
    # By size and sign: of −150 the whole would be −2.
    sizes = np.abs(cents.astype(np.int64))
    whole, rest = np.divmod(sizes, 100)
    signs = np.where(cents < 0, "-", "").tolist()
    parts = zip(signs, whole.tolist(), rest.tolist(), strict=True)
    return [f"{sign}{dollars}.{rest:02d}" for sign, dollars, rest in parts]


def _decimal_texts(column: Column, values: list[Any], measures: Cells | str) -> list[str]:
    """Return numbers with fixed decimals; NaN and None are empty, and −0 is 0."""
    numbers = np.array(values, dtype=np.float64)
    if np.isinf(numbers).any():
        raise ConservationError(f"column {column.name} holds an infinite number")
    pattern = f"%.{column.decimals}f"
    patterns = [pattern] * len(values)
    if column.measured_by:
        in_dollars = [unit_of(name) == DOLLARS for name in measures]
        patterns = ["%.2f" if is_usd else pattern for is_usd in in_dollars]
    pairs = zip(patterns, numbers.tolist(), strict=True)
    texts = [pattern % number for pattern, number in pairs]
    is_unknown = np.isnan(numbers)
    for row in np.flatnonzero(is_unknown).tolist():
        texts[row] = ""
    # Only what is below one can round to nothing: few cells are looked at as text.
    is_negative = np.signbit(numbers)
    may_be_zero = is_negative & (np.abs(numbers) < 1.0)
    for row in np.flatnonzero(may_be_zero).tolist():
        if not texts[row].strip("-0."):
            texts[row] = texts[row].removeprefix("-")
    return texts


def neutralised(text: str) -> str:
    """Return text that no spreadsheet runs as a formula."""
    if text.startswith(FORMULA_STARTS):
        return "'" + text
    return text


def write_csv(table: Table, *, header: bool = True) -> bytes:
    """Return the file of a table."""
    columns = []
    for column in table.description.columns:
        cells = table.texts(column.name)
        if column.kind is ColumnKind.TEXT:
            # Names repeat: each is looked at once.
            distinct = dict.fromkeys(cells)
            quoted = {text: _quoted(neutralised(text)) for text in distinct}
            cells = [quoted[text] for text in cells]
        columns.append(cells)
    lines = []
    if header:
        lines.append(",".join(map(_quoted, table.columns)))
    lines += map(",".join, zip(*columns, strict=True))
    # A last line that is empty, so that the file ends with a line's end.
    lines.append("")
    return "\n".join(lines).encode("utf-8")


def _quoted(text: str) -> str:
    """Return text quoted where CSV (RFC 4180) needs it."""
    if any(sign in text for sign in ',"\n\r'):
        return '"' + text.replace('"', '""') + '"'
    return text


def read_csv(name: str, content: bytes) -> Table:
    """Return the table of a file that the planner wrote, whose cells are text.

    Cells come without the apostrophe that keeps a spreadsheet from running them.
    """
    file = f"{name}.csv"
    try:
        text = io.StringIO(content.decode("utf-8"), newline="")
        rows = list(csv.reader(text, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        message = f"is not a CSV file: {error}"
        raise ScenarioError(Problem(file=file, message=message)) from None
    if not rows:
        raise ScenarioError(Problem(file=file, message="is empty"))
    header, *body = rows
    for line, cells in enumerate(body, start=2):
        if len(cells) != len(header):
            message = f"has {len(cells)} cells where the heading has {len(header)}"
            problem = Problem(file=file, line=line, message=message)
            raise ScenarioError(problem)
    columns = {}
    for place, column in enumerate(header):
        texts = [cells[place] for cells in body]
        # False and true as 0 and 1: a cell without the apostrophe is kept from its start on.
        columns[column] = [cell[cell.startswith(_NEUTRALISED_STARTS) :] for cell in texts]
    return of_texts(name, columns)


def csv_files(
    name: str,
    tables: Iterable[Table],
    streamed: Sequence[Mapping[str, object]] = (),
    ready: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Return the CSV file of each table and their data dictionary; the same tables give the same bytes.

    ``streamed`` are entries of tables that lie there already, ``ready`` the files of tables by name that were written
    before.
    """
    entries = list(streamed)
    files = dict[str, bytes]()
    files_by_name = ready or {}
    for table in tables:
        content = files_by_name.get(table.name) or write_csv(table)
        files[f"{table.name}.csv"] = content
        digest = hashlib.sha256(content).hexdigest()
        entry = dictionary_entry(table.description, len(content), digest)
        entries.append(entry)
    # Text of an earlier version is known by its schema version, not by its bytes.
    head = {
        "profile": "tabular-data-package",
        "name": name,
        "version": SCHEMA_VERSION,
        "currency": "USD",
    }
    package = {**head, "resources": entries}
    text = json.dumps(package, indent=2, ensure_ascii=False)
    files["datapackage.json"] = f"{text}\n".encode()
    return files


_DIALECT = {
    "delimiter": ",",
    "lineTerminator": "\n",
    "quoteChar": '"',
    "doubleQuote": True,
    "header": True,
}
"""How cells are separated and quoted, in the words of the CSV Dialect specification."""


def dictionary_entry(table: TableDescription, size_bytes: int, sha256: str) -> dict[str, object]:
    """Return the resource entry of one file, each of its columns a Table Schema field."""
    fields = []
    for column in table.columns:
        # Decimals are no part of the specification; readers that do not know them ignore them.
        kind = FRICTIONLESS_TYPES[column.kind]
        field: dict[str, object] = {
            "name": column.name,
            "type": kind,
            "description": column.description,
        }
        if column.unit:
            field["unit"] = column.unit
        if kind == "number":
            decimals = column.decimals
            if column.kind is ColumnKind.CENTS:
                decimals = 2
            field |= {"decimalChar": ".", "decimals": decimals}
        fields.append(field)
    schema: dict[str, object] = {"fields": fields, "missingValues": [""]}
    if table.key:
        schema["primaryKey"] = list(table.key)
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
        "dialect": _DIALECT,
        "schema": schema,
    }
