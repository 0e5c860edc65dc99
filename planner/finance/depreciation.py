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

from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from planner.arrays import Cents, Floats
from planner.finance.ledger import cents, series_cents, usd, whole_cents, zero_cents
from planner.finance.months import MonthGrid
from planner.records import record
from planner.units import MONTHS_PER_YEAR

DEFAULT_LIFE_MONTHS = 36
"""The three-year depreciation horizon of the decision this planner is for."""
STRAIGHT_LINE = 0.0
"""The declining-balance factor that means straight line."""
NEVER = np.inf


@record
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
    # In the order of the fields of Cohorts: the basis is the cost, from service on.
    columns = [
        cost_usd,
        residual_usd,
        in_service_months,
        life_months,
        declining_factor,
        *disposal,
        acquired,
        cost_usd,
        in_service_months,
    ]
    arrays = [np.atleast_1d(np.asarray(column, dtype=np.float64)) for column in columns]
    columns_alike = np.broadcast_arrays(*arrays)
    by_field = zip(Cohorts.__dataclass_fields__, columns_alike, strict=True)
    return Cohorts(**dict(by_field))


def accumulated_cents(cohorts: Cohorts, until_months: Floats) -> Cents:
    """Return depreciation charged until month coordinates of shape (cohorts, times), in cents; shape as given."""
    life = cohorts.life_months[:, None]
    basis_cents = cents(cohorts.basis_usd)
    residual_cents = cents(cohorts.residual_usd)
    # Nothing is charged before the basis holds, and no more once the life is over.
    since_basis = until_months - cohorts.basis_months[:, None]
    elapsed = np.clip(since_basis, 0.0, life)
    restated = cents(cohorts.cost_usd) - basis_cents
    charged_before = restated[:, None]
    base = (basis_cents - residual_cents)[:, None]
    straight = base * (elapsed / life)
    # The loop below runs a month at a time; straight line, the usual method, needs none.
    if not np.any(cohorts.declining_factor > 0):
        return charged_before + whole_cents(straight)
    # Cumulative depreciation in cents after each own month, shape (cohorts, longest life + 1).
    basis = basis_cents.astype(float)
    residual = residual_cents.astype(float)
    longest = int(cohorts.life_months.max(initial=1))
    table = np.zeros((cohorts.count, longest + 1))
    book = basis.copy()
    for k in range(longest):
        months_left = cohorts.life_months - k
        base_left = book - residual
        evenly = base_left / np.maximum(months_left, 1)
        falling = book * cohorts.declining_factor / cohorts.life_months
        # A steep factor would go below the residual.
        falling = np.minimum(falling, base_left)
        # The larger of the two: declining balance switches to straight line where that writes off more.
        charge = np.maximum(evenly, falling)
        book = np.where(months_left > 0, book - charge, residual)
        table[:, k + 1] = basis - book
    # The month in progress; on the last day of the life it is the last one, since none comes after.
    current_month = np.minimum(np.floor(elapsed), life - 1)
    whole_months = current_month.astype(np.int64)
    low = np.take_along_axis(table, whole_months, axis=1)
    high = np.take_along_axis(table, whole_months + 1, axis=1)
    within_month = low + (high - low) * (elapsed - whole_months)
    # Inside an own month the charge grows evenly; at the end of life it is the whole base to the cent.
    declining = np.where(elapsed >= life, base, within_month)
    is_declining = cohorts.declining_factor[:, None] > 0
    return charged_before + whole_cents(np.where(is_declining, declining, straight))


@record
class DepreciationSchedule:
    """The book life of every cohort inside the horizon, in cents.

    ``opening_book_cents`` has shape (cohorts,), all others (cohorts, periods). For every cohort and period

        opening + Σ acquired − Σ depreciation − Σ disposed book = closing book ≥ 0.
    """

    opening_book_cents: Cents
    """Book value of what was owned before the horizon."""
    acquired_cents: Cents
    """Cost of what is delivered and paid, in its month."""
    depreciation_cents: Cents
    """The charge of each month."""
    disposed_book_cents: Cents
    """Book value taken off the books on retirement."""
    proceeds_cents: Cents
    """What retired assets were sold for."""
    held_months: Floats
    """Share of a calendar month each cohort was on the books in each period, by exact days."""

    @property
    def disposal_loss_cents(self) -> Cents:
        """Book value not recovered on retirement; negative for a gain; shape (cohorts, periods)."""
        return self.disposed_book_cents - self.proceeds_cents

    @property
    def closing_book_cents(self) -> Cents:
        """Book value at the end of each period, shape (cohorts, periods)."""
        change = self.acquired_cents - self.depreciation_cents - self.disposed_book_cents
        return self.opening_book_cents[:, None] + np.cumsum(change, axis=1)

    @property
    def carried_cents(self) -> Cents:
        """Book value at each period's start, and the cost of what is acquired in it, shape (cohorts, periods)."""
        closing = self.closing_book_cents
        opening_book = self.opening_book_cents[:, None]
        previous = closing[:, :-1]
        opening = np.concatenate([opening_book, previous], axis=1)
        return opening + self.acquired_cents


