"""The dispatch policy: which cluster serves which requests, hour by hour.

*Offer.* Workloads that cannot wait are taken by priority. Each is offered to its clusters in the order of the routing
policy, tier by tier, up to the preferred utilisation of each (:func:`fill`); clusters of one tier take in proportion to
what they have free. The rest is spread over all that is still free. Machines rented by the hour come last: they are
offered what the others have no room for once these are filled as far as their waits allow.

*Plan anew.* An order of offers may leave work undone that another order would serve, or one workload starved beside
another of its priority. Hours in which work is left over, of workloads that share clusters, are planned anew as a whole
by a linear program (:mod:`planner.engine.allocation`): priority by priority the lowest share served is raised as far as
it goes, then the next lowest, and so on; then come least rent and least power. Hours in which one cluster is crowded
while another has preferred nodes free are planned anew for the least crowding, where that eases it.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.elementwise import Hours, in_hours, quotient, safe_denominator
from planner.engine.allocation import (
    Demand,
    Steps,
    allocate,
    node_steps,
    power_steps,
    waiting_steps,
)
from planner.engine.hourly import ALL, Route, WindowInput, serving
from planner.engine.power import it_kw
from planner.engine.scan import defer, needed
from planner.plan.load_tables import highest_load
from planner.plan.plan import Plan
from planner.plan.site import allowed_it_kw
from planner.records import record

TOLERANCE = 1e-7
"""Of what is compared: a hundred times what a linear program may be off by, and far below any figure that is shown."""
_WORTH_RENTING = 1e-3
"""Of the tokens that can wait: what must be saved from being shed by renting for them at once."""
_FEW_HOURS = 0.25
"""Below this share of hours, offering the hours alone is cheaper: 5% of a replication."""
_NO_RATE = np.zeros(1)
"""The rate of clusters that do not serve a workload."""


@record
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

    def crowding(self, used: Floats, clusters: Ints, hours: Ints) -> Floats:
        """Return the nodes of all clusters at work beyond their preferred utilisation, shape (some hours,).

        ``used`` has shape (clusters, some hours).
        """
        beyond = np.zeros(hours.size)
        for c, nodes in zip(clusters, used, strict=True):
            beyond += np.maximum(nodes - self.preferred(c, hours), 0.0)
        return beyond

    def crowded_hours(self, clusters: Ints) -> Ints:
        """Return the hours in which one cluster exceeds its preferred utilisation while another is below it."""
        if self.preferred_utilisation == 1.0:
            return np.zeros(0, dtype=np.intp)
        is_exceeded = np.zeros(self.usable.shape[1], dtype=np.bool_)
        for c in clusters:
            is_exceeded |= self.used[c] > self.preferred(c, ALL)
        hours = np.flatnonzero(is_exceeded)  # few
        is_above = np.zeros(hours.size, dtype=np.bool_)
        is_below = np.zeros(hours.size, dtype=np.bool_)
        for c in clusters:
            preferred = self.preferred(c, hours)
            is_above |= self.used[c][hours] > preferred * (1.0 + TOLERANCE)
            is_below |= self.used[c][hours] < preferred * (1.0 - TOLERANCE)
        return hours[is_above & is_below]


class Router:
    """Routes the requests of one window to clusters."""

    def __init__(
        self, plan: Plan, window: WindowInput, routes: Sequence[Route] | None = None
    ) -> None:
        """Start with idle clusters; pass ``routes`` where they are already known."""
        self.plan = plan
        self.window = window
        self.routes = routes_of(plan, window) if routes is None else routes
        self.room = Room(
            usable=window.nodes,
            preferred_utilisation=plan.preferred_utilisation,
            used=np.zeros_like(window.nodes),
        )
        hours = window.nodes.shape[1]
        pairs = [(c, w) for w, route in enumerate(self.routes) for c in sorted(route.order)]
        self.served = dict(zip(pairs, np.zeros((len(pairs), hours)), strict=True))
        """Requests by cluster and workload, where it may go there, shape (hours,)."""
        self.shed = np.zeros((len(plan.workloads), hours))
        """Requests, shape (workloads, hours)."""
        self.waiting = [*window.waiting_requests]
        """Per workload, requests that still wait at the end, by hour of arrival."""

    def route(self) -> None:
        """Route all workloads to the available nodes; under a cap, deferrable work within the power allowed."""
        plan = self.plan
        window = self.window
        urgent = [w for w in plan.by_priority if not plan.workloads[w].deadline_h]
        is_short = np.zeros(self.shed.shape, dtype=np.bool_)
        for (c, w), requests in window.carried_requests.items():
            self.room.used[c] += self.routes[w].nodes(requests, c, ALL)
        for w in urgent:
            is_short[w] = self._offer_all(w)
        for group in self._sharing(urgent):
            # One workload alone has been offered every cluster it may use.
            if len(group) > 1:
                hours = np.flatnonzero(is_short[group].any(axis=0))
                demand = self._demand(self._evenly_lit(hours), group)
                self._settle(demand, self._allocate(demand, node_steps(plan)))
                self._ease_crowding(group)
        self._defer_all(urgent)
        self.room = replace(self.room, usable=window.nodes)

    def copied(self) -> Router:
        """Return an independent copy with everything routed so far."""
        twin = copy.copy(self)
        twin.served = {pair: requests.copy() for pair, requests in self.served.items()}
        twin.shed = self.shed.copy()
        twin.room = replace(self.room, used=self.room.used.copy())
        twin.waiting = [*self.waiting]
        return twin

    def place(self, hours: Ints, workloads: Sequence[int], allowed_kw: Floats) -> None:
        """Allocate some workloads anew in some hours, within an IT power of shape (some hours,)."""
        demand = self._demand(hours, workloads)
        self._settle(demand, self._allocate(demand, power_steps(self.plan), allowed_kw))

    def wanted_nodes(self) -> Floats:
        """Return the node-equivalents needed if no deferrable work were delayed, shape (clusters, hours)."""
        room = replace(self.room, used=self.room.used.copy())
        for w in self.plan.by_priority:
            if self.plan.workloads[w].deadline_h:
                arrivals = self.window.demand_requests[w]
                route = self.routes[w]
                delayed = np.maximum(arrivals - sum(self._served(w).values()), 0.0)
                unrecorded = {c: np.zeros(arrivals.size) for c in route.order}
                fill(np.minimum(delayed, room.spare(route)), room, route, unrecorded)
        return room.used

    def served_requests(self, owner: Sequence[int]) -> Floats:
        """Return the requests served, shape (owners, workloads, hours), clusters summed by owner."""
        served = np.zeros((max(owner) + 1, *self.shed.shape))
        for (c, w), requests in self.served.items():
            served[owner[c], w] += requests
        return served

    def _served(self, w: int) -> dict[int, Floats]:
        """Return the requests of a workload served by each cluster, in scenario order."""
        return {c: self.served[c, w] for c in sorted(self.routes[w].order)}

    def _offer_all(self, w: int) -> Bools:
        """Offer an urgent workload's arrivals to its clusters; return the hours in which they lack room."""
        window = self.window
        route = self.routes[w]
        self.shed[w] = window.dark_requests(w)
        requests = window.demand_requests[w] - self.shed[w]
        carried = window.carried_by(w)
        if carried:
            requests = np.maximum(requests - sum(carried.values()), 0.0)
        hours, unserved = fill(requests, self.room, route, self._served(w))
        for c, carried_requests in carried.items():
            self.served[c, w] += carried_requests
        self.shed[w][hours] += unserved
        is_short = np.zeros(requests.size, dtype=np.bool_)
        is_short[hours] = unserved > 0.0
        if route.outgrown is not None:
            is_short &= ~route.outgrown
        return is_short

    def _sharing(self, workloads: Sequence[int]) -> list[list[int]]:
        """Return the workloads in groups, so that different groups have no cluster in common."""
        groups: list[list[int]] = []
        for w in workloads:
            order = set(self.routes[w].order)
            joined = [w]
            separate = []
            for group in groups:
                if order.isdisjoint(serving(self.routes, group).tolist()):
                    separate.append(group)
                else:
                    joined += group
            groups = [*separate, joined]
        return [[w for w in workloads if w in group] for group in groups]

    def _ease_crowding(self, workloads: Sequence[int]) -> None:
        """Plan as a whole the hours in which a cluster is crowded while another is not, where that eases it."""
        clusters = serving(self.routes, workloads)
        is_rented = np.array([self.plan.clusters[c].is_paid_by_the_hour for c in clusters])
        paid = clusters[~is_rented]
        hours = self._evenly_lit(self.room.crowded_hours(paid))
        if not hours.size:
            return
        used = _in_clusters(self.room.used, clusters, hours)
        nodes = _in_clusters(self.room.usable, clusters, hours)
        # Nobody rents more machines for the sake of waits on others.
        nodes[is_rented] = used[is_rented]
        demand = self._demand(hours, workloads)
        allocation = allocate(self.routes, nodes, demand, waiting_steps(self.plan))
        # Elsewhere the routing policy decides.
        crowding = self.room.crowding(used[~is_rented], paid, hours)
        new_crowding = self.room.crowding(allocation.sum(axis=1)[~is_rented], paid, hours)
        eased = np.flatnonzero(new_crowding < crowding * (1.0 - TOLERANCE))
        self._settle(demand.part(eased), in_hours(allocation, eased))

    def _defer_all(self, urgent: Sequence[int]) -> None:
        """Serve all deferrable workloads, which come after the urgent ones in priority order.

        Renting as late as may be can leave fewer idle hours to those served last, or no machines to which others could
        make way: where much would be shed by it, all rent at once.
        """
        order = self.plan.by_priority
        deferrable = order[len(urgent) :]
        routes = [self.routes[w] for w in deferrable]
        rents = any(route.rented_tiers and route.paid_tiers for route in routes)
        eager = self.copied() if rents else None
        for place in range(len(urgent), len(order)):
            self._defer(order[: place + 1], rents_late=True)
        if eager is None or not self.shed[[*deferrable]].any():
            return
        for place in range(len(urgent), len(order)):
            eager._defer(order[: place + 1], rents_late=False)
        # At their mean length of the first month.
        tokens = np.array([self.plan.workloads[w].tokens_per_request[0] for w in deferrable])
        saved = (self.shed - eager.shed)[[*deferrable]].sum(axis=1)
        arrivals = self.window.demand_requests[[*deferrable]].sum(axis=1)
        if tokens @ saved >= _WORTH_RENTING * (tokens @ arrivals):
            self.room = eager.room
            self.served = eager.served
            self.shed = eager.shed
            self.waiting = eager.waiting

    def _defer(self, workloads: Sequence[int], *, rents_late: bool) -> None:
        """Serve the last of the given workloads, which is deferrable, from capacity left by all before it."""
        w = workloads[-1]
        route = self.routes[w]
        arrivals = self.window.demand_requests[w]
        waiting = self.waiting[w]
        self.room = replace(self.room, usable=self.window.nodes)
        if route.rented_tiers and route.paid_tiers and rents_late:
            self._rent_for(workloads)
        free = self.room.spare(route)
        room, is_capped = self._room_within_power(free, workloads)
        served, self.shed[w], self.waiting[w] = defer(arrivals, room, waiting)
        # Others are asked to move aside only where the queue uses up its room: with more there, no other hour can be
        # left with a queue.
        is_full = room - served <= TOLERANCE * (room + 1.0)
        neighbours = next(group for group in self._sharing(workloads) if w in group)
        hours = self._movable_hours(np.flatnonzero(is_full | (served > free)), neighbours)
        if not hours.size:
            # To the last bit as below, or an hour would show whether another one finds more room.
            fill(np.minimum(served, free), self.room, route, self._served(w))
            return
        demand, allocation = self._make_room(hours, neighbours)
        capacity = sum(self._requests(demand, allocation, -1).values())
        is_gain = capacity > free[hours] * (1.0 + TOLERANCE)
        limit = np.where(is_gain, capacity, free[hours])
        room[hours] = np.where(is_capped[hours], np.minimum(room[hours], limit), limit)
        served, self.shed[w], self.waiting[w] = defer(arrivals, room, waiting)
        fill(np.minimum(served, free), self.room, route, self._served(w))
        # The rest is served by the program's plan, of which the last workload takes the part that it has requests for.
        moved = np.flatnonzero(is_gain & (served[hours] > free[hours]))
        demand.requests[-1] = served[hours]
        allocation[:, -1] *= quotient(served[hours], np.maximum(capacity, served[hours]))
        self._settle(demand.part(moved), in_hours(allocation, moved))

    def _rent_for(self, workloads: Sequence[int]) -> None:
        """Make hourly rented machines usable by the last workload as far as its deadline requires."""
        w = workloads[-1]
        route = self.routes[w]
        rented = [c for tier in route.rented_tiers for c in tier]
        all_room = self.room.spare(route)
        usable = self.window.nodes.copy()
        usable[rented] = self.room.used[rented]
        self.room = replace(self.room, usable=usable)
        paid_room = self.room.spare(route)
        rented_room = np.maximum(all_room - paid_room, 0.0)
        powered_room, _ = self._room_within_power(paid_room, workloads)
        arrivals = self.window.demand_requests[w]
        borrowed = needed(arrivals, powered_room, rented_room, self.waiting[w])
        idle = self.window.nodes[rented] - usable[rented]
        usable[rented] += quotient(borrowed, rented_room) * idle

    def _room_within_power(self, free: Floats, workloads: Sequence[int]) -> tuple[Floats, Bools]:
        """Return the free capacity for the last workload under the power cap, and whether each hour is at the cap."""
        plan = self.plan
        window = self.window
        room = free.copy()
        if window.cap_kw is None:
            return room, np.zeros(free.size, dtype=np.bool_)
        allowed_kw = allowed_it_kw(plan, window.cap_kw, window.hours)
        is_capped = allowed_kw < it_kw(plan, window.nodes, window.nodes).sum(axis=0)
        hours = np.flatnonzero(is_capped)
        demand, allocation = self._make_room(hours, workloads, allowed_kw[hours])
        # A little less, so that what was found possible stays so when it is planned again.
        room[hours] = sum(self._requests(demand, allocation, -1).values()) * (1.0 - TOLERANCE)
        # Where part of an hour is dark, others are not moved aside.
        uneven = np.setdiff1d(hours, self._evenly_lit(hours))
        room[uneven] = np.minimum(room[uneven], free[uneven])
        return room, is_capped

    def _movable_hours(self, hours: Ints, workloads: Sequence[int]) -> Ints:
        """Return the hours in which a workload other than the last has a second cluster to move to."""
        hours = self._evenly_lit(hours)
        is_movable = np.zeros(hours.size, dtype=np.bool_)
        for w in workloads[:-1]:
            usable = _in_clusters(self.room.usable, self.routes[w].order, hours)
            is_movable |= (usable > 0.0).sum(axis=0) > 1
        return hours[is_movable]

    def _evenly_lit(self, hours: Ints) -> Ints:
        """Return the hours without those of a partial site outage in which a provider carries load."""
        if self.window.lit_fraction is None or not self.window.carried_requests:
            return hours
        return np.asarray(hours[np.isin(self.window.lit_fraction[hours], (0.0, 1.0))])

    def _make_room(
        self, hours: Ints, workloads: Sequence[int], allowed_kw: Floats | None = None
    ) -> tuple[Demand, Floats]:
        """Allocate some hours anew so that the last workload gets the most without less service to the others."""
        demand = self._demand(hours, workloads)
        route = self.routes[workloads[-1]]
        # As much as all its clusters could serve.
        demand.requests[-1] = 0.0
        for c in route.order:
            demand.requests[-1] += in_hours(self.room.usable[c], hours) * route.rate(c, hours)
        steps = node_steps(self.plan) if allowed_kw is None else power_steps(self.plan)
        return demand, self._allocate(demand, steps, allowed_kw)

    def _demand(self, hours: Ints, workloads: Sequence[int]) -> Demand:
        """Return workloads' demand in some hours: arrivals of urgent ones, scheduled service of deferrable ones."""
        requests = np.empty((len(workloads), hours.size))
        levels = []
        for place, w in enumerate(workloads):
            workload = self.plan.workloads[w]
            if workload.deadline_h:
                # Each has a level of its own: those before it have their service scheduled.
                levels.append(workload.priority + 1 + place)
                requests[place] = sum(
                    in_hours(served, hours) for served in self._served(w).values()
                )
            else:
                levels.append(workload.priority)
                requests[place] = in_hours(self.window.reached_requests(w), hours)
        return Demand(workloads=workloads, levels=levels, requests=requests, hours=hours)

    def _allocate(self, demand: Demand, steps: Steps, allowed_kw: Floats | None = None) -> Floats:
        """Return the optimal allocation: node-equivalents by serving cluster, workload and hour."""
        clusters = serving(self.routes, demand.workloads)
        nodes = _in_clusters(self.room.usable, clusters, demand.hours)
        return allocate(self.routes, nodes, demand, steps, allowed_kw)

    def _requests(self, demand: Demand, allocation: Floats, place: int) -> dict[int, Floats]:
        """Return the requests that an allocation serves of one of its workloads, by cluster, shape (some hours,)."""
        route = self.routes[demand.workloads[place]]
        requests = {}
        for row, c in enumerate(serving(self.routes, demand.workloads).tolist()):
            if c in route.order:
                requests[c] = allocation[row, place] * route.rate(c, demand.hours)
        return requests

    def _settle(self, demand: Demand, allocation: Floats) -> None:
        """Overwrite the served and shed requests of some hours with a new allocation."""
        hours = demand.hours
        clusters = serving(self.routes, demand.workloads)
        for c, nodes in zip(clusters, allocation, strict=True):
            self.room.used[c][hours] = nodes.sum(axis=0)
        for place, w in enumerate(demand.workloads):
            served = self._requests(demand, allocation, place)
            total = sum(served.values())
            requests = demand.requests[place]
            is_deferrable = self.plan.workloads[w].deadline_h > 0
            # But for rounding, what is scheduled is served, and so is all that came where there is room for all.
            is_met = (total >= requests * (1.0 - TOLERANCE)) | is_deferrable
            correction = np.ones_like(requests)
            np.divide(requests, total, out=correction, where=is_met & (total > 0.0))
            for c, cluster_requests in served.items():
                self.served[c, w][hours] = cluster_requests * correction
            if not is_deferrable:
                dark = in_hours(self.window.demand_requests[w], hours) - requests
                self.shed[w][hours] = dark + np.where(is_met, 0.0, requests - total)


