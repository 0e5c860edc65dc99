"""What a window of hours yields: who is served where, what waits, what is shed, how much power it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import Hours, added, at_most, in_hours, part_of, quotient
from planner.engine.failover import with_carried
from planner.engine.hourly import Drag, WindowInput, WindowResult
from planner.engine.overload import beyond_share, with_overdue
from planner.engine.power import awake, hold, it_kw, load_fraction, parked_kw
from planner.engine.replicas import on_clusters, place_window
from planner.engine.router import Router
from planner.plan.burst_tables import LITTLE_LATE, Between
from planner.plan.plan import LOAD_CELLS, MOST_LOAD, Plan
from planner.plan.power import allowed_it_kw, facility_kw
from planner.plan.sizes import at_sizes

_CAP_TOLERANCE = 1e-9
_LITTLE = 1e-9  # of what came: less is rounding
_CELLS_PER_LOAD = LOAD_CELLS / MOST_LOAD
_MOST = 0.6  # of all hours: from there on, working on whole arrays is cheaper than on some hours of them


def evaluate_window(plan: Plan, window: WindowInput) -> WindowResult:
    """Route a window's demand; a workload that has outgrown its objective takes no more than its share."""
    plan = at_sizes(plan, window.sizes)
    beyond = beyond_share(plan, window)
    if beyond is None:
        return _on_pools(plan, window)
    within = replace(window, demand_requests=window.demand_requests - beyond)
    return with_overdue(plan, window, beyond, _on_pools(plan, within))


def _on_pools(plan: Plan, window: WindowInput) -> WindowResult:
    """Route a window's demand over its nodes, or, where whole replicas count, over the pools that these make."""
    window = with_carried(plan, window)
    placement = plan.placement
    if placement is None or not any(placement.placed):
        return _evaluate(Router(plan, window), range(len(plan.clusters)))
    placed = place_window(plan, placement, window)
    router = Router(placement.pools, placed.window, placed.ways)
    return on_clusters(placement, window, placed, _evaluate(router, placement.pool_cluster), router.served)


class Missed(NamedTuple):
    """What a window misses, and what the next begins with."""

    late_requests: Floats
    """Shape (changes, workloads, hours)."""
    shed_requests: Floats
    """Of the same shape."""
    waiting_requests: tuple[Floats, ...]
    replicas_after: Floats


def missed_under(plan: Plan, window: WindowInput, changes: Sequence[Callable[[Plan], Plan]]) -> Missed:
    """Return what a window would miss under changes of the plan's tables by load, without a power cap.

    Tables decide what becomes of work where it is routed, not where that is: it is routed once for all of them.
    Workloads past their objective are as they are in :func:`evaluate_window`, but for those served late within their
    share.
    """
    plan = at_sizes(plan, window.sizes)
    beyond, placement = beyond_share(plan, window), plan.placement
    absent: Floats | None = None
    replicas = np.zeros((0, 1))
    if beyond is not None:
        window = replace(window, demand_requests=window.demand_requests - beyond)
    window = with_carried(plan, window)
    if placement is not None and any(placement.placed):
        placed = place_window(plan, placement, window)
        plan, window, absent, replicas = placement.pools, placed.window, placed.absent_requests, placed.replicas
    router = Router(plan, window)
    router.route()
    late, shed = [], []
    for change in changes:
        trial = router.copied()
        trial.plan = change(plan)
        _overload(trial)
        late.append(_late(trial, window.nodes))
        shed.append(trial.shed + sum(extra for extra in (absent, beyond) if extra is not None))
    return Missed(np.stack(late), np.stack(shed), tuple(router.waiting), replicas[:, -1])


