from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.finance.depreciation import (
    LossRule,
    TaxRules,
    assess_usd,
    income_tax,
    make_cohorts,
    tax_depreciation,
)
from planner.finance.months import MonthGrid

SIX_YEARS = MonthGrid(start=date(2026, 1, 1), horizon_months=72)


def by_year(monthly: np.ndarray) -> list[int]:
    return [int(total) for total in monthly.reshape(-1, 12).sum(axis=1)]


def test_yearly_deductions_are_those_of_the_published_table() -> None:
    # IRS Publication 946, Table A-1, on 100,000 placed in service in May.
    tax = tax_depreciation(make_cohorts([100_000.0], [4.0]), SIX_YEARS, bonus_fraction=0.0)
    expected = [2_000_000, 3_200_000, 1_920_000, 1_152_000, 1_152_000, 576_000]
    assert by_year(tax.deduction_cents[0]) == pytest.approx(expected, abs=1)
    assert int(tax.deduction_cents.sum()) == 10_000_000
    assert not tax.deduction_cents[0, :4].any()
    assert len(set(tax.deduction_cents[0, 4:12].tolist())) <= 2


def test_full_bonus_deducts_everything_in_the_first_year() -> None:
    tax = tax_depreciation(make_cohorts([100_000.0], [11.9]), SIX_YEARS, bonus_fraction=1.0)
    assert tax.deduction_cents[0, 11] == 10_000_000
    assert int(tax.deduction_cents.sum()) == 10_000_000


def test_half_bonus_leaves_half_to_the_table() -> None:
    tax = tax_depreciation(make_cohorts([100_000.0], [0.0]), SIX_YEARS, bonus_fraction=0.5)
    assert by_year(tax.deduction_cents[0])[:2] == pytest.approx([6_000_000, 1_600_000], abs=1)


def test_disposal_takes_half_a_year_and_the_rest_against_the_price() -> None:
    # Sold in July of year three for 50,000: 20% + 32% + 19.2%/2 = 61.6% deducted, basis 38,400, gain 11,600.
    cohorts = make_cohorts([100_000.0], [0.0], disposal=(30.5, 50_000.0))
    tax = tax_depreciation(cohorts, SIX_YEARS, bonus_fraction=0.0)
    assert by_year(tax.deduction_cents[0])[:4] == pytest.approx(
        [2_000_000, 3_200_000, 960_000, 0], abs=1
    )
    assert tax.gain_cents[0, 30] == pytest.approx(1_160_000, abs=1)


def test_bought_and_sold_in_one_year_deducts_nothing() -> None:
    cohorts = make_cohorts([100_000.0], [2.0], disposal=(8.0, 90_000.0))
    tax = tax_depreciation(cohorts, SIX_YEARS, bonus_fraction=1.0)
    assert not tax.deduction_cents.any()
    assert tax.gain_cents[0, 8] == -1_000_000


def test_tax_years_follow_the_calendar_not_the_horizon() -> None:
    # The horizon starts in October: October to December take the whole 20% of the first tax year.
    grid = MonthGrid(start=date(2026, 10, 1), horizon_months=27)
    tax = tax_depreciation(make_cohorts([90_000.0], [0.0]), grid, bonus_fraction=0.0)
    assert int(tax.deduction_cents[0, :3].sum()) == pytest.approx(1_800_000, abs=1)
    assert int(tax.deduction_cents[0, 3:15].sum()) == pytest.approx(2_880_000, abs=1)


@given(
    cost=st.floats(0, 1e8),
    start=st.floats(0, 23.9),
    held=st.one_of(st.none(), st.floats(0, 47)),
    bonus=st.floats(0, 1),
    proceeds=st.floats(0, 1e8),
)
def test_deductions_less_gains_are_cost_less_proceeds(
    cost: float, start: float, held: float | None, bonus: float, proceeds: float
) -> None:
    grid = MonthGrid(start=date(2026, 1, 1), horizon_months=108)
    disposal = (np.inf, 0.0) if held is None else (start + held, proceeds)
    cohorts = make_cohorts([cost], [start], disposal=disposal)
    tax = tax_depreciation(cohorts, grid, bonus)
    received = 0 if held is None else round(proceeds * 100)
    assert int(tax.deduction_cents.sum() - tax.gain_cents.sum()) == pytest.approx(
        round(cost * 100) - received, abs=1
    )


def test_cash_and_deferred_tax_sum_to_the_tax_of_the_books() -> None:
    grid = MonthGrid(start=date(2026, 1, 1), horizon_months=24)
    book = np.full(24, 1_000.0)
    taxable = np.concatenate([np.full(12, -500.0), np.full(12, 2_500.0)])
    charge = income_tax((taxable, book, np.zeros(24)), grid, TaxRules(rate_fraction=0.25))
    assert charge.cash_cents[:12].tolist() == [-12_500] * 12
    assert int((charge.cash_cents + charge.deferred_cents).sum()) == 24 * 25_000
    assert int(charge.deferred_cents.sum()) == 0  # timing alone: what is deferred comes back


def test_losses_carried_forward_offset_four_fifths_of_a_later_year() -> None:
    grid = MonthGrid(start=date(2026, 1, 1), horizon_months=24)
    taxable = np.concatenate([np.full(12, -1_000.0), np.full(12, 1_000.0)])
    rules = TaxRules(rate_fraction=0.21, losses=LossRule.CARRY_FORWARD)
    charge = income_tax((taxable, taxable, np.zeros(24)), grid, rules)
    # 12,000 of income less 80% of it by the loss leaves 2,400: tax 504, paid in December.
    assert int(charge.cash_cents[:23].sum()) == 0
    assert charge.cash_cents[23] == 50_400
    # Two years' losses are carried whole: 1,000 less 20 and 30.
    tax, _ = assess_usd(np.array([-20.0, -30.0, 1_000.0]), np.array([2026, 2027, 2028]), rules)
    assert tax == pytest.approx([0.0, 0.0, 0.21 * 950], rel=1e-12)


def test_a_gain_on_the_last_day_is_taxed_with_the_last_year_alone() -> None:
    years = np.array([2026, 2026, 2027, 2027])
    income = np.array([-40.0, -60.0, 20.0, 30.0])
    offset = TaxRules(rate_fraction=0.25)
    assert assess_usd(income, years, offset, 30.0)[1] == 7.5
    carried = TaxRules(rate_fraction=0.25, losses=LossRule.CARRY_FORWARD)
    # 50 earned, of which the 100 lost before may take 80%: 10 is taxed. With 30 more, 16 is; with 60 less, nothing.
    for gain, due in ((0.0, 0.0), (30.0, 0.25 * 6), (-60.0, -0.25 * 10)):
        tax, on_gain = assess_usd(income, years, carried, gain)
        assert tax == pytest.approx([0, 0, 0, 2.5])
        assert on_gain == pytest.approx(due)
    later = np.array([500.0, 0.0, 20.0, 30.0])  # a loss on the last day cannot reach back to 2026
    assert assess_usd(later, years, carried, -400.0)[1] == pytest.approx(-0.25 * 50)
