"""The files of every kind of answer, described once for the CSV writer, the data dictionary and the reference.

What every file holds stands in ``tables.csv``, a line for each column. Columns that follow from another list, such as
the measures, are added to those here or by the module that makes the table.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import replace

from planner.data_files import data_rows
from planner.finance.measure_names import DEFINITIONS, FLEET_ONLY, TIMELINE
from planner.finance.statements import LINES, Frequency
from planner.output.tables import (
    Column,
    ColumnKind,
    TableDescription,
    cents_column,
    number_column,
    text_column,
)
from planner.units import decimals_of


def figure_column(name: str, note: str = "", decimals: int | None = None) -> Column:
    """Return the column of a registered figure: its definition, and what is special about it in this file."""
    known = decimals_of(name) if decimals is None else decimals
    return number_column(name, f"{DEFINITIONS[name]} {note}".strip(), known)


def tables_of(
    folder: str, more: Mapping[str, Iterable[Column]] | None = None, **words: str
) -> dict[str, TableDescription]:
    """Return the files of one kind of folder by their names, as ``tables.csv`` describes them and in its order.

    ``more`` are the columns that follow from another list, by file, for the place marked for them; ``words`` stand for
    what the text has in braces.
    """
    described = {}
    for name, rows in _lines()[folder].items():
        texts = [row["text"] for row in rows]
        columns = list[Column]()
        for word, said in words.items():
            texts = [text.replace(f"{{{word}}}", said) for text in texts]
        for row, text in zip(
            rows[1:], texts[1:], strict=True
        ):  # the first describes the file itself
            columns += (
                (more or {}).get(name, ())
                if row["kind"] == "more"
                else [_column({**row, "text": text})]
            )
        key = tuple(rows[0]["kind"].split())
        described[name] = TableDescription(
            name=name, description=texts[0], key=key, columns=tuple(columns)
        )
    return described


@functools.cache
def _lines() -> dict[str, dict[str, list[dict[str, str]]]]:
    """Return the lines of ``tables.csv`` by folder and file; the first of a file describes it, its kind the key."""
    lines: dict[str, dict[str, list[dict[str, str]]]] = {}
    for row in data_rows(__file__, "tables.csv"):
        by_table = lines.setdefault(row["folder"], {})
        by_table.setdefault(row["table"], []).append(row)
    return lines


def _column(row: Mapping[str, str]) -> Column:
    """Return the column of a line."""
    name = row["column"]
    kind = row["kind"]
    text = row["text"]
    decimals = None
    if row["decimals"]:
        decimals = int(row["decimals"])
    match kind:
        case "figure":
            return figure_column(name, text, decimals)
        case "cents":
            return cents_column(name, text)
        case "decimal":
            column = number_column(
                name, text, 6 if decimals is None else decimals, row["unit"] or None
            )
            return replace(column, measured_by=row["measured_by"])
    return Column(name=name, kind=ColumnKind(kind), description=text)


_TO_DATE = "Counted from the start to this month, as if what is owned then were sold."
_NOTES = {
    f"levelised_cost_per_million_{kind}_usd": _TO_DATE for kind in ("tokens", "output_tokens")
}
_USED = [figure_column(name) for name in TIMELINE[:3]]
_MONTHLY = {
    name: figure_column(name, _NOTES.get(name, ""), 3 if name.endswith("_h") else None)
    for name in TIMELINE
}
_STATEMENT = [cents_column(line, text) for line, text in LINES.items()]
_MORE = {
    "timeline_monthly": _MONTHLY.values(),
    "timeline_monthly_clusters": [
        column for name, column in _MONTHLY.items() if name not in FLEET_ONLY
    ],
    **{
        f"timeline_{span}{part}": _USED
        for span in ("daily", "hourly")
        for part in ("", "_clusters")
    },
    "losses": [figure_column(name, decimals=4) for name in DEFINITIONS if name.endswith("_node_h")],
    **{
        f"unit_economics_{span}ly": tables_of("run")["unit_economics"].columns[1:]
        for span in ("quarter", "year")
    },
    **{f"statement_{span}ly{part}": _STATEMENT for span in Frequency for part in ("", "_clusters")},
}

TABLES = tables_of("run", _MORE)
"""The tables of runs by their names."""
_SCENARIO = text_column("scenario", "Scenario, by its name.")


def by_scenario(table: TableDescription) -> TableDescription:
    """Return a run's table with the scenario as first column, so that those of several runs can be stacked.

    Not the chart of accounts and the model's error, which are the same in every run, and FOCUS, which has its own.
    """
    if table.name in ("accounts", "focus", "model_error"):
        return table
    return replace(
        table,
        columns=(_SCENARIO, *table.columns),
        key=("scenario", *table.key) if table.key else (),
    )


RUN_TABLES = tuple(
    by_scenario(one)
    for one in TABLES.values()
    if not one.name.startswith(("timeline_hourly", "warn"))
)
"""Those of every run: the hourly timelines are written on request, and a run's warnings stand in its summary."""
