"""The evaluation of a window of hours: requests served, waiting and shed, and power.

Workloads are routed by :mod:`planner.engine.dispatch`. Here the result is held to the site's power, and read against
the plan's tables by load: which part of what is served is late, and which is refused at the door. A workload that has
outgrown its objective and queues all the same is served late, and never beyond its share of the fleet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.elementwise import added, at_most, in_hours, quotient, span_above_zero
from planner.engine.dispatch import TOLERANCE, Router, routes_of, with_carried
from planner.engine.hourly import ALL, Slowdown, WindowInput, WindowResult
from planner.engine.power import hold, it_kw, load_fraction
from planner.engine.replicas import on_clusters, place_window
from planner.plan.parts import LITTLE_LATE, Between
from planner.plan.plan import LOAD_CELLS, MOST_LOAD, Plan, allowed_it_kw, facility_kw
from planner.plan.sizes import at_sizes

_CELLS_PER_LOAD = LOAD_CELLS / MOST_LOAD


def evaluate_window(plan: Plan, window: WindowInput) -> WindowResult:
    """Return a window's result with what APIs serve: before the clusters, or of what these would shed."""
    if not any(cluster.api for cluster in plan.clusters):
        return _on_machines(plan, window)
    before = bought_requests(plan, window, window.demand_requests, serves_all=True)
    within = replace(window, demand_requests=window.demand_requests - before.sum(axis=0))
    result = _on_machines(plan, within)
    after = bought_requests(plan, window, result.shed_requests, serves_all=False)
    served = result.served_requests + before + after
    shed = result.shed_requests - after.sum(axis=0)
    return replace(
        result, demand_requests=window.demand_requests, served_requests=served, shed_requests=shed
    )


def _on_machines(plan: Plan, window: WindowInput) -> WindowResult:
    """Return a window's result: demand routed to nodes, or to pools of whole replicas where those count.

    A workload that has outgrown its objective takes no more than its share: what it has no share for is shed, and what
    no batch can serve in time is late.
    """
    plan = at_sizes(plan, window.sizes)
    beyond = beyond_share(plan, window)
    placement = plan.placement
    within = (
        window
        if beyond is None
        else replace(window, demand_requests=window.demand_requests - beyond)
    )
    within = with_carried(plan, within)
    if placement is None or not any(placement.placed):
        result = _evaluate(Router(plan, within), range(len(plan.clusters)))
    else:
        placed = place_window(plan, placement, within)
        router = Router(placement.pools, placed.window, placed.routes)
        result = on_clusters(
            placement, within, placed, _evaluate(router, placement.pool_cluster), router.served
        )
    if beyond is None:
        return result
    late = result.late_requests.copy()
    for w in range(len(plan.workloads)):
        past = _overdue_share(plan, w, window.hours) > 0.0
        late[w][past] = result.served_requests[:, w][:, past].sum(axis=0)
    shed = result.shed_requests + beyond
    return replace(
        result, demand_requests=window.demand_requests, shed_requests=shed, late_requests=late
    )


def bought_requests(
    plan: Plan, window: WindowInput, requests: Floats, *, serves_all: bool
) -> Floats:
    """Return what APIs serve of requests of shape (workloads, hours), by cluster, shape (clusters, workloads, hours).

    Up to its tokens an hour; where that is too few, every workload gets the same share.
    """
    bought = np.zeros((len(plan.clusters), *requests.shape))
    month = plan.months.hour_periods[window.hours]
    hour = np.arange(window.hours.start, window.hours.stop)
    for c, cluster in enumerate(plan.clusters):
        if cluster.api is not None and cluster.api.serves_all == serves_all:
            served = np.zeros_like(requests)
            may = [*cluster.api.workloads]
            served[may] = (requests - bought.sum(axis=0))[may]
            served[:, (hour < (cluster.online_h or 0.0)) | (hour >= cluster.retire_h)] = 0.0
            tokens = (served * plan.tokens_per_request[month].T).sum(axis=0)
            bought[c] = served * quotient(np.minimum(tokens, cluster.api.most_tokens_per_h), tokens)
    return bought


