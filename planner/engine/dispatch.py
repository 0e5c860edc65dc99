"""The dispatch policy: which cluster serves which requests, hour by hour.

*Offer.* Workloads that cannot wait are taken by priority. Each is offered to its clusters in the order of the routing
policy, tier by tier, up to the preferred utilisation of each (:func:`fill`); clusters of one tier take in proportion to
what they have free. What is left is spread over all that is still free. Machines rented by the hour come
last: they are offered what the others have no room for once these are filled as far as their waits allow.

*Plan anew.* An order of offers may leave work undone that another order would serve. Hours in which it does, of
workloads that share clusters, are planned anew as a whole by a linear program (:mod:`planner.engine.allocation`):
tokens by priority first, then rented machines and clusters to spare, then power. Hours in which one cluster is crowded
while another has preferred nodes free are levelled in the same way: at the lowest of a few common utilisations at which
everything is still served.

*Defer.* Work that can wait fills what all others leave, first come, first served, until its deadline. Where the queue
uses up what is free, the program is asked how much would be free if the others, served as before, moved aside; the
queue is worked out again with that much room, and the hours in which it takes more than was free are planned anew. A
power cap makes the room smaller, in hours that it can touch. Rented machines are opened to work that can wait as late
as its deadline allows, unless opening them at once saves a thousandth of it from being shed.

*Dark.* While the site has no power, a provider's machines carry what they have room for of what comes meanwhile; work
that can wait waits, and the rest is shed. Hours dark in part in which a provider carries some are never planned anew: a
plan of the whole hour would hand work to machines that had no power when it came.

A comparison that rounding could tip is made with one tolerance, :data:`TOLERANCE`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.elementwise import Hours, in_hours, quotient, safe_denominator
from planner.engine.allocation import PLENTY, Demand, allocate, node_steps, power_steps
from planner.engine.hourly import ALL, Route, WindowInput, serving
from planner.engine.power import it_kw
from planner.engine.scan import defer, needed
from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD
from planner.plan.plan import Plan
from planner.plan.site import allowed_it_kw

TOLERANCE = 1e-7
"""Of what is compared: a hundred times what a linear program may be off by, and far below any figure that is shown."""
_LEVELS = (
    2  # of utilisation at which crowded clusters are levelled: the preferred one, and halfway to 1
)
_WORTH_RENTING = 1e-3  # of what can wait: what is served more by renting for it at once
_NOWHERE = np.zeros(1)  # the rate of clusters that do not serve a workload
_FEW = 0.25  # below this share of hours, offering the hours alone is cheaper: 5% of a replication


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Usable and used nodes of the clusters; arrays of shape (clusters, hours)."""

    usable: Floats
    """Nodes that may work."""
    preferred_utilisation: float
    """Share of those that is filled in order; beyond it work is spread."""
    used: Floats
    """Nodes at work, updated by routing."""

    def preferred(self, cluster: int, hours: Hours) -> Floats:
        """Return a cluster's nodes up to the preferred utilisation, shape (some hours,)."""
        return np.asarray(self.usable[cluster][hours] * self.preferred_utilisation)

    def free_requests(self, nodes: Floats, route: Route, cluster: int, hours: Hours) -> Floats:
        """Return the requests per hour that a cluster's free nodes can serve, up to ``nodes``, shape (some hours,)."""
        free: Floats = np.maximum(nodes - self.used[cluster][hours], 0.0)
        free *= route.rate(cluster, hours)
        return free

    def spare(self, route: Route) -> Floats:
        """Return the requests per hour that a workload's clusters can still take, shape (hours,)."""
        spare = np.zeros(self.usable.shape[1])
        for cluster in route.order:
            spare += self.free_requests(self.usable[cluster], route, cluster, ALL)
        return spare

    def crowded(self, clusters: Ints) -> Bools:
        """Return the hours in which one cluster exceeds its preferred utilisation while another is below it."""
        is_crowded = np.zeros(self.usable.shape[1], dtype=np.bool_)
        if self.preferred_utilisation == 1.0:
            return is_crowded
        for c in clusters:
            is_crowded |= self.used[c] > self.preferred(c, ALL)
        hours = np.flatnonzero(is_crowded)  # few
        preferred = np.stack([self.preferred(c, hours) for c in clusters])
        beyond = np.stack([in_hours(self.used[c], hours) for c in clusters]) - preferred
        slack = TOLERANCE * preferred
        is_crowded[hours] = np.any(beyond > slack, axis=0) & np.any(beyond < -slack, axis=0)
        return is_crowded


