"""One fleet through every part of the finance core: purchase, books, tax, power, people, ledger, measures."""

from __future__ import annotations

import csv
import io
from datetime import date
from decimal import Decimal
from itertools import permutations
from typing import Any

import numpy as np
import pytest

from planner.finance.depreciation import (
    DepreciationSchedule,
    TaxRules,
    capital_charge_usd,
    depreciate,
    income_tax,
    make_cohorts,
    tax_depreciation,
)
from planner.finance.financing import DiscountTier, Quote, choose_quote, yearly_cost_usd
from planner.finance.ledger import (
    ACCOUNT_ORDER,
    CAPEX_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    Account,
    Dimension,
    Ledger,
    LedgerBuilder,
    LedgerLabels,
    View,
    series_cents,
    usd,
)
from planner.finance.months import MonthGrid
from planner.finance.present_value import internal_rate, net_present_value
from planner.finance.tariffs import (
    carbon_cost_usd,
    demand_charges_of_peaks_usd,
    hourly_prices_usd_per_kwh,
    operational_kg,
)
from planner.output.tables import Column, ColumnKind, CsvFormat, Table, TableDescription, write_csv
from tests.finance.flat import flat_tariff

GRID = MonthGrid(start=date(2026, 4, 1), horizon_months=36)
ORDERS = ((date(2026, 4, 1), 800), (date(2027, 9, 14), 200))
QUOTES = (
    Quote(
        name="launch offer",
        list_price_usd=22_000.0,
        tiers=(DiscountTier(minimum_units=500, discount_fraction=0.14),),
        valid_until=date(2026, 12, 31),
        valid_from=date(2026, 1, 1),
    ),
    Quote(name="price list", list_price_usd=22_000.0),
)
RULES = TaxRules(rate_fraction=0.25, bonus_fraction=0.4)
LEDGER_FILE = TableDescription(
    name="ledger",
    description="Ledger, one row a month, cluster, cohort and account.",
    columns=(
        Column(name="month", kind=ColumnKind.MONTH, description="Month."),
        Column(name="cohort", kind=ColumnKind.TEXT, description="Cohort."),
        Column(name="account", kind=ColumnKind.TEXT, description="Account."),
        Column(name="amount_usd", kind=ColumnKind.CENTS, unit="USD", description="Amount."),
    ),
)


def by_month(fold: np.ufunc, hourly: np.ndarray) -> np.ndarray:
    """Fold hours into the months of the grid."""
    return np.asarray(fold.reduceat(hourly, GRID.edge_hours[:-1]))


