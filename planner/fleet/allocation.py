"""The best use of nodes and power in hours that cannot have everything: a linear program per hour.

With x the node-equivalents that cluster c gives to workload w, r its requests per node and hour, n the nodes, d the
demand and y the part of a cluster's work beyond its first step::

    Σ_w x[c,w] − Σ_k y[c,k] ≤ first step of n[c]      y[c,k] ≤ step k of n[c]
    Σ_c r[c,w] x[c,w] ≤ d[w]                          Σ_c (k₀ Σ_w x + Σ_k (k_k − k₀) y) ≤ power allowed

Served tokens are maximised, one priority after the other; of the plans that serve as much, the one that spares the
clusters named for it, then the one that takes least power. Nothing here sees a name or a place in the file: clusters
and workloads that are alike are one, and share what it gets by their nodes and their demand.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from planner.fleet.linear import Basis, maximise
from planner.fleet.plan import Plan
from planner.fleet.routing import Way

Floats = NDArray[np.float64]
_NONE = 1e-9  # stands for nothing where something must be divided by
PLENTY = 1e12  # requests an hour: more than any site serves
_GOLDEN = 0.6180339887498949
_SPARED_FIRST = 4.0  # how much more a cluster to spare counts than the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The steps in which clusters can be filled, each dearer than the one before; shape (clusters, steps)."""

    width: Floats
    """Share of a cluster's nodes."""
    kw: Floats
    """Power of a node-equivalent of work."""
    penalty: Floats
    """What a node-equivalent of work counts against a plan that serves no more."""


def node_steps(plan: Plan) -> Steps:
    """Return the one step without a cap: all nodes, at full clock."""
    full_kw = np.array([[cluster.node_power.full_kw] for cluster in plan.clusters])
    return Steps(width=np.ones_like(full_kw), kw=full_kw, penalty=np.zeros_like(full_kw))


def power_steps(plan: Plan) -> Steps:
    """Return the steps under a cap: parked nodes give way to nodes at their best clock, and these to higher clocks."""
    frontiers = [cluster.node_power.frontier() for cluster in plan.clusters]
    width = np.array([np.diff(work, prepend=0.0) for work, _ in frontiers])
    more_kw = np.array([np.diff(kw, prepend=0.0) for _, kw in frontiers])
    first_kw = more_kw[:, :1] / width[:, :1]
    kw = np.divide(more_kw, width, out=np.repeat(first_kw, width.shape[1], axis=1), where=width > 0)
    penalty = np.zeros_like(width)
    for rank, cluster in enumerate(reversed(plan.site.throttle_order)):
        penalty[cluster] = _SPARED_FIRST**rank
    return Steps(width=width, kw=kw, penalty=penalty)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wants:
    """Whose work is to be placed, in which hours."""

    workloads: Sequence[int]
    """Indices into the plan's workloads."""
    levels: Sequence[int]
    """For each, whose turn it is: all work of a lower level goes before any of a higher."""
    requests: Floats
    """Shape (workloads, some hours); ``PLENTY`` where as much as possible is asked for."""
    hours: NDArray[np.intp]
    """Within the window, shape (some hours,)."""

    def only(self, which: NDArray[np.bool_]) -> Wants:
        """Return what is wanted in some of the hours."""
        return replace(self, requests=self.requests[:, which], hours=self.hours[which])