def _in_clusters(nodes: Floats, clusters: Iterable[int], hours: Ints) -> Floats:
    """Return some hours of some clusters, shape (some clusters, some hours)."""
    # Hours are few: those of a cluster first, so that no series is copied whole.
    return np.stack([in_hours(nodes[c], hours) for c in clusters])


def fill(
    requests: Floats, room: Room, route: Route, served: Mapping[int, Floats]
) -> tuple[Hours, Floats]:
    """Fill clusters in order up to their preferred utilisation, then spread the rest over the remaining capacity.

    Machines rented by the hour are offered what the others, filled as far as their waits allow, have no room for; as
    many are held as their own waits ask for. Clusters that are alike take in proportion to what each has free, as one
    of all their nodes would.
    ``requests`` has shape (hours,). What each cluster takes is written to ``served``, by cluster, so far zeros of shape
    (hours,), and the node-equivalents to ``room.used``. Returns the hours, and the requests, that found no room.
    """
    hours, unserved = _offer(requests, ALL, route.paid_tiers, room, route, served)
    if route.allowed is not None and unserved.size:
        if room.preferred_utilisation < 1.0:
            unserved = _spread(unserved, hours, room, route, served, route.allowed)
        full_room = replace(room, preferred_utilisation=1.0)
        hours, unserved = _offer(unserved, hours, route.rented_tiers, full_room, route, served)
    if not unserved.size or room.preferred_utilisation == 1.0:
        return hours, unserved
    return hours, _spread(unserved, hours, room, route, served)