def depreciate(cohorts: Cohorts, edge_coordinates: Floats) -> DepreciationSchedule:
    """Return the depreciation schedule of every cohort over the periods between ``edge_coordinates`` (periods + 1)."""
    retired = cohorts.retired_months[:, None]
    acquired = cohorts.acquired_months[:, None]
    # After retirement nothing more is charged.
    times = np.minimum(edge_coordinates[None, :], retired)
    accumulated = accumulated_cents(cohorts, times)
    cost = cents(cohorts.cost_usd)[:, None]
    low = edge_coordinates[None, :-1]
    high = edge_coordinates[None, 1:]
    # Periods are half-open, so a delivery at an edge belongs to the month that begins there.
    enters = (low <= acquired) & (acquired < high)
    leaves = (low <= retired) & (retired < high)
    start = edge_coordinates[0]
    owned_before = (acquired < start) & (retired >= start)
    opening_cost = cost - accumulated[:, :1]
    opening_book = np.where(owned_before, opening_cost, 0)
    # What is never retired is read before its first charge, where it has a value; it is not used.
    retirement = np.where(np.isfinite(retired), retired, -np.inf)
    # A cohort retired after its life is over has e > L, one retired before service e < 0: both are clipped.
    at_retirement = accumulated_cents(cohorts, retirement)
    proceeds = cents(cohorts.proceeds_usd)[:, None]
    held_until = np.minimum(high, retired)
    held_months = held_until - np.maximum(low, acquired)
    return DepreciationSchedule(
        opening_book_cents=opening_book[:, 0],
        acquired_cents=np.where(enters, cost, 0),
        depreciation_cents=np.diff(accumulated, axis=1),
        disposed_book_cents=np.where(leaves, cost - at_retirement, 0),
        proceeds_cents=np.where(leaves, proceeds, 0),
        held_months=np.maximum(held_months, 0.0),
    )


def capital_charge_usd(schedule: DepreciationSchedule, annual_rate: float) -> Floats:
    """Return the cost of capital tied up in book value, in dollars, shape (cohorts, periods).

    charge = B·((1 + r)^(h/12) − 1), with B the book value at the period's start, construction in progress included, or
    the cost of what was acquired in it, and h the share of a month it was held. Charged at the period's end,
    depreciation plus this charge has the same present value as cost less discounted residual (Lücke's theorem):
    spreading a purchase over its life loses nothing.
    """
    exponent = np.log1p(annual_rate) * schedule.held_months / MONTHS_PER_YEAR
    growth: Floats = np.expm1(exponent)
    return usd(schedule.carried_cents) * growth


def property_tax_usd(schedule: DepreciationSchedule, annual_rate: float) -> Floats:
    """Return property tax, in dollars, shape (cohorts, periods): B·r·h/12, with B and h as for the capital charge.

    Hardware is assessed at its book value: what share of cost assessors take by age was not found in public.
    """
    monthly_rate = annual_rate / MONTHS_PER_YEAR
    return usd(schedule.carried_cents) * monthly_rate * schedule.held_months


@record
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
        ages_stated = np.asarray(age_months, dtype=np.float64)
        age = np.maximum(ages_stated, 0.0)
        # Beyond the last stated age the share falls in the ratio of the last step.
        months_beyond = np.maximum(age - ages[-1], 0.0)
        log_fall = logs[-1] - logs[-2]
        last_step_months = ages[-1] - ages[-2]
        beyond = months_beyond * log_fall / last_step_months
        log_share = np.interp(age, ages, logs) + beyond
        share: Floats = self.multiplier * np.exp(log_share)
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


@record
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


