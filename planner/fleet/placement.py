"""Whole replicas of resident models: which share of a cluster each model holds, hour by hour.

A *deployment* is what one group of accelerators holds: one model, or several where a cluster is too small for one
replica of each and their weights fit together. A cluster on which rounding to whole replicas matters is split into
pools, one for each deployment and one for what holds nothing, and its hours are routed as if the pools were clusters:
no workload takes more of a cluster than the replicas placed for it carry.

Replicas are placed at the monthly review, for the highest hour that the forecast has for the month, by priority: one
for each model, then as many as its work needs, then what is left in proportion. In an hour whose need passes what is
placed, the hour's own work is placed first. What was not there in the hour before is loaded, and serves that much less.
Each hour is placed from what the review, the hour and the one before it know, so the end of a window changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.fleet.hourly import WindowResult
from planner.fleet.plan import Deployment, Placement, Plan, WorkloadPlan
from planner.fleet.quantities import machine_time, shares
from planner.fleet.sizes import figures_in_pools
from planner.records import dataclass
from planner.units import SECONDS_PER_HOUR

Floats = NDArray[np.float64]
ROUNDING = 1e-6
"""Of a replica or a node: what sums of parts may be off by."""
ROUNDING_MATTERS = 0.01
"""Share of a cluster's nodes that one replica of each of its deployments takes, from which whole replicas count."""


def with_placement(plan: Plan, deployments: Sequence[Deployment]) -> Plan:
    """Return a plan whose clusters hold whole replicas where that matters."""
    placed = []
    asked = {w for w, requests_per_s in enumerate(plan.demand.expected_requests_per_s) if requests_per_s.any()}
    for c, cluster in enumerate(plan.clusters):
        # What nobody asks for takes no replica, so that it need not be one of several.
        here = [held for held in deployments if held.cluster == c and asked & set(held.workloads)]
        # One replica of one model may be any share of a cluster, unless it is slower than that model alone.
        several = sum(deployment.least_replicas for deployment in here) > 1 or any(
            deployment.is_slower for deployment in here
        )
        placed.append(several and sum(deployment.least_nodes for deployment in here) > ROUNDING_MATTERS * cluster.nodes)
    pools = [
        (c, d)
        for c, whole_replicas in enumerate(placed)
        for d in (*(d for d, deployment in enumerate(deployments) if deployment.cluster == c and whole_replicas), None)
    ]
    speed = np.array(
        [
            [_speed(plan, None if d is None else deployments[d], w, placed[c]) for w in range(len(plan.workloads))]
            for c, d in pools
        ]
    )
    deployment_of = {
        (deployment.cluster, w): d for d, deployment in enumerate(deployments) for w in deployment.workloads
    }
    placement = Placement(
        deployments=tuple(deployments),
        placed=tuple(placed),
        review_requests=_review_requests(plan),
        pools=_pool_plan(plan, pools, deployment_of, speed),
        pool_cluster=tuple(c for c, _ in pools),
        pool_deployment=tuple(d for _, d in pools),
        pool_speed=speed,
        deployment_of=deployment_of,
    )
    return dataclasses.replace(plan, placement=placement)


def _speed(plan: Plan, held: Deployment | None, w: int, placed: bool) -> Floats:
    """Return a pool's speed on a workload over that of its best layout alone, shape (months or 1,); 0 for no service.

    ``held`` is what the pool holds: None for a cluster left whole, which serves all, and for nodes that hold nothing.
    """
    periods = plan.requests_per_node_h.shape[2]
    if held is None:
        return np.full(periods, float(not placed))
    waiting = held.waiting_speed.get(w)
    if waiting is None:
        return np.full(periods, held.speed if w in held.workloads else 0.0)
    return np.broadcast_to(held.speed * waiting, periods)


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


