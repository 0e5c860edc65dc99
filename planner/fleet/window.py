"""What a window of hours yields: who is served where, what waits, what is shed, how much power it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan
from planner.fleet.power import Throttled, allowed_it_kw, facility_kw, it_kw, throttle
from planner.fleet.routing import Room, fill_in_order, fill_in_proportion
from planner.fleet.scan import clamp_scan

Floats = NDArray[np.float64]
MISS_CELLS = 256
_CAP_TOLERANCE = 1e-9
_ROUNDING = 1e-13  # of all requests so far: what adding them up may be off by
_BISECTIONS = 32
_BACK_OFF = 1e-7  # power is read from a table, whose steps rounding must not climb


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
    all others left. Where the power cap binds, deferrable work waits first, then clusters are throttled in order.
    """
    rates = _rates(plan, window)
    routed = _route(plan, window, window.nodes, rates, plan.by_priority)
    capacity, throttled = window.nodes, np.zeros_like(routed.used)
    power = it_kw(plan, routed.used, window.nodes)
    facility = facility_kw(plan, power.sum(axis=0), window.hours)
    if plan.site.cap_kw is not None and np.any(facility > plan.site.cap_kw[window.hours] * (1.0 + _CAP_TOLERANCE)):
        routed, held, throttled = _route_within_cap(plan, window, rates)
        capacity = held.capacity
        power = it_kw(plan, routed.used, window.nodes) * held.powered
        facility = facility_kw(plan, power.sum(axis=0), window.hours)
    return WindowResult(
        first_hour=window.first_hour,
        demand_requests=window.demand_requests,
        served_requests=routed.served,
        late_requests=_late(plan, routed, capacity),
        shed_requests=routed.shed,
        waiting_requests=tuple(routed.waiting),
        nodes=window.nodes,
        busy_nodes=routed.used,
        drag_nodes=routed.drag,
        throttled_nodes=throttled,
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


def _route(plan: Plan, window: WindowInput, usable: Floats, rates: list[list[Floats]], which: Sequence[int]) -> _Routed:
    """Route workloads, in the order given, over the nodes that may work."""
    clusters, hours = usable.shape
    workloads = plan.workloads
    routed = _Routed(
        served=np.zeros((clusters, len(workloads), hours)),
        shed=np.zeros((len(workloads), hours)),
        waiting=[*window.waiting_requests],
        used=np.zeros((clusters, hours)),
        drag=np.zeros((clusters, hours)),
    )
    for index in which:
        workload, wanted = workloads[index], window.demand_requests[index]
        room = Room(usable=usable, used=routed.used, rates=rates[index], order=workload.cluster_order)
        if workload.deadline_h:
            spare = _spare(room)
            wanted, routed.shed[index], routed.waiting[index] = defer(wanted, spare, routed.waiting[index])
        _serve(plan, window, routed, room, (index, wanted))
    return routed


def _spare(room: Room) -> Floats:
    """Return the requests an hour that a workload's clusters have room for, shape (hours,)."""
    spare = np.zeros(room.usable.shape[1])
    for c in room.order:
        free = room.usable[c] - room.used[c]
        np.maximum(free, 0.0, out=free)
        free *= room.rates[c]
        spare += free
    return spare


def _fill(plan: Plan, wanted: Floats, room: Room, nodes: Floats) -> Floats:
    """Spread requests over clusters by the plan's policy; return those that found no room."""
    if plan.proportional:
        return fill_in_proportion(wanted, room, nodes)
    return fill_in_order(wanted, room, plan.fill_levels, nodes)


def _serve(plan: Plan, window: WindowInput, routed: _Routed, room: Room, work: tuple[int, Floats]) -> None:
    """Let clusters take one workload's requests; what is left of work that cannot wait is shed."""
    index, wanted = work
    nodes = routed.served[:, index]
    left = _fill(plan, wanted, room, nodes)
    for c in room.order:
        if (slowed := window.incidents.get((c, index))) is not None:
            routed.drag[c][slowed.hours] += nodes[c][slowed.hours] * slowed.lost_fraction
        if nodes[c].any():
            nodes[c] *= room.rates[c]
    if not plan.workloads[index].deadline_h:
        routed.shed[index] = left


def _route_within_cap(plan: Plan, window: WindowInput, rates: list[list[Floats]]) -> tuple[_Routed, Throttled, Floats]:
    """Route a window under the power cap; return also what the cap leaves and the node-equivalents it took away.

    Work that cannot wait is routed, throttled where power does not suffice, and routed again. Deferrable work then gets
    the room that power leaves, hour by hour, so no hour depends on a later one.
    """
    assert plan.site.cap_kw is not None
    allowed = allowed_it_kw(plan, plan.site.cap_kw[window.hours], window.hours)
    urgent = [index for index in plan.by_priority if not plan.workloads[index].deadline_h]
    wanted = _route(plan, window, window.nodes, rates, urgent)
    held = throttle(plan, wanted.used, window.nodes, allowed)
    routed = _route(plan, window, held.usable, rates, urgent)
    for index in plan.by_priority:
        if not plan.workloads[index].deadline_h:
            continue
        order, rate = plan.workloads[index].cluster_order, rates[index]
        room = Room(usable=held.usable, used=routed.used, rates=rate, order=order)
        within = _within_power(plan, room, _spare(room), window.nodes * held.powered, allowed)
        arrivals, waiting = window.demand_requests[index], routed.waiting[index]
        served, shed, routed.waiting[index] = defer(arrivals, within, waiting)
        routed.shed[index] = shed
        free = Room(usable=window.nodes, used=wanted.used, rates=rate, order=order)  # what it would take without a cap
        _fill(plan, np.minimum(arrivals, _spare(free)), free, np.zeros_like(routed.used))
        _serve(plan, window, routed, room, (index, served))
    return routed, held, np.maximum(wanted.used - routed.used, 0.0)


def _within_power(plan: Plan, room: Room, spare: Floats, powered: Floats, allowed: Floats) -> Floats:
    """Return how much of the spare room, in requests an hour, power allows to be used: by bisection, shape (hours,)."""

    def fits(share: Floats, hours: NDArray[np.intp]) -> NDArray[np.bool_]:
        rates = [rate if rate.size == 1 else rate[hours] for rate in room.rates]
        trial = Room(usable=room.usable[:, hours], used=room.used[:, hours], rates=rates, order=room.order)
        _fill(plan, share * spare[hours], trial, np.zeros_like(trial.used))
        drawn = it_kw(plan, trial.used, powered[:, hours]).sum(axis=0)
        return np.asarray(drawn <= allowed[hours] * (1.0 + _CAP_TOLERANCE))

    every = np.arange(spare.size)
    tight = every[~fits(np.ones(spare.size), every)]
    low, high = np.zeros(tight.size), np.ones(tight.size)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        good = fits(middle, tight)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    within = spare.copy()
    within[tight] *= low * (1.0 - _BACK_OFF)
    return within


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
    rounding = _ROUNDING * cumulative[-1]
    if (gone < expired - rounding).any():
        gone = clamp_scan(room, expired, arrived, 0.0)
        before = np.concatenate(([0.0], gone[:-1]))
        served = np.minimum(before + room, arrived) - before
        shed = gone - before - served
        shed[shed < rounding] = 0.0
    else:
        served = np.diff(gone, prepend=0.0)
        np.maximum(served, 0.0, out=served)
        shed = np.zeros_like(served)
    still = np.maximum(cumulative[-deadline:] - gone[-1], 0.0)
    return served, shed, np.diff(still, prepend=0.0)


def _late(plan: Plan, routed: _Routed, capacity: Floats) -> Floats:
    """Return requests that miss their objective because of bursts inside the hour, shape (workloads, hours).

    Only hours above the utilisation from which any are missed are looked up: most are below it.
    """
    late = np.zeros_like(routed.shed)
    for c, burst_free in enumerate(plan.burst_free_utilisation.tolist()):
        hours = np.flatnonzero(routed.used[c] > burst_free * capacity[c])
        if not hours.size:
            continue
        room = capacity[c].take(hours)
        load = np.divide(routed.used[c].take(hours), room, out=np.ones_like(room), where=room > 0)
        cell = np.minimum((load * MISS_CELLS + 0.5).astype(np.intp), MISS_CELLS)
        for w, workload in enumerate(plan.workloads):
            if not workload.deadline_h and c in workload.cluster_order:
                late[w][hours] += plan.miss_tables[c, w].take(cell) * routed.served[c, w].take(hours)
    return late
