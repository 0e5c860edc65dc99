from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ConservationError
from planner.finance.accounts import (
    ACCOUNT_CODES,
    ACCOUNT_ORDER,
    CAPEX_ACCOUNTS,
    END_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    Account,
    Category,
    View,
)
from planner.finance.depreciation import depreciate, make_cohorts
from planner.finance.ledger import Dimension, Ledger, LedgerBuilder, LedgerLabels, series_cents

LABELS = LedgerLabels(
    months=tuple(f"2026-{m:02d}" for m in range(1, 13)),
    clusters=("amd", "nvidia"),
    cohorts=("a", "b", "c"),
)
BOOKED = {
    *CAPEX_ACCOUNTS,
    Account.LEASE_STARTED,
    Account.DEPRECIATION,
    Account.RESALE,
    Account.DISPOSAL_LOSS,
}
POSTINGS = st.lists(
    st.tuples(
        st.sampled_from([account for account in Account if account not in BOOKED]),
        st.integers(0, 11),
        st.integers(-1, 1),
        st.integers(-1, 2),
        st.integers(-(10**13), 10**13),
    ),
    max_size=60,
)


def small_ledger() -> Ledger:
    builder = LedgerBuilder(LABELS)
    cohorts = make_cohorts(
        [1_200.0, 2_400.0], [0.0, 3.5], life_months=[12, 6], disposal=([6.0, np.inf], [100.0, 0])
    )
    schedule = depreciate(cohorts, np.arange(13.0))
    clusters = np.array([0, 1])
    builder.post_cohorts(Account.CAPEX_ACCELERATORS, schedule.acquired_cents, clusters)
    builder.post_cohorts(Account.DEPRECIATION, schedule.depreciation_cents, clusters)
    builder.post_cohorts(Account.RESALE, -schedule.proceeds_cents, clusters)
    builder.post_cohorts(Account.DISPOSAL_LOSS, schedule.disposal_loss_cents, clusters)
    builder.post_clusters(Account.ENERGY, series_cents(np.full((12, 2), 10 / 3)))
    builder.post(Account.OPERATIONS_STAFF, 5_000, month=np.arange(12))
    return builder.build()


def test_every_account_is_described_and_in_a_view() -> None:
    assert len({account.description for account in Account}) == len(ACCOUNT_ORDER)
    for account in Account:
        assert account.description.endswith("."), account
        of_books = (
            Account.LOAN_FEES_AMORTISED,
            Account.RENT_CAPITALISED,
            Account.RIGHT_OF_USE_COST,
            Account.RENT_INTEREST,
        )
        is_booking = (
            account.category in (Category.COUNTER_ENTRY, Category.TRANSFER) or account in of_books
        )
        assert bool(account.views) != is_booking, account


def test_what_is_economic_is_cash_but_for_the_terminal_value() -> None:
    economic = {account for account in Account if View.ECONOMIC in account.views}
    cash = {account for account in Account if View.CASH in account.views}
    assert economic - cash == {*END_ACCOUNTS, Account.OPENING_VALUE}
    assert cash <= economic


@given(postings=POSTINGS)
def test_every_grouping_has_the_same_total(
    postings: list[tuple[Account, int, int, int, int]],
) -> None:
    builder = LedgerBuilder(LABELS)
    for account, month, cluster, cohort, amount in postings:
        builder.post(account, amount, month=month, cluster=cluster, cohort=cohort)
    ledger = builder.build()
    ledger.check()
    all_dimensions = ledger.totals_cents(*Dimension)
    by_hand = np.zeros_like(all_dimensions)
    for account, month, cluster, cohort, amount in postings:
        by_hand[month, cluster, cohort, ACCOUNT_CODES[account]] += amount
        if View.ACCRUAL not in account.views and account is not Account.BALANCE_SHEET:
            by_hand[month, cluster, cohort, ACCOUNT_CODES[Account.BALANCE_SHEET]] -= amount
    assert np.array_equal(all_dimensions, by_hand)
    for size in range(4):
        for axes in combinations(range(4), size):
            dimensions = [dimension for axis, dimension in enumerate(Dimension) if axis in axes]
            others = tuple({*range(4)} - {*axes})
            assert np.array_equal(ledger.totals_cents(*dimensions), by_hand.sum(axis=others))


@given(postings=POSTINGS, seed=st.integers(0, 100))
def test_the_order_of_posting_does_not_matter(
    postings: list[tuple[Account, int, int, int, int]], seed: int
) -> None:
    ledgers = []
    shuffled = [postings[k] for k in np.random.default_rng(seed).permutation(len(postings))]
    for order in (postings, shuffled):
        builder = LedgerBuilder(LABELS)
        for account, month, cluster, cohort, amount in order:
            builder.post(account, amount, month=month, cluster=cluster, cohort=cohort)
        ledgers.append(builder.build())
    for column in ("month_index", "cluster_index", "cohort_index", "account_code", "amount_cents"):
        assert np.array_equal(getattr(ledgers[0], column), getattr(ledgers[1], column))