class Router:
    """Routes the requests of one window to clusters."""

    def __init__(
        self, plan: Plan, window: WindowInput, routes: Sequence[Route] | None = None
    ) -> None:
        """Start with idle clusters; pass ``routes`` where they are already known."""
        self.plan = plan
        self.window = window
        self.routes = routes_of(plan, window) if routes is None else routes
        shape = (len(plan.workloads), window.nodes.shape[1])
        used = np.zeros_like(window.nodes)
        self.room = Room(
            usable=window.nodes, preferred_utilisation=plan.preferred_utilisation, used=used
        )
        pairs = [(c, w) for w, route in enumerate(self.routes) for c in sorted(route.order)]
        self.served = dict(zip(pairs, np.zeros((len(pairs), shape[1])), strict=True))
        """Requests by cluster and workload, where it may go there, shape (hours,)."""
        self.shed = np.zeros(shape)
        """Requests, shape (workloads, hours)."""
        self.waiting = [*window.waiting_requests]
        """Per workload, requests that still wait at the end, by hour of arrival."""

    def route(self) -> None:
        """Route all workloads to the available nodes; under a cap, deferrable work within the power allowed."""
        plan = self.plan
        window = self.window
        short = np.zeros(self.shed.shape, dtype=np.bool_)
        urgent = [index for index in plan.by_priority if not plan.workloads[index].deadline_h]
        for (c, index), requests in window.carried_requests.items():
            self.room.used[c] += self.routes[index].nodes(requests, c, ALL)
        for index in urgent:
            self.shed[index] = window.dark_requests(index)
            wanted = window.demand_requests[index] - self.shed[index]
            carried = window.carried_by(index)
            if carried:
                wanted = np.maximum(wanted - sum(carried.values()), 0.0)
            hours, left = fill(wanted, self.room, self.routes[index], self._served(index))
            for c, requests in carried.items():
                self.served[c, index] += requests
            self.shed[index][hours] += left
            outgrown = self.routes[index].outgrown
            short[index][hours] = (
                (left > 0.0) if outgrown is None else (left > 0.0) & ~outgrown[hours]
            )
        for group in self._sharing(urgent):
            if len(group) > 1:  # one workload alone has been offered every cluster it may use
                self.place(self._evenly_lit(np.flatnonzero(short[group].any(axis=0))), group)
                self._level(group)
        self._defer_all(len(urgent))
        self.room = replace(self.room, usable=window.nodes)

    def copied(self) -> Router:
        """Return an independent copy with everything routed so far."""
        other = copy.copy(self)
        other.served, other.shed = (
            {on: was.copy() for on, was in self.served.items()},
            self.shed.copy(),
        )
        other.room = replace(self.room, used=self.room.used.copy())
        other.waiting = [*self.waiting]
        return other

    def place(self, hours: Ints, which: Sequence[int], allowed_kw: Floats | None = None) -> None:
        """Reallocate some workloads together in some hours, within an IT power of shape (some hours,)."""
        demand = self._demand(hours, which)
        self._settle(demand, self._allocate(demand, self._nodes(demand), allowed_kw))

    def wanted_nodes(self) -> Floats:
        """Return the node-equivalents needed if no deferrable work were delayed, shape (clusters, hours)."""
        room = replace(self.room, used=self.room.used.copy())
        for index in self.plan.by_priority:
            if self.plan.workloads[index].deadline_h:
                came = self.window.demand_requests[index]
                route = self.routes[index]
                held_back = np.maximum(came - sum(self._served(index).values()), 0.0)
                nowhere = {c: np.zeros(came.size) for c in route.order}
                fill(np.minimum(held_back, room.spare(route)), room, route, nowhere)
        return room.used

    def served_requests(self, owner: Sequence[int]) -> Floats:
        """Return the requests served, shape (owners, workloads, hours), clusters summed by owner."""
        served = np.zeros((max(owner) + 1, *self.shed.shape))
        for (c, index), requests in self.served.items():
            served[owner[c], index] += requests
        return served

    def _served(self, index: int) -> dict[int, Floats]:
        """Return the requests of a workload served by each cluster, in scenario order."""
        return {c: self.served[c, index] for c in sorted(self.routes[index].order)}

    def _sharing(self, which: Sequence[int]) -> list[list[int]]:
        """Return the workloads in groups, so that different groups have no cluster in common."""
        groups: list[list[int]] = []
        for index in which:
            order = set(self.routes[index].order)
            met = [group for group in groups if order & set(serving(self.routes, group).tolist())]
            groups = [group for group in groups if group not in met]
            groups.append([*(other for group in met for other in group), index])
        return [[index for index in which if index in group] for group in groups]

    def _level(self, which: Sequence[int]) -> None:
        """Balance utilisation in hours with one cluster above its preferred utilisation and another below.

        All are filled to the lowest common utilisation that serves everything, of a few from the preferred one to 1.
        """
        on = serving(self.routes, which)
        rented = np.array([self.plan.clusters[c].is_paid_by_the_hour for c in on])
        levelled = on if rented.all() else on[~rented]
        hours = self._evenly_lit(np.flatnonzero(self.room.crowded(levelled)))
        for index in which:
            hours = hours[~self._is_undone(index, hours)]
        for level in np.linspace(
            self.plan.preferred_utilisation, 1.0, _LEVELS, endpoint=False
        ).tolist():
            if not hours.size:
                return
            used, nodes = (
                sum(in_hours(of[c], hours) for c in levelled)
                for of in (self.room.used, self.window.nodes)
            )
            tried = np.flatnonzero(used <= level * nodes)  # below the mean is hopeless
            demand = self._demand(hours[tried], which)
            nodes = level * self._nodes(demand)
            if not rented.all():  # nobody rents more for the sake of others' waits than he has to
                nodes[rented] = np.stack([in_hours(self.room.used[c], demand.hours) for c in on])[
                    rented
                ]
            given = self._allocate(demand, nodes)
            enough = np.ones(tried.size, dtype=np.bool_)
            for place, asked in enumerate(demand.requests):
                enough &= sum(self._requests(demand, given, place)) >= asked * (1.0 - TOLERANCE)
            kept = np.flatnonzero(enough)
            self._settle(demand.only(kept), in_hours(given, kept))
            hours = np.delete(hours, tried[kept])

    def _defer_all(self, urgent: int) -> None:
        """Serve all deferrable workloads, after the first ``urgent`` ones in priority order.

        Renting as late as may be can leave fewer idle hours to those served last, or no machines to which others could
        make way: where much would be shed by it, all rent at once.
        """
        order = self.plan.by_priority
        rents = any(
            self.routes[index].rented_tiers and self.routes[index].paid_tiers
            for index in order[urgent:]
        )
        at_once = self.copied() if rents else None
        for place in range(urgent, len(order)):
            self._defer(order[: place + 1], at_once=False)

        def tokens(requests: Floats) -> float:  # at their mean length of the first month
            return float(
                sum(
                    requests[w].sum() * self.plan.workloads[w].tokens_per_request[0]
                    for w in order[urgent:]
                )
            )

        if at_once is None or not (lost := tokens(self.shed)):
            return
        for place in range(urgent, len(order)):
            at_once._defer(order[: place + 1], at_once=True)
        if lost - tokens(at_once.shed) >= _WORTH_RENTING * tokens(self.window.demand_requests):
            self.room = at_once.room
            self.served = at_once.served
            self.shed = at_once.shed
            self.waiting = at_once.waiting

    def _defer(self, which: Sequence[int], *, at_once: bool) -> None:
        """Serve the last of the given workloads, which is deferrable, from capacity left by all before it."""
        index = which[-1]
        arrivals = self.window.demand_requests[which[-1]]
        beside = next(group for group in self._sharing(which) if index in group)
        route = self.routes[index]
        waiting = self.waiting[index]
        self.room = replace(self.room, usable=self.window.nodes)
        if route.rented_tiers and route.paid_tiers and not at_once:
            self._rent_for(which)
        free = self.room.spare(route)
        room, capped = self._room_within_power(free, which)
        served, self.shed[index], self.waiting[index] = defer(arrivals, room, waiting)
        # Others are asked to move aside only where the queue uses up its room: with more there, no other hour can be
        # left with a queue.
        full = room - served <= TOLERANCE * (room + 1.0)
        hours = self._improvable(np.flatnonzero(full | (served > free)), beside)
        if not hours.size:
            fill(served, self.room, route, self._served(index))
            return
        demand, given = self._make_room(hours, beside)
        most = sum(self._requests(demand, given, -1))
        gains = most > free[hours] * (1.0 + TOLERANCE)
        limit = np.where(gains, most, free[hours])
        room[hours] = np.where(capped[hours], np.minimum(room[hours], limit), limit)
        served, self.shed[index], self.waiting[index] = defer(arrivals, room, waiting)
        fill(np.minimum(served, free), self.room, route, self._served(index))
        # The rest is served by the program's plan, of which the last workload takes the part that it has requests for.
        moved = np.flatnonzero(gains & (served[hours] > free[hours]))
        demand.requests[-1] = served[hours]
        given[:, -1] *= quotient(served[hours], np.maximum(most, served[hours]))
        self._settle(demand.only(moved), in_hours(given, moved))

    def _rent_for(self, which: Sequence[int]) -> None:
        """Make hourly rented machines usable by the last workload as far as its deadline requires."""
        index = which[-1]
        usable = self.window.nodes.copy()
        route = self.routes[index]
        arrivals = self.window.demand_requests[index]
        rented = [c for tier in route.rented_tiers for c in tier]
        room = self.room.spare(route)
        usable[rented] = self.room.used[rented]
        self.room = replace(self.room, usable=usable)
        paid = self.room.spare(route)
        more = np.maximum(room - paid, 0.0)
        lent = needed(arrivals, self._room_within_power(paid, which)[0], more, self.waiting[index])
        usable[rented] += quotient(lent, more) * (self.window.nodes[rented] - usable[rented])

    def _room_within_power(self, free: Floats, which: Sequence[int]) -> tuple[Floats, Bools]:
        """Return the free capacity for the last workload under the power cap, and the hours at the cap."""
        plan = self.plan
        window = self.window
        room = free.copy()
        if window.cap_kw is None:
            return room, np.zeros(free.size, dtype=np.bool_)
        allowed = allowed_it_kw(plan, window.cap_kw, window.hours)
        capped = allowed < it_kw(plan, window.nodes, window.nodes).sum(axis=0)
        demand, given = self._make_room(np.flatnonzero(capped), which, allowed[capped])
        # A little less, so that what was found possible stays so when it is planned again.
        room[capped] = sum(self._requests(demand, given, -1)) * (1.0 - TOLERANCE)
        uneven = capped.copy()
        uneven[self._evenly_lit(np.flatnonzero(capped))] = False
        room[uneven] = np.minimum(room[uneven], free[uneven])  # there others are not moved aside
        return room, capped

    def _improvable(self, hours: Ints, which: Sequence[int]) -> Ints:
        """Return the hours in which moving other workloads may free capacity for the last one.

        Work left undone has taken all there is wherever it can go, and nothing that moves leaves room there: it would
        have had it. So the last can only gain on the other clusters. Where these are full of one workload, that has
        nowhere else to go, and serves no more by changing places with itself.
        """
        if len(which) == 1:
            return hours[:0]
        on = serving(self.routes, which)
        hours = self._evenly_lit(hours)
        hours = hours[sum(in_hours(self.room.usable[c], hours) > 0.0 for c in on) > 1]
        closed = np.zeros((len(self.window.nodes), hours.size), dtype=np.bool_)
        for other in which[:-1]:
            if self.routes[other].outgrown is None and not self.plan.workloads[other].deadline_h:
                closed[list(self.routes[other].order)] |= self._is_undone(other, hours)
        full = np.ones(hours.size, dtype=np.bool_)
        tenants = np.zeros((len(which) - 1, hours.size), dtype=np.bool_)
        for c in on.tolist():
            nodes = in_hours(self.room.usable[c], hours)
            not_closed = (nodes > 0.0) & ~closed[c]
            full &= ~not_closed | (in_hours(self.room.used[c], hours) >= nodes * (1.0 - TOLERANCE))
            for place, other in enumerate(which[:-1]):
                if c in self.routes[other].order:
                    tenants[place] |= not_closed & (in_hours(self.served[c, other], hours) > 0.0)
        return np.asarray(hours[~(full & (tenants.sum(axis=0) <= 1))])

    def _evenly_lit(self, hours: Ints) -> Ints:
        """Return the hours without those of a partial site outage in which a provider carries load."""
        if self.window.lit_fraction is None or not self.window.carried_requests:
            return hours
        return np.asarray(hours[np.isin(self.window.lit_fraction[hours], (0.0, 1.0))])

    def _is_undone(self, index: int, hours: Ints) -> Bools:
        """Return whether a workload was shed for lack of capacity in each of some hours."""
        came = self.window.demand_requests[index]
        dark = self.window.dark_requests(index)
        return np.asarray(
            in_hours(self.shed[index], hours) > in_hours(came * TOLERANCE + dark, hours)
        )

    def _make_room(
        self, hours: Ints, which: Sequence[int], allowed_kw: Floats | None = None
    ) -> tuple[Demand, Floats]:
        """Reallocate some hours so that the last workload gets the most without less service to the others."""
        demand = self._demand(hours, which)
        demand.requests[-1] = PLENTY
        return demand, self._allocate(demand, self._nodes(demand), allowed_kw)

    def _nodes(self, demand: Demand) -> Floats:
        """Return usable nodes of the clusters that serve some workloads, shape (clusters, some hours)."""
        return np.stack(
            [
                in_hours(self.room.usable[c], demand.hours)
                for c in serving(self.routes, demand.workloads)
            ]
        )

    def _demand(self, hours: Ints, which: Sequence[int]) -> Demand:
        """Return workloads' demand in some hours: arrivals of urgent ones, scheduled service of deferrable ones."""
        requests = np.empty((len(which), hours.size))
        levels = []
        for place, index in enumerate(which):
            workload = self.plan.workloads[index]
            if workload.deadline_h:
                # Each has a level of its own: those before it have been promised what they ask for.
                levels.append(workload.priority + 1 + place)
                requests[place] = sum(
                    in_hours(served, hours) for served in self._served(index).values()
                )
            else:
                levels.append(workload.priority)
                requests[place] = in_hours(self.window.reached_requests(index), hours)
        return Demand(workloads=which, levels=levels, requests=requests, hours=hours)

    def _allocate(self, demand: Demand, nodes: Floats, allowed_kw: Floats | None = None) -> Floats:
        """Return the optimal allocation: node-equivalents by serving cluster, workload and hour."""
        steps = node_steps(self.plan) if allowed_kw is None else power_steps(self.plan)
        return allocate(self.routes, nodes, demand, steps, allowed_kw)

    def _requests(self, demand: Demand, given: Floats, place: int) -> list[Floats]:
        """Return the requests that node-equivalents serve of one of some workloads, shape (some hours,) each.

        By cluster that serves it, in their order in the file.
        """
        route = self.routes[demand.workloads[place]]
        on = sorted(route.order)
        rows = np.searchsorted(serving(self.routes, demand.workloads), on)
        return [
            given[row, place] * route.rate(c, demand.hours) for row, c in zip(rows, on, strict=True)
        ]

    def _settle(self, demand: Demand, given: Floats) -> None:
        """Overwrite the served and shed requests of some hours with a new allocation."""
        hours = demand.hours
        for c, nodes_given in zip(serving(self.routes, demand.workloads), given, strict=True):
            self.room.used[c][hours] = nodes_given.sum(axis=0)
        for place, index in enumerate(demand.workloads):
            served = self._requests(demand, given, place)
            total = sum(served)
            asked = demand.requests[place]
            deferred = self.plan.workloads[index].deadline_h > 0
            # But for rounding, what was promised is served, and so is all that came where there is room for all.
            is_met = (total >= asked * (1.0 - TOLERANCE)) | deferred
            exactly = np.divide(asked, total, out=np.ones_like(total), where=is_met & (total > 0))
            for c, requests in zip(sorted(self.routes[index].order), served, strict=True):
                self.served[c, index][hours] = requests * exactly
            if not deferred:
                left = np.where(is_met, 0.0, asked - total)
                self.shed[index][hours] = (
                    in_hours(self.window.demand_requests[index], hours) - asked + left
                )


