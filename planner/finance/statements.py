"""Income statement, cash flow and balance sheet, from the one ledger, by month, quarter and fiscal year.

Every account says in :class:`~planner.finance.ledger.Account` what a posting moves: cash, where the cash or the
financing view counts it; equity, where it is a line of the income statement; and other lines of the balance sheet. For
every account these balance, so that assets are liabilities and equity in every month and cluster:

    cash[m]     = opening cash + paid in − Σ postings that change hands
    position[m] = opening + Σ ± postings
    equity[m]   = opening assets − opening liabilities + paid in + Σ net income
    net income  = revenue − cost of serving − operating expense − interest − tax

The owner pays in what would take the fleet's cash below zero, in that month. The site has all cash: clusters take what
they pay from it, and give it what they earn. The imputed charge for capital, and values as if sold, are paid by nobody
and in no statement. Costs are positive in the income statement; in the cash flow, money that comes in is.

What the standards differ in: under IFRS interest and all that is paid for leases on the balance sheet are financing
cash flow (IAS 7.33 and, from 2027, IFRS 18; IFRS 16.50). Under US GAAP interest, and rent of operating leases, are
operating cash flow (ASC 230-10-45-17, 842-20-45-5). The postings themselves differ in
:func:`~planner.finance.financing.right_of_use`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from planner.arrays import Cents, Floats
from planner.data_files import data_rows
from planner.errors import ConservationError
from planner.finance.financing import Books
from planner.finance.ledger import (
    ACCOUNT_CODES,
    ACCOUNT_ORDER,
    Account,
    Category,
    Dimension,
    Ledger,
    Position,
    View,
    view_cents,
)
from planner.finance.months import MonthGrid
from planner.finance.present_value import ratio
from planner.units import MONTHS_PER_YEAR

MONTHS_PER_QUARTER = 3
LIABILITIES = (Position.LOANS, Position.LEASES, Position.PAYABLES, Position.DEFERRED_TAX)
"""Positions owed; the others are owned."""


class Frequency(StrEnum):
    """The period length of a statement."""

    MONTH = "month"
    QUARTER = "quarter"
    YEAR = "year"


LINES = MappingProxyType(
    {row["line"]: row["description"] for row in data_rows(__file__, "statements.csv")}
)
"""The lines of the statements in order, and what each is."""
_SUMS = ("cash_usd", "assets_usd", "liabilities_usd", "paid_in_capital_usd", "equity_usd")
BALANCES = (*(f"{line}_usd" for line in Position), *_SUMS)
"""Lines that hold at a period's end; all others but opening cash run through it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The opening balance sheet, in cents."""

    cash_cents: int
    """Of the whole site."""
    position_cents: Mapping[Position, Cents]
    """By cluster, the site as a whole last, shape (clusters + 1,); positions left out are zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The three statements; every line has shape (periods, clusters + 2): clusters, site, fleet."""

    periods: tuple[str, ...]
    """The periods as text that sorts in time order: 2026-03, FY2026-Q1, FY2026."""
    lines_cents: Mapping[str, Cents]
    """The lines of :data:`LINES`."""

    def by(self, frequency: Frequency, grid: MonthGrid, first_month: int) -> Statements:
        """Return monthly statements by a longer period, fiscal years beginning in ``first_month`` (1 is January).

        A fiscal year has the number of the calendar year in which it ends.
        """
        periods = fiscal_periods(grid, first_month, frequency)
        firsts = [*periods.values()]
        lasts = [*(first - 1 for first in firsts[1:]), grid.period_count - 1]

        def joined(name: str, months: Cents) -> Cents:
            if name == "opening_cash_usd":
                return months[firsts]
            return months[lasts] if name in BALANCES else np.add.reduceat(months, firsts, axis=0)

        joint = {name: joined(name, months) for name, months in self.lines_cents.items()}
        return replace(self, periods=tuple(periods), lines_cents=joint)


