"""The workings sheet: what is a price times a quantity, by account and cluster, at the prices of the assumptions.

Each series repeats the planner's arithmetic with its rounding: its running total is rounded to the cent,
INT(x + 0.500001), and a month is the difference of two of them (:mod:`planner.finance.cents`). What was simulated
stands beside it, one column for each price that it moves with.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.arrays import Floats
from planner.finance.accounts import Account
from planner.finance.unit_costs import price_path
from planner.output import workbook_inputs as names
from planner.output.workbook import FIRST_ROW, Sheets, address, words, write_headings
from planner.output.workbook_cohorts import cohort_range
from planner.output.workbook_content import Content, Series
from planner.output.workbook_depreciation import FIRST_MONTH, SERVICE, block_range
from planner.output.workbook_inputs import Inputs, Posted
from planner.plan.money import PricePath
from planner.run.measure_names import SITE
from planner.run.parts import rma_usd
from planner.run.result import RunResult

SHEET = "Workings"
_PRICES = {
    Account.ENERGY: names.ELECTRICITY,
    Account.COOLING: names.ELECTRICITY,
    Account.COLOCATION: names.SPACE,
    Account.SOFTWARE_ENGINEERS: names.ENGINEERS,
    Account.BURST_RENTAL: names.BURST,
}
"""Accounts that are one price of the whole site times a quantity."""


def series_of_inputs(result: RunResult, posted: Posted, inputs: Inputs) -> tuple[Series, ...]:
    """Return what moves with an input, from what the ledger was posted of."""
    live = []
    staff = [place for place, (account, _) in enumerate(posted) if account is Account.OPERATIONS_STAFF]
    for number, (account, amounts) in enumerate(posted):
        columns = amounts[:, None] if amounts.ndim == 1 else amounts
        for place in np.flatnonzero(columns.any(axis=0)).tolist():
            cluster = -1 if amounts.ndim == 1 else place
            parts = _parts(result, account, cluster, columns[:, place], is_last=number in staff[-1:])
            running = tuple((name, np.cumsum(part)) for name, part in parts)
            series = Series(account=account, cluster=cluster, parts=running, yearly=_yearly(result, account))
            moved = any(name and inputs.is_live(name, _owner(name, cluster)) for name, _ in running)
            if moved or (series.yearly and inputs.is_live(names.PRICE, cluster)):
                live.append(series)
    return tuple(live)


def _yearly(result: RunResult, account: Account) -> float:
    """Return the share of capital that an account is in a year; 0 for accounts that are none."""
    upkeep = result.plan.money.upkeep
    shares = {Account.MAINTENANCE: upkeep.operations_fraction_per_year}
    return (shares | {Account.INSURANCE: upkeep.insurance_fraction_per_year}).get(account, 0.0)


def _owner(name: str, cluster: int) -> int:
    """Return the cluster that an input belongs to; −1 for the whole site."""
    return cluster if name in (names.NET_PRICE, names.RENT) else -1


def _parts(
    result: RunResult, account: Account, cluster: int, amounts: Floats, *, is_last: bool
) -> list[tuple[str, Floats]]:
    """Return an account of a cluster as parts that each move with one price, shape (months,) each."""
    upkeep = result.plan.money.upkeep
    match account:
        case Account.OPERATIONS_STAFF:
            # Crews are posted after staff, where either has a price.
            return [(names.CREWS if is_last and upkeep.crew_usd_per_year > 0 else names.STAFF, amounts)]
        case Account.RENT | Account.EXIT_FEES:
            return [(names.RENT, amounts)]
        case Account.SPARES:
            return [(names.NET_PRICE, amounts)]
        case Account.RMA:
            bare = replace(upkeep, replacement_usd=np.zeros_like(upkeep.replacement_usd))
            money = replace(result.plan.money, upkeep=bare)
            freight = (rma_usd(replace(result.plan, money=money), result.run) * result.plan.on_site)[:, cluster]
            return [("", freight), (names.NET_PRICE, amounts - freight)]
        case Account.REVENUE:
            return _revenue(result, cluster)
        case _:
            return [(_PRICES.get(account, ""), amounts)]


def _revenue(result: RunResult, cluster: int) -> list[tuple[str, Floats]]:
    """Return revenue by the price it moves with; cached tokens move with fresh ones where they have no own price."""
    plan, price = result.plan, result.scenario.finance.token_price
    assert price is not None
    path = plan.money.market.token_price
    assert path is not None
    none = price_path(0.0, 0.0, plan.months.offset_months)
    kinds = {
        names.INPUT_PRICE: "input_usd_per_million_tokens",
        names.OUTPUT_PRICE: "output_usd_per_million_tokens",
        names.CACHED_PRICE: "cached_input_usd_per_million_tokens",
    }
    served = result.rented.requests if cluster < 0 else result.monthly.served_requests[:, cluster, :]
    revenue: dict[str, Floats] = {}
    for name, kind in kinds.items():
        alone = {other: getattr(path, other) if other == kind else none for other in kinds.values()}
        moved = names.INPUT_PRICE if name == names.CACHED_PRICE and getattr(price, kind) is None else name
        earned = -(served * plan.request_usd(PricePath(**alone))).sum(axis=1)
        revenue[moved] = revenue.get(moved, 0.0) + earned
    return list(revenue.items())


def write_workings(sheets: Sheets, content: Content) -> None:
    """Write every series: its parts as simulated, then its running total now."""
    sheet, formats = sheets[SHEET], sheets.formats
    headings, labels = ["Month"], [*(cluster.name for cluster in content.result.plan.clusters), SITE]
    for series in content.series:
        label = f"{words(str(series.account))}, {labels[series.cluster]}"
        headings += [f"{label}: {name or 'rest'}, running total as simulated, USD" for name, _ in series.parts]
        headings.append(f"{label}: running total now, cents")
    write_headings(sheet, sheets, headings)
    for period, edge in enumerate(content.grid.edges[:-1]):
        sheet.write_datetime(FIRST_ROW + period, 0, edge.replace(day=1), formats["month"])
    column = 1
    for series in content.series:
        for period in range(content.grid.period_count):
            _write_series(sheets, content, series, (FIRST_ROW + period, column))
        column += len(series.parts) + 1
    sheet.set_column(0, max(len(headings) - 1, 0), 18)


def _write_series(sheets: Sheets, content: Content, series: Series, place: tuple[int, int]) -> None:
    """Write one month of a series."""
    (row, column), sheet, terms = place, sheets[SHEET], []
    for offset, (name, running) in enumerate(series.parts):
        at = (row, column + offset)
        figure = float(running[row - FIRST_ROW])
        if series.yearly:
            sheet.write_formula(*at, f"={_capital(content, series, row)}", sheets.formats["usd"], figure)
        else:
            sheet.write_number(*at, figure, sheets.formats["usd"])
        ratio = content.inputs.ratio(name, _owner(name, series.cluster)) if name else "1"
        terms.append(address(*at, fixed="C") + ("" if ratio == "1" else f"*{ratio}"))
    total = f"({'+'.join(terms)})*100"
    now = f"=SIGN({total})*INT(ABS({total})+0.500001)"
    figure = int(series.running_cents[row - FIRST_ROW])
    sheet.write_formula(row, column + len(series.parts), now, sheets.formats["count"], figure)


def _capital(content: Content, series: Series, row: int) -> str:
    """Return what a share of capital in service comes to until a month's end: Σ cost · years in service · share."""
    cohorts = [place for place, cohort in enumerate(content.result.cohorts) if cohort.cluster == series.cluster]
    rows = slice(cohorts[0], cohorts[-1] + 1)
    years = block_range(content, SERVICE, FIRST_MONTH + row - FIRST_ROW, rows)
    return f"SUMPRODUCT({cohort_range(content, 'cost', rows)},{years})/100*{series.yearly!r}"


def change_of(content: Content, account: Account, period: int) -> str:
    """Return what the inputs add to a month of an account, as a formula; empty where none moves it."""
    row, column, terms = FIRST_ROW + period, 1, []
    for series in content.series:
        column += len(series.parts)
        if series.account is account:
            running = series.running_cents
            before = f"-{SHEET}!{address(row - 1, column, fixed='RC')}" if period else ""
            simulated = int(running[period] - (running[period - 1] if period else 0))
            terms.append(f"+({SHEET}!{address(row, column, fixed='RC')}{before}-({simulated}))/100")
        column += 1
    return "".join(terms)
