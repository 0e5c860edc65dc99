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
from planner.elementwise import Hours, added, in_hours, quotient
from planner.engine.dispatch import TOLERANCE, Router, routes_of, with_carried
from planner.engine.hourly import ALL, Slowdown, WindowInput, WindowResult
from planner.engine.placement import on_clusters, place_window
from planner.engine.power import at_power_cap, it_kw, load_fraction
from planner.plan.load_tables import LITTLE_LATE, LOAD_CELLS, MOST_LOAD, RateInterpolation
from planner.plan.plan import Plan
from planner.plan.site import allowed_it_kw, facility_kw

_CELLS_PER_LOAD = LOAD_CELLS / MOST_LOAD
_LATE = 0
"""The first of two tables by load: requests served late."""
_REFUSED = 1
"""The second: requests rejected at the door."""


def evaluate_window(plan: Plan, window: WindowInput) -> WindowResult:
    """Return a window's result with what APIs serve: before the clusters, or of what these would shed."""
    # The usual case, without three passes over all requests.
    if not any(cluster.api for cluster in plan.clusters):
        return _on_machines(plan, window)
    all_requests = window.demand_requests
    api_requests = bought_requests(plan, window, all_requests, serves_all=True)
    own_requests = all_requests - api_requests.sum(axis=0)
    own_window = replace(window, demand_requests=own_requests)
    result = _on_machines(plan, own_window)
    overflow = bought_requests(plan, window, result.shed_requests, serves_all=False)
    return replace(
        result,
        demand_requests=all_requests,
        served_requests=result.served_requests + api_requests + overflow,
        shed_requests=result.shed_requests - overflow.sum(axis=0),
    )


def _on_machines(plan: Plan, window: WindowInput) -> WindowResult:
    """Return a window's result: demand routed to nodes, or to pools of whole replicas where those count.

    A workload that has outgrown its objective takes no more than its share: what it has no share for is shed, and what
    no batch can serve in time is late.
    """
    beyond = beyond_share(plan, window)
    placement = plan.placement
    # Before anything is placed: what is beyond its share must take no replica either.
    own_window = _within_shares(plan, window, beyond)
    if placement is None:
        clusters = range(len(plan.clusters))
        result = _evaluate(Router(plan, own_window), clusters)
    else:
        placed = place_window(plan, placement, own_window)
        router = Router(placed.placement.pools, placed.window, placed.routes)
        pools = _evaluate(router, placed.placement.pool_cluster)
        result = on_clusters(placed, own_window, pools, router.served)
    if beyond is None:
        return result
    late = result.late_requests.copy()
    for w in range(len(plan.workloads)):
        # Past its objective all that is served counts as late, whatever the tables said.
        is_outgrown = _overload_share(plan, w, window.hours) > 0.0
        served = result.served_requests[:, w]
        late[w][is_outgrown] = served[:, is_outgrown].sum(axis=0)
    return replace(
        result,
        demand_requests=window.demand_requests,
        shed_requests=result.shed_requests + beyond,
        late_requests=late,
    )


def _within_shares(plan: Plan, window: WindowInput, beyond: Floats | None) -> WindowInput:
    """Return a window without the requests beyond their workload's share, and with what others carry in an outage."""
    if beyond is not None:
        own_requests = window.demand_requests - beyond
        window = replace(window, demand_requests=own_requests)
    return with_carried(plan, window)


def bought_requests(
    plan: Plan, window: WindowInput, requests: Floats, *, serves_all: bool
) -> Floats:
    """Return what APIs serve of requests of shape (workloads, hours), by cluster, shape (clusters, workloads, hours).

    Up to its tokens an hour; where that is too few, every workload gets the same share.
    """
    bought = np.zeros((len(plan.clusters), *requests.shape))
    month = plan.months.hour_periods[window.hours]
    tokens_per_request = plan.tokens_per_request[month].T
    hour = np.arange(window.hours.start, window.hours.stop)
    for c, cluster in enumerate(plan.clusters):
        api = cluster.api
        if api is None or api.serves_all != serves_all:
            continue
        served = np.zeros_like(requests)
        workloads = [*api.workloads]
        # An API is offered what those before it have not served.
        unserved = requests - bought.sum(axis=0)
        served[workloads] = unserved[workloads]
        is_closed = hour < (cluster.online_h or 0.0)
        is_closed |= hour >= cluster.retire_h
        served[:, is_closed] = 0.0
        tokens = (served * tokens_per_request).sum(axis=0)
        allowed_tokens = np.minimum(tokens, api.most_tokens_per_h)
        served *= quotient(allowed_tokens, tokens)
        bought[c] = served
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
        share = _overload_share(plan, w, window.hours)
        capacity = np.zeros(share.size)
        for c in workload.cluster_order:
            rate = routes[w].rate(c, ALL)
            capacity = capacity + window.nodes[c] * rate
        excess = window.demand_requests[w] - share * capacity
        np.maximum(excess, 0.0, out=excess)
        beyond[w] = np.where(share > 0.0, excess, 0.0)
    return beyond


