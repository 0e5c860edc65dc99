"""Whole replicas placed hour by hour, and the pools that they make."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.elementwise import at_least, divisor, in_hours
from planner.engine.failover import with_carried
from planner.engine.hourly import Drag, WindowInput, WindowResult
from planner.engine.hourly_replacement import OwnWork
from planner.engine.replica_packing import Rates
from planner.engine.router import ways_of
from planner.engine.routing import Way
from planner.plan.plan import Placement, Plan
from planner.plan.pools import ROUNDING


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
    own_work = OwnWork(placement, _rates(placement, ways, share), standing, came, review)
    reviewed = own_work.at_review(first)
    replicas = in_hours(reviewed.replicas, stretch)
    site = reviewed.without_work(own_work.rates, stretch, standing)
    left = sum((site.take(w, came[w], add=False) for w in plan.by_priority), start=np.zeros(standing.shape[1]))
    short = np.flatnonzero(left > ROUNDING)
    lacking = own_work.place(short, replicas)
    # What loading may take: whatever it takes where an hour was placed for that, and nothing where nodes lack even so.
    site.spare[:, short], site.spare[:, lacking] = np.inf, -np.inf
    # Elsewhere nothing is loaded: what the review has placed stood in the hour before too.
    may_lose = np.zeros(left.size + 1, dtype=np.bool_)
    may_lose[first] = may_lose[short + 1] = True
    may_lose[short] = False
    may_lose[lacking] = True
    return own_work.moved(replicas, site.spare, window.replicas_before, np.flatnonzero(may_lose[:-1]))


def _rates(placement: Placement, ways: Sequence[Way], share: Floats) -> Rates:
    """Return the rates of all workloads in the pools that serve them."""
    rates = {}
    for w, way in enumerate(ways):
        for pool, by in way.divisors.items():
            rate, there = way.rates[pool], share[placement.pool_cluster[pool]]
            served = rate * there
            rates[w, pool] = (served, served if by is rate else by * there)
    return rates


def _stretches(*series: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the hours in which any of some series of shape (n, hours or 1) changes, and the change each hour is after.

    Failures and releases move what is placed at a review a few times a day: it need not be placed anew each hour.
    """
    changed = np.zeros(max(table.shape[1] for table in series), dtype=np.bool_)
    changed[0] = True
    for table in (table for table in series if table.shape[1] > 1):
        changed[1:] |= np.any(table[:, 1:] != table[:, :-1], axis=0)
    return np.flatnonzero(changed), np.cumsum(changed) - 1