def fiscal_periods(grid: MonthGrid, first_month: int, frequency: Frequency) -> dict[str, int]:
    """Return the calendar months, fiscal quarters or fiscal years of a horizon, and the first month of each."""
    labels = [
        fiscal_label(edge.year, edge.month, first_month, frequency) for edge in grid.edges[:-1]
    ]
    return {label: labels.index(label) for label in dict.fromkeys(labels)}


def fiscal_label(year: int, month: int, first_month: int, frequency: Frequency) -> str:
    """Return the calendar month, or its fiscal quarter or year."""
    if frequency is Frequency.MONTH:
        return f"{year:04d}-{month:02d}"
    fiscal = year + (1 if 1 < first_month <= month else 0)
    quarter = (month - first_month) % MONTHS_PER_YEAR // MONTHS_PER_QUARTER + 1
    return f"FY{fiscal}-Q{quarter}" if frequency is Frequency.QUARTER else f"FY{fiscal}"


def is_paid(account: Account) -> bool:
    """Return whether a posting to an account moves cash."""
    return bool(account.views & (View.CASH | View.FINANCING))


@functools.cache
def line_weights(books: Books) -> tuple[tuple[str, ...], Cents]:
    """Return the statement lines summed from accounts, and a posting's weight in each, shape (accounts, lines).

    Positions give their monthly change. Worked out once: a study reads ten thousand ledgers.
    """
    named = {
        Category(name): f"{name}_usd"
        for name in ("cost_of_serving", "operating_expense", "interest")
    }
    named |= {Category.REVENUE: "revenue_usd", Category.TAX: "tax_expense_usd"}
    columns = {
        line: [int(account.category is of) for account in ACCOUNT_ORDER]
        for of, line in named.items()
    }
    columns["revenue_usd"] = [-weight for weight in columns["revenue_usd"]]
    sections = {Category.LENDING: "financing", Category.INVESTING: "investing"}

    def flow(section: str, standard: Books) -> list[int]:
        column = []
        for account in ACCOUNT_ORDER:
            lent = account.category is Category.INTEREST or View.FINANCING in account.views
            place = (
                "financing"
                if lent and standard is Books.IFRS
                else sections.get(account.category, "operating")
            )
            column.append(-(place == section and is_paid(account)))
        return column

    columns |= {
        f"{name}_cash_flow_usd": flow(name, books)
        for name in ("operating", "investing", "financing")
    }
    columns["cash_for_debt_service_usd"] = flow("operating", Books.IFRS)
    if books is Books.IFRS:  # rent was posted as running cost
        for name, weight in (("operating", -1), ("financing", 1)):
            columns[f"{name}_cash_flow_usd"][ACCOUNT_CODES[Account.RENT_CAPITALISED]] = weight
    service = (
        Account.LOAN_INTEREST,
        Account.LOAN_REPAID,
        Account.LEASE_PRINCIPAL,
        Account.LEASE_INTEREST,
    )
    columns["debt_service_usd"] = [int(account in service) for account in ACCOUNT_ORDER]
    for line in Position:
        columns[f"{line}_usd"] = [dict(account.positions).get(line, 0) for account in ACCOUNT_ORDER]
    return tuple(columns), np.array(list(columns.values()), dtype=np.int64).T