def _overload_share(plan: Plan, w: int, hours: slice) -> Floats:
    """Return the fleet share of a workload that has outgrown its SLO, shape (hours,); 0 before."""
    months = plan.months.hour_periods[hours]
    share = plan.workloads[w].overdue_share
    if share is None:
        return np.zeros(months.size)
    return share[months]


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
    # Of the window as it came, and of the plan before pools stand for clusters.
    api = (plan, window)
    all_requests = window.demand_requests
    api_requests = bought_requests(*api, all_requests, serves_all=True)
    own_requests = all_requests - api_requests.sum(axis=0)
    window = replace(window, demand_requests=own_requests)
    beyond = beyond_share(plan, window)
    window = _within_shares(plan, window, beyond)
    placement = plan.placement
    absent: Floats | None = None
    replicas = np.zeros((0, 1))
    if placement is not None:
        placed = place_window(plan, placement, window)
        plan = placed.placement.pools
        window = placed.window
        absent = placed.absent_requests
        replicas = placed.replicas
    # Lost before routing: no replica of the model was there, or the workload is beyond its share.
    lost = [requests for requests in (absent, beyond) if requests is not None]
    unrouted = sum(lost)
    router = Router(plan, window)
    router.route()
    late = []
    shed = []
    for change in changes:
        # Routing is the costly part; each change only reads tables on a copy.
        trial = router.copied()
        trial.plan = change(plan)
        _overload(trial)
        late.append(_late(trial, window.nodes))
        overflow = trial.shed + unrouted
        api_requests = bought_requests(*api, overflow, serves_all=False)
        shed.append(overflow - api_requests.sum(axis=0))
    return Missed(
        late_requests=np.stack(late),
        shed_requests=np.stack(shed),
        waiting_requests=tuple(router.waiting),
        replicas_after=replicas[:, -1],
    )


def _evaluate(router: Router, owner: Sequence[int]) -> WindowResult:
    """Return a window's result within the site's power, with pools summed by owner.

    Where the power cap binds, nodes are parked or clocked down and lower priorities give way. What then finds no room
    is offered to the clusters all the same, as far as they are offered more than their capacity, and the tables say
    what of it is late and what refused. Power comes last: what was refused at the door draws none.
    """
    plan = router.plan
    window = router.window
    router.route()
    hours = window.nodes.shape[1]
    throttled = np.zeros((max(owner) + 1, hours))
    capacity = window.nodes
    used = router.room.used
    capped = np.zeros(0, dtype=np.intp)
    """Hours in which the power cap binds."""
    # First as if there were no cap: most hours are below it.
    if window.cap_kw is not None:
        allowed_kw = allowed_it_kw(plan, window.cap_kw, window.hours)
        cluster_kw = it_kw(plan, used, window.nodes)
        total_kw = cluster_kw.sum(axis=0)
        # A hair above is rounding, and would send hours through the cap for nothing.
        most_kw = allowed_kw * (1.0 + TOLERANCE)
        capped = np.flatnonzero(total_kw > most_kw)
    if capped.size:
        allowed_kw = allowed_kw[capped]
        capped_nodes = in_hours(window.nodes, capped)
        unlimited = in_hours(router.wanted_nodes(), capped)
        # Only those hours again, priority by priority, within the power.
        router.place(capped, plan.by_priority, allowed_kw)
        lost_nodes = unlimited - in_hours(used, capped)
        np.maximum(lost_nodes, 0.0, out=lost_nodes)
        throttled[:, capped] = added(lost_nodes, owner)
        capacity = window.nodes.copy()
        used_nodes = in_hours(used, capped)
        capped_capacity, _ = at_power_cap(plan, used_nodes, capped_nodes, allowed_kw)
        capacity[:, capped] = capped_capacity
    work_before_overload = _overload(router)
    late = _late(router, capacity)
    # A node that is full is no fuller, and draws no more, for being offered more.
    for c, work in work_before_overload.items():
        np.minimum(used[c], work, out=used[c])
    power_kw = it_kw(plan, used, window.nodes)
    if capped.size:
        # Again, since refusals and overload have moved the work since.
        used_nodes = in_hours(used, capped)
        _, capped_kw = at_power_cap(plan, used_nodes, capped_nodes, allowed_kw)
        power_kw[:, capped] = capped_kw
    power_kw = added(power_kw, owner)
    slowdowns = {}
    slowdown_nodes = np.zeros_like(throttled)
    for (c, w), loss in window.incidents.items():
        served = router.served[c, w].take(loss.hours)
        nodes = router.routes[w].nodes(served, c, loss.hours)
        nodes *= loss.lost_fraction
        slowdowns[c, w] = Slowdown(hours=loss.hours, nodes=nodes)
        # Pools of one cluster add up to it.
        cluster = owner[c]
        slowdown_nodes[cluster][loss.hours] += nodes
    return WindowResult(
        first_hour=window.first_hour,
        demand_requests=window.demand_requests,
        served_requests=router.served_requests(owner),
        late_requests=late,
        shed_requests=router.shed,
        waiting_requests=tuple(router.waiting),
        nodes=window.nodes,
        busy_nodes=added(used, owner),
        drag_nodes=slowdown_nodes,
        drags=slowdowns,
        throttled_nodes=throttled,
        it_kw=power_kw,
        facility_kw=facility_kw(plan, power_kw.sum(axis=0), window.hours),
        # Deployments are put in where whole replicas count; here there are none.
        replicas=np.zeros((0, hours)),
        loading_nodes=np.zeros((0, hours)),
    )


