"""Placement: the pools into which deployments divide clusters, and what a monthly review places them for.

A cluster on which rounding to whole replicas matters is split into pools, one for each deployment and one for what
holds nothing, and its hours are routed as if the pools were clusters: no workload takes more of a cluster than the
replicas placed for it carry. A cluster of one model is a pool of all its nodes, with the figures of their number.

A review knows the forecast of its month. For each workload it asks which capacity serves which share of the month's
requests in time, as the hours will count it: by the tables of misses, hour by hour.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats
from planner.elementwise import pad_edge
from planner.plan.load_tables import (
    LOAD_CELLS,
    MOST_LOAD,
    BurstTables,
    MissTables,
    highest_load,
)
from planner.plan.plan import Deployment, Placement, Plan, WorkloadPlan
from planner.records import record
from planner.units import SECONDS_PER_HOUR

ROUNDING = 1e-6
"""Of a replica or a node: what sums of parts may be off by."""
TARGET_STEPS = 16
"""Equal steps of an SLO target for which the capacity is known; between them it is interpolated."""
BEYOND_STEPS = 8
"""The same of what is beyond the target."""
_HOUR_GROUPS = 24
"""Groups of hours alike in traffic that stand for a month."""
_AS_GOOD = 0.999
"""Of the share in time on idle machines, which is not worth more of them."""
_CALM = 0.004
"""Of requests, late beyond those on idle machines, in hours that lend nodes; assumption: they have about a quarter of a
month's requests, which then loses less than a thousandth."""
_CAPACITIES = np.geomspace(0.02, 4.0, 64)
"""Capacities over the month's highest hour at which the share in time is worked out."""


def with_placement(plan: Plan, deployments: Sequence[Deployment]) -> Plan:
    """Return a plan that places whole replicas on the clusters where rounding to whole replicas matters."""
    groups = _groups(deployments)
    placed = _placed_clusters(plan, deployments, groups)
    pools = _pools(plan, deployments, groups, placed)
    sizes = [size for pool in pools for size in pool.sizes]
    speed = np.stack([_size_speed(plan, size) for size in sizes])
    ends = list(itertools.accumulate(len(pool.sizes) for pool in pools))
    pool_sizes = [
        tuple(range(end - len(pool.sizes), end)) for pool, end in zip(pools, ends, strict=True)
    ]
    group_of = {}
    for number, group in enumerate(groups):
        first = deployments[group[0]]
        for w in first.workloads:
            group_of[first.cluster, w] = number
    in_pools = []
    for w, workload in enumerate(plan.workloads):
        # Of the largest pool: in the figures of the smallest, next to nothing is offered.
        paces = [float(speed[own[-1], w, 0]) if own else 0.0 for own in pool_sizes]
        serves = [bool(speed[list(own), w].any()) for own in pool_sizes]
        own_groups = [number for (_, served), number in group_of.items() if served == w]
        in_pools.append(_workload_in_pools(workload, pools, serves, paces, own_groups))
    pool_cluster = tuple(pool.cluster for pool in pools)
    figures = _with_figures(plan, sizes, speed)
    target_requests, beyond_requests = _needed_requests(plan)
    placement = Placement(
        deployments=tuple(deployments),
        groups=groups,
        group_of=group_of,
        placed=placed,
        target_requests=target_requests,
        beyond_requests=beyond_requests,
        full_requests=_full_requests(plan),
        pools=dataclasses.replace(
            figures,
            clusters=tuple(plan.clusters[c] for c in pool_cluster),
            workloads=tuple(in_pools),
        ),
        pool_cluster=pool_cluster,
        pool_group=tuple(pool.group for pool in pools),
        pool_sizes=tuple(pool_sizes),
        size_deployment=tuple(size.number for size in sizes),
        size_least_nodes=np.array([size.least_nodes for size in sizes]),
        size_worth=_size_worth(plan, figures),
        size_calm_load=_calm_load(figures),
        size_speed=speed,
    )
    return dataclasses.replace(plan, placement=placement)


