"""Hourly placement of whole replicas, and the pools of nodes that they form."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.elementwise import Hours, in_hours, safe_denominator
from planner.engine.dispatch import routes_of, with_carried
from planner.engine.hourly import Route, Slowdown, WindowInput, WindowResult
from planner.plan.placement import ROUNDING
from planner.plan.plan import Placement, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWindow:
    """A window's hours by pool of placed replicas instead of by cluster."""

    window: WindowInput
    """With pools in place of clusters."""
    routes: Sequence[Route]
    """Where each workload may go among them, and how fast it is served."""
    replicas: Floats
    """Placed, shape (deployments, hours); 0 on clusters where any share of a cluster may serve any model."""
    loading_nodes: Floats
    """Nodes that load weights, mean of the hour, shape (deployments, hours)."""
    absent_requests: Floats | None
    """Requests for fine-tunes that are resident nowhere, shape (workloads, hours); None where none can be."""


def place_window(plan: Plan, placement: Placement, window: WindowInput) -> PlacedWindow:
    """Place replicas hour by hour and return the resulting pools."""
    served = enumerate(workload.cluster_order for workload in placement.pools.workloads)
    pairs = [(pool, (placement.pool_cluster[pool], w)) for w, pools in served for pool in pools]
    window = dataclasses.replace(
        window,
        speed={(pool, pair[1]): window.speed[pair] for pool, pair in pairs if pair in window.speed},
        incidents={
            (pool, pair[1]): window.incidents[pair]
            for pool, pair in pairs
            if pair in window.incidents
        },
    )
    standing = whole_nodes(plan, window)
    # What serves of those; 1 where there are none: nothing is placed there, at whatever speed it would be served.
    share = window.nodes / safe_denominator(standing)
    share.reshape(-1)[np.flatnonzero(standing <= 0.0)] = 1.0
    routes = routes_of(placement.pools, window)
    replicas = _placed(plan, placement, window, routes, standing, share)
    nodes, loading = _pool_nodes(placement, window, replicas, share)
    absent = _absent_requests(plan, placement, window, replicas)
    demand = window.demand_requests if absent is None else window.demand_requests - absent
    pools = with_carried(
        placement.pools, dataclasses.replace(window, demand_requests=demand, nodes=nodes), routes
    )
    return PlacedWindow(
        window=pools,
        routes=routes,
        replicas=replicas,
        loading_nodes=loading,
        absent_requests=absent,
    )


def _pool_nodes(
    placement: Placement, window: WindowInput, replicas: Floats, share: Floats
) -> tuple[Floats, Floats]:
    """Return each pool's serving nodes, shape (pools, hours), and the nodes loading weights, by deployment.

    What loads is, mean of the hour, rise of replicas · size · share · time.
    """
    nodes, rest = np.empty((len(placement.pool_cluster), replicas.shape[1])), window.nodes.copy()
    loading = np.zeros_like(replicas)
    before = window.replicas_before
    for pool, (c, d) in enumerate(
        zip(placement.pool_cluster, placement.pool_deployment, strict=True)
    ):
        if d is None:
            np.maximum(rest[c], 0.0, out=nodes[pool])
            continue
        deployment = placement.deployments[d]
        held = replicas[d]
        np.multiply(held, deployment.nodes_per_replica, out=nodes[pool])
        nodes[pool] *= share[c]
        earlier = np.empty_like(held)
        earlier[0] = held[0] if before is None else before[d]
        earlier[1:] = held[:-1]
        rose = np.flatnonzero(held > earlier)  # what falls is not loaded
        loads = (held[rose] - earlier[rose]) * deployment.nodes_per_replica
        loads *= share[c][rose]
        loads *= deployment.load_h
        loading[d][rose] = loads
        nodes[pool][rose] -= loads
        rest[c] -= nodes[pool]
    return nodes, loading


