"""Replicas at moments that are short: the best partition of a site's nodes among its models.

Where all stages find room, each workload takes the clusters in the order of its routing. Where they do not, nodes are
divided in that order or as a linear program does, whichever gives the better levels. Sites of few nodes are divided by
the best static partition, too, where that is better. Of the smallest all partitions are seen. On others models have
multiples of many replicas at first, then ever fewer, about as many as in the best partition so far. On larger
sites of large replicas models only exchange one each, which mends what rounding left.

Arrays have the moments as last axis. No moment sees another: those are seen together at which the same may be held.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.elementwise import in_hours
from planner.engine.partitions import Choices, best_division
from planner.engine.site import Site, Stage
from planner.plan.placement import ROUNDING
from planner.records import record

_MOST_NODES = 32
"""Of a site, up to which partitions are looked at whatever its replicas: on larger ones moments are many."""
_MOST_REPLICAS = 48
"""Of the smallest model that a site has room for, up to which partitions are looked at, too."""
_MOST_EXCHANGED_REPLICAS = 128
"""Of the smallest model, up to which models exchange a replica: above that one is little."""
_MOST_POOLS = 3
"""Of models that share them, up to which partitions are looked at: five places for each of more are too many to see."""
_MOST_PARTITIONS = 2**21
"""Of a site's nodes times those of one model, up to which all of them are seen."""
_COARSE_CHOICES = 64
"""Numbers of nodes that a model may have on larger sites, where they are first looked at."""
_EXCHANGED = 2.0
"""Steps by which other partitions of those differ from the best so far."""
_ROUNDED = 1.0
"""Replicas by which other partitions of large sites differ from what is placed."""
_MOST_MOMENTS = 32
"""Partitioned at once: as much as stays in a processor's cache."""
_PARTS = 720_720
"""Of a node, in which every replica is whole: divisible by the accelerators that nodes have."""


def place_replicas(site: Site, stages: Sequence[Stage]) -> None:
    """Place replicas on an empty site for what all stages need, or for as much of it as can be served."""
    empty = site.copy()
    short = site.fill_stages(stages)
    # Where no node stands, as in an outage of the site, nothing can be divided.
    short = short[in_hours(empty.free, short).any(axis=0)]
    if not short.size:
        return
    short_stages = [stage.moments(short) for stage in stages]
    for alike in _alike(empty.moments(short), short_stages):
        # What needs nothing would only move what is rounded.
        stages_there = [stage.moments(alike).with_needs() for stage in short_stages]
        which = short[alike]
        levelling = _Levelling(empty.moments(which), stages_there)
        placed = site.moments(which)
        levelling.divide(placed)
        for moments in levelling.searched_together():
            searched = placed.moments(moments)
            levelling.moments(moments).search(searched)
            placed.put(moments, searched)
        site.put(which, placed)


def _alike(site: Site, stages: Sequence[Stage]) -> Iterator[Ints]:
    """Yield some of the moments at a time, at which the same groups may be held for the same needs."""
    is_there = site.free[[group.cluster for group in site.groups]] > 0.0
    needs = [stage.requests.any(axis=1) for stage in stages]
    yield from _of_each_kind(np.vstack([is_there, *needs]))


def _of_each_kind(traits: Floats | Bools) -> Iterator[Ints]:
    """Yield the moments of each set of traits, of shape (traits, moments)."""
    kinds, kind = np.unique(traits, axis=1, return_inverse=True)
    for number in range(kinds.shape[1]):
        yield np.flatnonzero(kind.ravel() == number)


def _is_searched(site: Site) -> tuple[Bools, Bools]:
    """Return the moments at which partitions are looked at, and those at which models exchange a replica at least."""
    nodes = site.free.sum(axis=0)
    smallest = float(_replica_nodes(site).min())
    replicas = nodes / smallest
    is_small = (nodes <= _MOST_NODES) | (replicas <= _MOST_REPLICAS)
    return is_small, is_small | (replicas <= _MOST_EXCHANGED_REPLICAS)


def _replica_nodes(site: Site) -> Floats:
    """Return the nodes of the smallest replica of each group; infinity where any share of a node will do."""
    smallest = np.array([float(group.replica_nodes.min()) for group in site.groups])
    return np.where(smallest > 0.0, smallest, np.inf)


@record
class _Share:
    """Workloads that have groups in common, and all that serves them."""

    workloads: tuple[int, ...]
    groups: tuple[int, ...]


