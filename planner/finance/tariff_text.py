"""Words for a set of calendar hours, so that an error can name the gap in a tariff."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MONTH_NAMES = ("January", "February", "March", "April", "May", "June",
               "July", "August", "September", "October", "November", "December")  # fmt: skip
WEEKDAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
LONGEST_LIST = 3
"""Blocks named in full before the rest is counted."""


def _runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Return consecutive positions as (first, last) pairs."""
    runs: list[tuple[int, int]] = []
    for position in positions:
        if runs and position == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], position)
        else:
            runs.append((position, position))
    return runs


def _named(positions: Sequence[int], names: Sequence[str]) -> str:
    """Return 'June to August and December' for the positions, or nothing when they are all of them."""
    if len(positions) == len(names):
        return ""
    parts = [names[a] if a == b else f"{names[a]} to {names[b]}" for a, b in _runs(positions)]
    return " and ".join(parts)


def _hours(positions: Sequence[int]) -> str:
    """Return '14:00-18:00' for hours of the day."""
    return " and ".join(f"{a:02d}:00-{b + 1:02d}:00" for a, b in _runs(positions))


def describe_cells(cells: NDArray[np.bool_]) -> str:
    """Return the calendar hours in words: 'Monday to Friday 14:00-18:00 in June to August'.

    Cells have shape (12 months, 7 weekdays, 24 hours). Days with the same hours are named together, then
    months with the same days.
    """
    weeks: dict[bytes, list[int]] = {}
    for month in range(12):
        if cells[month].any():
            weeks.setdefault(cells[month].tobytes(), []).append(month)
    blocks: list[str] = []
    for months in weeks.values():
        in_months = _named(months, MONTH_NAMES)
        days_by_hours: dict[bytes, list[int]] = {}
        for day in range(7):
            if cells[months[0], day].any():
                days_by_hours.setdefault(cells[months[0], day].tobytes(), []).append(day)
        for days in days_by_hours.values():
            hours = [int(hour) for hour in np.flatnonzero(cells[months[0], days[0]])]
            words = [_named(days, WEEKDAY_NAMES), _hours(hours), f"in {in_months}" if in_months else ""]
            blocks.append(" ".join(word for word in words if word))
    shown = "; ".join(blocks[:LONGEST_LIST])
    more = len(blocks) - LONGEST_LIST
    return f"{shown}; and {more} more blocks" if more > 0 else shown
