"""The deterministic shape of traffic: hour of day, day of week, season and holidays in a time zone.

The weekly shape is 168 factors with mean 1, Monday 00:00 local time first. It is a user's own profile or is derived
from two or three numbers, each met exactly:

- ``peak_to_mean``: the busiest hour of the week ÷ the week's mean;
- ``weekend_fraction``: the mean weekend (Saturday, Sunday) hour ÷ the mean weekday hour;
- ``trough_to_mean`` (optional): the quietest hour of the week ÷ the week's mean.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from dataclasses import field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.errors import Problem, ScenarioError, raise_all
from planner.records import record
from planner.units import DAYS_PER_YEAR

HOURS_PER_WEEK = 168
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_WEEKDAY = 3  # 1 January 1970 was a Thursday; Monday is 0


@record
class Horizon:
    """The simulated span: hour k is [start + k h, start + k + 1 h)."""

    start: date
    """First day, from midnight UTC."""
    hours: int
    """Number of whole hours."""

    @property
    def start_utc(self) -> datetime:
        """Return the first instant."""
        return datetime(self.start.year, self.start.month, self.start.day, tzinfo=UTC)

    def hour_of(self, day: date) -> float:
        """Return hours from the start to midnight UTC of a date (negative before the start)."""
        return (day - self.start).days * 24.0


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return the names of all time zones that are the same on every machine.

    ``localtime`` is whatever this machine is set to, so a plan that names it would differ from one to the next.
    """
    return frozenset(available_timezones()) - {"localtime"}


def is_zone(name: str) -> bool:
    """Return whether a name is a valid time zone, checking the list in tzdata before every zone file."""
    return name in _listed_zones() or name in zone_names()


@lru_cache(maxsize=1)
def _listed_zones() -> frozenset[str]:
    """Return the zone names listed by the package tzdata; empty where it is not installed."""
    package = find_spec("tzdata")
    folders: Iterable[str] = ()
    if package is not None:
        folders = package.submodule_search_locations or ()
    names: set[str] = set()
    for folder in folders:
        # A package without its list is none: every zone file is asked then.
        with contextlib.suppress(OSError):
            listing = Path(folder) / "zones"
            zones = listing.read_text("utf-8")
            names.update(zones.split())
    return frozenset(names)


def zone(name: str) -> ZoneInfo:
    """Return the IANA time zone of that name, or raise an error with the nearest name."""
    try:
        if name == "localtime":
            raise ValueError(name)
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        from difflib import get_close_matches  # noqa: PLC0415 - only on the way to an error

        hint = "names are as in 'Europe/Berlin' or 'UTC'"
        near = get_close_matches(name, zone_names(), n=1)
        if near:
            hint = f"did you mean {near[0]!r}?"
        raise ScenarioError(f"no time zone {name!r}; {hint}") from None


def utc_offset_s(horizon: Horizon, timezone: str) -> NDArray[np.int64]:
    """Return the zone's offset from UTC at the start of each hour, in seconds, shape (hours,).

    The offset is asked once a week and, in the few weeks it differs at both ends, bisected to the hour: exact for
    every rule in the zone database in which an offset does not change and change back within one week.
    """
    tz = zone(timezone)
    start = horizon.start_utc
    fixed = tz.utcoffset(None)
    if fixed is not None:  # a zone whose clocks never change, as UTC
        fixed_s = int(fixed.total_seconds())
        return np.full(horizon.hours, fixed_s, dtype=np.int64)

    def offset(hour: int) -> int:
        moment = start + timedelta(hours=hour)
        instant = moment.astimezone(tz)
        utc_offset = instant.utcoffset() or timedelta()
        return int(utc_offset.total_seconds())

    marks = [*range(0, horizon.hours, HOURS_PER_WEEK), horizon.hours]
    offsets = np.empty(horizon.hours, dtype=np.int64)
    begin_offset = offset(0)
    for begin, end in pairwise(marks):
        end_offset = offset(end)
        low = begin
        high = end
        while end_offset != begin_offset and high - low > 1:
            middle = (low + high) // 2
            if offset(middle) == begin_offset:
                low = middle
            else:
                high = middle
        change = high if end_offset != begin_offset else end
        offsets[begin:change] = begin_offset
        offsets[change:end] = end_offset
        begin_offset = end_offset
    return offsets


