"""The nodes of a site at many moments at once, and the whole replicas that are placed on them.

A moment is a monthly review or a single hour. Needs come in stages, class by class. Each workload takes the clusters in
the order of its routing, as far as there is room. Or a linear program decides for all stages at once which cluster a
workload uses: it raises the shares of each stage as far as they go and leaves most to the next. Then stage by stage
whole replicas are placed for the highest level at which they fit, found by halving, and what room is left raises the
lowest first.

Arrays have the moments as last axis. No moment sees another.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.elementwise import in_hours, safe_denominator
from planner.engine.allocation import Demand, Steps, allocate
from planner.engine.hourly import Route
from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD
from planner.plan.placement import ROUNDING
from planner.plan.plan import Placement
from planner.records import record

_HALVINGS = 16
"""Of the interval in which the level of a class lies: to less than a ten-thousandth."""
_LEVEL_STEP = 1e-4
"""By how much a way to divide work has to raise a level to be the better one."""
_NO_RATE = 1e-30
"""Requests an hour, as a divisor where a pool does not serve a workload."""
_LITTLE_LATE = 1e-3
"""Of requests: layouts that differ by less in what they miss are told apart by their room."""
_HOURS = (1.0, 0.85, 0.7, 0.55, 0.4)
"""Traffic of hours over the busiest, which stand for a month where layouts are compared."""
_MOST_LOAD = 1e3
"""Load beyond which layouts are not told apart."""
_POOL_ROUNDS = 2
"""How often work is divided among clusters at the rates of the pools that the division before it gives."""
Splits = Mapping[tuple[int, int], Floats]
"""By group and workload, the share of the workload's requests that the group is to have, shape (moments,)."""


@record
class Stage:
    """What a class of workloads needs, by level of service from 0 to 1, beside what it needs in the stages before."""

    members: Sequence[int]
    requests: Floats
    """Capacity for equal steps of the level, requests an hour, shape (members, steps + 1, moments)."""

    def moments(self, which: Ints) -> Stage:
        """Return the stage at some of the moments."""
        if np.array_equal(which, np.arange(self.requests.shape[2])):
            return self
        return replace(self, requests=in_hours(self.requests, which))

    def of(self, workloads: Sequence[int]) -> Stage:
        """Return the stage of some workloads only."""
        places = [place for place, w in enumerate(self.members) if w in workloads]
        members = [self.members[place] for place in places]
        return replace(self, members=members, requests=self.requests[places])

    def with_needs(self) -> Stage:
        """Return the stage without members that need nothing at any moment: they would only move what is rounded."""
        places = np.flatnonzero(self.requests.any(axis=(1, 2)))
        members = [self.members[place] for place in places.tolist()]
        return replace(self, members=members, requests=self.requests[places])

    def need(self, place: int, level: Floats) -> Floats:
        """Return the capacity that a member needs for a level, shape (moments,)."""
        requests = self.requests[place]
        steps = len(requests) - 1
        position = level * steps
        step = np.minimum(position.astype(np.intp), steps - 1)
        columns = np.arange(requests.shape[1])
        lower = requests[step, columns]
        return np.asarray(lower + (position - step) * (requests[step + 1, columns] - lower))

    def level(self, place: int, placed: Floats) -> Floats:
        """Return the level that a member reaches with a capacity, shape (moments,); 1 where it needs nothing."""
        requests = self.requests[place]
        steps = np.diff(requests, axis=0)
        reached = np.clip(placed - requests[:-1], 0.0, steps)
        parts = np.where(
            steps > 0.0, reached / np.where(steps > 0.0, steps, 1.0), placed >= requests[1:]
        )
        return np.asarray(parts.sum(axis=0) / len(steps))


