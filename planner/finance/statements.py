"""Income statement, cash flow and balance sheet, from the one ledger, by month, quarter and fiscal year.

Every account says in :class:`~planner.finance.accounts.Account` what a posting moves: cash, where the cash or the
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
from dataclasses import replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from planner.arrays import Cents, Floats
from planner.data_files import data_rows
from planner.errors import ConservationError
from planner.finance.accounts import ACCOUNT_CODES, ACCOUNT_ORDER, Account, Category, Position, View
from planner.finance.financing import Books
from planner.finance.ledger import (
    MONTH_CLUSTER_ACCOUNT,
    Dimension,
    Ledger,
    view_cents,
    zero_cents,
)
from planner.finance.months import MonthGrid
from planner.finance.present_value import ratio
from planner.records import record
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


@record
class Opening:
    """The opening balance sheet, in cents."""

    cash_cents: int
    """Of the whole site."""
    position_cents: Mapping[Position, Cents]
    """By cluster, the site as a whole last, shape (clusters + 1,); positions left out are zero."""


@record
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
        period_starts = [*periods.values()]
        # The month before the next period begins; the last period ends with the horizon.
        next_starts = (*period_starts[1:], grid.period_count)
        period_ends = [next_start - 1 for next_start in next_starts]
        aggregated = {}
        for name, months in self.lines_cents.items():
            if name == "opening_cash_usd":
                aggregated[name] = months[period_starts]
            elif name in BALANCES:
                aggregated[name] = months[period_ends]
            else:
                aggregated[name] = np.add.reduceat(months, period_starts, axis=0)
        return replace(self, periods=tuple(periods), lines_cents=aggregated)


def fiscal_periods(grid: MonthGrid, first_month: int, frequency: Frequency) -> dict[str, int]:
    """Return the calendar months, fiscal quarters or fiscal years of a horizon, and the first month of each."""
    starts: dict[str, int] = {}
    for index, edge in enumerate(grid.edges[:-1]):
        label = fiscal_label(edge.year, edge.month, first_month, frequency)
        # The first month of a label stays; a dict keeps the order of time.
        starts.setdefault(label, index)
    return starts


def fiscal_label(year: int, month: int, first_month: int, frequency: Frequency) -> str:
    """Return the calendar month, or its fiscal quarter or year."""
    if frequency is Frequency.MONTH:
        return f"{year:04d}-{month:02d}"
    # From the month in which a fiscal year begins it is the next calendar year's, unless it begins in January.
    is_next = 1 < first_month <= month
    fiscal = year + is_next
    quarter = (month - first_month) % MONTHS_PER_YEAR // MONTHS_PER_QUARTER + 1
    if frequency is Frequency.QUARTER:
        return f"FY{fiscal}-Q{quarter}"
    return f"FY{fiscal}"


def is_paid(account: Account) -> bool:
    """Return whether a posting to an account moves cash."""
    return bool(account.views & (View.CASH | View.FINANCING))


_INCOME_LINES = {
    "revenue_usd": Category.REVENUE,
    "cost_of_serving_usd": Category.COST_OF_SERVING,
    "operating_expense_usd": Category.OPERATING_EXPENSE,
    "interest_usd": Category.INTEREST,
    "tax_expense_usd": Category.TAX,
}
_DEBT_SERVICE = (
    Account.LOAN_INTEREST,
    Account.LOAN_REPAID,
    Account.LEASE_PRINCIPAL,
    Account.LEASE_INTEREST,
)


def _cash_section(account: Account, books: Books) -> str:
    """Return the section of the cash flow to which an account's cash belongs, empty where it moves none."""
    if not is_paid(account):
        return ""
    is_interest = account.category is Category.INTEREST or View.FINANCING in account.views
    # US GAAP has interest paid among operating cash flows.
    is_financing_interest = is_interest and books is Books.IFRS
    if account.category is Category.LENDING or is_financing_interest:
        return "financing"
    if account.category is Category.INVESTING:
        return "investing"
    return "operating"


@functools.cache
def line_weights(books: Books) -> tuple[tuple[str, ...], Cents]:
    """Return the statement lines summed from accounts, and a posting's weight in each, shape (accounts, lines).

    Positions give their monthly change. Worked out once: a study reads ten thousand ledgers.
    """
    columns = {}
    for line, category in _INCOME_LINES.items():
        columns[line] = [int(account.category is category) for account in ACCOUNT_ORDER]
    # Income is negative in the ledger, and positive in the statements.
    columns["revenue_usd"] = [-weight for weight in columns["revenue_usd"]]
    for section in ("operating", "investing", "financing"):
        columns[f"{section}_cash_flow_usd"] = [
            -(_cash_section(account, books) == section) for account in ACCOUNT_ORDER
        ]
    # A covenant reads the same cash under either standard: before interest, so as IFRS has it.
    columns["cash_for_debt_service_usd"] = [
        -(_cash_section(account, Books.IFRS) == "operating") for account in ACCOUNT_ORDER
    ]
    if books is Books.IFRS:
        # Rent was posted as running cost; IFRS shows what is paid for leases on the balance sheet as financing.
        rent = ACCOUNT_CODES[Account.RENT_CAPITALISED]
        columns["operating_cash_flow_usd"][rent] = -1
        columns["financing_cash_flow_usd"][rent] = 1
    columns["debt_service_usd"] = [int(account in _DEBT_SERVICE) for account in ACCOUNT_ORDER]
    for line in Position:
        signs = [dict(account.positions) for account in ACCOUNT_ORDER]
        columns[f"{line}_usd"] = [by_line.get(line, 0) for by_line in signs]
    weights = np.array(list(columns.values()), dtype=np.int64)
    return tuple(columns), weights.T


