"""A run as ``workbook.xlsx``."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.finance.depreciation import make_cohorts
from planner.reporting.workbook import SheetTable, WorkbookContent
from planner.simulation.cohorts import assets_of
from planner.simulation.measures import series_of
from planner.simulation.result import RunResult

MOST_EVENTS = 5_000
"""Events listed in the workbook; the rest is in events.csv, and the sheet says so."""


def workbook_content(
    result: RunResult, events: Mapping[str, Any], assumptions: Mapping[str, list[str]]
) -> WorkbookContent:
    """Return what the workbook of a run shows, given its tables of events and assumptions."""
    plan, series = result.plan, series_of(result)
    return WorkbookContent(
        title=result.scenario.name,
        created=datetime.datetime.combine(plan.start, datetime.time()),
        grid=plan.months,
        ledger=result.ledger,
        cohorts=assets_of(plan, result.cohorts) if result.cohorts else make_cohorts([], []),
        discount_rate_per_year=plan.money.capital.discount_rate_per_year,
        energy_kwh=result.monthly.facility_kwh.sum(axis=1),
        output_tokens=series.output_tokens,
        total_tokens=series.tokens,
        assumptions=_sheet(assumptions),
        events=_sheet(events, MOST_EVENTS),
        end_value_is_book=plan.money.capital.end_value == "book",
    )


def _sheet(columns: Mapping[str, Any], most: int | None = None) -> SheetTable:
    """Return columns as rows, at most so many; a row then says where the others are."""
    rows = list(zip(*(_cells(column, most) for column in columns.values()), strict=True))
    length = len(next(iter(columns.values()))) if columns else 0
    if most is not None and length > most:
        rows.append((f"and {length - most} more in events.csv", *[None] * (len(columns) - 1)))
    return SheetTable(headings=tuple(columns), rows=rows)


def _cells(column: Any, most: int | None) -> list[object]:
    """Return plain cells; NaN is an empty one."""
    cells = column[:most].tolist() if isinstance(column, np.ndarray) else list(column[:most])
    return [None if isinstance(cell, float) and np.isnan(cell) else cell for cell in cells]
