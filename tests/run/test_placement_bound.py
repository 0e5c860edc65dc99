"""What placement could serve at most: closed forms, and never below what a run serves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from planner.plan.quantities import attainment
from planner.run.placement_bound import gap_notes, placement_bounds, placement_gaps
from planner.run.simulate import RunResult, simulate, simulate_plan
from planner.scenario.loading import load_scenario
from tests.engine.plans import cluster_plan, make_plan, workload_plan


def run_of_two(priorities: tuple[int, int], deadline_h: int, second_rate: float = 1.0) -> RunResult:
    """Return a run of two models on ten nodes, each good for one request a second of the first; they get 8 and 12."""
    loads = [
        workload_plan("first", priority=priorities[0], model="a"),
        workload_plan("second", priority=priorities[1], model="b", deadline_h=deadline_h),
    ]
    plan = make_plan([cluster_plan(nodes=10)], loads, requests_per_s=[8.0, 12.0])
    rates = plan.requests_per_node_h * np.array([1.0, second_rate])[None, :, None]
    plan = dataclasses.replace(plan, requests_per_node_h=rates)
    scenario = load_scenario("scenarios/gallery/rent.yaml")
    return simulate_plan(scenario, plan, 1)


@pytest.mark.parametrize(
    ("priorities", "deadline_h", "second_rate", "first", "second"),
    [
        ((0, 0), 0, 1.0, 10 / 20, 10 / 20),
        ((0, 0), 0, 2.0, 10 / 14, 10 / 14),
        ((0, 1), 0, 1.0, 1.0, 2 / 12),
        ((1, 0), 0, 1.0, 0.0, 10 / 12),
        ((0, 1), 24, 3.0, 1.0, 6 / 12),
    ],
)
def test_the_bound_levels_each_class(
    priorities: tuple[int, int], deadline_h: int, second_rate: float, first: float, second: float
) -> None:
    bounds = placement_bounds(run_of_two(priorities, deadline_h, second_rate))
    assert bounds == pytest.approx(np.array([[first, second]]), abs=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "gallery/all-to-api",
        "gallery/batch-at-night",
        "gallery/next-part-wait",
        "gallery/power-h200",
        "gallery/rent",
        pytest.param("which-mix", marks=pytest.mark.slow),
    ],
)
def test_no_first_class_is_served_above_its_bound(name: str) -> None:
    """The lowest share of the first class, in every month; others may gain where one before them gives."""
    result = simulate(load_scenario(f"scenarios/{name}.yaml"))
    bounds = placement_bounds(result)
    settled = result.settled_requests()
    served = attainment(result.missed_requests(), settled)
    loads = result.plan.workloads
    first = min((load.deadline_h > 0, load.priority) for load in loads)
    members = [w for w, load in enumerate(loads) if (load.deadline_h > 0, load.priority) == first]
    lowest = np.where(settled > 0.0, served, 1.0)[:, members].min(axis=1)
    assert np.all(lowest <= bounds[:, members].min(axis=1) + 1e-6)


def test_a_large_gap_is_a_note() -> None:
    """A run that serves what the bound allows has none; one that sheds a fifth more of a workload has that."""
    result = run_of_two((0, 0), 0)
    assert [gap.gap_fraction for gap in placement_gaps(result)] == pytest.approx(
        [0.0, 0.0], abs=1e-3
    )
    assert not [*gap_notes(result)]
    shed = result.monthly.shed_requests + [[0.2, 0.0]] * result.monthly.demand_requests
    served = result.monthly.served_requests - [[[0.2, 0.0]]] * result.monthly.demand_requests
    monthly = dataclasses.replace(result.monthly, shed_requests=shed, served_requests=served)
    worse = dataclasses.replace(result, monthly=monthly)
    gap, _ = placement_gaps(worse)
    assert gap.gap_fraction == pytest.approx(gap.bound_fraction - gap.served_in_time_fraction)
    assert gap.gap_fraction == pytest.approx(0.2, abs=1e-3)
    (note,) = gap_notes(worse)
    assert note.endswith("with ideal placement of models it could be up to 50.0%")
