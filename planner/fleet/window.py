"""What a window of hours yields: who is served where, what waits, what is shed, how much power it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan
from planner.fleet.power import allowed_it_kw, facility_kw, hold, it_kw, load_fraction
from planner.fleet.router import Router, Slowdown, WindowInput

__all__ = ["MISS_CELLS", "Drag", "Slowdown", "WindowInput", "WindowResult", "evaluate_window"]

Floats = NDArray[np.float64]
MISS_CELLS = 256
_CAP_TOLERANCE = 1e-9
_NONE = 1e-9  # stands for no requests an hour, of which none are served either


@dataclass(frozen=True, slots=True, kw_only=True)
class Drag:
    """What slow software cost a cluster on a workload."""

    hours: NDArray[np.intp]
    """Within the window, shape (some hours,)."""
    nodes: Floats
    """Node-equivalents at work for nothing in each, shape (some hours,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """Hourly arrays of one window."""

    first_hour: int
    demand_requests: Floats
    """Shape (workloads, hours)."""
    served_requests: Floats
    """Shape (clusters, workloads, hours)."""
    late_requests: Floats
    """Served, but past the objective because of bursts inside the hour, shape (workloads, hours)."""
    shed_requests: Floats
    """Refused or expired, shape (workloads, hours)."""
    waiting_requests: tuple[Floats, ...]
    """Per workload, what still waits at the end, by hour of arrival, oldest first."""
    nodes: Floats
    """Healthy nodes with power, shape (clusters, hours)."""
    busy_nodes: Floats
    """Node-equivalents at work, shape (clusters, hours)."""
    drag_nodes: Floats
    """Of those, what open software incidents cost, shape (clusters, hours)."""
    drags: Mapping[tuple[int, int], Drag]
    """The same by cluster and workload, where there is any."""
    throttled_nodes: Floats
    """Node-equivalents that had work and lost it to the power cap, shape (clusters, hours)."""
    it_kw: Floats
    """Shape (clusters, hours)."""
    facility_kw: Floats
    """IT, cooling and distribution, shape (hours,)."""


def evaluate_window(plan: Plan, window: WindowInput) -> WindowResult:
    """Route a window's demand over its nodes, within the site's power.

    Workloads are taken by priority; each is offered to its clusters by the routing policy; deferrable work fills what
    all others left. Hours in which that leaves work undone, or crowds one cluster beside a free one, are planned anew
    as a whole. What arrives while the site is dark is shed, or waits where it can. Where the power cap binds, nodes are
    parked or clocked down and lower priorities give way.
    """
    router = Router(plan, window)
    router.route()
    throttled = np.zeros_like(window.nodes)
    used = router.room.used
    load = load_fraction(used, window.nodes)
    power = it_kw(plan, load, window.nodes)
    if plan.site.cap_kw is not None:
        allowed = allowed_it_kw(plan, plan.site.cap_kw[window.hours], window.hours)
        over = np.flatnonzero(power.sum(axis=0) > allowed * (1.0 + _CAP_TOLERANCE))
        if over.size:
            wanted = router.wanted_nodes()[:, over]
            router.place(over, plan.by_priority, allowed[over])
            throttled[:, over] = np.maximum(wanted - used[:, over], 0.0)
            capacity, power[:, over] = hold(plan, used[:, over], window.nodes[:, over], allowed[over])
            load[:, over] = load_fraction(used[:, over], capacity)
    drags = _drags(router)
    drag = np.zeros_like(window.nodes)
    for (c, _), lost in drags.items():
        drag[c][lost.hours] += lost.nodes
    return WindowResult(
        first_hour=window.first_hour,
        demand_requests=window.demand_requests,
        served_requests=router.served,
        late_requests=_late(plan, router.served, load),
        shed_requests=router.shed,
        waiting_requests=tuple(router.waiting),
        nodes=window.nodes,
        busy_nodes=used,
        drag_nodes=drag,
        drags=drags,
        throttled_nodes=throttled,
        it_kw=power,
        facility_kw=facility_kw(plan, power.sum(axis=0), window.hours),
    )


def _drags(router: Router) -> dict[tuple[int, int], Drag]:
    """Return the node-equivalents that slow software costs, by cluster and workload."""
    drags = {}
    for (c, index), slowed in router.window.incidents.items():
        rate = router.ways[index].rate(c, slowed.hours)
        nodes = router.served[c, index].take(slowed.hours) / np.maximum(rate, _NONE) * slowed.lost_fraction
        drags[c, index] = Drag(hours=slowed.hours, nodes=nodes)
    return drags


def _late(plan: Plan, served: Floats, load: Floats) -> Floats:
    """Return requests that miss their objective because of bursts inside the hour, shape (workloads, hours).

    Only hours above the utilisation from which any are missed are looked up: most are below it.
    """
    late = np.zeros(served.shape[1:])
    burst_free = plan.burst_free_utilisation
    for c, lowest in enumerate(burst_free.min(axis=1).tolist()):
        hours = np.flatnonzero(load[c] > lowest)
        if not hours.size:
            continue
        busy = load[c].take(hours)
        cell = (busy * MISS_CELLS + 0.5).astype(np.intp)
        for w, workload in enumerate(plan.workloads):
            near = np.flatnonzero(busy > burst_free[c, w])
            if near.size and not workload.deadline_h and c in workload.cluster_order:
                missed = plan.miss_tables[c, w].take(cell[near], mode="clip")
                missed *= served[c, w].take(hours[near])
                late[w][hours[near]] += missed
    return late
