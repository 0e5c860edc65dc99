"""What clusters that rules enlarge or reduce sustain at other sizes than that they begin with."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from planner.arrays import Floats
from planner.demand.plan import DemandPlan
from planner.plan.capacity import Factors, as_first_bought
from planner.plan.load_tables import LoadTables, load_tables
from planner.plan.placement import laid_out
from planner.plan.plan import ClusterSize
from planner.plan.reuse import Reuse
from planner.plan.service import Service
from planner.plan.slo_capacity import POOL_STEPS, pooled_nodes
from planner.scenario.scenario import Scenario

Services = Mapping[tuple[str, str], Service]
"""By cluster and workload."""
_STEP = 2  # sizes are at least so many times the one before
_SAME = 1.005  # what a node may sustain at one size over another that is as good as it


def sizes_of(
    scenario: Scenario, services: Services, factors: Factors, demand: DemandPlan, reuse: Reuse
) -> dict[int, tuple[ClusterSize, ...]]:
    """Return the sizes of each cluster that a rule enlarges or reduces, rising; of others, and where it is alike, none.

    Its models keep the layouts they begin with. From the size on at which a node does as well as in the largest, no
    more are worked out.
    """
    sizes = {}
    for c, name in enumerate(scenario.clusters):
        known: Services = {pair: service for pair, service in services.items() if pair[0] == name}
        steps = _steps(scenario, name) if known and scenario.router_pool == "cluster" else []
        begins = pooled_nodes(as_first_bought(scenario, name).nodes)
        largest = resized(scenario, known, steps[-1], factors, reuse) if steps[1:] else known
        worked_out: list[ClusterSize] = []
        now = known
        for nodes in steps:
            if nodes > begins and all(_over(largest, now, pair) <= _SAME for pair in known):
                break
            now = known if nodes == begins else resized(scenario, known, nodes, factors, reuse)
            speed = np.array([_over(now, known, (name, w)) if (name, w) in known else 1.0 for w in scenario.workloads])
            alone = scenario.model_copy(update={"clusters": {name: scenario.clusters[name]}})
            worked_out.append(_size(nodes, speed, load_tables(alone, now, demand, reuse)))
        if worked_out[1:]:
            sizes[c] = tuple(worked_out)
    return sizes


def _steps(scenario: Scenario, name: str) -> list[int]:
    """Return the sizes to which rules may bring a cluster, as figures are worked out for them."""
    rules = [rule for rule in scenario.expansion.rules if rule.cluster == name]
    begins = pooled_nodes(as_first_bought(scenario, name).nodes)
    enlarging = [rule.most_nodes or math.inf for rule in rules if rule.enlarges]
    least = begins if len(enlarging) == len(rules) else 1
    most = max(begins, max(enlarging, default=begins))
    steps: list[int] = []
    for step in POOL_STEPS:
        if least <= step <= most and (not steps or step >= _STEP * steps[-1] or step == begins):
            steps.append(step)
    return steps if rules else []


def resized(scenario: Scenario, known: Services, nodes: int, factors: Factors, reuse: Reuse) -> Services:
    """Return how a cluster of some nodes serves its workloads in its layouts; as it does where it could not so."""
    services = {}
    for (name, workload), service in known.items():
        groups = 1 if service.spec is None else service.spec.attention_data_parallel
        attention = "data-parallel" if groups > 1 else "tensor-parallel"
        layout = {"nodes": nodes, "tensor_parallel": service.tensor_parallel, "attention": attention}
        services[name, workload] = laid_out(scenario, factors, reuse, name, workload, layout) or service
    return services


def _over(one: Services, other: Services, pair: tuple[str, str]) -> float:
    """Return what a node sustains of a workload in one size over another."""
    return one[pair].requests_per_s / other[pair].requests_per_s


def _size(nodes: int, speed: Floats, tables: LoadTables) -> ClusterSize:
    """Return a size's figures from its speed over the size that the cluster begins with, and its tables alone."""
    return ClusterSize(
        nodes=nodes,
        speed=speed,
        late_table=tables.late_tables[0],
        refused_table=tables.refused_tables[0],
        calm_tables=tables.calm_tables[:, 0],
        most_loads=tables.most_loads[0],
        burst_tables={w: by_rate for (_, w), by_rate in tables.burst_tables.items()},
    )
