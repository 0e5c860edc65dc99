from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.finance.depreciation import (
    Cohorts,
    DepreciationSchedule,
    ResaleCurve,
    capital_charge_usd,
    depreciate,
    make_cohorts,
)
from planner.finance.ledger import cents
from planner.finance.present_value import discount_factors

COSTS = st.floats(0, 5e7)


def schedule_of(cohorts: Cohorts, months: int = 36) -> DepreciationSchedule:
    return depreciate(cohorts, np.arange(months + 1.0))


def test_owned_before_and_sold_in_the_first_month() -> None:
    """12 of 36 months are past; half a month is charged, and the rest written off."""
    schedule = schedule_of(make_cohorts([36_000.0], [-12.0], disposal=(0.5, 0.0)))
    assert schedule.opening_book_cents.tolist() == [2_400_000]
    assert schedule.depreciation_cents[0, 0] == 50_000
    assert schedule.disposed_book_cents[0, 0] == 2_350_000
    assert not schedule.closing_book_cents.any()


def test_in_service_after_the_horizon_leaves_no_trace() -> None:
    schedule = schedule_of(make_cohorts([36_000.0], [36.0]))
    assert not schedule.acquired_cents.any()
    assert not schedule.closing_book_cents.any()


@pytest.mark.parametrize(
    ("proceeds", "loss_cents"), [(0.0, 2_000_000), (15_000.0, 500_000), (26_000.0, -600_000)]
)
def test_retired_early_writes_off_what_the_sale_does_not_recover(
    proceeds: float, loss_cents: int
) -> None:
    schedule = schedule_of(make_cohorts([30_000.0], [0.0], disposal=(12.0, proceeds)))
    assert int(schedule.depreciation_cents.sum()) == 1_000_000
    assert schedule.disposal_loss_cents[0, 12] == loss_cents
    assert schedule.proceeds_cents[0, 12] == round(proceeds * 100)
    assert np.all(schedule.closing_book_cents[0, 12:] == 0)


def test_retired_mid_month_is_charged_to_the_day() -> None:
    schedule = schedule_of(make_cohorts([36_000.0], [0.0], disposal=(1.25, 0.0)))
    assert schedule.depreciation_cents[0, :3].tolist() == [100_000, 25_000, 0]


def test_retired_after_its_life_leaves_the_residual_to_write_off() -> None:
    schedule = schedule_of(
        make_cohorts(
            [36_000.0], [0.0], residual_usd=3_600.0, life_months=12, disposal=(20.0, 4_000.0)
        )
    )
    assert schedule.closing_book_cents[0, 15] == 360_000
    assert schedule.disposal_loss_cents[0, 20] == -40_000


@given(
    cost=COSTS,
    residual_share=st.floats(0, 1),
    life=st.integers(1, 84),
    start=st.floats(-90, 40),
    factor=st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0]),
    horizon=st.integers(1, 60),
)
def test_every_cohort_keeps_its_books(
    cost: float, residual_share: float, life: int, start: float, factor: float, horizon: int
) -> None:
    cohorts = make_cohorts(
        [cost],
        [start],
        residual_usd=cost * residual_share,
        life_months=life,
        declining_factor=factor,
    )
    schedule = schedule_of(cohorts, horizon)
    assert np.all(schedule.depreciation_cents >= 0)
    assert np.all(schedule.closing_book_cents >= 0)
    whole = depreciate(cohorts, np.arange(-100.0, 200.0))
    assert int(whole.depreciation_cents.sum()) == int(cents(cost) - cents(cost * residual_share))
    assert np.array_equal(
        whole.depreciation_cents[:, 100 : 100 + horizon], schedule.depreciation_cents
    )  # a month's charge does not depend on the horizon it is seen in


@given(cost=COSTS, start=st.floats(0, 30), held=st.floats(0, 50), proceeds=st.floats(0, 1e6))
def test_retirement_accounts_for_the_whole_cost(
    cost: float, start: float, held: float, proceeds: float
) -> None:
    cohorts = make_cohorts([cost], [start], life_months=36, disposal=(start + held, proceeds))
    schedule = depreciate(cohorts, np.arange(101.0))
    spent = (
        schedule.depreciation_cents.sum()
        + schedule.disposal_loss_cents.sum()
        + schedule.proceeds_cents.sum()
    )
    assert int(spent) == int(cents(cost))
    assert schedule.closing_book_cents[0, -1] == 0


