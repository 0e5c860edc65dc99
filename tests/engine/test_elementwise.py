"""Passes over hours in their fast form, held against the plain one."""

from __future__ import annotations

import numpy as np
import pytest

from planner.elementwise import added, in_hours, quotient, safe_denominator

NUMBERS = np.array([[-1.5, 0.0, 2.0, np.inf], [3.0, -np.inf, 0.25, 1.0]])


def test_pools_add_up_to_their_clusters_and_clusters_stay_as_they_are() -> None:
    rows = np.array([[1.0, 2.0], [10.0, 20.0], [5.0, 6.0]])
    assert added(rows, [0, 0, 1]).tolist() == [[11.0, 22.0], [5.0, 6.0]]
    assert added(rows, range(3)) is rows


def test_what_is_above_nothing_is_divided_by_as_it_is() -> None:
    whole = np.array([2.0, 4.0])
    part = np.array([2.0, 0.0])
    assert safe_denominator(whole) is whole
    assert safe_denominator(part).tolist() == [2.0, np.inf]
    assert part.tolist() == [2.0, 0.0]


def test_some_hours_of_series_keep_each_series_together() -> None:
    found = in_hours(NUMBERS, np.array([3, 1]))
    assert np.array_equal(found, NUMBERS[:, [3, 1]])
    assert found.flags.c_contiguous


@pytest.mark.parametrize(
    ("whole", "expected"),
    [([2.0, 4.0, 8.0], [3.0, 1.5, 0.75]), ([2.0, 0.0, -8.0], [3.0, 0.0, 0.0]), ([2.0], [3.0] * 3)],
)
def test_a_part_of_nothing_is_nothing(whole: list[float], expected: list[float]) -> None:
    assert quotient(np.full(3, 6.0), np.array(whole)).tolist() == expected
