"""Whole replicas on small fleets against every way to place them, by the levels reached class by class."""

from __future__ import annotations

import numpy as np
import pytest

from planner.arrays import Floats
from planner.engine.allocation import node_steps
from planner.engine.levelling import place_replicas
from planner.engine.site import ReplicaGroup, Site, Stage
from planner.plan.placement import with_placement
from planner.plan.plan import Deployment, Plan
from planner.records import record
from tests.engine.plans import cluster_plan, make_plan, workload_plan

_PARTS = 8
"""Of a node: the smallest replica."""
_EQUAL = 1e-5
"""By which equal levels may differ: those of a part are rounded to a millionth."""


@record
class Fleet:
    """Models that each serve one workload on one or two clusters."""

    priorities: tuple[int, ...]
    """By workload."""
    needs: Floats
    """By workload, requests an hour."""
    nodes: tuple[int, ...]
    """By cluster."""
    groups: tuple[ReplicaGroup, ...]

    def plan(self) -> Plan:
        """Return a plan that routes each workload to its clusters in order."""
        clusters = [cluster_plan(f"c{c}", nodes) for c, nodes in enumerate(self.nodes)]
        workloads = []
        for w, priority in enumerate(self.priorities):
            order = tuple(group.cluster for group in self.groups if w in group.workloads)
            workloads.append(workload_plan(f"w{w}", order, priority=priority))
        plan = make_plan(clusters, workloads, requests_per_s=[1.0] * len(workloads))
        deployments = [
            Deployment(
                cluster=group.cluster,
                workloads=group.workloads,
                nodes_per_replica=float(group.replica_nodes[pool, 0]),
                speed=1.0,
                resident_bytes=1.0,
                memory_bytes=2.0,
                load_h=0.1,
                least_nodes=float(group.least_nodes[pool, 0]),
            )
            for group in self.groups
            for pool in range(len(group.replica_nodes))
        ]
        return with_placement(plan, deployments)

    def site(self) -> Site:
        """Return the site with replicas placed for all workloads, class by class."""
        plan = self.plan()
        assert plan.placement is not None
        nodes = np.array(self.nodes, dtype=np.float64)[:, None]
        site = Site(plan.placement, self.groups, nodes, node_steps(plan))
        stages = []
        for members in site.classes:
            requests = np.stack([np.array([[0.0], [self.needs[w]]]) for w in members])
            stages.append(Stage(members=members, requests=requests))
        place_replicas(site, stages)
        return site

    def capacity(self, g: int, nodes: Floats) -> Floats:
        """Return the requests an hour that a group serves on some nodes, in the best of its pools."""
        group = self.groups[g]
        (w,) = group.workloads
        return np.asarray((group.whole(nodes) * group.rates[w]).max(axis=0))

    def objective(self, capacity: Floats) -> Floats:
        """Return the levels reached, class by class in ascending order, shape (workloads, placements)."""
        levels = np.minimum(capacity / self.needs[:, None], 1.0)
        priorities = np.array(self.priorities)
        by_class = [
            np.sort(levels[priorities == priority], axis=0) for priority in sorted({*priorities})
        ]
        return np.concatenate(by_class)


def random_fleet(seed: int) -> Fleet:
    """Return up to three models on up to eight nodes, short of them or not."""
    random = np.random.default_rng(seed)
    models = int(random.integers(1, 4))
    clusters = int(random.integers(1, 3))
    nodes = random.integers(1, 8 // clusters + 1, clusters)
    groups = []
    full = np.zeros(models)
    for c in range(clusters):
        for w in range(models):
            # The first cluster serves all, the second some.
            if c and random.random() < 0.4:
                continue
            pools = int(random.integers(1, 4))
            size = random.choice([0.125, 0.25, 0.5, 1.0, 2.0])
            least_nodes = np.sort(random.choice([0.0, 1.0, 2.0, 3.0, 4.0], pools, replace=False))
            least_nodes[0] = 0.0
            gains = np.cumprod(random.uniform(1.0, 1.4, pools))
            rates = np.asarray(gains * random.uniform(1.0, 10.0), dtype=np.float64)
            groups.append(
                ReplicaGroup(
                    cluster=c,
                    workloads=(w,),
                    replica_nodes=np.full((pools, 1), size),
                    least_nodes=least_nodes[:, None],
                    least_replicas=1,
                    rates={w: rates[:, None]},
                    missed=np.zeros((pools, 0)),
                )
            )
            full[w] += nodes[c] * rates[-1]
    return Fleet(
        priorities=tuple(random.integers(0, 2, models).tolist()),
        needs=full / models * random.uniform(0.4, 2.0, models),
        nodes=tuple(nodes.tolist()),
        groups=tuple(groups),
    )


def cluster_capacities(fleet: Fleet, c: int) -> Floats:
    """Return the capacity of each workload by placement on a cluster, shape (workloads, placements).

    Capacity never falls with nodes, so that placements which leave nodes to nobody need not be seen.
    """
    there = [g for g, group in enumerate(fleet.groups) if group.cluster == c]
    parts = fleet.nodes[c] * _PARTS
    counts = np.indices([parts + 1] * len(there)).reshape(len(there), -1)
    counts = counts[:, counts.sum(axis=0) == parts]
    capacities = np.zeros((len(fleet.needs), counts.shape[1]))
    for place, g in enumerate(there):
        by_count = fleet.capacity(g, np.arange(parts + 1) / _PARTS)
        capacities[fleet.groups[g].workloads[0]] = by_count[counts[place]]
    return np.unique(capacities, axis=1)


def best_objective(fleet: Fleet) -> Floats:
    """Return the lexicographically highest levels of all placements."""
    capacities = np.zeros((len(fleet.needs), 1))
    for c in range(len(fleet.nodes)):
        if any(group.cluster == c for group in fleet.groups):
            more = cluster_capacities(fleet, c)
            capacities = (capacities[:, :, None] + more[:, None]).reshape(len(capacities), -1)
    objectives = fleet.objective(capacities)
    best = []
    for row in range(len(objectives)):
        highest = objectives[row].max()
        best.append(highest)
        objectives = objectives[:, objectives[row] >= highest - _EQUAL]
    return np.array(best)


def site_objective(fleet: Fleet) -> Floats:
    """Return the levels that the site reaches."""
    site = fleet.site()
    capacities = np.zeros((len(fleet.needs), 1))
    for g, group in enumerate(fleet.groups):
        capacities[group.workloads[0]] += fleet.capacity(g, site.nodes[g])
    return fleet.objective(capacities)[:, 0]


@pytest.mark.parametrize(
    "fleets", [60, pytest.param(500, marks=[pytest.mark.prove, pytest.mark.slow])]
)
def test_replicas_are_placed_as_well_as_by_trying_all_ways(fleets: int) -> None:
    for seed in range(fleets):
        fleet = random_fleet(seed)
        assert site_objective(fleet) == pytest.approx(best_objective(fleet), abs=_EQUAL)


def test_what_replicas_are_placed_for_fits_on_them() -> None:
    """Also where a class is levelled after it was found short: what was tried before leaves nothing behind."""
    for seed in range(60):
        fleet = random_fleet(seed)
        site = fleet.site()
        for g, group in enumerate(fleet.groups):
            (w,) = group.workloads
            placed = site.requests[g].get(w, np.zeros(1))
            assert placed[0] <= fleet.capacity(g, site.nodes[g])[0] * (1.0 + 1e-9)
