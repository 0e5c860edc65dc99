"""What is known window by window is what is known at the end."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.engine.driver import Simulation, run_plan
from planner.engine.histories import StepFunction
from planner.engine.hourly import NodeHours
from planner.engine.log import streams
from planner.plan.plan import Plan
from planner.plan.software import MaturityPlan
from tests.engine.plans import (
    cause_plan,
    certain,
    cluster_plan,
    incident_plans,
    make_plan,
    reliability_plan,
    stack_plan,
)
from tests.engine.plans import software_plan as software

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


def troubled(**changes: Any) -> Plan:
    """Racks of 72, of which a third is no number of nodes in binary, that fail often; software that does too."""
    cluster = cluster_plan(nodes=12, accelerators_per_node=72, group_accelerators=8, **changes)
    faults = {"soft_fraction": 0.3, "medium_fraction": 0.3}
    causes = (
        cause_plan(per_node_h=1 / 300, **faults),
        cause_plan(per_node_h=1 / 900, whole_node=True, **faults),
    )
    plan = make_plan([cluster], months=6, reliability=reliability_plan(causes=causes, crews=1))
    course = {"dense": MaturityPlan(gain=certain(0.5), months=certain(6.0))}
    stack = stack_plan(
        incidents=incident_plans(regression=0.7, hang=5.0),
        upgrade_h=300.0,
        releases_per_year=12.0,
        rollback_impossible_fraction=0.3,
        maturity=course,
    )
    return dataclasses.replace(plan, software=software(1, 1, stacks=(stack,), bake_h=2.0))


@pytest.mark.parametrize("retire_h", [np.inf, 2000.5])
def test_windows_find_what_one_at_the_end_finds(retire_h: float) -> None:
    """Outages that are open at a window's end, machines that leave within one, and incidents that go on."""
    plan = troubled(retire_h=retire_h)
    at_once = run_plan(plan, 3)
    cuts = list(range(0, plan.hours, 100))
    by_windows = Simulation(plan, streams(3)).run([*cuts, plan.hours])
    for name in (field.name for field in dataclasses.fields(NodeHours)):
        parts = np.concatenate([getattr(part, name) for part in by_windows.node_hours], axis=1)
        np.testing.assert_allclose(parts, getattr(at_once.node_hours[0], name), atol=1e-9)
    assert at_once.node_hours[0].failed.max() > 1.0
    (complete,) = at_once.inputs
    for window in by_windows.inputs:
        hours = slice(window.first_hour, window.first_hour + window.nodes.shape[1])
        for pair, speed in complete.speed.items():
            here = window.speed.get(pair, np.ones(window.nodes.shape[1]))
            np.testing.assert_allclose(here, speed[hours], atol=1e-9)
        for pair, slow in complete.incidents.items():
            lost = np.zeros(plan.hours)
            lost[slow.hours] = slow.lost_fraction
            part = np.zeros(window.nodes.shape[1])
            if pair in window.incidents:
                part[window.incidents[pair].hours] = window.incidents[pair].lost_fraction
            np.testing.assert_allclose(part, lost[hours], atol=1e-9)
    assert complete.incidents
    assert complete.speed
