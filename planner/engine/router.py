"""Who is served where, hour by hour: the routing policy where it serves all, and a plan of the whole hour elsewhere."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats
from planner.elementwise import at_least, in_hours, quotient
from planner.engine.allocation import PLENTY, Steps, Wants, allocate, node_steps, power_steps
from planner.engine.hourly import WindowInput
from planner.engine.power import it_kw
from planner.engine.routing import Room, Way, crowded, fill, serving, spare
from planner.engine.scan import defer, needed
from planner.plan.plan import LOAD_CELLS, MOST_LOAD, Plan
from planner.plan.power import allowed_it_kw

Chosen = NDArray[np.intp]
_LEVELS = 2  # of utilisation at which crowded clusters are levelled
_SLACK = 1e-8  # of what is asked for: what a linear program may be off by
_BACK_OFF = 1e-9  # so that what was found possible stays so when it is planned again
_GAIN = 1e-6  # of what is free: the least gain for which others are moved aside
_NOWHERE = np.zeros(1)  # the rate of clusters that do not serve a workload
_WORTH = 1e-3  # of what can wait: what is served more by renting for it at once
_NOTHING = 1e-300  # stands for no requests where they are divided by


class Router:
    """Routes the requests of one window."""

    def __init__(self, plan: Plan, window: WindowInput, ways: Sequence[Way] | None = None) -> None:
        """Begin with idle clusters; ``ways`` where the caller knows them already."""
        self.plan, self.window = plan, window
        self.ways = ways_of(plan, window) if ways is None else ways
        shape = (len(plan.workloads), window.nodes.shape[1])
        self.room = Room.empty(window.nodes, plan.preferred_utilisation)
        pairs = [(c, w) for w, way in enumerate(self.ways) for c in sorted(way.order)]
        self.served = dict(zip(pairs, np.zeros((len(pairs), shape[1])), strict=True))
        """Requests by cluster and workload, where it may go there, shape (hours,)."""
        self.shed = np.zeros(shape)
        """Requests, shape (workloads, hours)."""
        self.waiting = [*window.waiting_requests]
        """Per workload, requests that still wait at the end, by hour of arrival."""

    def route(self) -> None:
        """Route workloads by priority over the nodes there are; under a cap, deferrable work within what power allows.

        Each is offered to its clusters by the routing policy. That is a matter of order, and may leave work undone that
        another order would serve; such hours are planned anew, all workloads together.
        """
        plan, window = self.plan, self.window
        short = np.zeros(self.shed.shape, dtype=np.bool_)
        urgent = [index for index in plan.by_priority if not plan.workloads[index].deadline_h]
        for (c, index), requests in window.carried_requests.items():
            self.room.used[c] += self.ways[index].nodes(requests, c, slice(None))
        for index in urgent:
            self.shed[index] = window.dark_requests(index)
            wanted = window.demand_requests[index] - self.shed[index]
            carried = window.carried_by(index)
            if carried:
                wanted = at_least(0.0, wanted - sum(carried.values()))
            hours, left = fill(wanted, self.room, self.ways[index], self._served(index))
            for c, requests in carried.items():
                self.served[c, index] += requests
            self.shed[index][hours] += left
            outgrown = self.ways[index].outgrown
            short[index][hours] = (left > 0.0) if outgrown is None else (left > 0.0) & ~outgrown[hours]
        for group in self._sharing(urgent):
            if len(group) > 1:  # one workload alone has been offered every cluster it may use
                self.place(self._evenly_lit(np.flatnonzero(short[group].any(axis=0))), group)
                self._relieve(group)
        self._defer_all(len(urgent))
        self.room = replace(self.room, usable=window.nodes)

    def copied(self) -> Router:
        """Return the same, which goes on by itself from what is routed so far."""
        other = copy.copy(self)
        other.served, other.shed = {on: was.copy() for on, was in self.served.items()}, self.shed.copy()
        other.room, other.waiting = replace(self.room, used=self.room.used.copy()), [*self.waiting]
        return other

    def _defer_all(self, urgent: int) -> None:
        """Serve all work that can wait, which comes after so many workloads that cannot.

        It rents machines by the hour for what cannot wait for others. That may leave fewer idle hours to those served
        last, or no machines to which others could make way: where so much would be shed by it, all rent at once.
        """
        order = self.plan.by_priority
        rents = any(self.ways[index].rented_tiers and self.ways[index].paid_tiers for index in order[urgent:])
        at_once = self.copied() if rents else None
        for place in range(urgent, len(order)):
            self._defer(order[: place + 1], at_once=False)
        if at_once is None or not (lost := self._tokens(self.shed, order[urgent:])):
            return
        for place in range(urgent, len(order)):
            at_once._defer(order[: place + 1], at_once=True)
        spared = lost - self._tokens(at_once.shed, order[urgent:])
        if spared >= _WORTH * self._tokens(self.window.demand_requests, order[urgent:]):
            self.room, self.served = at_once.room, at_once.served
            self.shed, self.waiting = at_once.shed, at_once.waiting

    def _tokens(self, requests: Floats, which: Sequence[int]) -> float:
        """Return the tokens of requests of some workloads, at their mean length of the first month."""
        return float(sum(requests[w].sum() * self.plan.workloads[w].tokens_per_request[0] for w in which))

    def _served(self, index: int) -> dict[int, Floats]:
        """Return what a workload is served by cluster, in their order in the file."""
        return {c: self.served[c, index] for c in sorted(self.ways[index].order)}

    def served_requests(self, owner: Sequence[int]) -> Floats:
        """Return what is served of each workload, shape (owners, workloads, hours), with the owner of each cluster."""
        served = np.zeros((max(owner) + 1, *self.shed.shape))
        for (c, index), requests in self.served.items():
            served[owner[c], index] += requests
        return served

    def _sharing(self, which: Sequence[int]) -> list[list[int]]:
        """Return some workloads in groups, in order: those of different groups have no cluster in common."""
        groups: list[list[int]] = []
        for index in which:
            order = set(self.ways[index].order)
            met = [group for group in groups if order & set(serving(self.ways, group).tolist())]
            groups = [group for group in groups if group not in met]
            groups.append([*(other for group in met for other in group), index])
        return [[index for index in which if index in group] for group in groups]

    def place(self, hours: Chosen, which: Sequence[int], allowed_kw: Floats | None = None) -> None:
        """Plan some workloads anew, all together, in some hours; within some IT power, shape (some hours,)."""
        wants = self._wants(hours, which)
        self._settle(wants, self._allocate(wants, self._nodes(wants), allowed_kw))

    def wanted_nodes(self) -> Floats:
        """Return the node-equivalents that would work were deferrable work not held back, shape (clusters, hours)."""
        room = Room.empty(self.window.nodes, self.plan.preferred_utilisation)
        room.used[:] = self.room.used
        for index in self.plan.by_priority:
            if self.plan.workloads[index].deadline_h:
                came, way = self.window.demand_requests[index], self.ways[index]
                held_back = at_least(0.0, came - sum(self._served(index).values()))
                nowhere = {c: np.zeros(came.size) for c in way.order}
                fill(np.minimum(held_back, spare(room, way)), room, way, nowhere)
        return room.used

    def _relieve(self, which: Sequence[int]) -> None:
        """Level clusters where one is crowded while another has preferred nodes free.

        The lowest common utilisation at which everything is still served, of a few from the preferred one to 1.
        """
        on = serving(self.ways, which)
        rented = np.array([self.plan.clusters[c].is_paid_by_the_hour for c in on])
        levelled = on if rented.all() else on[~rented]
        hours = self._evenly_lit(np.flatnonzero(crowded(self.room, levelled)))
        for index in which:
            hours = hours[~self._is_undone(index, hours)]
        for level in np.linspace(self.plan.preferred_utilisation, 1.0, _LEVELS, endpoint=False).tolist():
            if not hours.size:
                return
            used, nodes = (sum(in_hours(of[c], hours) for c in levelled) for of in (self.room.used, self.window.nodes))
            tried = np.flatnonzero(used <= level * nodes)  # below the mean is hopeless
            wants = self._wants(hours[tried], which)
            nodes = level * self._nodes(wants)
            if not rented.all():  # nobody rents more for the sake of others' waits than he has to
                nodes[rented] = np.stack([in_hours(self.room.used[c], wants.hours) for c in on])[rented]
            given = self._allocate(wants, nodes)
            enough = np.ones(tried.size, dtype=np.bool_)
            for place, asked in enumerate(wants.requests):
                enough &= sum(self._requests(wants, given, place)) >= asked * (1.0 - _SLACK)
            kept = np.flatnonzero(enough)
            self._settle(wants.only(kept), in_hours(given, kept))
            hours = np.delete(hours, tried[kept])

    def _defer(self, which: Sequence[int], *, at_once: bool) -> None:
        """Serve the last of some workloads, which can wait, from what all before it leave.

        Moving others aside may leave more than is free as they stand. That is worked out for the hours in which what is
        free does not clear the queue; with more room there, no other hour can be left with a queue. Power that may run
        out makes room smaller, so hours that it can touch are worked out first of all.
        """
        index, arrivals = which[-1], self.window.demand_requests[which[-1]]
        beside = next(group for group in self._sharing(which) if index in group)
        way, waiting = self.ways[index], self.waiting[index]
        self.room = replace(self.room, usable=self.window.nodes)
        if way.rented_tiers and way.paid_tiers and not at_once:
            self._rent_for(which)
        free = spare(self.room, way)
        room, known = self._room_within_power(free, which)
        served, self.shed[index], self.waiting[index] = defer(arrivals, room, waiting)
        full = room - served <= _GAIN * room + _SLACK  # a full cluster may be free by a rounding that nobody fills
        queued = self._improvable(np.flatnonzero(full | (served > free)), beside)
        if not queued.size:
            fill(served, self.room, way, self._served(index))
            return
        wants, given = self._make_room(queued, beside)
        most = sum(self._requests(wants, given, -1))
        # Less than that is rounding, by which no hour may be planned one way or the other.
        widened = most > free[queued] * (1.0 + _GAIN)
        limit = np.where(widened, most, free[queued])
        room[queued] = np.where(known[queued], np.minimum(room[queued], limit), limit)
        served, self.shed[index], self.waiting[index] = defer(arrivals, room, waiting)
        fill(np.minimum(served, free), self.room, way, self._served(index))
        moved = np.flatnonzero(widened & (served[queued] > free[queued]))
        wants.requests[-1] = served[queued]
        given[:, -1] *= served[queued] / np.maximum(most, np.maximum(served[queued], _NOTHING))
        self._settle(wants.only(moved), in_hours(given, moved))

    def _rent_for(self, which: Sequence[int]) -> None:
        """Open machines that are paid by the hour to the last of some workloads as far as it cannot wait for others."""
        index, usable = which[-1], self.window.nodes.copy()
        way, arrivals = self.ways[index], self.window.demand_requests[index]
        rented = [c for tier in way.rented_tiers for c in tier]
        room = spare(self.room, way)
        usable[rented] = self.room.used[rented]
        self.room = replace(self.room, usable=usable)
        paid = spare(self.room, way)
        more = at_least(0.0, room - paid)
        lent = needed(arrivals, self._room_within_power(paid, which)[0], more, self.waiting[index])
        usable[rented] += quotient(lent, more) * (self.window.nodes[rented] - usable[rented])

    def _room_within_power(self, free: Floats, which: Sequence[int]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return what is free for the last of some workloads where power may run out, and in which hours that is."""
        plan, window, room = self.plan, self.window, free.copy()
        if plan.site.cap_kw is None:
            return room, np.zeros(free.size, dtype=np.bool_)
        allowed = allowed_it_kw(plan, plan.site.cap_kw[window.hours], window.hours)
        known = allowed < it_kw(plan, window.nodes, window.nodes).sum(axis=0)
        wants, given = self._make_room(np.flatnonzero(known), which, allowed[known])
        room[known] = sum(self._requests(wants, given, -1)) * (1.0 - _BACK_OFF)
        uneven = known.copy()
        uneven[self._evenly_lit(np.flatnonzero(known))] = False
        room[uneven] = np.minimum(room[uneven], free[uneven])  # there others are not moved aside
        return room, known

    def _improvable(self, hours: Chosen, which: Sequence[int]) -> Chosen:
        """Return the hours in which moving others aside may leave more to the last of some workloads.

        Work left undone has taken all there is wherever it can go, and nothing that moves leaves room there: it would
        have had it. So the last can only gain on the other clusters. Where these are full of one workload, that has
        nowhere else to go, and serves no more by changing places with itself.
        """
        if len(which) == 1:
            return hours[:0]
        on, hours = serving(self.ways, which), self._evenly_lit(hours)
        hours = hours[sum(in_hours(self.room.usable[c], hours) > 0.0 for c in on) > 1]
        closed = np.zeros((len(self.window.nodes), hours.size), dtype=np.bool_)
        for other in which[:-1]:
            if self.ways[other].outgrown is None and not self.plan.workloads[other].deadline_h:
                closed[list(self.ways[other].order)] |= self._is_undone(other, hours)
        full, tenants = np.ones(hours.size, dtype=np.bool_), np.zeros((len(which) - 1, hours.size), dtype=np.bool_)
        for c in on.tolist():
            nodes = in_hours(self.room.usable[c], hours)
            not_closed = (nodes > 0.0) & ~closed[c]
            full &= ~not_closed | (in_hours(self.room.used[c], hours) >= nodes * (1.0 - _BACK_OFF))
            for place, other in enumerate(which[:-1]):
                if c in self.ways[other].order:
                    tenants[place] |= not_closed & (in_hours(self.served[c, other], hours) > 0.0)
        improvable: Chosen = hours[~(full & (tenants.sum(axis=0) <= 1))]
        return improvable

    def _evenly_lit(self, hours: Chosen) -> Chosen:
        """Return some hours less those dark in part in which a provider carries what comes in the dark.

        A plan of the whole hour would hand that to machines which had no power when it came.
        """
        if self.window.lit_fraction is None or not self.window.carried_requests:
            return hours
        lit = self.window.lit_fraction[hours]
        even: Chosen = hours[(lit == 0.0) | (lit == 1.0)]
        return even

    def _is_undone(self, index: int, hours: Chosen) -> NDArray[np.bool_]:
        """Say whether a workload was shed for want of room in some hours."""
        came, dark = self.window.demand_requests[index], self.window.dark_requests(index)
        return np.asarray(in_hours(self.shed[index], hours) > in_hours(came * _SLACK + dark, hours))

    def _make_room(self, hours: Chosen, which: Sequence[int], allowed_kw: Floats | None = None) -> tuple[Wants, Floats]:
        """Plan some hours so that the last of some workloads gets as much as fits beside what the others are served."""
        wants = self._wants(hours, which)
        wants.requests[-1] = PLENTY
        return wants, self._allocate(wants, self._nodes(wants), allowed_kw)

    def _nodes(self, wants: Wants) -> Floats:
        """Return usable nodes of the clusters that serve some workloads, shape (clusters, some hours)."""
        return np.stack([in_hours(self.room.usable[c], wants.hours) for c in serving(self.ways, wants.workloads)])

    def _wants(self, hours: Chosen, which: Sequence[int]) -> Wants:
        """Return what some workloads ask for in some hours: the urgent all that came, the rest what it was promised."""
        requests, levels = np.empty((len(which), hours.size)), []
        for place, index in enumerate(which):
            workload = self.plan.workloads[index]
            if workload.deadline_h:
                # Each has a level of its own: those before it have been promised what they ask for.
                levels.append(workload.priority + 1 + place)
                requests[place] = sum(in_hours(served, hours) for served in self._served(index).values())
            else:
                levels.append(workload.priority)
                requests[place] = in_hours(self.window.reached_requests(index), hours)
        return Wants(workloads=which, levels=levels, requests=requests, hours=hours)

    def _allocate(self, wants: Wants, nodes: Floats, allowed_kw: Floats | None = None) -> Floats:
        """Return the best plan: node-equivalents by cluster that serves any of the workloads, workload and hour."""
        steps: Steps = node_steps(self.plan) if allowed_kw is None else power_steps(self.plan)
        return allocate(self.ways, nodes, wants, steps, allowed_kw)

    def _requests(self, wants: Wants, given: Floats, place: int) -> list[Floats]:
        """Return the requests that node-equivalents serve of one of some workloads, shape (some hours,) each.

        By cluster that serves it, in their order in the file.
        """
        way = self.ways[wants.workloads[place]]
        on = sorted(way.order)
        rows = np.searchsorted(serving(self.ways, wants.workloads), on)
        return [given[row, place] * way.rate(c, wants.hours) for row, c in zip(rows, on, strict=True)]

    def _settle(self, wants: Wants, given: Floats) -> None:
        """Write what a new plan of some hours serves and sheds in place of what was."""
        hours = wants.hours
        for c, nodes_given in zip(serving(self.ways, wants.workloads), given, strict=True):
            self.room.used[c][hours] = nodes_given.sum(axis=0)
        for place, index in enumerate(wants.workloads):
            served = self._requests(wants, given, place)
            total, asked = sum(served), wants.requests[place]
            deferred = self.plan.workloads[index].deadline_h > 0
            # But for rounding, what was promised is served, and so is all that came where there is room for all.
            is_met = (total >= asked * (1.0 - _SLACK)) | deferred
            exactly = np.divide(asked, total, out=np.ones_like(total), where=is_met & (total > 0))
            for c, requests in zip(sorted(self.ways[index].order), served, strict=True):
                self.served[c, index][hours] = requests * exactly
            if not deferred:
                left = np.where(is_met, 0.0, asked - total)
                self.shed[index][hours] = in_hours(self.window.demand_requests[index], hours) - asked + left


