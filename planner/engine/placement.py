"""Placement of whole replicas, review by review and hour by hour, and the pools of nodes that they form.

At a monthly review, and when nodes come or go, replicas are placed for the forecast of the month: class by class up to
the SLO targets, class by class beyond them, then for work that can wait, then on what is left in proportion. An hour
whose own work finds no room on them is placed for that work instead, where that serves more: what was not there in the
hour before is loaded, and serves that much less. Each hour is placed from what the review, the hour and the one before
it know, so the end of a window changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import in_hours, safe_denominator
from planner.engine.allocation import node_steps
from planner.engine.dispatch import routes_of, with_carried
from planner.engine.hourly import Route, Slowdown, WindowInput, WindowResult
from planner.engine.site import ReplicaGroup, Site
from planner.plan.placement import ROUNDING, TARGET_STEPS
from planner.plan.plan import Placement, Plan
from planner.records import record

HOUR_USE = 0.75
"""How busy replicas of work that cannot wait are left where an hour is placed anew for its own work; assumption: at 85%
chat is late by 0.12 points more than alone, at 75% by 0.08, and batch serves 1% less."""
WORTH_LOADING = 0.01
"""Share of a workload's requests in an hour from which replicas are loaded for it; assumption: on the reference an hour
that so gains 0.6% of long context has more requests late beside it than it gains."""


@record
class PlacedWindow:
    """A window's hours by pool of placed replicas instead of by cluster."""

    placement: Placement
    """With those pools only that hold something in the window."""
    window: WindowInput
    """With pools in place of clusters."""
    routes: Sequence[Route]
    """Where each workload may go among them, and how fast it is served."""
    replicas: Floats
    """Placed, shape (deployments, hours); on clusters where any share may serve any model, as many as fit."""
    loading_nodes: Floats
    """Nodes that load weights, mean of the hour, shape (groups, hours)."""
    absent_requests: Floats | None
    """Requests for fine-tunes that are resident nowhere, shape (workloads, hours); None where none can be."""


@record
class _Held:
    """What is held at some moments; arrays of shape (groups, moments)."""

    nodes: Floats
    pool: Ints
    """Which of a group's pools."""


@record
class _Review:
    """What reviews place. Most hours of a month have the same nodes and speeds: a state of the site is placed once."""

    held: _Held
    """By state."""
    groups: Sequence[ReplicaGroup]
    """In the pools held, by state."""
    state: Ints
    """Of each hour."""


def place_window(plan: Plan, placement: Placement, window: WindowInput) -> PlacedWindow:
    """Place replicas hour by hour and return the resulting pools."""
    standing = whole_nodes(plan, window)
    # What serves of those; 1 where there are none: nothing is placed there, at whatever speed it would be served.
    share = window.nodes / safe_denominator(standing)
    share[standing <= 0.0] = 1.0
    figures = _Figures(plan, placement, window, standing)
    placer = _HourPlacer(figures, figures.review(), share)
    held = placer.placed()
    loading = placer.loading(held)
    narrowed = _with_pools(placement, placer.used_pools(held))
    nodes, replicas = placer.by_pool(narrowed, held, loading)
    in_pools = _window_in_pools(narrowed, window)
    routes = routes_of(narrowed.pools, in_pools)
    absent = _absent_requests(plan, placement, window, replicas)
    demand = window.demand_requests if absent is None else window.demand_requests - absent
    in_pools = dataclasses.replace(in_pools, demand_requests=demand, nodes=nodes)
    return PlacedWindow(
        placement=narrowed,
        window=with_carried(narrowed.pools, in_pools, routes),
        routes=routes,
        replicas=replicas,
        loading_nodes=loading * share[figures.clusters[: len(placement.groups)]],
        absent_requests=absent,
    )


def whole_nodes(plan: Plan, window: WindowInput) -> Floats:
    """Return the nodes on which replicas are placed, rounded up to whole nodes, shape (clusters, hours).

    A node that is down for part of an hour still holds its model: it counts whole, and serves for the rest.
    """
    nodes = window.nodes
    if window.lit_fraction is not None:
        lit_fraction = np.maximum(window.lit_fraction, ROUNDING)
        nodes = nodes / np.where(plan.on_site[:, None] > 0.0, lit_fraction, 1.0)
    return np.ceil(nodes - ROUNDING)


