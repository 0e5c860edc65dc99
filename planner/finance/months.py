"""The calendar of a horizon: its months, their exact days and hours, and the position of dates.

A *month coordinate* is a date written as a real number: whole calendar months since the first day of the
month in which the horizon starts, plus the share of its own month that has passed, counted in exact days:

    coordinate(date) = 12·(year − year₀) + (month − month₀) + (day − 1) / days in that month

so 16 April, in a horizon that starts in March, is 1.5. A horizon that starts on the first of a month has one
period per month; one that starts mid-month has a partial first and a partial last period, so that every row
is still one calendar month and a pivot table sorts it.
"""

from __future__ import annotations

import calendar
import functools
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.units import HOURS_PER_DAY, HOURS_PER_YEAR, MONTHS_PER_YEAR

MAXIMUM_HORIZON_MONTHS = 600
"""Fifty years: beyond any hardware plan, so a longer horizon is a slip of the unit."""


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array made read-only."""
    array.setflags(write=False)
    return array


def add_months(start: date, months: int) -> date:
    """Return the same day of the month ``months`` later, or that month's last day where it is shorter."""
    position = start.year * MONTHS_PER_YEAR + start.month - 1 + months
    year = position // MONTHS_PER_YEAR
    month = position % MONTHS_PER_YEAR + 1
    _, length = calendar.monthrange(year, month)
    return date(year, month, min(start.day, length))


