"""Depreciation by purchase cohort for book and tax, resale values of used machines, and income tax.

A cohort is bought together and enters service together. From the day it is delivered and paid it is on the books at
cost, as construction in progress; its life is counted in months of its own, from the day it enters service, and the
first and last calendar month are charged by exact days. What never enters service stays at cost. With cost C,
residual R, life L months and elapsed months e (0 ≤ e ≤ L), the depreciation charged so far is

* straight line:      D(e) = (C − R)·e / L
* declining balance:  each own month k takes max( B·f/L, (B − R)/(L − k) ) of the book value B = C − D(k),
  never going below R; f is the factor (2 is "double declining") and the second term is the switch to straight
  line. Inside an own month D grows evenly.

Every D is rounded to the cent on the running total (see :mod:`planner.finance.ledger`), so a schedule that
runs to the end of its life sums to C − R exactly. A cohort that is retired in part is entered as two cohorts.

What is owned already may have a stated book value B on a day, and a life left from then on: it is written off from B in
place of C over that life, and C − B counts as charged before that day.

Tax depreciation (MACRS, bonus) is kept apart from the books, and cash tax from deferred tax. Tax years are calendar
years. A year's deduction is spread evenly over the months of that year in which the asset is in service, so that
monthly figures exist; yearly totals are those of the table. Source of the table and of the half-year convention: IRS
Publication 946 (2024), Table A-1, and its rules for dispositions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.arrays import Floats
from planner.finance.ledger import cents, series_cents, usd, whole_cents
from planner.finance.months import MonthGrid
from planner.units import MONTHS_PER_YEAR

DEFAULT_LIFE_MONTHS = 36
"""The three-year depreciation horizon of the decision this planner is for."""
STRAIGHT_LINE = 0.0
"""The declining-balance factor that means straight line."""
NEVER = np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohorts:
    """Assets by purchase cohort; every array has shape (cohorts,)."""

    cost_usd: Floats
    """What was paid, delivered and installed."""
    residual_usd: Floats
    """Book value at the end of the life, at which depreciation stops."""
    in_service_months: Floats
    """Month coordinate of the day depreciation begins; below zero for what already serves, infinity for never."""
    life_months: Floats
    """Depreciation life in months."""
    declining_factor: Floats
    """0 for straight line, 2 for double declining balance, 1.5 for 150%."""
    retired_months: Floats
    """Month coordinate of the day the cohort leaves the books; infinity for never."""
    proceeds_usd: Floats
    """What it is sold for on that day; 0 is a write-off."""
    acquired_months: Floats
    """Month coordinate of the day it is delivered and paid, at or before service; below zero for what is owned."""
    basis_usd: Floats
    """What is written off, to the residual: the cost, or the book value stated for what is owned already."""
    basis_months: Floats
    """Month coordinate from which it is written off: service, or the day on which that book value held."""

    @property
    def count(self) -> int:
        """Number of cohorts."""
        return int(self.cost_usd.shape[0])


def make_cohorts(
    cost_usd: ArrayLike,
    in_service_months: ArrayLike,
    *,
    residual_usd: ArrayLike = 0.0,
    life_months: ArrayLike = DEFAULT_LIFE_MONTHS,
    declining_factor: ArrayLike = STRAIGHT_LINE,
    disposal: tuple[ArrayLike, ArrayLike] = (NEVER, 0.0),
    acquired_months: ArrayLike | None = None,
) -> Cohorts:
    """Return cohorts from numbers or arrays, each broadcast to shape (cohorts,).

    ``disposal`` is (month coordinate of retirement, proceeds in dollars); without ``acquired_months`` a cohort is paid
    on the day it enters service. It is written off from cost, from service on.
    """
    acquired = in_service_months if acquired_months is None else acquired_months
    stated = [
        cost_usd,
        residual_usd,
        in_service_months,
        life_months,
        declining_factor,
        *disposal,
        acquired,
    ]
    stated += [cost_usd, in_service_months]
    columns = np.broadcast_arrays(
        *(np.atleast_1d(np.asarray(column, dtype=np.float64)) for column in stated)
    )
    return Cohorts(**dict(zip(Cohorts.__dataclass_fields__, columns, strict=True)))


def accumulated_cents(cohorts: Cohorts, until_months: Floats) -> NDArray[np.int64]:
    """Return depreciation charged until month coordinates of shape (cohorts, times), in cents; shape as given."""
    life = cohorts.life_months[:, None]
    elapsed = np.clip(until_months - cohorts.basis_months[:, None], 0.0, life)
    charged_before = (cents(cohorts.cost_usd) - cents(cohorts.basis_usd))[:, None]
    base = (cents(cohorts.basis_usd) - cents(cohorts.residual_usd))[:, None]
    straight = base * (elapsed / life)
    if not np.any(cohorts.declining_factor > 0):
        return charged_before + whole_cents(straight)
    # Cumulative depreciation in cents after each own month, shape (cohorts, longest life + 1).
    basis = cents(cohorts.basis_usd).astype(float)
    residual = cents(cohorts.residual_usd).astype(float)
    longest = int(cohorts.life_months.max(initial=1))
    table = np.zeros((cohorts.count, longest + 1))
    book = basis.copy()
    for k in range(longest):
        left = cohorts.life_months - k
        evenly = (book - residual) / np.maximum(left, 1)
        falling = np.minimum(book * cohorts.declining_factor / cohorts.life_months, book - residual)
        book = np.where(left > 0, book - np.maximum(evenly, falling), residual)
        table[:, k + 1] = basis - book
    before = np.minimum(np.floor(elapsed), life - 1).astype(np.int64)
    low = np.take_along_axis(table, before, axis=1)
    high = np.take_along_axis(table, before + 1, axis=1)
    declining = np.where(elapsed >= life, base, low + (high - low) * (elapsed - before))
    return charged_before + whole_cents(
        np.where(cohorts.declining_factor[:, None] > 0, declining, straight)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DepreciationSchedule:
    """The book life of every cohort inside the horizon, in cents.

    ``opening_book_cents`` has shape (cohorts,), all others (cohorts, periods). For every cohort and period

        opening + Σ acquired − Σ depreciation − Σ disposed book = closing book ≥ 0.
    """

    opening_book_cents: NDArray[np.int64]
    """Book value of what was owned before the horizon."""
    acquired_cents: NDArray[np.int64]
    """Cost of what is delivered and paid, in its month."""
    depreciation_cents: NDArray[np.int64]
    """The charge of each month."""
    disposed_book_cents: NDArray[np.int64]
    """Book value taken off the books on retirement."""
    proceeds_cents: NDArray[np.int64]
    """What retired assets were sold for."""
    held_months: Floats
    """Share of a calendar month each cohort was on the books in each period, by exact days."""

    @property
    def disposal_loss_cents(self) -> NDArray[np.int64]:
        """Book value not recovered on retirement; negative for a gain; shape (cohorts, periods)."""
        return self.disposed_book_cents - self.proceeds_cents

    @property
    def closing_book_cents(self) -> NDArray[np.int64]:
        """Book value at the end of each period, shape (cohorts, periods)."""
        change = self.acquired_cents - self.depreciation_cents - self.disposed_book_cents
        return self.opening_book_cents[:, None] + np.cumsum(change, axis=1)

    @property
    def carried_cents(self) -> NDArray[np.int64]:
        """Book value at each period's start, and the cost of what is acquired in it, shape (cohorts, periods)."""
        closing = self.closing_book_cents
        opening = np.concatenate([self.opening_book_cents[:, None], closing[:, :-1]], axis=1)
        return np.asarray(opening + self.acquired_cents, dtype=np.int64)


