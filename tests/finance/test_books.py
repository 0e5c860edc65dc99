"""Leases, fees and deferred tax by the standards' own worked examples, to the cent and to the dollar as published.

Inputs and figures of the examples are facts; the schedules are worked out here by hand from annuity factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import numpy as np
import numpy_financial as npf  # type: ignore[import-untyped]
import pytest

from planner.finance.depreciation import LossRule, TaxRules, income_tax
from planner.finance.financing import (
    Amortisation,
    Books,
    LoanTerms,
    RightOfUse,
    contracted_kw,
    loan_schedule,
    open_cents,
    right_of_use,
)
from planner.finance.months import MonthGrid


def lease(
    payments_usd: Sequence[float], rate: float, books: Books, *, on_first_day: float | None = None
) -> RightOfUse:
    """Return a lease paid at the ends of years, with what is paid on the first day before them."""
    first = [] if on_first_day is None else [on_first_day]
    paid = np.array([round(100 * usd) for usd in (*first, *payments_usd)])
    growth = np.array([0.0] * len(first) + [rate] * len(payments_usd))
    shares = np.array([0.0] * len(first) + [1 / len(payments_usd)] * len(payments_usd))
    return right_of_use(paid, growth, shares, books)


def usd(cents: np.ndarray) -> list[float]:
    return [round(float(amount) / 100, 2) for amount in cents]


def worth(rate: float, years: int, each: float = 1.0) -> float:
    """Return what yearly payments at years' ends are worth: the annuity, term by term."""
    return sum(each / (1 + rate) ** year for year in range(1, years + 1))


def test_ifrs_16_example_13_part_1() -> None:
    """Ten years at 50,000 a year in advance, 5%; direct costs of 20,000 and an incentive of 5,000 on the first day.

    Published: liability 355,391 after the first payment, right of use 420,391, depreciation 42,039 a year.
    """
    found = lease([50_000] * 9 + [0], 0.05, Books.IFRS, on_first_day=50_000 + 20_000 - 5_000)
    owed = [round(worth(0.05, years, 50_000), 2) for years in range(9, -1, -1)]
    assert owed[:6] == [355_391.08, 323_160.64, 289_318.67, 253_784.60, 216_473.83, 177_297.53]
    assert usd(found.owed_cents) == [*owed, 0]
    right = owed[0] + 65_000
    assert round(right) == 420_391
    assert usd(found.asset_cents) == pytest.approx(
        [right * (10 - year) / 10 for year in range(11)], abs=0.0051
    )
    assert round(found.cost_cents[1] / 100) == 42_039
    assert [round(cents / 100) for cents in found.interest_cents[1:7]] == [
        17_770,
        16_158,
        14_466,
        12_689,
        10_824,
        8_865,
    ]
    assert found.cost_cents.sum() == round(100 * right)


def test_asc_842_finance_lease_of_ten_years() -> None:
    """ASC 842-20-55, example of a remeasured lease: 50,000 a year in advance at 5.87%, direct costs 15,000.

    Published: liability 342,017, right of use 407,017.
    """
    found = lease([50_000] * 9 + [0], 0.0587, Books.US_GAAP, on_first_day=65_000)
    assert round(found.owed_cents[0] / 100) == round(worth(0.0587, 9, 50_000)) == 342_017
    assert round((found.owed_cents[0] + found.paid_cents[0]) / 100) == 407_017