def _evaluate(router: Router, owner: Sequence[int]) -> WindowResult:
    """Route a window's demand over its nodes, within the site's power; add up what belongs to one owner.

    Workloads are taken by priority; each is offered to its clusters by the routing policy; deferrable work fills what
    all others left. Hours in which that leaves work undone, or crowds one cluster beside a free one, are planned anew
    as a whole. What arrives while the site is dark is shed, or waits where it can. Where the power cap binds, nodes are
    parked or clocked down and lower priorities give way.
    """
    plan, window = router.plan, router.window
    router.route()
    throttled, capacity = np.zeros((max(owner) + 1, window.nodes.shape[1])), window.nodes
    used, over = router.room.used, np.zeros(0, dtype=np.intp)
    if plan.site.cap_kw is not None:
        allowed = allowed_it_kw(plan, plan.site.cap_kw[window.hours], window.hours)
        drawn = it_kw(plan, used, window.nodes).sum(axis=0)
        over = np.flatnonzero(drawn > allowed * (1.0 + _CAP_TOLERANCE))
    if over.size:
        wanted = in_hours(router.wanted_nodes(), over)
        router.place(over, plan.by_priority, allowed[over])
        throttled[:, over] = added(np.maximum(wanted - used[:, over], 0.0), owner)
        capacity = window.nodes.copy()
        capacity[:, over], _ = hold(plan, in_hours(used, over), in_hours(window.nodes, over), allowed[over])
    on = window.nodes
    parked = awake(plan, used, on, window.awake_before, over) if plan.site.parking is not None else None
    if parked is not None:
        on, capacity = parked.on, np.minimum(capacity, parked.serving)
    full = _overload(router)
    late = _late(router, capacity)
    for c, most in full.items():  # a node that is full is no fuller, and draws no more, for being offered more
        np.minimum(used[c], most, out=used[c])
    # Power last: what was refused at the door draws none.
    power = it_kw(plan, used, on) if parked is None else parked_kw(plan, used, window.nodes, on)
    if over.size:
        _, power[:, over] = hold(plan, in_hours(used, over), in_hours(window.nodes, over), allowed[over])
    drags = _drags(router)
    return WindowResult(
        first_hour=window.first_hour,
        demand_requests=window.demand_requests,
        served_requests=router.served_requests(owner),
        late_requests=late,
        shed_requests=router.shed,
        waiting_requests=tuple(router.waiting),
        nodes=window.nodes,
        busy_nodes=added(used, owner),
        drag_nodes=_drag_nodes(drags, owner, used.shape[1]),
        drags=drags,
        throttled_nodes=throttled,
        it_kw=added(power, owner),
        facility_kw=facility_kw(plan, power.sum(axis=0), window.hours),
        replicas=np.zeros((0, window.nodes.shape[1])),
        loading_nodes=np.zeros((0, window.nodes.shape[1])),
        parked_nodes=None if parked is None else added(window.nodes - parked.serving, owner),
        woken_nodes=None if parked is None else added(parked.woken, owner),
        awake_after=None if parked is None else parked.last,
    )


def _drag_nodes(drags: Mapping[tuple[int, int], Drag], owner: Sequence[int], hours: int) -> Floats:
    """Return the node-equivalents that slow software costs, shape (owners, hours)."""
    pools: dict[int, Floats] = {}
    for (pool, _), lost in drags.items():
        pools.setdefault(pool, np.zeros(hours))[lost.hours] += lost.nodes
    total = np.zeros((max(owner) + 1, hours))
    for pool in sorted(pools):
        total[owner[pool]] += pools[pool]
    return total


def _drags(router: Router) -> dict[tuple[int, int], Drag]:
    """Return the node-equivalents that slow software costs, by cluster and workload."""
    drags = {}
    for (c, index), slowed in router.window.incidents.items():
        nodes = router.ways[index].nodes(router.served[c, index].take(slowed.hours), c, slowed.hours)
        drags[c, index] = Drag(hours=slowed.hours, nodes=nodes * slowed.lost_fraction)
    return drags


