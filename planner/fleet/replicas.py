"""Whole replicas placed hour by hour, and the pools that they make."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from planner.fleet.placement import ROUNDING, Placement
from planner.fleet.plan import Plan
from planner.fleet.router import WindowInput, ways_of
from planner.fleet.routing import Way

if TYPE_CHECKING:
    from planner.fleet.window import Drag, WindowResult

Floats = NDArray[np.float64]
URGENT_USE = 0.75
"""How busy replicas of work that cannot wait are left where work that can would load other models in the nodes beside
them; assumption: at 85% chat is late by 0.12 points more than alone, at 75% by 0.08, and batch serves 1% less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWindow:
    """A window's hours as pools."""

    window: WindowInput
    """With pools in place of clusters."""
    replicas: Floats
    """Placed, shape (deployments, hours); 0 on clusters where any share of a cluster may serve any model."""
    loading_nodes: Floats
    """Nodes that load weights, mean of the hour, shape (deployments, hours)."""
    absent_requests: Floats
    """Requests for fine-tunes that are resident nowhere, shape (workloads, hours)."""


def place_window(plan: Plan, placement: Placement, window: WindowInput) -> PlacedWindow:
    """Place replicas hour by hour and return the pools that they make."""
    served = enumerate(workload.cluster_order for workload in placement.pools.workloads)
    pairs = [(pool, (placement.pool_cluster[pool], w)) for w, pools in served for pool in pools]
    window = dataclasses.replace(
        window,
        speed={(pool, pair[1]): window.speed[pair] for pool, pair in pairs if pair in window.speed},
        incidents={(pool, pair[1]): window.incidents[pair] for pool, pair in pairs if pair in window.incidents},
    )
    whole = whole_nodes(window)
    share = np.divide(window.nodes, whole, out=np.zeros_like(whole), where=whole > 0)
    replicas = _placed(plan, placement, window, whole, share)
    before = replicas[:, :1] if window.replicas_before is None else window.replicas_before[:, None]
    loads = np.maximum(np.diff(replicas, axis=1, prepend=before), 0.0)
    size = np.array([each.nodes_per_replica for each in placement.deployments])[:, None]
    on = share[[each.cluster for each in placement.deployments]]
    loading = loads * size * on * np.array([each.load_h for each in placement.deployments])[:, None]
    held = replicas * size * on - loading
    nodes, rest = np.zeros((len(placement.pool_cluster), whole.shape[1])), window.nodes.copy()
    for pool, (c, d) in enumerate(zip(placement.pool_cluster, placement.pool_deployment, strict=True)):
        nodes[pool] = np.maximum(rest[c], 0.0) if d is None else held[d]
        rest[c] -= nodes[pool]
    absent = window.demand_requests * (1.0 - _resident_share(plan, placement, replicas))
    pools = dataclasses.replace(
        window,
        demand_requests=window.demand_requests - absent,
        nodes=nodes,
    )
    return PlacedWindow(window=pools, replicas=replicas, loading_nodes=loading, absent_requests=absent)


def _resident_share(plan: Plan, placement: Placement, replicas: Floats) -> Floats:
    """Return the share of a workload's fine-tunes that are resident somewhere, shape (workloads, hours).

    min(1, Σ over clusters of replicas / replicas that hold all of them). Work that can wait, waits for them.
    """
    share = np.ones((len(plan.workloads), replicas.shape[1]))
    for w, workload in enumerate(plan.workloads):
        own = [placement.deployment_of[c, w] for c in workload.cluster_order]
        least = np.array([placement.deployments[d].least_replicas for d in own])
        if max(least) > 1 and not workload.deadline_h and all(placement.placed[c] for c in workload.cluster_order):
            share[w] = np.minimum((replicas[own] / least[:, None]).sum(axis=0), 1.0)
    return share


def by_cluster(placement: Placement, window: WindowInput, placed: PlacedWindow, result: WindowResult) -> WindowResult:
    """Return a window's result with pools added up to clusters."""
    owner = list(placement.pool_cluster)

    def added(pools: Floats) -> Floats:
        total = np.zeros((len(window.nodes), *pools.shape[1:]))
        for cluster, pool in zip(
            owner, pools, strict=True
        ):  # np.add.at and reduceat go cell by cell, at many times the time
            total[cluster] += pool
        return total

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
        beyond = result.served_requests[pool, w] * (1.0 / speed - 1.0)
        slower[owner[pool], w] = slower.get((owner[pool], w), 0.0) + beyond
    return dataclasses.replace(
        result,
        slower_requests=slower,
        demand_requests=window.demand_requests,
        served_requests=added(result.served_requests),
        shed_requests=result.shed_requests + placed.absent_requests,
        nodes=window.nodes,
        busy_nodes=added(result.busy_nodes),
        drag_nodes=added(result.drag_nodes),
        drags=drags,
        throttled_nodes=added(result.throttled_nodes),
        woken_nodes=None if result.woken_nodes is None else added(result.woken_nodes),
        it_kw=added(result.it_kw),
        replicas=placed.replicas,
        loading_nodes=placed.loading_nodes,
    )