def fill(
    wanted: Floats, room: Room, route: Route, served: Mapping[int, Floats]
) -> tuple[Hours, Floats]:
    """Fill clusters in order up to their preferred utilisation, then spread the rest over the remaining capacity.

    Machines rented by the hour are offered what the others, filled as far as their waits allow, have no room for; as
    many are held as their own waits ask for. Clusters that are alike take in proportion to what each has free, as one
    of all their nodes would.
    ``wanted`` has shape (hours,). What each cluster takes is written to ``served``, by cluster, so far zeros of shape
    (hours,), and the node-equivalents to ``room.used``. Returns the hours, and the requests, that found no room.
    """
    hours, left = _offer(wanted, ALL, route.paid_tiers, room, route, served)
    if route.allowed is not None and left.size:
        if room.preferred_utilisation < 1.0:
            left = _spread(left, hours, room, route, served, route.allowed)
        hours, left = _offer(
            left, hours, route.rented_tiers, replace(room, preferred_utilisation=1.0), route, served
        )
    if not left.size or room.preferred_utilisation == 1.0:
        return hours, left
    return hours, _spread(left, hours, room, route, served)


def _offer(
    left: Floats,
    hours: Hours,
    tiers: Sequence[Sequence[int]],
    room: Room,
    route: Route,
    served: Mapping[int, Floats],
) -> tuple[Hours, Floats]:
    """Offer requests to tiers in order up to their preferred nodes; return the remaining hours and requests."""
    for tier in tiers:
        free = [
            room.free_requests(room.preferred(cluster, hours), route, cluster, hours)
            for cluster in tier
        ]
        total = free[0] if len(tier) == 1 else sum(free[1:], start=free[0].copy())
        short = np.flatnonzero(total < left)
        taken = np.minimum(total, left)
        share = taken / safe_denominator(total) if len(tier) > 1 else None
        for cluster, most in zip(tier, free, strict=True):
            given = taken if share is None else most * share
            served[cluster][hours] = given
            room.used[cluster][hours] += route.nodes(given, cluster, hours)
        if short.size < _FEW * left.size:
            left = in_hours(left, short) - in_hours(taken, short)
            hours = short if isinstance(hours, slice) else hours[short]
        else:
            left = left - taken
        if not short.size:
            break
    return hours, left


