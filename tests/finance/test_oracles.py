"""The vectorised finance functions against slow ones written from the definition, and against other libraries."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planner.finance.depreciation import depreciate, make_cohorts
from planner.finance.financing import DiscountTier, Quote
from planner.finance.months import MonthGrid, add_months
from planner.finance.present_value import CashFlows, internal_rate
from planner.finance.tariffs import (
    EnergyTariff,
    TariffWindow,
    demand_charges_of_peaks_usd,
    hourly_prices_usd_per_kwh,
)

START = date(2026, 1, 1)
DAYS = st.dates(min_value=date(2025, 6, 1), max_value=date(2028, 6, 1))


def days_in_month(day: date) -> int:
    first = day.replace(day=1)
    return (add_months(first, 1) - first).days


def straight_line_by_days(
    cost: Fraction, bought: date, life: int, grid: MonthGrid
) -> list[Fraction]:
    """Return exact monthly charges: each day takes 1/days of its month's even share until the life is used up."""
    left = Fraction(life)
    charges = {label: Fraction(0) for label in grid.labels}
    day = bought
    while left > 0:
        share = min(Fraction(1, days_in_month(day)), left)
        left -= share
        label = f"{day.year:04d}-{day.month:02d}"
        if label in charges and grid.start <= day < grid.end:
            charges[label] += cost * share / life
        day += timedelta(days=1)
    return list(charges.values())


@settings(max_examples=25)
@given(cost_cents=st.integers(0, 10**10), bought=DAYS, life=st.integers(1, 40))
def test_straight_line_against_exact_days(cost_cents: int, bought: date, life: int) -> None:
    grid = MonthGrid(start=START, horizon_months=36)
    cohorts = make_cohorts([cost_cents / 100], [grid.coordinate(bought)], life_months=life)
    ours = depreciate(cohorts, grid.edge_coordinates).depreciation_cents[0]
    exact = straight_line_by_days(Fraction(cost_cents), bought, life, grid)
    assert np.all(np.abs(ours - np.array([float(charge) for charge in exact])) <= 1.001)


def declining_month_by_month(cost: float, residual: float, life: int, factor: float) -> list[float]:
    book = cost
    charges = []
    for month in range(life):
        declining = book * factor / life
        straight = (book - residual) / (life - month)
        charge = min(max(declining, straight), book - residual)
        charges.append(charge)
        book -= charge
    return charges


@given(
    cost=st.integers(1, 10**8),
    residual_share=st.floats(0, 0.9),
    life=st.integers(1, 72),
    factor=st.sampled_from([1.25, 1.5, 2.0, 3.0]),
)
def test_declining_balance_against_a_loop(
    cost: int, residual_share: float, life: int, factor: float
) -> None:
    residual = round(cost * residual_share, 2)
    cohorts = make_cohorts(
        [cost], [0.0], residual_usd=residual, life_months=life, declining_factor=factor
    )
    ours = depreciate(cohorts, np.arange(life + 1.0)).depreciation_cents[0]
    exact = np.cumsum(declining_month_by_month(cost, residual, life, factor)) * 100
    assert np.all(np.abs(np.cumsum(ours) - exact) <= 0.51)


@settings(max_examples=40)
@given(flows=st.lists(st.integers(-1000, 1000), min_size=3, max_size=7))
def test_rates_against_the_roots_of_the_polynomial(flows: list[int]) -> None:
    assume(flows[0] != 0 and flows[-1] != 0)
    # Value = Σ flow·x^m with x = 1/(1 + i): positive real roots x, by companion matrix.
    roots = np.roots(flows[::-1])
    assume(
        all(abs(a - b) > 1e-2 for k, a in enumerate(roots) for b in roots[:k])
    )  # no near-double roots
    real = [root.real for root in roots if abs(root.imag) < 1e-9 and root.real > 0]
    near = [root for root in roots if 1e-9 <= abs(root.imag) < 1e-3]
    assume(not near)
    expected = sorted(x**-12 - 1 for x in real if 1e-6 < x**-12 < 1e6)
    rate = internal_rate(flows)
    assert rate == (pytest.approx(expected[0], rel=1e-5, abs=1e-8) if len(expected) == 1 else None)


