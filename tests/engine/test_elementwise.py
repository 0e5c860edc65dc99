"""Passes over hours in their fast form, held against the plain one."""

from __future__ import annotations

import numpy as np
import pytest

from planner.elementwise import (
    added,
    at_most,
    distinct,
    in_hours,
    maximum,
    part_of,
    quotient,
    safe_denominator,
)

NUMBERS = np.array([[-1.5, 0.0, 2.0, np.inf], [3.0, -np.inf, 0.25, 1.0]])


def test_bounds_are_those_of_numpy() -> None:
    assert np.array_equal(maximum(0.25, NUMBERS), np.maximum(NUMBERS, 0.25))
    assert np.array_equal(at_most(0.25, NUMBERS), np.minimum(NUMBERS, 0.25))


def test_a_bound_that_is_kept_is_the_same_for_every_length_and_may_be_taken_in_place() -> None:
    for size in (0, 1, 3, 4, 8, 5):
        numbers = np.linspace(-2.0, 2.0, size)
        expected = np.maximum(numbers, 0.5)
        assert maximum(0.5, numbers, out=numbers) is numbers
        assert np.array_equal(numbers, expected)


def test_all_hours_of_a_series_are_the_series_and_some_are_a_copy() -> None:
    series = np.array([1.0, 2.0, 3.0])
    assert np.shares_memory(part_of(series, slice(None)), series)
    assert part_of(series, np.array([2, 0])).tolist() == [3.0, 1.0]


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


@pytest.mark.parametrize("numbers", [[], [3], [2, 1, 2, 0, 1], [[5, 5], [1, 5]]])
def test_distinct_numbers_are_those_of_numpy(numbers: list[int]) -> None:
    assert distinct(np.array(numbers, dtype=np.intp)).tolist() == np.unique(numbers).tolist()