def _spread(
    left: Floats,
    hours: Hours,
    room: Room,
    route: Route,
    served: Mapping[int, Floats],
    allowed: Floats | None = None,
) -> Floats:
    """Spread requests over clusters in proportion to free capacity; return the requests without room.

    With a share allowed of each one's nodes, over those that are not rented by the hour, up to that.
    """
    over = route.order if allowed is None else [c for tier in route.paid_tiers for c in tier]
    usable = [room.usable[c][hours] for c in over]
    if allowed is not None:
        share = allowed if allowed.shape[1] == 1 else allowed[:, hours]
        usable = [nodes * share[c] for c, nodes in zip(over, usable, strict=True)]
    free = [
        room.free_requests(nodes, route, c, hours) for c, nodes in zip(over, usable, strict=True)
    ]
    total = sum(free, start=np.zeros_like(left))
    share = np.minimum(left, total) / safe_denominator(total)
    for cluster, most in zip(over, free, strict=True):
        taken = np.multiply(most, share, out=most)
        served[cluster][hours] += taken
        room.used[cluster][hours] += route.nodes(taken, cluster, hours)
    return np.maximum(left - total, 0.0)


def with_carried(
    plan: Plan, window: WindowInput, routes: Sequence[Route] | None = None
) -> WindowInput:
    """Return a window with the load that hosted machines carry in site outages; pass ``routes`` where known.

    With the site lit for a share l of an hour, a provider's n nodes are alone for 1 − l of it: of d·(1 − l) requests
    that come then, n·(1 − l) node-hours serve what they can, by priority. Work that can wait is not lost, and waits.
    """
    if window.lit_fraction is None or plan.on_site.all():
        return window
    routes = routes_of(plan, window) if routes is None else routes
    dark = 1.0 - window.lit_fraction
    alone = window.nodes * (1.0 - plan.on_site)[:, None] * dark
    room = Room(usable=alone, preferred_utilisation=1.0, used=np.zeros_like(alone))
    carried: dict[tuple[int, int], Floats] = {}
    for w in plan.by_priority:
        if not plan.workloads[w].deadline_h:
            served = {c: np.zeros(dark.size) for c in routes[w].order}
            fill(window.demand_requests[w] * dark, room, routes[w], served)
            carried.update(((c, w), requests) for c, requests in served.items() if requests.any())
    return replace(window, carried_requests=carried)


