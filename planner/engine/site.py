"""The nodes of a site at many moments at once, and the whole replicas that are placed on them.

A moment is a monthly review or a single hour. Workloads are served class by class. Where a class finds room for all it
needs, each workload takes the clusters in the order of its routing. Where it does not, the shares that its workloads
are served are levelled: the highest level at which whole replicas for all of them fit, found by halving, with the work
of those that several clusters serve divided by a linear program; then what room is left raises the lowest first.

Arrays have the moments as last axis. No moment sees another.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.elementwise import in_hours, safe_denominator
from planner.engine.allocation import Demand, Steps, allocate
from planner.engine.hourly import Route
from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD
from planner.plan.placement import ROUNDING
from planner.plan.plan import Placement
from planner.records import record

_HALVINGS = 16
"""Of the interval in which the level of a class lies: to less than a ten-thousandth."""
_NO_RATE = 1e-30
"""Requests an hour, as a divisor where a pool does not serve a workload."""
_LITTLE_LATE = 1e-3
"""Of requests: layouts that differ by less in what they miss are told apart by their room."""
_HOURS = (1.0, 0.85, 0.7, 0.55, 0.4)
"""Traffic of hours over the busiest, which stand for a month where layouts are compared."""
_MOST_LOAD = 1e3
"""Load beyond which layouts are not told apart."""
_POOL_ROUNDS = 2
"""How often work is divided among clusters at the rates of the pools that the division before it gives."""
_FEW_REPLICAS = 16
"""Of the largest kind: with no more a site is small, and what rounding to whole replicas costs is looked at."""
_MOST_WHOLE_SPLITS = 16
"""Ways to leave each workload to one cluster up to which all of them are seen."""

Need = Callable[[int, Floats], Floats]
"""The capacity that a workload needs for a level of service from 0 to 1, requests an hour, shape (moments,)."""


@record
class ReplicaGroup:
    """The same models on one cluster, in one or more pools of different sizes, of which one is held."""

    cluster: int
    workloads: tuple[int, ...]
    """Those for which replicas are placed."""
    size: Floats
    """Nodes of a replica, shape (pools, moments or 1); 0 where any share of a node will do."""
    least_nodes: Floats
    """Nodes from which a pool's figures hold, of the same shape."""
    least_replicas: int
    """Replicas that hold all fine-tunes of a model between them."""
    rates: Mapping[int, Floats]
    """By workload that it serves, requests an hour of a node, shape (pools, moments)."""
    missed: Floats
    """Share of requests late or refused by load over capacity, shape (pools, cells + 1); none where work can wait."""

    def moments(self, which: Ints) -> ReplicaGroup:
        """Return the group at some of the moments."""
        size = self.size
        least_nodes = self.least_nodes
        if size.shape[1] > 1:
            size = in_hours(size, which)
            least_nodes = in_hours(least_nodes, which)
        rates = {w: in_hours(rate, which) for w, rate in self.rates.items()}
        return replace(self, size=size, least_nodes=least_nodes, rates=rates)

    def whole(self, nodes: Floats) -> Floats:
        """Return the nodes of the whole replicas on some nodes, by pool; 0 where a pool needs more of them."""
        if self.is_divisible:
            return np.where(nodes >= self.least_nodes - ROUNDING, nodes, 0.0)
        held = nodes / self.size
        held += ROUNDING
        np.floor(held, out=held)
        held *= self.size
        held[held < self.least_nodes - ROUNDING] = 0.0
        return held

    @property
    def is_divisible(self) -> bool:
        """Whether any share of a node will do."""
        return float(self.size[0, 0]) == 0.0

    def work(self, requests: Mapping[int, Floats]) -> Floats:
        """Return the node-equivalents that requests take, by pool, shape (pools, moments)."""
        work = np.zeros((len(self.size), 1))
        for w, wanted in requests.items():
            # A pool that does not serve it would take any number of nodes.
            work = work + wanted / np.maximum(self.rates[w], _NO_RATE)
        return work

    def nodes_for(self, requests: Mapping[int, Floats]) -> Floats:
        """Return the fewest nodes whose whole replicas serve some requests, shape (moments,)."""
        work = self.work(requests)
        if self.is_divisible:
            return np.asarray(work.min(axis=0))
        replicas = np.ceil(work / self.size - ROUNDING)
        least_replicas = np.ceil(self.least_nodes / self.size - ROUNDING)
        least_replicas = np.maximum(least_replicas, self.least_replicas)
        nodes = np.maximum(replicas, least_replicas) * self.size
        nodes = np.where(work > 0.0, nodes, 0.0)
        return np.asarray(nodes.min(axis=0))

    def most_requests(self, w: int, requests: Mapping[int, Floats], nodes: Floats) -> Floats:
        """Return what of a workload some nodes serve beside other requests, shape (moments,)."""
        spare = self.whole(nodes) - self.work(requests)
        return np.asarray(np.maximum(spare * self.rates[w], 0.0).max(axis=0))

    def best_pool(self, requests: Mapping[int, Floats], nodes: Floats) -> Ints:
        """Return the pool on some nodes that misses least at a load, and of equals has the most room, shape (moments,).

        Without work it is the largest.
        """
        held = self.whole(nodes)
        load = np.broadcast_to(self.work(requests) / safe_denominator(held), held.shape)
        score = np.minimum(load, _MOST_LOAD) * _LITTLE_LATE
        if self.missed.size:
            hours = [self._misses(load * traffic) * traffic for traffic in _HOURS]
            misses = np.asarray(sum(hours)) / sum(_HOURS)
            score = score + np.floor(misses / _LITTLE_LATE)
        score = np.where(held > 0.0, score, np.inf)
        largest_first = score[::-1].argmin(axis=0)
        return np.asarray(len(score) - 1 - largest_first, dtype=np.intp)

    def _misses(self, load: Floats) -> Floats:
        """Return the share late or refused at loads over the capacity of each pool, shape (pools, moments)."""
        cells = np.minimum(load * (LOAD_CELLS / MOST_LOAD), self.missed.shape[1] - 1)
        misses = np.take_along_axis(self.missed, cells.astype(np.intp), axis=1)
        # Beyond the end of a table no more is in time than there.
        end_load = (self.missed.shape[1] - 1) * (MOST_LOAD / LOAD_CELLS)
        in_table = end_load / np.maximum(load, end_load)
        return np.asarray(1.0 - (1.0 - misses) * in_table)