def _offer(
    unserved: Floats,
    hours: Hours,
    tiers: Sequence[Sequence[int]],
    room: Room,
    route: Route,
    served: Mapping[int, Floats],
) -> tuple[Hours, Floats]:
    """Offer requests to tiers in order up to their preferred nodes; return the remaining hours and requests."""
    for tier in tiers:
        free = [room.free_requests(room.preferred(c, hours), route, c, hours) for c in tier]
        total = free[0] if len(tier) == 1 else sum(free[1:], start=free[0].copy())
        short = np.flatnonzero(total < unserved)
        accepted = np.minimum(total, unserved)
        if len(tier) == 1:
            parts = [accepted]
        else:
            # The whole of it to the last bit where the others are empty: as if they were not there yet.
            divisor = safe_denominator(total)
            parts = [accepted * (cluster_free / divisor) for cluster_free in free]
        for c, part in zip(tier, parts, strict=True):
            served[c][hours] = part
            room.used[c][hours] += route.nodes(part, c, hours)
        if short.size < _FEW_HOURS * unserved.size:
            unserved = in_hours(unserved, short) - in_hours(accepted, short)
            hours = short if isinstance(hours, slice) else hours[short]
        else:
            unserved = unserved - accepted
        if not short.size:
            break
    return hours, unserved


