"""The ledger sheet, and the accounts by month: what the ledger holds, and what the inputs add to it.

Each cell is a sum over the ledger sheet, moved by what the inputs change against the run: what is a price times a
quantity by the workings, purchases and sales by the cohorts, depreciation, disposals, capital charge and property tax
by the depreciation sheet. Tax is the tax sheet's. What runs through a month is discounted from when it counts, what has
a day of its own from that day. Signs are the ledger's: costs are positive, income is negative.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.finance.accounts import ACCOUNT_ORDER, CAPEX_ACCOUNTS, DATED_ACCOUNTS, NOT_COST_ACCOUNTS, Account, View
from planner.finance.cents import series_cents
from planner.finance.present_value import discount_factors
from planner.finance.unit_costs import cumulative_per_million_tokens, per_million_tokens
from planner.output.workbook import FIRST_ROW, Sheets, address, words, write_headings
from planner.output.workbook_cohorts import cohort_range, in_month
from planner.output.workbook_content import ACCOUNTS_SHEET, FIRST_MONTH_ROW, Content, Layout
from planner.output.workbook_depreciation import (
    CHARGE,
    DEPRECIATION,
    DISPOSED,
    FIRST_MONTH,
    PROPERTY_TAX,
    block_range,
)
from planner.output.workbook_tax import end_tax_cell, tax_month
from planner.output.workbook_workings import change_of
from planner.run.measure_names import SITE

CODE_ROW = 1
"""Row of the accounts' names in the ledger, below the headings."""
ALWAYS_SHOWN = (Account.DEPRECIATION, Account.COST_OF_CAPITAL, Account.ENERGY, Account.COOLING, Account.RESIDUAL_VALUE)
_ON_BOOKS = {Account.COST_OF_CAPITAL: CHARGE, Account.PROPERTY_TAX: PROPERTY_TAX}
MEASURES = {
    "cost": "Accrued cost, USD",
    "total_cost": "Cost of ownership, USD",
    "net": "Cost of ownership less income, tax included, USD",
    "cash": "Cash paid, USD",
    "cumulative_cash": "Cash paid to date, USD",
    "output_tokens": "Output tokens",
    "total_tokens": "Tokens",
    "unit_cost": "Cost per million output tokens, USD",
    "cumulative_unit_cost": "Cost per million output tokens to date, USD",
    "offset": "Months from the start to when the month counts",
    "factor": "Discount factor",
    "dated": "On a day of its own, USD",
    "discounted_dated": "On a day of its own, discounted, USD",
    "discounted": "Discounted, USD",
}
"""The columns after the accounts."""


def ledger_range(content: Content, column: str) -> str:
    """Return the address of one column of the ledger sheet's records."""
    last = max(content.result.ledger.row_count, 1) + FIRST_ROW
    return f"Ledger!${column}${FIRST_ROW + 1}:${column}${last}"


def write_ledger(sheets: Sheets, content: Content) -> None:
    """Write every ledger row: month, cluster, cohort, account, amount; what has a day of its own also discounted."""
    ledger, sheet = content.result.ledger, sheets["Ledger"]
    headings = [
        "Month", "Cluster", "Cohort", "Account", "Amount as simulated, USD", "Months from the start to its day",
        "Discounted, USD",
    ]  # fmt: skip
    write_headings(sheet, sheets, headings)
    months = [edge.replace(day=1) for edge in content.grid.edges[:-1]]
    clusters, cohorts = (*ledger.labels.clusters, SITE), (*ledger.labels.cohorts, "")
    columns = (ledger.month_index, ledger.cluster_index, ledger.cohort_index, ledger.account_code, ledger.amount_cents)
    for row, (month, cluster, cohort, code, amount) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True), start=FIRST_ROW
    ):
        sheet.write_datetime(row, 0, months[month], sheets.formats["month"])
        sheet.write_string(row, 1, clusters[cluster])
        sheet.write_string(row, 2, cohorts[cohort])
        sheet.write_string(row, 3, str(ACCOUNT_ORDER[code]))
        sheet.write_number(row, 4, amount / 100, sheets.formats["usd"])
    present = content.dated_present_usd
    for place, offset, discounted in zip(content.dated_rows.tolist(), content.dated_months, present, strict=True):
        row = FIRST_ROW + place
        formula = f"={address(row, 4)}*(1+{content.rate_cell})^(-{address(row, 5)}/12)"
        sheet.write_number(row, 5, offset, sheets.formats["plain"])
        sheet.write_formula(row, 6, formula, sheets.formats["usd"], discounted)
    sheet.autofilter(0, 0, max(ledger.row_count, 1), len(headings) - 1)
    sheet.set_column(0, len(headings) - 1, 18)