@record
class _Size:
    """Figures that a pool of some number of nodes has."""

    cluster: int
    number: int | None = None
    """Of the deployment whose figures these are; None for the plan's own."""
    deployment: Deployment | None = None
    is_whole_cluster: bool = False
    """Whether the pool is a cluster of which any share may serve any model."""

    @property
    def least_nodes(self) -> float:
        """Nodes from which they hold."""
        return 0.0 if self.deployment is None else self.deployment.least_nodes


@record
class _Pool:
    """A part of a cluster that is routed to as if it were a cluster."""

    cluster: int
    group: int | None
    """What it holds; None for nothing, or for whatever comes."""
    sizes: Sequence[_Size]
    """None where it serves nothing."""


def _groups(deployments: Sequence[Deployment]) -> tuple[tuple[int, ...], ...]:
    """Return the deployments of the same models on the same cluster together; they follow one another."""
    groups: list[list[int]] = []
    for d, deployment in enumerate(deployments):
        before = deployments[groups[-1][0]] if groups else None
        is_larger_pool = (
            before is not None
            and before.cluster == deployment.cluster
            and set(before.workloads) == set(deployment.workloads)
        )
        if is_larger_pool:
            groups[-1].append(d)
        else:
            groups.append([d])
    return tuple(map(tuple, groups))


def _placed_clusters(
    plan: Plan, deployments: Sequence[Deployment], groups: Sequence[Sequence[int]]
) -> tuple[bool, ...]:
    """Return of each cluster whether whole replicas count on it.

    One model may have any share of a cluster, unless it is slower there than that model alone.
    """
    wanted = {w for w, workload in enumerate(plan.workloads) if workload.is_wanted}
    placed = []
    for c in range(len(plan.clusters)):
        # What nobody asks for takes no replica, so that it need not be one of several.
        held = [deployments[group[-1]] for group in groups]
        here = [one for one in held if one.cluster == c and wanted & set(one.workloads)]
        is_slower = any(
            one.speed < 1.0 or set(one.workloads) & set(one.waiting_speed) for one in here
        )
        placed.append(is_slower or sum(one.least_replicas for one in here) > 1)
    return tuple(placed)


def _pools(
    plan: Plan,
    deployments: Sequence[Deployment],
    groups: Sequence[Sequence[int]],
    placed: Sequence[bool],
) -> list[_Pool]:
    """Return the pools of all clusters, in cluster order; those that hold nothing come last."""
    pools: list[_Pool] = []
    for c, has_whole_replicas in enumerate(placed):
        of_cluster = [g for g, group in enumerate(groups) if deployments[group[0]].cluster == c]
        if has_whole_replicas:
            for g in of_cluster:
                sizes = [_Size(cluster=c, number=d, deployment=deployments[d]) for d in groups[g]]
                pools.append(_Pool(cluster=c, group=g, sizes=sizes))
            continue
        # The one model that somebody asks for has all nodes, with the figures of their number.
        on_cluster = itertools.chain.from_iterable(groups[g] for g in of_cluster)
        wanted = [
            _Size(cluster=c, number=d, deployment=deployments[d], is_whole_cluster=True)
            for d in on_cluster
            if any(plan.workloads[w].is_wanted for w in deployments[d].workloads)
        ]
        if plan.clusters[c].is_paid_by_the_hour or not wanted:
            # As many are held as the load asks for, by the figures of all of them.
            wanted = [_Size(cluster=c, is_whole_cluster=True)]
        pools.append(_Pool(cluster=c, group=None, sizes=wanted))
    for c, has_whole_replicas in enumerate(placed):
        if has_whole_replicas:
            pools.append(_Pool(cluster=c, group=None, sizes=[]))
    return pools


