"""The one ledger: each dollar once, by month, cluster, purchase cohort and account.

Amounts are whole cents in 64-bit integers, rounded when posted and never again (:mod:`planner.finance.cents`
states the rule), so every grouping sums to the same total exactly. The ledger is columnar and canonical: one
row for each (month, cluster, cohort, account) that has an amount, in that order. Measures divide and discount
its sums; nothing else in the planner adds up money.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.arrays import Bools
from planner.errors import ConservationError
from planner.finance.accounts import ACCOUNT_CODES, ACCOUNT_ORDER, CAPEX_ACCOUNTS, Account, View, codes_in

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


def view_cents(by_account: NDArray[np.int64], view: View, *, leave_out: tuple[Account, ...] = ()) -> NDArray[np.int64]:
    """Return a view's total of a table whose last axis is the accounts, without the accounts left out."""
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
    """Position in :data:`~planner.finance.accounts.ACCOUNT_ORDER`."""
    amount_cents: NDArray[np.int64]
    """Cost in cents; income is negative."""
    posted_cents: tuple[int, ...] = field(repr=False)
    """Control totals: what was posted to each account, counted apart from the rows, by account code."""

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return int(self.amount_cents.shape[0])

    def _axis(self, dimension: Dimension) -> tuple[NDArray[np.int64], int]:
        """Return positions along one axis of a total, and the axis length; "none" comes last."""
        match dimension:
            case Dimension.MONTH:
                return self.month_index.astype(np.int64), len(self.labels.months)
            case Dimension.CLUSTER:
                size = len(self.labels.clusters) + 1
                return self.cluster_index.astype(np.int64) % size, size
            case Dimension.COHORT:
                size = len(self.labels.cohorts) + 1
                return self.cohort_index.astype(np.int64) % size, size
            case Dimension.ACCOUNT:
                return self.account_code.astype(np.int64), len(ACCOUNT_ORDER)

    def totals_cents(self, *dimensions: Dimension, view: View | None = None) -> NDArray[np.int64]:
        """Return exact sums by the dimensions given, one axis each, in that order; all accounts or one view.

        The cluster and cohort axes have one place more than there are names: the last is the whole site, or
        none.
        """
        axes = [self._axis(dimension) for dimension in dimensions]
        totals = np.zeros(tuple(size for _, size in axes), dtype=np.int64)
        rows = self.rows_in(view)
        if not axes:
            return np.asarray(self.amount_cents[rows].sum(), dtype=np.int64)
        np.add.at(totals, tuple(places[rows] for places, _ in axes), self.amount_cents[rows])
        return totals

    def rows_in(self, view: View | None) -> Bools:
        """Return which rows a view counts, all of them for None; shape (rows,)."""
        if view is None:
            return np.ones(self.row_count, dtype=bool)
        return self.rows_with(codes_in(view))

    def rows_with(self, codes: list[int]) -> Bools:
        """Return which rows are of some accounts, by their codes; shape (rows,).

        Read from a table of all accounts: numpy's isin sorts, or looks for a range, each time.
        """
        is_meant = np.zeros(len(ACCOUNT_ORDER), dtype=bool)
        is_meant[codes] = True
        return is_meant[self.account_code]

    def monthly_cents(self, view: View, *, leave_out: tuple[Account, ...] = ()) -> NDArray[np.int64]:
        """Return a view's total of each month, without the accounts left out, shape (months,)."""
        return view_cents(self.totals_cents(Dimension.MONTH, Dimension.ACCOUNT), view, leave_out=leave_out)

    def account_cents(self, account: Account) -> int:
        """Return the total of one account."""
        return int(self.amount_cents[self.account_code == ACCOUNT_CODES[account]].sum())

    def book_value_cents(self, opening_book_cents: ArrayLike = 0) -> NDArray[np.int64]:
        """Return each cohort's book value at each month's end, from the ledger; shape (cohorts, months).

        opening + Σ (capex + leased + resale − depreciation − disposal loss): resale is minus the proceeds and the loss
        is the book value disposed of less the proceeds, so the proceeds drop out and the book value disposed
        of remains.
        """
        table = self.totals_cents(Dimension.COHORT, Dimension.MONTH, Dimension.ACCOUNT)[:-1]
        entered = (*CAPEX_ACCOUNTS, Account.RESALE, Account.LEASE_STARTED)
        added = table[:, :, [ACCOUNT_CODES[account] for account in entered]]
        written_off = (Account.DEPRECIATION, Account.DISPOSAL_LOSS)
        taken = table[:, :, [ACCOUNT_CODES[account] for account in written_off]]
        change: NDArray[np.int64] = added.sum(axis=2) - taken.sum(axis=2)
        opening = np.broadcast_to(np.asarray(opening_book_cents, dtype=np.int64), change.shape[:1])
        return np.asarray(opening[:, None] + np.cumsum(change, axis=1), dtype=np.int64)

    def check(self, opening_book_cents: ArrayLike = 0) -> None:
        """Raise ConservationError unless every dollar posted is here once and no book value is impossible.

        Holds: indices point at names; rows are in order and no key occurs twice; each account sums to what
        was posted to it, counted apart in integers without limit; the total is the same by month, cluster,
        cohort and account; no cohort is written off below zero.
        """
        problems = [*self._index_problems()]
        if not problems:
            problems = [*self._total_problems(), *self._book_problems(opening_book_cents)]
        if problems:
            raise ConservationError("the ledger does not add up: " + "; ".join(problems))

    def _index_problems(self) -> list[str]:
        """Return what is wrong with the index columns."""
        problems = []
        columns = (
            ("month", self.month_index, 0, len(self.labels.months)),
            ("cluster", self.cluster_index, SHARED, len(self.labels.clusters)),
            ("cohort", self.cohort_index, NO_COHORT, len(self.labels.cohorts)),
            ("account", self.account_code, 0, len(ACCOUNT_ORDER)),
        )
        for name, column, low, high in columns:
            if column.shape != self.amount_cents.shape:
                problems.append(f"the {name} column has {column.shape} rows, not {self.amount_cents.shape}")
            elif np.any((column < low) | (column >= high)):
                problems.append(f"a {name} index is outside {low} to {high - 1}")
        if not problems:
            keys = _row_keys(self.labels, (self.month_index, self.cluster_index, self.cohort_index, self.account_code))
            if np.any(np.diff(keys) < 0):
                problems.append("rows are out of order")
            if np.any(np.diff(np.sort(keys)) == 0):
                problems.append("a month, cluster, cohort and account occur twice")
        return problems

    def _total_problems(self) -> list[str]:
        """Return where a grouping does not sum to what was posted."""
        problems = []
        by_account = self.totals_cents(Dimension.ACCOUNT)
        for code, posted in enumerate(self.posted_cents):
            if int(by_account[code]) != posted:
                problems.append(f"{ACCOUNT_ORDER[code]} holds {by_account[code]} cents, {posted} were posted")
        total = sum(self.posted_cents)
        for dimension in Dimension:
            summed = sum(int(amount) for amount in self.totals_cents(dimension))
            if summed != total:
                problems.append(f"by {dimension} the total is {summed} cents, {total} were posted")
        return problems

    def _book_problems(self, opening_book_cents: ArrayLike) -> list[str]:
        """Return the cohorts whose book value falls below zero."""
        book = self.book_value_cents(opening_book_cents)
        below = np.flatnonzero((book < 0).any(axis=1))
        return [f"cohort {self.labels.cohorts[k]} is written off below zero ({book[k].min()} cents)" for k in below]