def _spread(
    unserved: Floats,
    hours: Hours,
    room: Room,
    route: Route,
    served: Mapping[int, Floats],
    allowed: Floats | None = None,
) -> Floats:
    """Spread requests over clusters in proportion to free capacity; return the requests without room.

    With a share allowed of each one's nodes, over those that are not rented by the hour, up to that.
    """
    if allowed is None:
        clusters = route.order
        usable = [room.usable[c][hours] for c in clusters]
    else:
        clusters = [c for tier in route.paid_tiers for c in tier]
        load = allowed if allowed.shape[1] == 1 else allowed[:, hours]
        usable = [room.usable[c][hours] * load[c] for c in clusters]
    free = [
        room.free_requests(nodes, route, c, hours)
        for c, nodes in zip(clusters, usable, strict=True)
    ]
    total = sum(free, start=np.zeros_like(unserved))
    share = np.minimum(unserved, total) / safe_denominator(total)
    for c, cluster_free in zip(clusters, free, strict=True):
        part = np.multiply(cluster_free, share, out=cluster_free)
        served[c][hours] += part
        room.used[c][hours] += route.nodes(part, c, hours)
    return np.maximum(unserved - total, 0.0)


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
    dark_fraction = 1.0 - window.lit_fraction
    hosted_nodes = window.nodes * (1.0 - plan.on_site)[:, np.newaxis] * dark_fraction
    room = Room(usable=hosted_nodes, preferred_utilisation=1.0, used=np.zeros_like(hosted_nodes))
    carried: dict[tuple[int, int], Floats] = {}
    for w in plan.by_priority:
        if not plan.workloads[w].deadline_h:
            served = {c: np.zeros(dark_fraction.size) for c in routes[w].order}
            fill(window.demand_requests[w] * dark_fraction, room, routes[w], served)
            carried.update(((c, w), requests) for c, requests in served.items() if requests.any())
    return replace(window, carried_requests=carried)


