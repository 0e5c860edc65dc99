"""Power of the site: IT load, cooling by load and season, and operation at the cap."""

from __future__ import annotations

import numpy as np

from planner.arrays import Floats
from planner.elementwise import maximum, span_above_zero
from planner.plan.plan import Plan

_MOST_HEADROOM = 1e3  # times the work: beyond it all nodes are on
_BISECTIONS = 40
_NONE = 1e-9  # stands for no nodes, on which there is no load either, but for rounding


def load_fraction(used: Floats, nodes: Floats) -> Floats:
    """Return the load of nodes that share it evenly, shape (hours,); 0 without nodes."""
    load = maximum(_NONE, nodes)
    return np.divide(used, load, out=load)


def it_kw(plan: Plan, used: Floats, nodes: Floats) -> Floats:
    """Return IT power at the site by cluster, shape (clusters, hours): healthy nodes, each under the same load.

    What stands at a provider's draws none here. A cluster at a time, whose hours stay in the cache; those of all do
    not.
    """
    power = np.zeros_like(nodes)
    for cluster, work, there, kw in zip(plan.clusters, used, nodes, power, strict=True):
        if not cluster.is_hosted:
            hours = span_above_zero(there)
            load = load_fraction(work[hours], there[hours])
            np.multiply(cluster.node_power.node_kw(load), there[hours], out=kw[hours])
    return power


def hold(plan: Plan, used: Floats, nodes: Floats, allowed: Floats) -> tuple[Floats, Floats]:
    """Return the capacity and the power of clusters in hours at the power cap; shape (clusters, hours).

    ``used`` fits when just enough nodes are on, at just the clocks it needs. Power left over keeps more of them on: θ
    times the work of every cluster, or all its nodes, with θ the largest that fits the IT power allowed. A cluster
    with work u and capacity K draws φ(K)·kW(u / K) / kW(1), φ being the least power for K. What stands at a provider's
    has all its nodes, and draws none.
    """
    frontiers = [cluster.node_power.frontier() for cluster in plan.clusters]

    def at(headroom: Floats) -> tuple[Floats, Floats]:
        capacity = np.minimum(used * headroom, np.maximum(nodes, used))
        drawn = np.zeros_like(used)
        for c, (work, kw) in enumerate(frontiers):
            if plan.clusters[c].is_hosted:
                capacity[c] = np.maximum(nodes[c], used[c])
                continue
            power = plan.clusters[c].node_power
            share = capacity[c] / np.maximum(nodes[c], _NONE)
            least_kw = np.interp(share, np.append(0.0, work), np.append(0.0, kw)) * nodes[c]
            drawn[c] = (
                least_kw * power.node_kw(used[c] / np.maximum(capacity[c], _NONE)) / power.full_kw
            )
        return capacity, drawn

    low = np.zeros(allowed.size)
    high = np.full(allowed.size, np.log(_MOST_HEADROOM))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        fits = at(np.exp(middle))[1].sum(axis=0) <= allowed
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle)
    return at(np.exp(low))