def _overload(router: Router) -> dict[int, Floats]:
    """Offer requests without room to their clusters beyond capacity, up to the highest load in the tables.

    Capacity is the rate at which the target share is in time. More can be served, at the price of more that is late:
    what of it is late and what refused is read from the plan's tables. Returns the node-equivalents that were at work
    before on the clusters that are offered more, shape (hours,).
    """
    plan = router.plan
    window = router.window
    work_before: dict[int, Floats] = {}
    for w in plan.by_priority:
        workload = plan.workloads[w]
        if workload.deadline_h or not workload.cluster_order:
            continue  # what can wait is not squeezed in
        shed = router.shed[w] - window.dark_requests(w)
        # What rounding leaves of demand is no overload.
        least_shed = TOLERANCE * window.demand_requests[w]
        hours = np.flatnonzero(shed > least_shed)
        if not hours.size:
            continue
        clusters = sorted(workload.cluster_order)
        served_by = [in_hours(router.served[c, w], hours) for c in clusters]
        extra_requests = np.stack(served_by)
        # In proportion to what each serves of it, so far as its tables go.
        served_requests = extra_requests.sum(axis=0)
        wanted_growth = quotient(shed[hours], served_requests)
        for c, extra in zip(clusters, extra_requests, strict=True):
            most_growth = plan.most_loads[window.rows(c, hours), w] - 1.0
            growth = np.minimum(wanted_growth, most_growth)
            np.multiply(extra, growth, out=extra)
            used = router.room.used[c]
            # Of the first workload that is offered more: later ones must not overwrite it.
            work_before.setdefault(c, used.copy())
            router.served[c, w][hours] += extra
            extra_nodes = router.routes[w].nodes(extra, c, hours)
            used[hours] += extra_nodes
        router.shed[w][hours] -= extra_requests.sum(axis=0)
    return work_before


def _late(router: Router, capacity: Floats) -> Floats:
    """Return requests served late, shape (workloads, hours), and move rejected requests from served to shed.

    Lower priorities give way, so what a workload suffers from is the load of its own and higher ones.
    """
    plan = router.plan
    late = np.zeros(router.shed.shape)
    fleet_loads, fleet_pairs = _fleet_loads(router, capacity)
    refusal_free_load = plan.refusal_free_load
    # Between which rates of its tables each hour of a workload lies: those of all clusters begin at the same.
    tables = {w: by_rate for (_, w), by_rate in plan.burst_tables.items()}
    window = router.window
    # Once for a workload: its rate is the same on every cluster.
    rates = {}
    for w, by_rate in tables.items():
        rates[w] = by_rate.between(window.demand_requests[w])
    for c, cluster in enumerate(plan.clusters):
        levels = _levels_on(router, c)
        for row, all_hours in window.parts(c) if levels else []:
            hours = _hours_at_work(router, c, levels, all_hours)
            busy = np.zeros(1)
            for level in levels:
                # All of a level's work first: its workloads are late from one another's bursts too.
                for w in level:
                    served = router.served[c, w][hours]
                    busy = busy + router.routes[w].nodes(served, c, hours)
                load = load_fraction(busy, capacity[c][hours])
                for w in level:
                    burst_load = load
                    if (row, w) in fleet_pairs and not cluster.is_paid_by_the_hour:
                        burst_load = np.minimum(fleet_loads[w][hours], load)
                    between = rates[w].part(hours) if (row, w) in plan.burst_tables else None
                    late_share = _missed_share(plan, (_LATE, row, w), load, burst_load, between)
                    # Before anything is refused: the tables' shares are of all that is offered.
                    late[w][hours] += router.served[c, w][hours] * late_share
                    refusals = _Refusals(
                        row=row, hours=hours, load=load, burst_load=burst_load, between=between
                    )
                    _refuse(router, (c, w), refusals, refusal_free_load[row, w])
    return late