@lru_cache(maxsize=32)
def local_hour_index(horizon: Horizon, timezone: str) -> NDArray[np.int64]:
    """Return the local wall-clock hour counted from Monday 29 December 1969 00:00, shape (hours,).

    Modulo 168 it is the hour of the week, Monday 00:00 first; divided by 24, the local day. The hour's middle is
    what is read, so zones a half or a quarter hour off the grid fall in the wall-clock hour they overlap most.
    """
    start_s = int((horizon.start_utc - _EPOCH).total_seconds())
    # The middle of each hour, in seconds since the epoch, on the local clock.
    middle_s = 3600 * np.arange(horizon.hours, dtype=np.int64)
    middle_s += start_s + 1800
    middle_s += utc_offset_s(horizon, timezone)
    hour = middle_s // 3600 + 24 * _EPOCH_WEEKDAY
    hour.flags.writeable = False  # shared by all who ask for this zone
    return hour


def local_day_index(day: date) -> int:
    """Return a date's number in the day count of :func:`local_hour_index`."""
    return (day - _EPOCH.date()).days + _EPOCH_WEEKDAY


DEFAULT_PEAK_HOUR = 14
"""Busiest UTC hour of the public 2024 week of chat traffic (weekday mean), taken as local time."""
_DAY = np.arange(24, dtype=np.float64)


@record
class SeasonalWave:
    """A yearly wave: 1 + amplitude · cos(2π (day − peak_day) / 365.25)."""

    amplitude_fraction: float = 0.0
    """Height above the year's mean at the peak; 0.1 is ±10%."""
    peak_day: float = 1.0
    """Day of the year of the peak, 1 = 1 January."""


@record
class Shape:
    """A workload's traffic pattern by clock and calendar: week, season and holidays."""

    weekly_profile: tuple[float, ...]
    """168 factors, Monday 00:00 local time first, of mean 1 (see :func:`normalised_profile`)."""
    timezone: str = "UTC"
    """IANA name of the zone whose wall clock the users live by."""
    season: SeasonalWave = field(default_factory=SeasonalWave)
    """The yearly wave."""
    holidays: tuple[tuple[date, float], ...] = ()
    """(local date, factor on that day); not renormalised: a holiday's requests are gone, not moved."""


def normalised_profile(factors: Floats | tuple[float, ...] | list[float]) -> tuple[float, ...]:
    """Return a user's 168 hourly factors scaled to mean 1, or raise an error with their problem."""
    profile = np.asarray(factors, dtype=np.float64)
    is_sound = np.isfinite(profile) & (profile >= 0.0)
    problems = []
    for place in np.flatnonzero(~is_sound).tolist():
        message = f"factor must be at least 0, not {profile[place]}"
        # Lines count from 1.
        problem = Problem(path="weekly_profile", line=place + 1, message=message)
        problems.append(problem)
    if not problems and profile.sum() == 0.0:
        problems = [Problem(path="weekly_profile", message="all 168 factors are zero")]
    raise_all(problems)
    relative = profile / profile.mean()
    return tuple(relative.tolist())


def weekly_profile(
    *,
    peak_to_mean: float,
    weekend_fraction: float = 1.0,
    trough_to_mean: float | None = None,
    peak_hour: int = DEFAULT_PEAK_HOUR,
) -> tuple[float, ...]:
    """Return 168 factors of mean 1 with the given peak, weekend and (optionally) trough, met exactly.

    Weekdays stand at level a = 7 / (5 + 2w), weekends at w·a, so that the week's mean is 1 and weekend ÷ weekday is w.
    All days share one 24-hour pattern of mean 1 and maximum peak_to_mean / max(a, w·a). Without a trough the pattern is
    a discrete von Mises curve, exp(κ cos θ) over its mean; with one it is low + (high − low) ((1 + cos θ) / 2)^q.
    κ and q are solved for.
    """
    weekday = 7.0 / (5.0 + 2.0 * weekend_fraction)
    # Five weekdays and two days of a weekend.
    levels = np.repeat([weekday, weekday * weekend_fraction], [5, 2])
    high = peak_to_mean / levels.max()
    if high < 1.0 - 1e-12 or high > 24.0:
        raise ScenarioError(
            f"peak_to_mean {peak_to_mean:g} cannot be met with weekend_fraction {weekend_fraction:g}: the busier days "
            f"stand at {levels.max():.4g} times the week's mean; the peak lies between that and {24 * levels.max():.4g}"
        )
    angle = 2.0 * np.pi * (_DAY - peak_hour) / 24.0
    if trough_to_mean is None:
        day = _von_mises_day(angle, high)
    else:
        quietest = levels.min()
        low = trough_to_mean / quietest if quietest > 0 else 0.0
        day = _peak_and_trough_day(angle, high, low)
    week = np.outer(levels, day)
    return tuple(week.ravel().tolist())


