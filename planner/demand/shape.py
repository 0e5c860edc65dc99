"""The deterministic shape of traffic: hour of day, day of week, season and holidays in a time zone.

The weekly shape is 168 factors with mean 1, Monday 00:00 local time first. It is a user's own profile or is derived
from two or three numbers, each met exactly:

- ``peak_to_mean``: the busiest hour of the week ÷ the week's mean;
- ``weekend_fraction``: the mean weekend (Saturday, Sunday) hour ÷ the mean weekday hour;
- ``trough_to_mean`` (optional): the quietest hour of the week ÷ the week's mean.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date

import numpy as np

from planner.arrays import Floats
from planner.demand.calendar import HOURS_PER_WEEK, Horizon, local_day_index, local_hour_index
from planner.errors import Problem, ScenarioError, raise_all
from planner.units import DAYS_PER_YEAR

DEFAULT_PEAK_HOUR = 14  # busiest UTC hour of the public 2024 week of chat traffic (weekday mean), taken as local time
_DAY = np.arange(24, dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Season:
    """A yearly wave: 1 + amplitude · cos(2π (day − peak_day) / 365.25)."""

    amplitude_fraction: float = 0.0
    """Height above the year's mean at the peak; 0.1 is ±10%."""
    peak_day: float = 1.0
    """Day of the year of the peak, 1 = 1 January."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.amplitude_fraction <= 1.0:
            raise ScenarioError(f"season amplitude must lie in 0..1, not {self.amplitude_fraction}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a workload's traffic does by the clock and the calendar."""

    weekly_profile: tuple[float, ...]
    """168 factors, Monday 00:00 local time first, of mean 1 (see :func:`normalised_profile`)."""
    timezone: str = "UTC"
    """IANA name of the zone whose wall clock the users live by."""
    season: Season = field(default_factory=Season)
    """The yearly wave."""
    holidays: tuple[tuple[date, float], ...] = ()
    """(local date, factor on that day); not renormalised: a holiday's requests are gone, not moved."""


def normalised_profile(factors: Floats | tuple[float, ...] | list[float]) -> tuple[float, ...]:
    """Return a user's 168 hourly factors scaled to mean 1, or say what is wrong with them."""
    profile = np.asarray(factors, dtype=np.float64)
    if profile.shape != (HOURS_PER_WEEK,):
        raise ScenarioError(
            f"a weekly profile has {HOURS_PER_WEEK} factors, Monday 00:00 first; this has {profile.size}"
        )
    bad = np.flatnonzero(~(np.isfinite(profile) & (profile >= 0.0)))
    problems = [
        Problem(path="weekly_profile", line=int(i) + 1, message=f"factor must be at least 0, not {profile[i]}")
        for i in bad
    ]
    if not problems and profile.sum() == 0.0:
        problems = [Problem(path="weekly_profile", message="all 168 factors are zero")]
    raise_all(problems)
    return tuple((profile / profile.mean()).tolist())


def weekly_profile(
    *,
    peak_to_mean: float,
    weekend_fraction: float = 1.0,
    trough_to_mean: float | None = None,
    peak_hour: int = DEFAULT_PEAK_HOUR,
) -> tuple[float, ...]:
    """Return 168 factors of mean 1 that meet the asked peak, weekend and (if given) trough exactly.

    Weekdays stand at level a = 7 / (5 + 2w), weekends at w·a, so that the week's mean is 1 and weekend ÷ weekday is w.
    All days share one 24-hour pattern of mean 1 and maximum peak_to_mean / max(a, w·a). Without a trough the pattern is
    a discrete von Mises curve, exp(κ cos θ) over its mean; with one it is low + (high − low) ((1 + cos θ) / 2)^q.
    κ and q are solved for.
    """
    weekday = 7.0 / (5.0 + 2.0 * weekend_fraction)
    levels = np.repeat([weekday, weekday * weekend_fraction], [5, 2])
    _check_weekly(peak_to_mean, weekend_fraction, trough_to_mean, peak_hour)
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
        day = _peak_and_trough_day(angle, high, trough_to_mean / levels.min() if levels.min() > 0 else 0.0)
    return tuple(np.outer(levels, day).ravel().tolist())


