"""The best allocation of nodes and power in hours of scarcity: one linear program per hour.

With x the node-equivalents that cluster c gives to workload w, r its requests per node and hour, n the nodes, d the
demand and y the part of a cluster's work beyond its first step::

    Σ_w x[c,w] − Σ_k y[c,k] ≤ first step of n[c]      y[c,k] ≤ step k of n[c]
    Σ_c r[c,w] x[c,w] ≤ d[w]                          Σ_c (k₀ Σ_w x + Σ_k (k_k − k₀) y) ≤ power allowed

Served tokens are maximised, one priority after the other; of the plans that serve as much, the one that spares the
clusters named for it, then the one that takes least power. Nothing here sees a name or a place in the file: clusters
and workloads that are alike are one, and share what it gets by their nodes and their demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import in_hours
from planner.engine.hourly import Route, serving
from planner.engine.linear import maximise
from planner.plan.plan import Plan

_NONE = 1e-9  # stands for nothing where something must be divided by
PLENTY = 1e12  # requests an hour: more than any site serves
_HAIR = 1e-7  # of the dearest power: what an order of plans that are equal otherwise may cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps in which a cluster's nodes are filled, at rising cost in power; shape (clusters, steps)."""

    width: Floats
    """Share of a cluster's nodes."""
    kw: Floats
    """Power of a node-equivalent of work."""
    penalty: Floats
    """What a node-equivalent of work counts against a plan that serves no more."""

    def of(self, clusters: Ints) -> Steps:
        """Return the steps of the given clusters."""
        return Steps(
            width=self.width[clusters], kw=self.kw[clusters], penalty=self.penalty[clusters]
        )


def node_steps(plan: Plan) -> Steps:
    """Return the single step used without a power cap: all nodes at full clock."""
    full_kw = np.array([[cluster.node_power.full_kw] for cluster in plan.clusters])
    return Steps(
        width=np.ones_like(full_kw),
        kw=full_kw,
        penalty=np.zeros_like(full_kw) + _rents(plan)[:, None],
    )


def power_steps(plan: Plan) -> Steps:
    """Return the steps under a power cap: nodes powered on at their most efficient clock, then at higher clocks.

    What stands at a provider's has one step, that takes none of the site's power.
    """
    frontiers = [cluster.node_power.frontier() for cluster in plan.clusters]
    width = np.array([np.diff(work, prepend=0.0) for work, _ in frontiers])
    more_kw = np.array([np.diff(kw, prepend=0.0) for _, kw in frontiers])
    first_kw = more_kw[:, :1] / width[:, :1]
    kw = np.divide(more_kw, width, out=np.repeat(first_kw, width.shape[1], axis=1), where=width > 0)
    hosted = plan.on_site == 0.0
    width[hosted] = np.eye(1, width.shape[1])
    kw[hosted] = 0.0
    return Steps(width=width, kw=kw, penalty=np.zeros_like(width) + _rents(plan)[:, None])


