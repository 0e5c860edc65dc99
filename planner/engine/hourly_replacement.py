"""Hours whose replicas are placed for their own work: in which order, and when the hour after does better so too.

The review's placement suffices for most hours. One that it leaves short is placed for the work that comes in it. What
the review has is loaded again in the hour after, which may lose work to that although the review's placement, were it
there already, would do; and workloads are placed one after the other, which may leave one without the nodes that
another could do without. Where that loses more than a little, the hour is placed in each way, and the best is kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.arrays import Floats, Ints
from planner.elementwise import at_least, in_hours
from planner.engine.replica_packing import Rates, Seating, rates_in
from planner.plan.plan import Placement
from planner.plan.pools import ROUNDING

URGENT_USE = 0.75
"""How busy replicas of work that cannot wait are left where work that can would load other models in the nodes beside
them; assumption: at 85% chat is late by 0.12 points more than alone, at 75% by 0.08, and batch serves 1% less."""
WORTH = 0.01
"""Share of a workload's requests in an hour from which replicas are placed otherwise for it; assumption: on the
reference an hour that so gains 0.6% of long context has more requests late beside it than it gains."""


class OwnWork:
    """What the hours of a window have, and what they are asked for."""

    def __init__(self, placement: Placement, rates: Rates, standing: Floats, came: Floats, review: Floats) -> None:
        """Take the nodes among which replicas are placed, shape (clusters, hours), and requests, (workloads, hours).

        Those that come in each hour, and those for which the review of its month places.
        """
        self.placement, self.rates, self.standing, self.came, self.review = placement, rates, standing, came, review
        workloads, deployments = placement.pools.workloads, placement.deployments
        self.waits = np.array([workload.deadline_h > 0 for workload in workloads])[:, None]
        """Which work can wait, shape (workloads, 1)."""
        self.load_nodes = np.array([[held.nodes_per_replica * held.load_h] for held in deployments])
        """What loading takes of a replica's nodes, mean of the hour, shape (deployments, 1)."""
        empty = np.zeros(0, dtype=np.intp)
        nothing = Seating(placement, rates, in_hours(standing, empty), empty)
        self.orders, self.levels = nothing.orders(), nothing.levels
        """In which pools are offered to workloads, the one to begin with first; and workloads by priority."""
        self.kept: dict[int, tuple[Floats, NDArray[np.bool_]]] = {}
        """By order, what is placed for hours' own work, and in which that is known."""

    def at_review(self, hours: Ints) -> Seating:
        """Return what the review has placed in some hours."""
        site, review = self._site(hours), in_hours(self.review, hours)
        site.place(review)
        site.place_the_rest(review)
        return site

    def place(self, hours: Ints, replicas: Floats, order: int = 0) -> Ints:
        """Place for the work of some hours in place of what is in ``replicas`` there.

        Returns those of them in which another order may serve more.
        """
        if not hours.size:
            return hours
        site, came = self._site(hours, order, loads=True), in_hours(self.came, hours)
        left = site.place(came * ~self.waits)
        lacking = hours[(left > WORTH * came).any(axis=0)] if len(self.orders) > 1 else hours[:0]
        if self.waits.any():  # what has waited takes all that would stand idle, less the headroom of what cannot wait
            site.place(came * np.where(self.waits, 1.0, 1.0 / URGENT_USE - 1.0))
            site = site.with_room(replicas)
            site.place_the_rest(in_hours(self.came, site.hours), waiting=True)
        site = site.with_room(replicas)
        site.place(at_least(0.0, in_hours(self.review, site.hours) - in_hours(self.came, site.hours)))
        site = site.with_room(replicas)
        site.place_the_rest(in_hours(self.came, site.hours))
        replicas[:, site.hours] = site.replicas
        return lacking

    def moved(self, replicas: Floats, spare: Floats, before: Floats | None, look: Ints) -> Floats:
        """Return replicas, placed otherwise where much is lost to loading or to the order in which they are placed.

        ``spare`` has the nodes for which there is no work, of the same shape, ``before`` what the hour before the
        window held, and ``look`` the hours to look at. What is loaded hangs on what the hour before holds: where that
        has changed, the next is looked at again. That ends, since an hour stays as it is once the one before it does.
        """
        chosen, for_own_work = replicas, np.isinf(spare[0])
        while look.size:
            held, earlier = in_hours(replicas, look), in_hours(chosen, np.maximum(look - 1, 0))
            if look[0] == 0:
                earlier[:, 0] = held[:, 0] if before is None else before
            loads, room = (held - earlier) * self.load_nodes, in_hours(spare, look)
            room += ROUNDING
            doubtful = np.flatnonzero((loads > room).any(axis=0))
            there = look[doubtful]
            best = self._best(there, in_hours(held, doubtful), in_hours(earlier, doubtful), for_own_work[there])
            if chosen is replicas:  # nothing has changed so far, and in most windows nothing does
                if np.array_equal(best, in_hours(held, doubtful)):
                    break
                chosen = replicas.copy()
            held[:, doubtful] = best
            changed = look[(held != in_hours(chosen, look)).any(axis=0)]
            chosen[:, look] = held
            look = changed + 1
            look = look[look < replicas.shape[1]]
        return chosen

    def _best(self, hours: Ints, held: Floats, earlier: Floats, for_own_work: NDArray[np.bool_]) -> Floats:
        """Return what is held in some hours, or what is placed for their own work in some order, if that serves more.

        Shape (deployments, some hours), as ``held`` and what was held in the hour ``earlier``; ``for_own_work`` says
        where what is held has been placed so in the first order.
        """
        if not hours.size:
            return held
        least = self._left(hours, held, earlier)
        losing = np.flatnonzero((least > WORTH * in_hours(self.came, hours)).any(axis=0))
        if not losing.size:
            return held
        hours, for_own_work, earlier = hours[losing], for_own_work[losing], in_hours(earlier, losing)
        least = in_hours(least, losing)
        for order in range(1, len(self.orders)):  # work is routed in whichever order serves more
            left = self._left(hours, in_hours(held, losing), earlier, order)
            least = np.where(self._is_less(left, least), left, least)
        for order in range(len(self.orders)):
            tried = np.arange(hours.size) if order else np.flatnonzero(~for_own_work)
            if not tried.size:
                continue
            other = self._placed(hours[tried], order)
            left = self._left(hours[tried], other, in_hours(earlier, tried), order)
            better = np.flatnonzero(self._is_less(left, in_hours(least, tried)))
            held[:, losing[tried[better]]], least[:, tried[better]] = in_hours(other, better), in_hours(left, better)
        return held

    def _is_less(self, left: Floats, than: Floats) -> NDArray[np.bool_]:
        """Say in which hours less is left of a workload, and no more of others of its priority or one before it.

        Shape (workloads, hours) each. So nobody makes way for others of his own priority.
        """
        is_less, no_more = np.zeros(left.shape[1], dtype=np.bool_), np.ones(left.shape[1], dtype=np.bool_)
        rounding = ROUNDING * than + ROUNDING
        for level in map(list, self.levels):
            no_more &= (left <= than + rounding)[level].all(axis=0)
            is_less |= no_more & (left < than - rounding)[level].any(axis=0)
        return is_less

    def _placed(self, hours: Ints, order: int) -> Floats:
        """Return what is placed for the work of some hours in an order, shape (deployments, some hours)."""
        if order not in self.kept:
            shape = (len(self.placement.deployments), self.came.shape[1])
            self.kept[order] = np.zeros(shape), np.zeros(shape[1], dtype=np.bool_)
        replicas, known = self.kept[order]
        self.place(hours[~known[hours]], replicas, order)
        known[hours] = True
        return in_hours(replicas, hours)

    def _left(self, hours: Ints, held: Floats, earlier: Floats, order: int = 0) -> Floats:
        """Return the requests that cannot wait and find no room beside what loads, shape (workloads, some hours)."""
        site, left = self._site(hours, order), np.where(self.waits, 0.0, in_hours(self.came, hours))
        site.spare = held * site.size[:, None] - at_least(0.0, held - earlier) * self.load_nodes
        for w in (w for level in self.levels for w in level):
            left[w] = site.take(w, left[w], add=False)
        return left

    def _site(self, hours: Ints, order: int = 0, *, loads: bool = False) -> Seating:
        """Return the nodes of some hours, which hold nothing yet; say whether what is placed is loaded within them."""
        rates, standing = rates_in(self.rates, hours), in_hours(self.standing, hours)
        site = Seating(self.placement, rates, standing, hours, loads=loads)
        site.pools = self.orders[order]
        return site