def test_asc_842_operating_lease_with_rising_rent() -> None:
    """10,000, 12,000 and 14,000 at years' ends at 4.235%: liability 33,000, one cost of 12,000 a year.

    By hand: 33,000 · 1.04235 − 10,000 = 24,397.55; the right of use falls by 12,000 less interest.
    """
    found = lease([10_000, 12_000, 14_000], 0.04235, Books.US_GAAP)
    first = 10_000 / 1.04235 + 12_000 / 1.04235**2 + 14_000 / 1.04235**3
    assert round(first) == 33_000
    balances = [first * 1.04235 - 10_000, (first * 1.04235 - 10_000) * 1.04235 - 12_000, 0.0]
    assert usd(found.owed_cents) == pytest.approx(balances, abs=0.0051)
    assert [round(amount) for amount in balances] == [24_398, 13_431, 0]
    assert usd(found.cost_cents) == [12_000] * 3
    # What was expensed and not yet paid, 2,000 and 2,000, is the gap between debt and right of use.
    assert usd(found.owed_cents - found.asset_cents) == [2_000, 2_000, 0]
    ifrs = lease([10_000, 12_000, 14_000], 0.04235, Books.IFRS)
    assert usd(ifrs.owed_cents) == usd(found.owed_cents)
    assert usd(ifrs.cost_cents) == pytest.approx([first / 3] * 3, abs=0.0101)
    total = ifrs.cost_cents + ifrs.interest_cents
    assert total[0] > found.cost_cents[0]  # cost comes earlier, and is the same over the term
    assert total.sum() == found.cost_cents.sum() == 3_600_000


def test_asc_842_operating_lease_with_direct_costs() -> None:
    """ASC 842-20-55, example of an impaired right of use, before it is: 10,000 a year in arrears, ten years, 8%, 5,000.

    Published: liability 67,101, right of use 72,101, cost 10,500 a year; after three years 52,064 and 55,564.
    """
    found = lease([10_000] * 10, 0.08, Books.US_GAAP, on_first_day=5_000)
    assert round(found.owed_cents[0] / 100) == 67_101
    assert round(found.asset_cents[0] / 100) == 72_101
    assert usd(found.cost_cents) == [0] + [10_500] * 10
    assert round(found.owed_cents[3] / 100) == round(worth(0.08, 7, 10_000)) == 52_064
    assert round(found.asset_cents[3] / 100) == 55_564
    assert found.owed_cents[-1] == found.asset_cents[-1] == 0


def test_a_level_rent_is_its_own_straight_line() -> None:
    found = lease([333.33, 333.34, 333.33], 0.1, Books.US_GAAP)
    assert found.cost_cents.tolist() == found.paid_cents.tolist()
    assert found.asset_cents.tolist() == found.owed_cents.tolist()


def test_ifrs_9_effective_interest() -> None:
    """IFRS 9 B.26: bought at 1,000 with 59 a year (4.7% of 1,250) for five years and 1,250 at the end: 10% effective.

    As a loan of 1,250 of which 250 are taken at once. Published amortised cost: 1,041, 1,086, 1,136, 1,190.
    """
    terms = LoanTerms(
        rate_per_year=12 * 0.0472, term_months=5, amortisation=Amortisation.BULLET, fee_fraction=0.2
    )
    found = loan_schedule(terms, np.array([[125_000], *[[0]] * 5]))
    shown = (found.balance_cents - found.fee_left_cents)[:, 0]
    assert [round(cents / 100) for cents in shown[:5]] == [1_000, 1_041, 1_086, 1_136, 1_190]
    assert shown[5] == 0
    rate = npf.rate(5, 59, -1_000, 1_250)
    assert rate == pytest.approx(0.1, abs=1e-4)
    carried = [1_000.0]
    for _ in range(4):
        carried.append(carried[-1] * (1 + rate) - 59)
    assert usd(shown[:5]) == pytest.approx(carried, abs=0.0051)
    amortised = found.fee_cents - np.diff(found.fee_left_cents, axis=0, prepend=0)
    assert amortised.sum() == found.fee_cents.sum() == 25_000


def test_ias_12_depreciation_of_an_asset() -> None:
    """IAS 12, example of an asset that cost 150, carried at 100, 90 of it deducted, 25%: a liability of 10.

    (100 − 60)·25%, as tax paid less by what was deducted ahead of the books.
    """
    grid = MonthGrid(start=date(2026, 1, 1), horizon_months=1)
    zero = np.zeros(1)
    charge = income_tax(
        (np.array([-90.0]), np.array([-50.0]), zero), grid, TaxRules(rate_fraction=0.25)
    )
    assert charge.deferred_cents.tolist() == [1_000]