def _absent_requests(
    plan: Plan, placement: Placement, window: WindowInput, replicas: Floats
) -> Floats | None:
    """Return the requests for fine-tunes not resident anywhere, shape (workloads, hours); None where impossible.

    demand · (1 − min(1, Σ over clusters of replicas / replicas that hold all of them)). Work that can wait, waits for
    them.
    """
    absent: Floats | None = None
    for w, workload in enumerate(plan.workloads):
        holders = [placement.deployment_of[c, w] for c in workload.cluster_order]
        least = np.array([placement.deployments[d].least_replicas for d in holders])
        if (
            least.max(initial=1) > 1
            and not workload.deadline_h
            and all(placement.placed[c] for c in workload.cluster_order)
        ):
            absent = np.zeros_like(window.demand_requests) if absent is None else absent
            share = np.minimum((replicas[holders] / least[:, None]).sum(axis=0), 1.0)
            absent[w] = window.demand_requests[w] * (1.0 - share)
    return absent


def on_clusters(
    placement: Placement,
    window: WindowInput,
    placed: PlacedWindow,
    result: WindowResult,
    served: Mapping[tuple[int, int], Floats],
) -> WindowResult:
    """Return a window's result by cluster, summed over pools; ``served`` has the requests served by pool."""
    owner = placement.pool_cluster
    drags: dict[tuple[int, int], Slowdown] = {}
    for (
        pool,
        w,
    ), drag in result.drags.items():  # the pools of a cluster are slow in the same hours
        before = drags.get((owner[pool], w))
        nodes = drag.nodes if before is None else before.nodes + drag.nodes
        drags[owner[pool], w] = dataclasses.replace(drag, nodes=nodes)
    slower: dict[tuple[int, int], Floats] = {}
    speeds = placement.pool_speed
    for pool, w in np.argwhere(((speeds > 0.0) & (speeds != 1.0)).any(axis=2)).tolist():
        speed = speeds[pool, w]
        if speed.size > 1:
            speed = speed[placement.pools.months.hour_periods[window.hours]]
        slower[owner[pool], w] = slower.get((owner[pool], w), 0.0) + served[pool, w] * (
            1.0 / speed - 1.0
        )
    absent = placed.absent_requests
    return dataclasses.replace(
        result,
        slower_requests=slower,
        demand_requests=window.demand_requests,
        shed_requests=result.shed_requests if absent is None else result.shed_requests + absent,
        nodes=window.nodes,
        drags=drags,
        replicas=placed.replicas,
        loading_nodes=placed.loading_nodes,
    )


def whole_nodes(plan: Plan, window: WindowInput) -> Floats:
    """Return the nodes on which replicas are placed, rounded up to whole nodes, shape (clusters, hours).

    A node that is down for part of an hour still holds its model: it counts whole, and serves for the rest.
    """
    nodes = window.nodes
    if window.lit_fraction is not None:
        nodes = nodes / np.where(
            plan.on_site[:, None] > 0.0, np.maximum(window.lit_fraction, ROUNDING), 1.0
        )
    return np.ceil(nodes - ROUNDING)


