"""Columns of the output files, described once for the CSV writer, the data dictionary and the reference.

One currency rule: all money is in US dollars, its column name ends in ``_usd`` or ``_usd_per_…``, and no file
has two currencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


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
