"""What the sheets of a run's workbook are written from: the run, its inputs, and the figures behind the formulas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from planner.arrays import Bools, Cents, Floats, Ints
from planner.finance.accounts import Account
from planner.finance.cents import cents
from planner.finance.depreciation import Cohorts, DepreciationSchedule
from planner.finance.months import MonthGrid
from planner.finance.present_value import discount_factors
from planner.output.workbook import SheetTable, address
from planner.output.workbook_inputs import Inputs
from planner.run.result import RunResult

ACCOUNTS_SHEET = "Accounts"
FIRST_MONTH_ROW = 2
"""Row of the first month on the accounts sheet, below headings and codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What decides the price of a cohort's accelerators, besides the price."""

    units: int
    volume_discount: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortFigures:
    """What the cohorts sheet shows as simulated, shape (cohorts,) where not stated."""

    orders: tuple[Order | None, ...]
    """None where the price does not come from the cluster's list price."""
    paid: tuple[int | None, ...]
    """Period of payment; None before the start."""
    retired: tuple[int | None, ...]
    """Period of retirement; None for never."""
    cost_cents: Cents
    parts_cents: Cents
    """Shape (cohorts, 4)."""
    residual_cents: Cents
    at_life_fraction: Floats
    """Share of what servers cost that they fetch at the end of book life."""
    resale_fraction: Floats
    proceeds_cents: Cents
    end_fraction: Floats
    end_cents: Cents
    is_owned: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A series that the ledger rounds on its running total, as the sum of parts that each move with one price."""

    account: Account
    cluster: int
    """−1 for the site as a whole."""
    parts: tuple[tuple[str, Floats], ...]
    """Name of an input, empty for none; running total as simulated, USD, shape (months,)."""
    yearly: float = 0.0
    """Share of capital in service that it is in a year, where it is one; its part is then by formula."""
    running_cents: Cents = field(init=False)
    """The running total as simulated, shape (months,)."""

    def __post_init__(self) -> None:
        """Add up the parts, once: every month of two sheets reads the total."""
        object.__setattr__(self, "running_cents", cents(np.sum([running for _, running in self.parts], axis=0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A run and the figures behind the formulas, worked out once."""

    result: RunResult
    inputs: Inputs
    assets: Cohorts
    """The purchase cohorts as the books see them, in the order of the ledger's cohort names."""
    cohorts: CohortFigures
    schedule: DepreciationSchedule
    charge_usd: Floats
    """Cost of capital before rounding, shape (cohorts, months)."""
    property_usd: Floats
    """Property tax before rounding, shape (cohorts, months)."""
    table_cents: Cents
    """The ledger by month and account, shape (months, accounts)."""
    series: tuple[Series, ...]
    """What is a price times a quantity, by account and cluster."""
    measures: Mapping[str, float | None]
    output_tokens: Floats
    total_tokens: Floats
    running_months: Floats
    """Months from the start to when each month's running flows count, shape (months,)."""
    dated_rows: Ints
    """Ledger rows that count on a day of their own: purchases, sales, end value."""
    dated_months: Floats
    """Months from the start to that day, in the order of those rows."""
    tables: Mapping[str, SheetTable]
    """Plain tables by the names of their sheets: assumptions, timeline, events."""

    @property
    def grid(self) -> MonthGrid:
        """The months of the horizon."""
        return self.result.plan.months

    @property
    def rate(self) -> float:
        """Discount rate a year, as simulated."""
        return self.result.plan.money.capital.discount_rate_per_year

    @property
    def rate_cell(self) -> str:
        """Address of the discount rate."""
        return self.inputs.cell("discount rate")

    def account_cents(self, account: Account) -> Cents:
        """Return an account of the ledger by month, shape (months,)."""
        return np.asarray(self.table_cents[:, list(Account).index(account)])

    @property
    def dated_present_usd(self) -> Floats:
        """Present value of each ledger row that counts on a day of its own."""
        amounts = self.result.ledger.amount_cents[self.dated_rows] / 100
        return np.asarray(amounts * discount_factors(self.rate, self.dated_months))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the columns of the accounts lie, and what they hold as simulated."""

    columns: dict[str, int]
    """By name: accounts and measures."""
    series: dict[str, Floats]
    """By the same names, shape (months,)."""

    def cell(self, name: str, period: int) -> str:
        """Return the address of a month; zero where the run has no such account."""
        column = self.columns.get(name)
        return "0" if column is None else f"{ACCOUNTS_SHEET}!{address(FIRST_MONTH_ROW + period, column, fixed='RC')}"

    def range_of(self, name: str) -> str:
        """Return the address of a column's months."""
        column, last = self.columns[name], FIRST_MONTH_ROW + len(self.series[name]) - 1
        low, high = (address(row, column, fixed="RC") for row in (FIRST_MONTH_ROW, last))
        return f"{ACCOUNTS_SHEET}!{low}:{high}"