@given(
    running=st.lists(st.integers(-100, 100), min_size=1, max_size=12),
    dated=st.lists(st.tuples(st.integers(0, 48), st.integers(-300, 300)), max_size=4),
)
def test_payback_against_a_walk(running: list[int], dated: list[tuple[int, int]]) -> None:
    quarters = 4 * len(running)
    dated = [(quarter, amount) for quarter, amount in dated if quarter <= quarters]
    plan = CashFlows(
        running_usd=np.array(running, dtype=float),
        edge_months=np.arange(len(running) + 1.0),
        dated_months=np.array([quarter / 4 for quarter, _ in dated]),
        dated_usd=np.array([amount for _, amount in dated], dtype=float),
    )
    last_loss = None
    total = Fraction(0)
    before = Fraction(0)
    for quarter in range(
        quarters + 1
    ):  # money moves evenly through a quarter and jumps at its start
        total = before + sum(amount for day, amount in dated if day == quarter)
        if before < 0 <= total:
            last_loss = Fraction(quarter)
        if quarter == quarters:
            break
        step = Fraction(running[quarter // 4], 4)
        if total < 0 <= total + step:
            last_loss = quarter - total / step
        before = total + step
    if total < 0:
        assert plan.payback_months() is None
    else:
        assert plan.payback_months() == pytest.approx(float((last_loss or 0) / 4), abs=1e-9)


@given(
    minima=st.lists(st.integers(1, 60), min_size=1, max_size=4, unique=True),
    discounts=st.lists(st.integers(0, 50), min_size=4, max_size=4),
    units=st.integers(0, 80),
)
def test_marginal_tiers_against_counting_units(
    minima: list[int], discounts: list[int], units: int
) -> None:
    tiers = tuple(
        DiscountTier(minimum_units=minimum, discount_fraction=discount / 100)
        for minimum, discount in zip(sorted(minima), discounts, strict=False)
    )
    quote = Quote(name="q", list_price_usd=1_000.0, tiers=tiers, tier_rule="marginal")
    total = 0.0
    for unit in range(1, units + 1):
        reached = [tier.discount_fraction for tier in tiers if tier.minimum_units <= unit]
        total += 1_000.0 * (1 - (reached[-1] if reached else 0.0))
    assert quote.order_cents(units) == pytest.approx(total * 100, abs=1)


@settings(max_examples=15)
@given(
    split=st.integers(1, 23),
    summer=st.sets(st.integers(1, 12), min_size=1, max_size=11),
    prices=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    start=DAYS,
)
def test_tariff_against_the_calendar(
    split: int, summer: set[int], prices: list[float], start: date
) -> None:
    winter = frozenset(range(1, 13)) - summer
    tariff = EnergyTariff(
        windows=(
            TariffWindow(
                name="night", price_usd_per_kwh=prices[0], months=frozenset(summer), end_hour=split
            ),
            TariffWindow(
                name="day", price_usd_per_kwh=prices[1], months=frozenset(summer), start_hour=split
            ),
            TariffWindow(name="winter", price_usd_per_kwh=prices[2], months=winter),
        ),
        demand_charge_usd_per_kw_month=7.0,
    )
    grid = MonthGrid(start=start, horizon_months=4)
    ours = hourly_prices_usd_per_kwh(tariff, grid)
    midnight = datetime(start.year, start.month, start.day)
    for hour in range(0, grid.hour_count, 11):
        moment = midnight + timedelta(hours=hour)
        in_summer = prices[0] if moment.hour < split else prices[1]
        assert ours[hour] == (in_summer if moment.month in summer else prices[2])
    load = np.abs(np.sin(np.arange(grid.hour_count)))
    charge = demand_charges_of_peaks_usd(
        tariff, grid, np.maximum.reduceat(load, grid.edge_hours[:-1])
    )
    for period in range(grid.period_count):
        peak = load[grid.hour_periods == period].max()
        assert charge[period] == pytest.approx(7.0 * peak * grid.month_fractions[period])