def whole_nodes(window: WindowInput) -> Floats:
    """Return the nodes among which replicas are placed, shape (clusters, hours).

    A node that is down for part of an hour still holds its model: it counts whole, and serves for the rest.
    """
    lit = 1.0 if window.lit_fraction is None else np.maximum(window.lit_fraction, ROUNDING)
    return np.ceil(window.nodes / lit - ROUNDING)


def _placed(plan: Plan, placement: Placement, window: WindowInput, whole: Floats, share: Floats) -> Floats:
    """Return the whole replicas of each deployment, shape (deployments, hours); ``window`` has the pools' speeds."""
    counts = np.diff(np.clip(plan.month_edges_h, window.hours.start, window.hours.stop))
    review = np.repeat(placement.review_requests, counts.astype(np.intp), axis=1)
    came = window.demand_requests * (1.0 if window.lit_fraction is None else window.lit_fraction)
    ways = ways_of(placement.pools, window)
    first, stretch = _stretches(whole, share, review, *(rate[None] for way in ways for rate in way.rates))
    reviewed = _Site(placement, ways, whole[:, first], share[:, first], first)
    reviewed.place(review[:, first])
    reviewed.place_the_rest()
    replicas = reviewed.replicas[:, stretch]
    site = _Site(placement, ways, whole, share, np.arange(whole.shape[1]))
    left = sum((site.take(w, came[w], add=False) for w in site.emptied(replicas)), start=np.zeros(whole.shape[1]))
    short = np.flatnonzero(left > ROUNDING)
    if short.size:
        site = _Site(placement, ways, whole[:, short], share[:, short], short, loads=True)
        came, review = came[:, short], review[:, short]
        waits = np.array([workload.deadline_h > 0 for workload in plan.workloads])[:, None]
        site.place(np.where(waits, 0.0, came))
        if waits.any():  # what has waited takes all that would stand idle, less the headroom of what cannot wait
            site.place(np.where(waits, came, came * (1.0 / URGENT_USE - 1.0)))
            site.place_the_rest(waiting=True)
        site.place(np.maximum(review - came, 0.0))
        site.place_the_rest()
        replicas[:, short] = site.replicas
    return replicas


