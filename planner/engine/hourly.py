"""The inputs and results of a window of hours."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.elementwise import Hours, safe_denominator
from planner.plan.placement import ROUNDING
from planner.plan.plan import Placement, Plan
from planner.records import record

ALL = slice(None)
"""Every hour of a window."""


@record
class SpeedLoss:
    """The hours in which incidents slow a cluster on a workload, and the speed lost."""

    hours: Ints
    """Within the window, shape (some hours,)."""
    lost_fraction: Floats
    """Share of speed lost in each, shape (some hours,)."""


@record
class PoolFigures:
    """Which row of a plan's tables each pool has in each hour."""

    rows: Sequence[Ints]
    """By pool, shape (hours,), or (1,) where it is the same in all of them."""
    parts: Sequence[Sequence[tuple[int, Hours]]]
    """By pool, its rows with the hours in which it has nodes and that one."""


@record
class WindowInput:
    """Demand, nodes and speeds of a window; arrays have its hours as last axis."""

    first_hour: int
    demand_requests: Floats
    """Arrivals, shape (workloads, hours)."""
    nodes: Floats
    """Healthy nodes with power, shape (clusters, hours)."""
    speed: Mapping[tuple[int, int], Floats]
    """Speed of a cluster on a workload against day one, where it differs from 1, shape (hours,)."""
    incidents: Mapping[tuple[int, int], SpeedLoss]
    """What open incidents take of that speed, where there are any."""
    waiting_requests: tuple[Floats, ...]
    """Per workload, requests still waiting by hour of arrival, oldest first, shape (deadline,)."""
    lit_fraction: Floats | None = None
    """Share of each hour in which the site has power, shape (hours,); None where it always has. ``nodes`` are means
    over the whole hour, so those on site fall with it."""
    cap_kw: Floats | None = None
    """Most that the site may draw in each hour, shape (hours,); None where nothing limits it."""
    carried_requests: Mapping[tuple[int, int], Floats] = field(default_factory=dict)
    """Arrivals while the site is dark for which a provider's machines have room, by cluster and workload, shape
    (hours,); none where the site is never dark or nothing stands elsewhere."""
    replicas_before: Floats | None = None
    """Replicas of each deployment in the hour before the window, shape (deployments,); None at the start."""
    figures: PoolFigures | None = None
    """Of pools that stand in place of clusters; None where every cluster has a row of its own in all hours."""
    present_nodes: Floats | None = None
    """Nodes that are there, in service or not, shape (clusters, hours): the size of a pool; None for ``nodes``."""

    @property
    def hours(self) -> slice:
        """The window's position in the horizon, as a slice of hours."""
        end = self.first_hour + self.nodes.shape[1]
        return slice(self.first_hour, end)

    def reached_requests(self, workload: int) -> Floats:
        """Return the arrivals of a workload outside site outages or carried elsewhere, shape (hours,)."""
        arrivals: Floats = self.demand_requests[workload]
        if self.lit_fraction is None:
            return arrivals
        lit = arrivals * self.lit_fraction
        return lit + sum(self.carried_by(workload).values())

    def dark_requests(self, workload: int) -> Floats | float:
        """Return the arrivals of a workload lost to a site outage, shape (hours,); 0 without an outage.

        Requests come evenly within an hour, so demand × dark share come in the dark. Machines that are lit for the rest
        of the hour cannot serve them, however much room they have: who cannot wait is gone, but for those whom machines
        elsewhere carry.
        """
        if self.lit_fraction is None:
            return 0.0
        dark_fraction = 1.0 - self.lit_fraction
        dark: Floats = self.demand_requests[workload] * dark_fraction
        # What is carried elsewhere is not lost; rounding may leave it a hair above what comes.
        carried = sum(self.carried_by(workload).values())
        return np.maximum(dark - carried, 0.0)

    def rows(self, cluster: int, hours: Hours) -> Ints:
        """Return the row of the plan's tables that a cluster has, shape (some hours,) or (1,)."""
        if self.figures is None:
            return np.array([cluster])
        rows = self.figures.rows[cluster]
        return rows if rows.size == 1 else rows[hours]

    def parts(self, cluster: int) -> Sequence[tuple[int, Hours]]:
        """Return the rows of the plan's tables that a cluster has, each with its hours."""
        return [(cluster, ALL)] if self.figures is None else self.figures.parts[cluster]

    def carried_by(self, workload: int) -> dict[int, Floats]:
        """Return the requests of a workload that each hosted cluster carries in an outage, shape (hours,)."""
        carried = self.carried_requests.items()
        return {c: requests for (c, w), requests in carried if w == workload}