# 210 kB each for three years; a study or a sweep varies other figures.
@functools.lru_cache(maxsize=128)
def shape_factor(shape: Shape, horizon: Horizon) -> Floats:
    """Return the traffic factor of each hour of the horizon, shape (hours,); read-only."""
    hour = local_hour_index(horizon, shape.timezone)
    profile = np.asarray(shape.weekly_profile, dtype=np.float64)
    factor = profile[hour % HOURS_PER_WEEK]
    start_day = int(hour[0]) // 24
    day = hour // 24 - start_day
    day_count = int(day[-1]) + 1
    if shape.season.amplitude_fraction > 0.0:
        # Worked out by the day, since a cosine of each hour takes the longest.
        new_year_date = date(horizon.start.year, 1, 1)
        new_year = local_day_index(new_year_date)
        days = np.arange(start_day, start_day + day_count)
        since_peak = days - new_year + 1.0 - shape.season.peak_day
        phase = 2.0 * np.pi * since_peak / DAYS_PER_YEAR
        wave = 1.0 + shape.season.amplitude_fraction * np.cos(phase)
        factor *= wave[day]
    if shape.holidays:
        by_day = np.ones(day_count)
        for holiday, holiday_factor in shape.holidays:
            # Calendars may hold other years' holidays.
            index = local_day_index(holiday) - start_day
            if 0 <= index < by_day.size:
                by_day[index] = holiday_factor
        factor *= by_day[day]
    factor.flags.writeable = False
    return factor


def _von_mises_day(angle: Floats, high: float) -> Floats:
    """Return 24 factors exp(κ cos θ) over their mean whose maximum is ``high``."""
    # 0 at the peak hour, where the curve is 1 before it is divided by its mean.
    below_peak = np.cos(angle) - 1.0

    def excess(kappa: float) -> float:
        curve = np.exp(kappa * below_peak)
        mean = float(curve.mean())
        return 1.0 / mean - high

    if high <= 1.0:
        return np.ones(24)
    kappa = _rising_root(excess, upper=1e4)
    curve = np.exp(kappa * below_peak)
    return np.asarray(curve / curve.mean(), dtype=np.float64)


def _peak_and_trough_day(angle: Floats, high: float, low: float) -> Floats:
    """Return 24 factors of mean 1, maximum ``high`` at the peak hour and minimum ``low`` twelve hours later."""
    if low > 1.0 + 1e-12:
        raise ScenarioError(
            f"the trough stated lies above the mean of the quietest day ({low:.4g} times it)"
        )
    if high <= 1.0 or low >= 1.0:
        if high - low > 1e-9:
            raise ScenarioError(
                f"a day cannot have peak {high:.4g} and trough {low:.4g} and mean 1"
            )
        return np.ones(24)
    bump = (1.0 + np.cos(angle)) / 2.0
    # The trough hour is zero but for rounding, and a small power would raise what is left.
    bump[bump < 1e-12] = 0.0
    mean_wanted = (1.0 - low) / (high - low)
    if not 1.0 / 24.0 < mean_wanted < 23.0 / 24.0:
        raise ScenarioError(
            f"a day of hours cannot have peak {high:.4g}, trough {low:.4g} and mean 1"
        )

    def excess(log_power: float) -> float:
        curve = bump ** np.exp(log_power)
        mean = float(np.mean(curve))
        return mean_wanted - mean

    log_power = _rising_root(excess, lower=-20.0, upper=20.0)
    power = np.exp(log_power)
    rise = (high - low) * bump**power
    return np.asarray(low + rise, dtype=np.float64)


def _rising_root(
    function: Callable[[float], float], lower: float = 0.0, upper: float = 1.0
) -> float:
    """Return where a rising function crosses zero, to the last bit, by bisection."""
    low = lower
    high = upper
    # Ends when no number lies between the two.
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            return high
        if function(middle) < 0.0:
            low = middle
        else:
            high = middle