def monthly_statements(ledger: Ledger, opening: Opening, books: Books) -> Statements:
    """Return the statements of a ledger by month, raising ConservationError unless they tie to the cent."""
    names, weights = line_weights(books)
    table = ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT) @ weights
    lines = {name: table[:, :, column] for column, name in enumerate(names)}
    for line in Position:
        begun = opening.position_cents.get(line, np.zeros(table.shape[1], dtype=np.int64))
        lines[f"{line}_usd"] = begun + np.cumsum(lines[f"{line}_usd"], axis=0)
    lines["gross_profit_usd"] = lines["revenue_usd"] - lines["cost_of_serving_usd"]
    lines["operating_income_usd"] = lines["gross_profit_usd"] - lines["operating_expense_usd"]
    lines["net_income_usd"] = (
        lines["operating_income_usd"] - lines["interest_usd"] - lines["tax_expense_usd"]
    )
    flows = (lines[f"{kind}_cash_flow_usd"] for kind in ("operating", "investing", "financing"))
    flow = np.asarray(sum(flows), dtype=np.int64)
    paid_in = -np.cumsum(flow, axis=0)
    needed = np.maximum(paid_in.sum(axis=1) - opening.cash_cents, 0)
    paid_in[:, -1] = np.maximum.accumulate(needed) - paid_in[:, :-1].sum(axis=1)
    lines["paid_in_capital_usd"], lines["paid_in_usd"] = (
        paid_in,
        np.diff(paid_in, axis=0, prepend=0),
    )
    lines["financing_cash_flow_usd"] = lines["financing_cash_flow_usd"] + lines["paid_in_usd"]
    lines["net_cash_flow_usd"] = flow + lines["paid_in_usd"]
    cash = np.zeros(table.shape[1], dtype=np.int64)
    cash[-1] = opening.cash_cents
    lines["cash_usd"] = cash + np.cumsum(lines["net_cash_flow_usd"], axis=0)
    lines["opening_cash_usd"] = lines["cash_usd"] - lines["net_cash_flow_usd"]
    owned = [f"{line}_usd" for line in Position if line not in LIABILITIES]
    lines["assets_usd"] = lines["cash_usd"] + sum(lines[name] for name in owned)
    lines["liabilities_usd"] = np.asarray(
        sum(lines[f"{line}_usd"] for line in LIABILITIES), dtype=np.int64
    )
    begun = cash.copy()
    for line, amount in opening.position_cents.items():
        begun += -amount if line in LIABILITIES else amount
    lines["equity_usd"] = begun + paid_in + np.cumsum(lines["net_income_usd"], axis=0)
    problems = []
    off = lines["assets_usd"] - lines["liabilities_usd"] - lines["equity_usd"]
    if off.any():
        problems.append(
            f"assets are off from liabilities and equity by up to {np.abs(off).max()} cents"
        )
    by_account = ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    paid = view_cents(by_account, View.CASH) + view_cents(by_account, View.FINANCING)
    if np.any((lines["cash_usd"] - paid_in).sum(axis=1) != opening.cash_cents - np.cumsum(paid)):
        problems.append(
            "closing cash is not opening cash, what was paid in, and the ledger's cash flow"
        )
    if np.any(lines["cash_usd"] < 0):
        problems.append("cash is below zero")
    if problems:
        raise ConservationError("the statements do not tie: " + "; ".join(problems))
    stacked = np.stack([lines[name] for name in LINES])
    stacked = np.concatenate(
        (stacked, stacked.sum(axis=2, keepdims=True)), axis=2
    )  # the fleet as last column
    return Statements(
        periods=ledger.labels.months, lines_cents=dict(zip(LINES, stacked, strict=True))
    )


def cover_ratio(statements: Statements) -> Floats:
    """Return cash for debt service / debt service, NaN where none is due; shape (periods, clusters + 2)."""
    return ratio(
        *(
            statements.lines_cents[f"{name}_usd"]
            for name in ("cash_for_debt_service", "debt_service")
        )
    )


def check_positions(statements: Statements, held_cents: Mapping[Position, Cents]) -> None:
    """Raise ConservationError unless balance-sheet lines agree with schedules computed apart from the ledger.

    ``held_cents`` are positions of shape (months, clusters + 1), the site as a whole last.
    """
    for line, held in held_cents.items():
        off = np.abs(statements.lines_cents[f"{line}_usd"][:, :-1] - held)
        if off.any():
            raise ConservationError(
                f"{line} in the balance sheet is off from its schedule by up to {off.max()} cents"
            )
