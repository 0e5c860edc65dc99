"""What placement could serve at most: an upper bound on its objective, month by month, and the gap to it.

Nodes serve any model at the best rate that a pool of their cluster has, without rounding to whole replicas, without
loading weights, without a power cap. What each class of priority is then served is levelled: the lowest share is raised
as far as it goes, then the next. No placement has higher levels, class by class; a single workload may have a higher
share than here where another of its class, or of one before it, has a lower.

A month is seen in groups of hours that are alike in load, each at the means of its hours: work moved between hours of a
group only makes the bound higher. Work that can wait has the whole month.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import safe_denominator
from planner.engine.allocation import Demand, allocate, node_steps
from planner.engine.dispatch import routes_of
from planner.engine.hourly import Route, joined, serving
from planner.finance.accounting.booked_run import BookedRun, per_run
from planner.plan.load_tables import load_grid
from planner.plan.plan import Plan
from planner.plan.quantities import attainment
from planner.records import record

_HOUR_GROUPS = 24
"""Of a month, by load."""
LARGE_GAP = 0.05
"""Of a workload's requests, from which a gap is worth a note; assumption: in a quarter of random problems whole
replicas alone keep the best placement more than 3% under the bound."""


@record
class PlacementGap:
    """What of a workload is served in time, and what could be at most."""

    workload: str
    month: str
    """The month in which the least share is served in time."""
    bound_fraction: float
    """Of its requests in that month, what could be served in time at most where classes are levelled."""
    served_in_time_fraction: float
    """Of its requests in that month."""
    gap_fraction: float
    """What is missing to the bound, mean of all months by requests."""


@per_run
def placement_gaps(result: BookedRun) -> list[PlacementGap]:
    """Return how far each workload that had requests is from the bound."""
    bounds = placement_bounds(result)
    settled = result.settled_requests()
    served = attainment(result.missed_requests(), settled)
    gaps = []
    for w, workload in enumerate(result.plan.workloads):
        months = np.flatnonzero(settled[:, w] > 0.0)
        if not months.size:
            continue
        worst = months[served[months, w].argmin()]
        missing = np.maximum(bounds[months, w] - served[months, w], 0.0)
        gap = PlacementGap(
            workload=workload.name,
            month=result.plan.months.labels[worst],
            bound_fraction=round(float(bounds[worst, w]), 6),
            served_in_time_fraction=round(float(served[worst, w]), 6),
            gap_fraction=round(float(np.average(missing, weights=settled[months, w])), 6),
        )
        gaps.append(gap)
    return gaps


def gap_notes(result: BookedRun) -> Iterator[str]:
    """Say of which workloads much less is served than could be, where there are several models to place."""
    models = {workload.model for workload in result.plan.workloads}
    if len(models) == 1:
        return
    for gap in placement_gaps(result):
        if gap.gap_fraction > LARGE_GAP:
            yield (
                f"workload {gap.workload} had {gap.served_in_time_fraction:.1%} of its requests within their SLO in "
                f"{gap.month}; with ideal placement of models it could be up to {gap.bound_fraction:.1%}"
            )


def placement_bounds(result: BookedRun) -> Floats:
    """Return what of each month's requests could be served in time at most where classes are levelled.

    Shape (months, workloads); 1 where there are no requests.
    """
    plan = result.plan
    hourly = _hourly_work(result)
    urgent = [w for w in plan.by_priority if not plan.workloads[w].deadline_h]
    patient = [w for w in plan.by_priority if plan.workloads[w].deadline_h]
    months = plan.months.hour_periods
    alike = _hours_alike(hourly, months)
    served = np.zeros_like(hourly.requests[:, : plan.months.period_count])
    in_groups = hourly.summed(alike)
    for w, requests in in_groups.served(plan, urgent).items():
        # As many groups in each month, and in the order of the months.
        served[w] = requests.reshape(len(served[w]), -1).sum(axis=1)
    in_months = hourly.summed(months)
    if patient:
        before = in_months.requests.copy()
        before[urgent] = served[urgent]
        whole_months = replace(in_months, requests=before)
        for w, requests in whole_months.served(plan, [*urgent, *patient]).items():
            if w in patient:
                served[w] = requests
    demand = in_months.requests
    apis = [c for c, cluster in enumerate(plan.clusters) if cluster.api is not None]
    # What others served beyond the plan's own nodes stays as it was.
    elsewhere = result.monthly.served_requests[:, apis].sum(axis=1) + result.rented.requests
    shares = np.ones_like(demand)
    np.divide(served + elsewhere.T, demand, out=shares, where=demand > 0.0)
    return np.minimum(shares, 1.0).T


@record
class _Work:
    """Work and what there is for it, by hour or by group of hours; arrays have these as last axis."""

    requests: Floats
    """Shape (workloads, hours)."""
    node_h: Floats
    """Shape (clusters, hours)."""
    rates: Floats
    """Requests in time of a node-hour, 0 where a cluster is not offered a workload, shape (clusters, workloads,
    hours)."""

    def summed(self, group: Ints) -> _Work:
        """Return it by group of hours, each at the highest of its hours' rates."""
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        return _Work(
            requests=np.add.reduceat(self.requests[:, order], starts, axis=1),
            node_h=np.add.reduceat(self.node_h[:, order], starts, axis=1),
            rates=np.maximum.reduceat(self.rates[:, :, order], starts, axis=2),
        )

    def served(self, plan: Plan, workloads: Sequence[int]) -> dict[int, Floats]:
        """Return what is served of workloads whose shares are levelled class by class, each of shape (hours,)."""
        routes = [
            Route(workload.cluster_tiers, [*self.rates[:, w]])
            for w, workload in enumerate(plan.workloads)
        ]
        clusters = serving(routes, workloads)
        if not clusters.size:
            return {}
        demand = Demand(
            workloads=workloads,
            # In the order in which they are served: what can wait comes last.
            levels=[_class_rank(plan, w) for w in workloads],
            requests=self.requests[workloads],
            hours=np.arange(self.requests.shape[1]),
        )
        node_h = allocate(routes, self.node_h[clusters], demand, node_steps(plan))
        return {
            w: (node_h[:, place] * self.rates[clusters, w]).sum(axis=0)
            for place, w in enumerate(workloads)
        }