def _size_speed(plan: Plan, size: _Size) -> Floats:
    """Return the speed of a size on each workload over the plan's figure, shape (workloads, months or 1)."""
    speed = np.zeros(plan.requests_per_node_h.shape[1:])
    speed[:] = float(size.is_whole_cluster)
    if size.deployment is not None:
        deployment = size.deployment
        for w in deployment.workloads:
            speed[w] = deployment.speed * deployment.pool_speed.get(w, 1.0)
        for w, waiting in deployment.waiting_speed.items():
            speed[w] = deployment.speed * waiting
    return speed


def _workload_in_pools(
    workload: WorkloadPlan,
    pools: Sequence[_Pool],
    serves: Sequence[bool],
    paces: Sequence[float],
    own_groups: Sequence[int],
) -> WorkloadPlan:
    """Return a workload with pools in place of clusters, its own before those in which it uses what idles.

    Of those that serve it the fastest come first, by the pace of each pool.
    """
    rank = {c: place for place, tier in enumerate(workload.cluster_tiers) for c in tier}
    paid = len(workload.cluster_tiers) - workload.rented_tiers
    tiers: dict[tuple[bool, bool, int, float], list[int]] = {}
    for number, pool in enumerate(pools):
        c = pool.cluster
        if c not in rank or not serves[number]:
            continue
        is_borrowed = pool.group is not None and pool.group not in own_groups
        pace = -paces[number] if is_borrowed else 0.0
        # What idles in others' pools is paid anyway: it goes before machines that are rented for the work.
        key = (rank[c] >= paid, is_borrowed, rank[c], pace)
        tiers.setdefault(key, []).append(number)
    in_order = tuple(tuple(tiers[key]) for key in sorted(tiers))
    rented = sum(is_rented for is_rented, *_ in tiers)
    return dataclasses.replace(workload, cluster_tiers=in_order, rented_tiers=rented)


def _with_figures(plan: Plan, sizes: Sequence[_Size], speed: Floats) -> Plan:
    """Return a plan with its figures by size of pool instead of cluster."""
    clusters = [size.cluster for size in sizes]
    by_pair: dict[tuple[int, int], MissTables] = {}
    for number, size in enumerate(sizes):
        if size.deployment is not None:
            for w, tables in size.deployment.tables.items():
                by_pair[number, w] = tables
    cells = max([plan.late_tables.shape[-1], *(tables.late.size for tables in by_pair.values())])
    late = pad_edge(plan.late_tables[clusters], cells)
    refused = pad_edge(plan.refused_tables[clusters], cells)
    no_burst = None
    if plan.no_burst_tables is not None:
        no_burst = pad_edge(plan.no_burst_tables[:, clusters], cells)
    most_loads = plan.most_loads[clusters]
    by_rate: dict[tuple[int, int], BurstTables] = {}
    for number, c in enumerate(clusters):
        for (cluster, w), tables_by_rate in plan.burst_tables.items():
            if cluster == c and (number, w) not in by_pair:
                by_rate[number, w] = tables_by_rate.pad_edge(cells)
    for pair, narrow in by_pair.items():
        tables = narrow.pad_edge(cells)
        late[pair] = tables.late
        refused[pair] = tables.refused
        most_loads[pair] = tables.most_load
        if no_burst is not None:
            no_burst[:, *pair] = tables.no_burst
        if tables.by_rate is not None:
            by_rate[pair] = tables.by_rate
    return dataclasses.replace(
        plan,
        requests_per_node_h=plan.requests_per_node_h[clusters] * speed,
        late_tables=late,
        refused_tables=refused,
        most_loads=most_loads,
        no_burst_tables=no_burst,
        burst_tables=by_rate,
    )


