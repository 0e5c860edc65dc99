"""Bursts on a cluster beside others: they go where there is room, and are borne together where there is none."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from planner.arrays import Floats
from planner.engine.hourly import WindowInput
from planner.engine.window import evaluate_window
from planner.plan.load_tables import LOAD_CELLS, load_grid
from planner.plan.plan import Plan
from tests.engine.plans import cluster_plan, make_plan, workload_plan

LOADS = load_grid(LOAD_CELLS)
EVEN = 0.05 * LOADS**2
BURSTY = 0.05 * LOADS**2 + 0.2 * LOADS**3


def plan_with(nodes: tuple[int, ...], **changes: Any) -> Plan:
    """Return clusters of one node-hour a request, each filled to 85% in order, whose bursts make many late."""
    clusters = tuple(cluster_plan(name=f"c{n}", nodes=count) for n, count in enumerate(nodes))
    work = (workload_plan(clusters=range(len(nodes))),)
    changes = {"preferred_utilisation": 0.85, **changes}
    tables = np.broadcast_to(BURSTY, (len(nodes), 1, BURSTY.size)).copy()
    even = np.broadcast_to(EVEN, tables.shape).copy()
    calm = np.stack([even, np.zeros_like(even)])
    return dataclasses.replace(
        make_plan(clusters, work, late_tables=tables, no_burst_tables=calm), **changes
    )


def late_share(plan: Plan, requests: float) -> float:
    nodes = np.array([[float(cluster.nodes)] for cluster in plan.clusters])
    rate = float(plan.requests_per_node_h.flat[0])
    given = WindowInput(
        first_hour=0,
        demand_requests=np.array([[requests * rate]]),
        nodes=nodes,
        speed={},
        incidents={},
        waiting_requests=(np.zeros(0),),
    )
    result = evaluate_window(plan, given)
    return float(result.late_requests.sum() / result.demand_requests.sum())


def at(table: Floats, load: float) -> float:
    return float(np.interp(load, LOADS, table))


def test_a_cluster_alone_bears_its_own_bursts() -> None:
    assert late_share(plan_with((10,)), 8.0) == pytest.approx(at(BURSTY, 0.8), rel=1e-6)


@pytest.mark.parametrize("idle", [10, 90])
def test_an_idle_cluster_takes_the_bursts_of_a_full_one(idle: int) -> None:
    """Late as without bursts at its own load, and by what bursts add at the load of both together."""
    together = 8.0 / (10 + idle)
    expected = at(EVEN, 0.8) + at(BURSTY, together) - at(EVEN, together)
    assert late_share(plan_with((10, idle)), 8.0) == pytest.approx(expected, rel=1e-6)
    assert late_share(plan_with((10, idle)), 8.0) < 0.6 * late_share(plan_with((10,)), 8.0)


def test_clusters_that_are_equally_full_bear_what_one_of_their_size_would() -> None:
    plan = plan_with((10, 10), preferred_utilisation=0.0)
    assert late_share(plan, 16.0) == pytest.approx(at(BURSTY, 0.8), rel=1e-6)
    assert late_share(plan_with((20,)), 16.0) == pytest.approx(at(BURSTY, 0.8), rel=1e-6)


def test_more_nodes_elsewhere_never_make_more_late() -> None:
    shares = [late_share(plan_with((10, idle)), 12.0) for idle in range(4, 60, 4)]
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(shares))