@dataclass(frozen=True, kw_only=True)  # without slots, for what is worked out once and kept
class MonthGrid:
    """The calendar months of a horizon, each a half-open period [start, end)."""

    start: date
    """First day of the horizon."""
    horizon_months: int
    """Length of the horizon in months."""

    @property
    def end(self) -> date:
        """The first day after the horizon."""
        return add_months(self.start, self.horizon_months)

    # A study posts ten thousand ledgers over one calendar, so what only depends on the calendar is worked out once. The
    # arrays are read-only, since all callers share them.

    @functools.cached_property
    def edges(self) -> tuple[date, ...]:
        """The period boundaries: the start, each first of a month inside, the end; one more than periods."""
        edges = [self.start]
        month_start = self.start.replace(day=1)
        for months in range(1, self.horizon_months + 1):
            edge = add_months(month_start, months)
            # A horizon from the first of a month ends on one, which is the end and no edge inside.
            if edge < self.end:
                edges.append(edge)
        return (*edges, self.end)

    @property
    def period_count(self) -> int:
        """Number of calendar months touched: the horizon's months, plus one when it starts mid-month."""
        return len(self.edges) - 1

    @functools.cached_property
    def labels(self) -> tuple[str, ...]:
        """The periods as ``2026-03``: text that sorts chronologically."""
        return tuple(f"{edge.year:04d}-{edge.month:02d}" for edge in self.edges[:-1])

    def coordinate(self, day: date) -> float:
        """Return a date's month coordinate, also before and after the horizon."""
        years = day.year - self.start.year
        months = years * MONTHS_PER_YEAR + day.month - self.start.month
        _, length = calendar.monthrange(day.year, day.month)
        return months + (day.day - 1) / length

    @functools.cached_property
    def edge_coordinates(self) -> Floats:
        """The month coordinates of the period boundaries, shape (periods + 1,)."""
        coordinates = [self.coordinate(edge) for edge in self.edges]
        return _read_only(np.array(coordinates))

    @property
    def month_fractions(self) -> Floats:
        """The share of a full calendar month each period covers, by exact days, shape (periods,)."""
        return np.diff(self.edge_coordinates)

    @property
    def offset_months(self) -> Floats:
        """Months from the start of the horizon to the start of each period, shape (periods,)."""
        return self.edge_coordinates[:-1] - self.coordinate(self.start)

    @property
    def period_hours(self) -> NDArray[np.int64]:
        """Hours in each period, shape (periods,)."""
        return np.diff(self.edge_hours)

    @functools.cached_property
    def edge_hours(self) -> NDArray[np.int64]:
        """Hours since the start at which each period begins, and the horizon's end, shape (periods + 1,)."""
        days = [(edge - self.start).days for edge in self.edges]
        hours = [number * int(HOURS_PER_DAY) for number in days]
        return _read_only(np.array(hours, dtype=np.int64))

    @functools.cached_property
    def month_firsts(self) -> tuple[Floats, Floats]:
        """Hours and coordinates of the firsts of months, from fifty years before to fifty after the horizon."""
        months = np.arange(-MAXIMUM_HORIZON_MONTHS, self.horizon_months + MAXIMUM_HORIZON_MONTHS)
        months_since = np.datetime64(self.start, "M") + months
        firsts = months_since.astype("datetime64[D]")
        since_start = firsts - np.datetime64(self.start, "D")
        days = since_start.astype(np.float64)
        hours = days * HOURS_PER_DAY
        return _read_only(hours), _read_only(months.astype(np.float64))

    @functools.cached_property
    def latest(self) -> Floats:
        """The last coordinate before each boundary, and infinity for the time after the last."""
        earlier = np.nextafter(self.edge_coordinates, -np.inf)
        return _read_only(np.append(earlier, np.inf))

    @property
    def mid_years(self) -> Floats:
        """Years from the start to the middle of each period, shape (periods,)."""
        middle_h = (self.edge_hours[:-1] + self.edge_hours[1:]) / 2.0
        return middle_h / HOURS_PER_YEAR

    @property
    def hour_count(self) -> int:
        """Hours in the whole horizon."""
        return (self.end - self.start).days * int(HOURS_PER_DAY)

    @property
    def hour_periods(self) -> NDArray[np.int64]:
        """The period each hour of the horizon belongs to, shape (hours,)."""
        return np.repeat(np.arange(self.period_count), self.period_hours)

    def period_of_hour(self, hours: Floats) -> NDArray[np.int64]:
        """Return the period of each time given in hours since the start, shape as given.

        Times before the horizon give −1 and times at or after its end give the number of periods, so that the
        caller decides what lies outside.
        """
        position = np.searchsorted(self.edge_hours, hours, side="right")
        return position.astype(np.int64) - 1

    def coordinate_of_hour(self, hours: Floats) -> Floats:
        """Return month coordinates of times in hours since the start, shape as given; infinity stays infinity.

        coordinate(h) = m + (h − first hour of m) / hours in m, with m the calendar month in which h falls. At midnight
        this is the quotient that :meth:`coordinate` takes in days, so one moment has one coordinate to the last bit
        however it is reached, and h < edge hour ⇔ coordinate(h) < edge coordinate at every period boundary: no
        purchase can round out of its month.
        """
        first_hours, coordinates = self.month_firsts
        position = np.searchsorted(first_hours, hours, side="right") - 1
        # The last first has no month after it to measure, so infinity is read in the month before; it stays infinity.
        month = np.clip(position, 0, first_hours.size - 2)
        month_start = first_hours[month]
        share = (hours - month_start) / (first_hours[month + 1] - month_start)
        # The last instants before a boundary round to it; they belong before it.
        latest = self.latest[self.period_of_hour(hours) + 1]
        coordinate = coordinates[month] + share
        bounded = np.minimum(coordinate, latest)
        return np.asarray(bounded, dtype=np.float64)

    def months_after(self, hour: float, months: int) -> Floats:
        """Return month coordinates of a time in hours since the start and 1, 2, ... months later, shape (months + 1,).

        Each on the same day of the month, or on its last where it is shorter, at the same hour.
        """
        # The day moves by months, the hour of the day stays.
        days, of_day = divmod(hour, HOURS_PER_DAY)
        start_day = self.start + timedelta(days=days)
        later = []
        for count in range(months + 1):
            day = add_months(start_day, count) - self.start
            later.append(day.days * HOURS_PER_DAY + of_day)
        return self.coordinate_of_hour(np.array(later, dtype=np.float64))