def _hours_at_work(
    router: Router, cluster: int, levels: Sequence[Sequence[int]], hours: Hours
) -> Hours:
    """Return those of some hours in which a cluster serves urgent work, where they are few, else all of them.

    Clusters that come late in the order of routing stand by in most hours: nothing is late there.
    """
    served = [router.served[cluster, w][hours] > 0.0 for level in levels for w in level]
    is_at_work = np.logical_or.reduce(served)
    if 2 * np.count_nonzero(is_at_work) > is_at_work.size:
        return hours
    at_work = np.flatnonzero(is_at_work)
    return at_work if isinstance(hours, slice) else hours[at_work]


class _Refusals(NamedTuple):
    """At what loads a cluster with some row of the plan's tables is asked for more than it serves."""

    row: int
    hours: Hours
    load: Floats
    burst_load: Floats
    between: RateInterpolation | None


def _refuse(
    router: Router, pair: tuple[int, int], offered: _Refusals, refusal_free_load: float
) -> None:
    """Move the requests that a cluster rejects at the door from served to shed, and free their nodes."""
    c, w = pair
    plan = router.plan
    load = offered.load
    burst_load = offered.burst_load
    between = offered.between
    if between is None:
        places = np.flatnonzero(load > refusal_free_load)
    else:
        cells = load * _CELLS_PER_LOAD
        burst_cells = burst_load * _CELLS_PER_LOAD
        places = plan.burst_tables[offered.row, w].refusing(cells, burst_cells, between)
        between = between.part(places)
    if not places.size:
        return
    hours = places if isinstance(offered.hours, slice) else offered.hours[places]
    # The same array where they are the same load: that is how the tables know of it.
    is_own_load = burst_load is load
    load = in_hours(load, places)
    burst_load = load if is_own_load else in_hours(burst_load, places)
    refused_share = _missed_share(plan, (_REFUSED, offered.row, w), load, burst_load, between)
    refused = in_hours(router.served[pair], hours)
    refused = refused * refused_share
    router.served[pair][hours] -= refused
    router.shed[w][hours] += refused
    freed_nodes = router.routes[w].nodes(refused, c, hours)
    router.room.used[c][hours] -= freed_nodes


def _missed_share(
    plan: Plan,
    place: tuple[int, int, int],
    load: Floats,
    burst_load: Floats,
    between: RateInterpolation | None,
) -> Floats:
    """Return the late or rejected share for a kind of miss, a cluster and a workload, shape (hours,).

    A router sees a burst, and sends what a cluster has no room for to others that serve the work: so it is late as at
    the cluster's own load without bursts, and by as much more as bursts add where all of them are as full as together.
    ``burst_load`` is that load, and ``between`` has the rates between which the hour's lies, where bursts even out as
    it grows.
    """
    kind, c, w = place
    tables = plan.refused_tables if kind == _REFUSED else plan.late_tables
    table = tables[c, w]
    is_own_load = burst_load is load
    if plan.no_burst_tables is None or (is_own_load and between is None):
        return _read(table, load)
    no_burst_table = plan.no_burst_tables[place]
    share = _read(no_burst_table, load)
    if between is None:
        share += _read(table - no_burst_table, burst_load)
        np.copyto(share, _read(table, load), where=burst_load == load)
        return np.clip(share, 0.0, 1.0, out=share)
    # Most hours are too slack for bursts to matter, and reading between rates takes twice as long.
    by_rate = plan.burst_tables[c, w]
    cells = burst_load * _CELLS_PER_LOAD
    hours = by_rate.adding(kind, cells, between)
    burst_cells = in_hours(cells, hours)
    by_bursts = by_rate.read(kind, burst_cells, between.part(hours))
    by_bursts += in_hours(share, hours)
    share[hours] = np.clip(by_bursts, 0.0, 1.0, out=by_bursts)
    return share


