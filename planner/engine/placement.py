"""Placement of whole replicas, review by review and hour by hour, and the pools of nodes that they form.

At a monthly review, and when nodes come or go, replicas are placed for the forecast of the month: class by class up to
the SLO targets, then for work that can wait, class by class beyond the targets, then on what is left in proportion. An
hour whose own work finds no room on them is placed for that work instead, where that serves more: what was not there in
the hour before is loaded, and serves that much less. Each hour is placed from what the review, the hour and the one
before it know, so the end of a window changes nothing.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import Hours, in_hours, safe_denominator
from planner.engine.allocation import node_steps
from planner.engine.dispatch import routes_of, with_carried
from planner.engine.hourly import (
    ALL,
    PoolFigures,
    Route,
    Slowdown,
    WindowInput,
    WindowResult,
)
from planner.engine.levelling import place_replicas
from planner.engine.site import ReplicaGroup, Site, Stage, month_misses
from planner.plan.placement import BEYOND_STEPS, ROUNDING
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
    """With the pools of those clusters only that have nodes in the window."""
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
    """What pools that serve something hold at some moments; arrays of shape (pools, moments)."""

    nodes: Floats
    size: Ints
    """Which of a pool's sizes it has the figures of."""


@record
class _Review:
    """What reviews place, by state of the site: most hours of a month have the same nodes and speeds."""

    held: _Held
    requests: Floats
    """By workload, those an hour for which there is room beside all others, shape (workloads, states)."""
    state: Ints
    """Of each hour."""