def test_cash_and_accrual_differ_by_the_book_value_left() -> None:
    ledger = small_ledger()
    ledger.check()
    cash = int(ledger.monthly_cents(View.CASH).sum())
    accrual = int(ledger.monthly_cents(View.ACCRUAL).sum())
    book = int(ledger.book_value_cents()[:, -1].sum())
    assert book == 0  # the first cohort is sold, the second fully written off in month 9.5
    assert cash == accrual + book


def test_book_values_come_from_the_ledger_alone() -> None:
    ledger = small_ledger()
    book = ledger.book_value_cents()
    assert book.shape == (3, 12)
    assert book[0, :7].tolist() == [110_000, 100_000, 90_000, 80_000, 70_000, 60_000, 0]
    assert book[1, 3] == 240_000 - 20_000
    assert book[1, -1] == 0


def test_cost_leaves_out_revenue_and_tax() -> None:
    builder = LedgerBuilder(LABELS)
    builder.post(Account.ENERGY, 700, month=0, cluster=0)
    builder.post(Account.REVENUE, -1_000, month=0, cluster=0)
    builder.post(Account.TAX_CASH, 75, month=0)
    ledger = builder.build()
    assert ledger.monthly_cents(View.ACCRUAL)[0] == -225
    assert ledger.monthly_cents(View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS)[0] == 700


def test_one_row_for_each_key_and_none_for_zero() -> None:
    builder = LedgerBuilder(LABELS)
    builder.post(Account.ENERGY, 5, month=3, cluster=1)
    builder.post(Account.ENERGY, 6, month=3, cluster=1)
    builder.post(Account.CARBON, [0, 4, -4], month=[0, 1, 1])
    ledger = builder.build()
    assert ledger.row_count == 1
    assert ledger.amount_cents.tolist() == [11]
    small = LedgerBuilder(LABELS)
    small.post(Account.ENERGY, [1, 0, -1, 2], month=[0, 1, 2, 3], cluster=1)
    assert small.build().amount_cents.tolist() == [1, -1, 2]


def test_the_whole_site_and_no_cohort_have_a_place_of_their_own() -> None:
    ledger = small_ledger()
    by_cluster = ledger.totals_cents(Dimension.CLUSTER, view=View.CASH)
    assert by_cluster.shape == (3,)
    assert by_cluster[-1] == 60_000
    assert ledger.totals_cents(Dimension.COHORT, view=View.CASH)[-1] == 60_000 + 8_000


def test_a_lost_row_is_found() -> None:
    ledger = small_ledger()
    columns = ("month_index", "cluster_index", "cohort_index", "account_code", "amount_cents")
    cut = replace(ledger, **{name: getattr(ledger, name)[1:] for name in columns})
    with pytest.raises(ConservationError, match="were posted"):
        cut.check()


def test_a_changed_cent_is_found() -> None:
    ledger = small_ledger()
    amounts = ledger.amount_cents.copy()
    amounts[5] += 1
    with pytest.raises(ConservationError, match="does not add up"):
        replace(ledger, amount_cents=amounts).check()


def test_a_repeated_row_is_found() -> None:
    ledger = small_ledger()
    order = np.sort(np.append(np.arange(ledger.row_count), 4))
    columns = ("month_index", "cluster_index", "cohort_index", "account_code", "amount_cents")
    twice = replace(ledger, **{name: getattr(ledger, name)[order] for name in columns})
    with pytest.raises(ConservationError, match="occur twice"):
        twice.check()


def test_rows_out_of_order_and_strange_indices_are_found() -> None:
    ledger = small_ledger()
    with pytest.raises(ConservationError, match="out of order"):
        replace(ledger, month_index=ledger.month_index[::-1].copy()).check()
    with pytest.raises(ConservationError, match="month index is outside 0 to 11"):
        replace(ledger, month_index=ledger.month_index + 5).check()
    with pytest.raises(ConservationError, match="rows, not"):
        replace(ledger, cohort_index=ledger.cohort_index[:-1]).check()


def test_a_cohort_written_off_twice_is_found() -> None:
    builder = LedgerBuilder(LABELS)
    builder.post(Account.CAPEX_HOSTS, 1_000, month=0, cluster=0, cohort=1)
    builder.post(Account.DEPRECIATION, 600, month=[0, 1], cluster=0, cohort=1)
    with pytest.raises(ConservationError, match="cohort b is written off below zero"):
        builder.build().check()


def test_what_was_owned_before_may_be_written_off() -> None:
    builder = LedgerBuilder(LABELS)
    builder.post(Account.DEPRECIATION, 600, month=[0, 1], cluster=0, cohort=1)
    ledger = builder.build()
    ledger.check(opening_book_cents=[0, 1_200, 0])
    with pytest.raises(ConservationError, match="below zero"):
        ledger.check()


def test_money_is_posted_in_whole_cents() -> None:
    with pytest.raises(ConservationError, match="whole cents"):
        LedgerBuilder(LABELS).post(Account.ENERGY, 1.5, month=0)


def test_a_sum_beyond_64_bits_is_found() -> None:
    builder = LedgerBuilder(LABELS)
    builder.post(Account.ENERGY, np.full(3, 2**62), month=[0, 1, 2])
    with pytest.raises(ConservationError, match="were posted"):
        builder.build().check()