def _forecast(plan: Plan) -> Floats:
    """Return what is asked of each workload in requests an hour, shape (workloads, hours).

    In a month in which customers change their model each model has the whole month's: the review that places it only
    while it is served then sees nothing of the change.
    """
    forecast = plan.demand.expected_requests_per_s * SECONDS_PER_HOUR
    streams = np.array(plan.demand.streams)
    starts = plan.month_edges_h[:-1]
    for stream in plan.demand.streams:
        (rows,) = np.nonzero(streams == stream)
        if rows.size == 1:
            continue
        together = plan.demand.expected_requests_per_s[rows]
        is_asked = np.logical_or.reduceat(together > 0.0, starts, axis=1)
        whole = together.sum(axis=0) * SECONDS_PER_HOUR
        forecast[rows] = whole * is_asked[:, plan.months.hour_periods]
    return forecast


def _month_rates(plan: Plan) -> tuple[Floats, Floats]:
    """Return the highest and the mean forecast hour of each month in requests an hour, shape (workloads, months)."""
    forecast = _forecast(plan)
    starts = plan.month_edges_h[:-1]
    peak = np.maximum.reduceat(forecast, starts, axis=1)
    mean = np.add.reduceat(forecast, starts, axis=1) / np.diff(plan.month_edges_h)
    return peak, mean


def _full_requests(plan: Plan) -> Floats:
    """Return the capacity that reviews would have, shape (workloads, months).

    That of the highest hour of the forecast, or its mean for work that can wait, over the utilisation at which clusters
    are taken as full.
    """
    peak, mean = _month_rates(plan)
    waits = np.array([workload.deadline_h > 0 for workload in plan.workloads])
    return np.where(waits[:, None], mean, peak) / (plan.preferred_utilisation or 1.0)


def _needed_requests(plan: Plan) -> tuple[Floats, Floats]:
    """Return the capacity for equal steps of each SLO target in a month, and for steps from it to all requests.

    Shape (workloads, months, steps + 1) each. Of work that can wait all has to be served, whenever that is.
    """
    full = _full_requests(plan)
    steps = np.arange(TARGET_STEPS + 1) / TARGET_STEPS
    further = np.arange(BEYOND_STEPS + 1) / BEYOND_STEPS
    required = full[:, :, None] * steps
    beyond = np.repeat(full[:, :, None], further.size, axis=2)
    peak, _ = _month_rates(plan)
    targets = np.broadcast_to(plan.slo_attainments, len(plan.workloads))
    forecast = _forecast(plan)
    for w, workload in enumerate(plan.workloads):
        if workload.deadline_h or not workload.cluster_order:
            continue
        in_time = _in_time_table(plan, _first_cluster(plan, w), w)
        hours = forecast[w]
        wanted = np.concatenate([targets[w] * steps, targets[w] + (1.0 - targets[w]) * further])
        for month, (start, end) in enumerate(
            zip(plan.month_edges_h, plan.month_edges_h[1:], strict=False)
        ):
            if peak[w, month] > 0.0:
                shares = _shares_in_time(hours[start:end] / peak[w, month], in_time)
                # What no capacity serves in time, none need be there for.
                reachable = np.minimum(wanted, shares[-1] * _AS_GOOD)
                capacity = np.interp(reachable, shares, _CAPACITIES)
                capacity[0] = 0.0
                capacity = np.minimum(capacity * peak[w, month], full[w, month])
                capacity = np.maximum.accumulate(capacity)
                required[w, month] = capacity[: steps.size]
                beyond[w, month, :-1] = capacity[steps.size : -1]
    return required, beyond


def _first_cluster(plan: Plan, w: int) -> int:
    """Return the first cluster with nodes that is offered a workload, in whose capacity its needs are counted.

    It stands for all: clusters differ in speed far more than in misses by load. Of those that are there by the first
    month in which anybody asks, or else come first: a month must not see what comes after it.
    """
    order = plan.workloads[w].cluster_order
    with_nodes = [c for c in order if plan.clusters[c].nodes] or order
    asked = np.flatnonzero(plan.demand.expected_requests_per_s[w])
    # Without requests nothing is needed, in whatever capacity that is counted.
    month = int(plan.months.hour_periods[asked[0]]) if asked.size else 0
    earliest_h = [plan.clusters[c].earliest_h for c in with_nodes]
    latest_h = max(float(plan.month_edges_h[month + 1]) - 1.0, min(earliest_h))
    return next(c for c, hour in zip(with_nodes, earliest_h, strict=True) if hour <= latest_h)