def depreciate(cohorts: Cohorts, edge_coordinates: Floats) -> DepreciationSchedule:
    """Return the depreciation schedule of every cohort over the periods between ``edge_coordinates`` (periods + 1)."""
    retired = cohorts.retired_months[:, None]
    acquired = cohorts.acquired_months[:, None]
    accumulated = accumulated_cents(cohorts, np.minimum(edge_coordinates[None, :], retired))
    cost = cents(cohorts.cost_usd)[:, None]
    low = edge_coordinates[None, :-1]
    high = edge_coordinates[None, 1:]
    enters = (low <= acquired) & (acquired < high)
    leaves = (low <= retired) & (retired < high)
    owned_before = (acquired < edge_coordinates[0]) & (retired >= edge_coordinates[0])
    # A cohort retired after its life is over has e > L, one retired before service e < 0: both are clipped.
    at_retirement = accumulated_cents(cohorts, np.where(np.isfinite(retired), retired, -np.inf))
    return DepreciationSchedule(
        opening_book_cents=np.where(owned_before, cost - accumulated[:, :1], 0)[:, 0],
        acquired_cents=np.where(enters, cost, 0),
        depreciation_cents=np.diff(accumulated, axis=1),
        disposed_book_cents=np.where(leaves, cost - at_retirement, 0),
        proceeds_cents=np.where(leaves, cents(cohorts.proceeds_usd)[:, None], 0),
        held_months=np.maximum(np.minimum(high, retired) - np.maximum(low, acquired), 0.0),
    )