def allowed_loads(plan: Plan, requests: Floats) -> Floats:
    """Return the load to which each cluster may be filled within its SLO, shape (clusters, hours or 1).

    The highest, up to capacity, at which the promised share of each of its workloads that cannot wait is in time; no
    less than the load up to which clusters are filled in order. Bursts are those of the hours' requests, shape
    (workloads, hours).
    """
    allowance = 1.0 - np.broadcast_to(plan.slo_attainments, len(plan.workloads))
    by_pair = highest_load(plan.late_tables + plan.refused_tables, allowance[:, np.newaxis])
    for w, workload in enumerate(plan.workloads):
        if workload.deadline_h:
            by_pair[:, w] = 1.0
    # Where bursts even out with the rate, hour by hour below.
    for pair in plan.burst_tables:
        by_pair[pair] = 1.0
    allowed = by_pair.min(axis=1, initial=1.0)[:, np.newaxis]
    for (c, w), by_rate in plan.burst_tables.items():
        assert plan.no_burst_tables is not None  # what bursts add, they add to something
        missed = plan.no_burst_tables[:, c, w].sum(axis=0) + by_rate.added.sum(axis=0)
        loads = highest_load(missed, float(allowance[w]))
        interpolation = by_rate.between(requests[w])
        row = interpolation.row
        weight = interpolation.further
        if allowed.shape[1] == 1:
            allowed = np.repeat(allowed, row.size, axis=1)
        hourly = loads[row] * (1.0 - weight) + np.append(loads, 0.0)[row + 1] * weight
        allowed[c] = np.minimum(allowed[c], hourly)
    return np.asarray(np.clip(allowed, plan.preferred_utilisation, 1.0))