class _Levelling:
    """The search for the best partition of a site at some moments."""

    def __init__(self, empty: Site, stages: Sequence[Stage]) -> None:
        """Search on an empty site."""
        self.empty = empty
        self.stages = [stage for stage in stages if stage.members]
        self.replica_nodes = _replica_nodes(empty)
        self.shares = self._shares()
        self.own = self._own_groups()

    def divide(self, placed: Site) -> None:
        """Put on a site what a linear program makes of it, where that is better."""
        placed.divide(np.arange(placed.free.shape[1]), self.empty, self.stages, self.own)

    def searched_together(self) -> Iterator[Ints]:
        """Yield some of the moments at a time, at which the same partitions are looked at."""
        # A single share has all nodes.
        if len(self.shares) < 2 or self._most_pools() > _MOST_POOLS:
            return
        free = self.empty.free[[group.cluster for group in self.empty.groups]]
        octaves = np.ceil(np.log2(np.floor(free / self.replica_nodes[:, None] + ROUNDING) + 1.0))
        is_small, is_exchanging = _is_searched(self.empty)
        octaves = np.where(is_small, octaves, 0.0)
        searched = np.flatnonzero(is_exchanging)
        for moments in _of_each_kind(np.vstack([octaves, is_small])[:, searched]):
            for begin in range(0, moments.size, _MOST_MOMENTS):
                yield searched[moments[begin : begin + _MOST_MOMENTS]]

    def moments(self, which: Ints) -> _Levelling:
        """Return the search at some of the moments."""
        return _Levelling(
            self.empty.moments(which), [stage.moments(which) for stage in self.stages]
        )

    def search(self, placed: Site) -> None:
        """Put on a site the best partition, where that is better; the same are looked at at all moments."""
        moments = np.arange(placed.free.shape[1])
        for stride, width in self._searches():
            partition = self._best_partition(placed, stride, width)
            placed.take_better(moments, partition, self.stages)

    def _searches(self) -> list[tuple[Floats, float]]:
        """Return the partitions to look at, one set after another.

        Each is given by the replicas in which groups are counted, and by how many of those a partition may differ from
        the best so far.
        """
        is_small, _ = _is_searched(self.empty)
        if not is_small[0]:
            return [(np.ones(len(self.empty.groups)), _ROUNDED)]
        first, *finer = self._strides()
        return [(first, np.inf), *((stride, _EXCHANGED) for stride in finer)]

    def _shares(self) -> list[_Share]:
        """Return the workloads of the stages with their groups; those that have a group in common together."""
        shares: list[_Share] = []
        for w in dict.fromkeys(w for stage in self.stages for w in stage.members):
            share = _Share(workloads=(w,), groups=tuple(self.empty.order[w]))
            for other in [other for other in shares if {*other.groups} & {*share.groups}]:
                shares.remove(other)
                groups = tuple(dict.fromkeys(other.groups + share.groups))
                share = _Share(workloads=other.workloads + share.workloads, groups=groups)
            shares.append(share)
        return shares

    def _most_pools(self) -> int:
        """Return the most groups that workloads share on clusters with nodes."""
        counts = [0]
        for share in self.shares:
            clusters = [self.empty.groups[g].cluster for g in share.groups]
            counts.append(sum(bool(self.empty.free[c].any()) for c in clusters))
        return max(counts)

    def _own_groups(self) -> dict[int, list[int]]:
        """Return the groups that may be placed for each workload: those on clusters with nodes."""
        own = {}
        for w in (w for share in self.shares for w in share.workloads):
            groups = [g for g in self.empty.order[w] if w in self.empty.groups[g].workloads]
            there = [g for g in groups if self.empty.free[self.empty.groups[g].cluster].any()]
            own[w] = there or groups[:1]
        return own

    def _strides(self) -> list[Floats]:
        """Return the replicas in which groups are counted, coarse first, then ever finer: each of shape (groups,).

        One at once where the site is so small that all partitions can be seen.
        """
        free = self.empty.free.max(axis=1)
        # As many as there are at any moment that is alike.
        octaves = np.log2(free[[g.cluster for g in self.empty.groups]] / self.replica_nodes + 1.0)
        counts = 2.0 ** np.ceil(octaves - ROUNDING)
        units = self._units(self.replica_nodes)[:, 0]
        partitions = float(np.prod(2.0 ** np.ceil(np.log2(free / units + 1.0) - ROUNDING)))
        stride = np.ones(len(counts))
        for share in self.shares:
            groups = list(share.groups)
            if partitions * counts[groups].prod() > _MOST_PARTITIONS:
                # Groups on clusters without nodes have one choice.
                there = max(int((counts[groups] > 1.0).sum()), 1)
                choices = _COARSE_CHOICES ** (1.0 / there)
                steps = np.ceil(np.log2(np.maximum(counts[groups] / choices, 1.0)))
                stride[groups] = 2.0**steps
        strides = [stride]
        while stride.max() > 1.0:
            stride = np.maximum(stride / 2.0, 1.0)
            strides.append(stride)
        return strides

    def _units(self, step_nodes: Floats) -> Floats:
        """Return what nodes of each cluster are counted in where groups have multiples of some, shape (clusters, 1).

        A cluster of which a group has any share is one unit.
        """
        units = np.full((len(self.empty.free), 1), np.inf)
        for c in range(len(units)):
            there = [g for g, group in enumerate(self.empty.groups) if group.cluster == c]
            parts = [
                round(nodes * _PARTS) for nodes in step_nodes[there].tolist() if nodes < np.inf
            ]
            if parts:
                units[c] = reduce(math.gcd, parts) / _PARTS
        return units

    def _best_partition(self, placed: Site, stride: Floats, width: float) -> Site:
        """Return the site in its best partition.

        Groups hold multiples of some replicas, at most some of these more or fewer than they do.
        """
        empty = self.empty
        moments = np.arange(empty.free.shape[1])
        step_nodes = self.replica_nodes * stride
        units = self._units(step_nodes)
        least = np.zeros((len(empty.groups), moments.size))
        counts = np.ones(len(empty.groups), dtype=np.intp)
        room = empty.free.copy()
        for g, group in enumerate(empty.groups):
            free = empty.free[group.cluster]
            if step_nodes[g] == np.inf:
                least[g] = free
                continue
            held = np.floor(placed.nodes[g] / step_nodes[g] + ROUNDING)
            least[g] = np.maximum(held - width, 0.0) * step_nodes[g]
            most = float(free.max()) / step_nodes[g] + ROUNDING
            counts[g] = int(min(most, 2.0 * width)) + 1
            room[group.cluster] -= least[g]
        models = []
        by_share = []
        for share in self.shares:
            steps = np.indices([counts[g] for g in share.groups]).reshape(len(share.groups), -1)
            nodes = np.zeros((len(empty.groups), steps.shape[1], moments.size))
            taken = np.zeros((steps.shape[1], len(room)))
            for g, count in zip(share.groups, steps, strict=True):
                nodes[g] = least[g]
                if counts[g] > 1:
                    c = empty.groups[g].cluster
                    nodes[g] += step_nodes[g] * count[:, None]
                    taken[:, c] += np.rint(step_nodes[g] / units[c, 0]) * count
            levels = self._levels_on(nodes, share)
            models.append(Choices(units=taken.astype(np.intp), levels=levels))
            by_share.append(nodes)
        units_free = np.floor(np.maximum(room, 0.0) / units + ROUNDING).astype(np.intp)
        nodes = np.zeros_like(least)
        for of_share, number in zip(by_share, best_division(models, units_free), strict=True):
            nodes += of_share[:, number, moments]
        partition = empty.partitioned(nodes)
        partition.place_divided(self.stages, self.own)
        best = empty.copy()
        best.nodes = partition.nodes
        best.requests = partition.requests
        for g, group in enumerate(empty.groups):
            best.free[group.cluster] -= best.nodes[g]
        return best

    def _levels_on(self, nodes: Floats, share: _Share) -> list[Floats]:
        """Return by stage what workloads reach that have nodes of shape (groups, choices, moments) for themselves.

        Each of shape (workloads, choices, moments).
        """
        count, moments = nodes.shape[1:]
        repeated = np.tile(np.arange(moments), count)
        site = self.empty.moments(repeated).partitioned(nodes.reshape(len(nodes), -1))
        stages = [stage.of(share.workloads).moments(repeated) for stage in self.stages]
        site.place_divided(stages, {w: self.own[w] for w in share.workloads})
        by_stage = []
        for stage in stages:
            levels = np.zeros((len(stage.members), repeated.size))
            for place, w in enumerate(stage.members):
                levels[place] = stage.level(place, site.placed_requests(w))
            # What rounding leaves of a level decides nothing.
            by_stage.append(np.round(levels, 6).reshape(-1, count, moments))
        return by_stage
