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

from planner.arrays import Floats
from planner.plan.plan import Deployment, Placement, Plan, WorkloadPlan
from planner.plan.sizes import figures_in_pools
from planner.units import SECONDS_PER_HOUR

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