@record
class TaxDeductions:
    """Tax depreciation and gains on disposals, in cents, shape (cohorts, periods)."""

    deduction_cents: Cents
    """Tax depreciation of the period, bonus included."""
    gain_cents: Cents
    """Proceeds less the tax basis left, on disposal; negative for a loss."""
    before_cents: Cents
    """Deducted before the first period, shape (cohorts,)."""


def tax_depreciation(cohorts: Cohorts, grid: MonthGrid, bonus_fraction: float) -> TaxDeductions:
    """Return tax depreciation and disposal gains of every cohort by period.

    Half-year convention on disposal: the year of disposal takes half of its table percentage; an asset bought
    and disposed of in one tax year takes nothing, bonus included.
    """
    periods = grid.period_count
    # Months from January of the start year to coordinate 0: tax years are calendar years.
    january = grid.start.month - 1
    shape = (cohorts.count, periods)
    deduction = zero_cents(shape)
    gain = zero_cents(shape)
    deducted_before = zero_cents(cohorts.count)
    for row in range(cohorts.count):
        served = bool(np.isfinite(cohorts.in_service_months[row]))
        first_months = cohorts.in_service_months if served else cohorts.acquired_months
        service = int(np.floor(first_months[row])) + january
        retired = cohorts.retired_months[row]
        retired_period = None
        if np.isfinite(retired):
            retired_period = int(np.floor(retired))
        first_year = service // MONTHS_PER_YEAR
        # The bonus is deducted at once, and the table applies to the rest.
        fractions = (1.0 - bonus_fraction) * MACRS_5_YEAR_HALF_YEAR
        fractions[0] += bonus_fraction
        if retired_period is not None:
            years_held = (retired_period + january) // MONTHS_PER_YEAR - first_year
            # Half of the year of disposal, nothing where that is the year of purchase; after it nothing.
            fractions[years_held : years_held + 1] *= 0.5 * (years_held > 0)
            fractions[years_held + 1 :] = 0.0
        # What is never placed in service deducts nothing: its basis is its cost until it is sold (Publication 946).
        fractions *= served
        # Months from the asset's first to its last deduction, as months since January of the start year.
        end_month = (first_year + len(fractions)) * MONTHS_PER_YEAR
        month = np.arange(service, end_month)
        year = month // MONTHS_PER_YEAR - first_year
        period = month - january
        in_use = np.ones(month.shape, dtype=bool)
        if retired_period is not None:
            in_use = period <= retired_period
        months_in_year = np.bincount(year[in_use], minlength=len(fractions))
        # A year of which no month is left deducts nothing, and must not divide by none.
        months_used = np.maximum(months_in_year[year], 1)
        per_month = fractions[year] / months_used
        monthly = np.where(in_use, per_month, 0.0)
        monthly_cents = series_cents(monthly * cohorts.cost_usd[row])
        # What was deducted before the horizon only lowers the basis.
        inside = (period >= 0) & (period < periods)
        deduction[row, period[inside]] = monthly_cents[inside]
        deducted_before[row] = monthly_cents[period < 0].sum()
        if retired_period is not None and 0 <= retired_period < periods:
            proceeds = cents(cohorts.proceeds_usd[row])
            # Proceeds less the basis left: cost less all deductions.
            gain[row, retired_period] = (
                proceeds - cents(cohorts.cost_usd[row]) + monthly_cents.sum()
            )
    return TaxDeductions(deduction_cents=deduction, gain_cents=gain, before_cents=deducted_before)


class TaxCharge(NamedTuple):
    """Tax by period in cents, shape (periods,); cash and deferred sum to the tax expense of the accrual view."""

    cash_cents: Cents
    """Tax paid; negative where a loss lowers the owner's other tax."""
    deferred_cents: Cents
    """Tax expense of the books that is not yet paid; negative when it falls due."""
    on_end_gain_cents: int
    """Tax on what a sale of everything on the last day would add to taxable income, one figure."""
    on_interest_cents: Cents
    """Cash tax with the interest of loans less that without, negative; apart, since it is no part of a plan's value."""