@record
class ReplicaGroup:
    """The same models on one cluster, in a pool that has the figures of its size."""

    cluster: int
    workloads: tuple[int, ...]
    """Those for which replicas are placed."""
    replica_nodes: Floats
    """Nodes of a replica, shape (sizes, moments or 1); 0 where any share of a node will do."""
    least_nodes: Floats
    """Nodes from which the figures of a size hold, of the same shape."""
    least_replicas: int
    """Replicas that hold all fine-tunes of a model between them."""
    rates: Mapping[int, Floats]
    """By workload that it serves, requests an hour of a node, shape (sizes, moments)."""
    missed: Floats
    """Share of a month's requests late or refused by load of its busiest hour over capacity, shape (sizes, cells + 1);
    none where work can wait."""

    def moments(self, which: Ints) -> ReplicaGroup:
        """Return the group at some of the moments."""
        replica_nodes = self.replica_nodes
        least_nodes = self.least_nodes
        if replica_nodes.shape[1] > 1:
            replica_nodes = in_hours(replica_nodes, which)
            least_nodes = in_hours(least_nodes, which)
        rates = {w: in_hours(rate, which) for w, rate in self.rates.items()}
        return replace(self, replica_nodes=replica_nodes, least_nodes=least_nodes, rates=rates)

    def whole(self, nodes: Floats) -> Floats:
        """Return the nodes of the whole replicas on some nodes, by size; 0 where a size needs more of them."""
        if self.is_divisible:
            return np.where(nodes >= self.least_nodes - ROUNDING, nodes, 0.0)
        held = nodes / self.replica_nodes
        held += ROUNDING
        np.floor(held, out=held)
        held *= self.replica_nodes
        held[held < self.least_nodes - ROUNDING] = 0.0
        return held

    @property
    def is_divisible(self) -> bool:
        """Whether any share of a node will do."""
        return float(self.replica_nodes[0, 0]) == 0.0

    def work(self, requests: Mapping[int, Floats]) -> Floats:
        """Return the node-equivalents that requests take, by size, shape (sizes, moments)."""
        work = np.zeros((len(self.replica_nodes), 1))
        for w, wanted in requests.items():
            # A size that does not serve it would take any number of nodes.
            work = work + wanted / np.maximum(self.rates[w], _NO_RATE)
        return work

    def nodes_for(self, requests: Mapping[int, Floats]) -> Floats:
        """Return the fewest nodes whose whole replicas serve some requests, shape (moments,)."""
        work = self.work(requests)
        if self.is_divisible:
            return np.asarray(work.min(axis=0))
        replicas = np.ceil(work / self.replica_nodes - ROUNDING)
        least_replicas = np.ceil(self.least_nodes / self.replica_nodes - ROUNDING)
        least_replicas = np.maximum(least_replicas, self.least_replicas)
        nodes = np.maximum(replicas, least_replicas) * self.replica_nodes
        nodes = np.where(work > 0.0, nodes, 0.0)
        return np.asarray(nodes.min(axis=0))

    def most_requests(self, w: int, requests: Mapping[int, Floats], nodes: Floats) -> Floats:
        """Return what of a workload some nodes serve beside other requests, shape (moments,)."""
        spare = self.whole(nodes) - self.work(requests)
        return np.asarray(np.maximum(spare * self.rates[w], 0.0).max(axis=0))

    def best_size(self, requests: Mapping[int, Floats], nodes: Floats) -> tuple[Ints, Floats]:
        """Return the size on some nodes that misses least at a load, and what share it misses, shape (moments,) each.

        Of equals it is the one with the most room, and without work the largest.
        """
        moments = np.arange(nodes.size)
        if len(self.replica_nodes) == 1 and not self.missed.size:
            return np.zeros_like(moments), np.zeros(nodes.size)
        held = self.whole(nodes)
        load = np.broadcast_to(self.work(requests) / safe_denominator(held), held.shape)
        misses = self._misses(load) if self.missed.size else np.zeros_like(load)
        score = np.minimum(load, _MOST_LOAD) * _LITTLE_LATE + np.floor(misses / _LITTLE_LATE)
        score = np.where(held > 0.0, score, np.inf)
        largest_first = score[::-1].argmin(axis=0)
        size = np.asarray(len(score) - 1 - largest_first, dtype=np.intp)
        return size, misses[size, moments]

    def _misses(self, load: Floats) -> Floats:
        """Return the share that a month misses whose busiest hour is at some load, shape (sizes, moments)."""
        width = self.missed.shape[1]
        place = load * (LOAD_CELLS / MOST_LOAD)
        cells = np.minimum(place, width - 1).astype(np.intp)
        # Looked up in the flat table: half of the time that an index of two axes takes.
        cells += np.arange(len(cells))[:, None] * width
        return _beyond_end(self.missed.ravel().take(cells), place, width - 1)


