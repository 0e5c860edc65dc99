"""What a window of hours yields: who is served where, what waits, what is shed, how much power it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan
from planner.fleet.power import Throttled, allowed_it_kw, facility_kw, it_kw, load_fraction, throttle
from planner.fleet.routing import Hours, Room, Way, fill, spare
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
class Drag:
    """What slow software cost a cluster on a workload."""

    hours: NDArray[np.intp]
    """Within the window, shape (some hours,)."""
    nodes: Floats
    """Node-equivalents at work for nothing in each, shape (some hours,)."""


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
    lit_fraction: Floats | None = None
    """Share of each hour in which the site has power, shape (hours,); None where it always has. ``nodes`` are means
    over the whole hour, so they fall with it."""

    @property
    def hours(self) -> slice:
        """The window's hours within the horizon."""
        return slice(self.first_hour, self.first_hour + self.nodes.shape[1])

    def dark_requests(self, workload: int) -> Floats | float:
        """Return the arrivals of a workload while the site is dark, shape (hours,); 0 where it never is.

        Requests come evenly within an hour, so they are demand × dark share. Machines that are lit for the rest of the
        hour cannot serve them, however much room they have: who cannot wait is gone.
        """
        return 0.0 if self.lit_fraction is None else self.demand_requests[workload] * (1.0 - self.lit_fraction)


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


@dataclass(slots=True)
class _Routed:
    """One pass of routing over a window."""

    room: Room
    served: Floats
    shed: Floats
    waiting: list[Floats]
    drag: Floats
    drags: dict[tuple[int, int], Drag]


def evaluate_window(plan: Plan, window: WindowInput) -> WindowResult:
    """Route a window's demand over its nodes, within the site's power.

    Workloads are taken by priority; each is offered to its clusters by the routing policy; deferrable work fills what
    all others left. What arrives while the site is dark is shed, or waits where it can. Where the power cap binds,
    deferrable work waits first, then clusters are throttled in order.
    """
    ways = _ways(plan, window)
    routed = _route(plan, window, window.nodes, ways, plan.by_priority)
    throttled, capacity, powered = np.zeros_like(window.nodes), window.nodes, np.ones_like(window.nodes)
    power = it_kw(plan, load_fraction(routed.room.used, window.nodes), window.nodes)
    facility = facility_kw(plan, power.sum(axis=0), window.hours)
    if plan.site.cap_kw is not None and np.any(facility > plan.site.cap_kw[window.hours] * (1.0 + _CAP_TOLERANCE)):
        routed, held, throttled = _route_within_cap(plan, window, ways)
        capacity, powered = held.capacity, held.powered
    late = _late(plan, routed, ways, capacity)
    power = it_kw(plan, load_fraction(routed.room.used, window.nodes), window.nodes) * powered
    facility = facility_kw(plan, power.sum(axis=0), window.hours)
    return WindowResult(
        first_hour=window.first_hour,
        demand_requests=window.demand_requests,
        served_requests=routed.served,
        late_requests=late,
        shed_requests=routed.shed,
        waiting_requests=tuple(routed.waiting),
        nodes=window.nodes,
        busy_nodes=routed.room.used,
        drag_nodes=routed.drag,
        drags=routed.drags,
        throttled_nodes=throttled,
        it_kw=power,
        facility_kw=facility,
    )


def _ways(plan: Plan, window: WindowInput) -> list[Way]:
    """Return where each workload may go and the requests per node and hour there."""
    table = plan.requests_per_node_h
    counts = None
    if table.shape[2] > 1:
        edges = np.clip(plan.month_edges_h, window.hours.start, window.hours.stop)
        counts = np.diff(edges)
    ways = []
    for w, workload in enumerate(plan.workloads):
        rates = []
        for c in range(len(plan.clusters)):
            rate = table[c, w] if counts is None else np.repeat(table[c, w], counts)
            speed = window.speed.get((c, w))
            rates.append(rate if speed is None else rate * speed)
        ways.append(Way(order=workload.cluster_order, rates=rates))
    return ways


def _route(plan: Plan, window: WindowInput, usable: Floats, ways: Sequence[Way], which: Sequence[int]) -> _Routed:
    """Route workloads, in the order given, over the nodes that may work."""
    workloads, shape = plan.workloads, (len(plan.workloads), usable.shape[1])
    routed = _Routed(
        room=Room.empty(usable, plan.preferred_utilisation),
        served=np.zeros((usable.shape[0], *shape)),
        shed=np.zeros(shape),
        waiting=[*window.waiting_requests],
        drag=np.zeros_like(usable),
        drags={},
    )
    for index in which:
        wanted = window.demand_requests[index]
        if workloads[index].deadline_h:
            room = spare(routed.room, ways[index])
            wanted, routed.shed[index], routed.waiting[index] = defer(wanted, room, routed.waiting[index])
        else:
            routed.shed[index] = window.dark_requests(index)
            wanted = wanted - routed.shed[index]
        hours, left = _serve(window, routed, ways[index], index, wanted)
        if not workloads[index].deadline_h:
            routed.shed[index][hours] += left
    return routed