def _row_keys(labels: LedgerLabels, columns: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]) -> NDArray[np.int64]:
    """Return one number for each (month, cluster, cohort, account), in the order of the rows; columns broadcast."""
    month, cluster, cohort, account = (np.asarray(column, dtype=np.int64) for column in columns)
    places = (month * (len(labels.clusters) + 1) + cluster + 1) * (len(labels.cohorts) + 1) + cohort + 1
    return np.asarray(places * len(ACCOUNT_ORDER) + account, dtype=np.int64)


class LedgerBuilder:
    """Collects postings and makes the ledger; the only way to make one."""

    def __init__(self, labels: LedgerLabels) -> None:
        """Start an empty ledger with these names."""
        self._labels = labels
        self._chunks: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._posted = [0] * len(ACCOUNT_ORDER)
        self._cluster_places: NDArray[np.int64] | None = None
        """Keys of a table of months and clusters: most accounts are one, so they are worked out once."""

    def post(
        self, account: Account, amount_cents: ArrayLike, *,
        month: ArrayLike, cluster: ArrayLike = SHARED, cohort: ArrayLike = NO_COHORT,
    ) -> None:  # fmt: skip
        """Post amounts in cents; the index arrays broadcast against the amounts."""
        self._require_places(account, (month, cluster, cohort))
        self._append(account, _row_keys(self._labels, (month, cluster, cohort, 0)), np.asarray(amount_cents))

    def _append(self, account: Account, places: NDArray[np.int64], cents: NDArray[np.int64]) -> None:
        """Keep amounts under the keys of their places; what is in no accrual view gets its counter-entry."""
        if not np.issubdtype(cents.dtype, np.integer):
            msg = f"{account}: money is posted in whole cents, not {cents.dtype}"
            raise ConservationError(msg)
        if not cents.any():
            return
        if account is not Account.BALANCE_SHEET and View.ACCRUAL not in account.views:
            self._append(Account.BALANCE_SHEET, places, -cents)
        code = ACCOUNT_CODES[account]
        keys, amounts = np.broadcast_arrays(places + code, cents)
        kept = amounts != 0
        amounts = amounts[kept].astype(np.int64)
        self._posted[code] += sum(amounts.tolist())
        self._chunks.append((keys[kept], amounts))

    def _require_places(self, account: Account, columns: tuple[ArrayLike, ArrayLike, ArrayLike]) -> None:
        """Refuse an index that points at no name."""
        names = (self._labels.months, self._labels.clusters, self._labels.cohorts)
        for column, low, labels in zip(columns, (0, SHARED, NO_COHORT), names, strict=True):
            places = np.asarray(column)
            if places.size and not (places.min() >= low and places.max() < len(labels)):
                msg = f"{account}: an index is outside {low} to {len(labels) - 1}"
                raise ConservationError(msg)

    def post_clusters(self, account: Account, amount_cents: NDArray[np.int64]) -> None:
        """Post a table of shape (months, clusters)."""
        if self._cluster_places is None or self._cluster_places.shape != amount_cents.shape:
            months, clusters = (np.arange(size) for size in amount_cents.shape)
            self._require_places(account, (months, clusters, NO_COHORT))
            self._cluster_places = _row_keys(self._labels, (months[:, None], clusters, NO_COHORT, 0))
        self._append(account, self._cluster_places, np.asarray(amount_cents))

    def post_cohorts(
        self, account: Account, amount_cents: NDArray[np.int64], cluster_of_cohort: NDArray[np.int64]
    ) -> None:
        """Post a table of shape (cohorts, months), each cohort to its cluster."""
        cohorts, months = amount_cents.shape
        self.post(
            account, amount_cents,
            month=np.arange(months), cluster=cluster_of_cohort[:, None], cohort=np.arange(cohorts)[:, None],
        )  # fmt: skip

    def build(self) -> Ledger:
        """Return the ledger: postings with the same key joined, rows by month, cluster, cohort, account."""
        keys = np.concatenate([np.zeros(0, dtype=np.int64), *(chunk[0] for chunk in self._chunks)])
        amounts = np.concatenate([np.zeros(0, dtype=np.int64), *(chunk[1] for chunk in self._chunks)])
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
