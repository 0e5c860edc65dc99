"""The one ledger: each dollar once, in whole cents, by month, cluster, purchase cohort and account.

**Accounts.** The chart of accounts is ``accounts.csv``: every kind of dollar the planner knows, and the views that
count it. Costs are positive, income is negative. Four views read the one ledger:

* **cash**: money that changes hands, when it does.
* **accrual**: the books: a purchase is spread over its life as depreciation, and the capital it ties up is
  charged.
* **economic**: cash, plus the value of what is still owned on the last day, as if sold then, less that of what is owned
  on the first, as if bought then. Net present value, TCO and levelised cost read this view; without those values a
  purchase late in the horizon would look like pure loss, and machines owned before it like a gift.
* **financing**: what lenders give and take. With cash it is the cash flow of the statements. It is in no measure of a
  plan's cost or value: the discount rate is the price of all capital, borrowed or own, and counts once.

An account may be in several views, and every dollar is posted once. Cash and accrual differ only in time: for
every cohort, capex − depreciation − book value disposed of = book value left. What is in no accrual view has
its counter-entry in ``balance_sheet``, so the plain sum of ledger rows, however grouped, is accrued cost.

**Rounding.** An amount becomes money when it is posted. It is then a whole number of cents in a 64-bit integer,
and stays one: every table, total and file is a sum of those integers. Integer addition is exact and does not
depend on order, so every grouping of the ledger has the same sum, and what a spreadsheet adds up from the two
printed decimals is the ledger itself. (Micro-dollars would also add up exactly, but a file printed in cents
would then disagree with its own total.) The largest sum, 2⁶³ cents, is 92 million billion dollars.

A monthly series is rounded on its running total: cents[m] = round(S[m]) − round(S[m−1]), with
S[m] = Σ_{k ≤ m} amount[k]. Each month is within one cent of the exact figure, every running total within half
a cent, and a series whose exact total is a whole number of cents sums to it exactly.

**Rows.** The ledger is columnar and canonical: one row for each (month, cluster, cohort, account) that has an amount,
in that order. Measures divide and discount its sums; nothing else in the planner adds up money.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, field
from enum import Flag, StrEnum
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.arrays import Bools, Floats
from planner.data_files import data_rows
from planner.errors import ConservationError

CENTS_PER_USD = 100
HALF_CENT = 0.5 + 1e-6
"""Halves round away from zero, as a spreadsheet's ROUND does; the millionth of a cent keeps a half that a float holds
as 0.4999999999 a half, so that a workbook that repeats the sum finds the same cent."""
MAXIMUM_EXACT_CENTS = 2.0**50
"""Above this a float can no longer round to the cent (11 thousand billion dollars)."""


def cents(amount_usd: ArrayLike) -> NDArray[np.int64]:
    """Round dollars to whole cents, each alone, halves away from zero; shape as given."""
    return whole_cents(np.asarray(amount_usd, dtype=np.float64) * CENTS_PER_USD)


def whole_cents(amount_cents: Floats) -> NDArray[np.int64]:
    """Round fractional cents to whole cents, halves away from zero; shape as given."""
    if amount_cents.size and not np.all(np.abs(amount_cents) < MAXIMUM_EXACT_CENTS):
        raise ConservationError(
            "an amount of money is not finite, or too large to hold to the cent"
        )
    return np.trunc(amount_cents + np.copysign(HALF_CENT, amount_cents)).astype(np.int64)


def series_cents(amount_usd: ArrayLike, *, axis: int = 0) -> NDArray[np.int64]:
    """Round a series of dollars to cents on its running total along ``axis``; shape as given."""
    running = cents(np.cumsum(np.asarray(amount_usd, dtype=np.float64), axis=axis))
    return np.diff(running, axis=axis, prepend=0)


def split_cents(total_cents: NDArray[np.int64], shares: ArrayLike) -> NDArray[np.int64]:
    """Split whole cents by shares that sum to one, losing none; shape (…,) to (…, shares)."""
    edges = np.cumsum(np.asarray(shares, dtype=np.float64), axis=-1)
    if not np.allclose(edges[..., -1], 1.0, rtol=0, atol=1e-9):
        raise ConservationError("the shares of a split do not sum to one")
    totals = np.asarray(total_cents, dtype=np.int64)[..., None]
    running = whole_cents(totals * edges)
    running[..., -1:] = totals
    return np.diff(running, axis=-1, prepend=0)


def usd(amount_cents: ArrayLike) -> Floats:
    """Return dollars, for measures (ratios, discounting); never to be posted again. Shape as given."""
    return np.asarray(amount_cents, dtype=np.float64) / CENTS_PER_USD


class View(Flag):
    """A view of the ledger: a set of accounts that is summed."""

    CASH = 1
    ACCRUAL = 2
    ECONOMIC = 4
    FINANCING = 8


class Category(StrEnum):
    """The section of the statements to which an account belongs (:mod:`planner.finance.statements`)."""

    REVENUE = "revenue"
    """Income statement, income."""
    COST_OF_SERVING = "cost_of_serving"
    """Income statement, what a gross margin takes off: machines, power, space, upkeep, what is rented or credited."""
    OPERATING_EXPENSE = "operating_expense"
    """Income statement, what an operating margin takes off besides: people, software, insurance, losses on what is
    retired. With these and the charge for capital, accrued cost is complete."""
    INTEREST = "interest"
    """Income statement, below operating income: what a lender or lessor is paid besides what was lent."""
    TAX = "tax"
    """Income statement, below income before tax."""
    LENDING = "lending"
    """Cash flow alone: what is lent and paid back."""
    INVESTING = "investing"
    """Cash flow alone: purchases and sales of hardware."""
    IMPUTED = "imputed"
    """In no statement: charges and values that no one pays, for cost and value to the owner."""
    COUNTER_ENTRY = "counter_entry"
    """In no statement: what makes all rows of a month sum to accrued cost."""
    TRANSFER = "transfer"
    """Balance sheet alone: moves two of its lines, and no cash."""
    WORKING_CAPITAL = "working_capital"
    """Cash flow alone: income and running cost paid in another month than their own."""


class Position(StrEnum):
    """A line of the balance sheet other than cash and equity."""

    HARDWARE = "hardware"
    """Asset: book value of what is owned."""
    RIGHT_OF_USE = "right_of_use"
    """Asset: book value of what is had under leases of more than a year, until it is bought out."""
    DEPOSITS = "deposits"
    """Asset: paid on orders ahead of delivery, less what is owed after it; negative where more is owed."""
    RECEIVABLES = "receivables"
    """Asset: sold and not yet received."""
    LOANS = "loans"
    """Liability: what is owed to lenders, less fees not yet amortised."""
    LEASES = "leases"
    """Liability: what is owed to lessors under leases of more than a year."""
    PAYABLES = "payables"
    """Liability: bought and not yet paid."""
    DEFERRED_TAX = "deferred_tax"
    """Liability: tax expense of the books that is not yet paid; negative where tax is paid ahead of the books."""


_CHART = {line["account"]: line for line in data_rows(__file__, "accounts.csv")}


class Account(StrEnum):
    """An account of the ledger, in report order; new ones go at the end, since codes are positions."""

    views: View
    """The views that count it."""
    category: Category
    """The part of the statements it belongs to."""
    cause: str
    """The cause of a bridge that it belongs to; empty where it is no accrued cost."""
    behaviour: str
    """What it follows in unit costs: use, capacity, or neither (one-off); empty where it is no accrued cost."""
    positions: tuple[tuple[Position, int], ...]
    """Lines of the balance sheet that a posting moves besides cash and equity; +1 where it adds to a line, −1 where it
    takes from it."""
    description: str
    """One sentence for the reference page and the workbook."""

    def __new__(cls, name: str) -> Account:
        """Return an account with the attributes of its line in the chart of accounts."""
        account = str.__new__(cls, name)
        line = _CHART[name]
        account._value_ = name
        account.views = functools.reduce(
            operator.or_, (View[view.upper()] for view in line["views"].split()), View(0)
        )
        account.category = Category(line["category"])
        account.cause = line["cause"]
        account.behaviour = line["behaviour"]
        account.positions = tuple(
            (Position(moved[1:]), int(f"{moved[0]}1")) for moved in line["positions"].split()
        )
        account.description = line["description"]
        return account

    CAPEX_ACCELERATORS = "capex_accelerators"
    CAPEX_HOSTS = "capex_hosts"
    CAPEX_NETWORK = "capex_network"
    CAPEX_STORAGE = "capex_storage"
    DEPRECIATION = "depreciation"
    RESALE = "resale"
    DISPOSAL_LOSS = "disposal_loss"
    RESIDUAL_VALUE = "residual_value"
    COST_OF_CAPITAL = "cost_of_capital"
    ENERGY = "energy"
    COOLING = "cooling"
    DEMAND_CHARGE = "demand_charge"
    COLOCATION = "colocation"
    OPERATIONS_STAFF = "operations_staff"
    SOFTWARE_ENGINEERS = "software_engineers"
    SUPPORT_CONTRACTS = "support_contracts"
    LICENCES = "licences"
    MAINTENANCE = "maintenance"
    INSURANCE = "insurance"
    SPARES = "spares"
    RMA = "rma"
    SLA_CREDITS = "sla_credits"
    CARBON = "carbon"
    BURST_RENTAL = "burst_rental"
    API = "api"
    REVENUE = "revenue"
    TAX_CASH = "tax_cash"
    TAX_DEFERRED = "tax_deferred"
    BALANCE_SHEET = "balance_sheet"
    TAX_ON_END_VALUE = "tax_on_end_value"
    OPENING_VALUE = "opening_value"
    RENT = "rent"
    EXIT_FEES = "exit_fees"
    LOAN_DRAWN = "loan_drawn"
    LOAN_REPAID = "loan_repaid"
    LOAN_INTEREST = "loan_interest"
    TAX_ON_INTEREST = "tax_on_interest"
    PROPERTY_TAX = "property_tax"
    LEASE_STARTED = "lease_started"
    LEASE_USED = "lease_used"
    LEASE_PRINCIPAL = "lease_principal"
    LEASE_INTEREST = "lease_interest"
    OTHER_CAPITAL = "other_capital"
    LEASE_OWED = "lease_owed"
    ORDER_PAID = "order_paid"
    ORDER_SETTLED = "order_settled"
    ORDER_BALANCE = "order_balance"
    LOAN_FEES = "loan_fees"
    LOAN_FEES_AMORTISED = "loan_fees_amortised"
    RENT_LEASED = "rent_leased"
    RENT_CAPITALISED = "rent_capitalised"
    RIGHT_OF_USE_COST = "right_of_use_cost"
    RENT_INTEREST = "rent_interest"
    RECEIVABLES = "receivables"
    PAYABLES = "payables"
    RECEIVABLES_END = "receivables_end"


ACCOUNT_ORDER = tuple(Account)
"""Accounts by code: the code of an account is its position here."""
ACCOUNT_CODES = MappingProxyType({account: code for code, account in enumerate(ACCOUNT_ORDER)})


@functools.cache
def codes_in(view: View) -> list[int]:
    """Return the codes of the accounts a view counts."""
    return [ACCOUNT_CODES[account] for account in Account if view in account.views]


CAPEX_ACCOUNTS = (
    Account.CAPEX_ACCELERATORS,
    Account.CAPEX_HOSTS,
    Account.CAPEX_NETWORK,
    Account.CAPEX_STORAGE,
)
"""The accounts a cohort's cost is made of, in the order of a node's prices."""
COST_OF_SERVING_ACCOUNTS = tuple(
    one for one in Account if one.category is Category.COST_OF_SERVING and one.views
)
"""Of accrued cost, which no accounting standard moves."""
OPERATING_EXPENSE_ACCOUNTS = tuple(
    one for one in Account if one.category is Category.OPERATING_EXPENSE
)
_TAXES = (Account.TAX_CASH, Account.TAX_DEFERRED, Account.TAX_ON_END_VALUE)
NOT_COST_ACCOUNTS = (Account.REVENUE, Account.RECEIVABLES, Account.RECEIVABLES_END, *_TAXES)
"""Left out of cost per token: income, when it is received, and tax on it."""
INCOME_ACCOUNTS = (
    Account.REVENUE,
    Account.RESALE,
    Account.RESIDUAL_VALUE,
    Account.LOAN_DRAWN,
    Account.TAX_ON_INTEREST,
    Account.ORDER_SETTLED,
)
"""What is gained: their amounts are negative in the ledger."""
_OPEN_ACCOUNTS = (Account.LEASE_OWED, Account.ORDER_BALANCE, Account.RECEIVABLES_END)
END_ACCOUNTS = (Account.RESIDUAL_VALUE, Account.TAX_ON_END_VALUE, *_OPEN_ACCOUNTS)
"""What would change hands on the last day if all that is owned were sold."""
LEASE_PAYMENTS = (Account.LEASE_PRINCIPAL, Account.LEASE_INTEREST)
"""What a lessor is paid, at the end of each month of a lease."""
_ON_A_DAY = (Account.RESALE, Account.OPENING_VALUE, Account.ORDER_PAID, Account.ORDER_SETTLED)
DATED_ACCOUNTS = (*CAPEX_ACCOUNTS, *END_ACCOUNTS, *LEASE_PAYMENTS, *_ON_A_DAY)
"""What counts on a day of its own; all else runs through its month."""


NO_COHORT = -1
"""Cohort index of money that belongs to no purchase: energy, people, rent."""
SHARED = -1
"""Cluster index of money that belongs to the whole site."""


class Dimension(StrEnum):
    """A column the ledger can be grouped by."""

    MONTH = "month"
    CLUSTER = "cluster"
    COHORT = "cohort"
    ACCOUNT = "account"


def view_cents(
    by_account: NDArray[np.int64], view: View, *, leave_out: tuple[Account, ...] = ()
) -> NDArray[np.int64]:
    """Return a view's total over the accounts on the last axis, except for the accounts in ``leave_out``."""
    left_out = {ACCOUNT_CODES[account] for account in leave_out}
    columns = [code for code in codes_in(view) if code not in left_out]
    return np.asarray(by_account[..., columns].sum(axis=-1), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLabels:
    """The names behind the ledger's index columns."""

    months: tuple[str, ...]
    """The periods, as ``2026-03``."""
    clusters: tuple[str, ...]
    """The clusters; index −1 is the whole site."""
    cohorts: tuple[str, ...]
    """The purchase cohorts; index −1 is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Every dollar of a run, in columns of shape (rows,)."""

    labels: LedgerLabels
    """The names behind the index columns."""
    month_index: NDArray[np.int32]
    """Position in ``labels.months``."""
    cluster_index: NDArray[np.int32]
    """Position in ``labels.clusters``, −1 for the whole site."""
    cohort_index: NDArray[np.int32]
    """Position in ``labels.cohorts``, −1 for none."""
    account_code: NDArray[np.int16]
    """Position in :data:`~planner.finance.ledger.ACCOUNT_ORDER`."""
    amount_cents: NDArray[np.int64]
    """Cost in cents; income is negative."""
    posted_cents: tuple[int, ...] = field(repr=False)
    """Control totals: what was posted to each account, counted apart from the rows, by account code."""

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return int(self.amount_cents.shape[0])

    def totals_cents(self, *dimensions: Dimension, view: View | None = None) -> NDArray[np.int64]:
        """Return exact sums by the given dimensions, one axis each in that order; all accounts or one view.

        The cluster and cohort axes have one place more than there are names: the last is the whole site, or
        none.
        """
        rows = self.rows_in(view)
        columns = self.columns()
        if not dimensions:
            return np.asarray(self.amount_cents[rows].sum(), dtype=np.int64)
        axes = [columns[dimension] for dimension in dimensions]
        totals = np.zeros(tuple(high - low for _, low, high in axes), dtype=np.int64)
        places = tuple(column[rows].astype(np.int64) % (high - low) for column, low, high in axes)
        np.add.at(totals, places, self.amount_cents[rows])
        return totals

    def columns(self) -> dict[Dimension, tuple[NDArray[Any], int, int]]:
        """Return each index column with its lowest index and the number of its names."""
        return {
            Dimension.MONTH: (self.month_index, 0, len(self.labels.months)),
            Dimension.CLUSTER: (self.cluster_index, SHARED, len(self.labels.clusters)),
            Dimension.COHORT: (self.cohort_index, NO_COHORT, len(self.labels.cohorts)),
            Dimension.ACCOUNT: (self.account_code, 0, len(ACCOUNT_ORDER)),
        }

    def rows_in(self, view: View | None) -> Bools:
        """Return which rows a view counts, all for None; shape (rows,)."""
        if view is None:
            return np.ones(self.row_count, dtype=bool)
        return self.rows_of(*(ACCOUNT_ORDER[code] for code in codes_in(view)))

    def rows_of(self, *accounts: Account) -> Bools:
        """Return which rows belong to the given accounts; shape (rows,).

        Read from a table of all accounts: numpy's isin sorts, or looks for a range, each time.
        """
        is_meant = np.zeros(len(ACCOUNT_ORDER), dtype=bool)
        is_meant[[ACCOUNT_CODES[account] for account in accounts]] = True
        return is_meant[self.account_code]

    def monthly_cents(
        self, view: View, *, leave_out: tuple[Account, ...] = ()
    ) -> NDArray[np.int64]:
        """Return a view's total of each month, except for the accounts in ``leave_out``, shape (months,)."""
        return view_cents(
            self.totals_cents(Dimension.MONTH, Dimension.ACCOUNT), view, leave_out=leave_out
        )

    def account_cents(self, *accounts: Account) -> int:
        """Return the total of the given accounts."""
        return int(self.amount_cents[self.rows_of(*accounts)].sum())

    def book_value_cents(self, opening_book_cents: ArrayLike = 0) -> NDArray[np.int64]:
        """Return each cohort's book value at each month's end, from the ledger; shape (cohorts, months).

        opening + Σ (capex + leased + resale − depreciation − disposal loss): resale is minus the proceeds and the loss
        is the book value disposed of less the proceeds, so the proceeds drop out and the book value disposed
        of remains.
        """
        table = self.totals_cents(Dimension.COHORT, Dimension.MONTH, Dimension.ACCOUNT)[:-1]
        entered = (*CAPEX_ACCOUNTS, Account.RESALE, Account.LEASE_STARTED)
        written_off = (Account.DEPRECIATION, Account.DISPOSAL_LOSS)
        added, taken = (
            table[:, :, [ACCOUNT_CODES[one] for one in of]].sum(axis=2)
            for of in (entered, written_off)
        )
        change: NDArray[np.int64] = added - taken
        opening = np.broadcast_to(np.asarray(opening_book_cents, dtype=np.int64), change.shape[:1])
        return np.asarray(opening[:, None] + np.cumsum(change, axis=1), dtype=np.int64)

    def check(self, opening_book_cents: ArrayLike = 0) -> None:
        """Raise ConservationError unless every posted dollar is in the ledger once and no book value is impossible.

        Holds: indices point at names; rows are in order and no key occurs twice; each account sums to what
        was posted to it, counted apart in integers without limit; the total is the same by month, cluster,
        cohort and account; no cohort is written off below zero.
        """
        problems = []
        for name, (column, low, high) in self.columns().items():
            if column.shape != self.amount_cents.shape:
                problems.append(
                    f"the {name} column has {column.shape} rows, not {self.amount_cents.shape}"
                )
            elif np.any((column < low) | (column >= high)):
                problems.append(f"a {name} index is outside {low} to {high - 1}")
        if not problems:
            keys = _row_keys(
                self.labels,
                (self.month_index, self.cluster_index, self.cohort_index, self.account_code),
            )
            if np.any(np.diff(keys) < 0):
                problems.append("rows are out of order")
            if np.any(np.diff(np.sort(keys)) == 0):
                problems.append("a month, cluster, cohort and account occur twice")
        if not problems:
            by_account = self.totals_cents(Dimension.ACCOUNT).tolist()
            total = sum(self.posted_cents)
            for account, held, posted in zip(
                ACCOUNT_ORDER, by_account, self.posted_cents, strict=True
            ):
                if held != posted:
                    problems.append(f"{account} holds {held} cents, {posted} were posted")
            problems += [
                f"by {dimension} the total is {summed} cents, {total} were posted"
                for dimension in Dimension
                if (summed := sum(self.totals_cents(dimension).tolist())) != total
            ]
            book = self.book_value_cents(opening_book_cents)
            for k in np.flatnonzero((book < 0).any(axis=1)).tolist():
                problems.append(
                    f"cohort {self.labels.cohorts[k]} is written off below zero ({book[k].min()} cents)"
                )
        if problems:
            raise ConservationError("the ledger does not add up: " + "; ".join(problems))


def _row_keys(
    labels: LedgerLabels, columns: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]
) -> NDArray[np.int64]:
    """Return one number for each (month, cluster, cohort, account), in the order of the rows; columns broadcast."""
    month, cluster, cohort, account = (np.asarray(column, dtype=np.int64) for column in columns)
    places = (
        (month * (len(labels.clusters) + 1) + cluster + 1) * (len(labels.cohorts) + 1) + cohort + 1
    )
    return np.asarray(places * len(ACCOUNT_ORDER) + account, dtype=np.int64)