def beyond_share(plan: Plan, window: WindowInput) -> Floats | None:
    """Return the requests beyond the fleet share of workloads that outgrew their SLO, shape (workloads, hours).

    max(0, arrivals − share · Σ over its clusters of nodes · requests per node and hour), its share being of what the
    fleet can serve of it; None where no workload is past its objective.
    """
    if all(workload.overdue_share is None for workload in plan.workloads):
        return None
    beyond = np.zeros_like(window.demand_requests)
    routes = routes_of(plan, window)
    for w, workload in enumerate(plan.workloads):
        share = _overdue_share(plan, w, window.hours)
        most = sum(
            (window.nodes[c] * routes[w].rate(c, ALL) for c in workload.cluster_order),
            start=0.0 * share,
        )
        beyond[w] = np.where(
            share > 0.0, np.maximum(window.demand_requests[w] - share * most, 0.0), 0.0
        )
    return beyond


def _overdue_share(plan: Plan, w: int, hours: slice) -> Floats:
    """Return the fleet share of a workload that has outgrown its SLO, shape (hours,); 0 before."""
    months = plan.months.hour_periods[hours]
    share = plan.workloads[w].overdue_share
    return np.zeros(months.size) if share is None else share[months]


class Missed(NamedTuple):
    """Requests late and shed in a window, and the state at the start of the next."""

    late_requests: Floats
    """Shape (changes, workloads, hours)."""
    shed_requests: Floats
    """Of the same shape."""
    waiting_requests: tuple[Floats, ...]
    replicas_after: Floats


def missed_under(
    plan: Plan, window: WindowInput, changes: Sequence[Callable[[Plan], Plan]]
) -> Missed:
    """Return a window's misses under changes to the plan's tables by load, without a power cap.

    Tables decide what becomes of work where it is routed, not where that is: it is routed once for all of them.
    Workloads past their objective are as they are in :func:`evaluate_window`, but for those served late within their
    share.
    """
    first = (plan := at_sizes(plan, window.sizes)), window
    before = bought_requests(*first, window.demand_requests, serves_all=True).sum(axis=0)
    window = replace(window, demand_requests=window.demand_requests - before)
    beyond = beyond_share(plan, window)
    placement = plan.placement
    absent: Floats | None = None
    replicas = np.zeros((0, 1))
    if beyond is not None:
        window = replace(window, demand_requests=window.demand_requests - beyond)
    window = with_carried(plan, window)
    if placement is not None and any(placement.placed):
        placed = place_window(plan, placement, window)
        plan = placement.pools
        window = placed.window
        absent = placed.absent_requests
        replicas = placed.replicas
    router = Router(plan, window)
    router.route()
    late = []
    shed = []
    for change in changes:
        trial = router.copied()
        trial.plan = change(plan)
        _overload(trial)
        late.append(_late(trial, window.nodes))
        lost = trial.shed + sum(extra for extra in (absent, beyond) if extra is not None)
        shed.append(lost - bought_requests(*first, lost, serves_all=False).sum(axis=0))
    return Missed(np.stack(late), np.stack(shed), tuple(router.waiting), replicas[:, -1])


def _evaluate(router: Router, owner: Sequence[int]) -> WindowResult:
    """Return a window's result within the site's power, with pools summed by owner.

    Where the power cap binds, nodes are parked or clocked down and lower priorities give way. What then finds no room
    is offered to the clusters all the same, as far as they are offered more than their capacity, and the tables say
    what of it is late and what refused. Power comes last: what was refused at the door draws none.
    """
    plan = router.plan
    window = router.window
    router.route()
    throttled = np.zeros((max(owner) + 1, window.nodes.shape[1]))
    capacity = window.nodes
    used = router.room.used
    over = np.zeros(0, dtype=np.intp)
    if window.cap_kw is not None:
        allowed = allowed_it_kw(plan, window.cap_kw, window.hours)
        over = np.flatnonzero(
            it_kw(plan, used, window.nodes).sum(axis=0) > allowed * (1.0 + TOLERANCE)
        )
    if over.size:
        wanted = in_hours(router.wanted_nodes(), over)
        router.place(over, plan.by_priority, allowed[over])
        throttled[:, over] = added(np.maximum(wanted - used[:, over], 0.0), owner)
        capacity = window.nodes.copy()
        capacity[:, over], _ = hold(
            plan, in_hours(used, over), in_hours(window.nodes, over), allowed[over]
        )
    full = _overload(router)
    late = _late(router, capacity)
    for (
        c,
        most,
    ) in (
        full.items()
    ):  # a node that is full is no fuller, and draws no more, for being offered more
        np.minimum(used[c], most, out=used[c])
    power = it_kw(plan, used, window.nodes)
    if over.size:
        _, power[:, over] = hold(
            plan, in_hours(used, over), in_hours(window.nodes, over), allowed[over]
        )
    power = added(power, owner)
    drags = {}
    drag_nodes = np.zeros_like(throttled)
    for (c, w), slowed in window.incidents.items():
        nodes = router.routes[w].nodes(router.served[c, w].take(slowed.hours), c, slowed.hours)
        drags[c, w] = Slowdown(hours=slowed.hours, nodes=nodes * slowed.lost_fraction)
        drag_nodes[owner[c]][slowed.hours] += drags[c, w].nodes
    return WindowResult(
        first_hour=window.first_hour,
        demand_requests=window.demand_requests,
        served_requests=router.served_requests(owner),
        late_requests=late,
        shed_requests=router.shed,
        waiting_requests=tuple(router.waiting),
        nodes=window.nodes,
        busy_nodes=added(used, owner),
        drag_nodes=drag_nodes,
        drags=drags,
        throttled_nodes=throttled,
        it_kw=power,
        facility_kw=facility_kw(plan, power.sum(axis=0), window.hours),
        replicas=np.zeros((0, window.nodes.shape[1])),
        loading_nodes=np.zeros((0, window.nodes.shape[1])),
    )


