"""What a window of hours yields: who is served where, what waits, what is shed, how much power it takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan
from planner.fleet.power import facility_kw, it_kw, throttle
from planner.fleet.routing import Room, fill_in_order, fill_in_proportion
from planner.fleet.scan import clamp_scan

Floats = NDArray[np.float64]
MISS_CELLS = 256
_MAX_THROTTLE_PASSES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """The hours of a window in which incidents slow a cluster on a workload."""

    hours: NDArray[np.intp]
    """Within the window, shape (some hours,)."""
    lost_fraction: Floats
    """Share of speed lost in each, shape (some hours,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowInput:
    """What the window's hours bring; arrays have the window's hours as last axis."""

    first_hour: int
    demand_requests: Floats
    """Arrivals, shape (workloads, hours)."""
    nodes: Floats
    """Healthy nodes with power, shape (clusters, hours)."""
    speed: Mapping[tuple[int, int], Floats]
    """Speed of a cluster on a workload against day one, where it differs from 1, shape (hours,)."""
    incidents: Mapping[tuple[int, int], Slowdown]
    """What open incidents take of that speed, where there are any."""
    waiting_requests: tuple[Floats, ...]
    """Per workload, requests still waiting by hour of arrival, oldest first, shape (deadline,)."""

    @property
    def hours(self) -> slice:
        """The window's hours within the horizon."""
        return slice(self.first_hour, self.first_hour + self.nodes.shape[1])


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
    throttled_nodes: Floats
    """Node-equivalents that had work and lost it to the power cap, shape (clusters, hours)."""
    it_kw: Floats
    """Shape (clusters, hours)."""
    facility_kw: Floats
    """IT, cooling and distribution, shape (hours,)."""


@dataclass(slots=True)
class _Routed:
    """One pass of routing over a window."""

    served: Floats
    shed: Floats
    waiting: list[Floats]
    used: Floats
    drag: Floats


def evaluate_window(plan: Plan, window: WindowInput) -> WindowResult:
    """Route a window's demand over its nodes, within the site's power.

    Workloads are taken by priority; each is offered to its clusters by the routing policy; deferrable work fills what
    all others left. Where the power cap binds, clusters are throttled in order and the window is routed again.
    """
    rates = _rates(plan, window)
    usable = window.nodes
    routed = _route(plan, window, usable, rates)
    wanted = routed.used
    power = it_kw(plan, routed.used, window.nodes)
    facility = facility_kw(plan, power.sum(axis=0), window.hours)
    if plan.site.cap_kw is not None:
        cap = plan.site.cap_kw[window.hours]
        usable = window.nodes.copy()
        for _ in range(_MAX_THROTTLE_PASSES):
            over = np.flatnonzero(facility > cap * (1.0 + 1e-9))
            if not over.size:
                break
            usable[:, over] = throttle(plan, routed.used[:, over], window.nodes[:, over], window.first_hour + over)
            routed = _route(plan, window, usable, rates)
            power = it_kw(plan, routed.used, window.nodes)
            power[:, over] = np.where(usable[:, over] > 0, power[:, over], 0.0)
            facility = facility_kw(plan, power.sum(axis=0), window.hours)
    return WindowResult(
        first_hour=window.first_hour,
        demand_requests=window.demand_requests,
        served_requests=routed.served,
        late_requests=_late(plan, routed, usable),
        shed_requests=routed.shed,
        waiting_requests=tuple(routed.waiting),
        nodes=window.nodes,
        busy_nodes=routed.used,
        drag_nodes=routed.drag,
        throttled_nodes=np.maximum(wanted - routed.used, 0.0) if routed.used is not wanted else np.zeros_like(wanted),
        it_kw=power,
        facility_kw=facility,
    )


def _rates(plan: Plan, window: WindowInput) -> list[list[Floats]]:
    """Return requests per node and hour, by workload then cluster, each of shape (1,) or (hours,)."""
    table = plan.requests_per_node_h
    counts = None
    if table.shape[2] > 1:
        edges = np.clip(plan.month_edges_h, window.hours.start, window.hours.stop)
        counts = np.diff(edges)
    rates = []
    for w in range(len(plan.workloads)):
        row = []
        for c in range(len(plan.clusters)):
            rate = table[c, w] if counts is None else np.repeat(table[c, w], counts)
            speed = window.speed.get((c, w))
            row.append(rate if speed is None else rate * speed)
        rates.append(row)
    return rates


def _route(plan: Plan, window: WindowInput, usable: Floats, rates: list[list[Floats]]) -> _Routed:
    """Route every workload once over the nodes that may work."""
    clusters, hours = usable.shape
    workloads = plan.workloads
    routed = _Routed(
        served=np.zeros((clusters, len(workloads), hours)),
        shed=np.zeros((len(workloads), hours)),
        waiting=[*window.waiting_requests],
        used=np.zeros((clusters, hours)),
        drag=np.zeros((clusters, hours)),
    )
    levels = (plan.spill_level, 1.0) if plan.spill_level < 1.0 else (1.0,)
    for index in plan.by_priority:
        workload, wanted, rate = workloads[index], window.demand_requests[index], rates[index]
        room = Room(usable=usable, used=routed.used, rates=rate, order=workload.cluster_order)
        if workload.deadline_h:
            spare = np.zeros(hours)
            for c in workload.cluster_order:
                spare += np.maximum(usable[c] - routed.used[c], 0.0) * rate[c]
            wanted, routed.shed[index], routed.waiting[index] = defer(wanted, spare, routed.waiting[index])
        nodes = routed.served[:, index]
        if plan.proportional:
            left = fill_in_proportion(wanted, room, nodes)
        else:
            left = fill_in_order(wanted, room, levels, nodes)
        for c in workload.cluster_order:
            if (slowed := window.incidents.get((c, index))) is not None:
                routed.drag[c][slowed.hours] += nodes[c][slowed.hours] * slowed.lost_fraction
            if nodes[c].any():
                nodes[c] *= rate[c]
        if not workload.deadline_h:
            routed.shed[index] = left
    return routed


def defer(arrivals: Floats, room: Floats, waiting: Floats) -> tuple[Floats, Floats, Floats]:
    """Serve deferrable work first come, first served from spare capacity; what outlives its deadline is shed.

    With A the cumulative arrivals (those still waiting included), d the deadline and c the spare capacity, the work
    that has left by the end of hour t, served or expired, is G[t] = min(max(G[t−1] + c[t], A[t−d]), A[t]): the queue
    serves what it can, drops what arrived d hours ago, and never gets ahead of arrivals. Returns served and shed
    by hour, and what still waits by hour of arrival.
    """
    deadline = waiting.size
    cumulative = np.cumsum(np.concatenate((waiting, arrivals)))
    arrived = cumulative[deadline:]
    expired = cumulative[:-deadline]
    # Without deadlines the queue is a reflected walk: gone = C + min(0, running min of A − C). It is the answer where
    # no deadline binds, and costs a tenth of the scan.
    offered = np.cumsum(room)
    gone = arrived - offered
    np.minimum.accumulate(gone, out=gone)
    np.minimum(gone, 0.0, out=gone)
    gone += offered
    if (gone < expired).any():
        gone = clamp_scan(room, expired, arrived, 0.0)
    before = np.concatenate(([0.0], gone[:-1]))
    served = np.minimum(before + room, arrived) - before
    shed = np.maximum(gone - before - served, 0.0)
    still = np.maximum(cumulative[-deadline:] - gone[-1], 0.0)
    return served, shed, np.diff(still, prepend=0.0)


def _late(plan: Plan, routed: _Routed, usable: Floats) -> Floats:
    """Return requests that miss their objective because of bursts inside the hour, shape (workloads, hours).

    Only hours above the utilisation from which any are missed are looked up: most are below it.
    """
    late = np.zeros_like(routed.shed)
    for c in range(usable.shape[0]):
        hours = np.flatnonzero(routed.used[c] > plan.burst_free_utilisation[c] * usable[c])
        if not hours.size:
            continue
        load = routed.used[c].take(hours) / usable[c].take(hours)
        cell = np.minimum((load * MISS_CELLS + 0.5).astype(np.intp), MISS_CELLS)
        for w, workload in enumerate(plan.workloads):
            if not workload.deadline_h and c in workload.cluster_order:
                late[w][hours] += plan.miss_tables[c, w].take(cell) * routed.served[c, w].take(hours)
    return late
