"""Columns of the output files, described once for the CSV writer, the data dictionary and the reference.

One currency rule: all money is in US dollars, its column name ends in ``_usd`` or ``_usd_per_…``, and no file
has two currencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from planner.results.measure_names import DEFINITIONS
from planner.units import DOLLARS, unit_of

if TYPE_CHECKING:
    from collections.abc import Iterable

DECIMALS = {"tokens": 0, "kWh": 3, "kW": 3, DOLLARS: 2}
"""Decimals of a figure by its unit; six for all others."""


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


def whole_column(name: str, description: str) -> Column:
    """Return a column of whole numbers."""
    return Column(name=name, kind=ColumnKind.INTEGER, description=description)


def number_column(name: str, description: str, decimals: int = 6, measured_by: str = "") -> Column:
    """Return a column of numbers in the unit that its name states."""
    return Column(
        name=name,
        kind=ColumnKind.DECIMAL,
        description=description,
        unit=unit_of(name) or "",
        decimals=decimals,
        measured_by=measured_by,
    )


def figure_column(name: str, note: str = "", decimals: int | None = None) -> Column:
    """Return the column of a registered figure: its definition, and what is special about it in this file."""
    known = DECIMALS.get(unit_of(name) or "", 6) if decimals is None else decimals
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