def _change(account: Account, content: Content, period: int) -> str:
    """Return what the inputs add to an account's month, as a formula; empty where they do not move it."""
    column, schedule = FIRST_MONTH + period, content.schedule
    month = address(FIRST_MONTH_ROW + period, 0, fixed="C")
    moved = change_of(content, account, period)
    if moved or content.assets.count == 0:
        return moved
    match account:
        case Account.DEPRECIATION:
            charged = f"SUM({block_range(content, DEPRECIATION, column)})"
            return f"+{charged}-{_usd(schedule.depreciation_cents, period)}"
        case Account.DISPOSAL_LOSS:
            lost = (
                f"SUM({block_range(content, DISPOSED, column)})-{in_month(content, 'proceeds', month, 'retired')}/100"
            )
            return f"+{lost}-{_usd(schedule.disposal_loss_cents, period)}"
        case Account.COST_OF_CAPITAL | Account.PROPERTY_TAX:
            exact = content.charge_usd if account is Account.COST_OF_CAPITAL else content.property_usd
            running, before = (
                f"SUMPRODUCT(INT({block_range(content, _ON_BOOKS[account], place)}*100+0.500001))"
                for place in (column, column - 1)
            )
            return f"+({running}{f'-{before}' if period else ''})/100-{_usd(series_cents(exact, axis=1), period)}"
        case Account.RESALE:
            fetched = in_month(content, "proceeds", month, "retired")
            return f"-{fetched}/100+{_usd(schedule.proceeds_cents, period)}"
        case Account.RESIDUAL_VALUE if period == content.grid.period_count - 1:
            worth = f"SUM({cohort_range(content, 'end_value')})"
            return f"-{worth}/100+({int(content.cohorts.end_cents.sum())}/100)"
        case _ if account in CAPEX_ACCOUNTS:
            parts = content.cohorts.parts_cents[:, CAPEX_ACCOUNTS.index(account)]
            paid = sum(int(part) for part, when in zip(parts, content.cohorts.paid, strict=True) if when == period)
            return f"+{in_month(content, str(account), month)}/100-({paid}/100)"
        case _:
            return ""


def _usd(table_cents: NDArray[np.int64], period: int) -> str:
    """Return a month's total over cohorts in dollars, as a number in a formula."""
    return f"({int(table_cents[:, period].sum())}/100)"


def _account_formula(account: Account, content: Content, period: int, column: int) -> str:
    """Return the formula of one account and month."""
    match account:
        case Account.TAX_CASH:
            return f"=ROUND({tax_month('paid', period)},2)"
        case Account.TAX_DEFERRED:
            return f"=ROUND({tax_month('expense', period)}-{tax_month('paid', period)},2)"
        case Account.TAX_ON_END_VALUE if content.assets.count:
            return f"={end_tax_cell(content)}/100" if period == content.grid.period_count - 1 else "=0"
    month, code = address(FIRST_MONTH_ROW + period, 0, fixed="C"), address(CODE_ROW, column, fixed="R")
    total = f"{ledger_range(content, 'E')},{ledger_range(content, 'A')},{month},{ledger_range(content, 'D')},{code}"
    return f"=ROUND(SUMIFS({total}){_change(account, content, period)},2)"


def _is_shown(account: Account, content: Content) -> bool:
    """Return whether an account has a column: where it holds money, or would with other inputs."""
    taxed = content.result.plan.money.market.tax is not None
    match account:
        case Account.BALANCE_SHEET:
            return False
        case Account.DISPOSAL_LOSS:
            return any(period is not None for period in content.cohorts.retired)
        case Account.TAX_CASH | Account.TAX_DEFERRED:
            return taxed
        case Account.TAX_ON_END_VALUE:
            return taxed and bool(content.assets.count > 0 or content.account_cents(account).any())
        case _:
            return account in ALWAYS_SHOWN or bool(content.account_cents(account).any())


def write_accounts(sheets: Sheets, content: Content) -> Layout:
    """Write every account by month, what a month comes to, and return where it all lies."""
    sheet, formats = sheets[ACCOUNTS_SHEET], sheets.formats
    shown = [account for account in Account if _is_shown(account, content)]
    columns = {name: 1 + place for place, name in enumerate([*map(str, shown), *MEASURES])}
    write_headings(sheet, sheets, ["Month", *(words(str(account)) for account in shown), *MEASURES.values()], 0)
    sheet.freeze_panes(FIRST_MONTH_ROW, 1)
    sheet.write_string(CODE_ROW, 0, "Account of the ledger", formats["note"])
    sheet.write_row(CODE_ROW, 1, [str(account) for account in shown], formats["note"])
    layout = Layout(columns=columns, series=_series(content, shown))
    for period, edge in enumerate(content.grid.edges[:-1]):
        row = FIRST_MONTH_ROW + period
        sheet.write_datetime(row, 0, edge.replace(day=1), formats["month"])
        for account in shown:
            column = columns[str(account)]
            formula = _account_formula(account, content, period, column)
            sheet.write_formula(row, column, formula, formats["usd"], layout.series[str(account)][period])
        _write_measures(sheets, content, layout, period)
    sheet.set_column(0, len(columns), 16)
    return layout


