"""Power of the site: IT load, cooling that depends on load and season, and what a cap throttles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan

Floats = NDArray[np.float64]
_NONE = 1e-9  # stands for no nodes, on which there is no load either, but for rounding


def load_fraction(used: Floats, nodes: Floats) -> Floats:
    """Return the load of nodes that share it evenly, shape (clusters, hours); 0 where there are none."""
    load: Floats = np.maximum(nodes, _NONE)
    return np.divide(used, load, out=load)


def it_kw(plan: Plan, load: Floats, nodes: Floats) -> Floats:
    """Return IT power by cluster, shape (clusters, hours): healthy nodes, each under the same load."""
    power = np.empty_like(nodes)
    for index, cluster in enumerate(plan.clusters):
        power[index] = cluster.node_power.node_kw(load[index])
    power *= nodes
    return power


def rated_kw(plan: Plan) -> float:
    """Return the IT power for which the cooling is built: every node at full load."""
    return sum(cluster.nodes * cluster.node_power.full_kw for cluster in plan.clusters)


def facility_kw(plan: Plan, it: Floats, hours: slice | NDArray[np.intp]) -> Floats:
    """Return facility power, shape (hours,): IT + (PUE − 1)·s(h)·(f·rated + (1 − f)·IT).

    s is the season and f the share of overhead that does not fall with load, so that PUE is the stated one at rated
    load in a mean season and rises as load falls.
    """
    overhead = plan.site.overhead_ratio[hours]
    fixed = plan.site.fixed_fraction
    power: Floats = it + overhead * (fixed * rated_kw(plan) + (1.0 - fixed) * it)
    return power


def allowed_it_kw(plan: Plan, cap_kw: Floats, hours: slice | NDArray[np.intp]) -> Floats:
    """Return the IT power at which facility power meets the cap: the inverse of :func:`facility_kw`."""
    overhead = plan.site.overhead_ratio[hours]
    fixed = plan.site.fixed_fraction
    allowed: Floats = (cap_kw - overhead * fixed * rated_kw(plan)) / (1.0 + overhead * (1.0 - fixed))
    return np.maximum(allowed, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """What a power cap leaves of the clusters; arrays of shape (clusters, hours)."""

    usable: Floats
    """Node-equivalents that may work. In hours over the cap no cluster may take on more than it had, so that moved
    work cannot break the cap again."""
    capacity: Floats
    """What a cluster could carry: all its nodes, or what its share of the power allows where it is throttled."""
    powered: Floats
    """1 where a cluster is on, 0 where even idle power is too much and it is switched off."""


def throttle(plan: Plan, used: Floats, nodes: Floats, allowed: Floats) -> Throttled:
    """Hold clusters to the IT power allowed, shape (hours,).

    Clusters give up work in the site's order until IT power fits; they are switched off in the same order when idle
    power alone is too much. Power is read from a table, so a throttled load stands on one of its points.
    """
    excess = it_kw(plan, load_fraction(used, nodes), nodes).sum(axis=0) - allowed
    over = excess > 1e-9 * allowed
    capacity = nodes.copy()
    powered = np.ones_like(nodes)
    for cluster in plan.site.throttle_order:
        power, here = plan.clusters[cluster].node_power, nodes[cluster]
        load = np.divide(used[cluster], here, out=np.zeros_like(excess), where=here > 0)
        drawn = power.node_kw(load) * here
        cut = over & (excess > 0.0) & (load > 0.0)
        target = np.maximum(drawn - excess, power.idle_kw * here)
        each = np.divide(target, here, out=np.zeros_like(excess), where=here > 0)
        point = np.maximum(np.searchsorted(power.load_kw, each, side="right") - 1, 0)
        capacity[cluster] = np.where(cut, here * (point / (power.load_kw.size - 1)), here)
        excess -= np.where(cut, drawn - power.load_kw[point] * here, 0.0)
    for cluster in plan.site.throttle_order:
        off = over & (excess > 1e-9 * allowed) & (nodes[cluster] > 0)
        powered[cluster] = np.where(off, 0.0, 1.0)
        capacity[cluster] = np.where(off, 0.0, capacity[cluster])
        excess -= np.where(off, plan.clusters[cluster].node_power.idle_kw * nodes[cluster], 0.0)
    usable = np.where(over, np.minimum(used, capacity), nodes)
    return Throttled(usable=usable, capacity=capacity, powered=powered)