def allowed_loads(plan: Plan, requests: Floats) -> Floats:
    """Return the load up to which waits allow each cluster to be filled, shape (clusters, hours or 1).

    The highest, up to capacity, at which the promised share of each of its workloads that cannot wait is in time; no
    less than the load up to which clusters are filled in order. Bursts are those of the hours' requests, shape
    (workloads, hours).
    """
    cells = round(LOAD_CELLS / MOST_LOAD)

    def kept(missed: Floats) -> Floats:
        in_time = np.minimum.accumulate(missed[..., : cells + 1] <= 1.0 - plan.promise.in_time_fraction, axis=-1)
        return np.asarray((in_time.sum(axis=-1) - 1) / cells)

    by_pair = kept(plan.late_tables + plan.refused_tables)
    by_pair[:, [w for w, workload in enumerate(plan.workloads) if workload.deadline_h]] = 1.0
    by_pair[tuple(np.array([*plan.burst_tables], dtype=np.intp).reshape(-1, 2).T)] = 1.0
    allowed = by_pair.min(axis=1, initial=1.0)[:, np.newaxis]
    for (c, w), by_rate in plan.burst_tables.items():
        assert plan.calm_tables is not None  # what bursts add, they add to something
        at_rates = kept(plan.calm_tables[:, c, w].sum(axis=0) + by_rate.added.sum(axis=0))
        between = by_rate.between(requests[w])
        row, further = between.row, between.further
        if allowed.shape[1] == 1:
            allowed = np.repeat(allowed, row.size, axis=1)
        at_hours = at_rates[row] * (1.0 - further) + np.append(at_rates, 0.0)[row + 1] * further
        allowed[c] = np.minimum(allowed[c], at_hours)
    return np.asarray(np.clip(allowed, plan.preferred_utilisation, 1.0))