def test_ias_12_computation_of_a_machine() -> None:
    """IAS 12, illustrative computations, example 1: 10,000 over five years straight, deducted at 25% a year, 40%.

    Earnings of 2,000 a year. Published deferred tax: liability 200, 400, 600, 800, then nothing.
    """
    grid = MonthGrid(start=date(2026, 1, 1), horizon_months=60)
    year = np.arange(60) // 12
    earned = np.full(60, 2_000 / 12)
    book = earned - 2_000 / 12
    deducted = np.where(year < 4, 2_500 / 12, 0.0)
    for losses in (LossRule.OFFSET, LossRule.CARRY_FORWARD):
        rules = TaxRules(rate_fraction=0.4, losses=losses)
        charge = income_tax((earned - deducted, book, np.zeros(60)), grid, rules)
        position = np.cumsum(charge.deferred_cents)[11::12]
        if losses is LossRule.OFFSET:  # current tax −200 four times, then 800
            assert position.tolist() == pytest.approx([20_000, 40_000, 60_000, 80_000, 0], abs=1)
            paid = charge.cash_cents.reshape(5, 12).sum(axis=1)
            assert paid.tolist() == pytest.approx([-20_000] * 4 + [80_000], abs=1)
        else:  # a loss carried, 500 a year, is worth the deferred tax that it offsets, and no more
            assert position[:4].tolist() == [0, 0, 0, 0]


def test_a_loss_is_an_asset_only_where_profit_is_probable() -> None:
    """A loss of 1,000 a month at 25%: 250 of asset, or none; with a loan's interest of 100, 275 or none."""
    grid = MonthGrid(start=date(2026, 1, 1), horizon_months=12)
    loss = np.full(12, -1_000.0)
    interest = np.full(12, 100.0)
    for profit, each in (("probable", -27_500), ("uncertain", 0)):
        rules = TaxRules(rate_fraction=0.25, losses=LossRule.CARRY_FORWARD, future_profit=profit)
        charge = income_tax((loss, loss, interest), grid, rules)
        assert charge.deferred_cents.tolist() == [each] * 12
        assert not charge.cash_cents.any()
        assert not charge.on_interest_cents.any()
    group = income_tax((loss, loss, interest), grid, TaxRules(rate_fraction=0.25))
    assert group.on_interest_cents.tolist() == [-2_500] * 12
    assert group.cash_cents.tolist() == [-25_000] * 12


def test_interest_beside_carried_losses_saves_what_the_years_can_use() -> None:
    """2026: −12,000. 2027: 12,000, 80% of it offset: tax 25% of 2,400. Interest of 1,200 a year leaves 10,800: 2,160.

    Interest of 2026 adds to the losses; what of them is left is unused.
    """
    grid = MonthGrid(start=date(2026, 1, 1), horizon_months=24)
    taxable = np.repeat([-1_000.0, 1_000.0], 12)
    rules = TaxRules(rate_fraction=0.25, losses=LossRule.CARRY_FORWARD)
    charge = income_tax((taxable, taxable, np.full(24, 100.0)), grid, rules)
    assert charge.cash_cents.sum() == 25 * 2_400
    assert charge.on_interest_cents.sum() == 25 * 2_160 - 25 * 2_400
    position = np.cumsum(charge.deferred_cents)
    assert position.min() >= 0


def test_days_open_by_hand() -> None:
    """31 and 28 days: 45 days are all of February and 17 of January's 31."""
    edges = MonthGrid(start=date(2026, 1, 1), horizon_months=3).edge_hours.astype(float)
    amounts = np.array([[31_000], [28_000], [0]])
    assert open_cents(amounts, 45, edges).tolist() == [[31_000], [28_000 + 17_000], [14_000]]
    assert open_cents(amounts, 10, edges).tolist() == [[10_000], [10_000], [0]]
    assert not open_cents(amounts, 0, edges).any()


def test_space_is_paid_to_the_end_of_its_contract() -> None:
    """Taken for three months: 10 kW from the first, 5 more from the third; then as used, month to month."""
    begun, paid = contracted_kw(np.array([10.0, 0.0, 15.0, 15.0, 2.0, 2.0]), 3)
    assert begun.tolist() == [10, 0, 5, 0, 0, 0]
    assert paid.tolist() == [10, 10, 15, 15, 5, 2]
    alone = contracted_kw(np.array([10.0, 0.0, 15.0]), 1)[1]
    assert alone.tolist() == [10, 0, 15]