class LedgerBuilder:
    """Collects postings and builds the ledger; the only way to make one."""

    def __init__(self, labels: LedgerLabels) -> None:
        """Start an empty ledger with these names."""
        self._labels = labels
        self._chunks: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._posted = [0] * len(ACCOUNT_ORDER)
        self._cluster_places: NDArray[np.int64] | None = None
        """Keys of a table of months and clusters: most accounts are one, so they are worked out once."""
        self._cohort_places: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        """The owners of cohorts, and the keys of a table of cohorts and months."""

    def post(
        self,
        account: Account,
        amount_cents: ArrayLike,
        *,
        month: ArrayLike,
        cluster: ArrayLike = SHARED,
        cohort: ArrayLike = NO_COHORT,
    ) -> None:
        """Post amounts in cents; the index arrays broadcast against the amounts."""
        self._require_places(account, (month, cluster, cohort))
        self._append(
            account, _row_keys(self._labels, (month, cluster, cohort, 0)), np.asarray(amount_cents)
        )

    def _append(
        self, account: Account, places: NDArray[np.int64], cents: NDArray[np.int64]
    ) -> None:
        """Add amounts under their keys; accounts outside the accrual view get a counter-entry."""
        if not np.issubdtype(cents.dtype, np.integer):
            raise ConservationError(f"{account}: money is posted in whole cents, not {cents.dtype}")
        if not cents.any():
            return
        if account is not Account.BALANCE_SHEET and View.ACCRUAL not in account.views:
            self._append(Account.BALANCE_SHEET, places, -cents)
        code = ACCOUNT_CODES[account]
        keys = places + code
        amounts = cents
        if keys.shape != amounts.shape:
            keys, amounts = np.broadcast_arrays(keys, amounts)
        kept = amounts != 0
        amounts = amounts[kept].astype(np.int64)
        self._posted[code] += sum(amounts.tolist())
        self._chunks.append((keys[kept], amounts))

    def _require_places(
        self, account: Account, columns: tuple[ArrayLike, ArrayLike, ArrayLike]
    ) -> None:
        """Raise an error for an index without a name."""
        names = (self._labels.months, self._labels.clusters, self._labels.cohorts)
        for column, low, labels in zip(columns, (0, SHARED, NO_COHORT), names, strict=True):
            places = np.asarray(column)
            if places.size and not (places.min() >= low and places.max() < len(labels)):
                raise ConservationError(
                    f"{account}: an index is outside {low} to {len(labels) - 1}"
                )

    def post_clusters(self, account: Account, amount_cents: NDArray[np.int64]) -> None:
        """Post a table of shape (months, clusters)."""
        if self._cluster_places is None or self._cluster_places.shape != amount_cents.shape:
            months, clusters = (np.arange(size) for size in amount_cents.shape)
            self._require_places(account, (months, clusters, NO_COHORT))
            self._cluster_places = _row_keys(
                self._labels, (months[:, None], clusters, NO_COHORT, 0)
            )
        self._append(account, self._cluster_places, np.asarray(amount_cents))

    def post_cohorts(
        self, account: Account, amount_cents: NDArray[np.int64], owner: NDArray[np.int64]
    ) -> None:
        """Post a table of shape (cohorts, months), each cohort to its cluster."""
        if self._cohort_places is None or self._cohort_places[0] is not owner:
            cohorts, months = (np.arange(size) for size in amount_cents.shape)
            columns = months, owner[:, None], cohorts[:, None]
            self._require_places(account, columns)
            self._cohort_places = owner, _row_keys(self._labels, (*columns, 0))
        self._append(account, self._cohort_places[1], np.asarray(amount_cents))

    def build(self) -> Ledger:
        """Return the ledger: postings with the same key merged, rows by month, cluster, cohort, account."""
        nothing = np.zeros(0, dtype=np.int64)
        keys, amounts = (
            np.concatenate(column) for column in zip((nothing, nothing), *self._chunks, strict=True)
        )
        unique, place = np.unique(keys, return_inverse=True)
        sums = np.zeros(unique.size, dtype=np.int64)
        np.add.at(sums, place, amounts)
        kept = sums != 0
        rest, account = np.divmod(unique[kept], len(ACCOUNT_ORDER))
        rest, cohort = np.divmod(rest, len(self._labels.cohorts) + 1)
        month, cluster = np.divmod(rest, len(self._labels.clusters) + 1)
        return Ledger(
            labels=self._labels,
            month_index=month.astype(np.int32),
            cluster_index=(cluster - 1).astype(np.int32),
            cohort_index=(cohort - 1).astype(np.int32),
            account_code=account.astype(np.int16),
            amount_cents=sums[kept],
            posted_cents=tuple(self._posted),
        )
