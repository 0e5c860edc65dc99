"""The best allocation of nodes and power in hours of scarcity: one linear program per hour.

With x the node-equivalents that cluster c gives to workload w, r its requests per node and hour, n the nodes, d the
demand and y the part of a cluster's work beyond its first step::

    Σ_w x[c,w] − Σ_k y[c,k] ≤ first step of n[c]      y[c,k] ≤ step k of n[c]
    Σ_c r[c,w] x[c,w] = share[w] d[w]                 Σ_c (k₀ Σ_w x + Σ_k (k_k − k₀) y) ≤ power allowed

Shares are max-min fair, priority by priority: the lowest is raised as far as it goes, then the next lowest, and so on.
Of the plans with those shares it is the one of least crowding where that counts, then of least rent, then of least
power, then with requests where least else could be served. Nothing here sees a name or a place in the file: clusters
and workloads that are alike are one, and share what it gets by their nodes and their demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from planner.arrays import Bools, Floats, Ints
from planner.elementwise import added, in_hours, quotient
from planner.engine.hourly import Route, serving
from planner.engine.linear import Programs, raise_shares
from planner.plan.plan import Plan
from planner.records import record

_LEAST = 1e-9
"""Stands for nothing where something must be divided by."""


@record
class Steps:
    """The steps in which a cluster's nodes are filled, none cheaper than the one before."""

    width: Floats
    """Share of a cluster's nodes, shape (clusters, steps)."""
    costs: Floats
    """Of a node-equivalent of work, in order; the last is its power in kW. Shape (costs, clusters, steps)."""

    def select(self, clusters: Ints) -> Steps:
        """Return the steps of the given clusters."""
        return Steps(width=self.width[clusters], costs=self.costs[:, clusters])


def node_steps(plan: Plan) -> Steps:
    """Return the single step used without a power cap: all nodes at full clock."""
    return _full_clock_steps(plan, np.ones(1), np.zeros(1))


def waiting_steps(plan: Plan) -> Steps:
    """Return steps without a power cap that spare waits: nodes up to the preferred utilisation, then two beyond."""
    preferred = plan.preferred_utilisation
    beyond = (1.0 - preferred) / 2.0
    # The fuller a cluster is, the longer another request on it waits.
    crowding = np.array([0.0, 1.0, 2.0])
    # Rented machines are as many as their own waits ask for.
    is_paid = _rents(plan) == 0.0
    return _full_clock_steps(plan, np.array([preferred, beyond, beyond]), is_paid * crowding)


def _full_clock_steps(plan: Plan, width: Floats, crowding: Floats) -> Steps:
    """Return steps of nodes at full clock; ``crowding``, shape (steps,) or (clusters, steps), counts first."""
    full_kw = np.array([[cluster.node_power.full_kw] for cluster in plan.clusters])
    costs = np.broadcast_arrays(crowding, _rents(plan), full_kw)
    return Steps(width=np.broadcast_to(width, costs[0].shape), costs=np.stack(costs))


def power_steps(plan: Plan) -> Steps:
    """Return the steps under a power cap: nodes powered on at their most efficient clock, then at higher clocks.

    Hosted clusters have one step, which takes none of the site's power.
    """
    frontiers = [cluster.node_power.frontier() for cluster in plan.clusters]
    width = np.array([np.diff(work, prepend=0.0) for work, _ in frontiers])
    added_kw = np.array([np.diff(kw, prepend=0.0) for _, kw in frontiers])
    kw = np.repeat(added_kw[:, :1] / width[:, :1], width.shape[1], axis=1)
    np.divide(added_kw, width, out=kw, where=width > 0)
    is_hosted = plan.on_site == 0.0
    width[is_hosted] = np.eye(1, width.shape[1])
    kw[is_hosted] = 0.0
    return Steps(width=width, costs=np.stack(np.broadcast_arrays(_rents(plan), kw)))


def _rents(plan: Plan) -> Floats:
    """Return the rent of a node's busy hour in dollars, 0 where idle hours are paid, shape (clusters, 1)."""
    rents = np.zeros((len(plan.clusters), 1))
    for c, cluster in enumerate(plan.clusters):
        if cluster.rent is not None and cluster.is_paid_by_the_hour:
            hourly_usd = float(cluster.rent.usd_per_accelerator_h.mean())
            rents[c] = cluster.accelerators_per_node * hourly_usd
    return rents


@record
class Demand:
    """The workloads, requests and hours to be allocated."""

    workloads: Sequence[int]
    """Indices into the plan's workloads."""
    levels: Sequence[int]
    """For each, whose turn it is: all work of a lower level goes before any of a higher."""
    requests: Floats
    """Shape (workloads, some hours)."""
    hours: Ints
    """Within the window, shape (some hours,)."""

    def part(self, places: Ints) -> Demand:
        """Return the demand of some of the hours."""
        return replace(self, requests=in_hours(self.requests, places), hours=self.hours[places])


