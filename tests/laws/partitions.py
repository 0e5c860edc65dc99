"""The best static partition of each cluster between models: what a placement may never fall below.

A part holds one model for good, so that each model is a scenario of its own, and its runs are shared by all partitions
in which it has the same nodes.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

from tests.laws.outcomes import Outcome, Runs, Served, objective
from tests.laws.worlds import World

MOST_RUNS = 48
"""Runs of single models in a first grid; from the best of it single nodes are moved."""
MOST_MOVES = 6

Partition = tuple[tuple[int, ...], ...]
"""Nodes by model and cluster."""


def best_partition(world: World, runs: Runs) -> Outcome | None:
    """Return what the best static partition serves; None for a single model, which has no other."""
    models = world.models
    if len(models) == 1:
        return None

    @functools.cache
    def figures(partition: Partition) -> tuple[float, ...]:
        return objective(_served(world, partition, runs).values())

    best = max(grid(world), key=figures)
    for _ in range(MOST_MOVES):
        neighbour = max(_neighbours(best), key=figures)
        if figures(neighbour) <= figures(best):
            break
        best = neighbour
    # Neither tokens nor hours are compared.
    return Outcome(workloads=_served(world, best, runs), tokens=0.0, energy_kwh=0.0, hourly={})


def _served(world: World, partition: Partition, runs: Runs) -> dict[str, Served]:
    """Return what each workload gets where every model has nodes of its own."""
    whole = runs.outcome(world).workloads
    served: dict[str, Served] = {}
    for model, counts in zip(world.models, partition, strict=True):
        workloads = [workload for workload in world.workloads if workload.model == model]
        if any(counts):
            alone = replace(world.with_nodes(counts), workloads=tuple(workloads))
            served |= runs.outcome(alone).workloads
        else:
            for workload in workloads:
                asked = whole[workload.name]
                served[workload.name] = replace(asked, missed=asked.due)
    return served


def grid(world: World) -> list[Partition]:
    """Return partitions of all clusters: every one of a small site, else evenly spaced ones."""
    counts = [cluster.count for cluster in world.clusters]
    model_count = len(world.models)

    def run_count(levels: int) -> int:
        """Return the runs of a grid: each model with every number of nodes of each cluster."""
        return model_count * math.prod(min(levels, count) + 1 for count in counts)

    levels = max(counts)
    while levels > 1 and run_count(levels) > MOST_RUNS:
        levels -= 1
    choices = [_divisions(count, model_count, levels) for count in counts]
    by_cluster = itertools.product(*choices)
    return [tuple(zip(*divisions, strict=True)) for divisions in by_cluster]


def _divisions(nodes: int, parts: int, levels: int) -> list[tuple[int, ...]]:
    """Return the divisions of nodes into parts, each about a multiple of nodes / levels."""
    divisions = set()
    for cuts in itertools.combinations_with_replacement(range(levels + 1), parts - 1):
        edges = [0, *(round(nodes * cut / levels) for cut in cuts), nodes]
        divisions.add(tuple(high - low for low, high in itertools.pairwise(edges)))
    return sorted(divisions)


def _neighbours(partition: Partition) -> list[Partition]:
    """Return the partitions in which one node of one cluster holds another model, and the partition itself."""
    neighbours = [partition]
    models = range(len(partition))
    for cluster in range(len(partition[0])):
        for source, target in itertools.permutations(models, 2):
            if partition[source][cluster] > 0:
                counts = [list(row) for row in partition]
                counts[source][cluster] -= 1
                counts[target][cluster] += 1
                neighbours.append(tuple(tuple(row) for row in counts))
    return neighbours
