"""Cost of energy and its emissions: hourly prices, escalators, demand charges, carbon.

A time-of-use tariff is a list of windows over the local calendar (months, weekdays, hours). Together they
must cover every hour of the year exactly once: a gap or an overlap is refused, and named. Prices step up once
a year, on the anniversary of the horizon's start, as supply contracts do.

Operational emissions are location-based, energy at the meter times the grid's intensity. Embodied emissions
are spread evenly over the service life, by exact days, whatever the books do: a shorter depreciation does not
make a server dirtier.
"""

from __future__ import annotations

import calendar
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from planner.arrays import Bools, Floats
from planner.demand.shape import Horizon, utc_offset_s
from planner.errors import Problem, raise_all
from planner.finance.months import MonthGrid
from planner.records import record
from planner.units import MONTHS_PER_YEAR

MONTH_NAMES = tuple(calendar.month_name[1:])
ALL_MONTHS = frozenset(range(1, 13))
ALL_WEEKDAYS = frozenset(range(7))
WEEKDAY_NAMES = tuple(calendar.day_name)
GRAMS_PER_KILOGRAM = 1000.0
KILOGRAMS_PER_TONNE = 1000.0
LONGEST_LIST = 3
"""Blocks named in full before the rest is counted."""


def _runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Return consecutive positions as (first, last) pairs."""
    # A run ends where the next position is not the one after.
    breaks = np.flatnonzero(np.diff(positions) != 1) + 1
    runs = np.split(positions, breaks)
    return [(int(run[0]), int(run[-1])) for run in runs]


def _named(positions: Sequence[int], names: Sequence[str]) -> str:
    """Return 'June to August and December' for the positions, or nothing when they are all of them."""
    if len(positions) == len(names):
        return ""
    spans = []
    for begin, end in _runs(positions):
        span = names[begin] if begin == end else f"{names[begin]} to {names[end]}"
        spans.append(span)
    return " and ".join(spans)


def describe_cells(cells: Bools) -> str:
    """Return the calendar hours in words: 'Monday to Friday 14:00-18:00 in June to August'.

    Cells have shape (12 months, 7 weekdays, 24 hours). Days with the same hours are named together, then
    months with the same days.
    """
    # The bytes of a week's cells are a key by which equal weeks find one another.
    weeks: dict[bytes, list[int]] = {}
    for month in range(12):
        if cells[month].any():
            week_cells = cells[month].tobytes()
            weeks.setdefault(week_cells, []).append(month)
    blocks: list[str] = []
    for months in weeks.values():
        in_months = _named(months, MONTH_NAMES)
        # All these months have the same week: the first one's stands for them.
        week = cells[months[0]]
        days_by_hours: dict[bytes, list[int]] = {}
        for day in range(7):
            if week[day].any():
                day_cells = week[day].tobytes()
                days_by_hours.setdefault(day_cells, []).append(day)
        for days in days_by_hours.values():
            priced_hours = np.flatnonzero(week[days[0]])
            spans = _runs(priced_hours.tolist())
            hours = " and ".join(f"{begin:02d}:00-{end + 1:02d}:00" for begin, end in spans)
            words = [_named(days, WEEKDAY_NAMES), hours]
            if in_months:
                words.append(f"in {in_months}")
            blocks.append(" ".join(word for word in words if word))
    text = "; ".join(blocks[:LONGEST_LIST])
    further = len(blocks) - LONGEST_LIST
    return f"{text}; and {further} more blocks" if further > 0 else text


@record
class TariffWindow:
    """One price over part of the local calendar."""

    name: str
    """What the bill calls it: peak, off-peak, summer."""
    price_usd_per_kwh: float
    """Energy price inside the window; a contract's price is never negative, whatever the market does."""
    months: frozenset[int] = ALL_MONTHS
    """Calendar months, 1 to 12."""
    weekdays: frozenset[int] = ALL_WEEKDAYS
    """Weekdays, 0 (Monday) to 6 (Sunday)."""
    start_hour: int = 0
    """First local hour, 0 to 23."""
    end_hour: int = 24
    """First local hour after it, 1 to 24; below ``start_hour`` the window wraps within each weekday."""

    def cells(self) -> Bools:
        """Return where the window applies, shape (12 months, 7 weekdays, 24 hours)."""
        # 0 to 24 is the whole day, which modulo 24 would be none; a window past midnight wraps.
        length = (self.end_hour - self.start_hour) % 24 or 24
        in_hours = (np.arange(24) - self.start_hour) % 24 < length
        months = range(1, 13)
        in_months = np.array([month in self.months for month in months])
        in_days = np.array([day in self.weekdays for day in range(7)])
        # One axis each, so that the product is the block of calendar hours.
        in_week = in_days[:, None] & in_hours
        return in_months[:, None, None] & in_week