def _serve(window: WindowInput, routed: _Routed, way: Way, index: int, wanted: Floats) -> tuple[Hours, Floats]:
    """Let clusters take one workload's requests, and count what slow software costs; return what is left, and when."""
    served = routed.served[:, index]
    left = fill(wanted, routed.room, way, served)
    for c in way.order:
        if (slowed := window.incidents.get((c, index))) is not None:
            nodes = served[c].take(slowed.hours) / way.rate(c, slowed.hours) * slowed.lost_fraction
            routed.drag[c][slowed.hours] += nodes
            routed.drags[c, index] = Drag(hours=slowed.hours, nodes=nodes)
    return left


def _route_within_cap(plan: Plan, window: WindowInput, ways: Sequence[Way]) -> tuple[_Routed, Throttled, Floats]:
    """Route a window under the power cap; return also what the cap leaves and the node-equivalents it took away.

    Work that cannot wait is routed, throttled where power does not suffice, and routed again. Deferrable work then gets
    the room that power leaves, hour by hour, so no hour depends on a later one.
    """
    assert plan.site.cap_kw is not None
    allowed = allowed_it_kw(plan, plan.site.cap_kw[window.hours], window.hours)
    urgent = [index for index in plan.by_priority if not plan.workloads[index].deadline_h]
    wanted = _route(plan, window, window.nodes, ways, urgent).room
    held = throttle(plan, wanted.used, window.nodes, allowed)
    routed = _route(plan, window, held.usable, ways, urgent)
    for index in plan.by_priority:
        if not plan.workloads[index].deadline_h:
            continue
        way, arrivals = ways[index], window.demand_requests[index]
        within = _within_power(plan, routed.room, way, window.nodes * held.powered, allowed)
        served, routed.shed[index], routed.waiting[index] = defer(arrivals, within, routed.waiting[index])
        # What it would take without a cap.
        fill(np.minimum(arrivals, spare(wanted, way)), wanted, way, np.zeros_like(wanted.used))
        _serve(window, routed, way, index, served)
    return routed, held, np.maximum(wanted.used - routed.room.used, 0.0)


def _within_power(plan: Plan, room: Room, way: Way, powered: Floats, allowed: Floats) -> Floats:
    """Return how much of the spare room, in requests an hour, power allows to be used: by bisection, shape (hours,)."""
    within = spare(room, way)

    def fits(share: Floats, hours: NDArray[np.intp]) -> NDArray[np.bool_]:
        trial = room.at(hours)
        fill(share * within[hours], trial, way.at(hours), np.zeros_like(trial.used))
        drawn = it_kw(plan, load_fraction(trial.used, powered[:, hours]), powered[:, hours]).sum(axis=0)
        return np.asarray(drawn <= allowed[hours] * (1.0 + _CAP_TOLERANCE))

    every = np.arange(within.size)
    tight = every[~fits(np.ones(within.size), every)]
    low, high = np.zeros(tight.size), np.ones(tight.size)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        good = fits(middle, tight)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
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
        served = gone.copy()
        served[1:] -= gone[:-1]
        np.maximum(served, 0.0, out=served)
        shed = np.zeros_like(served)
    still = np.maximum(cumulative[-deadline:] - gone[-1], 0.0)
    return served, shed, np.diff(still, prepend=0.0)


def _late(plan: Plan, routed: _Routed, ways: Sequence[Way], capacity: Floats) -> Floats:
    """Return requests that miss their objective because of bursts inside the hour, shape (workloads, hours).

    Lower priorities give way, so what a workload suffers from is the load of its own and higher ones. Where late
    requests are refused they are not served at all: they move from what is served to what is shed, and free the nodes
    that would have worked for them. Only hours above the utilisation from which any are missed are looked up: most are
    below it.
    """
    late = np.zeros(routed.shed.shape)
    burst_free = plan.burst_free_utilisation
    whole = load_fraction(routed.room.used, capacity)
    for c, lowest in enumerate(burst_free.min(axis=1).tolist()):
        hours = np.flatnonzero(whole[c] > lowest)
        if not hours.size:
            continue
        busy = np.zeros(hours.size)
        for level in _levels_on(plan, c):
            # All of a level's work first: its workloads are late from one another's bursts too.
            for w in level:
                busy += routed.served[c, w].take(hours) / ways[w].rate(c, hours)
            load = load_fraction(busy, capacity[c].take(hours))
            cell = (load * MISS_CELLS + 0.5).astype(np.intp)
            for w in level:
                near = np.flatnonzero(load > burst_free[c, w])
                missed = plan.miss_tables[c, w].take(cell[near], mode="clip")
                missed *= routed.served[c, w].take(hours[near])
                if plan.workloads[w].refuses:
                    routed.served[c, w][hours[near]] -= missed
                    routed.shed[w][hours[near]] += missed
                    routed.room.used[c][hours[near]] -= missed / ways[w].rate(c, hours[near])
                else:
                    late[w][hours[near]] += missed
    return late


def _levels_on(plan: Plan, cluster: int) -> list[list[int]]:
    """Return the workloads of a cluster that cannot wait, by priority, the highest first."""
    levels: dict[int, list[int]] = {}
    for w in plan.by_priority:
        if not plan.workloads[w].deadline_h and cluster in plan.workloads[w].cluster_order:
            levels.setdefault(plan.workloads[w].priority, []).append(w)
    return [levels[priority] for priority in sorted(levels)]
