"""A run as ``workbook.xlsx``."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.finance.accounts import Account
from planner.finance.depreciation import make_cohorts
from planner.finance.present_value import running_months
from planner.reporting.workbook import SheetTable, WorkbookContent
from planner.results.building import building_of
from planner.results.cohorts import assets_of, tax_base
from planner.results.energy import energy_usd
from planner.results.measures import measures, series_of
from planner.results.ownership import dated_rows
from planner.results.result import RunResult

MOST_EVENTS = 5_000
"""Events listed in the workbook; the rest is in events.csv, and the sheet says so."""


def workbook_content(
    result: RunResult, events: Mapping[str, Any], assumptions: Mapping[str, list[str]]
) -> WorkbookContent:
    """Return what the workbook of a run shows, given its tables of events and assumptions."""
    plan, series = result.plan, series_of(result)
    measured, rules, (rows, days) = measures(result, series), plan.money.market.tax, dated_rows(result)
    energy, cooling = energy_usd(plan, result.run, result.monthly)
    taxed = tax_base(plan, result.cohorts, rules).income_cents.sum(axis=0) if rules and result.cohorts else None
    building = building_of(plan)
    if rules and building is not None:  # its depreciation of the books is among the costs, that of tax is not
        taxed = (0 if taxed is None else taxed) + building.schedule.depreciation_cents[0] - building.deduction_cents
    return WorkbookContent(
        title=result.scenario.name,
        created=datetime.datetime.combine(plan.start, datetime.time()),
        grid=plan.months,
        ledger=result.ledger,
        cohorts=assets_of(plan, result.cohorts) if result.cohorts else make_cohorts([], []),
        discount_rate_per_year=plan.money.capital.discount_rate_per_year,
        running_months=running_months(series.economic.edge_months, series.economic.timing),
        dated_rows=rows,
        dated_months=days,
        electricity_usd_per_kwh=_electricity_usd_per_kwh(result),
        energy_usd=energy,
        cooling_usd=cooling,
        output_tokens=series.output_tokens,
        total_tokens=series.tokens,
        assumptions=sheet_of(assumptions),
        events=sheet_of(events, MOST_EVENTS),
        levelised_usd_per_million={
            name: measured[f"levelised_cost_per_million_{tokens}_usd"]
            for name, tokens in (("output", "output_tokens"), ("total", "tokens"))
        },
        tax=rules,
        purchase_income_cents=np.zeros(plan.months.period_count, dtype=np.int64) if rules and taxed is None else taxed,
    )


def _electricity_usd_per_kwh(result: RunResult) -> float:
    """Return the price of energy on the first day; under time-of-use windows, what a kWh cost on average."""
    power = result.plan.money.power
    if power.hourly_usd_per_kwh is None:
        return float(power.monthly_usd_per_kwh[0])
    paid = result.ledger.account_cents(Account.ENERGY) + result.ledger.account_cents(Account.COOLING)
    energy = float(result.monthly.facility_kwh.sum())
    return round(paid / 100 / energy, 6) if energy > 0 else 0.0


def sheet_of(columns: Mapping[str, Any], most: int | None = None) -> SheetTable:
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
