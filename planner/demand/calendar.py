"""The horizon's hours, and what the wall clock shows in a time zone at each of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np
from numpy.typing import NDArray

from planner.errors import ScenarioError

HOURS_PER_WEEK = 168
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_WEEKDAY = 3  # 1 January 1970 was a Thursday; Monday is 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The simulated span: hour k is [start + k h, start + k + 1 h)."""

    start: date
    """First day, from midnight UTC."""
    hours: int
    """Number of whole hours."""

    def __post_init__(self) -> None:
        if self.hours < 1:
            raise ScenarioError(f"a horizon needs at least one hour, not {self.hours}")

    @property
    def start_utc(self) -> datetime:
        """Return the first instant."""
        return datetime(self.start.year, self.start.month, self.start.day, tzinfo=UTC)

    def hour_of(self, day: date) -> float:
        """Return hours from the start to midnight UTC of a date (negative before the start)."""
        return (day - self.start).days * 24.0


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Return the names of all time zones that mean the same place on every machine.

    ``localtime`` is whatever this machine is set to, so a plan that names it would differ from one to the next.
    """
    return frozenset(available_timezones()) - {"localtime"}


def is_zone(name: str) -> bool:
    """Return whether a time zone is one of these; a name that the package of zones lists needs no look at each file."""
    return name in _listed_zones() or name in zone_names()


@lru_cache(maxsize=1)
def _listed_zones() -> frozenset[str]:
    """Return the names in the list of the package tzdata; none where it is not there."""
    package = find_spec("tzdata")
    folders = (package.submodule_search_locations or ()) if package else ()
    try:
        return frozenset(name for folder in folders for name in (Path(folder) / "zones").read_text("utf-8").split())
    except OSError:
        return frozenset()


def zone(name: str) -> ZoneInfo:
    """Return the IANA time zone of that name, or say that there is none and which is nearest."""
    try:
        if name == "localtime":
            raise ValueError(name)
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ScenarioError(f"no time zone {name!r}{_nearest_zone(name)}") from None


def _nearest_zone(name: str) -> str:
    """Return a hint naming the nearest IANA key, or where the names are to be found."""
    from difflib import get_close_matches  # noqa: PLC0415 - only on the way to an error

    near = get_close_matches(name, zone_names(), n=1)
    return f"; did you mean {near[0]!r}?" if near else "; names are as in 'Europe/Berlin' or 'UTC'"


def utc_offset_s(horizon: Horizon, timezone: str) -> NDArray[np.int64]:
    """Return the zone's offset from UTC at the start of each hour, in seconds, shape (hours,).

    The offset is asked once a week and, in the few weeks it differs at both ends, bisected to the hour: exact for
    every rule in the zone database in which an offset does not change and change back within one week.
    """
    tz = zone(timezone)
    start = horizon.start_utc
    if (fixed := tz.utcoffset(None)) is not None:  # a zone whose clocks never change, as UTC
        return np.full(horizon.hours, int(fixed.total_seconds()), dtype=np.int64)

    def offset(hour: int) -> int:
        instant = (start + timedelta(hours=hour)).astimezone(tz)
        return int((instant.utcoffset() or timedelta()).total_seconds())

    marks = [*range(0, horizon.hours, HOURS_PER_WEEK), horizon.hours]
    offsets = np.empty(horizon.hours, dtype=np.int64)
    at_left = offset(0)
    for left, right in pairwise(marks):
        at_right = offset(right)
        low, high = left, right
        while at_right != at_left and high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if offset(middle) == at_left else (low, middle)
        change = high if at_right != at_left else right
        offsets[left:change] = at_left
        offsets[change:right] = at_right
        at_left = at_right
    return offsets


@lru_cache(maxsize=32)
def local_hour_index(horizon: Horizon, timezone: str) -> NDArray[np.int64]:
    """Return the local wall-clock hour counted from Monday 29 December 1969 00:00, shape (hours,).

    Modulo 168 it is the hour of the week, Monday 00:00 first; divided by 24, the local day. The hour's middle is
    what is read, so zones a half or a quarter hour off the grid fall in the wall-clock hour they overlap most.
    """
    start_s = int((horizon.start_utc - _EPOCH).total_seconds())
    middle_s = start_s + 3600 * np.arange(horizon.hours, dtype=np.int64) + 1800 + utc_offset_s(horizon, timezone)
    hour = middle_s // 3600 + 24 * _EPOCH_WEEKDAY
    hour.flags.writeable = False  # shared by all who ask for this zone
    return hour


def local_day_index(day: date) -> int:
    """Return a date's number in the day count of :func:`local_hour_index`."""
    return (day - _EPOCH.date()).days + _EPOCH_WEEKDAY