def _rents(plan: Plan) -> Floats:
    """Return the rent of a node's busy hour over the lowest rent, shape (clusters,); 0 where idle hours are paid."""
    rents = np.array([
        cluster.accelerators_per_node * float(cluster.rent.usd_per_accelerator_h.mean())
        if cluster.rent is not None and cluster.is_paid_by_the_hour
        else 0.0
        for cluster in plan.clusters
    ])  # fmt: skip
    return rents / max(float(rents[rents > 0.0].min(initial=np.inf)), _NONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The workloads, requests and hours to be allocated."""

    workloads: Sequence[int]
    """Indices into the plan's workloads."""
    levels: Sequence[int]
    """For each, whose turn it is: all work of a lower level goes before any of a higher."""
    requests: Floats
    """Shape (workloads, some hours); ``PLENTY`` where as much as possible is asked for."""
    hours: Ints
    """Within the window, shape (some hours,)."""

    def only(self, which: Ints) -> Demand:
        """Return the demand of some of the hours."""
        return replace(self, requests=in_hours(self.requests, which), hours=self.hours[which])


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
    given = np.zeros((len(nodes), len(demand.workloads), demand.hours.size))
    if not demand.hours.size:
        return given
    on = serving(routes, demand.workloads)
    steps = steps.of(on)
    program, rates, tokens = _speeds(routes, demand, on)
    for clusters, workloads, which in _patterns(rates, tokens, demand.levels, steps):
        among = np.full(len(rates), -1)
        among[which] = np.arange(which.size)
        hours = np.flatnonzero(among[program] >= 0)
        programs = _Programs(
            rates[which], tokens[which], demand.levels, steps, (clusters, workloads)
        )
        if hours.size == demand.hours.size:
            return programs.solve(nodes, demand.requests, allowed_kw, program)
        power = None if allowed_kw is None else allowed_kw[hours]
        solved = programs.solve(
            in_hours(nodes, hours), in_hours(demand.requests, hours), power, among[program[hours]]
        )
        for there, nodes_given in zip(given, solved, strict=True):
            for row, nodes_of_it in zip(there, nodes_given, strict=True):
                row[hours] = nodes_of_it
    return given


def _speeds(routes: Sequence[Route], demand: Demand, on: Ints) -> tuple[Ints, Floats, Floats]:
    """Return each hour's program, the rates by program, shape (programs, clusters, workloads), and tokens per request.

    A program is a stretch of hours in which neither changes; most have no series at all, but one figure for all hours.
    """
    rates = {
        (c, place): routes[w].rate(c, demand.hours)
        for place, w in enumerate(demand.workloads)
        for c in routes[w].order
    }
    tokens = [routes[w].tokens(demand.hours) for w in demand.workloads]
    changed = np.zeros(demand.hours.size, dtype=np.bool_)
    changed[0] = True
    for series in (*rates.values(), *tokens):
        if series.size > 1:
            changed[1:] |= series[1:] != series[:-1]
    first = np.flatnonzero(changed)
    table = np.zeros((first.size, on.size, len(demand.workloads)))
    size = np.empty((first.size, len(demand.workloads)))
    for (c, place), rate in rates.items():
        table[:, np.searchsorted(on, c), place] = rate if rate.size == 1 else rate[first]
    for place, per_request in enumerate(tokens):
        size[:, place] = per_request if per_request.size == 1 else per_request[first]
    return np.cumsum(changed) - 1, table, size


class _Programs:
    """Linear programs with the same groups of interchangeable clusters and workloads, solved together."""

    def __init__(
        self,
        rates: Floats,
        tokens: Floats,
        levels: Sequence[int],
        steps: Steps,
        alike: tuple[Ints, Ints],
    ) -> None:
        """Merge interchangeable clusters and workloads into groups."""
        (self.clusters, first), (self.workloads, of) = map(_members, alike)
        """1 where a cluster, or a workload, belongs to a group, shape (groups, members)."""
        self.rates = rates[:, first][:, :, of]
        """Requests per node and hour, shape (programs, groups of clusters, groups of workloads); 0 where none is."""
        self.tokens, self.levels, self.steps = (
            tokens[:, of],
            np.asarray(levels)[of],
            steps.of(first),
        )
        """Of a request, shape (programs, groups of workloads); of each group of workloads; of each of clusters."""
        self.on, self.of = np.nonzero(self.rates.any(axis=0))
        """The group of clusters, and of workloads, of each pair that may be served, shape (pairs,)."""

    def solve(
        self, nodes: Floats, requests: Floats, allowed_kw: Floats | None, program: Ints
    ) -> Floats:
        """Return the node-equivalents by cluster, workload and hour."""
        best = self.rates.max(axis=1)
        group_nodes = _totals(self.clusters, nodes)
        group_requests = _totals(self.workloads, requests)
        # Demand is counted in nodes at its best, and everything in shares of the nodes there are: figures near 1. More
        # than all nodes can serve is as good as that.
        scale = np.maximum(group_nodes.sum(axis=0), _NONE)
        demand = group_requests / in_hours(np.maximum(best, _NONE).T, program)
        unit_kw = float(self.steps.kw.max()) or 1.0  # what is all at a provider's draws none here
        limits = [width[:, None] * group_nodes for width in self.steps.width.T]
        limits.append(np.minimum(demand, 2.0 * scale, out=demand))
        if allowed_kw is not None:
            limits.append(allowed_kw[None] / unit_kw)
        shares = np.concatenate(limits)
        shares /= scale
        matrices = self._matrices(best, None if allowed_kw is None else unit_kw)
        demand_rows = range(self.steps.width.size, self.steps.width.size + len(demand))
        objectives = self._objectives(best, slice(demand_rows.start, demand_rows.stop), matrices)
        # An insatiable group of workloads fills every cluster it is offered. It must come after all others, which
        # are met in full whatever it loses, and gain wherever it is offered room.
        filled: list[tuple[int, int]] = []
        met = list(demand_rows)
        insatiable = np.flatnonzero((group_requests >= PLENTY).all(axis=1))
        if allowed_kw is None and insatiable.size == 1:
            pairs = np.flatnonzero(self.of == insatiable)
            comes_last = (np.delete(self.levels, insatiable) < self.levels[insatiable]).all()
            if comes_last and (self.rates[:, self.on[pairs], insatiable] > 0.0).all():
                filled = [(int(self.on[pair]), int(pair)) for pair in pairs]
                met.remove(demand_rows[int(insatiable[0])])
        solution = maximise(matrices, objectives, met, shares, program, filled)
        given = np.zeros((*self.rates.shape[1:], nodes.shape[1]))
        for c, w, nodes_given in zip(
            self.on.tolist(), self.of.tolist(), solution, strict=False
        ):  # steps come after
            np.multiply(nodes_given, scale, out=given[c, w])
        # What groups give and get is shared: clusters by their nodes, workloads by their demand.
        groups = self.clusters.argmax(axis=0)
        kinds = self.workloads.argmax(axis=0)
        if (groups.size, kinds.size) != given.shape[:2]:
            given = given[np.ix_(groups, kinds)]
        given *= _shares(self.clusters, nodes)[:, None]
        given *= _shares(self.workloads, requests)[None]
        return given

    def _matrices(self, best: Floats, unit_kw: float | None) -> Floats:
        """Return the left-hand sides: clusters, further steps, demand and, under a cap, power."""
        count = self.steps.width.shape[0]
        further = self.steps.width.shape[1] - 1
        programs, _, kinds = self.rates.shape
        pairs = np.arange(self.on.size)
        rows = count * (1 + further) + kinds + (unit_kw is not None)
        matrices = np.zeros((programs, rows, pairs.size + count * further))
        matrices[:, self.on, pairs] = 1.0
        share = self.rates[:, self.on, self.of] / np.maximum(best, _NONE)[:, self.of]
        matrices[:, count * (1 + further) + self.of, pairs] = share
        for c, k in np.ndindex(count, further):
            column = pairs.size + k * count + c
            matrices[:, c, column] = -1.0
            matrices[:, (k + 1) * count + c, column] = 1.0
            if unit_kw is not None:
                matrices[:, -1, column] = (self.steps.kw[c, k + 1] - self.steps.kw[c, 0]) / unit_kw
        if unit_kw is not None:
            matrices[:, -1, pairs] = self.steps.kw[self.on, 0] / unit_kw
        return matrices

    def _objectives(self, best: Floats, demand_rows: slice, matrices: Floats) -> Floats:
        """Return the objectives in order: tokens by priority, the fewest penalties, the least power.

        Tokens served are those asked for less the slack of a demand's row, so it is the slacks that count against them.
        Where all is equal any plan will do, but it must be the same in every hour, window and order of the file: a
        hair of an order that figures decide goes with the power.
        """
        rows, columns = matrices.shape[1:]
        levels = sorted(set(self.levels.tolist()))
        tables = (
            [self.steps.penalty, self.steps.kw] if self.steps.penalty.any() else [self.steps.kw]
        )
        objectives = np.zeros((len(best), len(levels) + len(tables), columns + rows))
        slacks = objectives[:, :, columns:][:, :, demand_rows]
        for place, level in enumerate(levels):
            slacks[:, place] = np.where(self.levels == level, -best * self.tokens, 0.0)
        for place, table in enumerate(tables, start=len(levels)):
            objectives[:, place, :columns] = -np.append(
                table[self.on, 0], (table[:, 1:] - table[:, :1]).T
            )
        objectives /= np.maximum(np.abs(objectives).max(axis=2, keepdims=True), _NONE)
        objectives[:, -1, :columns] -= _HAIR * self._order()
        return objectives

    def _order(self) -> Floats:
        """Return a tie-breaking weight from 1 to 3 for each column, from its figures, shape (programs, columns).

        A wave of their logarithms: columns that differ at all are hardly ever at the same height, and what plans that
        are equal otherwise come to differs too, as it would not for a sum of what cluster and workload are.
        """
        tokens = np.log(self.tokens)
        kw = np.log(np.maximum(self.steps.kw, _NONE))
        rates = np.log(np.maximum(self.rates, _NONE))
        pairs = 3.0 * rates[:, self.on, self.of] + 5.0 * kw[self.on, 0] + 7.0 * tokens[:, self.of]
        pairs += self.levels[self.of]
        steps = 3.0 * rates.mean(axis=2)[:, None, :] + 5.0 * kw.T[1:]
        return np.asarray(2.0 + np.cos(np.hstack((pairs, steps.reshape(len(rates), -1)))))


def _patterns(
    rates: Floats, tokens: Floats, levels: Sequence[int], steps: Steps
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield the group leaders of clusters and of workloads, and the programs with that grouping.

    Clusters are alike that have the same steps and serve every workload at the same rate; workloads, that have the same
    level and tokens and are served by every cluster at the same rate. ``rates`` has shape (programs, clusters,
    workloads) and ``tokens`` (programs, workloads).
    """
    traits = np.hstack((steps.width, steps.kw, steps.penalty))
    clusters = np.all(rates[:, :, None] == rates[:, None], axis=3) & np.all(
        traits[:, None] == traits, axis=2
    )
    workloads = np.all(rates[:, :, :, None] == rates[:, :, None], axis=1) & np.equal.outer(
        levels, levels
    )
    workloads &= tokens[:, :, None] == tokens[:, None]
    firsts = np.hstack((clusters.argmax(axis=2), workloads.argmax(axis=2)))
    if (firsts == firsts[0]).all():  # as nearly always
        yield firsts[0, : rates.shape[1]], firsts[0, rates.shape[1] :], np.arange(len(rates))
        return
    patterns, pattern = np.unique(firsts, axis=0, return_inverse=True)
    for number, first in enumerate(patterns):
        yield (
            first[: rates.shape[1]],
            first[rates.shape[1] :],
            np.flatnonzero(pattern.ravel() == number),
        )


def _members(alike: Ints) -> tuple[Floats, Ints]:
    """Return group membership as 0 and 1, shape (groups, members), and the first member of each group."""
    first = np.unique(alike)
    return (alike == first[:, None]).astype(np.float64), first


def _totals(members: Floats, size: Floats) -> Floats:
    """Return the size of each group, shape (groups, hours)."""
    return size if len(members) == members.shape[1] else members @ size


def _shares(members: Floats, size: Floats) -> Floats:
    """Return each member's share of its group by size, shape (members, hours); 0 in an empty group."""
    if len(members) == members.shape[1]:  # each is alone
        return (size > 0.0).astype(np.float64)
    total = members.T @ _totals(members, size)
    return np.divide(size, total, out=np.zeros_like(total), where=total > 0)