def allocate(
    ways: Sequence[Way], nodes: Floats, wants: Wants, steps: Steps, allowed_kw: Floats | None = None
) -> Floats:
    """Return the node-equivalents that each cluster gives to each workload, shape (clusters, workloads, some hours).

    ``nodes`` has shape (clusters, some hours) and ``allowed_kw``, the IT power, (some hours,). Hours of the same speeds
    share a matrix and are solved together.
    """
    rates = np.zeros((len(nodes), len(wants.workloads), wants.hours.size))
    tokens = np.empty(rates.shape[1:])
    for index, workload in enumerate(wants.workloads):
        tokens[index] = ways[workload].tokens(wants.hours)
        for c in ways[workload].order:
            rates[c, index] = ways[workload].rate(c, wants.hours)
    given = np.zeros_like(rates)
    if not wants.hours.size:
        return given
    changed = np.any(np.diff(rates) != 0.0, axis=(0, 1)) | np.any(np.diff(tokens) != 0.0, axis=0)
    edges = [0, *(np.flatnonzero(changed) + 1).tolist(), wants.hours.size]
    known: dict[tuple[int, int], list[Basis]] = {}
    for first, last in itertools.pairwise(edges):
        block = slice(first, last)
        program = _program(rates[:, :, first], tokens[:, first], wants.levels, steps)
        power = None if allowed_kw is None else allowed_kw[block]
        given[:, :, block] = program.solve(nodes[:, block], wants.requests[:, block], power, known)
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """The linear program of hours with the same speeds; alike clusters and alike workloads are one."""

    clusters: Floats
    """1 where a cluster belongs to a group, shape (groups, clusters); groups in an order that only figures decide."""
    workloads: Floats
    """The same for workloads, shape (groups, workloads)."""
    rates: Floats
    """Requests per node and hour, shape (groups of clusters, groups of workloads); 0 where it cannot serve."""
    tokens: Floats
    """Of a request, shape (groups of workloads,)."""
    levels: NDArray[np.intp]
    """Of each group of workloads."""
    steps: Steps
    """Of each group of clusters."""

    def solve(
        self, nodes: Floats, requests: Floats, allowed_kw: Floats | None, known: dict[tuple[int, int], list[Basis]]
    ) -> Floats:
        """Return the node-equivalents by cluster, workload and hour."""
        pairs = np.nonzero(self.rates)
        best = self.rates.max(axis=0)
        group_nodes, group_requests = self.clusters @ nodes, self.workloads @ requests
        # Demand is counted in nodes at its best, and everything in shares of the nodes there are: figures near 1. More
        # than all nodes can serve is as good as that.
        scale = np.maximum(group_nodes.sum(axis=0), _NONE)
        demand = np.minimum(group_requests / np.maximum(best, _NONE)[:, None], 2.0 * scale)
        unit_kw = float(self.steps.kw.max())
        first, *others = (width[:, None] * group_nodes for width in self.steps.width.T)
        limits = [first, *others, demand]
        if allowed_kw is not None:
            limits.append(allowed_kw[None] / unit_kw)
        matrix = self._matrix(pairs, best, None if allowed_kw is None else unit_kw)
        bases = known.setdefault(matrix.shape, [])
        found = maximise(matrix, self._objectives(pairs), np.vstack(limits) / scale, bases)
        given = np.zeros((*self.rates.shape, nodes.shape[1]))
        given[pairs] = found[: len(pairs[0])] * scale
        return self._shared(given, nodes, requests)

    def _shared(self, given: Floats, nodes: Floats, requests: Floats) -> Floats:
        """Share what groups give and get: clusters by their nodes, workloads by their demand."""
        by_cluster = _shares(self.clusters, nodes)
        by_workload = _shares(self.workloads, requests)
        groups, kinds = self.clusters.argmax(axis=0), self.workloads.argmax(axis=0)
        return np.asarray(given[np.ix_(groups, kinds)] * by_cluster[:, None] * by_workload[None])

    def _matrix(self, pairs: tuple[NDArray[np.intp], ...], best: Floats, unit_kw: float | None) -> Floats:
        """Return the left-hand side: clusters, further steps, demand and, under a cap, power."""
        (count, kinds), further = self.rates.shape, self.steps.width.shape[1] - 1
        on, of = pairs
        columns = np.arange(on.size)
        matrix = np.zeros((count * (1 + further) + kinds + (unit_kw is not None), on.size + count * further))
        matrix[on, columns] = 1.0
        matrix[count * (1 + further) + of, columns] = self.rates[pairs] / best[of]
        for c, k in np.ndindex(count, further):
            column = on.size + k * count + c
            matrix[c, column] = -1.0
            matrix[(k + 1) * count + c, column] = 1.0
            if unit_kw is not None:
                matrix[-1, column] = (self.steps.kw[c, k + 1] - self.steps.kw[c, 0]) / unit_kw
        if unit_kw is not None:
            matrix[-1, columns] = self.steps.kw[on, 0] / unit_kw
        return matrix

    def _objectives(self, pairs: tuple[NDArray[np.intp], ...]) -> Floats:
        """Return what is maximised: tokens by level, then spared clusters, the least power, and a fixed order."""
        on, of = pairs
        count, further = self.rates.shape[0], self.steps.width.shape[1] - 1
        value = self.rates[pairs] * self.tokens[of]
        by_level = [np.where(self.levels[of] == level, value, 0.0) for level in sorted(set(self.levels.tolist()))]
        rest = np.zeros((len(by_level), count * further))
        served = np.hstack((np.array(by_level), rest))

        def beyond_first(table: Floats) -> Floats:
            return np.concatenate((table[on, 0], (table[:, 1:] - table[:, :1]).T.ravel()))

        spared, power = -beyond_first(self.steps.penalty), -beyond_first(self.steps.kw)
        # Where all that is equal any plan will do, but it must be the same one in every hour and window.
        order = -((np.arange(served.shape[1]) + 1.0) * _GOLDEN % 1.0) - np.arange(served.shape[1])
        objectives = np.vstack((served, spared, power, order))
        return np.asarray(objectives / np.maximum(np.abs(objectives).max(axis=1, keepdims=True), _NONE))


def _program(rates: Floats, tokens: Floats, levels: Sequence[int], steps: Steps) -> _Program:
    """Put together what is alike, in an order that only figures decide."""
    traits = np.hstack((steps.width, steps.kw, steps.penalty, np.sort(rates, axis=1)))
    kinds = np.column_stack((levels, tokens, np.sort(rates, axis=0).T))
    # Clusters are told apart by what they do for each workload, so workloads need an order of their own first.
    by_kind = np.lexsort(kinds.T[::-1])
    clusters, first = _alike(np.hstack((traits, rates[:, by_kind])))
    workloads, of = _alike(np.hstack((kinds, rates[first].T)))
    return _Program(
        clusters=clusters,
        workloads=workloads,
        rates=rates[np.ix_(first, of)],
        tokens=tokens[of],
        levels=np.asarray(levels)[of],
        steps=Steps(width=steps.width[first], kw=steps.kw[first], penalty=steps.penalty[first]),
    )


def _alike(traits: Floats) -> tuple[Floats, list[int]]:
    """Return which rows are the same, as 1 for a member of a group, shape (groups, rows), and a member of each."""
    rows = [tuple(row) for row in traits.tolist()]
    groups = sorted(set(rows))
    return np.array([[float(row == group) for row in rows] for group in groups]), [rows.index(row) for row in groups]


def _shares(members: Floats, size: Floats) -> Floats:
    """Return each member's part of its group by size, shape (members, hours); 0 in a group of nothing."""
    whole = members.T @ (members @ size)
    return np.divide(size, whole, out=np.zeros_like(whole), where=whole > 0)
