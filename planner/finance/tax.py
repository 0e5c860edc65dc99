"""Income tax: tax depreciation (MACRS, bonus) kept apart from the books, and cash tax against deferred tax.

Tax years are calendar years. A year's deduction is spread evenly over the months of that year in which the
asset is in service, so that monthly figures exist; yearly totals are those of the table. Source of the table
and of the half-year convention: IRS Publication 946 (2024), Table A-1, and its rules for dispositions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.finance import refusals
from planner.finance.cents import cents, series_cents, whole_cents
from planner.finance.depreciation import Cohorts
from planner.finance.months import MonthGrid
from planner.units import MONTHS_PER_YEAR

MACRS_5_YEAR_HALF_YEAR = np.array([0.2000, 0.3200, 0.1920, 0.1152, 0.1152, 0.0576])
"""Five-year property (computers and peripherals), half-year convention: IRS Publication 946, Table A-1."""
LOSS_LIMIT_FRACTION = 0.8
"""Share of a later year's income that carried losses may offset: 26 U.S.C. §172(a)(2)."""


class LossRule(StrEnum):
    """What a tax loss is worth in the year it is made."""

    OFFSET = "offset"
    """It lowers the tax on the owner's other income at once, as for one project of a large firm."""
    CARRY_FORWARD = "carry_forward"
    """It waits for this project's own profits, of which it may offset 80% a year."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxRules:
    """The tax assumptions of a scenario."""

    rate_fraction: float
    """Combined income-tax rate."""
    bonus_fraction: float = 0.0
    """Share of cost deducted in the year of purchase (1.0 if acquired after 19 January 2025)."""
    losses: LossRule = LossRule.OFFSET
    """What a loss is worth."""

    def __post_init__(self) -> None:
        """Refuse shares outside 0 to 1; a rate of 100% would leave nothing to plan for."""
        refusals.raise_problems(
            [
                refusals.fraction("tax.rate_fraction", self.rate_fraction, below_one=True),
                refusals.fraction("tax.bonus_fraction", self.bonus_fraction),
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxDeductions:
    """What tax depreciation deducts and what disposals add, in cents, shape (cohorts, periods)."""

    deduction_cents: NDArray[np.int64]
    """Tax depreciation of the period, bonus included."""
    gain_cents: NDArray[np.int64]
    """Proceeds less the tax basis left, on disposal; negative for a loss."""
    before_cents: NDArray[np.int64]
    """Deducted before the first period, shape (cohorts,)."""


def _yearly_fractions(bonus_fraction: float, years_held: int | None) -> Floats:
    """Return the share of cost deducted in each tax year, shape (6,), given the year of disposal, if any.

    Half-year convention on disposal: the year of disposal takes half of its table percentage; an asset bought
    and disposed of in one tax year takes nothing, bonus included.
    """
    fractions = (1.0 - bonus_fraction) * MACRS_5_YEAR_HALF_YEAR
    if years_held == 0:
        return np.zeros_like(fractions)
    if years_held is not None and years_held < len(fractions):
        fractions[years_held] *= 0.5
        fractions[years_held + 1 :] = 0.0
    fractions[0] += bonus_fraction
    return fractions


def tax_depreciation(cohorts: Cohorts, grid: MonthGrid, bonus_fraction: float) -> TaxDeductions:
    """Return tax depreciation and disposal gains of every cohort by period."""
    shape = (cohorts.count, grid.period_count)
    deduction, gain = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    before = np.zeros(cohorts.count, dtype=np.int64)
    for row in range(cohorts.count):
        deduction[row], gain[row], before[row] = _one_cohort(cohorts, row, grid, bonus_fraction)
    return TaxDeductions(deduction_cents=deduction, gain_cents=gain, before_cents=before)


def monthly_fractions(
    cohorts: Cohorts, row: int, grid: MonthGrid, bonus_fraction: float
) -> tuple[NDArray[np.int64], Floats]:
    """Return the months in which a cohort may deduct, the first period being 0, and the share of its cost in each."""
    january = grid.start.month - 1  # months from January of the start year to coordinate 0
    served = bool(np.isfinite(cohorts.in_service_months[row]))
    service = int(np.floor((cohorts.in_service_months if served else cohorts.acquired_months)[row])) + january
    retired = cohorts.retired_months[row]
    leaves = int(np.floor(retired)) + january if np.isfinite(retired) else None
    first_year = service // MONTHS_PER_YEAR
    held = None if leaves is None else leaves // MONTHS_PER_YEAR - first_year
    # What is never placed in service deducts nothing: its basis is its cost until it is sold (Publication 946).
    fractions = _yearly_fractions(bonus_fraction, held) * served
    # Months from the asset's first to its last deduction, as months since January of the start year.
    month = np.arange(service, (first_year + len(fractions)) * MONTHS_PER_YEAR)
    year = month // MONTHS_PER_YEAR - first_year
    in_use = np.ones(month.shape, dtype=bool) if leaves is None else month <= leaves
    months_in_year = np.bincount(year[in_use], minlength=len(fractions))
    return month - january, np.where(in_use, fractions[year] / np.maximum(months_in_year[year], 1), 0.0)


def _one_cohort(
    cohorts: Cohorts, row: int, grid: MonthGrid, bonus_fraction: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return one cohort's deductions and disposal gains, shape (periods,) each, and its deductions before them."""
    period, fractions = monthly_fractions(cohorts, row, grid, bonus_fraction)
    monthly_cents = series_cents(fractions * cohorts.cost_usd[row])
    deduction = np.zeros(grid.period_count, dtype=np.int64)
    gain = np.zeros(grid.period_count, dtype=np.int64)
    inside = (period >= 0) & (period < grid.period_count)
    deduction[period[inside]] = monthly_cents[inside]
    retired = cohorts.retired_months[row]
    if np.isfinite(retired) and 0 <= (leaves := int(np.floor(retired))) < grid.period_count:
        basis = cents(cohorts.cost_usd[row]) - monthly_cents.sum()
        gain[leaves] = cents(cohorts.proceeds_usd[row]) - basis
    return deduction, gain, int(monthly_cents[period < 0].sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxCharge:
    """Tax by period in cents, shape (periods,); cash and deferred sum to the tax expense of the accrual view."""

    cash_cents: NDArray[np.int64]
    """Tax paid; negative where a loss lowers the owner's other tax."""
    deferred_cents: NDArray[np.int64]
    """Tax expense of the books that is not yet paid; negative when it falls due."""
    on_end_gain_cents: int
    """Tax on what a sale of everything on the last day would add to taxable income, one figure."""


def income_tax(
    taxable_income_usd: Floats,
    book_income_usd: Floats,
    grid: MonthGrid,
    rules: TaxRules,
    end_gain_usd: float = 0.0,
) -> TaxCharge:
    """Return cash and deferred tax from taxable income and pre-tax book income, shape (periods,) each.

    Tax expense of the books is rate × book income; deferred tax is what of it is not cash tax.
    """
    assessed, on_end_gain = assess_usd(taxable_income_usd, tax_years(grid), rules, end_gain_usd)
    offset = rules.losses is LossRule.OFFSET
    cash = _share_cents(taxable_income_usd, rules.rate_fraction) if offset else cents(assessed)
    expense = _share_cents(book_income_usd, rules.rate_fraction)
    return TaxCharge(cash_cents=cash, deferred_cents=expense - cash, on_end_gain_cents=int(cents(on_end_gain)))


def _share_cents(amount_usd: Floats, fraction: float) -> NDArray[np.int64]:
    """Return a share of a series, rounded on its running total in whole cents: a workbook then finds the same cent."""
    running = cents(np.cumsum(amount_usd)).astype(np.float64)
    return np.diff(whole_cents(running * fraction), prepend=0)


def tax_years(grid: MonthGrid) -> NDArray[np.int64]:
    """Return the tax year of each period, shape (periods,)."""
    return np.array([edge.year for edge in grid.edges[:-1]], dtype=np.int64)


def assess_usd(
    taxable_income_usd: Floats, years: NDArray[np.int64], rules: TaxRules, end_gain_usd: float = 0.0
) -> tuple[Floats, float]:
    """Return tax by period before rounding, shape (periods,), and what a gain on the last day adds to it.

    Tax is negative where a loss is offset at once. Where losses are carried forward it is assessed year by year, in the
    last period of each year; a loss on the last day is then worth what that year's income can use of it, and losses
    still carried at the end are worth nothing.
    """
    if rules.losses is LossRule.OFFSET:
        return rules.rate_fraction * taxable_income_usd, rules.rate_fraction * end_gain_usd
    first = np.flatnonzero(np.diff(years, prepend=years[0] - 1))
    last = np.append(first[1:], years.size) - 1
    tax, carried, on_gain = np.zeros(taxable_income_usd.shape), 0.0, 0.0
    for period, income in zip(last.tolist(), np.add.reduceat(taxable_income_usd, first).tolist(), strict=True):
        tax[period] = _year_usd(income, carried, rules)
        if period == years.size - 1:
            on_gain = _year_usd(income + end_gain_usd, carried, rules) - tax[period]
        carried += max(-income, 0.0) - min(carried, LOSS_LIMIT_FRACTION * max(income, 0.0))
    return tax, float(on_gain)


def _year_usd(income_usd: float, carried_usd: float, rules: TaxRules) -> float:
    """Return a year's tax: on its income less the losses carried into it, of which it may use so much."""
    offset = min(carried_usd, LOSS_LIMIT_FRACTION * max(income_usd, 0.0))
    return rules.rate_fraction * max(income_usd - offset, 0.0)
