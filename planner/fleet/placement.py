"""Whole replicas of resident models: which share of a cluster each model holds, hour by hour.

A *deployment* is what one group of accelerators holds: one model, or several where a cluster is too small for one
replica of each and their weights fit together. A cluster on which rounding to whole replicas matters is split into
pools, one for each deployment and one for what holds nothing, and its hours are routed as if the pools were clusters:
no workload takes more of a cluster than the replicas placed for it carry.

Replicas are placed at the monthly review, for the highest hour that the forecast has for the month, by priority: one
for each model, then as many as its work needs, then what is left in proportion. In an hour whose need passes what is
placed, the hour's own work is placed first. What was not there in the hour before is loaded, and serves that much less.
Each hour is placed from what the review and the hour know, so the end of a window changes nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan, WorkloadPlan
from planner.fleet.quantities import machine_time, shares
from planner.fleet.router import WindowInput, ways_of
from planner.fleet.routing import Way
from planner.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from planner.fleet.window import WindowResult

Floats = NDArray[np.float64]
_ROUNDING = 1e-6  # of a replica or a node: what sums of parts may be off by
ROUNDING_MATTERS = 0.01
"""Share of a cluster's nodes that one replica of each of its deployments takes, from which whole replicas count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What a group of accelerators of a cluster holds: one model, or several that share it."""

    cluster: int
    workloads: tuple[int, ...]
    """Workloads that it serves."""
    nodes_per_replica: float
    """Accelerators of a replica over those of a node."""
    speed: float
    """What its accelerators do over what they do for one model alone: less cache makes smaller batches."""
    resident_bytes: float
    """Weights and engines of one replica."""
    memory_bytes: float
    """Memory of one replica's accelerators."""
    load_h: float
    """Hours to read the weights of one replica, at most one: an hour that loads longer is lost whole."""
    least_replicas: int = 1
    """Replicas that hold all fine-tunes of its model between them; with fewer, requests for the others are shed."""

    @property
    def least_nodes(self) -> float:
        """Nodes that hold all of it once."""
        return self.least_replicas * self.nodes_per_replica


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """How a plan's clusters are shared by their models."""

    deployments: tuple[Deployment, ...]
    """Of all clusters; those of one cluster follow each other, the highest priority first."""
    placed: tuple[bool, ...]
    """Of each cluster, whether whole replicas count on it; otherwise any share of it may serve any model."""
    review_requests: Floats
    """What the monthly review places replicas for, shape (workloads, months)."""
    pools: Plan
    """The plan with pools in place of clusters."""
    pool_cluster: tuple[int, ...]
    """The cluster of each pool."""
    pool_deployment: tuple[int | None, ...]
    """What each pool holds; None for a cluster left whole, and, last of a placed one, for nodes that hold nothing."""
    deployment_of: Mapping[tuple[int, int], int]
    """Which deployment serves a workload on a cluster."""
    pool_of: Mapping[tuple[int, int], int]
    """Which pool does."""


def with_placement(plan: Plan, deployments: Sequence[Deployment]) -> Plan:
    """Return a plan whose clusters hold whole replicas where that matters."""
    placed = []
    for c, cluster in enumerate(plan.clusters):
        own = [each for each in deployments if each.cluster == c]
        several = sum(each.least_replicas for each in own) > 1
        placed.append(several and sum(each.least_nodes for each in own) > ROUNDING_MATTERS * cluster.nodes)
    pools = [
        (c, d)
        for c, whole_replicas in enumerate(placed)
        for d in (*(d for d, each in enumerate(deployments) if each.cluster == c and whole_replicas), None)
    ]
    serves = np.array(
        [
            [not placed[c] if d is None else w in deployments[d].workloads for w in range(len(plan.workloads))]
            for c, d in pools
        ]
    )
    speed = np.array([1.0 if d is None else deployments[d].speed for _, d in pools])
    placement = Placement(
        deployments=tuple(deployments),
        placed=tuple(placed),
        review_requests=_review_requests(plan),
        pools=_pool_plan(plan, [c for c, _ in pools], serves, speed),
        pool_cluster=tuple(c for c, _ in pools),
        pool_deployment=tuple(d for _, d in pools),
        deployment_of={(each.cluster, w): d for d, each in enumerate(deployments) for w in each.workloads},
        pool_of={(pools[pool][0], w): pool for pool, w in np.argwhere(serves).tolist()},
    )
    return dataclasses.replace(plan, placement=placement)