def _series(content: Content, shown: list[Account]) -> dict[str, Floats]:
    """Return every column as simulated, shape (months,) each."""
    ledger, rows = content.result.ledger, content.dated_rows
    usd = {str(account): content.account_cents(account) / 100 for account in shown}
    usd["cost"] = ledger.monthly_cents(View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS) / 100
    usd["total_cost"] = ledger.monthly_cents(View.ECONOMIC, leave_out=NOT_COST_ACCOUNTS) / 100
    usd["net"] = ledger.monthly_cents(View.ECONOMIC) / 100
    usd["cash"] = ledger.monthly_cents(View.CASH) / 100
    usd["cumulative_cash"] = np.cumsum(ledger.monthly_cents(View.CASH)) / 100
    usd["output_tokens"], usd["total_tokens"] = content.output_tokens, content.total_tokens
    usd["unit_cost"] = per_million_tokens(usd["cost"], content.output_tokens)
    usd["cumulative_unit_cost"] = cumulative_per_million_tokens(usd["cost"], content.output_tokens)
    usd["offset"] = content.running_months
    usd["factor"] = discount_factors(content.rate, content.running_months)
    months, count = ledger.month_index[rows], content.grid.period_count
    usd["dated"] = np.bincount(months, ledger.amount_cents[rows] / 100.0, count).astype(float)
    usd["discounted_dated"] = np.bincount(months, content.dated_present_usd, count).astype(float)
    usd["discounted"] = (usd["net"] - usd["dated"]) * usd["factor"] + usd["discounted_dated"]
    return usd


def _sum_of(layout: Layout, row: int, view: View, leave_out: tuple[Account, ...] = ()) -> str:
    """Return the sum of the accounts that a view counts, as a formula."""
    counted = (account for account in Account if view in account.views and account not in leave_out)
    cells = [address(row, layout.columns[str(a)]) for a in counted if str(a) in layout.columns]
    return "+".join(cells) or "0"


def _write_measures(sheets: Sheets, content: Content, layout: Layout, period: int) -> None:
    """Write the columns after the accounts for one month."""
    sheet, row, columns, series = sheets[ACCOUNTS_SHEET], FIRST_MONTH_ROW + period, layout.columns, layout.series

    def at(name: str, *, from_start: bool = False) -> str:
        here = address(row, columns[name])
        return f"SUM({address(FIRST_MONTH_ROW, columns[name], fixed='R')}:{here})" if from_start else here

    for name, style in (("output_tokens", "count"), ("total_tokens", "count"), ("offset", "plain")):
        sheet.write_number(row, columns[name], series[name][period], sheets.formats[style])
    tokens, all_tokens = at("output_tokens"), at("output_tokens", from_start=True)
    dated = [at(str(account)) for account in DATED_ACCOUNTS if str(account) in columns]
    formulas = {
        "cost": f"=ROUND({_sum_of(layout, row, View.ACCRUAL, NOT_COST_ACCOUNTS)},2)",
        "total_cost": f"=ROUND({_sum_of(layout, row, View.ECONOMIC, NOT_COST_ACCOUNTS)},2)",
        "net": f"=ROUND({_sum_of(layout, row, View.ECONOMIC)},2)",
        "cash": f"=ROUND({_sum_of(layout, row, View.CASH)},2)",
        "cumulative_cash": f"={at('cash', from_start=True)}",
        "unit_cost": f'=IF({tokens}=0,"",{at("cost")}/{tokens}*1000000)',
        "cumulative_unit_cost": f'=IF({all_tokens}=0,"",{at("cost", from_start=True)}/{all_tokens}*1000000)',
        "factor": f"=(1+{content.rate_cell})^(-{at('offset')}/12)",
        "dated": f"={'+'.join(dated) or '0'}",
        "discounted_dated": f"={_discounted_dated(content, layout, period)}",
        "discounted": f"=({at('net')}-{at('dated')})*{at('factor')}+{at('discounted_dated')}",
    }
    for name, formula in formulas.items():
        value = series[name][period]
        style = "unit_usd" if "unit_cost" in name or name == "factor" else "usd_bold" if name == "cost" else "usd"
        sheet.write_formula(row, columns[name], formula, sheets.formats[style], "" if np.isnan(value) else value)


def _discounted_dated(content: Content, layout: Layout, period: int) -> str:
    """Return the present value of what has a day of its own: the ledger's, and what the inputs add to it."""
    month = address(FIRST_MONTH_ROW + period, 0, fixed="C")
    formula = f"SUMIFS({ledger_range(content, 'G')},{ledger_range(content, 'A')},{month})"
    if content.assets.count == 0:
        return formula
    formula += f"+{in_month(content, 'paid_change', month)}-{in_month(content, 'proceeds_change', month, 'retired')}"
    if period == content.grid.period_count - 1:
        formula += f"-SUM({cohort_range(content, 'end_change')})"
        if (column := layout.columns.get(str(Account.TAX_ON_END_VALUE))) is not None:
            simulated = int(content.account_cents(Account.TAX_ON_END_VALUE)[period])
            end = float(content.grid.edge_coordinates[-1] - content.grid.edge_coordinates[0])
            tax = address(FIRST_MONTH_ROW + period, column)
            formula += f"+({tax}-({simulated}/100))*(1+{content.rate_cell})^(-{end!r}/12)"
    return formula
