"""Recursions over hours against plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from planner.engine.scan import clamp_scan, hours_within, steps_by_hour

Floats = NDArray[np.float64]
moderate = st.floats(-100.0, 100.0, width=32)


def looped(step: Floats, lower: Floats, upper: Floats, start: float) -> Floats:
    reached = start
    out = []
    for a, low, high in zip(step, lower, upper, strict=True):
        reached = min(max(reached + a, low), high)
        out.append(reached)
    return np.array(out)


@given(
    st.integers(1, 70).flatmap(lambda n: hnp.arrays(np.float64, (3, n), elements=moderate)),
    moderate,
)
def test_the_scan_is_the_loop(arrays: Floats, start: float) -> None:
    step = arrays[0]
    lower = np.minimum(arrays[1], arrays[2])
    upper = np.maximum(arrays[1], arrays[2])
    np.testing.assert_allclose(
        clamp_scan(step, lower, upper, start), looped(step, lower, upper, start), atol=1e-9
    )


def test_with_a_floor_of_zero_the_scan_is_the_reflection_map() -> None:
    """Skorokhod: a queue that cannot run empty is its free walk less the walk's running minimum below zero."""
    step = np.random.default_rng(2).normal(-0.1, 1.0, size=5000)
    walk = np.cumsum(step)
    reflected = walk - np.minimum(np.minimum.accumulate(walk), 0.0)
    queue = clamp_scan(step, np.zeros(5000), np.full(5000, np.inf), 0.0)
    np.testing.assert_allclose(queue, reflected, atol=1e-9)


def brute(
    times: list[float], deltas: list[float], first: int, hours: int, start: float = 0.0
) -> Floats:
    """Integrate a step function hour by hour between its jumps."""
    means = []
    for hour in range(first, first + hours):
        cuts = sorted({float(hour), float(hour + 1), *(t for t in times if hour < t < hour + 1)})
        area = 0.0
        for left, right in itertools.pairwise(cuts):
            level = start + sum(d for t, d in zip(times, deltas, strict=True) if t <= left)
            area += level * (right - left)
        means.append(area)
    return np.array(means)


jumps = st.lists(st.tuples(st.floats(0.0, 60.0), st.floats(-5.0, 5.0)), max_size=12)


def test_a_step_that_never_comes_counts_nothing() -> None:
    assert (
        steps_by_hour(np.array([np.inf]), np.array([8.0]), 0, 5, opening_level=0.0).tolist()
        == [0.0] * 5
    )


def test_twenty_minutes_out_are_a_third_of_an_hour() -> None:
    lost = steps_by_hour(
        np.array([2.5, 2.5 + 1 / 3]), np.array([8.0, 0.0]), 0, 5, opening_level=0.0
    )
    assert lost == pytest.approx([0, 0, 8 / 3, 0, 0])


@given(jumps, st.integers(0, 30), st.integers(1, 20))
def test_steps_by_hour_integrates_the_levels(
    pairs: list[tuple[float, float]], first: int, hours: int
) -> None:
    times = sorted(t for t, _ in pairs)
    levels = [d for _, d in pairs]
    deltas = np.diff(np.array([1.0, *levels])).tolist()
    found = steps_by_hour(np.array(times, dtype=float), np.array(levels, dtype=float), first, hours)
    np.testing.assert_allclose(found, brute(times, deltas, first, hours, start=1.0), atol=1e-9)


spans = st.lists(st.tuples(st.floats(0.0, 60.0), st.floats(0.0, 20.0)), max_size=8)


@given(spans, st.integers(0, 30), st.integers(1, 20))
def test_hours_within_are_those_an_interval_touches(
    drawn: list[tuple[float, float]], first: int, hours: int
) -> None:
    pairs = sorted((start, start + length) for start, length in drawn)
    found = hours_within(pairs, first, hours).tolist()
    touched = [
        h
        for h in range(hours)
        if any(start < first + h + 1 and end > first + h for start, end in pairs if end > start)
    ]
    assert found == sorted(set(found))
    assert set(touched) <= set(
        found
    )  # an interval that begins and ends on one hour's edge may add that hour
    assert all(
        any(start < first + h + 1 and end >= first + h for start, end in pairs) for h in found
    )
