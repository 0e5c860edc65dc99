"""Passes over hours in their fast form, held against the plain one."""

from __future__ import annotations

import numpy as np
import pytest

from planner.fleet.elementwise import at_least, at_most, in_hours, quotient

NUMBERS = np.array([[-1.5, 0.0, 2.0, np.inf], [3.0, -np.inf, 0.25, 1.0]])


def test_bounds_are_those_of_numpy() -> None:
    assert np.array_equal(at_least(0.25, NUMBERS), np.maximum(NUMBERS, 0.25))
    assert np.array_equal(at_most(0.25, NUMBERS), np.minimum(NUMBERS, 0.25))


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
