"""Power of the site: IT load, cooling by load and season, operation at the cap, and idle power-down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats, Ints
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PoweredNodes:
    """Nodes powered on under idle power-down; shape (clusters, hours)."""

    on: Floats
    """Nodes that draw power as usual."""
    serving: Floats
    """Of those, mean of the hour, what can serve: the rest is waking."""
    woken: Floats
    """Nodes that were parked in the hour before."""
    last: Floats
    """Nodes on and nodes parked in the last hour, from which the next window goes on; shape (2, clusters)."""


def powered_nodes(plan: Plan, used: Floats, nodes: Floats, before: Floats | None, capped: Ints) -> PoweredNodes:
    """Return the nodes powered on where idle ones are powered down.

    Whole nodes for the work and its headroom, ⌈u·(1 + r)⌉, and one at least where something can be served; all where
    that draws no less, and in hours at the power cap, which parks nodes itself. What an hour needs beyond those that
    were on is woken in it, and serves once it is awake: on − wake time · woken.
    """
    idle_power_down = plan.site.idle_power_down
    assert idle_power_down is not None
    serves = np.any(plan.requests_per_node_h > 0.0, axis=(1, 2))[:, None]
    on = np.minimum(np.maximum(np.ceil(used * (1.0 + idle_power_down.headroom_fraction) - _NONE), serves), nodes)
    on = np.where(parked_kw(plan, used, nodes, on) < it_kw(plan, used, nodes), on, nodes)
    on[:, capped] = nodes[:, capped]
    parked = nodes - on
    first = np.stack((nodes[:, 0], np.zeros(len(nodes)))) if before is None else before
    on_before, parked_before = (
        np.column_stack((at, hours[:, :-1])) for at, hours in zip(first, (on, parked), strict=True)
    )
    # A node that was repaired or delivered was not parked, and has nothing to wake from.
    woken = np.clip(on - on_before, 0.0, parked_before)
    last = np.stack((on[:, -1], parked[:, -1]))
    return PoweredNodes(on=on, serving=on - idle_power_down.wake_h * woken, woken=woken, last=last)


def parked_kw(plan: Plan, used: Floats, nodes: Floats, on: Floats) -> Floats:
    """Return IT power by cluster under idle power-down: on·kW(u / on) + (nodes − on)·parked; shape as ``nodes``."""
    assert plan.site.idle_power_down is not None
    return it_kw(plan, used, on) + (nodes - on) * plan.site.idle_power_down.parked_kw


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
            drawn[c] = least_kw * power.node_kw(used[c] / np.maximum(capacity[c], _NONE)) / power.full_kw
        return capacity, drawn

    low, high = np.zeros(allowed.size), np.full(allowed.size, np.log(_MOST_HEADROOM))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        fits = at(np.exp(middle))[1].sum(axis=0) <= allowed
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return at(np.exp(low))
