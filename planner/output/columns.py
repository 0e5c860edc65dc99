"""Columns of the output files, described once for the CSV writer, the data dictionary and the reference.

What every file holds stands in ``tables.csv``, a line for each column. Columns that follow from another list, such as
the measures, are added to those by the module that writes the file.

One currency rule: all money is in US dollars, its column name ends in ``_usd`` or ``_usd_per_…``, and no file
has two currencies.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from planner.run.measure_names import DEFINITIONS
from planner.units import DOLLARS, decimals_of, unit_of


class ColumnKind(StrEnum):
    """What the cells of a column are."""

    TEXT = "text"
    """Any text; neutralised where a spreadsheet would run it."""
    DATE = "date"
    """A day as 2026-03-01."""
    MONTH = "month"
    """A month as 2026-03: sorts as text."""
    INTEGER = "integer"
    """A whole number."""
    DECIMAL = "decimal"
    """A number with a fixed count of decimals."""
    CENTS = "cents"
    """Money held in whole cents, written in dollars with two decimals, exactly."""
    BOOLEAN = "boolean"
    """true or false."""


FRICTIONLESS_TYPES = {
    ColumnKind.TEXT: "string",
    ColumnKind.DATE: "date",
    ColumnKind.MONTH: "yearmonth",
    ColumnKind.INTEGER: "integer",
    ColumnKind.DECIMAL: "number",
    ColumnKind.CENTS: "number",
    ColumnKind.BOOLEAN: "boolean",
}
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


def number_column(name: str, description: str, decimals: int = 6, unit: str | None = None) -> Column:
    """Return a column of numbers, in the unit that its name states unless another is."""
    unit = unit_of(name) or "" if unit is None else unit
    return Column(name=name, kind=ColumnKind.DECIMAL, description=description, unit=unit, decimals=decimals)


def cents_column(name: str, description: str) -> Column:
    """Return a column of money to the cent."""
    return Column(name=name, kind=ColumnKind.CENTS, description=description, unit=DOLLARS)


def figure_column(name: str, note: str = "", decimals: int | None = None) -> Column:
    """Return the column of a registered figure: its definition, and what is special about it in this file."""
    known = decimals_of(name) if decimals is None else decimals
    return number_column(name, f"{DEFINITIONS[name]} {note}".strip(), known)


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

    def filled(self, rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
        """Return rows, their cells in the order of the columns, as columns."""
        cells = list(zip(*rows, strict=True)) or [()] * len(self.columns)
        return {column.name: list(below) for column, below in zip(self.columns, cells, strict=True)}


DescribedTable = tuple[TableDescription, Mapping[str, Any]]
"""A file and its columns by name."""


def tables_of(
    folder: str, more: Mapping[str, Iterable[Column]] | None = None, **words: str
) -> dict[str, TableDescription]:
    """Return the files of one kind of folder by their names, as ``tables.csv`` describes them and in its order.

    ``more`` are the columns that follow from another list, by file, for the place marked for them; ``words`` stand for
    what the text has in braces.
    """
    return {
        name: _described(name, rows, (more or {}).get(name, ()), words)
        for name, rows in _lines().items()
        if rows[0]["folder"] == folder
    }


def _described(
    name: str, rows: Sequence[Mapping[str, str]], more: Iterable[Column], words: Mapping[str, str]
) -> TableDescription:
    """Return a file from its lines, of which the first describes the file itself."""
    said = {f"{{{word}}}": text for word, text in words.items()}
    head, *below = ({**row, "text": _put(said, row["text"])} for row in rows)
    columns = [column for row in below for column in (more if row["kind"] == "more" else [_column(row)])]
    return TableDescription(
        name=name, description=head["text"], key=tuple(head["kind"].split()), columns=tuple(columns)
    )


def _put(said: Mapping[str, str], text: str) -> str:
    """Put words in the place of their names in braces."""
    return functools.reduce(lambda text, word: text.replace(word, said[word]), said, text)


@functools.cache
def _lines() -> dict[str, list[dict[str, str]]]:
    """Return the lines of ``tables.csv`` by file; of each the first describes the file, its kind the file's key."""
    lines: dict[str, list[dict[str, str]]] = {}
    with Path(__file__).with_name("tables.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            lines.setdefault(row["table"], []).append(row)
    return lines


def _column(row: Mapping[str, str]) -> Column:
    """Return the column of a line."""
    name, kind, text = row["column"], row["kind"], row["text"]
    decimals = int(row["decimals"]) if row["decimals"] else None
    match kind:
        case "figure":
            return figure_column(name, text, decimals)
        case "cents":
            return cents_column(name, text)
        case "decimal":
            column = number_column(name, text, 6 if decimals is None else decimals, row["unit"] or None)
            return replace(column, measured_by=row["measured_by"])
    return Column(name=name, kind=ColumnKind(kind), description=text)


def reference_page(tables: Iterable[TableDescription]) -> str:
    """Return the reference of output files in Markdown, one table of columns for each file."""
    lines: list[str] = []
    for table in tables:
        lines += [f"## `{table.name}.csv`", "", table.description, ""]
        if table.key:
            lines += ["One row for each " + ", ".join(f"`{name}`" for name in table.key) + ".", ""]
        lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in table.columns:
            cells = (f"`{column.name}`", FRICTIONLESS_TYPES[column.kind], column.unit, column.description)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)