class _Figures:
    """The groups of a placement, with their figures in the hours of a window.

    After the groups of the placement there is one more for each cluster of which any share may serve any model.
    """

    def __init__(
        self, plan: Plan, placement: Placement, window: WindowInput, standing: Floats
    ) -> None:
        self.plan = plan
        self.placement = placement
        self.window = window
        self.standing = standing
        self.present = standing if window.present_nodes is None else window.present_nodes
        """Nodes that are there, in service or not: the size of a pool, shape (clusters, hours)."""
        self.months = plan.months.hour_periods[window.hours]
        self.steps = node_steps(plan)
        whole_clusters = [c for c, is_placed in enumerate(placement.placed) if not is_placed]
        by_deployment = {d: pool for pool, d in enumerate(placement.pool_deployment)}
        self.group_pools: list[list[int]] = [
            [by_deployment[d] for d in group if d in by_deployment] for group in placement.groups
        ]
        """The pools of each group, by rising size."""
        for c in whole_clusters:
            self.group_pools.append([p for p, on in enumerate(placement.pool_cluster) if on == c])
        self.clusters = [placement.deployments[group[0]].cluster for group in placement.groups]
        self.clusters += whole_clusters
        """The cluster of each group."""
        self.whole_clusters = whole_clusters
        self.places: dict[int, tuple[int, int]] = {}
        """By deployment, its group and which of its pools it is."""
        for g, group in enumerate(placement.groups):
            for place, d in enumerate(group):
                self.places[d] = (g, place)

    def _sizes(self, pools: Sequence[int]) -> Floats:
        """Return the nodes of a replica in some pools, 0 where any share of a node will do, shape (pools, 1)."""
        sizes = []
        for pool in pools:
            d = self.placement.pool_deployment[pool]
            sizes.append(0.0 if d is None else self.placement.deployments[d].nodes_per_replica)
        return np.array(sizes or [0.0])[:, None]

    def _rates(self, g: int, hours: Ints) -> dict[int, Floats]:
        """Return the requests an hour for which a node counts in each of a group's pools, shape (pools, hours)."""
        rates = {}
        c = self.clusters[g]
        pools = self.group_pools[g]
        table = self.placement.pools.requests_per_node_h[pools]
        for w in np.flatnonzero(table.any(axis=(0, 2))).tolist():
            if c not in self.plan.workloads[w].cluster_order:
                continue
            rate = table[:, w]
            if rate.shape[1] > 1:
                rate = in_hours(rate, self.months[hours])
            rate = np.broadcast_to(rate, (len(pools), hours.size))
            speed = self.window.speed.get((c, w))
            rates[w] = rate if speed is None else rate * speed[hours]
            rates[w] = rates[w] * self.placement.pool_worth[pools, w][:, None]
        return rates

    def groups(self, hours: Ints) -> list[ReplicaGroup]:
        """Return all groups at some hours, with every pool that they may have."""
        groups = []
        least_nodes = self.placement.pool_least_nodes
        for g, pools in enumerate(self.group_pools):
            is_whole = g >= len(self.placement.groups)
            workloads: tuple[int, ...] = ()
            least_replicas = 1
            rates = self._rates(g, hours) if pools else {}
            if is_whole:
                by_priority = self.plan.by_priority
                workloads = tuple(w for w in by_priority if w in rates)
            elif pools:
                first = self.placement.deployments[self.placement.groups[g][0]]
                workloads = first.workloads
                least_replicas = first.least_replicas
            groups.append(
                ReplicaGroup(
                    cluster=self.clusters[g],
                    workloads=workloads,
                    size=self._sizes(pools),
                    least_nodes=np.array([[least_nodes[pool]] for pool in pools] or [[0.0]]),
                    least_replicas=least_replicas,
                    rates=rates,
                    missed=self._missed(pools, workloads),
                )
            )
        return groups

    def _missed(self, pools: Sequence[int], workloads: Sequence[int]) -> Floats:
        """Return what pools miss by load of the first workload that cannot wait, shape (pools, cells + 1)."""
        in_pools = self.placement.pools
        for w in workloads:
            if pools and not in_pools.workloads[w].deadline_h:
                return in_pools.late_tables[pools, w] + in_pools.refused_tables[pools, w]
        return np.zeros((len(pools), 0))

    def review(self) -> _Review:
        """Return what the reviews place."""
        speeds = {id(speed): speed for speed in self.window.speed.values()}  # many are one series
        whole_clusters = self.present[self.whole_clusters]
        series = np.vstack([self.standing, whole_clusters, self.months, *speeds.values()])
        changed = np.ones(series.shape[1], dtype=np.bool_)
        changed[1:] = np.any(series[:, 1:] != series[:, :-1], axis=0)
        starts = np.flatnonzero(changed)
        # The same nodes come back when a failure is repaired.
        _, first, state = np.unique(
            series[:, starts], axis=1, return_index=True, return_inverse=True
        )
        hours = starts[first]
        groups = self.groups(hours)
        held = self._known(hours, groups)
        groups = [_in_pool(group, pool) for group, pool in zip(groups, held.pool, strict=True)]
        return _Review(held=held, groups=groups, state=state.ravel()[np.cumsum(changed) - 1])

    def _known(self, hours: Ints, groups: Sequence[ReplicaGroup]) -> _Held:
        """Return what reviews place in the states of some hours: replications come through many of them again."""
        known = _known_of(self.placement).reviews
        speeds = np.ones((len(self.plan.clusters), len(self.plan.workloads), hours.size))
        for pair, speed in self.window.speed.items():
            speeds[pair] = speed[hours]
        present = in_hours(self.present, hours)
        states = np.vstack([in_hours(self.standing, hours), present, self.months[hours], *speeds])
        keys = [column.tobytes() for column in np.ascontiguousarray(states.T)]
        new = np.array([place for place, key in enumerate(keys) if key not in known], dtype=np.intp)
        if new.size:
            placed = self._placed(hours[new], [group.moments(new) for group in groups])
            for place, nodes, pool in zip(new.tolist(), placed.nodes.T, placed.pool.T, strict=True):
                known[keys[place]] = (nodes, pool)
        columns = [known[key] for key in keys]
        return _Held(
            nodes=np.stack([nodes for nodes, _ in columns], axis=1),
            pool=np.stack([pool for _, pool in columns], axis=1),
        )

    def _placed(self, hours: Ints, groups: Sequence[ReplicaGroup]) -> _Held:
        """Return what a review places at each of some hours for the forecast of its month."""
        placement = self.placement
        site = Site(placement, groups, in_hours(self.standing, hours), self.steps)
        months = self.months[hours]
        full = placement.full_requests[:, months]
        targets = placement.target_requests[:, months]
        columns = np.arange(hours.size)

        def up_to_target(w: int, level: Floats) -> Floats:
            position = level * TARGET_STEPS
            step = np.minimum(position.astype(np.intp), TARGET_STEPS - 1)
            lower = targets[w, columns, step]
            upper = targets[w, columns, step + 1]
            return np.asarray(lower + (position - step) * (upper - lower))

        def beyond_target(w: int, level: Floats) -> Floats:
            lower = targets[w, :, -1]
            return np.asarray(lower + level * (full[w] - lower))

        def in_due_time(w: int, level: Floats) -> Floats:
            return np.asarray(level * full[w])

        for classes, need in (
            (site.urgent, up_to_target),
            (site.urgent, beyond_target),
            (site.patient, in_due_time),
        ):
            for members in classes:
                site.serve(members, need)
        utilisation = self.plan.preferred_utilisation or 1.0
        busiest = full * utilisation
        return _settled(site, busiest, placement.placed, in_hours(self.present, hours))


