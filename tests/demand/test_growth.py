from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.demand.plan import (
    ChangingGrowth,
    CompoundGrowth,
    Growth,
    SCurveGrowth,
    StepGrowth,
    TableGrowth,
    growth_multiplier,
    hourly_growth,
)
from planner.errors import ScenarioError
from planner.units import HOURS_PER_YEAR


def test_compound_growth_is_the_annual_factor_after_a_year() -> None:
    growth = CompoundGrowth(per_year=0.6)
    np.testing.assert_allclose(
        growth_multiplier(growth, [0.0, HOURS_PER_YEAR, 3 * HOURS_PER_YEAR]), [1, 1.6, 1.6**3]
    )


@given(st.floats(-0.9, 10), st.floats(0, 50_000), st.floats(0, 50_000))
def test_compound_growth_over_two_spans_multiplies(
    rate: float, first_h: float, second_h: float
) -> None:
    first, second, both = growth_multiplier(
        CompoundGrowth(per_year=rate), [first_h, second_h, first_h + second_h]
    )
    assert both == pytest.approx(first * second, rel=1e-9)


def test_s_curve_is_a_logistic_taken_from_its_start() -> None:
    """Half of the rise at 1.5 years: the logistic from which the start is taken away lies a little earlier."""
    growth = SCurveGrowth(ceiling_multiple=5.0, midpoint_years=1.5, steepness_per_year=2.0)
    years = np.linspace(0, 6, 50)
    centre = np.log(np.exp(3.0) - 2.0) / 2.0
    logistic = 1 / (1 + np.exp(-2.0 * (years - centre)))
    start = 1 / (1 + np.exp(2.0 * centre))
    expected = 1 + 4 * (logistic - start) / (1 - start)
    np.testing.assert_allclose(
        growth_multiplier(growth, years * HOURS_PER_YEAR), expected, rtol=1e-12
    )


@given(st.floats(0, 100), st.floats(1e-3, 50), st.floats(0.01, 100))
def test_s_curve_has_half_of_its_rise_behind_at_the_midpoint(
    ceiling: float, middle: float, k: float
) -> None:
    """However early, however flat."""
    growth = SCurveGrowth(ceiling_multiple=ceiling, midpoint_years=middle, steepness_per_year=k)
    start, half, later = growth_multiplier(
        growth, np.array([0.0, middle, 100.0 + 100.0 * middle]) * HOURS_PER_YEAR
    )
    assert start == pytest.approx(1.0, abs=1e-12)
    assert half == pytest.approx(1.0 + (ceiling - 1.0) / 2, rel=1e-9)
    assert later == pytest.approx(ceiling, rel=0.4, abs=0.4)


def test_an_early_midpoint_of_a_flat_curve_is_an_exponential_approach() -> None:
    """At k·midpoint = ln 2 the logistic has become 1 − 2^(−t / midpoint), and stays that for anything flatter."""
    years = np.linspace(0, 4, 30)
    for k in (0.1, 1.0, np.log(2.0) / 0.5):
        growth = SCurveGrowth(ceiling_multiple=3.0, midpoint_years=0.5, steepness_per_year=k)
        expected = 1 + 2 * (1 - 2 ** (-years / 0.5))
        np.testing.assert_allclose(
            growth_multiplier(growth, years * HOURS_PER_YEAR), expected, rtol=1e-9
        )


@given(st.floats(0, 100), st.floats(0.01, 50), st.floats(0.01, 50))
def test_s_curve_starts_at_one_and_stays_between_one_and_its_ceiling(
    ceiling: float, middle: float, k: float
) -> None:
    growth = SCurveGrowth(ceiling_multiple=ceiling, midpoint_years=middle, steepness_per_year=k)
    multiplier = growth_multiplier(growth, np.linspace(0, 30, 40) * HOURS_PER_YEAR)
    assert multiplier[0] == pytest.approx(1.0, abs=1e-12)
    low, high = sorted((1.0, ceiling))
    assert np.all((multiplier >= low - 1e-9) & (multiplier <= high + 1e-9))
    assert np.all(np.diff(multiplier) * np.sign(ceiling - 1.0) >= -1e-9)


def test_steps_hold_from_their_hour_on_in_any_order() -> None:
    growth = StepGrowth(steps=((200.0, 3.0), (100.0, 2.0)))
    np.testing.assert_array_equal(
        growth_multiplier(growth, [0, 99.5, 100, 150, 200, 1e6]), [1, 1, 2, 2, 3, 3]
    )


def test_table_joins_its_points_and_is_level_outside() -> None:
    growth = TableGrowth(hours_h=(10.0, 20.0), factors=(1.0, 3.0))
    np.testing.assert_allclose(growth_multiplier(growth, [0, 10, 15, 20, 99]), [1, 1, 2, 3, 3])


def test_changing_growth_multiplies_the_spans_at_their_own_rates() -> None:
    growth = ChangingGrowth(
        per_year=(0.6, -0.5, 1.0), begins_h=(HOURS_PER_YEAR / 2, HOURS_PER_YEAR)
    )
    multiplier = growth_multiplier(
        growth, np.array([0.0, 0.25, 0.5, 1.0, 1.5, 40.0]) * HOURS_PER_YEAR
    )
    np.testing.assert_allclose(
        multiplier, [1, 1.6**0.25, 1.6**0.5, 0.8**0.5, 1.6**0.5, 0.8**0.5 * 2.0**39]
    )


def test_two_steps_on_one_day_are_refused() -> None:
    with pytest.raises(ScenarioError, match="two steps at hour 5"):
        StepGrowth(steps=((1.0, 2.0), (5.0, 1.0), (5.0, 2.0)))


@pytest.mark.parametrize("hours", [1, 23, 24, 25, 26_304])
@pytest.mark.parametrize(
    "growth",
    [
        CompoundGrowth(per_year=0.6),
        CompoundGrowth(per_year=-0.4),
        SCurveGrowth(ceiling_multiple=5.0, midpoint_years=1.0, steepness_per_year=3.0),
        StepGrowth(steps=((12.0, 2.0),)),
        ChangingGrowth(per_year=(0.5, -0.3), begins_h=(13.0,)),
    ],
)
def test_hours_grow_as_their_middles_do(growth: Growth, hours: int) -> None:
    expected = growth_multiplier(growth, np.arange(hours) + 0.5)
    np.testing.assert_allclose(hourly_growth(growth, hours), expected, rtol=1e-13)