def allowed_loads(plan: Plan, requests: Floats) -> Floats:
    """Return the load to which each cluster may be filled within its SLO, shape (clusters, hours or 1).

    The highest, up to capacity, at which the promised share of each of its workloads that cannot wait is in time; no
    less than the load up to which clusters are filled in order. Bursts are those of the hours' requests, shape
    (workloads, hours).
    """
    cells = round(LOAD_CELLS / MOST_LOAD)

    allowance = 1.0 - np.broadcast_to(plan.slo_attainments, len(plan.workloads))

    def kept(missed: Floats, allowance: Floats | float) -> Floats:
        attainment = np.minimum.accumulate(missed[..., : cells + 1] <= allowance, axis=-1)
        return np.asarray((attainment.sum(axis=-1) - 1) / cells)

    by_pair = kept(plan.late_tables + plan.refused_tables, allowance[:, np.newaxis])
    by_pair[:, [w for w, workload in enumerate(plan.workloads) if workload.deadline_h]] = 1.0
    by_pair[tuple(np.array([*plan.burst_tables], dtype=np.intp).reshape(-1, 2).T)] = 1.0
    allowed = by_pair.min(axis=1, initial=1.0)[:, np.newaxis]
    for (c, w), by_rate in plan.burst_tables.items():
        assert plan.no_burst_tables is not None  # what bursts add, they add to something
        at_rates = kept(
            plan.no_burst_tables[:, c, w].sum(axis=0) + by_rate.added.sum(axis=0),
            float(allowance[w]),
        )
        between = by_rate.between(requests[w])
        row = between.row
        further = between.further
        if allowed.shape[1] == 1:
            allowed = np.repeat(allowed, row.size, axis=1)
        at_hours = at_rates[row] * (1.0 - further) + np.append(at_rates, 0.0)[row + 1] * further
        allowed[c] = np.minimum(allowed[c], at_hours)
    return np.asarray(np.clip(allowed, plan.preferred_utilisation, 1.0))


