"""Whole replicas placed hour by hour, and the pools that they make."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.elementwise import Hours, at_least, divisor, in_hours, part_of
from planner.fleet.hourly import Drag, WindowInput, WindowResult
from planner.fleet.outage import with_carried
from planner.fleet.placement import ROUNDING
from planner.fleet.plan import Placement, Plan
from planner.fleet.router import ways_of
from planner.fleet.routing import Way

Floats = NDArray[np.float64]
Rates = Mapping[tuple[int, int], tuple[Floats, Floats]]
"""By workload and pool, the requests an hour of a node, those that are down for part of it counted whole, and what to
divide requests by to have the nodes; shape (hours,) each."""
URGENT_USE = 0.75
"""How busy replicas of work that cannot wait are left where work that can would load other models in the nodes beside
them; assumption: at 85% chat is late by 0.12 points more than alone, at 75% by 0.08, and batch serves 1% less."""
_FEW = 0.15  # below this share of hours, working on the hours alone is cheaper than on whole arrays


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWindow:
    """A window's hours as pools."""

    window: WindowInput
    """With pools in place of clusters."""
    ways: Sequence[Way]
    """Where each workload may go among them, and how fast it is served."""
    replicas: Floats
    """Placed, shape (deployments, hours); 0 on clusters where any share of a cluster may serve any model."""
    loading_nodes: Floats
    """Nodes that load weights, mean of the hour, shape (deployments, hours)."""
    absent_requests: Floats | None
    """Requests for fine-tunes that are resident nowhere, shape (workloads, hours); None where none can be."""


def place_window(plan: Plan, placement: Placement, window: WindowInput) -> PlacedWindow:
    """Place replicas hour by hour and return the pools that they make."""
    served = enumerate(workload.cluster_order for workload in placement.pools.workloads)
    pairs = [(pool, (placement.pool_cluster[pool], w)) for w, pools in served for pool in pools]
    window = dataclasses.replace(
        window,
        speed={(pool, pair[1]): window.speed[pair] for pool, pair in pairs if pair in window.speed},
        incidents={(pool, pair[1]): window.incidents[pair] for pool, pair in pairs if pair in window.incidents},
    )
    standing = whole_nodes(plan, window)
    share = _serving_share(window.nodes, standing)
    ways = ways_of(placement.pools, window)
    replicas = _placed(plan, placement, window, ways, standing, share)
    nodes, loading = _pool_nodes(placement, window, replicas, share)
    absent = _absent_requests(plan, placement, window, replicas)
    demand = window.demand_requests if absent is None else window.demand_requests - absent
    pools = with_carried(placement.pools, dataclasses.replace(window, demand_requests=demand, nodes=nodes), ways)
    return PlacedWindow(window=pools, ways=ways, replicas=replicas, loading_nodes=loading, absent_requests=absent)


def _pool_nodes(placement: Placement, window: WindowInput, replicas: Floats, share: Floats) -> tuple[Floats, Floats]:
    """Return the nodes of each pool that serve, shape (pools, hours), and those that load weights, by deployment.

    What loads is, mean of the hour, rise of replicas · size · share · time.
    """
    nodes, rest = np.empty((len(placement.pool_cluster), replicas.shape[1])), window.nodes.copy()
    loading, before = np.zeros_like(replicas), window.replicas_before
    for pool, (c, d) in enumerate(zip(placement.pool_cluster, placement.pool_deployment, strict=True)):
        if d is None:
            at_least(0.0, rest[c], out=nodes[pool])
            continue
        deployment, held = placement.deployments[d], replicas[d]
        np.multiply(held, deployment.nodes_per_replica, out=nodes[pool])
        nodes[pool] *= share[c]
        earlier = np.empty_like(held)
        earlier[0], earlier[1:] = held[0] if before is None else before[d], held[:-1]
        rose = np.flatnonzero(held > earlier)  # what falls is not loaded
        loads = (held[rose] - earlier[rose]) * deployment.nodes_per_replica
        loads *= share[c][rose]
        loads *= deployment.load_h
        loading[d][rose] = loads
        nodes[pool][rose] -= loads
        rest[c] -= nodes[pool]
    return nodes, loading