def _placed(
    plan: Plan,
    placement: Placement,
    window: WindowInput,
    routes: Sequence[Route],
    standing: Floats,
    share: Floats,
) -> Floats:
    """Return the whole replicas of each deployment, shape (deployments, hours); ``window`` has the speeds by pool."""
    months = plan.months.hour_periods[window.hours]
    came = window.demand_requests
    if window.lit_fraction is not None:
        came = np.stack([window.reached_requests(w) for w in range(len(plan.workloads))])
    speeds = {id(speed): speed for speed in window.speed.values()}  # many are one series
    lit = () if window.lit_fraction is None else (window.lit_fraction,)
    first, stretch = _stretches(
        window.nodes, *(series[None] for series in (months, *lit, *speeds.values()))
    )
    review = in_hours(placement.review_requests, months)
    rates = {}
    for w, route in enumerate(routes):
        for pool, by in route.divisors.items():
            rate = route.rates[pool]
            there = share[placement.pool_cluster[pool]]
            served = rate * there
            rates[w, pool] = (served, served if by is rate else by * there)
    own_work = HourlyReplacement(placement, rates, standing, came, review)
    site = own_work.site(first)
    reviewed = in_hours(review, first)
    site.place(reviewed)
    site.place_the_rest(reviewed)
    replicas = in_hours(site.replicas, stretch)
    # The same in all hours, with no work yet. What is left is of clusters on which any share of a replica will do: no
    # other is asked for it.
    site.rates, site.spare, site.left = rates, replicas * site.size[:, None], standing.copy()
    left = sum(
        (site.take(w, came[w], add=False) for w in plan.by_priority),
        start=np.zeros(standing.shape[1]),
    )
    short = np.flatnonzero(left > ROUNDING)
    lacking = own_work.place(short, replicas)
    # What loading may take: whatever it takes where an hour was placed for that, and nothing where nodes lack even so.
    site.spare[:, short] = np.inf
    site.spare[:, lacking] = -np.inf
    # Elsewhere nothing is loaded: what the review has placed stood in the hour before too.
    may_lose = np.zeros(left.size + 1, dtype=np.bool_)
    may_lose[first] = may_lose[short + 1] = True
    may_lose[short] = False
    may_lose[lacking] = True
    return own_work.moved(
        replicas, site.spare, window.replicas_before, np.flatnonzero(may_lose[:-1])
    )


def _stretches(*series: Floats) -> tuple[Ints, Ints]:
    """Return the hours in which any series of shape (n, hours or 1) changes, and each hour's last change.

    Failures and releases move what is placed at a review a few times a day: it need not be placed anew each hour.
    """
    changed = np.zeros(max(table.shape[1] for table in series), dtype=np.bool_)
    changed[0] = True
    for table in (table for table in series if table.shape[1] > 1):
        changed[1:] |= np.any(table[:, 1:] != table[:, :-1], axis=0)
    return np.flatnonzero(changed), np.cumsum(changed) - 1


URGENT_USE = 0.75
"""How busy replicas of work that cannot wait are left where work that can would load other models in the nodes beside
them; assumption: at 85% chat is late by 0.12 points more than alone, at 75% by 0.08, and batch serves 1% less."""
WORTH = 0.01
"""Share of a workload's requests in an hour from which replicas are placed otherwise for it; assumption: on the
reference an hour that so gains 0.6% of long context has more requests late beside it than it gains."""