def _in_pool(group: ReplicaGroup, pool: Ints) -> ReplicaGroup:
    """Return a group of which the pool is known, shape (hours,), as one of a single pool."""
    columns = np.arange(pool.size)
    rates = {w: rate[pool, columns][None] for w, rate in group.rates.items()}
    size = group.size[pool, 0][None]
    return dataclasses.replace(
        group, size=size, least_nodes=np.zeros_like(size), rates=rates, missed=np.zeros((1, 0))
    )


def _settled(site: Site, requests: Floats, placed: Sequence[bool], present: Floats) -> _Held:
    """Place replicas on what is left of a site, and return what it holds, in the pools that then miss least.

    ``requests`` are those of the busiest hour by workload, shape (workloads, moments): they say who would need what is
    left. ``present`` are the nodes of a cluster of one model, shape (clusters, moments).
    """
    weights = np.zeros_like(site.nodes)
    for g, group in enumerate(site.groups):
        wanted = {w: requests[w] for w in group.workloads if w in group.rates}
        if wanted:
            weights[g] = group.work(wanted).min(axis=0)
    site.fill_up(weights, placed)
    pool = np.zeros(site.nodes.shape, dtype=np.intp)
    nodes = site.nodes.copy()
    columns = np.arange(nodes.shape[1])
    for g, group in enumerate(site.groups):
        size = nodes[g] if placed[group.cluster] else present[group.cluster]
        busiest = {
            w: np.minimum(placed_for, requests[w]) for w, placed_for in site.requests[g].items()
        }
        if group.rates:
            pool[g] = group.best_pool(busiest, size)
        if placed[group.cluster] and group.rates:
            nodes[g] = group.whole(nodes[g])[pool[g], columns]
    return _Held(nodes=nodes, pool=pool)