@pytest.mark.parametrize("factor", [0.0, 2.0])
@pytest.mark.parametrize("rate", [0.0, 0.1, 0.25])
def test_depreciation_and_capital_charge_have_the_present_value_of_the_purchase(
    factor: float, rate: float
) -> None:
    # Lücke's theorem: PV(depreciation + charge on opening book) = cost − PV(residual).
    cohorts = make_cohorts([1_000_000.0], [0.0], residual_usd=100_000.0, declining_factor=factor)
    schedule = schedule_of(cohorts)
    charge = capital_charge_usd(schedule, rate)
    full_cost = schedule.depreciation_cents[0] / 100 + charge[0]
    at_month_ends = discount_factors(rate, np.arange(1, 37))
    assert float(full_cost @ at_month_ends) == pytest.approx(
        1_000_000 - 100_000 * at_month_ends[-1], abs=0.01
    )


def test_capital_is_charged_for_the_days_it_was_held() -> None:
    schedule = schedule_of(
        make_cohorts([12_000.0, 12_000.0], [0.75, 0.0], disposal=([np.inf, 1.5], [0.0, 0.0]))
    )
    charge = capital_charge_usd(schedule, 0.12)
    assert charge[0, 0] == pytest.approx(12_000 * (1.12 ** (0.25 / 12) - 1))
    assert charge[1, 0] == pytest.approx(12_000 * (1.12 ** (1 / 12) - 1))
    book = schedule.closing_book_cents[1, 0] / 100
    assert charge[1, 1] == pytest.approx(book * (1.12 ** (0.5 / 12) - 1))
    assert not charge[1, 2:].any()


def test_a_resale_curve_meets_its_points_and_falls_evenly_in_ratio_between_and_beyond() -> None:
    curve = ResaleCurve(age_months=(12.0, 36.0), fractions=(0.6, 0.3))
    found = curve.fraction([[0, 6, 12], [24, 36, 60]])
    assert found == pytest.approx(np.array([[1, 0.6**0.5, 0.6], [0.18**0.5, 0.3, 0.15]]))
    assert curve.fraction(-3.0) == 1.0  # not yet delivered
    one_point = ResaleCurve(age_months=(36.0,), fractions=(0.3,))
    assert one_point.fraction([18, 72]) == pytest.approx([0.3**0.5, 0.09])


def test_a_multiplier_scales_resale_but_never_above_new() -> None:
    curve = ResaleCurve(age_months=(12.0, 36.0), fractions=(0.6, 0.3), multiplier=1.5)
    assert curve.fraction([0, 12, 36]) == pytest.approx([1.0, 0.9, 0.45])
    worthless = ResaleCurve(age_months=(12.0,), fractions=(0.6,), multiplier=0.0)
    assert not worthless.fraction([0, 5, 90]).any()


def test_what_waits_is_on_the_books_at_cost() -> None:
    """Paid in the second month, in service from the middle of the fourth; another never, and sold in the sixth."""
    cohorts = make_cohorts(
        [3_600.0, 3_600.0],
        [3.5, np.inf],
        acquired_months=[1.25, 1.25],
        disposal=([np.inf, 5.5], [0.0, 1_000.0]),
    )
    schedule = schedule_of(cohorts, 8)
    assert schedule.acquired_cents[:, 1].tolist() == [360_000, 360_000]
    assert schedule.depreciation_cents[0].tolist() == [
        0,
        0,
        0,
        5_000,
        10_000,
        10_000,
        10_000,
        10_000,
    ]
    assert not schedule.depreciation_cents[1].any()
    assert schedule.closing_book_cents[1].tolist() == [
        0,
        360_000,
        360_000,
        360_000,
        360_000,
        0,
        0,
        0,
    ]
    assert schedule.disposal_loss_cents[1, 5] == 260_000
    assert capital_charge_usd(schedule, 0.12)[0, 1] == pytest.approx(
        3_600 * (1.12 ** (0.75 / 12) - 1)
    )