class HourlyReplacement:
    """Replica placement for the actual demand of single hours, where the review's placement loses requests."""

    def __init__(
        self, placement: Placement, rates: Rates, standing: Floats, came: Floats, review: Floats
    ) -> None:
        """Take the nodes to place on, shape (clusters, hours), and two demands, shape (workloads, hours).

        Those that come in each hour, and those for which the review of its month places.
        """
        self.placement = placement
        self.rates = rates
        self.standing = standing
        self.came = came
        self.review = review
        workloads = placement.pools.workloads
        deployments = placement.deployments
        self.deadlines_h = np.array([[workload.deadline_h] for workload in workloads])
        self.waits = self.deadlines_h > 0
        """How long work can wait, and which can at all, shape (workloads, 1) each."""
        self.load_nodes = np.array([[held.nodes_per_replica * held.load_h] for held in deployments])
        """What loading takes of a replica's nodes, mean of the hour, shape (deployments, 1)."""
        empty = np.zeros(0, dtype=np.intp)
        nothing = ReplicaPacking(placement, rates, in_hours(standing, empty), empty)
        self.orders = nothing.orders()
        self.levels = nothing.levels
        """In which pools are offered to workloads, the one to begin with first; and workloads by priority."""

    def place(self, hours: Ints, replicas: Floats, order: int = 0) -> Ints:
        """Place replicas for the demand of some hours, replacing those in ``replicas``.

        Returns those of them in which another order may serve more.
        """
        if not hours.size:
            return hours
        site = self.site(hours, order, loads=True)
        came = in_hours(self.came, hours)
        left = site.place(came * ~self.waits)
        lacking = hours[(left > WORTH * came).any(axis=0)] if len(self.orders) > 1 else hours[:0]
        if (
            self.waits.any()
        ):  # what has waited takes all that would stand idle, less the headroom of what cannot wait
            site.place(came * np.where(self.waits, 1.0, 1.0 / URGENT_USE - 1.0))
            site = site.with_room(replicas)
            site.place_the_rest(in_hours(self.review, site.hours) * self.deadlines_h, waiting=True)
        site = site.with_room(replicas)
        site.place(
            np.maximum(in_hours(self.review, site.hours) - in_hours(self.came, site.hours), 0.0)
        )
        site = site.with_room(replicas)
        site.place_the_rest(in_hours(self.came, site.hours))
        replicas[:, site.hours] = site.replicas
        return lacking

    def moved(self, replicas: Floats, spare: Floats, before: Floats | None, look: Ints) -> Floats:
        """Return replicas, placed anew in hours that lose much to weight loading or to placement order.

        ``spare`` has the nodes for which there is no work, of the same shape, ``before`` what the hour before the
        window held, and ``look`` the hours to look at. What is loaded hangs on what the hour before holds: where that
        has changed, the next is looked at again. That ends, since an hour stays as it is once the one before it does.
        """
        chosen = replicas.copy()
        while look.size:
            held = in_hours(replicas, look)
            earlier = in_hours(chosen, np.maximum(look - 1, 0))
            if look[0] == 0:
                earlier[:, 0] = held[:, 0] if before is None else before
            loads = (held - earlier) * self.load_nodes
            doubtful = np.flatnonzero((loads > in_hours(spare, look) + ROUNDING).any(axis=0))
            held[:, doubtful] = self._best(
                look[doubtful], in_hours(held, doubtful), in_hours(earlier, doubtful)
            )
            changed = look[(held != in_hours(chosen, look)).any(axis=0)]
            chosen[:, look] = held
            look = changed[changed < replicas.shape[1] - 1] + 1
        return chosen

    def _best(self, hours: Ints, held: Floats, earlier: Floats) -> Floats:
        """Return the present placement of some hours, or one for their own demand where it serves more.

        Shape (deployments, some hours), as ``held`` and what was held in the hour ``earlier``. Every candidate is
        worked out on all of the hours that lose much, and taken where it leaves less undone than the best before it.
        """
        least = self._left(hours, held, earlier)
        losing = np.flatnonzero((least > WORTH * in_hours(self.came, hours)).any(axis=0))
        if not losing.size:
            return held
        hours = hours[losing]
        earlier = in_hours(earlier, losing)
        least = in_hours(least, losing)
        best = held[:, losing]
        orders = range(len(self.orders))
        # Work is routed in whichever order serves more: what is held stays the same, and may leave less undone.
        candidates = [(best, order) for order in orders[1:]] + [
            (self._placed(hours, order), order) for order in orders
        ]
        for other, order in candidates:
            left = self._left(hours, other, earlier, order)
            better = self._is_less(left, least)
            best = np.where(better, other, best)
            least = np.where(better, left, least)
        held[:, losing] = best
        return held

    def _is_less(self, left: Floats, than: Floats) -> Bools:
        """Return the hours with less left undone of a workload and no more of any at its priority or above.

        Shape (workloads, hours) each. So nobody makes way for others of his own priority.
        """
        is_less = np.zeros(left.shape[1], dtype=np.bool_)
        no_more = np.ones(left.shape[1], dtype=np.bool_)
        rounding = ROUNDING * than + ROUNDING
        for level in map(list, self.levels):
            no_more &= (left <= than + rounding)[level].all(axis=0)
            is_less |= no_more & (left < than - rounding)[level].any(axis=0)
        return is_less

    def _placed(self, hours: Ints, order: int) -> Floats:
        """Return the placement for the demand of some hours in an order, shape (deployments, some hours)."""
        replicas = np.zeros((len(self.placement.deployments), self.came.shape[1]))
        self.place(hours, replicas, order)
        return in_hours(replicas, hours)

    def _left(self, hours: Ints, held: Floats, earlier: Floats, order: int = 0) -> Floats:
        """Return the requests that cannot wait and find no room beside what loads, shape (workloads, some hours)."""
        site = self.site(hours, order)
        left = np.where(self.waits, 0.0, in_hours(self.came, hours))
        site.spare = held * site.size[:, None] - np.maximum(held - earlier, 0.0) * self.load_nodes
        for w in (w for level in self.levels for w in level):
            left[w] = site.take(w, left[w], add=False)
        return left

    def site(self, hours: Ints, order: int = 0, *, loads: bool = False) -> ReplicaPacking:
        """Return the nodes of some hours, which hold nothing yet; say whether what is placed is loaded within them."""
        rates = rates_in(self.rates, hours)
        standing = in_hours(self.standing, hours)
        site = ReplicaPacking(self.placement, rates, standing, hours, loads=loads)
        site.pools = self.orders[order]
        return site


