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
from dataclasses import field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.arrays import Bools, Cents, Floats, Ints
from planner.errors import ConservationError
from planner.finance.accounts import ACCOUNT_CODES, ACCOUNT_ORDER, CAPEX_ACCOUNTS, Account, View
from planner.records import record

CENTS_PER_USD = 100
HALF_CENT = 0.5 + 1e-6
"""Halves round away from zero, as a spreadsheet's ROUND does; the millionth of a cent keeps a half that a float holds
as 0.4999999999 a half, so that a workbook that repeats the sum finds the same cent."""
MAXIMUM_EXACT_CENTS = 2.0**50
"""Above this a float can no longer round to the cent (11 thousand billion dollars)."""


def cents(amount_usd: ArrayLike) -> Cents:
    """Round dollars to whole cents, each alone, halves away from zero; shape as given."""
    amounts = np.asarray(amount_usd, dtype=np.float64)
    return whole_cents(amounts * CENTS_PER_USD)


def whole_cents(amount_cents: Floats) -> Cents:
    """Round fractional cents to whole cents, halves away from zero; shape as given."""
    # Not above the limit, rather than below it: a comparison with NaN is false, so that NaN is refused too.
    is_exact = np.all(np.abs(amount_cents) < MAXIMUM_EXACT_CENTS)
    if not is_exact:
        raise ConservationError(
            "an amount of money is not finite, or too large to hold to the cent"
        )
    half = np.copysign(HALF_CENT, amount_cents)
    return np.trunc(amount_cents + half).astype(np.int64)


def series_cents(amount_usd: ArrayLike, *, axis: int = 0) -> Cents:
    """Round a series of dollars to cents on its running total along ``axis``; shape as given."""
    amounts = np.asarray(amount_usd, dtype=np.float64)
    running = cents(np.cumsum(amounts, axis=axis))
    return np.diff(running, axis=axis, prepend=0)


def split_cents(total_cents: Cents, shares: ArrayLike) -> Cents:
    """Split whole cents by shares that sum to one, losing none; shape (…,) to (…, shares)."""
    fractions = np.asarray(shares, dtype=np.float64)
    edges = np.cumsum(fractions, axis=-1)
    whole = edges[..., -1]
    if not np.allclose(whole, 1.0, rtol=0, atol=1e-9):
        raise ConservationError("the shares of a split do not sum to one")
    totals = np.asarray(total_cents, dtype=np.int64)[..., None]
    running = whole_cents(totals * edges)
    # The shares sum to one but for rounding; the last part takes what is left to the cent.
    running[..., -1:] = totals
    return np.diff(running, axis=-1, prepend=0)


def zero_cents(shape: int | tuple[int, ...]) -> Cents:
    """Return a table of no money, to add to."""
    return np.zeros(shape, dtype=np.int64)


def usd(amount_cents: ArrayLike) -> Floats:
    """Return dollars, for measures (ratios, discounting); never to be posted again. Shape as given."""
    return np.asarray(amount_cents, dtype=np.float64) / CENTS_PER_USD


@functools.cache
def codes_in(view: View) -> list[int]:
    """Return the codes of the accounts a view counts."""
    return [ACCOUNT_CODES[account] for account in Account if view in account.views]


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


MONTH_CLUSTER_ACCOUNT = (Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT)
"""The grouping that tables of money start from."""


def view_cents(by_account: Cents, view: View, *, leave_out: tuple[Account, ...] = ()) -> Cents:
    """Return a view's total over the accounts on the last axis, except for the accounts in ``leave_out``."""
    left_out = {ACCOUNT_CODES[account] for account in leave_out}
    columns = [code for code in codes_in(view) if code not in left_out]
    total: Cents = by_account[..., columns].sum(axis=-1)
    return total


@record
class LedgerLabels:
    """The names behind the ledger's index columns."""

    months: tuple[str, ...]
    """The periods, as ``2026-03``."""
    clusters: tuple[str, ...]
    """The clusters; index −1 is the whole site."""
    cohorts: tuple[str, ...]
    """The purchase cohorts; index −1 is none."""


