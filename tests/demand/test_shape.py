from __future__ import annotations

from datetime import date

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.demand.shape import (
    Horizon,
    SeasonalWave,
    Shape,
    normalised_profile,
    shape_factor,
    weekly_profile,
)
from planner.errors import ScenarioError
from tests.demand.shared_traces import trace


def _summary(profile: tuple[float, ...]) -> tuple[float, float, float, float]:
    week = np.array(profile)
    return (
        week.max() / week.mean(),
        week.min() / week.mean(),
        week[120:].mean() / week[:120].mean(),
        week.mean(),
    )


@settings(deadline=None)
@given(st.floats(1.0, 8.0), st.floats(0.05, 2.5), st.integers(0, 23))
def test_peak_and_weekend_are_met_exactly(peak: float, weekend: float, hour: int) -> None:
    busiest = max(1.0, weekend) * 7 / (5 + 2 * weekend)
    if not busiest <= peak <= 20 * busiest:
        with pytest.raises(ScenarioError, match="cannot be met"):
            weekly_profile(
                peak_to_mean=busiest * 0.99 if busiest > 1.02 else 25 * busiest,
                weekend_fraction=weekend,
            )
        return
    got_peak, _, got_weekend, mean = _summary(
        weekly_profile(peak_to_mean=peak, weekend_fraction=weekend, peak_hour=hour)
    )
    assert (got_peak, got_weekend, mean) == pytest.approx((peak, weekend, 1.0), rel=1e-12)


@pytest.mark.parametrize(
    ("peak", "trough", "weekend"),
    [(1.67, 0.47, 0.57), (2.99, 0.10, 0.325), (2.19, 0.45, 0.57), (1.2, 0.8, 1.0)],
)
def test_trough_is_met_exactly_too(peak: float, trough: float, weekend: float) -> None:
    profile = weekly_profile(peak_to_mean=peak, trough_to_mean=trough, weekend_fraction=weekend)
    assert _summary(profile) == pytest.approx((peak, trough, weekend, 1.0), rel=1e-9)


@pytest.mark.parametrize(
    ("column", "peak", "weekend", "trough"),
    [("azure2024_conv", 1.67, 0.57, 0.47), ("azure2024_code", 2.99, 0.325, 0.10)],
)
def test_two_numbers_foretell_the_third_of_a_public_week(
    column: str, peak: float, weekend: float, trough: float
) -> None:
    """The class figures are those of the public week; the smooth day then lands near its trough unasked."""
    table = np.genfromtxt(trace("weekly_profile_168h.csv"), delimiter=",", names=True)
    got_peak, got_trough, got_weekend, _ = _summary(tuple(table[column]))
    assert (got_peak, got_trough, got_weekend) == pytest.approx((peak, trough, weekend), abs=0.01)
    derived = min(weekly_profile(peak_to_mean=peak, weekend_fraction=weekend))
    assert derived == pytest.approx(got_trough, rel=0.2)


def test_mean_over_a_week_is_one_in_every_zone() -> None:
    for name in ("UTC", "Asia/Kolkata", "America/New_York"):
        shape = Shape(
            weekly_profile=weekly_profile(peak_to_mean=1.8, weekend_fraction=0.6), timezone=name
        )
        factor = shape_factor(shape, Horizon(start=date(2026, 1, 7), hours=168))
        assert factor.mean() == pytest.approx(1.0, rel=1e-12)
        assert factor.max() == pytest.approx(1.8, rel=1e-12)


def test_season_has_mean_one_and_peaks_on_its_day() -> None:
    flat = weekly_profile(peak_to_mean=1.0)
    shape = Shape(weekly_profile=flat, season=SeasonalWave(amplitude_fraction=0.2, peak_day=32))
    factor = shape_factor(shape, Horizon(start=date(2026, 1, 1), hours=4 * 8766))
    assert factor.mean() == pytest.approx(1.0, abs=1e-3)
    assert factor.max() == pytest.approx(1.2)
    assert factor[:8760].argmax() == 31 * 24  # 1 February


def test_holiday_takes_its_local_day_only() -> None:
    shape = Shape(
        weekly_profile=weekly_profile(peak_to_mean=1.0),
        timezone="Asia/Tokyo",
        holidays=((date(2026, 1, 2), 0.25),),
    )
    factor = shape_factor(shape, Horizon(start=date(2026, 1, 1), hours=72))
    np.testing.assert_allclose(factor[15:39], 0.25)  # Tokyo is nine hours ahead
    np.testing.assert_allclose(np.delete(factor, np.s_[15:39]), 1.0)


@pytest.mark.parametrize(
    ("factors", "message"),
    [
        ([0.0] * 168, "all 168"),
        ([1.0] * 100 + [-1.0, float("nan")] + [1.0] * 66, "(?s)101.*102"),
    ],
)
def test_bad_profile_is_refused(factors: list[float], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        normalised_profile(factors)


@pytest.mark.parametrize(
    ("peak", "weekend", "trough", "message"),
    [
        (1.05, 0.5, None, "stand at 1.167 times"),
        (30.0, 1.0, None, "cannot be met"),
        (2.0, 0.5, 0.9, "above the mean of the quietest day"),
        (1.5, 1.0, 0.99, "cannot have peak"),
        (20.0, 1.0, 0.3, "a day of hours cannot have peak"),  # 0.7 / 19.7 is below 1 / 24
    ],
)
def test_impossible_weeks_are_refused_with_the_numbers(
    peak: float, weekend: float, trough: float | None, message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        weekly_profile(peak_to_mean=peak, weekend_fraction=weekend, trough_to_mean=trough)