def capital_charge_usd(schedule: DepreciationSchedule, annual_rate: float) -> Floats:
    """Return the cost of capital tied up in book value, in dollars, shape (cohorts, periods).

    charge = B·((1 + r)^(h/12) − 1), with B the book value at the period's start, construction in progress included, or
    the cost of what was acquired in it, and h the share of a month it was held. Charged at the period's end,
    depreciation plus this charge has the same present value as cost less discounted residual (Lücke's theorem):
    spreading a purchase over its life loses nothing.
    """
    growth: Floats = np.expm1(np.log1p(annual_rate) * schedule.held_months / MONTHS_PER_YEAR)
    return usd(schedule.carried_cents) * growth


def property_tax_usd(schedule: DepreciationSchedule, annual_rate: float) -> Floats:
    """Return property tax, in dollars, shape (cohorts, periods): B·r·h/12, with B and h as for the capital charge.

    Hardware is assessed at its book value: what share of cost assessors take by age was not found in public.
    """
    return usd(schedule.carried_cents) * (annual_rate / MONTHS_PER_YEAR) * schedule.held_months


@dataclass(frozen=True, slots=True, kw_only=True)
class ResaleCurve:
    """Resale price of a used server as a share of its price when new, by age.

    The share is 1 at age zero and as stated at each age; between two ages, and beyond the last, it falls evenly in
    ratio (beyond: as over the last step). That shape is our assumption, the points are the catalogue's or the user's.
    """

    age_months: tuple[float, ...]
    """Rising, above zero; at least one."""
    fractions: tuple[float, ...]
    """Share of the price when new at each age; above zero."""
    multiplier: float = 1.0
    """Factor on every share; the product is never above 1, since used hardware does not fetch more than new."""

    def fraction(self, age_months: ArrayLike) -> Floats:
        """Return min(1, multiplier·exp(interpolated ln share)) at these ages; shape as given."""
        ages = np.array([0.0, *self.age_months])
        logs = np.log([1.0, *self.fractions])
        age = np.maximum(np.asarray(age_months, dtype=np.float64), 0.0)
        beyond = np.maximum(age - ages[-1], 0.0) * (logs[-1] - logs[-2]) / (ages[-1] - ages[-2])
        share: Floats = self.multiplier * np.exp(np.interp(age, ages, logs) + beyond)
        return np.minimum(share, 1.0)


MACRS_5_YEAR_HALF_YEAR = np.array([0.2000, 0.3200, 0.1920, 0.1152, 0.1152, 0.0576])
"""Five-year property (computers and peripherals), half-year convention: IRS Publication 946, Table A-1."""
LOSS_LIMIT_FRACTION = 0.8
"""Share of a later year's income that carried losses may offset: 26 U.S.C. §172(a)(2)."""


