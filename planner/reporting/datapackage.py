"""The data dictionary beside the files: a Frictionless ``datapackage.json``.

It describes every column of every CSV, with units, the separator, the decimal mark and a checksum, so that a
tool (or a person a year later) can read the files without this program. Written by hand to the Data Package
v1 specification.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.reporting.columns import FRICTIONLESS_TYPES, Column, ColumnKind, DescribedTable, TableDescription
from planner.reporting.csv_table import DEFAULT_FORMAT, CsvFormat, write_csv

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
    written, files = list(streamed), dict[str, bytes]()
    for table, columns in tables:
        content = files[f"{table.name}.csv"] = write_csv(table, columns, form)
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
