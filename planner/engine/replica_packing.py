"""Clusters on which whole replicas are being placed: which have room, and what work they take."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.elementwise import Hours, at_least, divisor, in_hours, part_of
from planner.plan.plan import Placement
from planner.plan.pools import ROUNDING

Rates = Mapping[tuple[int, int], tuple[Floats, Floats]]
"""By workload and pool, the requests an hour of a node, those that are down for part of it counted whole, and what to
divide requests by to have the nodes; shape (hours,) each."""
Pools = list[list[tuple[int, int | None]]]
"""By workload, the pools that serve it, in the order in which they are offered it, and what each holds."""
_FEW = 0.15  # below this share of hours, working on the hours alone is cheaper than on whole arrays


class Seating:
    """Clusters on which replicas are being placed, in some hours of a window."""

    def __init__(
        self, placement: Placement, rates: Rates, standing: Floats, hours: NDArray[np.intp], *, loads: bool = False
    ) -> None:
        """Begin with nodes that hold nothing; say whether what is placed is loaded within the hour."""
        self.placement, self.rates, self.workloads = placement, rates, placement.pools.workloads
        self.hours = hours
        orders = [workload.cluster_order for workload in self.workloads]
        self.pools: Pools = [[(pool, placement.pool_deployment[pool]) for pool in order] for order in orders]
        levels = itertools.groupby(placement.pools.by_priority, key=lambda w: self.workloads[w].priority)
        self.levels = [tuple(members) for _, members in levels]
        """Workloads by priority."""
        self.size = np.array([deployment.nodes_per_replica for deployment in placement.deployments])
        """Nodes of a replica, shape (deployments,)."""
        self.serving = self.size * [1.0 - deployment.load_h if loads else 1.0 for deployment in placement.deployments]
        """Of those, what serves in the hour in which it is placed; of what loads for an hour, nothing."""
        self.left = standing.copy()
        """Nodes that hold nothing yet, shape (clusters, hours)."""
        self.replicas = np.zeros((len(placement.deployments), standing.shape[1]))
        self.spare = np.zeros_like(self.replicas)
        """Of the replicas placed, the nodes for which there is no work yet."""

    def without_work(self, rates: Rates, hours: NDArray[np.intp], standing: Floats) -> Seating:
        """Return the replicas placed, those of an hour in many hours, with no work yet; nothing is to be added."""
        emptied = copy.copy(self)
        emptied.rates, emptied.spare = rates, in_hours(self.replicas * self.size[:, None], hours)
        emptied.left = standing.copy()  # of clusters on which any share of a replica will do: no other is asked for it
        return emptied

    def with_room(self, replicas: Floats) -> Seating:
        """Write down what is placed; return the hours in which a further replica may fit, to go on with those alone."""
        replicas[:, self.hours] = self.replicas
        room = np.zeros(self.left.shape[1], dtype=np.bool_)
        smallest: dict[int, int] = {}  # of a cluster: what does not fit the smallest fits no other
        for d in np.argsort(-self.size).tolist():
            smallest[self.placement.deployments[d].cluster] = d
        for c, d in smallest.items():
            if self.placement.placed[c]:
                room |= self._fitting(c, d) > 0.0
        where, narrowed = np.flatnonzero(room), copy.copy(self)
        narrowed.hours, narrowed.rates = self.hours[where], rates_in(self.rates, where)
        narrowed.left = in_hours(self.left, where)
        narrowed.replicas, narrowed.spare = in_hours(self.replicas, where), in_hours(self.spare, where)
        return narrowed

    def orders(self) -> list[Pools]:
        """Return the orders in which pools may be offered to workloads, the one to begin with first.

        Workloads are placed one after the other, each where it is offered first: one may fill nodes, or replicas, that
        another needs who has none elsewhere. So it is also offered those first that fewest others of those that cannot
        wait may use.
        """
        urgent = [w for w, workload in enumerate(self.workloads) if not workload.deadline_h]
        clusters = {w: {self.placement.pool_cluster[pool] for pool, _ in self.pools[w]} for w in urgent}

        def others(w: int, pool: int, d: int | None) -> tuple[int, int]:
            there = [other for other in urgent if other != w and self.placement.pool_cluster[pool] in clusters[other]]
            return len(there), len(there if d is None else set(there) & set(self._members(d)))

        apart = [
            [at for *_, at in sorted((*others(w, *at), place, at) for place, at in enumerate(self.pools[w]))]
            for w in range(len(self.pools))
        ]
        return [self.pools] if all(apart[w] == self.pools[w] for w in urgent) else [self.pools, apart]

    def place(self, requests: Floats) -> Floats:
        """Place replicas for work of shape (workloads, hours), one priority after the other; return what is left of it.

        Of a priority each model gets one replica where there is room before any gets a second, those that take least
        first: a model that is not resident serves nobody.
        """
        left = np.empty_like(requests)
        for level in self.levels:
            for w in sorted(level, key=self._nodes_each):
                self._seat(w, requests[w])
            for w in level:
                left[w] = self.take(w, requests[w], add=True)
        return left

    def _nodes_each(self, w: int) -> float:
        """Return the nodes that a workload's smallest replica takes for each workload it serves."""
        held = [self.placement.deployments[d] for _, d in self.pools[w] if d is not None]
        holders = [deployment for deployment in held if w in deployment.workloads]
        return min((deployment.least_nodes / len(deployment.workloads) for deployment in holders), default=0.0)

    def _seat(self, w: int, requests: Floats) -> None:
        """Place one replica for a workload in hours in which it is wanted and none is there that serves it."""
        wanted = requests > 0.0
        for _, d in self.pools[w]:
            if d is None:
                return  # it can do with a share of a cluster
            wanted &= self.replicas[d] < 1.0
        for pool, d in self.pools[w]:
            if d is not None and w in self._members(d):
                if not wanted.any():
                    return
                self._add(self.placement.pool_cluster[pool], d, wanted.astype(np.float64))
                wanted &= self.replicas[d] < 1.0

    def _fitting(self, c: int, d: int, hours: Hours = slice(None)) -> Floats:
        """Return how many more replicas of a deployment find room, shape (hours,)."""
        room: Floats = part_of(self.left[c], hours) / self.size[d]
        room += ROUNDING
        np.floor(room, out=room)
        return room

    def _any_fits(self, c: int, some: Sequence[int]) -> bool:
        """Say whether the smallest of some deployments of a cluster finds room for a replica in any hour."""
        smallest = min((float(self.size[d]) for d in some), default=np.inf)
        return bool(self.left[c].size and self.left[c].max() / smallest + ROUNDING >= 1.0)

    def _add(self, c: int, d: int, wanted: Floats) -> None:
        """Place as many more replicas of a deployment as are wanted and find room; part of one is wanted whole."""
        is_wanted = wanted > 0.0
        count = np.count_nonzero(is_wanted)
        if not count:
            return
        least = self.placement.deployments[d].least_replicas
        few = least > 1 or count < _FEW * wanted.size
        hours: Hours = np.flatnonzero(is_wanted) if few else slice(None)
        more = np.ceil(part_of(wanted, hours))
        if least > 1:  # what holds all fine-tunes, or nothing
            np.maximum(more, least - self.replicas[d][hours], out=more)
        if not few:
            at_least(0.0, more, out=more)
        np.minimum(more, self._fitting(c, d, hours), out=more)
        self.replicas[d][hours] += more
        self.spare[d][hours] += more * self.serving[d]
        more *= self.size[d]
        self.left[c][hours] -= more

    def take(self, w: int, requests: Floats, *, add: bool) -> Floats:
        """Take a workload's requests, shape (hours,), into replicas with room, and add some; return what is left."""
        if not requests.any():
            return requests
        for pool, d in self.pools[w]:
            c, (rate, by) = self.placement.pool_cluster[pool], self.rates[w, pool]
            need = requests / by
            if d is not None:
                if add and w in self._members(d):
                    lacking = need - self.spare[d]
                    lacking /= max(self.serving[d], ROUNDING * self.size[d])
                    lacking -= ROUNDING
                    self._add(c, d, lacking)
                used = np.minimum(need, self.spare[d], out=need)
                self.spare[d] -= used
            else:  # any share of it will do
                used = np.minimum(need, self.left[c], out=need)
                self.left[c] -= used
            used *= rate
            requests = requests - used
        return requests

    def place_the_rest(self, requests: Floats, *, waiting: bool = False) -> None:
        """Place replicas on the nodes left over: in proportion to what is placed, one for each other, then by priority.

        On a cluster that holds nothing, in proportion to what the work of shape (workloads, hours) would take there:
        what stands by does so for all. Or, in proportion alone, replicas that serve work that can wait.
        """
        for c, placed in enumerate(self.placement.placed):
            there = [d for d, deployment in enumerate(self.placement.deployments) if placed and deployment.cluster == c]
            if waiting:
                there = [d for d in there if any(self.workloads[w].deadline_h for w in self._members(d))]
            if not self._any_fits(c, there):
                continue
            held = self.replicas[there] * self.size[there, None]
            total = held.sum(axis=0)
            empty = np.flatnonzero(total <= 0.0)
            if empty.size:
                for row, d in zip(held, there, strict=True):
                    row[empty] = self._asked(d, requests, empty)
                total = held.sum(axis=0)
            share = held / divisor(total)
            for d, offered in zip(there, share * self.left[c], strict=True):
                self._add(c, d, np.floor(offered / self.size[d] + ROUNDING))
            if waiting or not self._any_fits(c, there):
                continue
            for d in there:  # of what is left one for each that has none, and then by priority
                asked = requests[list(self._members(d))].any(axis=0)
                self._add(c, d, (asked & (self.replicas[d] < 1.0)).astype(np.float64))
            for d in there:
                self._add(c, d, self._fitting(c, d))

    def _asked(self, d: int, requests: Floats, hours: NDArray[np.intp]) -> Floats:
        """Return the nodes of a deployment that the work of its workloads would take in some hours, shape (hours,)."""
        pool, asked = self.placement.pool_deployment.index(d), np.zeros(hours.size)
        for w in self._members(d):
            if (w, pool) in self.rates:
                asked += in_hours(requests[w], hours) / in_hours(self.rates[w, pool][1], hours)
        return asked

    def _members(self, d: int) -> tuple[int, ...]:
        """Return the workloads of a deployment."""
        return self.placement.deployments[d].workloads


def rates_in(rates: Rates, hours: NDArray[np.intp]) -> Rates:
    """Return the rates of some of the hours."""
    some = {pair: in_hours(rate, hours) for pair, (rate, _) in rates.items()}
    return {pair: (some[pair], some[pair] if by is rate else in_hours(by, hours)) for pair, (rate, by) in rates.items()}