@record
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
    amount_cents: Cents
    """Cost in cents; income is negative."""
    posted_cents: tuple[int, ...] = field(repr=False)
    """Control totals: what was posted to each account, counted apart from the rows, by account code."""

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return int(self.amount_cents.shape[0])

    def totals_cents(self, *dimensions: Dimension, view: View | None = None) -> Cents:
        """Return exact sums by the given dimensions, one axis each in that order; all accounts or one view.

        The cluster and cohort axes have one place more than there are names: the last is the whole site, or
        none.
        """
        rows = self.rows_in(view)
        columns = self.columns()
        if not dimensions:
            total = self.amount_cents[rows].sum()
            return np.asarray(total, dtype=np.int64)
        axes = [columns[dimension] for dimension in dimensions]
        sizes = tuple(high - low for _, low, high in axes)
        totals = zero_cents(sizes)
        places = []
        for (column, _, _), size in zip(axes, sizes, strict=True):
            # The index −1, of the site or of no cohort, wraps to the last place of its axis.
            places.append(column[rows].astype(np.int64) % size)
        amounts = self.amount_cents[rows]
        np.add.at(totals, tuple(places), amounts)
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
        accounts = [ACCOUNT_ORDER[code] for code in codes_in(view)]
        return self.rows_of(*accounts)

    def rows_of(self, *accounts: Account) -> Bools:
        """Return which rows belong to the given accounts; shape (rows,).

        Read from a table of all accounts: numpy's isin sorts, or looks for a range, each time.
        """
        codes = [ACCOUNT_CODES[account] for account in accounts]
        is_meant = np.zeros(len(ACCOUNT_ORDER), dtype=bool)
        is_meant[codes] = True
        return is_meant[self.account_code]

    def monthly_cents(self, view: View, *, leave_out: tuple[Account, ...] = ()) -> Cents:
        """Return a view's total of each month, except for the accounts in ``leave_out``, shape (months,)."""
        by_account = self.totals_cents(Dimension.MONTH, Dimension.ACCOUNT)
        return view_cents(by_account, view, leave_out=leave_out)

    def account_cents(self, *accounts: Account) -> int:
        """Return the total of the given accounts."""
        rows = self.rows_of(*accounts)
        return int(self.amount_cents[rows].sum())

    def book_value_cents(self, opening_book_cents: ArrayLike = 0) -> Cents:
        """Return each cohort's book value at each month's end, from the ledger; shape (cohorts, months).

        opening + Σ (capex + leased + resale − depreciation − disposal loss): resale is minus the proceeds and the loss
        is the book value disposed of less the proceeds, so the proceeds drop out and the book value disposed
        of remains.
        """
        # Without the last row, which is what belongs to no cohort.
        totals = self.totals_cents(Dimension.COHORT, Dimension.MONTH, Dimension.ACCOUNT)
        table = totals[:-1]
        change = zero_cents(table.shape[:2])
        for account in (*CAPEX_ACCOUNTS, Account.RESALE, Account.LEASE_STARTED):
            change += table[:, :, ACCOUNT_CODES[account]]
        for account in (Account.DEPRECIATION, Account.DISPOSAL_LOSS):
            change -= table[:, :, ACCOUNT_CODES[account]]
        opening = np.asarray(opening_book_cents, dtype=np.int64)
        by_cohort = np.broadcast_to(opening, change.shape[:1])
        return by_cohort[:, None] + np.cumsum(change, axis=1)

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
            # Keys of indices outside their names would collide with those of other rows, so indices come first.
            columns = (self.month_index, self.cluster_index, self.cohort_index, self.account_code)
            keys = _row_keys(self.labels, columns)
            if np.any(np.diff(keys) < 0):
                problems.append("rows are out of order")
            # Sorted, so that equal keys are neighbours even where rows are out of order.
            neighbours = np.sort(keys)
            if np.any(np.diff(neighbours) == 0):
                problems.append("a month, cluster, cohort and account occur twice")
        # Sums of rows whose indices are wrong would only say the same again.
        if not problems:
            by_account = self.totals_cents(Dimension.ACCOUNT).tolist()
            total = sum(self.posted_cents)
            accounts = zip(ACCOUNT_ORDER, by_account, self.posted_cents, strict=True)
            for account, amount, posted in accounts:
                if amount != posted:
                    problems.append(f"{account} holds {amount} cents, {posted} were posted")
            for dimension in Dimension:
                # Python's integers have no limit, so this sum cannot wrap as the posted one cannot.
                summed = sum(self.totals_cents(dimension).tolist())
                if summed != total:
                    problems.append(
                        f"by {dimension} the total is {summed} cents, {total} were posted"
                    )
            book = self.book_value_cents(opening_book_cents)
            is_negative = (book < 0).any(axis=1)
            for row in np.flatnonzero(is_negative).tolist():
                cohort = self.labels.cohorts[row]
                lowest = book[row].min()
                problems.append(f"cohort {cohort} is written off below zero ({lowest} cents)")
        if problems:
            raise ConservationError("the ledger does not add up: " + "; ".join(problems))


Keys = NDArray[np.int64]
"""One number for each month, cluster, cohort and account, which sorts as the rows do."""


def _row_keys(
    labels: LedgerLabels, columns: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]
) -> Keys:
    """Return one number for each (month, cluster, cohort, account), in the order of the rows; columns broadcast."""
    month, cluster, cohort, account = (np.asarray(column, dtype=np.int64) for column in columns)
    # Digits of one number, most significant first; an index of −1 becomes the digit zero.
    clusters = len(labels.clusters) + 1
    cohorts = len(labels.cohorts) + 1
    by_cluster = month * clusters + cluster + 1
    by_cohort = by_cluster * cohorts + cohort + 1
    return by_cohort * len(ACCOUNT_ORDER) + account