def income_tax(
    income_usd: tuple[Floats, Floats, Floats],
    grid: MonthGrid,
    rules: TaxRules,
    gain_usd: float = 0.0,
    opening_deferred_cents: int = 0,
) -> TaxCharge:
    """Return cash and deferred tax from taxable income, pre-tax book income and interest of loans, (periods,) each.

    Tax expense of the books is rate × book income after interest; deferred tax is what of it is not cash tax. Where
    losses wait for profits that are not probable, no more of an asset is recognised than offsets deferred tax owed.
    ``gain_usd`` is what selling everything on the last day would add, ``begun`` deferred tax on the first, in cents.
    """
    taxable, book, interest = income_usd
    years = tax_years(grid)
    assessed, on_end_gain = assess_usd(taxable, years, rules, gain_usd)
    # Tax in proportion is rounded on its running total, as a workbook does; assessed by the year it is not.
    if rules.losses is LossRule.OFFSET:
        cash = _share_cents(taxable, rules.rate_fraction)
        deferred = _share_cents(book, rules.rate_fraction) - cash
        saved = series_cents(interest * rules.rate_fraction)
    else:
        cash = cents(assessed)
        expense = _share_cents(book - interest, rules.rate_fraction)
        # What interest saves is read by assessing twice: a loss may make it worth less than its share.
        with_interest, _ = assess_usd(taxable - interest, years, rules)
        saved = cash - cents(with_interest)
        owed = opening_deferred_cents + np.cumsum(expense - cash + saved)
        opening = recognised(opening_deferred_cents, rules)
        deferred = np.diff(recognised(owed, rules), prepend=opening)
    end_tax = int(cents(on_end_gain))
    return TaxCharge(cash, deferred, end_tax, -saved)


def recognised(deferred_cents: Cents | int, rules: TaxRules) -> Cents:
    """Return deferred tax as the balance sheet has it: an asset (negative) only where there are profits to use it."""
    is_asset = rules.losses is LossRule.OFFSET or rules.future_profit == "probable"
    recognised_cents = deferred_cents if is_asset else np.maximum(deferred_cents, 0)
    return np.asarray(recognised_cents, dtype=np.int64)


def _share_cents(amount_usd: Floats, fraction: float) -> Cents:
    """Return a share of a series, rounded on its running total in whole cents, as a workbook computes it."""
    running = cents(np.cumsum(amount_usd))
    running_share = running.astype(np.float64) * fraction
    return np.diff(whole_cents(running_share), prepend=0)


def tax_years(grid: MonthGrid) -> NDArray[np.int64]:
    """Return the tax year of each period, shape (periods,)."""
    years = [edge.year for edge in grid.edges[:-1]]
    return np.array(years, dtype=np.int64)


def assess_usd(
    taxable_income_usd: Floats, years: NDArray[np.int64], rules: TaxRules, end_gain_usd: float = 0.0
) -> tuple[Floats, float]:
    """Return tax by period before rounding, shape (periods,), and the tax on a gain on the last day.

    Tax is negative where a loss is offset at once. Where losses are carried forward it is assessed year by year, in the
    last period of each year; a loss on the last day is then worth what that year's income can use of it, and losses
    still carried at the end are worth nothing.
    """
    rate = rules.rate_fraction
    if rules.losses is LossRule.OFFSET:
        return rate * taxable_income_usd, rate * end_gain_usd
    # A year begins where its number changes; the first period always begins one.
    year_changes = np.diff(years, prepend=years[0] - 1)
    year_starts = np.flatnonzero(year_changes)
    next_starts = np.append(year_starts[1:], years.size)
    year_ends = next_starts - 1
    incomes = np.add.reduceat(taxable_income_usd, year_starts)
    tax = np.zeros(taxable_income_usd.shape)
    carried = 0.0
    on_gain = 0.0
    for period, income in zip(year_ends.tolist(), incomes.tolist(), strict=True):
        # A year is assessed in its last period, when its income is known.
        tax[period] = _year_usd(income, carried, rules)
        if period == years.size - 1:
            with_gain = _year_usd(income + end_gain_usd, carried, rules)
            on_gain = with_gain - tax[period]
        loss = max(-income, 0.0)
        carried += loss - _offset_usd(income, carried)
    return tax, float(on_gain)


def _year_usd(income_usd: float, carried_usd: float, rules: TaxRules) -> float:
    """Return a year's tax on its income less the carried losses that it may use."""
    taxed = income_usd - _offset_usd(income_usd, carried_usd)
    return rules.rate_fraction * max(taxed, 0.0)


def _offset_usd(income_usd: float, carried_usd: float) -> float:
    """Return the carried losses that a year's income may use."""
    return min(carried_usd, LOSS_LIMIT_FRACTION * max(income_usd, 0.0))
