from __future__ import annotations

import pytest

from planner.reporting.columns import FRICTIONLESS_TYPES, Column, ColumnKind, TableDescription, reference_page


def table(*columns: Column, key: tuple[str, ...] = ()) -> TableDescription:
    return TableDescription(name="monthly", description="One row a month.", columns=columns, key=key)


@pytest.mark.parametrize("kind", list(ColumnKind))
def test_every_kind_is_named_on_the_page(kind: ColumnKind) -> None:
    page = reference_page([table(Column(name="x", kind=kind, description="X.", unit="kWh"))])
    assert f"| `x` | {FRICTIONLESS_TYPES[kind]} | kWh | X. |" in page


def test_a_bar_in_a_description_does_not_break_the_table() -> None:
    page = reference_page([table(Column(name="x", kind=ColumnKind.TEXT, description="a|b"))])
    assert "a\\|b" in page


def test_tables_come_in_order_with_their_keys() -> None:
    first = table(Column(name="month", kind=ColumnKind.MONTH, description="Month."), key=("month",))
    second = TableDescription(name="events", description="One row an event.", columns=())
    page = reference_page([first, second])
    assert page.index("## `monthly.csv`") < page.index("## `events.csv`")
    assert page.count("One row for each") == 1