class LossRule(StrEnum):
    """Treatment of a tax loss in the year it is made."""

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
    future_profit: str = "uncertain"
    """Or probable: then losses carried are an asset (IAS 12.34, ASC 740-10-30-5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxDeductions:
    """Tax depreciation and gains on disposals, in cents, shape (cohorts, periods)."""

    deduction_cents: NDArray[np.int64]
    """Tax depreciation of the period, bonus included."""
    gain_cents: NDArray[np.int64]
    """Proceeds less the tax basis left, on disposal; negative for a loss."""
    before_cents: NDArray[np.int64]
    """Deducted before the first period, shape (cohorts,)."""


def tax_depreciation(cohorts: Cohorts, grid: MonthGrid, bonus_fraction: float) -> TaxDeductions:
    """Return tax depreciation and disposal gains of every cohort by period.

    Half-year convention on disposal: the year of disposal takes half of its table percentage; an asset bought
    and disposed of in one tax year takes nothing, bonus included.
    """
    periods = grid.period_count  # months from January of the start year to coordinate 0
    january = grid.start.month - 1
    deduction, gain = (np.zeros((cohorts.count, periods), dtype=np.int64) for _ in range(2))
    before = np.zeros(cohorts.count, dtype=np.int64)
    for row in range(cohorts.count):
        served = bool(np.isfinite(cohorts.in_service_months[row]))
        service = (
            int(np.floor((cohorts.in_service_months if served else cohorts.acquired_months)[row]))
            + january
        )
        retired = cohorts.retired_months[row]
        leaves = int(np.floor(retired)) if np.isfinite(retired) else None
        first_year = service // MONTHS_PER_YEAR
        fractions = (1.0 - bonus_fraction) * MACRS_5_YEAR_HALF_YEAR
        fractions[0] += bonus_fraction
        if leaves is not None and (
            held := (leaves + january) // MONTHS_PER_YEAR - first_year
        ) < len(fractions):
            fractions[held] *= 0.5 * (held > 0)
            fractions[held + 1 :] = 0.0
        # What is never placed in service deducts nothing: its basis is its cost until it is sold (Publication 946).
        fractions *= served
        # Months from the asset's first to its last deduction, as months since January of the start year.
        month = np.arange(service, (first_year + len(fractions)) * MONTHS_PER_YEAR)
        year = month // MONTHS_PER_YEAR - first_year
        period = month - january
        in_use = np.ones(month.shape, dtype=bool) if leaves is None else period <= leaves
        months_in_year = np.bincount(year[in_use], minlength=len(fractions))
        monthly = np.where(in_use, fractions[year] / np.maximum(months_in_year[year], 1), 0.0)
        monthly_cents = series_cents(monthly * cohorts.cost_usd[row])
        inside = (period >= 0) & (period < periods)
        deduction[row, period[inside]] = monthly_cents[inside]
        before[row] = monthly_cents[period < 0].sum()
        if leaves is not None and 0 <= leaves < periods:
            gain[row, leaves] = (
                cents(cohorts.proceeds_usd[row])
                - cents(cohorts.cost_usd[row])
                + monthly_cents.sum()
            )
    return TaxDeductions(deduction_cents=deduction, gain_cents=gain, before_cents=before)


class TaxCharge(NamedTuple):
    """Tax by period in cents, shape (periods,); cash and deferred sum to the tax expense of the accrual view."""

    cash_cents: NDArray[np.int64]
    """Tax paid; negative where a loss lowers the owner's other tax."""
    deferred_cents: NDArray[np.int64]
    """Tax expense of the books that is not yet paid; negative when it falls due."""
    on_end_gain_cents: int
    """Tax on what a sale of everything on the last day would add to taxable income, one figure."""
    on_interest_cents: NDArray[np.int64]
    """Cash tax with the interest of loans less that without, negative; apart, since it is no part of a plan's value."""