Rates = Mapping[tuple[int, int], tuple[Floats, Floats]]
"""By workload and pool, the requests an hour of a node, those that are down for part of it counted whole, and what to
divide requests by to have the nodes; shape (hours,) each."""
Pools = list[list[tuple[int, int | None]]]
"""By workload, the pools that serve it, in the order in which they are offered it, and what each holds."""
_FEW = 0.15  # below this share of hours, working on the hours alone is cheaper than on whole arrays


class ReplicaPacking:
    """Packing of replicas onto clusters in some hours of a window."""

    def __init__(
        self,
        placement: Placement,
        rates: Rates,
        standing: Floats,
        hours: Ints,
        *,
        loads: bool = False,
    ) -> None:
        """Start with empty nodes; ``loads`` says whether placed replicas load within the hour."""
        self.placement, self.rates, self.workloads = placement, rates, placement.pools.workloads
        self.hours = hours
        orders = [workload.cluster_order for workload in self.workloads]
        self.pools: Pools = [
            [(pool, placement.pool_deployment[pool]) for pool in order] for order in orders
        ]
        levels = itertools.groupby(
            placement.pools.by_priority, key=lambda w: self.workloads[w].priority
        )
        self.levels = [tuple(members) for _, members in levels]
        """Workloads by priority."""
        self.members = [deployment.workloads for deployment in placement.deployments]
        self.size = np.array([deployment.nodes_per_replica for deployment in placement.deployments])
        """Nodes of a replica, shape (deployments,)."""
        self.serving = self.size * [
            1.0 - deployment.load_h if loads else 1.0 for deployment in placement.deployments
        ]
        """Of those, what serves in the hour in which it is placed; of what loads for an hour, nothing."""
        self.left = standing.copy()
        """Nodes that hold nothing yet, shape (clusters, hours)."""
        self.replicas = np.zeros((len(placement.deployments), standing.shape[1]))
        self.spare = np.zeros_like(self.replicas)
        """Of the replicas placed, the nodes for which there is no work yet."""

    def with_room(self, replicas: Floats) -> ReplicaPacking:
        """Write the placement to ``replicas``; return the packing of only the hours with room for more."""
        replicas[:, self.hours] = self.replicas
        room = np.zeros(self.left.shape[1], dtype=np.bool_)
        # The smallest of each cluster, which comes last: what does not fit it fits no other.
        smallest = {
            self.placement.deployments[d].cluster: d for d in np.argsort(-self.size).tolist()
        }
        for c, d in smallest.items():
            if self.placement.placed[c]:
                room |= self._fitting(c, d) > 0.0
        where = np.flatnonzero(room)
        narrowed = copy.copy(self)
        narrowed.hours, narrowed.rates = self.hours[where], rates_in(self.rates, where)
        narrowed.left = in_hours(self.left, where)
        narrowed.replicas, narrowed.spare = (
            in_hours(self.replicas, where),
            in_hours(self.spare, where),
        )
        return narrowed

    def orders(self) -> list[Pools]:
        """Return the alternative orders in which workloads are offered pools, the default first.

        Workloads are placed one after the other, each where it is offered first: one may fill nodes, or replicas, that
        another needs who has none elsewhere. So it is also offered those first that fewest others of those that cannot
        wait may use.
        """
        urgent = [w for w, workload in enumerate(self.workloads) if not workload.deadline_h]
        clusters = {
            w: {self.placement.pool_cluster[pool] for pool, _ in self.pools[w]} for w in urgent
        }

        def others(w: int, pool: int, d: int | None) -> tuple[int, int]:
            there = [
                other
                for other in urgent
                if other != w and self.placement.pool_cluster[pool] in clusters[other]
            ]
            return len(there), len(there if d is None else set(there) & set(self.members[d]))

        apart = [
            [
                at
                for *_, at in sorted(
                    (*others(w, *at), place, at) for place, at in enumerate(self.pools[w])
                )
            ]
            for w in range(len(self.pools))
        ]
        return (
            [self.pools] if all(apart[w] == self.pools[w] for w in urgent) else [self.pools, apart]
        )

    def place(self, requests: Floats) -> Floats:
        """Place replicas for demand of shape (workloads, hours) by priority; return the demand left over.

        Of a priority each model gets one replica where there is room before any gets a second, those that take least
        first: a model that is not resident serves nobody.
        """
        left = np.empty_like(requests)
        for level in self.levels:
            nodes_each: dict[
                int, float
            ] = {}  # that its smallest replica takes for each workload it serves
            for w in level:
                held = [self.placement.deployments[d] for _, d in self.pools[w] if d is not None]
                shares = [one.min_nodes / len(one.workloads) for one in held if w in one.workloads]
                nodes_each[w] = min(shares, default=0.0)
            for w in sorted(level, key=nodes_each.__getitem__):
                holders = [(pool, d) for pool, d in self.pools[w] if d is not None]
                if len(holders) < len(self.pools[w]):
                    continue  # it can do with a share of a cluster
                wanted = requests[w] > 0.0  # and none is there that serves it
                for _, d in holders:
                    wanted &= self.replicas[d] < 1.0
                for pool, d in holders:
                    if w in self.members[d] and wanted.any():
                        self._add(self.placement.pool_cluster[pool], d, wanted.astype(np.float64))
                        wanted &= self.replicas[d] < 1.0
            for w in level:
                left[w] = self.take(w, requests[w], add=True)
        return left

    def _fitting(self, c: int, d: int, hours: Hours = slice(None)) -> Floats:
        """Return how many more replicas of a deployment fit, shape (hours,)."""
        room: Floats = self.left[c][hours] / self.size[d]
        room += ROUNDING
        np.floor(room, out=room)
        return room

    def _any_fits(self, c: int, some: Sequence[int]) -> bool:
        """Return whether the smallest replica of some deployments of a cluster fits in any hour."""
        smallest = min((float(self.size[d]) for d in some), default=np.inf)
        return bool(self.left[c].size and self.left[c].max() / smallest + ROUNDING >= 1.0)

    def _add(self, c: int, d: int, wanted: Floats) -> None:
        """Place the wanted number of further replicas of a deployment, rounded up, as far as they fit."""
        is_wanted = wanted > 0.0
        count = np.count_nonzero(is_wanted)
        if not count:
            return
        least = self.placement.deployments[d].least_replicas
        few = least > 1 or count < _FEW * wanted.size
        hours: Hours = np.flatnonzero(is_wanted) if few else slice(None)
        more = np.ceil(wanted[hours])
        if least > 1:  # what holds all fine-tunes, or nothing
            np.maximum(more, least - self.replicas[d][hours], out=more)
        if not few:
            np.maximum(more, 0.0, out=more)
        np.minimum(more, self._fitting(c, d, hours), out=more)
        self.replicas[d][hours] += more
        self.spare[d][hours] += more * self.serving[d]
        more *= self.size[d]
        self.left[c][hours] -= more

    def take(self, w: int, requests: Floats, *, add: bool) -> Floats:
        """Assign a workload's requests, shape (hours,), to replicas with room, adding some; return the rest."""
        if not requests.any():
            return requests
        for pool, d in self.pools[w]:
            c = self.placement.pool_cluster[pool]
            (rate, by) = self.rates[w, pool]
            need = requests / by
            if d is not None:
                if add and w in self.members[d]:
                    lacking = need - self.spare[d]
                    lacking /= max(self.serving[d], ROUNDING * self.size[d])
                    lacking -= ROUNDING
                    self._add(c, d, lacking)
                used = np.minimum(need, self.spare[d], out=need)
                self.spare[d] -= used
            else:  # any share of it will do
                used = np.minimum(need, self.left[c], out=need)
                self.left[c] -= used
            used *= rate
            requests = requests - used
        return requests

    def place_the_rest(self, requests: Floats, *, waiting: bool = False) -> None:
        """Place replicas on leftover nodes: in proportion to those placed, then by priority.

        On a cluster that holds nothing, in proportion to what the work of shape (workloads, hours) would take there:
        what stands by does so for all. Or, in proportion alone, replicas that serve work that can wait, and no more
        than would serve in the hour all that may have come since its deadline.
        """
        for c, placed in enumerate(self.placement.placed):
            there = [
                d
                for d, deployment in enumerate(self.placement.deployments)
                if placed and deployment.cluster == c
            ]
            if waiting:
                there = [
                    d for d in there if any(self.workloads[w].deadline_h for w in self.members[d])
                ]
            if not self._any_fits(c, there):
                continue
            held = (
                self.replicas[there] * self.size[there, None] - self.spare[there]
            )  # nodes at work
            total = held.sum(axis=0)
            empty = np.flatnonzero(total <= 0.0)
            if empty.size:
                for row, d in zip(held, there, strict=True):
                    pool = self.placement.pool_deployment.index(d)
                    for w in (w for w in self.members[d] if (w, pool) in self.rates):
                        row[empty] += in_hours(requests[w], empty) / in_hours(
                            self.rates[w, pool][1], empty
                        )
                total = held.sum(axis=0)
            share = held / safe_denominator(total)
            for d, offered in zip(there, share * self.left[c], strict=True):
                more = np.floor(offered / self.size[d] + ROUNDING)
                if waiting:
                    pool = self.placement.pool_deployment.index(d)
                    work = [
                        requests[w] / self.rates[w, pool][1]
                        for w in self.members[d]
                        if (w, pool) in self.rates
                    ]
                    more = np.minimum(more, np.ceil(sum(work) / self.size[d] - ROUNDING))
                self._add(c, d, more)
            if waiting or not self._any_fits(c, there):
                continue
            for d in there:  # of what is left one for each that has none, and then by priority
                asked = requests[list(self.members[d])].any(axis=0)
                self._add(c, d, (asked & (self.replicas[d] < 1.0)).astype(np.float64))
            for d in there:
                self._add(c, d, self._fitting(c, d))


def rates_in(rates: Rates, hours: Ints) -> Rates:
    """Return the rates in some of the hours."""
    some = {pair: in_hours(rate, hours) for pair, (rate, _) in rates.items()}
    return {
        pair: (some[pair], some[pair] if by is rate else in_hours(by, hours))
        for pair, (rate, by) in rates.items()
    }
