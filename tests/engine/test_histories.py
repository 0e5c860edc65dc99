"""What is known window by window is what is known at the end."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from planner.engine.histories import StepFunction

steps = st.lists(st.tuples(st.floats(0.0, 60.0), st.floats(-5.0, 5.0)), max_size=12)


@given(steps, st.lists(st.integers(1, 59), max_size=3, unique=True))
def test_a_course_by_windows_is_the_course_at_once(
    pairs: list[tuple[float, float]], cuts: list[int]
) -> None:
    """To the bit: what has been before a window is one level, and its steps are the same."""
    times = sorted(t for t, _ in pairs)
    levels = [level for _, level in pairs]
    known = list(zip(times, levels, strict=True))
    course = StepFunction(1.0)
    for first, last in itertools.pairwise([0, *sorted(cuts), 61]):
        here = [step for step in known if first <= step[0] < last]
        course.start_window([time_h for time_h, _ in here], [level for _, level in here])
        before = StepFunction(1.0)
        before.start_window(times, levels)
        assert course.by_hour(first, last).tolist() == before.by_hour(first, last).tolist()
        assert course.has_stepped(last) == before.has_stepped(last)