def _overload(router: Router) -> dict[int, Floats]:
    """Offer what found no room to the clusters that serve the rest, up to the most they are offered.

    Capacity is the rate at which the promised share is in time. More can be served, at the price of more that is late:
    what of it is late and what refused is read from the plan's tables. Returns the node-equivalents that were at work
    before on the clusters that are offered more, shape (hours,).
    """
    plan, window = router.plan, router.window
    before: dict[int, Floats] = {}
    for w in plan.by_priority:
        if plan.workloads[w].deadline_h:
            continue
        left = router.shed[w] - window.dark_requests(w)
        hours = np.flatnonzero(left > _LITTLE * window.demand_requests[w])
        if not hours.size:
            continue
        on = sorted(plan.workloads[w].cluster_order)
        served = np.stack([in_hours(router.served[c, w], hours) for c in on])
        over = quotient(left[hours], served.sum(axis=0))
        served *= np.stack([at_most(plan.most_loads[c, w] - 1.0, over) for c in on])
        for c, more in zip(on, served, strict=True):
            before.setdefault(c, router.room.used[c].copy())
            router.served[c, w][hours] += more
            router.room.used[c][hours] += router.ways[w].nodes(more, c, hours)
        router.shed[w][hours] -= served.sum(axis=0)
    return before


def _late(router: Router, capacity: Floats) -> Floats:
    """Return requests served late, shape (workloads, hours), and take what is refused from what is served.

    Lower priorities give way, so what a workload suffers from is the load of its own and higher ones. What is refused
    moves from what is served to what is shed, and frees the nodes that would have worked for it.
    """
    plan, ways = router.plan, router.ways
    late = np.zeros(router.shed.shape)
    refusal_free = plan.refusal_free_load
    together, rates = _loads_together(router, capacity), _rates(router)
    for c in range(len(plan.clusters)):
        hours = _at_work(router.room.used[c])
        nodes = part_of(capacity[c], hours)
        busy, is_paid = np.zeros(1), not plan.clusters[c].is_paid_by_the_hour
        for level in _levels_on(router, c):
            # All of a level's work first: its workloads are late from one another's bursts too.
            served = {w: part_of(router.served[c, w], hours) for w in level}
            for w in level:
                busy = busy + ways[w].nodes(served[w], c, hours)
            load = load_fraction(busy, nodes)
            for w in level:
                stands_by, by_rate = is_paid and w in together, plan.burst_tables.get((c, w))
                at = _Loads(
                    load=load,
                    shared=np.minimum(part_of(together[w], hours), load) if stands_by else None,
                    between=None if by_rate is None else rates[w].part(hours),
                )
                late[w][hours] += served[w] * _missed_share(plan, (0, c, w), at)
                if by_rate is None or at.between is None:
                    above = np.flatnonzero(load > refusal_free[c, w])
                else:
                    above = by_rate.refusing(load * _CELLS_PER_LOAD, at.bursts_at * _CELLS_PER_LOAD, at.between)
                if above.size:
                    which = above if isinstance(hours, slice) else hours[above]
                    refused = in_hours(served[w], above) * _missed_share(plan, (1, c, w), at.part(above))
                    router.served[c, w][which] -= refused
                    router.shed[w][which] += refused
                    router.room.used[c][which] -= ways[w].nodes(refused, c, which)
    return late


class _Loads(NamedTuple):
    """What decides the shares late and refused on a cluster, shape (hours,) each."""

    load: Floats
    shared: Floats | None
    """That of all clusters which serve the work, where they stand by for one another's bursts and it is less."""
    between: Between | None
    """Rates between which the hour's lies, where bursts even out as it grows."""

    @property
    def bursts_at(self) -> Floats:
        """Load at which bursts are borne."""
        return self.load if self.shared is None else self.shared

    def part(self, hours: Ints) -> _Loads:
        """Return the same of some hours."""
        return _Loads(
            load=in_hours(self.load, hours),
            shared=None if self.shared is None else in_hours(self.shared, hours),
            between=None if self.between is None else self.between.part(hours),
        )