def month_misses(missed: Floats, most_loads: Floats) -> Floats:
    """Return the share that a month misses by load of its busiest hour, shape (sizes, wider cells + 1).

    ``missed``, shape (sizes, cells + 1), has that of single hours, and ``most_loads`` what each size is offered at
    most, shape (sizes,): beyond that nothing of a table is its own. The result ends where the quietest hour reaches
    the highest of them.
    """
    ends = (most_loads * (LOAD_CELLS / MOST_LOAD)).astype(np.intp)
    sizes = np.arange(len(missed))[:, None]
    cells = np.arange(int(ends.max() / _HOURS[-1]) + 2)
    month = np.zeros((len(missed), cells.size))
    for traffic in _HOURS:
        hour_cells = np.asarray(cells * traffic, dtype=np.float64)
        hour = missed[sizes, np.minimum(hour_cells.astype(np.intp), ends[:, None])]
        month += traffic * _beyond_end(hour, hour_cells, ends[:, None])
    return month / sum(_HOURS)


def _beyond_end(misses: Floats, cells: Floats, end: Floats | Ints | int) -> Floats:
    """Return misses read from a table by load, where no more is in time beyond its end than there."""
    return np.asarray(1.0 - (1.0 - misses) * (end / np.maximum(cells, end)))


class Site:
    """Replicas being placed on the nodes of some moments."""

    def __init__(
        self, placement: Placement, groups: Sequence[ReplicaGroup], nodes: Floats, steps: Steps
    ) -> None:
        """Start with empty nodes, shape (clusters, moments); groups are those of the first pools."""
        workloads = placement.pools.workloads
        self.groups = groups
        self.steps = steps
        self.free = nodes.copy()
        """Nodes that hold nothing yet, shape (clusters, moments)."""
        self.nodes = np.zeros((len(groups), nodes.shape[1]))
        """Nodes of each group, shape (groups, moments)."""
        self.requests: list[dict[int, Floats]] = [{} for _ in groups]
        """By group and workload, the requests an hour for which they are placed, shape (moments,)."""
        self.order = [
            [g for g in workload.cluster_order if w in groups[g].rates]
            for w, workload in enumerate(workloads)
        ]
        """By workload, the groups that serve it in the order in which they are offered it."""
        by_class = itertools.groupby(
            placement.pools.by_priority, key=lambda w: workloads[w].priority
        )
        self.classes = [tuple(members) for _, members in by_class]
        waits = [workload.deadline_h > 0 for workload in workloads]
        self.urgent = [members for members in self.classes if not waits[members[0]]]
        """The classes that cannot wait, and those that can."""
        self.patient = [members for members in self.classes if waits[members[0]]]

    def moments(self, which: Ints) -> Site:
        """Return the site at some of the moments, as a copy."""
        if np.array_equal(which, np.arange(self.free.shape[1])):
            return self.copy()
        other = copy.copy(self)
        other.groups = [group.moments(which) for group in self.groups]
        other.free = in_hours(self.free, which)
        other.nodes = in_hours(self.nodes, which)
        other.requests = [
            {w: in_hours(placed, which) for w, placed in of_group.items()}
            for of_group in self.requests
        ]
        return other

    def put(self, which: Ints, other: Site) -> None:
        """Take over what another site has at some of the moments."""
        self.free[:, which] = other.free
        self.nodes[:, which] = other.nodes
        for own, others in zip(self.requests, other.requests, strict=True):
            # Also what this one has placed for and the other has not.
            for w in own.keys() | others.keys():
                own[w] = own[w].copy() if w in own else np.zeros(self.free.shape[1])
                own[w][which] = others.get(w, 0.0)

    def placed_requests(self, w: int) -> Floats:
        """Return the requests an hour of a workload for which replicas are placed, shape (moments,)."""
        placed = np.zeros(self.free.shape[1])
        for of_group in self.requests:
            if w in of_group:
                placed = placed + of_group[w]
        return placed

    def fill_stages(self, stages: Sequence[Stage]) -> Ints:
        """Place replicas in the order of routing; return the moments at which not all finds room."""
        is_short = np.zeros(self.free.shape[1], dtype=np.bool_)
        for stage in stages:
            is_short |= self.fill_stage(stage)
        return np.flatnonzero(is_short)

    def place_divided(self, stages: Sequence[Stage], own: Mapping[int, Sequence[int]]) -> None:
        """Place replicas in the order of routing, and where that leaves work undone as a linear program divides it.

        ``own`` are the groups that may be placed for each workload.
        """
        empty = self.copy()
        stages = [stage for stage in stages if stage.members]
        which = self.fill_stages(stages)
        if which.size:
            self.divide(which, empty, stages, own)

    def divide(
        self,
        which: Ints,
        empty: Site,
        stages: Sequence[Stage],
        own: Mapping[int, Sequence[int]],
    ) -> None:
        """Take over what a linear program makes of an empty site at some moments, where that is better."""
        # Alone, a workload has taken all that there is.
        if len({w for stage in stages for w in stage.members}) > 1:
            divided = empty.moments(which)
            short_stages = [stage.moments(which) for stage in stages]
            divided.raise_levels(short_stages, divided.splits(short_stages, own))
            self.take_better(which, divided, short_stages)

    def copy(self) -> Site:
        """Return the site as it is, which stays so."""
        other = copy.copy(self)
        other.free = self.free.copy()
        other.nodes = self.nodes.copy()
        # What is added to is replaced, never written into.
        other.requests = [dict(of_group) for of_group in self.requests]
        return other

    def partitioned(self, nodes: Floats) -> Site:
        """Return an empty site in which each group is a cluster of its own, with nodes of shape (groups, moments)."""
        other = copy.copy(self)
        other.groups = [replace(group, cluster=g) for g, group in enumerate(self.groups)]
        other.steps = self.steps.select(np.array([group.cluster for group in self.groups]))
        other.free = nodes.copy()
        other.nodes = np.zeros_like(nodes)
        other.requests = [{} for _ in self.groups]
        return other

    def take_better(self, which: Ints, other: Site, stages: Sequence[Stage]) -> None:
        """Take over what another site has at those of some moments at which it has the better levels."""
        rise = other.levels(stages) - self.moments(which).levels(stages)
        is_different = np.abs(rise) > _LEVEL_STEP
        # The first stage, and in it the lowest level, in which they differ decides.
        first = is_different.argmax(axis=0)
        better = np.flatnonzero(rise[first, np.arange(which.size)] > _LEVEL_STEP)
        if better.size:
            self.put(which[better], other.moments(better))

    def levels(self, stages: Sequence[Stage]) -> Floats:
        """Return the levels reached, stage by stage in ascending order, shape (figures, moments)."""
        by_stage = []
        for stage in stages:
            levels = [
                stage.level(place, self.placed_requests(w)) for place, w in enumerate(stage.members)
            ]
            by_stage.append(np.sort(np.stack(levels), axis=0))
        return np.concatenate(by_stage)

    def fill(self, w: int, wanted: Floats) -> Floats:
        """Place replicas for requests of a workload in the order of its groups; return those without room."""
        for g in self.order[w]:
            if not wanted.any():
                break
            group = self.groups[g]
            limit = self.nodes[g]
            if w in group.workloads:
                limit = limit + self.free[group.cluster]
            room = group.most_requests(w, self.requests[g], limit)
            given = np.minimum(wanted, room)
            self._hold(g, w, given)
            wanted = wanted - given
        return wanted

    def _hold(self, g: int, w: int, requests: Floats) -> None:
        """Place what a group needs for further requests of a workload, of which it has room for all."""
        if not requests.any():
            return
        group = self.groups[g]
        before = self.requests[g].get(w, 0.0)
        self.requests[g] = {**self.requests[g], w: before + requests}
        if w in group.workloads:
            needed = group.nodes_for(self.requests[g])
            limit = self.nodes[g] + self.free[group.cluster]
            is_beyond = needed > limit + ROUNDING
            if is_beyond.any():
                # Of fine-tunes as many as there is room for: the others are shed.
                needed = np.where(is_beyond, group.whole(limit).max(axis=0), needed)
            nodes = np.maximum(needed, self.nodes[g])
            self.free[group.cluster] -= nodes - self.nodes[g]
            self.nodes[g] = nodes

    def fill_stage(self, stage: Stage) -> Bools:
        """Place replicas for all that a stage needs, one workload after the other; return where room is short."""
        is_short = np.zeros(self.free.shape[1], dtype=np.bool_)
        for w, requests in zip(stage.members, stage.requests, strict=True):
            rest = self.fill(w, self._missing(w, requests[-1]))
            is_short |= rest > ROUNDING * requests[-1]
        return is_short

    def _missing(self, w: int, needed: Floats) -> Floats:
        """Return the requests of a workload for which nothing is placed yet, shape (moments,).

        What rounding leaves of a need is none: it would take a replica on the next cluster.
        """
        missing = needed - self.placed_requests(w)
        return np.where(missing > ROUNDING * needed, missing, 0.0)

    def raise_levels(self, stages: Sequence[Stage], splits: Sequence[Splits]) -> None:
        """Place replicas stage by stage at the highest level at which they fit for all of its workloads."""
        for stage, of_stage in zip(stages, splits, strict=True):
            level = self._highest_level(stage, of_stage)
            placed = {w: self.placed_requests(w) for w in stage.members}
            for (g, w), requests in self._wanted(stage, of_stage, level, placed).items():
                self._hold(g, w, requests)
            if level.min(initial=1.0) < 1.0:
                self._raise_lowest(stage)

    def _highest_level(self, stage: Stage, splits: Splits) -> Floats:
        """Return the highest level of service at which whole replicas fit for a stage so divided, shape (moments,)."""
        everything = np.ones(self.free.shape[1])
        level = np.zeros_like(everything)
        placed = {w: self.placed_requests(w) for w in stage.members}
        level[self._fits(self._wanted(stage, splits, everything, placed))] = 1.0
        if level.all():
            return level
        # In most moments there is room for all, or for nothing.
        has_room = self._fits(self._wanted(stage, splits, everything * _LEVEL_STEP, placed))
        which = np.flatnonzero((level < 1.0) & has_room)
        if not which.size:
            return level
        # Three levels at once decide two halvings: numpy takes little longer for them than for one.
        tried = np.tile(which, 3)
        site = self.moments(tried)
        stage = stage.moments(tried)
        splits = {pair: share.take(tried) for pair, share in splits.items()}
        placed = {w: requests.take(tried) for w, requests in placed.items()}
        low = np.zeros(which.size)
        quarter = 0.25
        for _ in range(_HALVINGS // 2):
            levels = np.concatenate([low + step * quarter for step in (1.0, 2.0, 3.0)])
            fits = site._fits(site._wanted(stage, splits, levels, placed))
            first, second, third = fits.reshape(3, -1)
            steps = np.where(second, 2.0 + third, first)
            low = low + steps * quarter
            quarter /= 4.0
        level[which] = low
        return level

    def _wanted(
        self, stage: Stage, splits: Splits, level: Floats, placed: Mapping[int, Floats]
    ) -> dict[tuple[int, int], Floats]:
        """Return the further requests that groups have to have room for at a level of service.

        ``placed`` are those of each member for which replicas are placed.
        """
        wanted = {}
        for place, w in enumerate(stage.members):
            more = np.maximum(stage.need(place, level) - placed[w], 0.0)
            # What a stage needs at level 0 is what the stage before it left undone: there was no room for it.
            more = np.where(level > 0.0, more, 0.0)
            for g in self.order[w]:
                if (g, w) in splits:
                    wanted[g, w] = more * splits[g, w]
        return wanted

    def _fits(self, wanted: Mapping[tuple[int, int], Floats]) -> Bools:
        """Return the moments at which there are nodes for further requests by group and workload."""
        growth = np.zeros_like(self.free)
        by_group: dict[int, dict[int, Floats]] = {}
        for (g, w), requests in wanted.items():
            by_group.setdefault(g, dict(self.requests[g]))
            by_group[g][w] = by_group[g].get(w, 0.0) + requests
        for g, requests_of_group in by_group.items():
            group = self.groups[g]
            nodes = group.nodes_for(requests_of_group)
            growth[group.cluster] += np.maximum(nodes - self.nodes[g], 0.0)
        return np.asarray((growth <= self.free + ROUNDING).all(axis=0))

    def splits(
        self, stages: Sequence[Stage], own: Mapping[int, Sequence[int]]
    ) -> list[dict[tuple[int, int], Floats]]:
        """Return by stage the share of each workload's requests that each of its groups is to have.

        Those of a linear program in which each stage leaves most to the next. Rates are those of the pools that it
        gives, so that it is solved anew with these.
        """
        count = self.free.shape[1]
        first = {(groups[0], w): np.ones(count) for w, groups in own.items() if groups}
        splits = [first] * len(stages)
        if all(len(groups) < 2 for groups in own.values()):
            return splits
        pool_nodes = {}
        for g in {g for groups in own.values() for g in groups}:
            pool_nodes[g] = self.nodes[g] + self.free[self.groups[g].cluster]
        for _ in range(_POOL_ROUNDS):
            given, rates = self._divided(stages, own, pool_nodes)
            splits = []
            for stage, nodes in zip(stages, given, strict=True):
                of_stage: dict[tuple[int, int], Floats] = {}
                for w in stage.members:
                    served = {g: nodes[g, w] * rates[g, w] for g in own[w]}
                    total = safe_denominator(np.asarray(sum(served.values(), np.zeros(count))))
                    for place, g in enumerate(own[w]):
                        # Where nothing of it can be served the first cluster is as good as any.
                        share = np.where(np.isinf(total), float(place == 0), served[g] / total)
                        of_stage[g, w] = share
                splits.append(of_stage)
            for g in pool_nodes:
                pool_nodes[g] = self.nodes[g].copy()
            for nodes in given:
                for (g, _), part in nodes.items():
                    pool_nodes[g] += part
        return splits

    def _divided(
        self,
        stages: Sequence[Stage],
        own: Mapping[int, Sequence[int]],
        pool_nodes: Mapping[int, Floats],
    ) -> tuple[list[dict[tuple[int, int], Floats]], dict[tuple[int, int], Floats]]:
        """Return by stage the nodes that a linear program gives workloads by group, and their rates in those pools."""
        count = self.free.shape[1]
        rates = {}
        routes = {}
        for w, groups in own.items():
            by_cluster = [np.zeros(1)] * len(self.free)
            for g in groups:
                group = self.groups[g]
                size, _ = group.best_size(self.requests[g], pool_nodes[g])
                rates[g, w] = group.rates[w][size, np.arange(count)]
                by_cluster[group.cluster] = rates[g, w]
            routes[w] = Route([[self.groups[g].cluster] for g in groups], by_cluster)
        entries = [(number, w) for number, stage in enumerate(stages) for w in stage.members]
        needed = {w: self.placed_requests(w) for w in own}
        requests = []
        for stage in stages:
            for w, table in zip(stage.members, stage.requests, strict=True):
                requests.append(np.maximum(table[-1] - needed[w], 0.0))
                needed[w] = needed[w] + requests[-1]
        demand = Demand(
            workloads=range(len(entries)),
            levels=[number for number, _ in entries],
            requests=np.stack(requests),
            hours=np.arange(count),
        )
        clusters = sorted({c for route in routes.values() for c in route.order})
        allocated = allocate(
            [routes[w] for _, w in entries], self.free[clusters], demand, self.steps
        )
        given: list[dict[tuple[int, int], Floats]] = [{} for _ in stages]
        for place, (number, w) in enumerate(entries):
            for g in own[w]:
                row = clusters.index(self.groups[g].cluster)
                given[number][g, w] = allocated[row, place]
        return given, rates

    def _raise_lowest(self, stage: Stage) -> None:
        """Fill what room is left with replicas for a class, for those of its workloads first that have least."""
        members = stage.members
        needs = stage.requests[:, -1]
        placed = np.stack([self.placed_requests(w) for w in members])
        # Those that have nothing get one replica each, the smallest first, and of equals the one that it serves best: a
        # model that is not there serves nobody.
        firsts = [self._first_replica(w) for w in members]
        smallest = np.stack([nodes for nodes, _ in firsts])
        served = np.stack([requests for _, requests in firsts])
        ranks = np.lexsort((-served / safe_denominator(needs), smallest), axis=0)
        for rank in range(len(members)):
            for place, w in enumerate(members):
                is_absent = (placed[place] <= 0.0) & (needs[place] > 0.0)
                is_next = is_absent & (ranks[rank] == place)
                self.fill(w, np.where(is_next, ROUNDING * needs[place], 0.0))
        levels = np.stack([stage.level(place, row) for place, row in enumerate(placed)])
        ranks = np.argsort(levels, axis=0, kind="stable")
        for rank in range(len(members)):
            for place, w in enumerate(members):
                more = self._missing(w, needs[place])
                self.fill(w, np.where(ranks[rank] == place, more, 0.0))

    def _first_replica(self, w: int) -> tuple[Floats, Floats]:
        """Return the nodes of a workload's smallest replica, and what it serves at most, shape (moments,) each."""
        nodes = np.full(self.free.shape[1], np.inf)
        served = np.zeros(self.free.shape[1])
        for g in self.order[w]:
            group = self.groups[g]
            if w in group.workloads:
                nodes = np.minimum(nodes, group.replica_nodes.min(axis=0))
                replica = group.replica_nodes[0] * group.rates[w][0]
                served = np.maximum(served, replica)
        return nodes, served

    def load_of(self, g: int, requests: Floats) -> dict[int, Floats]:
        """Return what comes to a group of all requests, shape (workloads, moments), as they are divided among groups.

        A group that is short has what it leaves undone, too.
        """
        load = {}
        for w, placed in self.requests[g].items():
            share = placed / safe_denominator(self.placed_requests(w))
            load[w] = share * requests[w]
        return load

    def enlarge_late(self, requests: Floats) -> None:
        """Give groups in which requests are late what is left, where a larger pool would serve them in time.

        Class by class, and no more nodes than the size of pool that serves them best asks for.
        """
        for w in itertools.chain.from_iterable(self.urgent):
            for g in self.order[w]:
                group = self.groups[g]
                has_larger = len(group.replica_nodes) > 1 and not group.is_divisible
                if w in group.workloads and has_larger:
                    self._enlarge_late(g, requests)

    def _enlarge_late(self, g: int, requests: Floats) -> None:
        """Give a group the nodes of the smallest pool that is late least, of those that there is room for."""
        group = self.groups[g]
        c = group.cluster
        limit = self.nodes[g] + self.free[c]
        pools = np.ceil(group.least_nodes / group.replica_nodes - ROUNDING) * group.replica_nodes
        is_larger = (pools > self.nodes[g]) & (pools <= limit + ROUNDING)
        which = np.flatnonzero(is_larger.any(axis=0) & (self.nodes[g] > 0.0))
        if not which.size:
            return
        load = self.load_of(g, requests)
        held = self.nodes[g][which]
        misses = group.moments(which).best_size(_at(load, which), held)[1]
        which = which[misses > _LITTLE_LATE]
        if not which.size:
            return
        misses = misses[misses > _LITTLE_LATE]
        group = group.moments(which)
        load = _at(load, which)
        best = self.nodes[g][which]
        for pool, is_larger_pool in zip(pools, in_hours(is_larger, which), strict=True):
            nodes = np.where(is_larger_pool, pool[which] if pool.size > 1 else pool, best)
            misses_of_larger = group.best_size(load, nodes)[1]
            is_better = misses_of_larger < misses - _LEVEL_STEP
            best = np.where(is_better, nodes, best)
            misses = np.where(is_better, misses_of_larger, misses)
        self.free[c][which] -= best - self.nodes[g][which]
        self.nodes[g][which] = best

    def fill_up(self, weights: Floats, whole_clusters: Sequence[bool]) -> None:
        """Place replicas on all nodes that are left: in proportion to the nodes at work, then in order.

        On a cluster that holds nothing by ``weights``, shape (groups, moments): what stands by does so for all.
        """
        for c, has_whole_replicas in enumerate(whole_clusters):
            there = [g for g, group in enumerate(self.groups) if group.cluster == c]
            smallest = min(
                (float(self.groups[g].replica_nodes.min()) for g in there), default=np.inf
            )
            if not has_whole_replicas or self.free[c].max(initial=0.0) < smallest - ROUNDING:
                continue
            held = self.nodes[there]
            is_empty = held.sum(axis=0) <= 0.0
            basis = np.where(is_empty, weights[there], held)
            share = basis / safe_denominator(basis.sum(axis=0))
            free = self.free[c].copy()
            for g, part in zip(there, share, strict=True):
                self._enlarge(g, self.nodes[g] + part * free)
            # What is left of that is whole replicas of those that have most.
            ranks = np.argsort(-weights[there], axis=0, kind="stable")
            for rank in ranks:
                for place, g in enumerate(there):
                    is_next = (rank == place) & ((self.nodes[g] > 0.0) | (weights[g] > 0.0))
                    if is_next.any():
                        self._enlarge(g, np.where(is_next, self.nodes[g] + self.free[c], 0.0))

    def _enlarge(self, g: int, nodes: Floats) -> None:
        """Give a group the whole replicas that fit on some nodes, where that is more than it has."""
        group = self.groups[g]
        held = group.whole(nodes).max(axis=0)
        more = np.maximum(held - self.nodes[g], 0.0)
        self.nodes[g] += more
        self.free[group.cluster] -= more


def _at(requests: Mapping[int, Floats], which: Ints) -> dict[int, Floats]:
    """Return requests by workload at some of the moments."""
    return {w: in_hours(of_all, which) for w, of_all in requests.items()}
