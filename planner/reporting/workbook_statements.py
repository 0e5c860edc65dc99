"""The two monthly statements: profit and loss (accrual) and cash flow (cash, and the value of what is still owned).

Each cell is a sum over the ledger sheet, moved by what the inputs change against the run: energy and cooling by the
energy sheet's formulas, depreciation, disposals and capital charge by the depreciation sheet's, less what they gave as
simulated. Tax is the tax sheet's. In the cash flow, what runs through a month is discounted from when it counts, what
has a day of its own from that day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.finance.accounts import (
    ACCOUNT_CODES,
    ACCOUNTS,
    DATED_ACCOUNTS,
    END_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    Account,
    View,
)
from planner.finance.present_value import discount_factors
from planner.finance.unit_costs import cumulative_per_million_tokens, per_million_tokens
from planner.reporting.workbook_depreciation import FIRST_MONTH, block_range
from planner.reporting.workbook_sheets import (
    FIRST_ROW,
    RATE_CELL,
    address,
    dated_present_usd,
    ledger_range,
    month_dates,
    write_headings,
)
from planner.reporting.workbook_workings import energy_month, tax_month

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.reporting.workbook import Figures, WorkbookContent
    from planner.reporting.workbook_sheets import Sheets

ALWAYS_SHOWN = (Account.DEPRECIATION, Account.COST_OF_CAPITAL, Account.ENERGY, Account.COOLING, Account.RESIDUAL_VALUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Where a statement's columns lie, for the summary's formulas, and what they hold."""

    sheet_name: str
    columns: dict[str, int]
    """Column by name: accounts, ``cost``, ``net``, and the measures."""
    series: dict[str, NDArray[np.float64]]
    """The values as simulated, by the same names, shape (months,)."""

    def range_of(self, name: str, months: int) -> str:
        """Return the address of a column's months."""
        column = self.columns[name]
        low = address(FIRST_ROW, column, fixed="RC")
        return f"'{self.sheet_name}'!{low}:{address(FIRST_ROW + months - 1, column, fixed='RC')}"


def _adjustment(account: Account, content: WorkbookContent, figures: Figures, period: int) -> str:
    """Return what the inputs add to an account's month, as a formula; empty where they do not move it."""
    count, column = content.cohorts.count, FIRST_MONTH + period
    schedule, simulated = figures.schedule, figures.table_cents[:, [ACCOUNT_CODES[account]]].T
    match account:
        case Account.ENERGY | Account.COOLING:
            return f"+{energy_month(content, account, period)}-{_usd(simulated, period)}"
        case _ if count == 0:
            return ""
        case Account.DEPRECIATION:
            return f"+SUM({block_range(0, count, column)})-{_usd(schedule.depreciation_cents, period)}"
        case Account.DISPOSAL_LOSS:
            return f"+SUM({block_range(1, count, column)})-{_usd(schedule.disposed_book_cents, period)}"
        case Account.COST_OF_CAPITAL:
            running = f"SUMPRODUCT(INT({block_range(3, count, column)}*100+0.500001))"
            before = f"-SUMPRODUCT(INT({block_range(3, count, column - 1)}*100+0.500001))" if period else ""
            return f"+({running}{before})/100-{_usd(figures.charge_cents, period)}"
        case _:
            return ""


def _usd(table_cents: NDArray[np.int64], period: int) -> str:
    """Return a month's total over cohorts in dollars, as a number in a formula."""
    return f"({int(table_cents[:, period].sum())}/100)"


def _account_formula(account: Account, content: WorkbookContent, figures: Figures, cell: tuple[int, int]) -> str:
    """Return the formula of one account and month."""
    row, column = cell
    period = row - FIRST_ROW
    if account is Account.TAX_CASH:
        return f"=ROUND({tax_month('tax_paid_running_cents', period)},2)"
    if account is Account.TAX_DEFERRED:
        expense, paid = (tax_month(f"tax_{name}_running_cents", period) for name in ("expense", "paid"))
        return f"=ROUND({expense}-{paid},2)"
    month, code = address(row, 0, fixed="C"), address(0, column, fixed="R")
    total = (
        f"SUMIFS({ledger_range(content, 'E')},{ledger_range(content, 'A')},{month},{ledger_range(content, 'D')},{code})"
    )
    return f"=ROUND({total}{_adjustment(account, content, figures, period)},2)"


def _is_shown(account: Account, content: WorkbookContent, figures: Figures) -> bool:
    """Return whether an account has a column: where it holds money, or would with other inputs."""
    match account:
        case Account.DISPOSAL_LOSS:
            return bool(figures.schedule.disposed_book_cents.any())
        case Account.TAX_CASH | Account.TAX_DEFERRED:
            return content.tax is not None
        case _:
            return account in ALWAYS_SHOWN or bool(figures.table_cents[:, ACCOUNT_CODES[account]].any())