def routes_of(plan: Plan, window: WindowInput) -> list[Route]:
    """Return each workload's clusters in routing order, and the requests per node and hour on each."""
    table = plan.requests_per_node_h
    months = plan.months.hour_periods[window.hours] if table.shape[2] > 1 else None
    rents = any(workload.rented_tiers for workload in plan.workloads)
    urgent_loads = _allowed_by_cluster(plan, window) if rents else None
    full_loads = np.ones((len(plan.clusters), 1))
    routes = []
    for w, workload in enumerate(plan.workloads):
        rates = [_NO_RATE] * len(plan.clusters)
        for c in workload.cluster_order:
            rate = _rate(table[:, w], window.rows(c, ALL), months)
            speed = window.speed.get((c, w))
            rates[c] = rate if speed is None else rate * speed
        outgrown = None
        if months is not None and np.any(table[:, w] <= 0.0):
            outgrown = np.all(table[:, w] <= 0.0, axis=0).take(months)
        allowed = None
        if workload.rented_tiers:
            allowed = full_loads if workload.deadline_h else urgent_loads
        routes.append(
            Route(workload.cluster_tiers, rates, workload.rented_tiers, allowed, outgrown)
        )
    return routes


def _rate(table: Floats, rows: Ints, months: Ints | None) -> Floats:
    """Return the rates of some rows of a table of shape (rows, months), shape (hours,) or (1,)."""
    if months is None:
        return np.asarray(table[:, 0].take(rows))
    if rows.size == 1:
        return np.asarray(table[rows[0]].take(months))
    return np.asarray(table.ravel().take(rows * table.shape[1] + months))


def _allowed_by_cluster(plan: Plan, window: WindowInput) -> Floats:
    """Return the load to which each cluster may be filled within its SLO, shape (clusters, hours or 1)."""
    by_row = allowed_loads(plan, window.demand_requests)
    if window.figures is None:
        return by_row
    hours = np.arange(window.nodes.shape[1])
    allowed = np.ones((len(plan.clusters), hours.size))
    for c in range(len(plan.clusters)):
        for row, part in window.parts(c):
            allowed[c][part] = by_row[row] if by_row.shape[1] == 1 else by_row[row][part]
    return allowed