def _absent_requests(plan: Plan, placement: Placement, window: WindowInput, replicas: Floats) -> Floats | None:
    """Return the requests for fine-tunes that are resident nowhere, shape (workloads, hours); None where none can be.

    demand · (1 − min(1, Σ over clusters of replicas / replicas that hold all of them)). Work that can wait, waits for
    them.
    """
    absent: Floats | None = None
    for w, workload in enumerate(plan.workloads):
        holders = [placement.deployment_of[c, w] for c in workload.cluster_order]
        least = np.array([placement.deployments[d].least_replicas for d in holders])
        if max(least) > 1 and not workload.deadline_h and all(placement.placed[c] for c in workload.cluster_order):
            absent = np.zeros_like(window.demand_requests) if absent is None else absent
            share = np.minimum((replicas[holders] / least[:, None]).sum(axis=0), 1.0)
            absent[w] = window.demand_requests[w] * (1.0 - share)
    return absent


def on_clusters(
    placement: Placement,
    window: WindowInput,
    placed: PlacedWindow,
    result: WindowResult,
    served: Mapping[tuple[int, int], Floats],
) -> WindowResult:
    """Return a window's result, whose pools are added up, as one of clusters; ``served`` has what each pool serves."""
    owner = placement.pool_cluster
    drags: dict[tuple[int, int], Drag] = {}
    for (pool, w), drag in result.drags.items():  # the pools of a cluster are slow in the same hours
        before = drags.get((owner[pool], w))
        nodes = drag.nodes if before is None else before.nodes + drag.nodes
        drags[owner[pool], w] = dataclasses.replace(drag, nodes=nodes)
    slower: dict[tuple[int, int], Floats] = {}
    speeds = placement.pool_speed
    for pool, w in np.argwhere(((speeds > 0.0) & (speeds != 1.0)).any(axis=2)).tolist():
        speed = speeds[pool, w]
        if speed.size > 1:
            speed = speed[placement.pools.months.hour_periods[window.hours]]
        beyond = served[pool, w] * (1.0 / speed - 1.0)
        slower[owner[pool], w] = slower.get((owner[pool], w), 0.0) + beyond
    absent = placed.absent_requests
    return dataclasses.replace(
        result,
        slower_requests=slower,
        demand_requests=window.demand_requests,
        shed_requests=result.shed_requests if absent is None else result.shed_requests + absent,
        nodes=window.nodes,
        drags=drags,
        replicas=placed.replicas,
        loading_nodes=placed.loading_nodes,
    )


def whole_nodes(plan: Plan, window: WindowInput) -> Floats:
    """Return the nodes among which replicas are placed, shape (clusters, hours).

    A node that is down for part of an hour still holds its model: it counts whole, and serves for the rest.
    """
    nodes = window.nodes
    if window.lit_fraction is not None:
        lit = np.maximum(window.lit_fraction, ROUNDING)
        nodes = nodes / np.where(plan.on_site[:, None] > 0.0, lit, 1.0)
    return np.ceil(nodes - ROUNDING)


def _serving_share(nodes: Floats, standing: Floats) -> Floats:
    """Return what serves of the nodes among which replicas are placed, shape (clusters, hours); 1 where there are none.

    Nothing is placed on no nodes, at whatever speed it would be served there.
    """
    share = nodes / divisor(standing)
    share.reshape(-1)[np.flatnonzero(standing <= 0.0)] = 1.0
    return share


def _placed(
    plan: Plan, placement: Placement, window: WindowInput, ways: Sequence[Way], standing: Floats, share: Floats
) -> Floats:
    """Return the whole replicas of each deployment, shape (deployments, hours); ``window`` has the pools' speeds."""
    counts = np.diff(np.clip(plan.month_edges_h, window.hours.start, window.hours.stop)).astype(np.intp)
    review = np.repeat(placement.review_requests, counts, axis=1)
    came = window.demand_requests
    if window.lit_fraction is not None:
        came = np.stack([window.reached_requests(w) for w in range(len(plan.workloads))])
    months = np.repeat(np.arange(float(counts.size)), counts)
    speeds = {id(speed): speed for speed in window.speed.values()}  # many are one series
    lit = () if window.lit_fraction is None else (window.lit_fraction,)
    first, stretch = _stretches(window.nodes, *(series[None] for series in (months, *lit, *speeds.values())))
    rates = _rates(placement, ways, share)
    reviewed = _Site(placement, _only(rates, first), in_hours(standing, first), first)
    reviewed.place(in_hours(review, first))
    reviewed.place_the_rest(in_hours(review, first))
    replicas = in_hours(reviewed.replicas, stretch)
    site = reviewed.without_work(rates, stretch, standing)
    left = sum((site.take(w, came[w], add=False) for w in plan.by_priority), start=np.zeros(standing.shape[1]))
    short = np.flatnonzero(left > ROUNDING)
    if not short.size:
        return replicas
    site = _Site(placement, _only(rates, short), in_hours(standing, short), short, loads=True)
    waits = np.array([workload.deadline_h > 0 for workload in plan.workloads])[:, None]
    site.place(in_hours(came, short) * ~waits)
    if waits.any():  # what has waited takes all that would stand idle, less the headroom of what cannot wait
        site.place(in_hours(came, short) * np.where(waits, 1.0, 1.0 / URGENT_USE - 1.0))
        site = site.with_room(replicas)
        site.place_the_rest(in_hours(came, site.hours), waiting=True)
    site = site.with_room(replicas)
    site.place(at_least(0.0, in_hours(review, site.hours) - in_hours(came, site.hours)))
    site = site.with_room(replicas)
    site.place_the_rest(in_hours(came, site.hours))
    replicas[:, site.hours] = site.replicas
    return replicas


