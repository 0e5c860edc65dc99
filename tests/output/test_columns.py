from __future__ import annotations

import pytest

from planner.actuals.actuals_summary import ACTUALS_TABLES
from planner.answers.comparison import COMPARISON_TABLES
from planner.answers.size import SIZE_TABLES
from planner.answers.study import STUDY_TABLES
from planner.answers.sweep import sweep_description
from planner.answers.tables import RUN_TABLES, TABLES, _lines, tables_of
from planner.errors import ConservationError
from planner.output.tables import (
    Column,
    ColumnKind,
    TableDescription,
    text_column,
)
from planner.requests.zoom_answer import ZOOM_TABLES
from planner.units import unit_of


def table(*columns: Column, key: tuple[str, ...] = ()) -> TableDescription:
    return TableDescription(
        name="monthly", description="One row a month.", columns=columns, key=key
    )


def test_every_table_described_is_a_table_of_some_folder_and_leaves_no_place_unfilled() -> None:
    rooms = {
        "run": TABLES, "study": STUDY_TABLES, "size": SIZE_TABLES, "compare": COMPARISON_TABLES,
        "actuals": ACTUALS_TABLES, "zoom": ZOOM_TABLES,
    }  # fmt: skip
    assert {kind: list(tables) for kind, tables in rooms.items()} == {
        kind: list(of) for kind, of in _lines().items()
    }
    for kind, table in [
        (kind, table) for kind, tables in rooms.items() for table in tables.values()
    ]:
        names = [column.name for column in table.columns]
        assert len(set(names)) == len(names)
        assert set(table.key) <= set(names)
        assert "{" not in table.description + "".join(
            column.description for column in table.columns
        )
        marked = [row["column"] for row in _lines()[kind][table.name][1:] if row["kind"] != "more"]
        assert (len(names) > len(marked)) == any(
            row["kind"] == "more" for row in _lines()[kind][table.name]
        )


def test_added_columns_stand_where_they_are_marked_and_words_in_braces() -> None:
    columns = tables_of("study", {"samples": [text_column("added", "Added.")]})["samples"].columns
    assert [column.name for column in columns] == ["replication", "scenario", "added", "error"]
    (cause,) = (
        column
        for column in tables_of("compare", causes="a, b")["bridge"].columns
        if column.name == "cause"
    )
    assert cause.description == "Cause: a, b."


def test_rows_become_columns_in_the_order_described_and_a_cell_too_many_or_few_is_a_fault() -> None:
    both = table(text_column("a", "A."), text_column("b", "B."))
    assert both.of_rows([("x", 1), ("y", 2)]).columns == {"a": ["x", "y"], "b": [1, 2]}
    assert both.of_rows(iter([])).columns == {"a": [], "b": []}
    for wrong in ([("x", 1, "more")], [("x",)], [("x", 1), ("y",)]):
        with pytest.raises(ConservationError, match="a row has"):
            both.of_rows(wrong)


OBJECTIVES = ("objective_usd", "objective_difference_usd", "marginal_node_cost_usd")
"""Dollars, or dollars per million tokens where ``planner size`` minimises those."""


@pytest.mark.parametrize(("unit", "decimals"), [("kWh", 3), ("kW", 3), ("tokens", 0), ("USD", 2)])
def test_a_unit_has_its_decimals_in_every_file(unit: str, decimals: int) -> None:
    tables = (
        *RUN_TABLES, *COMPARISON_TABLES.values(), *SIZE_TABLES.values(), *STUDY_TABLES.values(), sweep_description(())
    )  # fmt: skip
    written = {
        (table.name, column.name): column.decimals
        for table in tables
        for column in table.columns
        if column.kind == ColumnKind.DECIMAL
        and unit_of(column.name) == unit
        and column.name not in OBJECTIVES
        and unit_of(column.name) == unit
        and not column.name.startswith("objective")
    }
    assert len(written) > 2
    assert set(written.values()) == {decimals}, written
