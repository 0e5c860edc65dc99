"""Levels are no lower than those of any static partition of nodes between models, all of which are seen here.

So no run has to ask whether its placement is below one. On sites of more than 48 replicas that is so but for one of
each model on each cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from planner.engine.allocation import node_steps
from planner.engine.levelling import place_replicas
from planner.engine.site import ReplicaGroup, Site, Stage
from planner.plan.placement import with_placement
from tests.engine.plans import cluster_plan, make_plan, workload_plan
from tests.engine.test_placement import deployment

TOLERANCE = 2e-4
"""Of a level: a placement halves the interval in which it lies sixteen times."""


@dataclass(frozen=True)
class Fleet:
    """A random site of one or two clusters and two or three models."""

    counts: list[int]
    """Nodes by cluster."""
    groups: list[ReplicaGroup]
    """By cluster, then by model."""
    stages: list[Stage]
    site: Site

    @property
    def models(self) -> int:
        """How many models there are."""
        return len(self.groups) // len(self.counts)

    def best(self, fewer: int = 0) -> tuple[float, ...]:
        """The levels of the best partition, stage by stage in ascending order; with fewer nodes on each cluster."""
        by_cluster = [divisions(count - fewer, self.models) for count in self.counts]
        return max(self._levels(partition) for partition in itertools.product(*by_cluster))

    def _levels(self, partition: tuple[tuple[int, ...], ...]) -> tuple[float, ...]:
        placed = np.zeros((self.models, 1))
        for c, nodes in enumerate(partition):
            for w, count in enumerate(nodes):
                group = self.groups[c * self.models + w]
                placed[w] += group.most_requests(w, {}, np.array([float(count)]))
        figures: list[float] = []
        for stage in self.stages:
            levels = [stage.level(place, placed[w])[0] for place, w in enumerate(stage.members)]
            figures += sorted(round(float(level), 4) for level in levels)
        return tuple(figures)


def divisions(nodes: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to divide nodes into parts."""
    for cuts in itertools.combinations_with_replacement(range(nodes + 1), parts - 1):
        edges = [0, *cuts, nodes]
        yield tuple(high - low for low, high in itertools.pairwise(edges))


def fleet(seed: int, clusters: int, least: int = 1, most: int = 8, most_models: int = 3) -> Fleet:
    """A site of some nodes whose pools are faster the larger they are, with some room or too little."""
    random = np.random.default_rng([seed, clusters])
    models = int(random.integers(2, most_models + 1))
    counts = random.integers(least // clusters or 1, most // clusters + 1, clusters).tolist()
    priorities = sorted(random.integers(0, 2, models).tolist())
    order = list(range(clusters))
    work = [
        workload_plan(f"w{w}", order, model=f"m{w}", priority=priority)
        for w, priority in enumerate(priorities)
    ]
    plan = make_plan(
        [cluster_plan(f"c{c}", nodes=count) for c, count in enumerate(counts)],
        work,
        requests_per_s=[1.0] * models,
    )
    plan = with_placement(plan, [deployment(c, (w,)) for c in order for w in range(models)])
    assert plan.placement is not None
    base = random.uniform(0.3, 3.0, (clusters, models))
    groups = [
        group(random, c, w, float(base[c, w]))
        for c, w in itertools.product(range(clusters), range(models))
    ]
    load = sum(counts) * random.uniform(0.3, 1.5) * random.dirichlet(np.ones(models))
    needs = load * base.mean(axis=0)
    classes = []
    for _, members in itertools.groupby(range(models), key=lambda w: priorities[w]):
        classes.append(tuple(members))
    up_to_target = np.linspace(0.0, 0.8, 5)[:, None]
    beyond = np.array([[0.8], [1.0]])
    stages = [
        Stage(members=members, requests=np.stack([steps * needs[w] for w in members]))
        for steps in (up_to_target, beyond)
        for members in classes
    ]
    nodes = np.array(counts, dtype=np.float64)[:, None]
    site = Site(plan.placement, groups, nodes, node_steps(plan))
    return Fleet(counts=counts, groups=groups, stages=stages, site=site)


def group(random: np.random.Generator, cluster: int, w: int, rate: float) -> ReplicaGroup:
    """Pools of one-node replicas, up to 60% faster a node from two nodes on and again from four."""
    least_nodes = np.array([0.0, 2.0, 4.0])[: int(random.integers(1, 4))]
    gains = random.uniform(1.0, 1.6, least_nodes.size)
    gains[0] = 1.0
    return ReplicaGroup(
        cluster=cluster,
        workloads=(w,),
        replica_nodes=np.ones((least_nodes.size, 1)),
        least_nodes=least_nodes[:, None],
        least_replicas=1,
        rates={w: np.asarray(rate * np.cumprod(gains)[:, None], dtype=np.float64)},
        missed=np.zeros((1, 0)),
    )


def below_best(clusters: int, count: int) -> list[int]:
    """The seeds of those of some sites of up to 8 nodes whose placement is below their best partition."""
    return [seed for seed in range(count) if is_below_best(fleet(seed, clusters))]


def is_below_best(placed: Fleet, fewer: int = 0) -> bool:
    """Whether a placement is below the best partition of a site, or of one with fewer nodes on each cluster."""
    place_replicas(placed.site, placed.stages)
    lost = np.array(placed.best(fewer)) - placed.site.levels(placed.stages)[:, 0]
    different = np.flatnonzero(np.abs(lost) > TOLERANCE)
    return bool(different.size and lost[different[0]] > 0.0)


def test_one_cluster_is_placed_as_well_as_by_any_partition() -> None:
    assert below_best(1, 150) == []


def test_two_clusters_are_placed_as_well_as_by_any_partition() -> None:
    assert below_best(2, 40) == []


@pytest.mark.parametrize(
    ("clusters", "least", "most", "most_models", "count"),
    [
        pytest.param(1, 9, 32, 3, 12, id="searched coarsely first"),
        pytest.param(2, 9, 32, 2, 12, id="searched coarsely first, on two clusters"),
        pytest.param(1, 33, 60, 2, 12, id="one large cluster"),
        pytest.param(2, 34, 48, 2, 10, id="two clusters of up to 48 nodes"),
    ],
)
def test_larger_sites_are_placed_as_well_as_by_any_partition(
    clusters: int, least: int, most: int, most_models: int, count: int
) -> None:
    sites = [fleet(seed, clusters, least, most, most_models) for seed in range(count)]
    assert not any(is_below_best(site) for site in sites)


def below_best_of_large(least: int, most: int, count: int, fewer: int = 0) -> list[int]:
    """The seeds of those of some sites of two clusters and two models that are below their best partition."""
    sites = [fleet(seed, 2, least, most, most_models=2) for seed in range(count)]
    return [seed for seed, site in enumerate(sites) if is_below_best(site, fewer)]


def test_larger_sites_of_two_clusters_are_off_by_a_node_of_each_model() -> None:
    assert below_best_of_large(50, 90, count=10, fewer=2) == []


@pytest.mark.prove
def test_many_sites_are_placed_as_well_as_by_any_partition() -> None:
    assert below_best(1, 1500) == []
    assert below_best(2, 160) == []


@pytest.mark.prove
def test_many_large_sites_are_placed_as_well_as_by_any_partition() -> None:
    assert below_best_of_large(34, 48, count=120) == []
    assert below_best_of_large(50, 90, count=40, fewer=2) == []
