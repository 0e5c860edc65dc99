"""What a compiled plan says of itself: by hand, and against another library's distributions."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from planner.plan.distributions import ThreePoint
from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD
from tests.engine.plans import (
    cluster_plan,
    incident_plans,
    make_plan,
    software_plan,
    stack_plan,
    workload_plan,
)

FIGURE = ThreePoint(low=1.0, base=2.0, high=5.0)


def test_the_mean_and_a_draw_of_three_points_are_those_of_scipy() -> None:
    """P10 and P90 lie 2 · 1.28155 standard deviations apart."""
    apart = float(np.diff(stats.norm.ppf([0.1, 0.9]))[0])
    assert FIGURE.lognormal_mean == pytest.approx(
        stats.lognorm(math.log(5.0) / apart, scale=2.0).mean(), rel=1e-4
    )
    drawn = np.random.default_rng(3).standard_normal()
    assert FIGURE.normal(np.random.default_rng(3)) == pytest.approx(
        2.0 + 4.0 / apart * drawn, rel=1e-4
    )


def test_engineers_are_as_busy_as_the_incidents_of_the_models_they_keep() -> None:
    """Two models with ten incidents a year of 40 hours, shared by two: half a week each, of 8,766 hours.

    Eight of the ten come with sixteen upgrades a year. Six engineers mend two at once, three on each.
    """
    work = [
        workload_plan("chat", model="a"),
        workload_plan("code", model="b"),
        workload_plan("more", model="b"),
    ]
    incidents = incident_plans(regression=0.5, hang=2.0)
    stacks = (
        stack_plan(incidents=incidents, upgrade_h=8766.0 / 16, rollback_impossible_fraction=0.5),
    )
    plan = make_plan([cluster_plan()], work, software=software_plan(1, 3, stacks=stacks))
    assert plan.engineer_load(0, 2) == pytest.approx(10 * 2 * 84 / 8766)
    assert plan.engineer_load(0, 6) == pytest.approx(10 * 2 * 56 / 8766 / 2)
    assert plan.engineer_load(1, 2) == 0.0


def test_refusals_begin_at_the_first_load_that_has_some() -> None:
    plan = make_plan([cluster_plan("a"), cluster_plan("b")])
    tables = np.zeros_like(plan.refused_tables)
    tables[0, 0, 1:] = 0.1
    tables[1, 0, 11:] = 0.1
    plan = dataclasses.replace(plan, refused_tables=tables)
    assert plan.refusal_free_load[:, 0] == pytest.approx([0.0, 10 * MOST_LOAD / LOAD_CELLS])
