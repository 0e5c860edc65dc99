from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.demand.shape import Horizon, utc_offset_s
from planner.errors import ScenarioError
from planner.finance.months import MonthGrid
from planner.finance.tariffs import (
    EnergyTariff,
    TariffWindow,
    demand_charges_of_peaks_usd,
)

YEAR = MonthGrid(start=date(2026, 1, 1), horizon_months=12)
WEEKDAYS = frozenset(range(5))
WEEKEND = frozenset({5, 6})
NIGHT = TariffWindow(
    name="off-peak", price_usd_per_kwh=0.05, weekdays=WEEKDAYS, start_hour=20, end_hour=14
)
REST = TariffWindow(name="weekend", price_usd_per_kwh=0.04, weekdays=WEEKEND)


def test_offsets_change_on_the_right_hour() -> None:
    offsets = utc_offset_s(Horizon(start=YEAR.start, hours=YEAR.hour_count), "America/New_York")
    changes = np.flatnonzero(np.diff(offsets)) + 1
    moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=int(hour)) for hour in changes]
    assert moments == [datetime(2026, 3, 8, 7, tzinfo=UTC), datetime(2026, 11, 1, 6, tzinfo=UTC)]


def test_a_ratchet_bills_the_earlier_peak() -> None:
    tariff = EnergyTariff(
        windows=(TariffWindow(name="flat", price_usd_per_kwh=0.05),),
        demand_charge_usd_per_kw_month=10.0,
        demand_ratchet_fraction=0.8,
        escalator_per_year=0.1,
    )
    grid = MonthGrid(start=date(2026, 1, 1), horizon_months=14)
    load = np.full(grid.hour_count, 50.0)
    load[10] = 100.0
    charges = demand_charges_of_peaks_usd(
        tariff, grid, np.maximum.reduceat(load, grid.edge_hours[:-1])
    )
    assert charges == pytest.approx([1_000] + [800] * 11 + [550] * 2)


@given(peak_start=st.integers(0, 23), peak_length=st.integers(1, 23))
def test_a_window_and_its_complement_always_cover_the_day(
    peak_start: int, peak_length: int
) -> None:
    end = (peak_start + peak_length) % 24 or 24
    rest_end = peak_start or 24
    rest_start = end % 24
    tariff = EnergyTariff(
        windows=(
            TariffWindow(name="peak", price_usd_per_kwh=0.2, start_hour=peak_start, end_hour=end),
            TariffWindow(
                name="rest", price_usd_per_kwh=0.1, start_hour=rest_start, end_hour=rest_end
            ),
        )
    )
    assert tariff.price_table()[0, 0].sum() == pytest.approx(
        0.2 * peak_length + 0.1 * (24 - peak_length)
    )


def test_a_gap_in_one_season_names_the_months() -> None:
    peak = TariffWindow(
        name="peak", price_usd_per_kwh=0.2, weekdays=WEEKDAYS, start_hour=14, end_hour=20,
        months=frozenset(range(1, 13)) - {6, 7, 8, 12},
    )  # fmt: skip
    message = "no window covers Monday to Friday 14:00-20:00 in June to August and December"
    with pytest.raises(ScenarioError, match=message):
        EnergyTariff(windows=(peak, NIGHT, REST))


def test_a_tariff_full_of_holes_is_not_listed_to_the_end() -> None:
    one_by_one = tuple(
        TariffWindow(
            name=f"m{m}", price_usd_per_kwh=0.1, months=frozenset({m}), start_hour=0, end_hour=m
        )
        for m in range(1, 13)
    )
    with pytest.raises(ScenarioError, match="and 9 more blocks"):
        EnergyTariff(windows=one_by_one)