def allocate(
    routes: Sequence[Route],
    nodes: Floats,
    demand: Demand,
    steps: Steps,
    allowed_kw: Floats | None = None,
) -> Floats:
    """Return the node-equivalents of each cluster for each workload, shape (clusters, workloads, some hours).

    ``nodes`` has shape (clusters, some hours) and ``allowed_kw``, the IT power, (some hours,); clusters are those that
    serve any of the workloads. Hours of the same speeds share a program; programs in which the same clusters and
    workloads are alike are solved together.
    """
    allocation = np.zeros((len(nodes), len(demand.workloads), demand.hours.size))
    if not demand.hours.size:
        return allocation
    on_clusters = serving(routes, demand.workloads)
    steps = steps.select(on_clusters)
    rates, program = _rates(routes, demand, on_clusters, nodes > 0.0)
    ranks = np.unique(demand.levels, return_inverse=True)[1]
    patterns, pattern = _patterns(rates, ranks, steps)
    for number, leaders in enumerate(patterns):
        hours = np.flatnonzero(pattern[program] == number)
        clusters = _Groups(leaders[: len(nodes)], in_hours(nodes, hours))
        workloads = _Groups(leaders[len(nodes) :], in_hours(demand.requests, hours))
        programs, own_program = np.unique(program[hours], return_inverse=True)
        solved = _solve(
            rates[np.ix_(programs, clusters.leaders, workloads.leaders)],
            ranks[workloads.leaders],
            steps.select(clusters.leaders),
            own_program,
            clusters.size,
            workloads.size,
            None if allowed_kw is None else allowed_kw[hours],
        )
        solved = solved[np.ix_(clusters.group, workloads.group)]
        solved *= clusters.share[:, np.newaxis]
        solved *= workloads.share
        allocation[:, :, hours] = solved
    return allocation


def _rates(
    routes: Sequence[Route], demand: Demand, clusters: Ints, is_there: Bools
) -> tuple[Floats, Ints]:
    """Return the rates by program, shape (programs, clusters, workloads), and each hour's program.

    Hours of one program have the same rates. Clusters without nodes, by ``is_there`` of shape (clusters, hours), serve
    nothing: what comes later must not round an hour before it otherwise.
    """
    rates = np.zeros((clusters.size, len(demand.workloads), demand.hours.size))
    for place, w in enumerate(demand.workloads):
        for row, c in enumerate(clusters.tolist()):
            if c in routes[w].order:
                rates[row, place] = routes[w].rate(c, demand.hours) * is_there[row]
    is_new = np.ones(demand.hours.size, dtype=np.bool_)
    is_new[1:] = (rates[:, :, 1:] != rates[:, :, :-1]).any(axis=(0, 1))
    stretch = np.cumsum(is_new) - 1
    by_stretch = np.ascontiguousarray(rates[:, :, is_new].transpose(2, 0, 1))
    # Nights and days take turns, so that most stretches are like an earlier one.
    bits = by_stretch.reshape(len(by_stretch), -1).view(f"V{by_stretch[0].nbytes}").ravel()
    _, first, program = np.unique(bits, return_index=True, return_inverse=True)
    return by_stretch[first], program[stretch]


def _patterns(rates: Floats, ranks: Ints, steps: Steps) -> tuple[Ints, Ints]:
    """Return the patterns of what is alike, shape (patterns, clusters + workloads), and that of each program.

    A pattern has the first cluster that is like each, then the first workload. Clusters are alike that have the same
    steps and serve every workload at the same rate; workloads, that have the same rank and are served by every cluster
    at the same rate.
    """
    traits = np.vstack((steps.width.T, *steps.costs.transpose(0, 2, 1)))
    is_like_cluster = (rates[:, :, np.newaxis] == rates[:, np.newaxis]).all(axis=3)
    is_like_cluster &= (traits[:, :, np.newaxis] == traits[:, np.newaxis]).all(axis=0)
    is_like_workload = (rates[:, :, :, np.newaxis] == rates[:, :, np.newaxis]).all(axis=1)
    is_like_workload &= np.equal.outer(ranks, ranks)
    leaders = np.hstack((is_like_cluster.argmax(axis=2), is_like_workload.argmax(axis=2)))
    # Sorting thousands of programs takes longer than to see that they are all alike, as they nearly always are.
    if (leaders == leaders[0]).all():
        return leaders[:1], np.zeros(len(leaders), dtype=np.intp)
    patterns, pattern = np.unique(leaders, axis=0, return_inverse=True)
    return patterns, pattern.ravel()