@record
class NodeHours:
    """Nodes by state and hour; shape (clusters, hours)."""

    present: Floats
    """Delivered and not retired; of those rented by the hour, held and billed."""
    failed: Floats
    """Of those, out of service for a hardware fault, or taken out by a process."""
    taken_out: Floats
    """Of those out of service, taken out by a user's process."""
    dark: Floats
    """Of the rest, on site and without power in an outage of it."""

    healthy: Floats
    """The rest, but for rented ones that still start: nodes that can work."""


@record
class Slowdown:
    """Node-hours that slow software costs a cluster on a workload."""

    hours: Ints
    """Within the window, shape (some hours,)."""
    nodes: Floats
    """Node-equivalents at work for nothing in each, shape (some hours,)."""


@record
class WindowResult:
    """Hourly results of one window."""

    first_hour: int
    demand_requests: Floats
    """Shape (workloads, hours)."""
    served_requests: Floats
    """Shape (clusters, workloads, hours)."""
    late_requests: Floats
    """Served, but not in time, shape (workloads, hours)."""
    shed_requests: Floats
    """Refused or expired, shape (workloads, hours)."""
    waiting_requests: tuple[Floats, ...]
    """Per workload, what still waits at the end, by hour of arrival, oldest first."""
    nodes: Floats
    """Healthy nodes with power, shape (clusters, hours)."""
    busy_nodes: Floats
    """Node-equivalents at work, shape (clusters, hours)."""
    drag_nodes: Floats
    """Of those, what open software incidents cost, shape (clusters, hours)."""
    drags: Mapping[tuple[int, int], Slowdown]
    """The same by cluster and workload, where there is any."""
    throttled_nodes: Floats
    """Node-equivalents that had work and lost it to the power cap, shape (clusters, hours)."""
    it_kw: Floats
    """Shape (clusters, hours)."""
    facility_kw: Floats
    """IT, cooling and distribution, shape (hours,)."""
    replicas: Floats
    """Whole replicas of each deployment where they count, as many as fit elsewhere, shape (deployments, hours)."""
    loading_nodes: Floats
    """Nodes that load weights, mean of the hour, shape (groups of deployments, hours)."""
    slower_requests: Mapping[tuple[int, int], Floats] = field(default_factory=dict)
    """By cluster and workload, what the machines would have served beyond what they did, had all of it been served in
    the layout that is best for it alone; shape (hours,). Only where some was served in another."""

    @property
    def replicas_after(self) -> Floats:
        """Replicas in the last hour, shape (deployments,)."""
        return self.replicas[:, -1]


@dataclass(frozen=True, slots=True)
class Route:
    """The clusters that can serve one workload, and its rate on each."""

    tiers: Sequence[Sequence[int]]
    """Clusters in the order in which they are offered the work; those of one tier are offered it together."""
    rates: Sequence[Floats]
    """Requests per node and hour, by cluster, each of shape (1,) or (hours,)."""
    rented: int = 0
    """How many tiers at the end are rented by the hour: they are offered what the others' waits do not allow."""
    allowed: Floats | None = None
    """Share of their nodes up to which the others' waits allow it, shape (clusters, hours or 1); None where none is
    rented."""
    outgrown: Bools | None = None
    """Hours in which no cluster meets its objective any more, shape (hours,); None where a rate is never zero."""
    order: Sequence[int] = field(init=False)
    """The clusters in routing order."""
    divisors: Mapping[int, Floats] = field(init=False)
    """By cluster, the rates to divide by: infinity in place of zero, for where nothing is served nothing works."""

    def __post_init__(self) -> None:
        # Worked out once: a route is asked for nodes hundreds of times in a window.
        order = [*itertools.chain.from_iterable(self.tiers)]
        divisors = {cluster: safe_denominator(self.rates[cluster]) for cluster in order}
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "divisors", divisors)

    @property
    def paid_tiers(self) -> Sequence[Sequence[int]]:
        """Return the tiers that are paid whether busy or idle."""
        return self.tiers[: len(self.tiers) - self.rented]

    @property
    def rented_tiers(self) -> Sequence[Sequence[int]]:
        """Return the tiers that are rented by the hour."""
        return self.tiers[len(self.tiers) - self.rented :]

    def rate(self, cluster: int, hours: Hours) -> Floats:
        """Return the requests per node and hour on a cluster in some hours, of shape (1,) or (some hours,)."""
        rate = self.rates[cluster]
        return rate if rate.size == 1 else rate[hours]

    def nodes(self, requests: Floats, cluster: int, hours: Hours) -> Floats:
        """Return the node-equivalents that requests take; 0 where the rate is 0."""
        rate = self.divisors[cluster]
        # A rate that never changes is one cell, which divides all hours.
        if rate.size > 1:
            rate = rate[hours]
        return requests / rate