def purchases() -> np.ndarray:
    """Return capex by order and kind in cents, shape (orders, 4)."""
    chosen = [(choose_quote(QUOTES, day), units) for day, units in ORDERS]
    accelerators = np.array(
        [quote.order_cents(units) for quote, units in chosen if quote is not None]
    )
    units = np.array([units for _, units in ORDERS])
    return np.stack(
        [accelerators, units * 400_125, accelerators * 12 // 100, accelerators // 70], axis=-1
    )


def post_assets(builder: LedgerBuilder, capex_cents: np.ndarray) -> DepreciationSchedule:
    cost = usd(capex_cents.sum(axis=1))
    cohorts = make_cohorts(
        cost, [GRID.coordinate(day) for day, _ in ORDERS], residual_usd=np.round(cost * 0.2, 2)
    )
    schedule = depreciate(cohorts, GRID.edge_coordinates)
    home = np.zeros(2, dtype=np.int64)
    for account, amounts in zip(CAPEX_ACCOUNTS, capex_cents.T, strict=True):
        builder.post_cohorts(
            account, np.where(schedule.acquired_cents > 0, amounts[:, None], 0), home
        )
    builder.post_cohorts(Account.DEPRECIATION, schedule.depreciation_cents, home)
    builder.post_cohorts(
        Account.COST_OF_CAPITAL, series_cents(capital_charge_usd(schedule, 0.1), axis=1), home
    )
    builder.post(
        Account.RESIDUAL_VALUE,
        -schedule.closing_book_cents[:, -1],
        month=35,
        cluster=0,
        cohort=[0, 1],
    )
    tax = tax_depreciation(cohorts, GRID, RULES.bonus_fraction)
    revenue = np.full(36, 2_000_000.0)
    builder.post_clusters(Account.REVENUE, -series_cents(revenue)[:, None])
    taxable = revenue - usd(tax.deduction_cents.sum(axis=0))
    book = revenue - usd(schedule.depreciation_cents.sum(axis=0))
    charge = income_tax((taxable, book, np.zeros(36)), GRID, RULES)
    builder.post(Account.TAX_CASH, charge.cash_cents, month=np.arange(36))
    builder.post(Account.TAX_DEFERRED, charge.deferred_cents, month=np.arange(36))
    return schedule


def post_running(builder: LedgerBuilder) -> None:
    tariff = flat_tariff(0.075, escalator_per_year=0.035, demand_charge_usd_per_kw_month=12.0)
    load_kw = np.full((GRID.hour_count, 1), 900.0)
    energy = hourly_prices_usd_per_kwh(tariff, GRID)[:, None] * load_kw
    builder.post_clusters(Account.ENERGY, series_cents(by_month(np.add, energy)))
    builder.post_clusters(Account.COOLING, series_cents(by_month(np.add, energy) * 0.3))
    builder.post_clusters(
        Account.DEMAND_CHARGE,
        series_cents(demand_charges_of_peaks_usd(tariff, GRID, by_month(np.maximum, load_kw))),
    )
    builder.post_clusters(
        Account.COLOCATION,
        series_cents(yearly_cost_usd(np.full((36, 1), 1_100.0), 180.0 * 12, GRID, 0.04)),
    )
    people = np.full((36, 1), 3.0)
    builder.post_clusters(
        Account.SOFTWARE_ENGINEERS, series_cents(yearly_cost_usd(people, 280_000.0, GRID))
    )
    emitted = operational_kg(by_month(np.add, load_kw * 1.3), 369.0)
    builder.post_clusters(Account.CARBON, series_cents(carbon_cost_usd(emitted, 25.0)))


@pytest.fixture(scope="module")
def books() -> tuple[Ledger, DepreciationSchedule]:
    builder = LedgerBuilder(
        LedgerLabels(months=GRID.labels, clusters=("mi325x",), cohorts=("first", "second"))
    )
    schedule = post_assets(builder, purchases())
    post_running(builder)
    ledger = builder.build()
    ledger.check()
    return ledger, schedule


def test_the_expired_offer_no_longer_prices_the_second_order() -> None:
    capex = purchases()
    assert capex[0, 0] == 800 * 18_920_00
    assert capex[1, 0] == 200 * 22_000_00


def test_the_ledger_and_the_schedule_know_the_same_book_value(
    books: tuple[Ledger, DepreciationSchedule],
) -> None:
    ledger, schedule = books
    assert np.array_equal(ledger.book_value_cents(), schedule.closing_book_cents)
    # The first cohort has run its 36 months: what is left is its residual. The second is part way.
    first, second = schedule.closing_book_cents[:, -1]
    assert first == round(purchases()[0].sum() * 0.2)
    assert second > purchases()[1].sum() * 0.2


def test_cash_accrual_and_economic_views_reconcile(
    books: tuple[Ledger, DepreciationSchedule],
) -> None:
    ledger, schedule = books
    cash, accrual, economic = (
        int(ledger.monthly_cents(view).sum()) for view in (View.CASH, View.ACCRUAL, View.ECONOMIC)
    )
    book = int(schedule.closing_book_cents[:, -1].sum())
    imputed = ledger.account_cents(Account.COST_OF_CAPITAL) + ledger.account_cents(
        Account.TAX_DEFERRED
    )
    assert cash == accrual - imputed + book
    assert economic == cash - book


def test_every_order_of_grouping_gives_the_same_table(
    books: tuple[Ledger, DepreciationSchedule],
) -> None:
    ledger = books[0]
    dimensions = tuple(Dimension)
    whole = ledger.totals_cents(*dimensions)
    for order in permutations(range(4)):
        regrouped = ledger.totals_cents(*(dimensions[axis] for axis in order))
        assert np.array_equal(regrouped, whole.transpose(order))


def test_what_a_spreadsheet_adds_up_from_the_file_is_the_ledger(
    books: tuple[Ledger, DepreciationSchedule],
) -> None:
    ledger = books[0]
    cohorts = (*ledger.labels.cohorts, "")
    columns: dict[str, Any] = {
        "month": [ledger.labels.months[k] for k in ledger.month_index],
        "cohort": [cohorts[k] for k in ledger.cohort_index],
        "account": [str(ACCOUNT_ORDER[code]) for code in ledger.account_code],
        "amount_usd": ledger.amount_cents,
    }
    for form in (CsvFormat(), CsvFormat(decimal_comma=True)):
        text = write_csv(Table(LEDGER_FILE, columns), form).decode()
        rows = list(csv.DictReader(io.StringIO(text), delimiter=form.separator))
        by_account: dict[str, Decimal] = {}
        for row in rows:
            amount = Decimal(row["amount_usd"].replace(form.decimal_mark, "."))
            by_account[row["account"]] = by_account.get(row["account"], Decimal(0)) + amount
        for account in Account:
            assert by_account.get(str(account), Decimal(0)) * 100 == ledger.account_cents(account)


def test_measures_from_the_ledger(books: tuple[Ledger, DepreciationSchedule]) -> None:
    ledger = books[0]
    flows = -usd(ledger.monthly_cents(View.ECONOMIC))
    found = internal_rate(flows)
    assert found is not None
    assert net_present_value(found, flows) == pytest.approx(0, abs=1e-3)
    assert net_present_value(0.0, flows) == pytest.approx(float(flows.sum()))


def test_cost_per_token_leaves_out_what_is_not_cost(
    books: tuple[Ledger, DepreciationSchedule],
) -> None:
    ledger = books[0]
    cost = int(ledger.monthly_cents(View.ACCRUAL, leave_out=NOT_COST_ACCOUNTS).sum())
    by_hand = sum(
        ledger.account_cents(account)
        for account in Account
        if View.ACCRUAL in account.views and account not in NOT_COST_ACCOUNTS
    )
    assert cost == by_hand
    assert cost > 0 > ledger.account_cents(Account.REVENUE)


def test_tax_is_a_matter_of_timing(books: tuple[Ledger, DepreciationSchedule]) -> None:
    ledger, schedule = books
    booked = ledger.account_cents(Account.TAX_CASH) + ledger.account_cents(Account.TAX_DEFERRED)
    income = 36 * 2_000_000_00 - int(schedule.depreciation_cents.sum())
    assert booked == pytest.approx(0.25 * income, abs=1)
    assert ledger.account_cents(Account.TAX_DEFERRED) > 0  # bonus and MACRS run ahead of the books