def _class_rank(plan: Plan, w: int) -> int:
    """Return whose turn a workload has among the classes."""
    classes = [(load.deadline_h > 0, load.priority) for load in plan.workloads]
    return sorted(set(classes)).index(classes[w])


def _hourly_work(result: BookedRun) -> _Work:
    """Return the arrivals, healthy nodes and best rates of each hour of a run."""
    plan = result.plan
    inputs = result.run.inputs
    rates = np.zeros((len(plan.clusters), len(plan.workloads), plan.hours))
    for window in inputs:
        for w, route in enumerate(routes_of(plan, window)):
            for c in route.order:
                rates[c, w, window.hours] = route.rates[c]
    return _Work(
        requests=joined("demand_requests", inputs),
        node_h=joined("nodes", inputs),
        rates=rates * _best_speed(plan)[:, :, None],
    )


def _best_speed(plan: Plan) -> Floats:
    """Return the most requests in time that a node serves over the plan's rate, shape (clusters, workloads).

    In the best of its cluster's pools: one that is offered more than its rate, and refuses what would be late, may have
    more in time than at its rate.
    """
    best = np.ones(plan.most_loads.shape)
    if plan.placement is None:
        return np.maximum(best, _most_in_time(plan))
    placement = plan.placement
    speed = placement.size_speed.max(axis=2) * _most_in_time(placement.pools)
    for c, sizes in zip(placement.pool_cluster, placement.pool_sizes, strict=True):
        if sizes:
            best[c] = np.maximum(best[c], speed[list(sizes)].max(axis=0))
    return best


def _most_in_time(plan: Plan) -> Floats:
    """Return the most requests in time over the rate, of all loads that a cluster may have, of the same shape."""
    missed = plan.late_tables + plan.refused_tables
    if plan.no_burst_tables is not None:
        missed = np.minimum(missed, plan.no_burst_tables.sum(axis=0))
    load = load_grid(missed.shape[2] - 1)
    in_time = np.where(load <= plan.most_loads[:, :, None], load * (1.0 - missed), 0.0)
    return np.asarray(in_time.max(axis=2))


def _hours_alike(hourly: _Work, months: Ints) -> Ints:
    """Return the group of each hour, by month and in it by load: as many groups in each month, in its order."""
    best_rate = safe_denominator(hourly.rates.max(axis=0))
    nodes = safe_denominator(hourly.node_h.sum(axis=0))
    load = (hourly.requests / best_rate).sum(axis=0) / nodes
    order = np.lexsort((load, months))
    length = np.bincount(months)
    position = np.arange(months.size) - np.repeat(np.cumsum(length) - length, length)
    group = np.empty(months.size, dtype=np.intp)
    group[order] = months[order] * _HOUR_GROUPS + position * _HOUR_GROUPS // length[months[order]]
    return group