def _pool_plan(
    plan: Plan, pools: Sequence[tuple[int, int | None]], deployment_of: Mapping[tuple[int, int], int], speed: Floats
) -> Plan:
    """Return the plan with pools in place of clusters; their speed has shape (pools, workloads, months or 1)."""
    pool_cluster = [c for c, _ in pools]

    def in_pools(w: int, workload: WorkloadPlan) -> WorkloadPlan:
        rank = {c: place for place, tier in enumerate(workload.cluster_tiers) for c in tier}
        paid = len(workload.cluster_tiers) - workload.rented_tiers
        tiers: dict[tuple[bool, bool, int, float], list[int]] = {}
        for pool, (c, d) in enumerate(pools):
            if c in rank and speed[pool, w].any():
                of_others = d not in (None, deployment_of[c, w])
                # What idles in others' pools is paid anyway: it goes before machines that are rented for the work.
                tiers.setdefault((rank[c] >= paid, of_others, rank[c], -speed[pool, w, 0]), []).append(pool)
        return dataclasses.replace(
            workload,
            cluster_tiers=tuple(tuple(tiers[key]) for key in sorted(tiers)),
            rented_tiers=sum(is_rented for is_rented, *_ in tiers),
        )

    spared = tuple(pool for c in plan.site.throttle_order for pool, at in enumerate(pool_cluster) if at == c)
    return dataclasses.replace(
        plan,
        clusters=tuple(plan.clusters[c] for c in pool_cluster),
        workloads=tuple(in_pools(w, workload) for w, workload in enumerate(plan.workloads)),
        site=dataclasses.replace(plan.site, throttle_order=spared),
        **figures_in_pools(plan, pool_cluster, speed),
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
        _hourly(windows, name) for name in ("served_requests", "nodes", "busy_nodes", "replicas", "loading_nodes")
    )
    deployments, size = (
        placement.deployments,
        np.array([deployment.nodes_per_replica for deployment in placement.deployments]),
    )
    replicas, held, load = (np.zeros((size.size, plan.hours)) for _ in range(3))
    rates = np.moveaxis(plan.requests_per_node_h, 2, 0)
    for c, whole_replicas in enumerate(placement.placed):
        there = [d for d, deployment in enumerate(deployments) if deployment.cluster == c]
        if whole_replicas:
            replicas[there], held[there], load[there] = placed[there], placed[there] * size[there, None], loading[there]
            continue
        hourly = np.repeat(rates[:, c], lengths, axis=0) if len(rates) > 1 else rates[:, c]
        share = shares(machine_time(served[c].T, hourly)).T  # of the nodes at work, shape (workloads, hours)
        for d in there:
            work = share[list(deployments[d].workloads)].sum(axis=0) * busy[c]
            replicas[d] = np.ceil(work / size[d] - ROUNDING)
            held[d] = nodes[c]
            load[d] = np.maximum(np.diff(replicas[d], prepend=replicas[d, :1]), 0.0) * size[d] * deployments[d].load_h
        highest = np.maximum.reduceat(replicas[there], starts, axis=1)
        fits = (highest * size[there, None]).sum(axis=0) <= np.minimum.reduceat(nodes[c], starts)
        load[there] *= ~np.repeat(fits, lengths)
    return Residence(
        replicas=np.maximum.reduceat(replicas, starts, axis=1).T,
        held_node_h=np.add.reduceat(held, starts, axis=1).T,
        load_node_h=np.add.reduceat(load, starts, axis=1).T,
    )


def _hourly(windows: Sequence[WindowResult], name: str) -> Floats:
    """Return the hours of all windows one after the other, to be read alone: those of a single window are its own."""
    parts: list[Floats] = [getattr(window, name) for window in windows]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def never_placed(plan: Plan, windows: Sequence[WindowResult]) -> list[int]:
    """Return the workloads that were asked for and whose model was never resident anywhere."""
    placement = plan.placement
    if placement is None:
        return []
    never = []
    for w, workload in enumerate(placement.pools.workloads):
        held = [placement.pool_deployment[pool] for pool in workload.cluster_order]
        placed = [d for d in held if d is not None]
        if len(placed) < len(held) or not any(window.demand_requests[w].max() > 0.0 for window in windows):
            continue
        if not any(window.replicas[d].max() > 0.0 for window in windows for d in placed):
            never.append(w)
    return never