def income_tax(
    income_usd: tuple[Floats, Floats, Floats],
    grid: MonthGrid,
    rules: TaxRules,
    gain_usd: float = 0.0,
    begun: int = 0,
) -> TaxCharge:
    """Return cash and deferred tax from taxable income, pre-tax book income and interest of loans, (periods,) each.

    Tax expense of the books is rate × book income after interest; deferred tax is what of it is not cash tax. Where
    losses wait for profits that are not probable, no more of an asset is recognised than offsets deferred tax owed.
    ``gain_usd`` is what selling everything on the last day would add, ``begun`` deferred tax on the first, in cents.
    """
    taxable, book, interest = income_usd
    assessed, on_end_gain = assess_usd(taxable, tax_years(grid), rules, gain_usd)
    if rules.losses is LossRule.OFFSET:
        cash = _share_cents(taxable, rules.rate_fraction)
        deferred = _share_cents(book, rules.rate_fraction) - cash
        saved = series_cents(interest * rules.rate_fraction)
    else:
        cash = cents(assessed)
        expense = _share_cents(book - interest, rules.rate_fraction)
        saved = cash - cents(assess_usd(taxable - interest, tax_years(grid), rules)[0])
        owed = begun + np.cumsum(expense - cash + saved)
        deferred = np.diff(recognised(owed, rules), prepend=recognised(begun, rules))
    return TaxCharge(cash, deferred, int(cents(on_end_gain)), -saved)


def recognised(deferred_cents: NDArray[np.int64] | int, rules: TaxRules) -> NDArray[np.int64]:
    """Return deferred tax as the balance sheet has it: an asset (negative) only where there are profits to use it."""
    is_asset = rules.losses is LossRule.OFFSET or rules.future_profit == "probable"
    return np.asarray(deferred_cents if is_asset else np.maximum(deferred_cents, 0), dtype=np.int64)


def _share_cents(amount_usd: Floats, fraction: float) -> NDArray[np.int64]:
    """Return a share of a series, rounded on its running total in whole cents, as a workbook computes it."""
    running = cents(np.cumsum(amount_usd)).astype(np.float64)
    return np.diff(whole_cents(running * fraction), prepend=0)


def tax_years(grid: MonthGrid) -> NDArray[np.int64]:
    """Return the tax year of each period, shape (periods,)."""
    return np.array([edge.year for edge in grid.edges[:-1]], dtype=np.int64)


def assess_usd(
    taxable_income_usd: Floats, years: NDArray[np.int64], rules: TaxRules, end_gain_usd: float = 0.0
) -> tuple[Floats, float]:
    """Return tax by period before rounding, shape (periods,), and the tax on a gain on the last day.

    Tax is negative where a loss is offset at once. Where losses are carried forward it is assessed year by year, in the
    last period of each year; a loss on the last day is then worth what that year's income can use of it, and losses
    still carried at the end are worth nothing.
    """
    if rules.losses is LossRule.OFFSET:
        return rules.rate_fraction * taxable_income_usd, rules.rate_fraction * end_gain_usd
    first = np.flatnonzero(np.diff(years, prepend=years[0] - 1))
    last = np.append(first[1:], years.size) - 1
    tax = np.zeros(taxable_income_usd.shape)
    carried = 0.0
    on_gain = 0.0
    for period, income in zip(
        last.tolist(), np.add.reduceat(taxable_income_usd, first).tolist(), strict=True
    ):
        tax[period] = _year_usd(income, carried, rules)
        if period == years.size - 1:
            on_gain = _year_usd(income + end_gain_usd, carried, rules) - tax[period]
        carried += max(-income, 0.0) - min(carried, LOSS_LIMIT_FRACTION * max(income, 0.0))
    return tax, float(on_gain)


def _year_usd(income_usd: float, carried_usd: float, rules: TaxRules) -> float:
    """Return a year's tax on its income less the carried losses that it may use."""
    offset = min(carried_usd, LOSS_LIMIT_FRACTION * max(income_usd, 0.0))
    return rules.rate_fraction * max(income_usd - offset, 0.0)