class _HourPlacer:
    """Replicas of the reviews, or of an hour's own work where that serves more of it."""

    def __init__(self, figures: _Figures, review: _Review, share: Floats) -> None:
        self.figures = figures
        self.review = review
        self.share = share
        placement = figures.placement
        self.reviewed = _Held(
            nodes=in_hours(review.held.nodes, review.state),
            pool=review.held.pool.take(review.state, axis=1),
        )
        """By hour."""
        nothing = np.zeros((len(share), review.held.nodes.shape[1]))
        self.states = Site(placement, review.groups, nothing, figures.steps)
        """The site by state, without a node."""
        self.rates: dict[tuple[int, int], Floats] = {}
        """By group and workload, the requests an hour that a node serves, shape (hours,)."""
        for g, group in enumerate(review.groups):
            pools = np.array(figures.group_pools[g])
            for w, counted in group.rates.items():
                worth = placement.pool_worth[pools[review.held.pool[g]], w]
                rate = (counted[0] / worth).take(review.state)
                # A node that is out for part of an hour serves for the rest.
                rate *= share[figures.clusters[g]]
                self.rates[g, w] = rate
        window = figures.window
        workloads = range(len(figures.plan.workloads))
        self.arrivals = window.demand_requests
        if window.lit_fraction is not None:
            self.arrivals = np.stack([window.reached_requests(w) for w in workloads])
        self.is_urgent = ~np.array(self.states.waits)[:, None]
        load_h = np.zeros(review.held.nodes.shape)
        for g, deployments in enumerate(placement.groups):
            by_pool = np.array([placement.deployments[d].load_h for d in deployments])
            load_h[g] = by_pool[review.held.pool[g]]
        self.load_h = load_h
        """Hours that a replica loads, shape (groups, states)."""

    def _site(self, hours: Ints) -> Site:
        """Return the site of some hours, which hold nothing yet."""
        groups = []
        for c, group_by_state in zip(self.figures.clusters, self.review.groups, strict=True):
            group = group_by_state.moments(self.review.state[hours])
            rates = {w: rate * self.share[c][hours] for w, rate in group.rates.items()}
            groups.append(dataclasses.replace(group, rates=rates))
        standing = in_hours(self.figures.standing, hours)
        return Site(self.figures.placement, groups, standing, self.figures.steps)

    def used_pools(self, held: _Held) -> list[int]:
        """Return the pools that hold something in any hour, and for each workload its first."""
        placement = self.figures.placement
        used = {pool for pool, d in enumerate(placement.pool_deployment) if d is None}
        moved = np.flatnonzero((held.nodes != self.reviewed.nodes).any(axis=0))
        for g, pools in enumerate(self.figures.group_pools[: len(placement.groups)]):
            states = self.review.held.pool[g][self.review.held.nodes[g] > 0.0]
            hours = held.pool[g][moved][held.nodes[g][moved] > 0.0]
            used.update(pools[place] for place in {*states.tolist(), *hours.tolist()})
        for workload in placement.pools.workloads:
            used.update(workload.cluster_order[:1])
        return sorted(used)

    def by_pool(self, narrowed: Placement, held: _Held, loading: Floats) -> tuple[Floats, Floats]:
        """Return the serving nodes by pool that is used, and the replicas by deployment, each by hour."""
        placement = self.figures.placement
        states = self.review.held
        hours = self.share.shape[1]
        nodes = np.zeros((len(narrowed.pool_cluster), hours))
        replicas = np.zeros((len(placement.deployments), hours))
        rest = self.figures.window.nodes.copy()
        moved = np.flatnonzero((held.nodes != self.reviewed.nodes).any(axis=0))
        for pool, d in enumerate(narrowed.pool_deployment):
            c = narrowed.pool_cluster[pool]
            if d is None:
                continue
            g, place = self.figures.places[d]
            per_node = 1.0 / placement.deployments[d].nodes_per_replica
            # Most hours are as they were reviewed; the others are put right one by one.
            by_state = np.where(states.pool[g] == place, states.nodes[g], 0.0)
            by_state.take(self.review.state, out=nodes[pool], mode="clip")
            np.rint(by_state * per_node).take(self.review.state, out=replicas[d], mode="clip")
            held_nodes = np.where(held.pool[g][moved] == place, held.nodes[g][moved], 0.0)
            nodes[pool][moved] = held_nodes
            replicas[d][moved] = np.rint(held_nodes * per_node)
            loads = np.flatnonzero(loading[g])
            nodes[pool][loads] -= np.where(held.pool[g][loads] == place, loading[g][loads], 0.0)
            nodes[pool] *= self.share[c]
            rest[c] -= nodes[pool]
        for pool, d in enumerate(narrowed.pool_deployment):
            c = narrowed.pool_cluster[pool]
            if d is None and placement.placed[c]:
                np.maximum(rest[c], 0.0, out=nodes[pool])
            elif d is None:
                g = len(placement.groups) + self.figures.whole_clusters.index(c)
                first = narrowed.pool_cluster.index(c)
                nodes[pool] = np.where(held.pool[g] == pool - first, rest[c], 0.0)
                number = narrowed.pool_figures[pool]
                if number is not None:
                    # Any share of a cluster may serve: as many as would stand on all of it.
                    per_node = 1.0 / placement.deployments[number].nodes_per_replica
                    replicas[number] = nodes[pool] * per_node
        return nodes, replicas

    def placed(self) -> _Held:
        """Return what is held in each hour."""
        short = self._movable_hours()
        if not short.size:
            return self.reviewed
        own_nodes = self.reviewed.nodes.copy()
        own_nodes[:, short] = self._for_own_work(short)
        nodes = own_nodes.copy()
        # An hour is seen with what the one before it holds, which may change in turn: until no hour changes any more.
        look = np.union1d(short, np.minimum(short + 1, nodes.shape[1] - 1))
        while look.size:
            better = self._better(look, own_nodes, nodes)
            changed = look[(better != nodes[:, look]).any(axis=0)]
            nodes[:, look] = better
            look = changed[changed < nodes.shape[1] - 1] + 1
        return _Held(nodes=nodes, pool=self.reviewed.pool)

    def _movable_hours(self) -> Ints:
        """Return the hours whose work finds no room although nodes that could hold a replica for it stand idle."""
        hours = np.arange(self.arrivals.shape[1])
        undone, spare = self._routed(self.reviewed.nodes, hours)
        idle = self.figures.standing.copy()
        for g, c in enumerate(self.figures.clusters):
            idle[c] -= self.reviewed.nodes[g] - spare[g]
        is_movable = np.zeros(hours.size, dtype=np.bool_)
        for w, requests in enumerate(undone):
            is_undone = requests > ROUNDING
            for g in self.states.order[w]:
                group = self.review.groups[g]
                if w in group.workloads and not group.is_divisible and is_undone.any():
                    size = group.size[0].take(self.review.state)
                    has_room = idle[group.cluster] >= size - ROUNDING
                    is_movable |= is_undone & has_room
        return np.flatnonzero(is_movable)

    def _for_own_work(self, hours: Ints) -> Floats:
        """Return the nodes of each group where some hours are placed for their own work, shape (groups, some hours)."""
        site = self._site(hours)
        arrivals = in_hours(self.arrivals, hours)
        months = self.figures.months[hours]
        mean = self.figures.placement.full_requests[:, months]
        deadlines_h = [workload.deadline_h for workload in self.figures.plan.workloads]

        def of_the_hour(w: int, level: Floats) -> Floats:
            return np.asarray(level * arrivals[w])

        def with_headroom(w: int, level: Floats) -> Floats:
            return np.asarray(level * arrivals[w] / HOUR_USE)

        def that_may_wait(w: int, level: Floats) -> Floats:
            # As long for all of them, or those that may wait longer would be served before the others.
            return np.asarray(level * mean[w] * max(deadlines_h))

        # Shares are levelled by the reviews: where an hour is short even so, what they place stays.
        for need in (of_the_hour, with_headroom):
            for members in site.urgent:
                site.fill_class(members, need)
        for members in site.patient:
            site.serve(members, that_may_wait)
        present = in_hours(self.figures.present, hours)
        return _settled(site, arrivals, self.figures.placement.placed, present).nodes

    def _better(self, hours: Ints, own_nodes: Floats, nodes: Floats) -> Floats:
        """Return what some hours hold, given what the hours before them do: for their own work, or as reviewed.

        What was reviewed stays where loading leaves more of a workload undone than it is worth.
        """
        before = self._before(nodes, hours)
        own = in_hours(own_nodes, hours)
        reviewed = in_hours(self.reviewed.nodes, hours)
        own_undone = self._undone(own, hours, before) * self.is_urgent
        is_loss = own_undone > WORTH_LOADING * in_hours(self.arrivals, hours)
        reviewed_undone = self._undone(reviewed, hours, before) * self.is_urgent
        is_worse = is_loss & (own_undone > reviewed_undone * (1.0 + ROUNDING) + ROUNDING)
        stays = np.zeros(hours.size, dtype=np.bool_)
        is_decided = np.zeros(hours.size, dtype=np.bool_)
        for members in map(list, self.states.classes):
            # The first class that would lose or gain decides.
            gains = (own_undone < reviewed_undone * (1.0 - ROUNDING) - ROUNDING)[members].any(
                axis=0
            )
            loses = is_worse[members].any(axis=0)
            stays |= loses & ~is_decided
            is_decided |= loses | gains
        return np.where(stays, reviewed, own)

    def _before(self, nodes: Floats, hours: Ints) -> Floats:
        """Return the nodes of each group that hold its layout when some hours begin, shape (groups, some hours)."""
        before = in_hours(nodes, np.maximum(hours - 1, 0))
        is_start = hours == 0
        if is_start.any():
            before[:, is_start] = self._before_window(nodes[:, :1])
        # A pool in another layout is loaded whole.
        pool = self.reviewed.pool
        earlier_pool = pool.take(np.maximum(hours - 1, 0), axis=1)
        now_pool = pool.take(hours, axis=1)
        for g in np.flatnonzero((earlier_pool != now_pool).any(axis=1)).tolist():
            layouts = self._layouts(g)
            is_other = layouts[earlier_pool[g]] != layouts[now_pool[g]]
            before[g][is_other] = 0.0
        return before

    def _before_window(self, first: Floats) -> Floats:
        """Return the nodes of each group that hold its layout when the window begins, shape (groups, 1).

        At the start of a run all that is placed is there.
        """
        replicas = self.figures.window.replicas_before
        if replicas is None:
            return first
        before = np.zeros_like(first)
        placement = self.figures.placement
        for g, group in enumerate(placement.groups):
            layouts = self._layouts(g)
            now = layouts[self.reviewed.pool[g, 0]]
            for place, d in enumerate(group):
                if layouts[place] == now:
                    before[g] += replicas[d] * placement.deployments[d].nodes_per_replica
        return before

    def _layouts(self, g: int) -> Ints:
        """Return a number for the layout of each of a group's pools: equal ones are loaded once."""
        placement = self.figures.placement
        if g >= len(placement.groups):
            return np.zeros(len(self.figures.group_pools[g]), dtype=np.intp)
        layouts = [placement.deployments[d].layout for d in placement.groups[g]]
        return np.array([layouts.index(layout) for layout in layouts])

    def loading(self, held: _Held) -> Floats:
        """Return the nodes that load weights, mean of the hour, shape (groups, hours)."""
        loading = np.zeros_like(held.nodes)
        is_changed = np.ones(held.nodes.shape[1], dtype=np.bool_)
        is_changed[1:] = (held.nodes[:, 1:] != held.nodes[:, :-1]).any(axis=0)
        is_changed[1:] |= (held.pool[:, 1:] != held.pool[:, :-1]).any(axis=0)
        hours = np.flatnonzero(is_changed)
        rise = np.maximum(in_hours(held.nodes, hours) - self._before(held.nodes, hours), 0.0)
        loading[:, hours] = rise * in_hours(self.load_h, self.review.state[hours])
        return loading[: len(self.figures.placement.groups)]

    def _undone(self, nodes: Floats, hours: Ints, before: Floats) -> Floats:
        """Return the requests that find no room on some nodes by priority, shape (workloads, some hours)."""
        undone, _ = self._routed(nodes, hours, before)
        return undone

    def _routed(
        self, nodes: Floats, hours: Ints, before: Floats | None = None
    ) -> tuple[Floats, Floats]:
        """Return the requests that find no room by priority, and the nodes of each group that find no work.

        Shape (workloads, some hours) and (groups, some hours). What loads since the hour before serves that much less.
        """
        spare = nodes.copy()
        if before is not None:
            spare -= np.maximum(nodes - before, 0.0) * in_hours(
                self.load_h, self.review.state[hours]
            )
        for number, c in enumerate(self.figures.whole_clusters):
            g = len(self.figures.placement.groups) + number
            spare[g] = in_hours(self.figures.standing[c], hours)
        undone = in_hours(self.arrivals, hours)
        is_all = hours.size == self.arrivals.shape[1]
        for members in self.states.classes:
            for w in members:
                for g in self.states.order[w]:
                    rate = self.rates[g, w]
                    if not is_all:
                        rate = in_hours(rate, hours)
                    used = np.minimum(undone[w] / safe_denominator(rate), spare[g])
                    spare[g] -= used
                    undone[w] -= used * rate
        return undone, spare