def place_window(plan: Plan, placement: Placement, window: WindowInput) -> PlacedWindow:
    """Place replicas hour by hour and return the resulting pools."""
    placer = _WindowPlacer(plan, placement, window)
    placer.move()
    figures = placer.figures()
    loading = placer.loading()
    nodes = placer.serving_nodes(loading)
    replicas = placer.replicas()
    absent = _absent_requests(plan, placement, window, replicas)
    demand = window.demand_requests if absent is None else window.demand_requests - absent
    in_pools = dataclasses.replace(
        placer.in_pools(), demand_requests=demand, nodes=nodes, figures=figures
    )
    pools = placer.placement.pools
    routes = routes_of(pools, in_pools)
    loading_nodes = np.zeros((len(placement.groups), nodes.shape[1]))
    hours, by_pool = loading
    for g, loads in zip(placer.pool_groups, by_pool, strict=True):
        if g is not None:
            loading_nodes[g][hours] = loads
    return PlacedWindow(
        placement=placer.placement,
        window=with_carried(pools, in_pools, routes),
        routes=routes,
        replicas=replicas,
        loading_nodes=loading_nodes,
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


class _WindowPlacer:
    """What the pools of a window hold: as the reviews place it, or as an hour's own work asks for.

    Pools here are those that serve something, which come first in a placement.
    """

    def __init__(self, plan: Plan, placement: Placement, window: WindowInput) -> None:
        """Place what the reviews do."""
        self.plan = plan
        self.window = window
        self.standing = whole_nodes(plan, window)
        self.placement = _with_clusters(placement, self.standing.max(axis=1))
        # What serves of those; 1 where there are none: nothing is placed there, at whatever speed it would be served.
        self.share = window.nodes / safe_denominator(self.standing)
        self.share[self.standing <= 0.0] = 1.0
        self.present = self.standing if window.present_nodes is None else window.present_nodes
        """Nodes that are there, in service or not: the size of a pool, shape (clusters, hours)."""
        self.months = plan.months.hour_periods[window.hours]
        hours = np.arange(plan.hours)[window.hours]
        self.is_asked = np.array(
            [(load.begins_h <= hours) & (hours < load.ends_h) for load in plan.workloads],
            dtype=np.float64,
        )
        """1 while customers ask for a workload's model, shape (workloads, hours): a change of it is a review."""
        self.sizes = [np.array(sizes) for sizes in self.placement.pool_sizes if sizes]
        """Of each pool, as rows of the plan's tables."""
        self.clusters = self.placement.pool_cluster[: len(self.sizes)]
        self.pool_groups = self.placement.pool_group[: len(self.sizes)]
        self.layouts = [self._layouts(pool) for pool in range(len(self.sizes))]
        """A number for the layout of each of a pool's sizes: equal ones are loaded once."""
        self.review = self._reviewed()
        states = self.review.held
        self.reviewed = _Held(
            nodes=in_hours(states.nodes, self.review.state),
            size=states.size.take(self.review.state, axis=1, mode="clip"),
        )
        """By hour."""
        self.held = self.reviewed
        """By hour, with what is moved."""
        self.moved = np.zeros(0, dtype=np.intp)
        """Hours that hold something else than was reviewed."""
        load_h = np.zeros(states.nodes.shape)
        for pool, sizes in enumerate(self.sizes):
            by_size = np.array([self._load_h(size) for size in sizes.tolist()])
            load_h[pool] = by_size[states.size[pool]]
        self.load_h = load_h
        """Hours that a replica loads, shape (pools, states)."""

    def _load_h(self, size: int) -> float:
        """Return the hours that a replica loads; 0 where any share of a cluster may serve."""
        d = self.placement.size_deployment[size]
        return 0.0 if d is None else self.placement.deployments[d].load_h

    def _layouts(self, pool: int) -> Ints:
        """Return a number for the layout of each size of a pool."""
        sizes = self.sizes[pool].tolist()
        if self.pool_groups[pool] is None:
            # What a whole cluster holds is nobody's choice: each of its sizes stands for itself.
            return np.arange(len(sizes))
        numbers = [self.placement.size_deployment[size] for size in sizes]
        layouts = [self.placement.deployments[d].layout for d in numbers if d is not None]
        return np.array([layouts.index(layout) for layout in layouts], dtype=np.intp)

    def _stretches(self) -> tuple[Ints, Ints]:
        """Return the first hours of stretches with the same nodes, speeds, models and month, and that of each hour."""
        speeds = {id(speed): speed for speed in self.window.speed.values()}  # many are one series
        is_start = np.zeros(self.months.size, dtype=np.bool_)
        is_start[0] = True
        for series in (
            *self.standing,
            *self.present,
            *self.is_asked,
            self.months,
            *speeds.values(),
        ):
            is_start[1:] |= series[1:] != series[:-1]
        return np.flatnonzero(is_start), np.cumsum(is_start) - 1

    def _reviewed(self) -> _Review:
        """Return what reviews place.

        The same nodes come back when a failure is repaired, and replications come through many states again.
        """
        starts, stretch = self._stretches()
        known = _known_of(self.placement).reviews
        workload_count = len(self.plan.workloads)
        speeds = np.ones((len(self.plan.clusters) * workload_count, starts.size))
        for (c, w), speed in self.window.speed.items():
            speeds[c * workload_count + w] = speed[starts]
        present = in_hours(self.present, starts)
        is_asked = in_hours(self.is_asked, starts)
        states = np.vstack(
            [in_hours(self.standing, starts), present, is_asked, self.months[starts], speeds]
        )
        keys = [column.tobytes() for column in np.ascontiguousarray(states.T)]
        first: dict[bytes, int] = {}
        for key, start in zip(keys, starts.tolist(), strict=True):
            first.setdefault(key, start)
        new = [key for key in first if key not in known]
        if new:
            placed = self._placed(np.array([first[key] for key in new], dtype=np.intp))
            known.update(zip(new, np.ascontiguousarray(placed.T), strict=True))
        numbers = {key: number for number, key in enumerate(first)}
        columns = np.array([known[key] for key in first]).T
        pools = len(self.sizes)
        return _Review(
            held=_Held(nodes=columns[:pools], size=columns[pools : 2 * pools].astype(np.intp)),
            requests=columns[2 * pools :],
            state=np.array([numbers[key] for key in keys], dtype=np.intp)[stretch],
        )

    def _groups(self, hours: Ints, held: Ints | None = None) -> list[ReplicaGroup]:
        """Return what each pool may hold at some hours: anything, or what is in the layout of the size that it has.

        ``held`` are sizes of shape (pools, some hours).
        """
        groups = []
        for pool, sizes in enumerate(self.sizes):
            c = self.clusters[pool]
            workloads = tuple(
                w for w in self.plan.by_priority if pool in self._order(w) and self._is_own(pool, w)
            )
            places = np.arange(sizes.size)
            least_nodes = self.placement.size_least_nodes[sizes][:, None]
            if held is not None:
                layouts = self.layouts[pool]
                is_held = layouts[:, None] == layouts[held[pool]]
                places = np.flatnonzero(is_held.any(axis=1))
                is_held = is_held[places]
                # No number of nodes makes a pool of another layout.
                least_nodes = np.where(is_held, least_nodes[places], np.inf)
                # The smallest is there from one replica on.
                least_nodes[is_held.argmax(axis=0), np.arange(hours.size)] = 0.0
            replica_nodes = [self._replica_nodes(size) for size in sizes[places].tolist()]
            groups.append(
                ReplicaGroup(
                    cluster=c,
                    workloads=workloads,
                    replica_nodes=np.array(replica_nodes)[:, None],
                    least_nodes=least_nodes,
                    least_replicas=self._least_replicas(pool),
                    rates=self._rates(pool, sizes[places], hours),
                    missed=self._missed(pool, workloads) if held is None else np.zeros((1, 0)),
                )
            )
        return groups

    def _order(self, w: int) -> Sequence[int]:
        """Return the pools that serve a workload in the order in which they are offered it."""
        return self.placement.pools.workloads[w].cluster_order

    def _is_own(self, pool: int, w: int) -> bool:
        """Return whether replicas are placed in a pool for a workload."""
        g = self.pool_groups[pool]
        return g is None or self.placement.group_of.get((self.clusters[pool], w)) == g

    def _least_replicas(self, pool: int) -> int:
        """Return the replicas that hold all fine-tunes of a pool's model between them."""
        g = self.pool_groups[pool]
        if g is None:
            return 1
        return self.placement.deployments[self.placement.groups[g][0]].least_replicas

    def _replica_nodes(self, size: int) -> float:
        """Return the nodes of a replica, 0 where any share of a node will do."""
        d = self.placement.size_deployment[size]
        if d is None:
            return 0.0
        deployment = self.placement.deployments[d]
        is_placed = self.placement.placed[deployment.cluster]
        return deployment.nodes_per_replica if is_placed else 0.0

    def _rates(self, pool: int, sizes: Ints, hours: Ints) -> dict[int, Floats]:
        """Return the requests an hour for which a node counts at some sizes of a pool, shape (sizes, some hours)."""
        c = self.clusters[pool]
        table = self.placement.pools.requests_per_node_h[sizes]
        rates = {}
        for w in range(len(self.plan.workloads)):
            if pool in self._order(w):
                rate = table[:, w]
                if rate.shape[1] > 1:
                    rate = in_hours(rate, self.months[hours])
                rate = np.broadcast_to(rate, (sizes.size, hours.size))
                speed = self.window.speed.get((c, w))
                rates[w] = rate if speed is None else rate * speed[hours]
                rates[w] = rates[w] * self.placement.size_worth[sizes, w][:, None]
        return rates

    def _missed(self, pool: int, workloads: tuple[int, ...]) -> Floats:
        """Return what a month misses in the sizes of a pool by load, shape (sizes, cells + 1).

        Of the workload that asks first and cannot wait; none where no such one asks.
        """
        known = _known_of(self.placement).missed
        if pool not in known:
            pools = self.placement.pools
            sizes = self.sizes[pool]
            asks = self.placement.full_requests > 0.0
            urgent = [w for w in workloads if asks[w].any() and not pools.workloads[w].deadline_h]
            known[pool] = np.zeros((sizes.size, 0))
            if urgent:
                first = min(urgent, key=lambda w: int(asks[w].argmax()))
                missed = pools.late_tables[sizes, first] + pools.refused_tables[sizes, first]
                known[pool] = month_misses(missed, pools.most_loads[sizes, first])
        return known[pool]

    def _placed(self, hours: Ints) -> Floats:
        """Return what a review places at each of some hours for the forecast of its month.

        Rows are the nodes of pools, their sizes and the requests placed for by workload, shape (rows, some hours).
        """
        placement = self.placement
        groups = self._groups(hours)
        site = Site(placement, groups, in_hours(self.standing, hours), node_steps(self.plan))
        months = self.months[hours]
        is_asked = in_hours(self.is_asked, hours)
        full = placement.full_requests[:, months] * is_asked
        targets = placement.target_requests[:, months].transpose(0, 2, 1) * is_asked[:, None]
        beyond = placement.beyond_requests[:, months].transpose(0, 2, 1) * is_asked[:, None]
        in_due_time = np.stack([np.zeros_like(full), full], axis=1)
        stages = [
            Stage(members=members, requests=requests[[*members]])
            for classes, requests in (
                (site.urgent, targets),
                (site.patient, in_due_time),
                (site.urgent, beyond),
            )
            for members in classes
        ]
        place_replicas(site, stages)
        # Hours are no busier than the load up to which clusters are filled in order.
        busiest = full * (self.plan.preferred_utilisation or 1.0)
        site.enlarge_late(busiest)
        self._fill_up(site, busiest)
        size = np.zeros(site.nodes.shape, dtype=np.intp)
        nodes = site.nodes.copy()
        for pool, group in enumerate(groups):
            is_placed = placement.placed[group.cluster]
            pool_nodes = nodes[pool] if is_placed else in_hours(self.present[group.cluster], hours)
            size[pool], _ = group.best_size(site.load_of(pool, busiest), pool_nodes)
            if is_placed:
                nodes[pool] = group.whole(nodes[pool])[size[pool], np.arange(hours.size)]
        requests = np.stack([site.placed_requests(w) for w in range(len(full))])
        return np.concatenate([nodes, size, requests])

    def _fill_up(self, site: Site, requests: Floats) -> None:
        """Place replicas on what is left of a site, for whom requests of shape (workloads, moments) would need it."""
        weights = np.zeros_like(site.nodes)
        for pool, group in enumerate(site.groups):
            wanted = {w: requests[w] for w in group.workloads if w in group.rates}
            if wanted:
                weights[pool] = group.work(wanted).min(axis=0)
        site.fill_up(weights, self.placement.placed)

    def in_pools(self) -> WindowInput:
        """Return the window with speeds and incidents by pool; its nodes are still by cluster."""
        window = self.window
        speed = {}
        incidents = {}
        for w, workload in enumerate(self.placement.pools.workloads):
            for pool in workload.cluster_order:
                pair = (self.clusters[pool], w)
                if pair in window.speed:
                    speed[pool, w] = window.speed[pair]
                if pair in window.incidents:
                    incidents[pool, w] = window.incidents[pair]
        return dataclasses.replace(window, speed=speed, incidents=incidents)

    def figures(self) -> PoolFigures:
        """Return which row of the plan's tables each pool has in each hour."""
        rows: list[Ints] = []
        parts: list[list[tuple[int, Hours]]] = []
        for pool, sizes in enumerate(self.sizes):
            held = self.held.size[pool]
            rows.append(sizes if sizes.size == 1 else sizes.take(held))
            used = self._used_sizes(pool)
            if len(used) == 1:
                # In hours without nodes nothing is served, whatever the figures.
                parts.append([(int(sizes[used[0]]), ALL)])
                continue
            is_there = self.held.nodes[pool] > 0.0
            if self.pool_groups[pool] is None:
                is_there = self.standing[self.clusters[pool]] > 0.0
            of_pool: list[tuple[int, Hours]] = []
            for place in used:
                hours = np.flatnonzero(is_there & (held == place))
                of_pool.append((int(sizes[place]), hours))
            parts.append(of_pool)
        # After them come those that hold nothing.
        empty = len(self.placement.pool_cluster) - len(self.sizes)
        rows += [np.zeros(1, dtype=np.intp)] * empty
        parts += [[]] * empty
        return PoolFigures(rows=rows, parts=parts)

    def serving_nodes(self, loading: tuple[Ints, Floats]) -> Floats:
        """Return the serving nodes of each pool of the placement, shape (pools, hours)."""
        rest = self.window.nodes.copy()
        nodes = np.zeros((len(self.placement.pool_cluster), rest.shape[1]))
        hours, loading_nodes = loading
        for pool, c in enumerate(self.placement.pool_cluster):
            if pool < len(self.sizes) and self.pool_groups[pool] is not None:
                np.multiply(self.held.nodes[pool], self.share[c], out=nodes[pool])
                nodes[pool][hours] -= loading_nodes[pool]
                rest[c] -= nodes[pool]
            else:
                # What holds nothing comes after all that hold something.
                np.maximum(rest[c], 0.0, out=nodes[pool])
        return nodes

    def _used_sizes(self, pool: int) -> list[int]:
        """Return the sizes that a pool has in some hour, by their place among its sizes."""
        states = self.review.held
        is_there = states.nodes[pool] > 0.0
        if self.pool_groups[pool] is None:
            is_there = np.ones_like(is_there)
        moved = self.held.size[pool].take(self.moved)
        return sorted({*states.size[pool][is_there].tolist(), *moved.tolist()})

    def replicas(self) -> Floats:
        """Return the replicas of each deployment, shape (deployments, hours)."""
        placement = self.placement
        states = self.review.held
        replicas = np.zeros((len(placement.deployments), self.months.size))
        for pool, g in enumerate(self.pool_groups):
            for place in self._used_sizes(pool):
                d = placement.size_deployment[self.sizes[pool][place]]
                if d is None:
                    continue
                per_node = 1.0 / placement.deployments[d].nodes_per_replica
                if g is None:
                    # Any share of a cluster may serve: as many as would stand on all of it.
                    nodes = self.window.nodes[self.clusters[pool]]
                    np.multiply(nodes, self.held.size[pool] == place, out=replicas[d])
                    replicas[d] *= per_node
                    continue
                # Most hours are as they were reviewed; the others are put right one by one.
                nodes = np.where(states.size[pool] == place, states.nodes[pool], 0.0)
                np.rint(nodes * per_node).take(self.review.state, out=replicas[d], mode="clip")
                is_held = self.held.size[pool].take(self.moved) == place
                moved_nodes = self.held.nodes[pool].take(self.moved)
                replicas[d][self.moved] = np.where(is_held, np.rint(moved_nodes * per_node), 0.0)
        return replicas

    def move(self) -> None:
        """Place hours anew for their own work, where it finds no room and that serves more of it."""
        self.arrivals = self.window.demand_requests
        """Outside site outages, shape (workloads, hours)."""
        if self.window.lit_fraction is not None:
            workloads = range(len(self.plan.workloads))
            self.arrivals = np.stack([self.window.reached_requests(w) for w in workloads])
        short = self._movable_hours()
        if not short.size:
            return
        own_nodes = self._for_own_work(short)
        is_other = (own_nodes != in_hours(self.reviewed.nodes, short)).any(axis=0)
        short = short[is_other]
        own_nodes = own_nodes[:, is_other]
        nodes = self.reviewed.nodes.copy()
        nodes[:, short] = own_nodes
        # An hour is seen with what the one before it holds, which may change in turn: until no hour changes any more.
        look = np.arange(short.size)
        while look.size:
            hours = short[look]
            better = self._better(hours, in_hours(own_nodes, look), nodes)
            changed = hours[(better != in_hours(nodes, hours)).any(axis=0)]
            nodes[:, hours] = better
            look = np.flatnonzero(np.isin(short, changed + 1))
        size = self.reviewed.size.copy()
        moved = short[(in_hours(nodes, short) != in_hours(self.reviewed.nodes, short)).any(axis=0)]
        for pool in range(len(nodes)):
            size[pool][moved] = self._size_on(pool, nodes[pool][moved], moved)
        self.held = _Held(nodes=nodes, size=size)
        self.moved = moved

    def _size_on(self, pool: int, nodes: Floats, hours: Ints) -> Ints:
        """Return the size that a pool of some nodes has in some hours: in the layout reviewed, the largest."""
        reviewed: Ints = self.reviewed.size[pool].take(hours)
        sizes = self.sizes[pool]
        if self.pool_groups[pool] is None or sizes.size == 1:
            return reviewed
        layouts = self.layouts[pool]
        layout = layouts[reviewed]
        size: Ints = np.zeros_like(reviewed)
        for each in sorted({*layouts.tolist()}):
            is_held = layout == each
            if is_held.any():
                places = np.flatnonzero(layouts == each)
                least_nodes = self.placement.size_least_nodes[sizes[places]]
                # The smallest is there from one replica on.
                larger = np.searchsorted(least_nodes[1:], nodes + ROUNDING, side="right")
                size = np.where(is_held, places[larger], size)
        return size

    def _movable_hours(self) -> Ints:
        """Return the hours whose work finds no room although nodes that could hold a replica for it stand idle."""
        # Most hours ask for no more than there is room for, whatever is out for a part of them.
        room = in_hours(self.review.requests, self.review.state)
        room *= self.share.min(axis=0)
        hours = np.flatnonzero((self.arrivals > room).any(axis=0))
        arrivals = in_hours(self.arrivals, hours)
        nodes = in_hours(self.reviewed.nodes, hours)
        undone, spare = self._routed(nodes, hours, None)
        is_undone = undone > WORTH_LOADING * arrivals
        idle = in_hours(self.standing, hours)
        for pool, c in enumerate(self.clusters):
            idle[c] -= nodes[pool] - spare[pool] / self.share[c].take(hours)
        is_movable = np.zeros(hours.size, dtype=np.bool_)
        state = self.review.state[hours]
        for w in np.flatnonzero(is_undone.any(axis=1)).tolist():
            for pool in self._order(w):
                if self.pool_groups[pool] is not None and self._is_own(pool, w):
                    by_size = np.array([self._replica_nodes(size) for size in self.sizes[pool]])
                    smallest = by_size[self.review.held.size[pool]].take(state)
                    is_movable |= is_undone[w] & (idle[self.clusters[pool]] >= smallest - ROUNDING)
        return hours[is_movable]

    def _for_own_work(self, hours: Ints) -> Floats:
        """Return the nodes of each pool where some hours are placed for their own work, shape (pools, some hours)."""
        groups = []
        for group in self._groups(hours, self.reviewed.size.take(hours, axis=1)):
            # A node that is out for part of an hour serves for the rest.
            share = self.share[group.cluster].take(hours)
            rates = {w: rate * share for w, rate in group.rates.items()}
            groups.append(dataclasses.replace(group, rates=rates))
        standing = in_hours(self.standing, hours)
        site = Site(self.placement, groups, standing, node_steps(self.plan))
        arrivals = in_hours(self.arrivals, hours)
        mean = self.placement.full_requests[:, self.months[hours]] * in_hours(self.is_asked, hours)
        longest_h = max(workload.deadline_h for workload in self.plan.workloads)
        # Shares are levelled by the reviews: where an hour is short even so, what they place stays. Work that can wait
        # is due some time: what comes of it on average goes before the headroom of others, if these meet their targets
        # with some to spare. Then as long for all of them, or those that may wait longer would be served before the
        # others.
        for classes, requests in (
            (site.urgent, arrivals),
            (site.urgent, self._calm_requests(hours, arrivals)),
            (site.patient, mean),
            (site.urgent, arrivals / HOUR_USE),
            (site.patient, mean * longest_h),
        ):
            for members in classes:
                site.fill_stage(Stage(members=members, requests=requests[[*members], None]))
        self._fill_up(site, arrivals)
        return site.nodes

    def _calm_requests(self, hours: Ints, arrivals: Floats) -> Floats:
        """Return the capacity with which hardly more is late than on idle machines, shape (workloads, some hours).

        No more than reviews place, and 0 for workloads for which they find room well beyond the targets: these can
        spare it.
        """
        placement = self.placement
        placed = in_hours(self.review.requests, self.review.state[hours])
        beyond = placement.beyond_requests[:, self.months[hours], BEYOND_STEPS // 2]
        calm_load = np.ones_like(arrivals)
        for pool, sizes in enumerate(self.sizes):
            held = sizes[self.reviewed.size[pool].take(hours)]
            is_there = self.reviewed.nodes[pool].take(hours) > 0.0
            for w in range(len(arrivals)):
                if pool in self._order(w) and self._is_own(pool, w):
                    load = np.where(is_there, placement.size_calm_load[held, w], 1.0)
                    calm_load[w] = np.minimum(calm_load[w], load)
        is_spare = placed >= beyond * (1.0 - ROUNDING)
        return np.where(is_spare, 0.0, np.minimum(arrivals / calm_load, placed))

    def _better(self, hours: Ints, own: Floats, nodes: Floats) -> Floats:
        """Return what some hours hold, given what the hours before them do: for their own work, or as reviewed.

        What was reviewed stays where loading leaves more of a workload undone than it is worth.
        """
        before = self._before(nodes, hours)
        reviewed = in_hours(self.reviewed.nodes, hours)
        own_undone, _ = self._routed(own, hours, before)
        reviewed_undone, _ = self._routed(reviewed, hours, before)
        is_loss = own_undone > WORTH_LOADING * in_hours(self.arrivals, hours)
        is_worse = is_loss & (own_undone > reviewed_undone * (1.0 + ROUNDING) + ROUNDING)
        is_gain = own_undone < reviewed_undone * (1.0 - ROUNDING) - ROUNDING
        stays = np.zeros(hours.size, dtype=np.bool_)
        is_decided = np.zeros(hours.size, dtype=np.bool_)
        workloads = self.plan.workloads
        urgent = [w for w in self.plan.by_priority if not workloads[w].deadline_h]
        for _, members in itertools.groupby(urgent, key=lambda w: workloads[w].priority):
            # The first class that would lose or gain decides.
            of_class = [*members]
            loses = is_worse[of_class].any(axis=0)
            stays |= loses & ~is_decided
            is_decided |= loses | is_gain[of_class].any(axis=0)
        return np.where(stays, reviewed, own)

    def _routes_on(self, nodes: Floats, hours: Ints) -> list[Route]:
        """Return the routes of some hours where pools have some nodes, shape (pools, some hours)."""
        pools = self.placement.pools
        sizes = [self._size_on(pool, nodes[pool], hours) for pool in range(len(self.sizes))]
        months = self.months[hours]
        month_count = pools.requests_per_node_h.shape[2]
        routes = []
        for w, workload in enumerate(pools.workloads):
            table = np.ascontiguousarray(pools.requests_per_node_h[:, w])
            rates = [np.zeros(1)] * len(self.sizes)
            for pool in workload.cluster_order:
                rows = self.sizes[pool].take(sizes[pool])
                rate = table.take(rows * month_count + months if month_count > 1 else rows)
                speed = self.window.speed.get((self.clusters[pool], w))
                rates[pool] = rate if speed is None else rate * speed[hours]
            routes.append(Route(workload.cluster_tiers, rates))
        return routes

    def _before(self, nodes: Floats, hours: Ints) -> Floats:
        """Return the nodes of each pool that hold its layout when some hours begin, shape (pools, some hours)."""
        earlier = np.maximum(hours - 1, 0)
        before = in_hours(nodes, earlier)
        is_start = hours == 0
        if is_start.any():
            before[:, is_start] = self._before_window(nodes[:, :1])
        # A pool in another layout is loaded whole.
        earlier_states = self.review.state[earlier]
        states = self.review.state[hours]
        for pool, layouts in enumerate(self.layouts):
            if layouts.size > 1:
                by_state = layouts[self.review.held.size[pool]]
                before[pool][by_state[earlier_states] != by_state[states]] = 0.0
        return before

    def _before_window(self, first: Floats) -> Floats:
        """Return the nodes of each pool that hold its layout when the window begins, shape (pools, 1).

        At the start of a run all that is placed is there.
        """
        replicas = self.window.replicas_before
        if replicas is None:
            return first
        before = np.zeros_like(first)
        placement = self.placement
        for pool, g in enumerate(self.pool_groups):
            if g is not None:
                layouts = self.layouts[pool]
                now = layouts[self.reviewed.size[pool, 0]]
                for layout, d in zip(layouts, placement.groups[g], strict=True):
                    if layout == now:
                        before[pool] += replicas[d] * placement.deployments[d].nodes_per_replica
        return before

    def loading(self) -> tuple[Ints, Floats]:
        """Return hours in which weights are loaded, and the nodes that do, mean of the hour, shape (pools, hours)."""
        nodes = self.held.nodes
        is_changed = np.ones(nodes.shape[1], dtype=np.bool_)
        is_changed[1:] = self.review.state[1:] != self.review.state[:-1]
        if self.held is not self.reviewed:
            is_changed[1:] |= (nodes[:, 1:] != nodes[:, :-1]).any(axis=0)
        hours = np.flatnonzero(is_changed)
        rise = np.maximum(in_hours(nodes, hours) - self._before(nodes, hours), 0.0)
        loading = rise * in_hours(self.load_h, self.review.state[hours])
        for pool, c in enumerate(self.clusters):
            loading[pool] *= self.share[c][hours]
        return hours, loading

    def _routed(self, nodes: Floats, hours: Ints, before: Floats | None) -> tuple[Floats, Floats]:
        """Return the requests that find no room by priority, and the serving nodes of each pool that find no work.

        Shape (workloads, some hours) and (pools, some hours). What loads since the hour before serves that much less.
        """
        spare = nodes.copy()
        if before is not None:
            load_h = in_hours(self.load_h, self.review.state[hours])
            spare -= np.maximum(nodes - before, 0.0) * load_h
        for pool, c in enumerate(self.clusters):
            if self.pool_groups[pool] is None:
                spare[pool] = self.standing[c].take(hours)
            spare[pool] *= self.share[c].take(hours)
        undone = in_hours(self.arrivals, hours)
        routes = self._routes_on(nodes, hours)
        for w in self.plan.by_priority:
            for pool in routes[w].order:
                work = routes[w].nodes(undone[w], pool, ALL)
                used = np.minimum(work, spare[pool])
                spare[pool] -= used
                undone[w] -= used * routes[w].rate(pool, ALL)
                if not undone[w].any():
                    break
        return undone, spare


_MOST_REVIEWS = 20_000
"""States of a site that are kept: some 5 MB."""


@record
class _Known:
    """What is known of a placement: replications of it come through the same again."""

    placement: Placement
    reviews: dict[bytes, tuple[Floats, Ints]]
    """What reviews place, nodes and sizes, by state of the site."""
    missed: dict[int, Floats]
    """What a month misses by load in each size of a pool."""
    with_pools: dict[tuple[int, ...], Placement]
    """What it is with some of its pools."""


_last: deque[_Known] = deque(maxlen=4)
"""Of the last placements that were asked for: one, and what it is with some of its clusters."""


def _known_of(placement: Placement) -> _Known:
    """Return what is known of a placement, to be added to."""
    known = next((known for known in tuple(_last) if known.placement is placement), None)
    if known is None or len(known.reviews) > _MOST_REVIEWS:
        known = _Known(placement=placement, reviews={}, missed={}, with_pools={})
        _last.append(known)
    return known


def _with_clusters(placement: Placement, nodes: Floats) -> Placement:
    """Return a placement with the replicas of those clusters only that have nodes.

    Or that are the first of a workload which no other serves.
    """
    clusters = set(np.flatnonzero(nodes).tolist())
    for workload in placement.pools.workloads:
        on_clusters = [placement.pool_cluster[pool] for pool in workload.cluster_order]
        # What nothing serves stays on offer to its first cluster.
        if clusters.isdisjoint(on_clusters):
            clusters.update(on_clusters[:1])
    # Every cluster keeps a pool, if only of what holds nothing.
    pools = [
        pool
        for pool, c in enumerate(placement.pool_cluster)
        if c in clusters or placement.pool_group[pool] is None
    ]
    if len(pools) == len(placement.pool_cluster):
        return placement
    known = _known_of(placement).with_pools
    key = tuple(pools)
    if key not in known:
        known[key] = _narrow(placement, pools)
    return known[key]


def _narrow(placement: Placement, pools: Sequence[int]) -> Placement:
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
    clusters = tuple(plan.clusters[pool] for pool in pools)
    return dataclasses.replace(
        placement,
        pools=dataclasses.replace(plan, clusters=clusters, workloads=tuple(workloads)),
        pool_cluster=tuple(placement.pool_cluster[pool] for pool in pools),
        pool_group=tuple(placement.pool_group[pool] for pool in pools),
        pool_sizes=tuple(placement.pool_sizes[pool] for pool in pools),
    )


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
    months = placement.pools.months.hour_periods[window.hours]
    for (pool, w), requests in router_served.items():
        for row, hours in placed.window.parts(pool):
            speed = placement.size_speed[row, w]
            if np.all(speed == 1.0):
                continue
            if speed.size > 1:
                speed = speed.take(months[hours])
            pair = (owner[pool], w)
            if pair not in slower:
                slower[pair] = np.zeros_like(requests)
            slower[pair][hours] += requests[hours] * (1.0 / safe_denominator(speed) - 1.0)
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