class LedgerBuilder:
    """Collects postings and builds the ledger; the only way to make one."""

    def __init__(self, labels: LedgerLabels) -> None:
        """Start an empty ledger with these names."""
        self._labels = labels
        self._chunks: list[tuple[Keys, Cents]] = []
        self._posted = [0] * len(ACCOUNT_ORDER)
        self._cluster_places: Keys | None = None
        """Keys of a table of months and clusters: most accounts are one, so they are worked out once."""
        self._cohort_places: tuple[Ints, Keys] | None = None
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
        places = _row_keys(self._labels, (month, cluster, cohort, 0))
        self._append(account, places, np.asarray(amount_cents))

    def _append(self, account: Account, places: Keys, cents: Cents) -> None:
        """Add amounts under their keys; accounts outside the accrual view get a counter-entry."""
        if not np.issubdtype(cents.dtype, np.integer):
            raise ConservationError(f"{account}: money is posted in whole cents, not {cents.dtype}")
        # Most accounts of most runs are zero; without this exit they would still take a key for each month.
        if not cents.any():
            return
        is_accrued = View.ACCRUAL in account.views
        if account is not Account.BALANCE_SHEET and not is_accrued:
            # So that the plain sum of all rows of a month and cluster is accrued cost.
            self._append(Account.BALANCE_SHEET, places, -cents)
        code = ACCOUNT_CODES[account]
        keys = places + code
        amounts = cents
        if keys.shape != amounts.shape:
            keys, amounts = np.broadcast_arrays(keys, amounts)
        nonzero = amounts != 0
        amounts = amounts[nonzero].astype(np.int64)
        # Summed as Python's integers, which have no limit: the check of the rows is apart from their arithmetic.
        self._posted[code] += sum(amounts.tolist())
        self._chunks.append((keys[nonzero], amounts))

    def _require_places(
        self, account: Account, columns: tuple[ArrayLike, ArrayLike, ArrayLike]
    ) -> None:
        """Raise an error for an index without a name."""
        names = (self._labels.months, self._labels.clusters, self._labels.cohorts)
        lowest = (0, SHARED, NO_COHORT)
        for column, low, labels in zip(columns, lowest, names, strict=True):
            places = np.asarray(column)
            high = len(labels) - 1
            # An index outside would make the key of another row.
            if not places.size:
                continue
            if places.min() < low or places.max() > high:
                raise ConservationError(f"{account}: an index is outside {low} to {high}")

    def post_clusters(self, account: Account, amount_cents: Cents) -> None:
        """Post a table of shape (months, clusters)."""
        if self._cluster_places is None or self._cluster_places.shape != amount_cents.shape:
            months, clusters = (np.arange(size) for size in amount_cents.shape)
            self._require_places(account, (months, clusters, NO_COHORT))
            self._cluster_places = _row_keys(
                self._labels, (months[:, None], clusters, NO_COHORT, 0)
            )
        self._append(account, self._cluster_places, np.asarray(amount_cents))

    def post_cohorts(self, account: Account, amount_cents: Cents, owner: Ints) -> None:
        """Post a table of shape (cohorts, months), each cohort to its cluster."""
        # The same array of owners is posted with many accounts; its identity is enough to know the keys.
        if self._cohort_places is None or self._cohort_places[0] is not owner:
            cohorts, months = (np.arange(size) for size in amount_cents.shape)
            columns = months, owner[:, None], cohorts[:, None]
            self._require_places(account, columns)
            self._cohort_places = owner, _row_keys(self._labels, (*columns, 0))
        _, places = self._cohort_places
        self._append(account, places, np.asarray(amount_cents))

    def build(self) -> Ledger:
        """Return the ledger: postings with the same key merged, rows by month, cluster, cohort, account."""
        # An empty chunk ahead of the others, since nothing may have been posted.
        nothing = np.zeros(0, dtype=np.int64)
        columns = zip((nothing, nothing), *self._chunks, strict=True)
        keys, amounts = (np.concatenate(column) for column in columns)
        # np.unique sorts, and keys are in the order of the rows: month, cluster, cohort, account.
        unique, place = np.unique(keys, return_inverse=True)
        sums = zero_cents(unique.size)
        np.add.at(sums, place, amounts)
        # Amounts that cancel leave no row.
        nonzero = sums != 0
        # The digits of a key, from the last: what _row_keys put together.
        rest, account = np.divmod(unique[nonzero], len(ACCOUNT_ORDER))
        clusters = len(self._labels.clusters) + 1
        cohorts = len(self._labels.cohorts) + 1
        rest, cohort = np.divmod(rest, cohorts)
        month, cluster = np.divmod(rest, clusters)
        return Ledger(
            labels=self._labels,
            month_index=month.astype(np.int32),
            cluster_index=(cluster - 1).astype(np.int32),
            cohort_index=(cohort - 1).astype(np.int32),
            account_code=account.astype(np.int16),
            amount_cents=sums[nonzero],
            posted_cents=tuple(self._posted),
        )