def routes_of(plan: Plan, window: WindowInput) -> list[Route]:
    """Return each workload's clusters in routing order, and the requests per node and hour on each."""
    table = plan.requests_per_node_h
    months = plan.months.hour_periods[window.hours] if table.shape[2] > 1 else None
    rents = any(workload.rented_tiers for workload in plan.workloads)
    waits = allowed_loads(plan, window.demand_requests) if rents else None
    any_wait = np.ones((len(plan.clusters), 1)) if rents else None
    routes = []
    for w, workload in enumerate(plan.workloads):
        rates = [_NOWHERE] * len(plan.clusters)
        for c in workload.cluster_order:
            rate = table[c, w] if months is None else table[c, w].take(months)
            speed = window.speed.get((c, w))
            rates[c] = rate if speed is None else rate * speed
        tokens = workload.tokens_per_request[:1]
        outgrown = None
        if months is not None:
            tokens = workload.tokens_per_request.take(months)
            if np.any(table[list(workload.cluster_order), w] <= 0.0):
                outgrown = np.all(table[:, w] <= 0.0, axis=0).take(months)
        rented = workload.rented_tiers
        allowed = any_wait if workload.deadline_h else waits
        routes.append(
            Route(
                workload.cluster_tiers, rates, tokens, rented, allowed if rented else None, outgrown
            )
        )
    return routes