def _rates(placement: Placement, ways: Sequence[Way], share: Floats) -> Rates:
    """Return the rates of all workloads in the pools that serve them."""
    rates = {}
    for w, way in enumerate(ways):
        for pool, by in way.divisors.items():
            rate, there = way.rates[pool], share[placement.pool_cluster[pool]]
            served = rate * there
            rates[w, pool] = (served, served if by is rate else by * there)
    return rates


def _only(rates: Rates, hours: NDArray[np.intp]) -> Rates:
    """Return the rates of some of the hours."""
    some = {pair: in_hours(rate, hours) for pair, (rate, _) in rates.items()}
    return {pair: (some[pair], some[pair] if by is rate else in_hours(by, hours)) for pair, (rate, by) in rates.items()}


def _stretches(*series: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the hours in which any of some series of shape (n, hours or 1) changes, and the change each hour is after.

    Failures and releases move what is placed at a review a few times a day: it need not be placed anew each hour.
    """
    changed = np.zeros(max(table.shape[1] for table in series), dtype=np.bool_)
    changed[0] = True
    for table in (table for table in series if table.shape[1] > 1):
        changed[1:] |= np.any(table[:, 1:] != table[:, :-1], axis=0)
    return np.flatnonzero(changed), np.cumsum(changed) - 1


class _Site:
    """Clusters on which replicas are being placed, in some hours of a window."""

    def __init__(
        self, placement: Placement, rates: Rates, standing: Floats, hours: NDArray[np.intp], *, loads: bool = False
    ) -> None:
        """Begin with nodes that hold nothing; say whether what is placed is loaded within the hour."""
        self.placement, self.rates, self.workloads = placement, rates, placement.pools.workloads
        self.hours = hours
        orders = [workload.cluster_order for workload in self.workloads]
        self.pools = [[(pool, placement.pool_deployment[pool]) for pool in order] for order in orders]
        """By workload, the pools that serve it, in the order in which they are offered it, and what each holds."""
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

    def without_work(self, rates: Rates, hours: NDArray[np.intp], standing: Floats) -> _Site:
        """Return the replicas placed, those of an hour in many hours, with no work yet; nothing is to be added."""
        emptied = copy.copy(self)
        emptied.rates, emptied.spare = rates, in_hours(self.replicas * self.size[:, None], hours)
        emptied.left = standing.copy()  # of clusters on which any share of a replica will do: no other is asked for it
        return emptied

    def with_room(self, replicas: Floats) -> _Site:
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
        narrowed.hours, narrowed.rates = self.hours[where], _only(self.rates, where)
        narrowed.left = in_hours(self.left, where)
        narrowed.replicas, narrowed.spare = in_hours(self.replicas, where), in_hours(self.spare, where)
        return narrowed

    def place(self, requests: Floats) -> None:
        """Place replicas for work of shape (workloads, hours), one priority after the other.

        Of a priority each model gets one replica where there is room before any gets a second, those that take least
        first: a model that is not resident serves nobody.
        """
        for level in self.levels:
            for w in sorted(level, key=self._nodes_each):
                self._seat(w, requests[w])
            for w in level:
                self.take(w, requests[w], add=True)

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
            for d in () if waiting else there:  # of what is left one for each that has none, and then by priority
                asked = requests[list(self._members(d))].any(axis=0)
                self._add(c, d, (asked & (self.replicas[d] < 1.0)).astype(np.float64))
            for d in () if waiting else there:
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
