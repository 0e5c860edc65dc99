from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from typing import Any

import numpy as np

from planner.output.tables import (
    FRICTIONLESS_TYPES,
    Column,
    ColumnKind,
    Table,
    TableDescription,
    csv_files,
    write_csv,
)

TABLE = TableDescription(
    name="monthly_cost",
    description="Cost by month.",
    columns=(
        Column(name="month", kind=ColumnKind.MONTH, description="Calendar month."),
        Column(name="cluster", kind=ColumnKind.TEXT, description="Cluster."),
        Column(name="cost_usd", kind=ColumnKind.CENTS, unit="USD", description="Cost."),
        Column(
            name="energy_kwh",
            kind=ColumnKind.DECIMAL,
            decimals=3,
            unit="kWh",
            description="Energy.",
        ),
    ),
    key=("month", "cluster"),
)
COLUMNS: dict[str, Any] = {
    "month": ["2026-01", "2026-02"],
    "cluster": ["=amd", "nvidia"],
    "cost_usd": np.array([123456, -78]),
    "energy_kwh": [1.5, float("nan")],
}
# Table Schema v1, section "Types and Formats".
TABLE_SCHEMA_TYPES = {
    "string",
    "number",
    "integer",
    "boolean",
    "date",
    "time",
    "datetime",
    "year",
    "yearmonth",
    "any",
}


def package() -> tuple[dict[str, Any], bytes]:
    files = csv_files("run", [Table(TABLE, COLUMNS)])
    assert list(files) == [f"{TABLE.name}.csv", "datapackage.json"]
    content = write_csv(Table(TABLE, COLUMNS))
    assert files[f"{TABLE.name}.csv"] == content
    return json.loads(files["datapackage.json"]), content


def test_the_files_can_be_read_from_the_dictionary_alone() -> None:
    described, content = package()
    resource = described["resources"][0]
    dialect = resource["dialect"]
    fields = resource["schema"]["fields"]
    reader = csv.reader(
        io.StringIO(content.decode(resource["encoding"])), delimiter=dialect["delimiter"]
    )
    heading, *rows = list(reader)
    assert heading == [field["name"] for field in fields]
    assert fields[2]["decimalChar"] == "."
    assert [float(row[2]) for row in rows] == [1234.56, -0.78]
    assert rows[1][3] in resource["schema"]["missingValues"]
    assert rows[0][1] == "'=amd"


def test_it_keeps_to_the_specification() -> None:
    described, content = package()
    assert described["profile"] == "tabular-data-package"
    assert re.fullmatch(r"\d+\.\d+\.\d+", described["version"])
    assert described["currency"] == "USD"
    resource = described["resources"][0]
    assert re.fullmatch(r"[-a-z0-9._/]+", resource["name"])
    assert resource["path"] == "monthly_cost.csv"
    assert resource["bytes"] == len(content)
    assert resource["hash"] == "sha256:" + hashlib.sha256(content).hexdigest()
    for field in resource["schema"]["fields"]:
        assert field["type"] in TABLE_SCHEMA_TYPES
        assert field["description"]
    names = {field["name"] for field in resource["schema"]["fields"]}
    assert set(resource["schema"]["primaryKey"]) <= names


def test_every_kind_has_a_type_and_the_same_files_give_the_same_bytes() -> None:
    assert set(FRICTIONLESS_TYPES) == set(ColumnKind)
    assert csv_files("run", [Table(TABLE, COLUMNS)]) == csv_files("run", [Table(TABLE, COLUMNS)])