def _fleet_loads(
    router: Router, capacity: Floats
) -> tuple[dict[int, Floats], set[tuple[int, int]]]:
    """Return the combined load of all clusters that serve a workload, shape (hours,) each, and where it counts.

    Only of workloads that several clusters serve, and at rows of the plan's tables at which bursts make them late;
    clusters paid by the hour absorb no burst.
    """
    plan = router.plan
    loads = dict[int, Floats]()
    pairs = set[tuple[int, int]]()
    if plan.no_burst_tables is None:
        return loads, pairs
    largest = _largest_burst_share(plan)
    busy = dict[tuple[int, int], Floats]()
    for w in plan.by_priority:
        route = router.routes[w]
        workload = plan.workloads[w]
        owned = [c for c in route.order if not plan.clusters[c].is_paid_by_the_hour]
        if workload.deadline_h or len(owned) < 2:
            continue
        # Where bursts make next to nothing late, the fleet's load need not be worked out.
        rows = [row for c in owned for row, _ in router.window.parts(c)]
        late_rows = [row for row in rows if largest[row, w] >= LITTLE_LATE]
        if not late_rows:
            continue
        pairs.update((row, w) for row in late_rows)
        priority = workload.priority
        room = np.zeros(1)
        work = np.zeros(1)
        there = np.zeros(1)
        for c in owned:
            if (c, priority) not in busy:  # the same for all workloads of a priority
                busy[c, priority] = _busy_up_to(router, c, priority)
            rate = route.rate(c, ALL)
            room = room + capacity[c] * rate
            work = work + busy[c, priority] * rate
            there = there + (capacity[c] > 0.0)
        # Alone a cluster has its own load, to the last digit: what comes later does not round it.
        loads[w] = np.where(there > 1.0, quotient(work, room), np.inf)
    return loads, pairs


def _largest_burst_share(plan: Plan) -> Floats:
    """Return the largest share that bursts add to misses, up to the utilisation preferred, shape (clusters, workloads).

    Beyond it work is spread, and clusters are as full as together.
    """
    assert plan.no_burst_tables is not None
    most_load = plan.preferred_utilisation or 1.0
    cells = slice(round(most_load * _CELLS_PER_LOAD) + 1)
    late = plan.late_tables[..., cells]
    with_bursts = late + plan.refused_tables[..., cells]
    without_bursts = plan.no_burst_tables[..., cells]
    shares = with_bursts - without_bursts.sum(axis=0)
    for pair, by_rate in plan.burst_tables.items():
        # At the lowest rate, where they are largest.
        added_shares = by_rate.added[:, 0, cells]
        shares[pair] = added_shares.sum(axis=0)
    return np.asarray(shares.max(axis=2))


def _busy_up_to(router: Router, cluster: int, priority: int) -> Floats:
    """Return the node-equivalents at work on a cluster for urgent workloads up to a priority, shape (hours,)."""
    workloads = router.plan.workloads
    busy = np.zeros(1)
    for level in _levels_on(router, cluster):
        for w in level:
            if workloads[w].priority <= priority:
                served = router.served[cluster, w]
                busy = busy + router.routes[w].nodes(served, cluster, ALL)
    return busy


def _read(table: Floats, load: Floats) -> Floats:
    """Return a table's share at loads, linear between the edges of its cells."""
    place = load * _CELLS_PER_LOAD
    floor = np.floor(place)
    place -= floor
    cell = floor.astype(np.intp)
    rise = np.zeros_like(table)  # beyond its end a table stays as it is
    # Rises once for the table, and not two look-ups for every hour.
    np.subtract(table[1:], table[:-1], out=rise[:-1])
    share = rise.take(cell, mode="clip")
    share *= place
    share += table.take(cell, mode="clip", out=floor)  # into an array that is needed no more
    return share


def _levels_on(router: Router, cluster: int) -> list[list[int]]:
    """Return the urgent workloads on a cluster by priority, highest first."""
    levels: dict[int, list[int]] = {}
    for w in router.plan.by_priority:
        workload = router.plan.workloads[w]
        if (cluster, w) in router.served and not workload.deadline_h:
            levels.setdefault(workload.priority, []).append(w)
    return [levels[priority] for priority in sorted(levels)]