def _overload(router: Router) -> dict[int, Floats]:
    """Offer requests without room to their clusters beyond capacity, up to the highest load in the tables.

    Capacity is the rate at which the promised share is in time. More can be served, at the price of more that is late:
    what of it is late and what refused is read from the plan's tables. Returns the node-equivalents that were at work
    before on the clusters that are offered more, shape (hours,).
    """
    plan = router.plan
    window = router.window
    before: dict[int, Floats] = {}
    for w in plan.by_priority:
        if plan.workloads[w].deadline_h or not plan.workloads[w].cluster_order:
            continue
        left = router.shed[w] - window.dark_requests(w)
        hours = np.flatnonzero(left > TOLERANCE * window.demand_requests[w])
        if not hours.size:
            continue
        on = sorted(plan.workloads[w].cluster_order)
        served = np.stack([in_hours(router.served[c, w], hours) for c in on])
        over = quotient(left[hours], served.sum(axis=0))
        served *= np.stack([at_most(plan.most_loads[c, w] - 1.0, over) for c in on])
        for c, more in zip(on, served, strict=True):
            before.setdefault(c, router.room.used[c].copy())
            router.served[c, w][hours] += more
            router.room.used[c][hours] += router.routes[w].nodes(more, c, hours)
        router.shed[w][hours] -= served.sum(axis=0)
    return before


def _late(router: Router, capacity: Floats) -> Floats:
    """Return requests served late, shape (workloads, hours), and move rejected requests from served to shed.

    Lower priorities give way, so what a workload suffers from is the load of its own and higher ones. What is refused
    moves from what is served to what is shed, and frees the nodes that would have worked for it.
    """
    plan = router.plan
    routes = router.routes
    late = np.zeros(router.shed.shape)
    together = _loads_together(router, capacity)
    refusal_free_load = plan.refusal_free_load
    # Between which rates of its tables each hour of a workload lies: those of all clusters begin at the same.
    tables = {w: by_rate for (_, w), by_rate in plan.burst_tables.items()}
    rates = {w: by_rate.between(router.window.demand_requests[w]) for w, by_rate in tables.items()}
    for c, is_there in enumerate(map(span_above_zero, router.window.nodes)):
        busy = np.zeros(1)
        is_paid = not plan.clusters[c].is_paid_by_the_hour
        for level in _levels_on(router, c):
            # All of a level's work first: its workloads are late from one another's bursts too.
            for w in level:
                busy = busy + routes[w].nodes(router.served[c, w][is_there], c, is_there)
            load = load_fraction(busy, capacity[c][is_there])
            for w in level:
                served = router.served[c, w][is_there]
                by_rate = plan.burst_tables.get((c, w))
                bursts_at = (
                    np.minimum(together[w][is_there], load) if is_paid and w in together else load
                )
                between = None if by_rate is None else rates[w].part(is_there)
                late[w][is_there] += served * _missed_share(
                    plan, (0, c, w), load, bursts_at, between
                )
                if by_rate is None or between is None:
                    refusing = np.flatnonzero(load > refusal_free_load[c, w])
                else:
                    refusing = by_rate.refusing(
                        load * _CELLS_PER_LOAD, bursts_at * _CELLS_PER_LOAD, between
                    )
                    between = between.part(refusing)
                if refusing.size:
                    at = in_hours(load, refusing)
                    bursts_at = at if bursts_at is load else in_hours(bursts_at, refusing)
                    refused = in_hours(served, refusing) * _missed_share(
                        plan, (1, c, w), at, bursts_at, between
                    )
                    served[refusing] -= refused
                    hours = refusing + is_there.start
                    router.shed[w][hours] += refused
                    router.room.used[c][hours] -= routes[w].nodes(refused, c, hours)
    return late


