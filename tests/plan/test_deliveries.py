"""What is delivered later moves nothing before it is there."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD
from planner.plan.placement import with_placement
from planner.plan.plan import ClusterPlan, Plan
from planner.plan.routing import workload_plan
from tests.engine.plans import cluster_plan, make_plan, node_power
from tests.engine.plans import workload_plan as workload
from tests.engine.test_placement import deployment
from tests.engine.worlds import scenario_of

MONTH_H = 744.0


def tiers(clusters: list[ClusterPlan]) -> list[list[str]]:
    """The names of the clusters that are alike to a workload, in routing order."""
    services: Any = {}
    for cluster in clusters:
        lateness = SimpleNamespace(late_fractions=[0.0])
        services[cluster.name, "chat"] = SimpleNamespace(
            spec="a layout", speed=1.0, requests_per_s=1.0, lateness=lateness, cache=None
        )
    scenario = scenario_of({})
    plan = workload_plan(scenario, "chat", clusters, services, np.zeros(1))
    return [[clusters[c].name for c in tier] for tier in plan.cluster_tiers]


def test_machines_that_come_later_part_none_that_are_alike_before() -> None:
    """10.0 and 10.15 kW are alike within 2%; a later cluster of 9.9 kW is like the first of them only."""
    first = cluster_plan("first", node_power=node_power(full_kw=10.0))
    second = cluster_plan("second", node_power=node_power(full_kw=10.15))
    later = cluster_plan("later", node_power=node_power(full_kw=9.9), online_h=MONTH_H)
    assert tiers([first, second]) == [["first", "second"]]
    for clusters in ([first, second, later], [later, second, first]):
        assert tiers(clusters) == [["later", "first", "second"]]
    much_less = cluster_plan("later", node_power=node_power(full_kw=5.0), online_h=MONTH_H)
    assert tiers([first, second, much_less]) == [["later"], ["first", "second"]]


@pytest.mark.parametrize("online_h", [0.0, MONTH_H])
def test_needs_are_counted_in_a_cluster_that_is_there(online_h: float) -> None:
    """The cluster that is offered work first is late from 40% on; before it comes, nobody's needs are counted in it."""

    def needs(order: list[int]) -> Plan:
        clusters = [cluster_plan("now"), cluster_plan("later", online_h=online_h)]
        plan = make_plan(
            clusters, [workload("chat", order, months=2)], months=2, requests_per_s=[6.0]
        )
        late = plan.late_tables.copy()
        late[1, :, int(0.4 * LOAD_CELLS / MOST_LOAD) :] = 1.0
        plan = dataclasses.replace(plan, late_tables=late)
        return with_placement(plan, [deployment(c, (0,)) for c in order])

    alone = needs([0]).placement
    both = needs([1, 0]).placement
    assert alone is not None
    assert both is not None
    is_same = bool((alone.target_requests == both.target_requests).all())
    assert is_same == (online_h > 0.0)
