"""The statements against a year worked by hand, and the rule of double entry account by account."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from planner.errors import ConservationError
from planner.finance import statements
from planner.finance.accounts import Account, Category, Position, View
from planner.finance.financing import Books
from planner.finance.ledger import Ledger, LedgerBuilder, LedgerLabels
from planner.finance.months import MonthGrid
from planner.finance.statements import (
    LIABILITIES,
    LINES,
    Frequency,
    Opening,
    check_positions,
    fiscal_label,
)

GRID = MonthGrid(start=date(2026, 5, 1), horizon_months=4)
OPENING = Opening(
    cash_cents=50_000,
    position_cents={
        Position.HARDWARE: np.array([120_000, 0]),
        Position.DEFERRED_TAX: np.array([0, 30_000]),
    },
)

INCOME_CATEGORIES = (
    Category.REVENUE,
    Category.COST_OF_SERVING,
    Category.OPERATING_EXPENSE,
    Category.INTEREST,
    Category.TAX,
)


def ledger() -> Ledger:
    """Owned hardware of 1,200.00 loses 100.00 a month and is sold in July for 700.00; 2,400.00 are bought in June."""
    builder = LedgerBuilder(
        LedgerLabels(months=GRID.labels, clusters=("a",), cohorts=("old", "new"))
    )
    for account, cents, month, cohort in (
        (Account.DEPRECIATION, 10_000, 0, 0),
        (Account.DEPRECIATION, 10_000, 1, 0),
        (Account.RESALE, -70_000, 2, 0),
        (Account.DISPOSAL_LOSS, 30_000, 2, 0),
        (Account.CAPEX_ACCELERATORS, 240_000, 1, 1),
        (Account.DEPRECIATION, 8_000, 2, 1),
        (Account.DEPRECIATION, 8_000, 3, 1),
        (Account.COST_OF_CAPITAL, 999, 1, 1),
        (Account.RESIDUAL_VALUE, -100_000, 3, 1),
    ):
        builder.post(account, np.array(cents), month=month, cluster=0, cohort=cohort)
    months = np.arange(4)
    builder.post(
        Account.REVENUE, np.array([-50_000, -60_000, -70_000, -80_000]), month=months, cluster=0
    )
    builder.post(Account.ENERGY, np.full(4, 5_000), month=months, cluster=0)
    builder.post(Account.SOFTWARE_ENGINEERS, np.full(4, 2_000), month=months, cluster=0)
    builder.post(Account.TAX_CASH, np.array([4_000, 0, 0, 6_000]), month=months)
    builder.post(Account.TAX_DEFERRED, np.array([-1_000, 2_000, 3_000, 0]), month=months)
    return builder.build()


def fleet(found: statements.Statements, line: str) -> list[int]:
    return [int(cents) for cents in found.lines_cents[f"{line}_usd"][:, -1]]


def test_every_account_is_a_double_entry() -> None:
    for account in Account:
        cash = -1 if statements.is_paid(account) else 0
        equity = -1 if account.category in INCOME_CATEGORIES else 0
        owed = sum(sign for line, sign in account.positions if line in LIABILITIES)
        owned = sum(sign for _, sign in account.positions) - owed
        assert cash + owned == owed + equity, account
        if View.CASH in account.views:
            others = (Category.INVESTING, Category.LENDING, Category.WORKING_CAPITAL)
            assert account.category in (*INCOME_CATEGORIES, *others), account
        if View.FINANCING in account.views:
            assert not account.views & ~View.FINANCING, (
                account
            )  # a loan moves no measure of cost or value


def test_four_months_by_hand() -> None:
    found = statements.monthly_statements(ledger(), OPENING, Books.US_GAAP)
    assert list(found.lines_cents) == list(LINES)
    assert fleet(found, "revenue") == [50_000, 60_000, 70_000, 80_000]
    assert fleet(found, "gross_profit") == [35_000, 45_000, 57_000, 67_000]
    assert fleet(found, "operating_income") == [
        33_000,
        43_000,
        25_000,
        65_000,
    ]  # July bears the loss of 300.00
    assert fleet(found, "tax_expense") == [3_000, 2_000, 3_000, 6_000]
    assert fleet(found, "net_income") == [30_000, 41_000, 22_000, 59_000]
    assert fleet(found, "operating_cash_flow") == [39_000, 53_000, 63_000, 67_000]
    assert fleet(found, "investing_cash_flow") == [0, -240_000, 70_000, 0]
    # June would end 980.00 below zero, which the owner pays in.
    assert fleet(found, "paid_in") == [0, 98_000, 0, 0]
    assert fleet(found, "paid_in_capital") == [0, 98_000, 98_000, 98_000]
    assert fleet(found, "opening_cash") == [50_000, 89_000, 0, 133_000]
    assert fleet(found, "cash") == [89_000, 0, 133_000, 200_000]
    assert fleet(found, "hardware") == [110_000, 340_000, 232_000, 224_000]
    assert fleet(found, "deferred_tax") == [29_000, 31_000, 34_000, 34_000]
    # 500 + 1,200 − 300 at first; net income and what is paid in add to it.
    assert fleet(found, "equity") == [170_000, 309_000, 331_000, 390_000]
    assert fleet(found, "assets") == [199_000, 340_000, 365_000, 424_000]
    cluster, site = (found.lines_cents["cash_usd"][:, place].tolist() for place in range(2))
    assert cluster == [0, 0, 0, 0]  # the site has the cash of all
    assert site == fleet(found, "cash")
    # What the cluster earned and paid, 430.00 in May, is handed over or taken; tax is the site's.
    assert found.lines_cents["paid_in_usd"][:, 0].tolist() == [-43_000, 187_000, -133_000, -73_000]


def test_quarters_and_fiscal_years_sum_flows_and_keep_the_last_balance() -> None:
    months = statements.monthly_statements(ledger(), OPENING, Books.IFRS)
    quarters = months.by(Frequency.QUARTER, GRID, 7)
    assert quarters.periods == ("FY2026-Q4", "FY2027-Q1")
    assert fleet(quarters, "net_income") == [71_000, 81_000]
    assert fleet(quarters, "opening_cash") == [50_000, 0]
    assert fleet(quarters, "cash") == [0, 200_000]
    assert fleet(quarters, "paid_in") == [98_000, 0]
    assert fleet(quarters, "paid_in_capital") == [98_000, 98_000]
    assert fleet(quarters, "hardware") == [340_000, 224_000]
    assert months.by(Frequency.YEAR, GRID, 7).periods == ("FY2026", "FY2027")
    assert months.by(Frequency.YEAR, GRID, 1).periods == ("FY2026",)
    assert fleet(months.by(Frequency.YEAR, GRID, 1), "net_cash_flow") == [150_000]
    again = months.by(Frequency.MONTH, GRID, 7)
    assert again.periods == months.periods
    assert all(np.array_equal(again.lines_cents[name], months.lines_cents[name]) for name in LINES)


@pytest.mark.parametrize(
    ("year", "month", "first", "quarter"),
    [(2026, 1, 1, "FY2026-Q1"), (2026, 12, 1, "FY2026-Q4"), (2026, 10, 10, "FY2027-Q1"), (2026, 9, 10, "FY2026-Q4"),
     (2027, 2, 2, "FY2028-Q1"), (2027, 1, 2, "FY2027-Q4"), (2026, 12, 12, "FY2027-Q1")],
)  # fmt: skip
def test_a_fiscal_year_is_named_after_the_year_it_ends_in(
    year: int, month: int, first: int, quarter: str
) -> None:
    assert fiscal_label(year, month, first, Frequency.QUARTER) == quarter


def test_what_does_not_tie_is_the_planners_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    found = statements.monthly_statements(ledger(), OPENING, Books.IFRS)
    held = found.lines_cents["hardware_usd"][:, :-1]
    check_positions(found, {Position.HARDWARE: held})
    with pytest.raises(
        ConservationError,
        match="hardware in the balance sheet is off from its schedule by up to 1 ",
    ):
        check_positions(found, {Position.HARDWARE: held + np.array([0, 1])})
    names, weights = statements.line_weights(Books.IFRS)
    weights = weights.copy()
    monkeypatch.setattr(statements, "line_weights", lambda _: (names, weights))
    weights[list(Account).index(Account.ENERGY), names.index("operating_cash_flow_usd")] = 0
    with pytest.raises(ConservationError, match="assets are off from liabilities and equity"):
        statements.monthly_statements(ledger(), OPENING, Books.IFRS)