@record
class EnergyTariff:
    """An electricity tariff, checked when constructed."""

    windows: tuple[TariffWindow, ...]
    """The energy prices; one window over everything is a flat tariff."""
    escalator_per_year: float = 0.0
    """Yearly rise of energy prices and demand charge."""
    demand_charge_usd_per_kw_month: float = 0.0
    """Charge per kW of the highest hour of each month."""
    demand_ratchet_fraction: float = 0.0
    """Bill at least this share of the highest peak of the eleven months before."""
    least_billed_kw: float = 0.0
    """Bill at least this, used or not: the minimum take of the contracted power."""

    def __post_init__(self) -> None:
        """Raise an error for a tariff with a gap, an overlap or an empty window."""
        empty = [window.name for window in self.windows if window.start_hour == window.end_hour]
        message = "the window is empty: start_hour equals end_hour"
        problems = [Problem(path=f"tariff.windows[{name}]", message=message) for name in empty]
        # At once: a window without hours would also be reported as a gap.
        raise_all(problems)
        covered = np.zeros((12, 7, 24), dtype=int)
        for position, window in enumerate(self.windows):
            cells = window.cells()
            covered += cells
            for earlier in self.windows[:position]:
                shared = cells & earlier.cells()
                if shared.any():
                    names = f"{earlier.name!r} and {window.name!r}"
                    message = f"{names} both cover {describe_cells(shared)}"
                    problems.append(Problem(path="tariff.windows", message=message))
        is_uncovered = covered == 0
        if is_uncovered.any():
            message = f"no window covers {describe_cells(is_uncovered)}"
            problems.append(
                Problem(path="tariff.windows", message=message, hint="every hour needs one price")
            )
        raise_all(problems)

    def price_table(self) -> Floats:
        """Return the price before escalation, shape (12 months, 7 weekdays, 24 hours)."""
        table = np.zeros((12, 7, 24))
        for window in self.windows:
            table[window.cells()] = window.price_usd_per_kwh
        return table


def escalation(grid: MonthGrid, escalator_per_year: float) -> Floats:
    """Return (1 + e)^(whole years since the start) of each period, shape (periods,)."""
    # A hair before an anniversary is the anniversary: offsets are differences of coordinates.
    years = np.floor(grid.offset_months / MONTHS_PER_YEAR + 1e-9)
    return (1.0 + escalator_per_year) ** years


def hourly_prices_usd_per_kwh(
    tariff: EnergyTariff, grid: MonthGrid, time_zone: str | None = None
) -> Floats:
    """Return the energy price of every hour of the horizon, shape (hours,).

    Without a time zone the horizon's own clock is local time; with one, its hours are UTC and the windows are
    read on local clocks, daylight saving included.
    """
    hours = np.arange(grid.hour_count)
    local = np.datetime64(grid.start, "h") + hours
    if time_zone is not None:
        horizon = Horizon(start=grid.start, hours=grid.hour_count)
        local += utc_offset_s(horizon, time_zone) // 3600
    days = local.astype("datetime64[D]")
    month = days.astype("datetime64[M]").astype(np.int64) % 12
    weekday = (days.astype(np.int64) + 3) % 7  # day 0, 1 January 1970, was a Thursday
    hour = (local - days).astype(np.int64)
    rise = escalation(grid, tariff.escalator_per_year)[grid.hour_periods]
    prices = tariff.price_table()[month, weekday, hour]
    hourly: Floats = prices * rise
    return hourly


def demand_charges_of_peaks_usd(tariff: EnergyTariff, grid: MonthGrid, peaks_kw: Floats) -> Floats:
    """Return the demand charge of each period from its highest hour, shape (periods, …) both ways.

    charge × max(peak of the month, ratchet × highest peak of the eleven months before, minimum take) × share of the
    month covered.
    """
    # The ratchet looks at measured peaks, not at billed ones, so it ends after eleven months.
    billed = peaks_kw.copy()
    if tariff.demand_ratchet_fraction > 0:
        for period in range(1, peaks_kw.shape[0]):
            year_start = max(0, period - 11)
            earlier = peaks_kw[year_start:period].max(axis=0)
            least_kw = tariff.demand_ratchet_fraction * earlier
            billed[period] = np.maximum(peaks_kw[period], least_kw)
    billed = np.maximum(billed, tariff.least_billed_kw)
    rate = tariff.demand_charge_usd_per_kw_month * escalation(grid, tariff.escalator_per_year)
    per_period = rate * grid.month_fractions
    # Transposed, periods are the last axis whatever follows them, and one rate a period meets any shape.
    return (billed.T * per_period).T


def operational_kg(energy_kwh: ArrayLike, intensity_g_per_kwh: ArrayLike) -> Floats:
    """Return kgCO2e = kWh · g/kWh / 1000; shapes broadcast (hourly, monthly, by cluster)."""
    return np.multiply(energy_kwh, intensity_g_per_kwh, dtype=np.float64) / GRAMS_PER_KILOGRAM


def embodied_kg(
    total_kg: ArrayLike,
    service_months: tuple[ArrayLike, ArrayLike],
    life_months: ArrayLike,
    edge_coordinates: Floats,
) -> Floats:
    """Return the embodied kgCO2e charged to each period, shape (cohorts, periods).

    ``service_months`` is (month coordinate in service, month coordinate retired or infinity). What is left of
    the life on early retirement is charged in the period of retirement: it was emitted for nothing else.
    """

    def column(amounts: ArrayLike) -> Floats:
        row = np.asarray(amounts, dtype=np.float64)
        return np.atleast_1d(row)[:, None]

    start, retired = (column(months) for months in service_months)
    edges = edge_coordinates[None, :]
    ages = (edges - start) / column(life_months)
    charged = np.clip(ages, 0.0, 1.0)
    # Retired early, all that is left is charged at once; after that the total stays at one.
    charged = np.where(edges > retired, 1.0, charged)
    return column(total_kg) * np.diff(charged, axis=1)


def carbon_cost_usd(emissions_kg: ArrayLike, price_usd_per_tonne: ArrayLike) -> Floats:
    """Return the cost of emissions at a carbon price; shapes broadcast."""
    tonnes = np.divide(emissions_kg, KILOGRAMS_PER_TONNE)
    return np.multiply(tonnes, price_usd_per_tonne, dtype=np.float64)