_MOST_REVIEWS = 20_000
"""States of a site that are kept: some 5 MB."""


@record
class _Known:
    """What is known of a placement: replications of it come through the same again."""

    placement: Placement
    reviews: dict[bytes, tuple[Floats, Ints]]
    """What reviews place, nodes and pools, by state of the site."""
    with_pools: dict[tuple[int, ...], Placement]
    """What it is with some of its pools."""


_last: deque[_Known] = deque(maxlen=1)
"""Of the last placement that was asked for."""


def _known_of(placement: Placement) -> _Known:
    """Return what is known of a placement, to be added to."""
    known = next((known for known in tuple(_last) if known.placement is placement), None)
    if known is None or len(known.reviews) > _MOST_REVIEWS:
        known = _Known(placement=placement, reviews={}, with_pools={})
        _last.append(known)
    return known


def _with_pools(placement: Placement, pools: list[int]) -> Placement:
    """Return a placement with some of its pools only."""
    if len(pools) == len(placement.pool_cluster):
        return placement
    known = _known_of(placement).with_pools
    key = tuple(pools)
    if key not in known:
        known[key] = _narrow(placement, pools)
    return known[key]


def _narrow(placement: Placement, pools: list[int]) -> Placement:
    """Return a placement with some of its pools only, worked out anew."""
    number = {pool: place for place, pool in enumerate(pools)}
    plan = placement.pools
    workloads = []
    for workload in plan.workloads:
        tiers = []
        rented = 0
        for place, tier in enumerate(workload.cluster_tiers):
            used = tuple(number[pool] for pool in tier if pool in number)
            if used:
                tiers.append(used)
                rented += place >= len(workload.cluster_tiers) - workload.rented_tiers
        workloads.append(
            dataclasses.replace(workload, cluster_tiers=tuple(tiers), rented_tiers=rented)
        )
    no_burst = plan.no_burst_tables
    narrow_plan = dataclasses.replace(
        plan,
        clusters=tuple(plan.clusters[pool] for pool in pools),
        workloads=tuple(workloads),
        requests_per_node_h=plan.requests_per_node_h[pools],
        late_tables=plan.late_tables[pools],
        refused_tables=plan.refused_tables[pools],
        most_loads=plan.most_loads[pools],
        no_burst_tables=None if no_burst is None else no_burst[:, pools],
        burst_tables={
            (number[pool], w): tables
            for (pool, w), tables in plan.burst_tables.items()
            if pool in number
        },
    )
    return dataclasses.replace(
        placement,
        pools=narrow_plan,
        pool_cluster=tuple(placement.pool_cluster[pool] for pool in pools),
        pool_deployment=tuple(placement.pool_deployment[pool] for pool in pools),
        pool_figures=tuple(placement.pool_figures[pool] for pool in pools),
        pool_least_nodes=tuple(placement.pool_least_nodes[pool] for pool in pools),
        pool_worth=placement.pool_worth[pools],
        pool_speed=placement.pool_speed[pools],
    )