def _review_requests(plan: Plan) -> Floats:
    """Return the requests an hour that a month's review places for, shape (workloads, months).

    The highest hour that the forecast has for the month, or its mean for work that can wait, over the utilisation at
    which clusters are taken as full.
    """
    forecast, starts = plan.demand.expected_requests_per_s * SECONDS_PER_HOUR, plan.month_edges_h[:-1]
    peak = np.maximum.reduceat(forecast, starts, axis=1)
    mean = np.add.reduceat(forecast, starts, axis=1) / np.diff(plan.month_edges_h)
    waits = np.array([workload.deadline_h > 0 for workload in plan.workloads])
    return np.where(waits[:, None], mean, peak) / (plan.preferred_utilisation or 1.0)


def _pool_plan(plan: Plan, pool_cluster: list[int], serves: NDArray[np.bool_], speed: Floats) -> Plan:
    """Return the plan with pools in place of clusters: ``serves`` says which workloads, shape (pools, workloads)."""

    def pools_of(c: int) -> list[int]:
        return [pool for pool, cluster in enumerate(pool_cluster) if cluster == c]

    def in_pools(w: int, workload: WorkloadPlan) -> WorkloadPlan:
        order = [pool for c in workload.cluster_order for pool in pools_of(c) if serves[pool, w]]
        return dataclasses.replace(workload, cluster_order=tuple(order))

    spared = tuple(itertools.chain.from_iterable(pools_of(c) for c in plan.site.throttle_order))
    return dataclasses.replace(
        plan,
        clusters=tuple(plan.clusters[c] for c in pool_cluster),
        workloads=tuple(in_pools(w, workload) for w, workload in enumerate(plan.workloads)),
        requests_per_node_h=plan.requests_per_node_h[pool_cluster] * (serves * speed[:, None])[:, :, None],
        late_tables=plan.late_tables[pool_cluster],
        refused_tables=plan.refused_tables[pool_cluster],
        most_loads=plan.most_loads[pool_cluster],
        site=dataclasses.replace(plan.site, throttle_order=spared),
    )


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
        speed={(pool, w): window.speed[c, w] for (c, w), pool in placement.pool_of.items() if (c, w) in window.speed},
        incidents={(placement.pool_of[pair], pair[1]): slowed for pair, slowed in window.incidents.items()},
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
        for cluster, pool in zip(owner, pools, strict=True):  # np.add.at goes cell by cell, ten times slower
            total[cluster] += pool
        return total

    return dataclasses.replace(
        result,
        demand_requests=window.demand_requests,
        served_requests=added(result.served_requests),
        shed_requests=result.shed_requests + placed.absent_requests,
        nodes=window.nodes,
        busy_nodes=added(result.busy_nodes),
        drag_nodes=added(result.drag_nodes),
        drags={(owner[pool], w): drag for (pool, w), drag in result.drags.items()},
        throttled_nodes=added(result.throttled_nodes),
        it_kw=added(result.it_kw),
        replicas=placed.replicas,
        loading_nodes=placed.loading_nodes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """What the deployments of a plan held, by month; shape (months, deployments)."""

    replicas: Floats
    """Most at once, whole."""
    held_node_h: Floats
    """Node-hours that may serve it: of its replicas, or of the cluster where any share of it may."""
    load_node_h: Floats
    """Node-hours in which weights were loaded."""


def residence(plan: Plan, placement: Placement, windows: Sequence[WindowResult]) -> Residence:
    """Return what was placed month by month; on clusters where any share serves any model, what the work amounts to.

    There replicas are those of the highest hour, ceil(nodes at work on it / nodes of a replica), and what is loaded is
    the rise from hour to hour, in months whose highest hours do not all fit at once; it was not taken off what served.
    """
    starts, lengths = plan.month_edges_h[:-1], np.diff(plan.month_edges_h)
    served, nodes, busy, placed, loading = (
        np.concatenate([getattr(window, name) for window in windows], axis=-1)
        for name in ("served_requests", "nodes", "busy_nodes", "replicas", "loading_nodes")
    )
    deployments, size = placement.deployments, np.array([each.nodes_per_replica for each in placement.deployments])
    replicas, held, load = (np.zeros((size.size, plan.hours)) for _ in range(3))
    rates = np.moveaxis(plan.requests_per_node_h, 2, 0)
    for c, whole_replicas in enumerate(placement.placed):
        own = [d for d, each in enumerate(deployments) if each.cluster == c]
        if whole_replicas:
            replicas[own], held[own], load[own] = placed[own], placed[own] * size[own, None], loading[own]
            continue
        hourly = np.repeat(rates[:, c], lengths, axis=0) if len(rates) > 1 else rates[:, c]
        share = shares(machine_time(served[c].T, hourly)).T  # of the nodes at work, shape (workloads, hours)
        for d in own:
            work = share[list(deployments[d].workloads)].sum(axis=0) * busy[c]
            replicas[d] = np.ceil(work / size[d] - _ROUNDING)
            held[d] = nodes[c]
            load[d] = np.maximum(np.diff(replicas[d], prepend=replicas[d, :1]), 0.0) * size[d] * deployments[d].load_h
        highest = np.maximum.reduceat(replicas[own], starts, axis=1)
        fits = (highest * size[own, None]).sum(axis=0) <= np.minimum.reduceat(nodes[c], starts)
        load[own] *= ~np.repeat(fits, lengths)
    return Residence(
        replicas=np.maximum.reduceat(replicas, starts, axis=1).T,
        held_node_h=np.add.reduceat(held, starts, axis=1).T,
        load_node_h=np.add.reduceat(load, starts, axis=1).T,
    )


def never_placed(plan: Plan, windows: Sequence[WindowResult]) -> list[int]:
    """Return the workloads that were asked for and whose model was never resident anywhere."""
    placement = plan.placement
    if placement is None:
        return []
    found = []
    for w, workload in enumerate(plan.workloads):
        own = [placement.deployment_of[c, w] for c in workload.cluster_order if placement.placed[c]]
        if len(own) < len(workload.cluster_order) or not any(window.demand_requests[w].any() for window in windows):
            continue
        if not any(window.replicas[own].any() for window in windows):
            found.append(w)
    return found


def whole_nodes(window: WindowInput) -> Floats:
    """Return the nodes among which replicas are placed, shape (clusters, hours).

    A node that is down for part of an hour still holds its model: it counts whole, and serves for the rest.
    """
    lit = 1.0 if window.lit_fraction is None else np.maximum(window.lit_fraction, _ROUNDING)
    return np.ceil(window.nodes / lit - _ROUNDING)


def _placed(plan: Plan, placement: Placement, window: WindowInput, whole: Floats, share: Floats) -> Floats:
    """Return the whole replicas of each deployment, shape (deployments, hours)."""
    counts = np.diff(np.clip(plan.month_edges_h, window.hours.start, window.hours.stop))
    review = np.repeat(placement.review_requests, counts.astype(np.intp), axis=1)
    came = window.demand_requests * (1.0 if window.lit_fraction is None else window.lit_fraction)
    waits = [w for w, workload in enumerate(plan.workloads) if workload.deadline_h]
    came[waits] = np.minimum(came[waits], review[waits])  # what can wait is placed for as the review has it
    ways = ways_of(plan, window)
    site = _Site(plan, placement, ways, whole, share, np.arange(whole.shape[1]))
    site.place(review)
    site.place_the_rest()
    replicas = site.replicas.copy()
    left = sum((site.take(w, came[w], add=False) for w in site.emptied()), start=np.zeros(whole.shape[1]))
    short = np.flatnonzero(left > _ROUNDING)
    if short.size:
        site = _Site(plan, placement, ways, whole[:, short], share[:, short], short)
        site.place(came[:, short])
        site.place(np.maximum(review - came, 0.0)[:, short])
        site.place_the_rest()
        replicas[:, short] = site.replicas
    return replicas


class _Site:
    """Clusters on which replicas are being placed, in some hours of a window."""

    def __init__(
        self, plan: Plan, placement: Placement, ways: Sequence[Way], whole: Floats, share: Floats,
        hours: NDArray[np.intp],
    ) -> None:  # fmt: skip
        """Begin with nodes that hold nothing."""
        self.plan, self.placement, self.ways = plan, placement, ways
        self.whole, self.share, self.hours = whole, share, hours
        self.size = np.array([each.nodes_per_replica for each in placement.deployments])
        """Nodes of a replica, shape (deployments,)."""
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
        levels = itertools.groupby(self.plan.by_priority, key=lambda w: self.plan.workloads[w].priority)
        for level in [tuple(members) for _, members in levels]:
            for w in sorted(level, key=self._nodes_each):
                self._seat(w, requests[w] > 0)
            for w in level:
                self.take(w, requests[w], add=True)

    def _nodes_each(self, w: int) -> float:
        """Return the nodes that a workload's smallest replica takes for each workload it serves."""
        deployed = [self.placement.deployment_of[c, w] for c in self.plan.workloads[w].cluster_order]
        return min(
            self.placement.deployments[d].least_nodes / len(self.placement.deployments[d].workloads) for d in deployed
        )

    def _seat(self, w: int, wanted: NDArray[np.bool_]) -> None:
        """Place one replica for a workload in hours in which it is wanted and has none."""
        order = [(c, self.placement.deployment_of[c, w]) for c in self.plan.workloads[w].cluster_order]
        if not all(self.placement.placed[c] for c, _ in order):
            return  # it can do with a share of a cluster
        for _, d in order:
            wanted = wanted & (self.replicas[d] < 1)
        for c, d in order:
            self._add(c, d, wanted)
            wanted = wanted & (self.replicas[d] < 1)

    def _add(self, c: int, d: int, wanted: Floats | NDArray[np.bool_]) -> None:
        """Place as many more replicas of a deployment as are wanted and find room."""
        least = self.placement.deployments[d].least_replicas - self.replicas[d]
        wanted = np.where(wanted > 0, np.maximum(wanted, least), 0.0)
        more = np.minimum(wanted, np.floor(self.left[c] / self.size[d] + _ROUNDING))
        self.replicas[d] += more
        self.spare[d] += more * self.size[d]
        self.left[c] -= more * self.size[d]

    def take(self, w: int, requests: Floats, *, add: bool) -> Floats:
        """Take a workload's requests, shape (hours,), into replicas with room, and add some; return what is left."""
        for c in self.plan.workloads[w].cluster_order:
            d = self.placement.deployment_of[c, w]
            rate = self.ways[w].rate(c, self.hours) * self.placement.deployments[d].speed * self.share[c]
            need = np.divide(requests, rate, out=np.zeros_like(requests), where=rate > 0)
            if self.placement.placed[c]:
                if add:
                    self._add(c, d, np.maximum(np.ceil((need - self.spare[d]) / self.size[d] - _ROUNDING), 0.0))
                used = np.minimum(need, self.spare[d])
                self.spare[d] -= used
            else:  # any share of it will do
                used = np.minimum(need, self.left[c])
                self.left[c] -= used
            requests = requests - used * rate
        return requests

    def place_the_rest(self) -> None:
        """Place replicas on the nodes left over: in proportion to what is placed, then by priority."""
        for c, placed in enumerate(self.placement.placed):
            own = [d for d, each in enumerate(self.placement.deployments) if placed and each.cluster == c]
            held = self.replicas[own] * self.size[own, None]
            share = held / np.maximum(held.sum(axis=0), _ROUNDING)
            for part in (share, np.ones_like(share)):
                for d, offered in zip(own, part * self.left[c], strict=True):
                    self._add(c, d, np.floor(offered / self.size[d] + _ROUNDING))

    def emptied(self) -> tuple[int, ...]:
        """Take all work out of what is placed; return the workloads in the order in which they are served."""
        self.spare = self.replicas * self.size[:, None]
        self.left = np.where(np.array(self.placement.placed)[:, None], 0.0, self.whole)
        return self.plan.by_priority