def _stretches(*series: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the hours in which any of some series of shape (n, hours or 1) changes, and the change each hour is after.

    Failures and releases move what is placed at a review a few times a day: it need not be placed anew each hour.
    """
    changed = np.zeros(max(each.shape[1] for each in series), dtype=np.bool_)
    changed[0] = True
    for each in (each for each in series if each.shape[1] > 1):
        changed[1:] |= np.any(each[:, 1:] != each[:, :-1], axis=0)
    return np.flatnonzero(changed), np.cumsum(changed) - 1


class _Site:
    """Clusters on which replicas are being placed, in some hours of a window."""

    def __init__(
        self, placement: Placement, ways: Sequence[Way], whole: Floats, share: Floats, hours: NDArray[np.intp], *,
        loads: bool = False,
    ) -> None:  # fmt: skip
        """Begin with nodes that hold nothing; say whether what is placed is loaded within the hour."""
        self.placement, self.ways, self.workloads = placement, ways, placement.pools.workloads
        self.whole, self.share, self.hours = whole, share, hours
        self.size = np.array([each.nodes_per_replica for each in placement.deployments])
        """Nodes of a replica, shape (deployments,)."""
        self.serving = self.size * [1.0 - each.load_h if loads else 1.0 for each in placement.deployments]
        """Of those, what serves in the hour in which it is placed; of what loads for an hour, nothing."""
        self.left = whole.copy()
        """Nodes that hold nothing yet, shape (clusters, hours)."""
        self.replicas = np.zeros((len(placement.deployments), whole.shape[1]))
        self.spare = np.zeros_like(self.replicas)
        """Of the replicas placed, the nodes for which there is no work yet."""

    def place(self, requests: Floats) -> None:
        """Place replicas for work of shape (workloads, hours), one priority after the other.

        Of a priority each model gets one replica where there is room before any gets a second, those that take least
        first: a model that is not resident serves nobody.
        """
        levels = itertools.groupby(self.placement.pools.by_priority, key=lambda w: self.workloads[w].priority)
        for level in [tuple(members) for _, members in levels]:
            for w in sorted(level, key=self._nodes_each):
                self._seat(w, requests[w] > 0)
            for w in level:
                self.take(w, requests[w], add=True)

    def _nodes_each(self, w: int) -> float:
        """Return the nodes that a workload's smallest replica takes for each workload it serves."""
        held = [self.placement.deployments[d] for _, d in self._pools(w) if d is not None]
        own = [each for each in held if w in each.workloads]
        return min((each.least_nodes / len(each.workloads) for each in own), default=0.0)

    def _seat(self, w: int, wanted: NDArray[np.bool_]) -> None:
        """Place one replica for a workload in hours in which it is wanted and none is there that serves it."""
        for _, d in self._pools(w):
            if d is None:
                return  # it can do with a share of a cluster
            wanted = wanted & (self.replicas[d] < 1)
        for pool, d in self._pools(w):
            if d is not None and w in self._members(d):
                self._add(self.placement.pool_cluster[pool], d, wanted)
                wanted = wanted & (self.replicas[d] < 1)

    def _add(self, c: int, d: int, wanted: Floats | NDArray[np.bool_]) -> None:
        """Place as many more replicas of a deployment as are wanted and find room."""
        if not np.any(wanted):
            return
        least = self.placement.deployments[d].least_replicas - self.replicas[d]
        wanted = np.where(wanted > 0, np.maximum(wanted, least), 0.0)
        more = np.minimum(wanted, np.floor(self.left[c] / self.size[d] + ROUNDING))
        self.replicas[d] += more
        self.spare[d] += more * self.serving[d]
        self.left[c] -= more * self.size[d]

    def take(self, w: int, requests: Floats, *, add: bool) -> Floats:
        """Take a workload's requests, shape (hours,), into replicas with room, and add some; return what is left."""
        for pool, d in self._pools(w):
            c = self.placement.pool_cluster[pool]
            rate = self.ways[w].rate(pool, self.hours) * self.share[c]
            need = np.divide(requests, rate, out=np.zeros_like(requests), where=rate > 0)
            if d is not None:
                if add and w in self._members(d):
                    serving = max(self.serving[d], ROUNDING * self.size[d])
                    self._add(c, d, np.maximum(np.ceil((need - self.spare[d]) / serving - ROUNDING), 0.0))
                used = np.minimum(need, self.spare[d])
                self.spare[d] -= used
            else:  # any share of it will do
                used = np.minimum(need, self.left[c])
                self.left[c] -= used
            requests = requests - used * rate
        return requests

    def _pools(self, w: int) -> list[tuple[int, int | None]]:
        """Return the pools that serve a workload, in the order in which they are offered it, and what each holds."""
        return [(pool, self.placement.pool_deployment[pool]) for pool in self.workloads[w].cluster_order]

    def place_the_rest(self, *, waiting: bool = False) -> None:
        """Place replicas on the nodes left over: in proportion to what is placed, then by priority.

        Or, in proportion alone, replicas that serve work that can wait.
        """
        for c, placed in enumerate(self.placement.placed):
            own = [d for d, each in enumerate(self.placement.deployments) if placed and each.cluster == c]
            if waiting:
                own = [d for d in own if any(self.workloads[w].deadline_h for w in self._members(d))]
            held = self.replicas[own] * self.size[own, None]
            share = held / np.maximum(held.sum(axis=0), ROUNDING)
            for part in (share,) if waiting else (share, np.ones_like(share)):
                for d, offered in zip(own, part * self.left[c], strict=True):
                    self._add(c, d, np.floor(offered / self.size[d] + ROUNDING))

    def _members(self, d: int) -> tuple[int, ...]:
        """Return the workloads of a deployment."""
        return self.placement.deployments[d].workloads

    def emptied(self, replicas: Floats) -> tuple[int, ...]:
        """Begin with replicas that have no work; return the workloads in the order in which they are served."""
        self.spare = replicas * self.size[:, None]
        self.left = np.where(np.array(self.placement.placed)[:, None], 0.0, self.whole)
        return self.placement.pools.by_priority