def _size_worth(plan: Plan, by_size: Plan) -> Floats:
    """Return what capacity at each size of pool counts for, shape (sizes, workloads).

    A pool with longer waits has to be less busy for the same share in time. Of the first month in which anybody asks,
    the capacity for the SLO target on the cluster that is offered a workload first, over that in the pool.
    """
    worth = np.ones((len(by_size.late_tables), len(plan.workloads)))
    targets = np.broadcast_to(plan.slo_attainments, len(plan.workloads))
    starts = plan.month_edges_h[:-1]
    forecast = _forecast(plan)
    for w, workload in enumerate(plan.workloads):
        hours = forecast[w]
        peaks = np.maximum.reduceat(hours, starts)
        if workload.deadline_h or not workload.cluster_order or not peaks.any():
            continue
        month = int(np.flatnonzero(peaks)[0])
        profile = hours[plan.month_edges_h[month] : plan.month_edges_h[month + 1]] / peaks[month]
        first_table = _in_time_table(plan, _first_cluster(plan, w), w)
        first = _target_capacity(profile, first_table, targets[w])
        for size in np.flatnonzero(by_size.requests_per_node_h[:, w].any(axis=1)).tolist():
            capacity = _target_capacity(profile, _in_time_table(by_size, size, w), targets[w])
            worth[size, w] = min(first / capacity, 1.0)
    return worth


def _calm_load(by_size: Plan) -> Floats:
    """Return the load up to which hardly more is late than on idle machines, shape (sizes, workloads)."""
    missed = by_size.late_tables + by_size.refused_tables
    load = highest_load(missed, missed[:, :, :1] + _CALM)
    return np.maximum(load, 1.0 / LOAD_CELLS)


def _target_capacity(profile: Floats, in_time: Floats, target: float) -> float:
    """Return the capacity over the highest hour at which a target share of a month's requests is in time."""
    return float(np.interp(target, _shares_in_time(profile, in_time), _CAPACITIES))


def _in_time_table(plan: Plan, c: int, w: int) -> Floats:
    """Return what is served in time over capacity, by load up to the highest that is offered, shape (cells + 1,)."""
    cells = round(plan.most_loads[c, w] * LOAD_CELLS / MOST_LOAD)
    missed = plan.late_tables[c, w, : cells + 1] + plan.refused_tables[c, w, : cells + 1]
    loads = np.arange(missed.size) * (MOST_LOAD / LOAD_CELLS)
    return np.asarray(loads * (1.0 - np.minimum(missed, 1.0)))


def _shares_in_time(profile: Floats, in_time: Floats) -> Floats:
    """Return the share of a month's requests in time by capacity over its highest hour, shape (capacities,).

    ``profile`` has the hours over the highest. They are grouped by their traffic, each group at its mean.
    """
    ordered = np.sort(profile)
    edges = np.linspace(0, ordered.size, _HOUR_GROUPS + 1).astype(np.intp)
    counts = np.diff(edges)
    totals = np.add.reduceat(ordered, edges[:-1])
    hours = totals / counts
    loads = hours / _CAPACITIES[:, None]
    cells = np.minimum(loads * (LOAD_CELLS / MOST_LOAD), in_time.size - 1.0)
    served = np.interp(cells, np.arange(in_time.size), in_time) * _CAPACITIES[:, None]
    shares = (served * counts).sum(axis=1) / totals.sum()
    return np.asarray(np.maximum.accumulate(shares))