@functools.lru_cache(maxsize=128)  # 210 kB each for three years; a study or a sweep varies other figures
def shape_factor(shape: Shape, horizon: Horizon) -> Floats:
    """Return the hour-of-horizon factor, shape (hours,); read-only."""
    hour = local_hour_index(horizon, shape.timezone)
    factor = np.asarray(shape.weekly_profile, dtype=np.float64)[hour % HOURS_PER_WEEK]
    first = int(hour[0]) // 24
    day = hour // 24 - first
    if shape.season.amplitude_fraction > 0.0:  # worked out by the day, since a cosine of each hour takes the longest
        new_year = local_day_index(date(horizon.start.year, 1, 1))
        days = np.arange(first, first + int(day[-1]) + 1)
        phase = 2.0 * np.pi * (days - new_year + 1.0 - shape.season.peak_day) / DAYS_PER_YEAR
        factor *= (1.0 + shape.season.amplitude_fraction * np.cos(phase))[day]
    if shape.holidays:
        by_day = np.ones(int(day[-1]) + 1)
        for holiday, holiday_factor in shape.holidays:
            index = local_day_index(holiday) - first
            if 0 <= index < by_day.size:
                by_day[index] = holiday_factor
        factor *= by_day[day]
    factor.flags.writeable = False
    return factor


def _check_weekly(peak: float, weekend: float, trough: float | None, peak_hour: int) -> None:
    """Raise every problem with the numbers a weekly shape is derived from."""
    problems = []
    if not (np.isfinite(weekend) and weekend >= 0.0):
        problems.append(Problem(path="weekend_fraction", message=f"must be at least 0, not {weekend}"))
    if not (np.isfinite(peak) and peak >= 1.0):
        problems.append(Problem(path="peak_to_mean", message=f"must be at least 1, not {peak}"))
    if trough is not None and not 0.0 <= trough <= 1.0:
        problems.append(Problem(path="trough_to_mean", message=f"must lie in 0..1, not {trough}"))
    if not 0 <= peak_hour <= 23:
        problems.append(Problem(path="peak_hour", message=f"must be an hour 0..23, not {peak_hour}"))
    raise_all(problems)


def _von_mises_day(angle: Floats, high: float) -> Floats:
    """Return 24 factors exp(κ cos θ) over their mean whose maximum is ``high``."""
    below_peak = np.cos(angle) - 1.0  # 0 at the peak hour, where the curve is 1 before it is divided by its mean

    def excess(kappa: float) -> float:
        return 1.0 / float(np.exp(kappa * below_peak).mean()) - high

    if high <= 1.0:
        return np.ones(24)
    curve = np.exp(_rising_root(excess, upper=1e4) * below_peak)
    return np.asarray(curve / curve.mean(), dtype=np.float64)


def _peak_and_trough_day(angle: Floats, high: float, low: float) -> Floats:
    """Return 24 factors of mean 1, maximum ``high`` at the peak hour and minimum ``low`` twelve hours later."""
    if low > 1.0 + 1e-12:
        raise ScenarioError(f"the trough asked for lies above the mean of the quietest day ({low:.4g} times it)")
    if high <= 1.0 or low >= 1.0:
        if high - low > 1e-9:
            raise ScenarioError(f"a day cannot have peak {high:.4g} and trough {low:.4g} and mean 1")
        return np.ones(24)
    bump = (1.0 + np.cos(angle)) / 2.0
    bump[bump < 1e-12] = 0.0
    mean_wanted = (1.0 - low) / (high - low)
    if not 1.0 / 24.0 < mean_wanted < 23.0 / 24.0:
        raise ScenarioError(f"a day of hours cannot have peak {high:.4g}, trough {low:.4g} and mean 1")

    def excess(log_power: float) -> float:
        return mean_wanted - float(np.mean(bump ** np.exp(log_power)))

    power = np.exp(_rising_root(excess, lower=-20.0, upper=20.0))
    return np.asarray(low + (high - low) * bump**power, dtype=np.float64)


def _rising_root(function: Callable[[float], float], lower: float = 0.0, upper: float = 1.0) -> float:
    """Return where a rising function crosses zero, to the last bit, by bisection."""
    low, high = lower, upper
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            return high
        low, high = (middle, high) if function(middle) < 0.0 else (low, middle)