class _Groups:
    """Clusters, or workloads, that are alike: their sizes together, and the share of each."""

    def __init__(self, leader: Ints, size: Floats) -> None:
        """Group by the first of those that are alike; ``size`` has shape (members, hours)."""
        self.leaders, self.group = np.unique(leader, return_inverse=True)
        self.size = added(size, self.group.tolist())
        """Shape (groups, hours)."""
        self.share = quotient(size, self.size[self.group])
        """Of each member in its group, shape (members, hours); 0 in an empty one."""


def _solve(
    rates: Floats,
    ranks: Ints,
    steps: Steps,
    program: Ints,
    nodes: Floats,
    requests: Floats,
    allowed_kw: Floats | None,
) -> Floats:
    """Return the node-equivalents by cluster, workload and hour, where no two are alike.

    ``rates`` has shape (programs, clusters, workloads), ``nodes`` (clusters, hours), ``requests`` (workloads, hours)
    and ``allowed_kw`` (hours,).
    """
    # Demand is counted in nodes of the cluster that is best at it, power in that of a node, and everything in shares of
    # the nodes there are: figures near 1.
    best_rates = np.maximum(rates.max(axis=1), _LEAST)
    size = np.maximum(nodes.sum(axis=0), _LEAST)
    unit_kw = float(steps.costs[-1].max()) or 1.0  # hosted clusters alone draw none here
    demand = requests / in_hours(best_rates.T, program)
    limits = [width[:, np.newaxis] * nodes for width in steps.width.T]
    if allowed_kw is not None:
        limits.append(allowed_kw[np.newaxis] / unit_kw)
    relative_rates = rates / best_rates[:, np.newaxis]
    pairs = np.nonzero(relative_rates.any(axis=0))
    allocation = np.zeros((*rates.shape[1:], program.size))
    if not pairs[0].size:
        return allocation
    programs = Programs(
        limits=_limit_rows(pairs[0], steps, None if allowed_kw is None else unit_kw),
        served=_served_rows(pairs, steps, relative_rates),
        costs=_cost_rows(pairs, steps, rates),
        ranks=ranks,
    )
    plans = raise_shares(programs, np.concatenate(limits) / size, demand / size, program)
    allocation[pairs] = plans[: pairs[0].size] * size
    return allocation


# A program has a column for each cluster and workload that it ever serves, then, step by step, one for each further
# step of each cluster.


def _limit_rows(clusters: Ints, steps: Steps, unit_kw: float | None) -> Floats:
    """Return what each column takes of nodes by step and cluster and, under a cap, of power, shape (limits, columns).

    ``clusters`` are those of the first columns.
    """
    count = len(steps.width)
    further = steps.width.size - count
    pairs = np.arange(clusters.size)
    rows = np.zeros((count + further, pairs.size + further))
    rows[clusters, pairs] = 1.0
    # Work in a further step is none in the first, and takes of that step's own nodes.
    rows[:count, pairs.size :] = -np.tile(np.eye(count), further // count)
    rows[count:, pairs.size :] = np.eye(further)
    if unit_kw is None:
        return rows
    return np.vstack((rows, _by_column(clusters, steps.costs[-1]) / unit_kw))


def _served_rows(pairs: tuple[Ints, ...], steps: Steps, relative_rates: Floats) -> Floats:
    """Return what each column serves of each workload, shape (programs, workloads, columns)."""
    clusters, workloads = pairs
    programs, count, kinds = relative_rates.shape
    rows = np.zeros((programs, kinds, clusters.size + steps.width.size - count))
    rows[:, workloads, np.arange(clusters.size)] = relative_rates[:, clusters, workloads]
    return rows


def _cost_rows(pairs: tuple[Ints, ...], steps: Steps, rates: Floats) -> Floats:
    """Return the costs of each column in order, scaled to 1, shape (programs, costs, columns).

    The last is what else could be served in place of its requests.
    """
    clusters, workloads = pairs
    # What costs nothing anywhere decides nothing, and would only be carried along.
    by_step = [_by_column(clusters, cost) for cost in steps.costs if cost.any()]
    columns = clusters.size + steps.width.size - len(steps.width)
    rows = np.zeros((len(rates), len(by_step) + 1, columns))
    for place, cost in enumerate(by_step):
        rows[:, place] = cost
    versatility = rates.sum(axis=2)
    rows[:, -1, : clusters.size] = versatility[:, clusters] * rates[:, clusters, workloads]
    # What serves nothing is no measure for the others.
    further = np.tile(np.arange(rates.shape[1]), (columns - clusters.size) // rates.shape[1])
    is_serving = (versatility > 0.0)[:, np.concatenate([clusters, further])]
    rows *= is_serving[:, np.newaxis]
    rows /= np.maximum(rows.max(axis=2, keepdims=True), _LEAST)
    return rows


def _by_column(clusters: Ints, cost: Floats) -> Floats:
    """Return a cost by cluster and step for each column: of the first step, and what a further one adds to it."""
    further = cost[:, 1:] - cost[:, :1]
    return np.append(cost[clusters, 0], further.T)