def monthly_statements(ledger: Ledger, opening: Opening, books: Books) -> Statements:
    """Return the statements of a ledger by month, raising ConservationError unless they tie to the cent."""
    names, weights = line_weights(books)
    by_account = ledger.totals_cents(*MONTH_CLUSTER_ACCOUNT)
    # One product of integers for all lines at once, which is exact.
    table = by_account @ weights
    lines = {name: table[:, :, column] for column, name in enumerate(names)}
    nothing = zero_cents(table.shape[1])
    for position in Position:
        balance = opening.position_cents.get(position, nothing)
        line = f"{position}_usd"
        lines[line] = balance + np.cumsum(lines[line], axis=0)
    gross_profit = lines["revenue_usd"] - lines["cost_of_serving_usd"]
    operating_income = gross_profit - lines["operating_expense_usd"]
    lines["gross_profit_usd"] = gross_profit
    lines["operating_income_usd"] = operating_income
    lines["net_income_usd"] = operating_income - lines["interest_usd"] - lines["tax_expense_usd"]
    flow = (
        lines["operating_cash_flow_usd"]
        + lines["investing_cash_flow_usd"]
        + lines["financing_cash_flow_usd"]
    )
    # Clusters are paid in what they spend. The site, the last column, has the owner's money: of the whole fleet what
    # would take cash below zero, which never falls again, since the owner takes nothing out.
    paid_in = -np.cumsum(flow, axis=0)
    beyond_cash = paid_in.sum(axis=1) - opening.cash_cents
    needed = np.maximum(beyond_cash, 0)
    owner_paid_in = np.maximum.accumulate(needed)
    paid_in_by_clusters = paid_in[:, :-1].sum(axis=1)
    paid_in[:, -1] = owner_paid_in - paid_in_by_clusters
    paid_in_month = np.diff(paid_in, axis=0, prepend=0)
    lines["paid_in_capital_usd"] = paid_in
    lines["paid_in_usd"] = paid_in_month
    # A new array: adding in place would change the table of which this line is a view.
    lines["financing_cash_flow_usd"] = lines["financing_cash_flow_usd"] + paid_in_month
    net_cash_flow = flow + paid_in_month
    lines["net_cash_flow_usd"] = net_cash_flow
    opening_cash = nothing.copy()
    opening_cash[-1] = opening.cash_cents
    cash = opening_cash + np.cumsum(net_cash_flow, axis=0)
    lines["cash_usd"] = cash
    lines["opening_cash_usd"] = cash - net_cash_flow
    assets = cash.copy()
    liabilities = np.zeros_like(cash)
    opening_equity = opening_cash.copy()
    for position in Position:
        balance = opening.position_cents.get(position, nothing)
        if position in LIABILITIES:
            liabilities += lines[f"{position}_usd"]
            opening_equity -= balance
        else:
            assets += lines[f"{position}_usd"]
            opening_equity += balance
    lines["assets_usd"] = assets
    lines["liabilities_usd"] = liabilities
    # From net income, not as assets less liabilities: that they agree is the check.
    earned = np.cumsum(lines["net_income_usd"], axis=0)
    lines["equity_usd"] = opening_equity + paid_in + earned
    _check_ties(lines, ledger, opening)
    stacked = np.stack([lines[name] for name in LINES])
    # The fleet is the last column, the sum of all clusters and the site.
    fleet = stacked.sum(axis=2, keepdims=True)
    stacked = np.concatenate((stacked, fleet), axis=2)
    lines_cents = dict(zip(LINES, stacked, strict=True))
    return Statements(periods=ledger.labels.months, lines_cents=lines_cents)


def _check_ties(lines: Mapping[str, Cents], ledger: Ledger, opening: Opening) -> None:
    """Raise ConservationError unless the balance sheet balances and cash is the ledger's."""
    problems = []
    gap = lines["assets_usd"] - lines["liabilities_usd"] - lines["equity_usd"]
    if gap.any():
        problems.append(
            f"assets are off from liabilities and equity by up to {np.abs(gap).max()} cents"
        )
    by_account = ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
    operations = view_cents(by_account, View.CASH)
    financing = view_cents(by_account, View.FINANCING)
    paid = operations + financing
    ledger_cash = opening.cash_cents - np.cumsum(paid)
    own_cash_cents = lines["cash_usd"] - lines["paid_in_capital_usd"]
    own_cash = own_cash_cents.sum(axis=1)
    if np.any(own_cash != ledger_cash):
        problems.append(
            "closing cash is not opening cash, what was paid in, and the ledger's cash flow"
        )
    if np.any(lines["cash_usd"] < 0):
        problems.append("cash is below zero")
    if problems:
        raise ConservationError("the statements do not tie: " + "; ".join(problems))


def cover_ratio(statements: Statements) -> Floats:
    """Return cash for debt service / debt service, NaN where none is due; shape (periods, clusters + 2)."""
    lines = statements.lines_cents
    return ratio(lines["cash_for_debt_service_usd"], lines["debt_service_usd"])


def check_positions(statements: Statements, held_cents: Mapping[Position, Cents]) -> None:
    """Raise ConservationError unless balance-sheet lines agree with schedules computed apart from the ledger.

    ``held_cents`` are positions of shape (months, clusters + 1), the site as a whole last.
    """
    for line, schedule in held_cents.items():
        # Without the fleet, which the schedules do not have.
        balance = statements.lines_cents[f"{line}_usd"][:, :-1]
        difference = np.abs(balance - schedule)
        if difference.any():
            raise ConservationError(
                f"{line} in the balance sheet is off from its schedule by up to {difference.max()} cents"
            )