def _missed_share(
    plan: Plan,
    which: tuple[int, int, int],
    load: Floats,
    bursts_at: Floats,
    between: Between | None,
) -> Floats:
    """Return the late (kind 0) or rejected (1) share for a kind, cluster and workload, shape (hours,).

    A router sees a burst, and sends what a cluster has no room for to others that serve the work: so it is late as at
    the cluster's own load without bursts, and by as much more as bursts add where all of them are as full as together.
    ``bursts_at`` is that load, and ``between`` has the rates between which the hour's lies, where bursts even out as it
    grows.
    """
    kind, c, w = which
    table = (plan.late_tables, plan.refused_tables)[kind][c, w]
    if plan.no_burst_tables is None or (bursts_at is load and between is None):
        return _read(table, load)
    even = plan.no_burst_tables[which]
    share = _read(even, load)
    if between is None:
        share += _read(table - even, bursts_at)
        return np.clip(share, 0.0, 1.0, out=share)
    # Most hours are too slack for bursts to matter, and reading between rates takes twice as long.
    by_rate = plan.burst_tables[c, w]
    place = bursts_at * _CELLS_PER_LOAD
    hours = by_rate.adding(kind, place, between)
    added = by_rate.read(kind, in_hours(place, hours), between.part(hours))
    added += in_hours(share, hours)
    share[hours] = np.clip(added, 0.0, 1.0, out=added)
    return share


def _loads_together(router: Router, capacity: Floats) -> dict[int, Floats]:
    """Return the combined load of all clusters that serve a workload, shape (hours,) each.

    Only of workloads that several clusters serve and bursts make late; clusters paid by the hour absorb no burst.
    """
    plan = router.plan
    routes = router.routes
    together = dict[int, Floats]()
    busy = dict[tuple[int, int], Floats]()
    if plan.no_burst_tables is None:
        return together
    preferred = (
        plan.preferred_utilisation or 1.0
    )  # beyond it work is spread, and clusters are as full as together
    upto = slice(round(preferred * _CELLS_PER_LOAD) + 1)
    late = plan.late_tables
    refused = plan.refused_tables
    even = plan.no_burst_tables[..., upto]
    added_by_bursts = late[..., upto] + refused[..., upto] - even.sum(axis=0)
    for pair, by_rate in plan.burst_tables.items():
        added_by_bursts[pair] = by_rate.added[:, 0, upto].sum(
            axis=0
        )  # at the lowest rate, where they are largest
    most = added_by_bursts.max(axis=2)
    for w in plan.by_priority:
        paid = [c for c in routes[w].order if not plan.clusters[c].is_paid_by_the_hour]
        if plan.workloads[w].deadline_h or len(paid) < 2 or most[paid, w].max() < LITTLE_LATE:
            continue
        room = work = np.zeros(1)
        for c in paid:
            rate = routes[w].rate(c, ALL)
            priority = plan.workloads[w].priority
            if (c, priority) not in busy:  # the same for all workloads of a priority
                levels = _levels_on(router, c)
                urgent = [
                    other
                    for level in levels
                    for other in level
                    if plan.workloads[other].priority <= priority
                ]
                work_of = (routes[other].nodes(router.served[c, other], c, ALL) for other in urgent)
                busy[c, priority] = sum(work_of, np.zeros(1))
            room = room + capacity[c] * rate
            work = work + busy[c, priority] * rate
        together[w] = quotient(work, room)
    return together


def _read(table: Floats, load: Floats) -> Floats:
    """Return a table's share at loads, linear between the edges of its cells."""
    place = load * _CELLS_PER_LOAD
    below = np.floor(place)
    place -= below
    cell = below.astype(np.intp)
    rise = np.zeros_like(table)  # beyond its end a table stays as it is
    np.subtract(table[1:], table[:-1], out=rise[:-1])
    share = rise.take(cell, mode="clip")
    share *= place
    share += table.take(cell, mode="clip", out=below)
    return share


def _levels_on(router: Router, cluster: int) -> list[list[int]]:
    """Return the urgent workloads on a cluster by priority, highest first."""
    levels: dict[int, list[int]] = {}
    for w in router.plan.by_priority:
        if (cluster, w) in router.served and not router.plan.workloads[w].deadline_h:
            levels.setdefault(router.plan.workloads[w].priority, []).append(w)
    return [levels[priority] for priority in sorted(levels)]