class Site:
    """Replicas being placed on the nodes of some moments."""

    def __init__(
        self, placement: Placement, groups: Sequence[ReplicaGroup], nodes: Floats, steps: Steps
    ) -> None:
        """Start with empty nodes, shape (clusters, moments)."""
        workloads = placement.pools.workloads
        self.groups = groups
        self.steps = steps
        self.free = nodes.copy()
        """Nodes that hold nothing yet, shape (clusters, moments)."""
        self.nodes = np.zeros((len(groups), nodes.shape[1]))
        """Nodes of each group, shape (groups, moments)."""
        self.requests: list[dict[int, Floats]] = [{} for _ in groups]
        """By group and workload, the requests an hour for which they are placed, shape (moments,)."""
        self.order = [_group_order(placement, groups, w) for w in range(len(workloads))]
        """By workload, the groups that serve it in the order in which they are offered it."""
        by_class = itertools.groupby(
            placement.pools.by_priority, key=lambda w: workloads[w].priority
        )
        self.classes = [tuple(members) for _, members in by_class]
        self.waits = [workload.deadline_h > 0 for workload in workloads]
        self.urgent = [members for members in self.classes if not self.waits[members[0]]]
        """The classes that cannot wait, and those that can."""
        self.patient = [members for members in self.classes if self.waits[members[0]]]

    def moments(self, which: Ints) -> Site:
        """Return the site at some of the moments, as a copy."""
        other = copy.copy(self)
        other.groups = [group.moments(which) for group in self.groups]
        other.free = in_hours(self.free, which)
        other.nodes = in_hours(self.nodes, which)
        other.requests = [
            {w: in_hours(placed, which) for w, placed in of_group.items()}
            for of_group in self.requests
        ]
        return other

    def copied(self) -> Site:
        """Return an independent copy."""
        other = copy.copy(self)
        other.free = self.free.copy()
        other.nodes = self.nodes.copy()
        # What is added to is replaced, never written into.
        other.requests = [dict(of_group) for of_group in self.requests]
        return other

    def put(self, which: Ints, other: Site) -> None:
        """Take over what another site has at some of the moments."""
        self.free[:, which] = other.free
        self.nodes[:, which] = other.nodes
        for own, others in zip(self.requests, other.requests, strict=True):
            for w, placed in others.items():
                own[w] = own[w].copy() if w in own else np.zeros(self.free.shape[1])
                own[w][which] = placed

    def placed_requests(self, w: int) -> Floats:
        """Return the requests an hour of a workload for which replicas are placed, shape (moments,)."""
        placed = np.zeros(self.free.shape[1])
        for of_group in self.requests:
            if w in of_group:
                placed = placed + of_group[w]
        return placed

    def fill(self, w: int, wanted: Floats) -> Floats:
        """Place replicas for requests of a workload in the order of its groups; return those without room."""
        for g in self.order[w]:
            if not wanted.any():
                break
            group = self.groups[g]
            limit = self.nodes[g]
            if w in group.workloads:
                limit = limit + self.free[group.cluster]
            room = group.most_requests(w, self.requests[g], limit)
            given = np.minimum(wanted, room)
            self._hold(g, w, given)
            wanted = wanted - given
        return wanted

    def _hold(self, g: int, w: int, requests: Floats) -> None:
        """Place what a group needs for further requests of a workload, of which it has room for all."""
        if not requests.any():
            return
        group = self.groups[g]
        before = self.requests[g].get(w, 0.0)
        self.requests[g] = {**self.requests[g], w: before + requests}
        if w in group.workloads:
            needed = group.nodes_for(self.requests[g])
            limit = self.nodes[g] + self.free[group.cluster]
            is_beyond = needed > limit + ROUNDING
            if is_beyond.any():
                # Of fine-tunes as many as there is room for: the others are shed.
                needed = np.where(is_beyond, group.whole(limit).max(axis=0), needed)
            nodes = np.maximum(needed, self.nodes[g])
            self.free[group.cluster] -= nodes - self.nodes[g]
            self.nodes[g] = nodes

    def fill_class(self, members: Sequence[int], need: Need) -> Bools:
        """Place replicas for all that a class of workloads needs, one after the other; return where room is short."""
        everything = np.ones(self.free.shape[1])
        is_short = np.zeros(everything.size, dtype=np.bool_)
        for w in members:
            wanted = need(w, everything)
            rest = self.fill(w, np.maximum(wanted - self.placed_requests(w), 0.0))
            is_short |= rest > ROUNDING * wanted
        return is_short

    def serve(self, members: Sequence[int], need: Need) -> None:
        """Place replicas for a class of workloads: all that they need, or as much of it for each as for the others."""
        before = self.copied()
        is_short = self.fill_class(members, need)
        # One workload alone has been offered every cluster that it may use.
        if len(members) == 1 or not is_short.any():
            return
        which = np.flatnonzero(is_short)
        short = before.moments(which)
        count = is_short.size
        short.level(
            members, lambda w, level: in_hours(need(w, _spread(level, which, count)), which)
        )
        self.put(which, short)

    def level(self, members: Sequence[int], need: Need) -> None:
        """Place replicas for a class at the highest level of service at which they fit for all of it."""
        splits = self._splits(members, need)
        level = self._highest_level(members, need, splits)
        for whole in self._whole_splits(members, splits):
            other_level = self._highest_level(members, need, whole)
            is_better = (other_level > level) & self._has_few_replicas(splits)
            level = np.where(is_better, other_level, level)
            splits = {
                pair: np.where(is_better, whole.get(pair, 0.0), share)
                for pair, share in splits.items()
            }
        for (g, w), requests in self._wanted(members, need, splits, level).items():
            self._hold(g, w, requests)
        self._raise_lowest(members, need)

    def _highest_level(
        self, members: Sequence[int], need: Need, splits: Mapping[tuple[int, int], Floats]
    ) -> Floats:
        """Return the highest level of service at which whole replicas fit for a class that is so divided."""
        low = np.zeros(self.free.shape[1])
        high = np.ones(low.size)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            fits = self._fits(self._wanted(members, need, splits, middle))
            low = np.where(fits, middle, low)
            high = np.where(fits, high, middle)
        return low

    def _whole_splits(
        self, members: Sequence[int], splits: Mapping[tuple[int, int], Floats]
    ) -> list[dict[tuple[int, int], Floats]]:
        """Return the ways to leave each workload of a class to one cluster.

        On a small site a model that is divided takes a replica more than it fills. None where there is one way alone,
        where there are too many, and where no site is small.
        """
        choices = [[(g, w) for g in self.order[w] if (g, w) in splits] for w in members]
        choices = [pairs for pairs in choices if pairs]
        ways = math.prod(len(pairs) for pairs in choices)
        if ways == 1 or ways > _MOST_WHOLE_SPLITS or not self._has_few_replicas(splits).any():
            return []
        everything = np.ones(self.free.shape[1])
        return [dict.fromkeys(pairs, everything) for pairs in itertools.product(*choices)]

    def _has_few_replicas(self, splits: Mapping[tuple[int, int], Floats]) -> Bools:
        """Return the moments at which there are free nodes for few replicas of the largest, shape (moments,)."""
        largest = max((float(self.groups[g].size.max()) for g, _ in splits), default=0.0)
        return np.asarray(self.free.sum(axis=0) <= _FEW_REPLICAS * largest)

    def _wanted(
        self,
        members: Sequence[int],
        need: Need,
        splits: Mapping[tuple[int, int], Floats],
        level: Floats,
    ) -> dict[tuple[int, int], Floats]:
        """Return the further requests that groups have to have room for at a level of service."""
        wanted = {}
        for w in members:
            more = np.maximum(need(w, level) - self.placed_requests(w), 0.0)
            for g in self.order[w]:
                if (g, w) in splits:
                    wanted[g, w] = more * splits[g, w]
        return wanted

    def _fits(self, wanted: Mapping[tuple[int, int], Floats]) -> Floats:
        """Return the moments at which there are nodes for further requests by group and workload."""
        growth = np.zeros_like(self.free)
        by_group: dict[int, dict[int, Floats]] = {}
        for (g, w), requests in wanted.items():
            by_group.setdefault(g, dict(self.requests[g]))
            by_group[g][w] = by_group[g].get(w, 0.0) + requests
        for g, requests_of_group in by_group.items():
            group = self.groups[g]
            nodes = group.nodes_for(requests_of_group)
            growth[group.cluster] += np.maximum(nodes - self.nodes[g], 0.0)
        return np.asarray((growth <= self.free + ROUNDING).all(axis=0))

    def _splits(self, members: Sequence[int], need: Need) -> dict[tuple[int, int], Floats]:
        """Return the share of each workload's requests that each group that is placed for it is to have."""
        count = self.free.shape[1]
        own = {w: [g for g in self.order[w] if w in self.groups[g].workloads] for w in members}
        splits = {(groups[0], w): np.ones(count) for w, groups in own.items() if groups}
        if all(len(groups) < 2 for groups in own.values()):
            return splits
        pool_nodes = {}
        for groups in own.values():
            for g in groups:
                pool_nodes[g] = self.nodes[g] + self.free[self.groups[g].cluster]
        for _ in range(_POOL_ROUNDS):
            given, rates = self._divided(members, own, need, pool_nodes)
            for w, groups in own.items():
                served = {g: given[g, w] * rates[g, w] for g in groups}
                total = safe_denominator(np.asarray(sum(served.values())))
                for place, g in enumerate(groups):
                    # Where nothing of it can be served the first cluster is as good as any.
                    share = np.where(np.isinf(total), float(place == 0), served[g] / total)
                    splits[g, w] = share
            for g in pool_nodes:
                pool_nodes[g] = self.nodes[g] + np.asarray(
                    sum(given[g, w] for w in members if (g, w) in given)
                )
        return splits

    def _divided(
        self,
        members: Sequence[int],
        own: Mapping[int, Sequence[int]],
        need: Need,
        pool_nodes: Mapping[int, Floats],
    ) -> tuple[dict[tuple[int, int], Floats], dict[tuple[int, int], Floats]]:
        """Return the nodes that a linear program gives workloads by group, and their rates in pools of some nodes."""
        count = self.free.shape[1]
        rates = {}
        routes = []
        requests = np.empty((len(members), count))
        for place, w in enumerate(members):
            by_cluster = [np.zeros(1)] * len(self.free)
            for g in own[w]:
                group = self.groups[g]
                pool = group.best_pool(self.requests[g], pool_nodes[g])
                rates[g, w] = group.rates[w][pool, np.arange(count)]
                by_cluster[group.cluster] = rates[g, w]
            tiers = [[self.groups[g].cluster] for g in own[w]]
            routes.append(Route(tiers, by_cluster))
            requests[place] = np.maximum(need(w, np.ones(count)) - self.placed_requests(w), 0.0)
        demand = Demand(
            workloads=range(len(members)),
            levels=[0] * len(members),
            requests=requests,
            hours=np.arange(count),
        )
        clusters = sorted({c for route in routes for c in route.order})
        allocated = allocate(routes, self.free[clusters], demand, self.steps)
        given = {}
        for place, w in enumerate(members):
            for g in own[w]:
                row = clusters.index(self.groups[g].cluster)
                given[g, w] = allocated[row, place]
        return given, rates

    def _raise_lowest(self, members: Sequence[int], need: Need) -> None:
        """Fill what room is left with replicas for a class, for those of its workloads first that have least."""
        count = self.free.shape[1]
        everything = np.ones(count)
        needs = np.stack([need(w, everything) for w in members])
        placed = np.stack([self.placed_requests(w) for w in members])
        share = placed / safe_denominator(needs)
        smallest = np.array([min(self._smallest(w), default=np.inf) for w in members])
        # Those that have nothing get one replica each, the smallest first: a model that is not there serves nobody.
        for place in np.argsort(smallest, kind="stable").tolist():
            is_absent = (share[place] <= 0.0) & (needs[place] > 0.0)
            self.fill(members[place], np.where(is_absent, ROUNDING * needs[place], 0.0))
        ranks = np.argsort(share, axis=0, kind="stable")
        for rank in range(len(members)):
            for place, w in enumerate(members):
                more = np.maximum(needs[place] - self.placed_requests(w), 0.0)
                self.fill(w, np.where(ranks[rank] == place, more, 0.0))

    def _smallest(self, w: int) -> list[float]:
        """Return the nodes of the smallest replica in each group that is placed for a workload."""
        groups = [self.groups[g] for g in self.order[w]]
        return [float(group.size.min()) for group in groups if w in group.workloads]

    def fill_up(self, weights: Floats, whole_clusters: Sequence[bool]) -> None:
        """Place replicas on all nodes that are left: in proportion to the nodes at work, then in order.

        On a cluster that holds nothing by ``weights``, shape (groups, moments): what stands by does so for all.
        """
        for c, has_whole_replicas in enumerate(whole_clusters):
            there = [g for g, group in enumerate(self.groups) if group.cluster == c]
            smallest = min((float(self.groups[g].size.min()) for g in there), default=np.inf)
            if not has_whole_replicas or self.free[c].max(initial=0.0) < smallest - ROUNDING:
                continue
            held = self.nodes[there]
            is_empty = held.sum(axis=0) <= 0.0
            basis = np.where(is_empty, weights[there], held)
            share = basis / safe_denominator(basis.sum(axis=0))
            free = self.free[c].copy()
            for g, part in zip(there, share, strict=True):
                self._enlarge(g, self.nodes[g] + part * free)
            # What is left of that is whole replicas of those that have most.
            ranks = np.argsort(-weights[there], axis=0, kind="stable")
            for rank in ranks:
                for place, g in enumerate(there):
                    is_next = (rank == place) & ((self.nodes[g] > 0.0) | (weights[g] > 0.0))
                    if is_next.any():
                        self._enlarge(g, np.where(is_next, self.nodes[g] + self.free[c], 0.0))

    def _enlarge(self, g: int, nodes: Floats) -> None:
        """Give a group the whole replicas that fit on some nodes, where that is more than it has."""
        group = self.groups[g]
        held = group.whole(nodes).max(axis=0)
        more = np.maximum(held - self.nodes[g], 0.0)
        self.nodes[g] += more
        self.free[group.cluster] -= more


def _spread(level: Floats, which: Ints, count: int) -> Floats:
    """Return levels of some moments as an array of all moments, 1 in the others."""
    levels = np.ones(count)
    levels[which] = level
    return levels


def _group_order(placement: Placement, groups: Sequence[ReplicaGroup], w: int) -> list[int]:
    """Return the groups that serve a workload in the order of its pools, each once."""
    order: list[int] = []
    for pool in placement.pools.workloads[w].cluster_order:
        d = placement.pool_deployment[pool]
        cluster = placement.pool_cluster[pool]
        for g, group in enumerate(groups):
            is_pool = group.cluster == cluster and w in group.rates
            if is_pool and d is not None:
                is_pool = g < len(placement.groups) and d in placement.groups[g]
            if is_pool and g not in order:
                order.append(g)
                break
    return order
