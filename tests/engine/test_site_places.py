"""Replicas on a site's nodes: no more work than they hold, and what is left goes to those that are late."""

from __future__ import annotations

import numpy as np
import pytest

from planner.engine.allocation import node_steps
from planner.engine.levelling import place_replicas
from planner.engine.site import ReplicaGroup, Site, Stage, month_misses
from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD
from tests.engine.test_placement import deployment, two_models


def group(workload: int, least_nodes: list[float], missed: list[float]) -> ReplicaGroup:
    """Pools of one-node replicas that serve a request an hour each, and miss a share at any load, by size."""
    sizes = len(least_nodes)
    tables = np.repeat(np.array(missed)[:, None], LOAD_CELLS + 1, axis=1)
    return ReplicaGroup(
        cluster=0,
        workloads=(workload,),
        replica_nodes=np.ones((sizes, 1)),
        least_nodes=np.array(least_nodes)[:, None],
        least_replicas=1,
        rates={workload: np.ones((sizes, 1))},
        missed=month_misses(tables, np.full(sizes, MOST_LOAD)),
    )


def site(nodes: int, groups: list[ReplicaGroup]) -> Site:
    """An empty site of one cluster and two workloads of one class."""
    plan = two_models(nodes, [deployment(0, (0,)), deployment(0, (1,))])
    assert plan.placement is not None
    return Site(plan.placement, groups, np.array([[float(nodes)]]), node_steps(plan))


def needs(*steps: tuple[float, float]) -> Stage:
    """A stage of both workloads."""
    return Stage(members=(0, 1), requests=np.array(steps)[:, :, None])


def test_what_a_stage_had_no_room_for_is_not_placed_in_the_next() -> None:
    """Three nodes: one request of the second workload, and two of the four that the first asks for."""
    placed = site(3, [group(0, [0.0], [0.0]), group(1, [0.0], [0.0])])
    place_replicas(placed, [needs((0.0, 4.0), (0.0, 1.0)), needs((4.0, 5.0), (1.0, 1.0))])
    assert placed.nodes[:, 0].tolist() == [2.0, 1.0]
    assert placed.placed_requests(0).tolist() == [2.0]
    assert placed.placed_requests(1).tolist() == [1.0]


@pytest.mark.parametrize(
    ("missed", "nodes"),
    [
        ([0.1, 0.0], 3.0),  # three nodes miss nothing
        ([0.0005, 0.0], 1.0),  # too little to matter
        ([0.0, 0.1], 1.0),  # larger and worse
    ],
)
def test_what_is_left_enlarges_a_pool_that_is_late(missed: list[float], nodes: float) -> None:
    placed = site(5, [group(0, [0.0, 3.0], missed), group(1, [0.0], [0.0])])
    place_replicas(placed, [needs((0.0, 1.0), (0.0, 1.0))])
    assert placed.nodes[:, 0].tolist() == [1.0, 1.0]
    placed.enlarge_late(np.array([[0.5], [0.5]]))
    assert placed.nodes[:, 0].tolist() == [nodes, 1.0]
    assert placed.free[0, 0] == 4.0 - nodes


def test_a_pool_is_not_enlarged_beyond_what_is_left() -> None:
    placed = site(3, [group(0, [0.0, 3.0], [0.1, 0.0]), group(1, [0.0], [0.0])])
    place_replicas(placed, [needs((0.0, 1.0), (0.0, 1.0))])
    placed.enlarge_late(np.array([[0.5], [0.5]]))
    assert placed.nodes[:, 0].tolist() == [1.0, 1.0]


def test_a_month_misses_what_its_hours_do() -> None:
    """Hours at 100, 85, 70, 55 and 40% of the busiest; beyond the end of a table no more is in time than there."""
    missed = np.sort(np.random.default_rng(1).uniform(0.0, 1.0, (2, LOAD_CELLS + 1)))
    months = month_misses(missed, np.full(2, MOST_LOAD))
    for cell in (0, 20, LOAD_CELLS, 2 * LOAD_CELLS, months.shape[1] - 1):
        expected = np.zeros(2)
        for traffic in (1.0, 0.85, 0.7, 0.55, 0.4):
            load = traffic * cell * MOST_LOAD / LOAD_CELLS
            in_table = min(int(traffic * cell), LOAD_CELLS)
            in_time = (1.0 - missed[:, in_table]) * min(1.0, MOST_LOAD / max(load, 1e-9))
            expected += traffic * (1.0 - in_time) / 3.5
        assert months[:, cell] == pytest.approx(expected)


def test_a_table_made_as_wide_as_others_misses_no_less_beyond_its_own_end() -> None:
    """What another cluster's table is wide enough for must not make a pool look calm where it is overloaded."""
    missed = np.sort(np.random.default_rng(2).uniform(0.0, 0.3, (2, LOAD_CELLS + 1)))
    ends = np.full(2, MOST_LOAD)
    padded = np.pad(missed, ((0, 0), (0, 3 * LOAD_CELLS)), mode="edge")
    assert np.array_equal(month_misses(padded, ends), month_misses(missed, ends))
    # One of them has loads of its own up to the end of the wider table.
    months = month_misses(padded, np.array([MOST_LOAD, 4.0 * MOST_LOAD]))
    twice = 2 * LOAD_CELLS
    assert months[0, twice] == pytest.approx(month_misses(missed, ends)[0, twice])
    assert months[1, twice] < month_misses(missed, ends)[1, twice]