def ways_of(plan: Plan, window: WindowInput) -> list[Way]:
    """Return where each workload may go and the requests per node and hour there."""
    table = plan.requests_per_node_h
    counts = None
    if table.shape[2] > 1:
        edges = np.clip(plan.month_edges_h, window.hours.start, window.hours.stop)
        counts = np.diff(edges)
    rents = any(workload.rented_tiers for workload in plan.workloads)
    waits = allowed_loads(plan, window.demand_requests) if rents else None
    any_wait = np.ones((len(plan.clusters), 1)) if rents else None
    ways = []
    for w, workload in enumerate(plan.workloads):
        rates = [_NOWHERE] * len(plan.clusters)
        for c in workload.cluster_order:
            rate = table[c, w] if counts is None else np.repeat(table[c, w], counts)
            speed = window.speed.get((c, w))
            rates[c] = rate if speed is None else rate * speed
        tokens, outgrown = workload.tokens_per_request[:1], None
        if counts is not None:
            tokens = np.repeat(workload.tokens_per_request, counts)
            if np.any(table[list(workload.cluster_order), w] <= 0.0):
                outgrown = np.repeat(np.all(table[:, w] <= 0.0, axis=0), counts)
        ways.append(
            Way(
                tiers=workload.cluster_tiers,
                rates=rates,
                tokens_per_request=tokens,
                rented=workload.rented_tiers,
                allowed=None if not workload.rented_tiers else any_wait if workload.deadline_h else waits,
                outgrown=outgrown,
            )
        )
    return ways