def _window_in_pools(placement: Placement, window: WindowInput) -> WindowInput:
    """Return a window with speeds and incidents by pool; its nodes are still by cluster."""
    speed = {}
    incidents = {}
    for w, workload in enumerate(placement.pools.workloads):
        for pool in workload.cluster_order:
            pair = (placement.pool_cluster[pool], w)
            if pair in window.speed:
                speed[pool, w] = window.speed[pair]
            if pair in window.incidents:
                incidents[pool, w] = window.incidents[pair]
    return dataclasses.replace(window, speed=speed, incidents=incidents)


def _absent_requests(
    plan: Plan, placement: Placement, window: WindowInput, replicas: Floats
) -> Floats | None:
    """Return the requests for fine-tunes not resident anywhere, shape (workloads, hours); None where impossible.

    demand · (1 − min(1, Σ over clusters of replicas / replicas that hold all of them)). Work that can wait, waits for
    them.
    """
    absent: Floats | None = None
    for w, workload in enumerate(plan.workloads):
        if workload.deadline_h or not all(placement.placed[c] for c in workload.cluster_order):
            continue
        # Fine-tunes have one deployment on each cluster.
        groups = [placement.groups[placement.group_of[c, w]] for c in workload.cluster_order]
        holders = [group[0] for group in groups]
        least = np.array([placement.deployments[d].least_replicas for d in holders])
        if least.max(initial=1) > 1:
            if absent is None:
                absent = np.zeros_like(window.demand_requests)
            share = np.minimum((replicas[holders] / least[:, None]).sum(axis=0), 1.0)
            absent[w] = window.demand_requests[w] * (1.0 - share)
    return absent


