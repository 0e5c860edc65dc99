"""The sheets between the inputs and the statements: energy by cluster, and income tax.

Both repeat the planner's arithmetic with its rounding: a running total is rounded to the cent, INT(x + 0.500001), and a
month is the difference of two of them (:mod:`planner.finance.cents`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.finance.accounts import ACCOUNT_CODES, CAPITAL_CHARGE_ACCOUNTS, NOT_COST_ACCOUNTS, Account, View
from planner.finance.cents import cents
from planner.finance.ledger import Dimension, view_cents
from planner.finance.tax import LossRule
from planner.reporting.workbook_sheets import FIRST_ROW, address, month_dates, write_headings

if TYPE_CHECKING:
    from planner.reporting.workbook import Figures, WorkbookContent
    from planner.reporting.workbook_sheets import Sheets
    from planner.reporting.workbook_statements import Statement

PRICE_CELL, PRICE_BASE_CELL = "Summary!$B$6", "Summary!$C$6"
TAX_COLUMNS = (
    "purchases_income",
    "income_before_sales",
    "taxable_income",
    "tax_paid_running_cents",
    "book_income",
    "tax_expense_running_cents",
)
"""After the month: what purchases add to taxable income, that income before and with what the tokens are sold for, tax
paid, income of the books before tax, tax on it."""


def energy_month(content: WorkbookContent, account: Account, period: int) -> str:
    """Return the formula of a month of energy or cooling, all clusters, in dollars."""
    clusters = content.energy_usd.shape[1]
    first = 1 + clusters * (2 if account is Account.ENERGY else 3)

    def total(row: int) -> str:
        return f"SUM(Energy!{address(row, first, fixed='RC')}:{address(row, first + clusters - 1, fixed='RC')})"

    row = FIRST_ROW + period
    return f"({total(row)}{f'-{total(row - 1)}' if period else ''})/100"


def write_energy(sheets: Sheets, content: WorkbookContent, figures: Figures) -> None:
    """Write each cluster's energy and cooling before rounding, then their running totals at the summary's price."""
    sheet, names = sheets.energy, content.ledger.labels.clusters
    exact = np.concatenate([content.energy_usd, content.cooling_usd], axis=1)
    running = cents(np.cumsum(exact, axis=0))
    labels = [f"{name} {account}" for account in (Account.ENERGY, Account.COOLING) for name in names]
    headings = [f"{label}, as simulated, USD" for label in labels] + [
        f"{label}, running total, cents" for label in labels
    ]
    write_headings(sheet, sheets, ["month", *headings])
    ratio = "" if "electricity" in figures.fixed else f"*({PRICE_CELL}/{PRICE_BASE_CELL})"
    for period, month in enumerate(month_dates(content)):
        row = FIRST_ROW + period
        sheet.write_datetime(row, 0, month, sheets.formats["month"])
        for place in range(exact.shape[1]):
            summed = f"SUM({address(FIRST_ROW, 1 + place, fixed='R')}:{address(row, 1 + place)})"
            sheet.write_number(row, 1 + place, exact[period, place], sheets.formats["usd"])
            sheet.write_formula(
                row, 1 + exact.shape[1] + place, f"=INT({summed}{ratio}*100+0.500001)",
                sheets.formats["count"], int(running[period, place]),
            )  # fmt: skip
    sheet.set_column(0, 2 * exact.shape[1], 18)


def tax_range(name: str, months: int) -> str:
    """Return the address of a column of the tax sheet."""
    column = 1 + TAX_COLUMNS.index(name)
    return f"Tax!{address(FIRST_ROW, column, fixed='RC')}:{address(FIRST_ROW + months - 1, column, fixed='RC')}"


def tax_month(name: str, period: int) -> str:
    """Return the formula of a month of tax paid or of tax expense, in dollars: the change of its running total."""
    column, row = 1 + TAX_COLUMNS.index(name), FIRST_ROW + period
    before = f"-Tax!{address(row - 1, column, fixed='RC')}" if period else ""
    return f"(Tax!{address(row, column, fixed='RC')}{before})/100"


def write_tax(sheets: Sheets, content: WorkbookContent, accrual: Statement) -> None:
    """Write taxable income and the income of the books month by month, and the tax on each."""
    sheet, formats, rules = sheets.tax, sheets.formats, content.tax
    if rules is None or content.purchase_income_cents is None:
        sheet.write_string(0, 0, "No income tax: finance.tax is not set.", formats["note"])
        return
    write_headings(sheet, sheets, ["month", *TAX_COLUMNS])
    stored = _tax_cents(content)
    for period, month in enumerate(month_dates(content)):
        row = FIRST_ROW + period
        sheet.write_datetime(row, 0, month, formats["month"])
        sheet.write_number(row, 1, content.purchase_income_cents[period] / 100, formats["usd"])
        for name, formula in _tax_formulas(row, rules.rate_fraction, accrual).items():
            in_cents = name.endswith("cents")
            value = float(stored[name][period]) / (1 if in_cents else 100)
            style, column = formats["count" if in_cents else "usd"], 1 + TAX_COLUMNS.index(name)
            if name == "tax_paid_running_cents" and rules.losses is LossRule.CARRY_FORWARD:
                sheet.write_number(row, column, value, style)
            else:
                sheet.write_formula(row, column, formula, style, value)
    sheet.set_column(0, len(TAX_COLUMNS), 22)


def _tax_formulas(row: int, rate: float, accrual: Statement) -> dict[str, str]:
    """Return a month's formulas by column."""

    def book(account: Account | str) -> str:
        column = accrual.columns.get(str(account))
        return "0" if column is None else f"'{accrual.sheet_name}'!{address(row, column)}"

    def here(name: str, *, from_start: bool = False) -> str:
        column = 1 + TAX_COLUMNS.index(name)
        return (
            f"SUM({address(FIRST_ROW, column, fixed='R')}:{address(row, column)})"
            if from_start
            else address(row, column)
        )

    def share(name: str) -> str:
        total = f"ROUND({here(name, from_start=True)}*100,0)*{rate!r}"
        return f"=SIGN({total})*INT(ABS({total})+0.500001)"

    expenses = "-".join([book("cost"), *(book(account) for account in CAPITAL_CHARGE_ACCOUNTS)])
    running = f"({expenses}-{book(Account.DEPRECIATION)}-{book(Account.DISPOSAL_LOSS)})"
    return {
        "income_before_sales": f"=ROUND({here('purchases_income')}-{running},2)",
        "taxable_income": f"=ROUND({here('income_before_sales')}-{book(Account.REVENUE)},2)",
        "tax_paid_running_cents": share("taxable_income"),
        "book_income": f"=ROUND(-({expenses})-{book(Account.REVENUE)},2)",
        "tax_expense_running_cents": share("book_income"),
    }


def _tax_cents(content: WorkbookContent) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
    """Return the columns as simulated, in cents, shape (months,) each."""
    table = content.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    cost = view_cents(table, View.ACCRUAL, leave_out=(*NOT_COST_ACCOUNTS, *CAPITAL_CHARGE_ACCOUNTS))
    written_off = table[:, [ACCOUNT_CODES[account] for account in (Account.DEPRECIATION, Account.DISPOSAL_LOSS)]]
    revenue, paid, deferred = (
        table[:, ACCOUNT_CODES[account]] for account in (Account.REVENUE, Account.TAX_CASH, Account.TAX_DEFERRED)
    )
    before = np.asarray(content.purchase_income_cents) - cost + written_off.sum(axis=1)
    return {
        "income_before_sales": before,
        "taxable_income": before - revenue,
        "tax_paid_running_cents": np.cumsum(paid),
        "book_income": -cost - revenue,
        "tax_expense_running_cents": np.cumsum(paid + deferred),
    }
