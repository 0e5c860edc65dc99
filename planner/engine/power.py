"""Power of the site: IT load, cooling by load and season, and operation at the cap."""

from __future__ import annotations

import numpy as np

from planner.arrays import Floats
from planner.plan.plan import Plan

_MAX_HEADROOM = 1e3
"""Nodes over work beyond which all nodes are on."""
_BISECTIONS = 40
"""Halvings of the logarithm of headroom: 7 / 2⁴⁰ is beyond what a float of the power can tell."""
_NO_NODES = 1e-9
"""Stands for no nodes, on which there is no load either, but for rounding."""


def load_fraction(busy_nodes: Floats, nodes: Floats) -> Floats:
    """Return the load of nodes that share it evenly, shape (hours,); 0 without nodes."""
    load = np.maximum(nodes, _NO_NODES)
    return np.divide(busy_nodes, load, out=load)


def it_kw(plan: Plan, busy_nodes: Floats, nodes: Floats) -> Floats:
    """Return IT power at the site by cluster, shape (clusters, hours): healthy nodes, each under the same load.

    What stands at a provider's draws none here.
    """
    power = np.zeros_like(nodes)
    # A cluster at a time, whose hours stay in the cache; those of all do not.
    for c, cluster in enumerate(plan.clusters):
        if not cluster.is_hosted:
            load = load_fraction(busy_nodes[c], nodes[c])
            node_kw = cluster.node_power.node_kw(load)
            np.multiply(node_kw, nodes[c], out=power[c])
    return power


def at_power_cap(
    plan: Plan, busy_nodes: Floats, nodes: Floats, allowed_kw: Floats
) -> tuple[Floats, Floats]:
    """Return the capacity and the power of clusters in hours at the power cap; shape (clusters, hours).

    ``busy_nodes`` fit when just enough nodes are on, at just the clocks they need. Power left over keeps more of them
    on: θ times the work of every cluster, or all its nodes, with θ the largest that fits the IT power allowed. A
    cluster with work u and capacity K draws φ(K)·kW(u / K) / kW(1), φ being the least power for K. What stands at a
    provider's has all its nodes, and draws none.
    """
    frontiers = [cluster.node_power.frontier() for cluster in plan.clusters]
    all_nodes = np.maximum(nodes, busy_nodes)

    def at_headroom(headroom: Floats) -> tuple[Floats, Floats]:
        capacity = np.minimum(busy_nodes * headroom, all_nodes)
        power_kw = np.zeros_like(busy_nodes)
        for c, (work, kw) in enumerate(frontiers):
            cluster = plan.clusters[c]
            if cluster.is_hosted:
                capacity[c] = all_nodes[c]
                continue
            share = capacity[c] / np.maximum(nodes[c], _NO_NODES)
            # From nothing on: the frontier's first point is the clock of most work per watt.
            shares = np.append(0.0, work)
            node_kw = np.interp(share, shares, np.append(0.0, kw))
            least_kw = node_kw * nodes[c]
            load = busy_nodes[c] / np.maximum(capacity[c], _NO_NODES)
            loaded_kw = cluster.node_power.node_kw(load)
            power_kw[c] = least_kw * loaded_kw / cluster.node_power.full_kw
        return capacity, power_kw

    # Power rises with headroom, so the largest that fits is found by halving, in all hours at once.
    low = np.zeros(allowed_kw.size)
    high = np.full(allowed_kw.size, np.log(_MAX_HEADROOM))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        _, power_kw = at_headroom(np.exp(middle))
        fits = power_kw.sum(axis=0) <= allowed_kw
        low = np.where(fits, middle, low)
        high = np.where(fits, high, middle)
    return at_headroom(np.exp(low))