def serving(routes: Sequence[Route], workloads: Sequence[int]) -> Ints:
    """Return the clusters that serve any of the workloads, in index order."""
    clusters = set[int]()
    for workload in workloads:
        clusters.update(routes[workload].order)
    return np.array(sorted(clusters), dtype=np.intp)


@record
class Residence:
    """Replicas and node-hours of each group of deployments by month; shape (months, groups)."""

    replicas: Floats
    """Most at once, whole."""
    nodes: Floats
    """Nodes of the most at once."""
    held_node_h: Floats
    """Node-hours that may serve it: of its replicas, or of the cluster where any share of it may."""
    weight_load_node_h: Floats
    """Node-hours in which weights were loaded."""


def residence(plan: Plan, placement: Placement, windows: Sequence[WindowResult]) -> Residence:
    """Return replicas and node-hours of each group by month, inferred from load where it is alone.

    There replicas are those of the highest hour, ceil(nodes at work / nodes of a replica), and nothing is loaded.
    """
    starts = plan.month_edges_h[:-1]
    served = joined("served_requests", windows)
    nodes = joined("nodes", windows)
    busy = joined("busy_nodes", windows)
    placed_replicas = joined("replicas", windows)
    placed_loading = joined("loading_nodes", windows)
    shape = (len(placement.groups), plan.hours)
    replicas = np.zeros(shape)
    node_h = np.zeros(shape)
    replica_nodes = np.zeros(shape)
    loading = np.zeros(shape)
    for g, group in enumerate(placement.groups):
        largest = placement.deployments[group[-1]]
        c = largest.cluster
        if placement.placed[c]:
            for d in group:
                size = placement.deployments[d].nodes_per_replica
                replicas[g] += placed_replicas[d]
                node_h[g] += placed_replicas[d] * size
            loading[g] = placed_loading[g]
            replica_nodes[g] = node_h[g]
            continue
        node_h[g] = nodes[c]
        deployed = list(largest.workloads)
        if served[c][deployed].any():
            # Less a hair: rounding above a whole number of replicas must not add one.
            load = busy[c] / largest.nodes_per_replica
            replicas[g] = np.ceil(load - ROUNDING)
            replica_nodes[g] = replicas[g] * largest.nodes_per_replica
    return Residence(
        replicas=np.maximum.reduceat(replicas, starts, axis=1).T,
        nodes=np.maximum.reduceat(replica_nodes, starts, axis=1).T,
        held_node_h=np.add.reduceat(node_h, starts, axis=1).T,
        weight_load_node_h=np.add.reduceat(loading, starts, axis=1).T,
    )


def joined(name: str, parts: Sequence[object]) -> Floats:
    """Return a series of all windows joined end to end, hours last; a single window's is not copied: do not write."""
    series: list[Floats] = [getattr(part, name) for part in parts]
    # Most runs are a single window: no copy of its arrays.
    if len(series) == 1:
        return series[0]
    return np.concatenate(series, axis=-1)


def never_placed(plan: Plan, windows: Sequence[WindowResult]) -> list[int]:
    """Return the workloads with demand whose model was never resident anywhere."""
    placement = plan.placement
    if placement is None:
        return []
    unplaced = []
    for w, workload in enumerate(placement.pools.workloads):
        numbers = [placement.pool_group[pool] for pool in workload.cluster_order]
        groups = [placement.groups[g] for g in numbers if g is not None]
        # A pool without a group is a cluster of which any share may serve it: nothing has to be placed there.
        if not numbers or len(groups) < len(numbers):
            continue
        deployments = [*itertools.chain.from_iterable(groups)]
        has_demand = any(window.demand_requests[w].max() > 0.0 for window in windows)
        is_placed = any(window.replicas[deployments].max() > 0.0 for window in windows)
        if has_demand and not is_placed:
            unplaced.append(w)
    return unplaced
