from __future__ import annotations

import calendar
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.finance.months import MonthGrid, add_months

DATES = st.dates(min_value=date(2020, 1, 1), max_value=date(2040, 12, 31))


def test_three_years_from_the_first_of_a_month() -> None:
    grid = MonthGrid(start=date(2026, 3, 1), horizon_months=36)
    assert grid.end == date(2029, 3, 1)
    assert grid.period_count == 36
    assert grid.labels[:2] == ("2026-03", "2026-04")
    assert grid.labels[-1] == "2029-02"
    assert grid.hour_count == (date(2029, 3, 1) - date(2026, 3, 1)).days * 24
    assert np.array_equal(grid.month_fractions, np.ones(36))
    assert np.array_equal(grid.offset_months, np.arange(36))
    assert grid.period_hours[:3].tolist() == [31 * 24, 30 * 24, 31 * 24]


def test_a_horizon_from_mid_month_has_two_partial_periods() -> None:
    grid = MonthGrid(start=date(2026, 4, 16), horizon_months=3)
    assert grid.edges == (
        date(2026, 4, 16), date(2026, 5, 1), date(2026, 6, 1), date(2026, 7, 1), date(2026, 7, 16),
    )  # fmt: skip
    assert grid.month_fractions == pytest.approx([15 / 30, 1, 1, 15 / 31])
    assert grid.offset_months == pytest.approx([0, 0.5, 1.5, 2.5])


def test_a_month_added_to_its_last_day_stays_inside() -> None:
    assert add_months(date(2026, 1, 31), 1) == date(2026, 2, 28)
    assert add_months(date(2026, 12, 15), 1) == date(2027, 1, 15)
    assert add_months(date(2026, 1, 15), -2) == date(2025, 11, 15)


def test_a_date_is_a_month_coordinate_by_exact_days() -> None:
    grid = MonthGrid(start=date(2026, 3, 1), horizon_months=12)
    assert grid.coordinate(date(2026, 4, 16)) == 1.5
    assert grid.coordinate(date(2026, 2, 15)) == -0.5
    assert grid.coordinate(date(2027, 3, 1)) == 12.0


@given(start=DATES, months=st.integers(1, 72))
def test_periods_cover_the_horizon_without_gap(start: date, months: int) -> None:
    grid = MonthGrid(start=start, horizon_months=months)
    assert int(grid.period_hours.sum()) == grid.hour_count
    assert np.all(grid.period_hours > 0)
    assert list(grid.labels) == sorted(set(grid.labels))
    assert grid.hour_periods.shape == (grid.hour_count,)
    days = (grid.end - grid.start).days
    by_calendar = [
        (start + timedelta(days=d)).year * 12 + (start + timedelta(days=d)).month
        for d in range(days)
    ]
    assert np.array_equal(np.diff(grid.hour_periods[::24]), np.diff(by_calendar))


@given(start=DATES, day=DATES)
def test_coordinates_keep_the_order_of_dates(start: date, day: date) -> None:
    grid = MonthGrid(start=start, horizon_months=1)
    step = grid.coordinate(day + timedelta(days=1)) - grid.coordinate(day)
    assert step == pytest.approx(1 / calendar.monthrange(day.year, day.month)[1])


def test_hours_and_dates_give_the_same_coordinate() -> None:
    grid = MonthGrid(start=date(2026, 4, 16), horizon_months=24)
    days = np.array([-40, 0, 10, 15, 200, 700])
    by_date = np.array([grid.coordinate(grid.start + timedelta(days=int(d))) for d in days])
    assert np.array_equal(grid.coordinate_of_hour(days * 24.0), by_date)


@pytest.mark.parametrize("horizon_months", [36, 1])
def test_no_moment_rounds_out_of_its_month(horizon_months: int) -> None:
    """All 1,096 start dates of 2026 to 2028: at an edge its own coordinate, an instant earlier a lower one."""
    for start in (date(2026, 1, 1) + timedelta(days=day) for day in range(1096)):
        grid = MonthGrid(start=start, horizon_months=horizon_months)
        hours = grid.edge_hours.astype(float)
        assert np.array_equal(grid.coordinate_of_hour(hours), grid.edge_coordinates), start
        assert np.all(
            grid.coordinate_of_hour(np.nextafter(hours, -np.inf)) < grid.edge_coordinates
        ), start
        assert grid.coordinate_of_hour(np.array(np.inf)) == np.inf


@given(start=DATES, hours=st.lists(st.floats(-2_000.0, 30_000.0), min_size=2))
def test_coordinates_of_hours_keep_their_order_and_their_month(
    start: date, hours: list[float]
) -> None:
    grid = MonthGrid(start=start, horizon_months=36)
    times = np.sort(np.array(hours))
    coordinates = grid.coordinate_of_hour(times)
    assert np.all(np.diff(coordinates) >= 0)
    placed = np.searchsorted(grid.edge_coordinates, coordinates, side="right") - 1
    assert np.array_equal(placed, grid.period_of_hour(times))


def test_times_outside_the_horizon_are_marked() -> None:
    grid = MonthGrid(start=date(2026, 1, 1), horizon_months=2)
    inside = grid.period_of_hour(np.array([-1.0, 0.0, 743.9, 744.0, 59 * 24.0 - 0.1, 59 * 24.0]))
    assert inside.tolist() == [-1, 0, 0, 1, 1, 2]