def write_statement(sheets: Sheets, content: WorkbookContent, figures: Figures, view: View) -> Statement:
    """Write one statement and return where its columns lie."""
    sheet = sheets.profit if view is View.ACCRUAL else sheets.cash
    shown = [account for account in Account if view in ACCOUNTS[account].views and _is_shown(account, content, figures)]
    # Income and tax come last, so that cost is one unbroken run of columns.
    shown.sort(key=lambda account: account in NOT_COST_ACCOUNTS)
    costs = [account for account in shown if account not in NOT_COST_ACCOUNTS]
    names = ["month", *map(str, shown), "cost", "net", *_measure_names(view)]
    write_headings(sheet, sheets, names)
    series = _series(content, figures, shown, view)
    columns = {name: column for column, name in enumerate(names)}
    for period, month in enumerate(month_dates(content)):
        row = FIRST_ROW + period
        sheet.write_datetime(row, 0, month, sheets.formats["month"])
        for account in shown:
            column = columns[str(account)]
            formula = _account_formula(account, content, figures, (row, column))
            sheet.write_formula(row, column, formula, sheets.formats["usd"], series[str(account)][period])
        spans = {"cost": len(costs), "net": len(shown)}
        for name, last in spans.items():
            formula = f"=SUM({address(row, 1)}:{address(row, last)})"
            sheet.write_formula(row, columns[name], formula, sheets.formats["usd_bold"], series[name][period])
        _write_measures(sheet, sheets, content, (row, columns, series))
    sheet.set_column(0, len(names), 16)
    name = "Monthly P&L" if view is View.ACCRUAL else "Cash flow"
    return Statement(sheet_name=name, columns=columns, series=series)


def _measure_names(view: View) -> list[str]:
    """Return the columns after the totals."""
    if view is View.ACCRUAL:
        return ["output_tokens", "total_tokens", "usd_per_million_output_tokens", "cumulative_usd_per_million_output"]
    return [
        "cash",
        "cumulative_cash",
        "running_offset_months",
        "discount_factor",
        "on_their_day",
        "discounted_on_their_day",
        "discounted_net",
    ]


def _series(
    content: WorkbookContent, figures: Figures, shown: list[Account], view: View
) -> dict[str, NDArray[np.float64]]:
    """Return every column as simulated, shape (months,) each."""
    usd = {str(account): figures.table_cents[:, ACCOUNT_CODES[account]] / 100 for account in shown}
    codes = [ACCOUNT_CODES[account] for account in shown]
    cost_codes = [ACCOUNT_CODES[account] for account in shown if account not in NOT_COST_ACCOUNTS]
    usd["cost"] = figures.table_cents[:, cost_codes].sum(axis=1) / 100
    usd["net"] = figures.table_cents[:, codes].sum(axis=1) / 100
    if view is View.ACCRUAL:
        usd["output_tokens"], usd["total_tokens"] = content.output_tokens, content.total_tokens
        usd["usd_per_million_output_tokens"] = per_million_tokens(usd["cost"], content.output_tokens)
        usd["cumulative_usd_per_million_output"] = cumulative_per_million_tokens(usd["cost"], content.output_tokens)
    else:
        usd["cash"] = content.ledger.monthly_cents(View.CASH) / 100
        usd["cumulative_cash"] = np.cumsum(content.ledger.monthly_cents(View.CASH)) / 100
        usd["running_offset_months"] = content.running_months
        usd["discount_factor"] = discount_factors(content.discount_rate_per_year, content.running_months)
        ledger, rows = content.ledger, content.dated_rows
        months, count = ledger.month_index[rows], content.grid.period_count
        usd["on_their_day"] = np.bincount(months, ledger.amount_cents[rows] / 100.0, count).astype(float)
        usd["discounted_on_their_day"] = np.bincount(months, dated_present_usd(content), count).astype(float)
        running = usd["net"] - usd["on_their_day"]
        usd["discounted_net"] = running * usd["discount_factor"] + usd["discounted_on_their_day"]
    return usd


def _write_measures(
    sheet: Any,
    sheets: Sheets,
    content: WorkbookContent,
    place: tuple[int, dict[str, int], dict[str, NDArray[np.float64]]],
) -> None:
    """Write the columns after the totals for one month."""
    row, columns, series = place
    period = row - FIRST_ROW

    def at(name: str, *, from_start: bool = False) -> str:
        here = address(row, columns[name])
        return f"SUM({address(FIRST_ROW, columns[name], fixed='R')}:{here})" if from_start else here

    if "output_tokens" in columns:
        for name in ("output_tokens", "total_tokens"):
            sheet.write_number(row, columns[name], series[name][period], sheets.formats["count"])
        cost, tokens = at("cost"), at("output_tokens")
        all_cost, all_tokens = at("cost", from_start=True), at("output_tokens", from_start=True)
        formulas = {
            "usd_per_million_output_tokens": f'=IF({tokens}=0,"",{cost}/{tokens}*1000000)',
            "cumulative_usd_per_million_output": f'=IF({all_tokens}=0,"",{all_cost}/{all_tokens}*1000000)',
        }
    else:
        offset = "running_offset_months"
        sheet.write_number(row, columns[offset], series[offset][period], sheets.formats["plain"])
        owned = [at(str(account)) for account in END_ACCOUNTS if str(account) in columns]
        dated = [at(str(account)) for account in DATED_ACCOUNTS if str(account) in columns]
        of_month = f"{ledger_range(content, 'A')},{address(row, 0, fixed='C')}"
        formulas = {
            "cash": f"={at('net')}-{'-'.join(owned)}",
            "cumulative_cash": f"={at('cash', from_start=True)}",
            "discount_factor": f"=(1+{RATE_CELL})^(-{at(offset)}/12)",
            "on_their_day": f"={'+'.join(dated)}",
            "discounted_on_their_day": f"=SUMIFS({ledger_range(content, 'G')},{of_month})",
            "discounted_net": f"=({at('net')}-{at('on_their_day')})*{at('discount_factor')}"
            f"+{at('discounted_on_their_day')}",
        }
    for name, formula in formulas.items():
        value = series[name][period]
        style = "unit_usd" if "million" in name or name == "discount_factor" else "usd"
        sheet.write_formula(row, columns[name], formula, sheets.formats[style], "" if np.isnan(value) else value)