def _rates(router: Router) -> dict[int, Between]:
    """Return by workload between which rates of its tables each hour lies: those of all clusters begin at the same."""
    tables = {w: by_rate for (_, w), by_rate in router.plan.burst_tables.items()}
    return {w: by_rate.between(router.window.demand_requests[w]) for w, by_rate in tables.items()}


def _missed_share(plan: Plan, which: tuple[int, int, int], at: _Loads) -> Floats:
    """Return the share late (kind 0) or refused (1) by kind, cluster and workload, shape (hours,).

    A router sees a burst, and sends what a cluster has no room for to others that serve the work: so it is late as at
    the cluster's own load without bursts, and by as much more as bursts add where all of them are as full as together.
    """
    kind, c, w = which
    table = (plan.late_tables, plan.refused_tables)[kind][c, w]
    if plan.calm_tables is None or (at.shared is None and at.between is None):
        return _read(table, at.load)
    even = plan.calm_tables[which]
    share = _read(even, at.load)
    if at.between is None:
        share += _read(table - even, at.bursts_at)
        return np.clip(share, 0.0, 1.0, out=share)
    # Most hours are too slack for bursts to matter, and reading between rates takes twice as long.
    by_rate, place = plan.burst_tables[c, w], at.bursts_at * _CELLS_PER_LOAD
    hours = by_rate.adding(kind, place, at.between)
    added = by_rate.read(kind, in_hours(place, hours), at.between.part(hours))
    added += in_hours(share, hours)
    share[hours] = np.clip(added, 0.0, 1.0, out=added)
    return share


def _loads_together(router: Router, capacity: Floats) -> dict[int, Floats]:
    """Return the load of all clusters together that serve a workload, by its own requests, shape (hours,) each.

    Of those that several serve and whom bursts make late; what is paid by the hour stands by for no burst.
    """
    plan, ways = router.plan, router.ways
    together: dict[int, Floats] = {}
    if plan.calm_tables is None:
        return together
    preferred = plan.preferred_utilisation or 1.0  # beyond it work is spread, and clusters are as full as together
    upto = slice(round(preferred * _CELLS_PER_LOAD) + 1)
    late, refused, even = plan.late_tables, plan.refused_tables, plan.calm_tables[..., upto]
    added_by_bursts = late[..., upto] + refused[..., upto] - even.sum(axis=0)
    for pair, by_rate in plan.burst_tables.items():
        added_by_bursts[pair] = by_rate.added[:, 0, upto].sum(axis=0)  # at the lowest rate, where they are largest
    most = added_by_bursts.max(axis=2)
    for w in plan.by_priority:
        paid = [c for c in ways[w].order if not plan.clusters[c].is_paid_by_the_hour]
        if plan.workloads[w].deadline_h or len(paid) < 2 or most[paid, w].max() < LITTLE_LATE:
            continue
        room = work = np.zeros(1)
        for c in paid:
            rate = ways[w].rate(c, slice(None))
            busy = sum(
                ways[other].nodes(router.served[c, other], c, slice(None))
                for level in _levels_on(router, c)
                for other in level
                if plan.workloads[other].priority <= plan.workloads[w].priority
            )
            room, work = room + capacity[c] * rate, work + busy * rate
        together[w] = quotient(work, room)
    return together


def _at_work(used: Floats) -> Hours:
    """Return the hours in which a cluster works; all where it mostly does, as picking them out would take longer."""
    busy = used > 0.0
    return slice(None) if np.count_nonzero(busy) > _MOST * used.size else np.flatnonzero(busy)


def _read(table: Floats, load: Floats) -> Floats:
    """Return a table's share at loads, linear between its cells' edges."""
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
    """Return the workloads of a cluster that cannot wait, by priority, the highest first."""
    levels: dict[int, list[int]] = {}
    for w in router.plan.by_priority:
        if (cluster, w) in router.served and not router.plan.workloads[w].deadline_h:
            levels.setdefault(router.plan.workloads[w].priority, []).append(w)
    return [levels[priority] for priority in sorted(levels)]