def on_clusters(
    placed: PlacedWindow,
    window: WindowInput,
    result: WindowResult,
    router_served: Mapping[tuple[int, int], Floats],
) -> WindowResult:
    """Return a window's result by cluster, summed over pools; ``router_served`` has the requests by pool."""
    placement = placed.placement
    owner = placement.pool_cluster
    drags: dict[tuple[int, int], Slowdown] = {}
    for (pool, w), drag in result.drags.items():
        # The pools of a cluster are slow in the same hours.
        before = drags.get((owner[pool], w))
        nodes = drag.nodes if before is None else before.nodes + drag.nodes
        drags[owner[pool], w] = dataclasses.replace(drag, nodes=nodes)
    slower: dict[tuple[int, int], Floats] = {}
    speeds = placement.pool_speed
    is_slower = ((speeds > 0.0) & (speeds != 1.0)).any(axis=2)
    for pool, w in np.argwhere(is_slower).tolist():
        if (pool, w) not in router_served:
            continue
        speed = speeds[pool, w]
        if speed.size > 1:
            speed = speed[placement.pools.months.hour_periods[window.hours]]
        lost = router_served[pool, w] * (1.0 / safe_denominator(speed) - 1.0)
        slower[owner[pool], w] = slower.get((owner[pool], w), 0.0) + lost
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
