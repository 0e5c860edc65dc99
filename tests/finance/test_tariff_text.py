from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.finance.tariffs import describe_cells


def cells(months: list[int], days: list[int], hours: list[int]) -> np.ndarray:
    """Return calendar hours; months from 1, weekdays from 0 (Monday)."""
    chosen = np.zeros((12, 7, 24), dtype=bool)
    chosen[np.ix_([month - 1 for month in months], days, hours)] = True
    return chosen


ALL_MONTHS = list(range(1, 13))
ALL_DAYS = list(range(7))


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (cells(ALL_MONTHS, ALL_DAYS, [0]), "00:00-01:00"),
        (cells(ALL_MONTHS, ALL_DAYS, list(range(24))), "00:00-24:00"),
        (cells(ALL_MONTHS, [0, 1, 2, 3, 4], [14, 15, 16]), "Monday to Friday 14:00-17:00"),
        (cells(ALL_MONTHS, [5], [3, 22, 23]), "Saturday 03:00-04:00 and 22:00-24:00"),
        (cells([6, 7, 8], ALL_DAYS, [12]), "12:00-13:00 in June to August"),
        (cells([1, 12], [0, 6], [5]), "Monday and Sunday 05:00-06:00 in January and December"),
    ],
)
def test_a_block_in_words(chosen: np.ndarray, words: str) -> None:
    assert describe_cells(chosen) == words


def test_different_days_are_told_apart() -> None:
    chosen = cells(ALL_MONTHS, [0], [1]) | cells(ALL_MONTHS, [1], [2])
    assert describe_cells(chosen) == "Monday 01:00-02:00; Tuesday 02:00-03:00"


@given(
    months=st.sets(st.integers(1, 12), min_size=1),
    days=st.sets(st.integers(0, 6), min_size=1),
    hours=st.sets(st.integers(0, 23), min_size=1),
)
def test_a_rectangle_is_always_one_block(months: set[int], days: set[int], hours: set[int]) -> None:
    words = describe_cells(cells(sorted(months), sorted(days), sorted(hours)))
    assert ";" not in words
    spans = [span for span in words.split() if ":" in span]
    covered = sum(
        int(end[:2]) - int(start[:2]) for start, end in (span.split("-") for span in spans)
    )
    assert covered == len(hours)


def test_what_is_too_long_to_list_is_counted() -> None:
    days = [cells(ALL_MONTHS, [day], [day]) for day in range(4)]
    listed = "Monday 00:00-01:00; Tuesday 01:00-02:00; Wednesday 02:00-03:00"
    assert describe_cells(days[0] | days[1] | days[2]) == listed
    assert describe_cells(days[0] | days[1] | days[2] | days[3]) == f"{listed}; and 1 more blocks"
