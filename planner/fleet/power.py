"""Power of the site: IT load, cooling that depends on load and season, and what a cap throttles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan

Floats = NDArray[np.float64]


def it_kw(plan: Plan, used: Floats, nodes: Floats) -> Floats:
    """Return IT power by cluster, shape (clusters, hours): healthy nodes, load spread evenly over them."""
    load = np.divide(used, nodes, out=np.zeros_like(nodes), where=nodes > 0)
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


def allowed_it_kw(plan: Plan, cap_kw: Floats, hours: NDArray[np.intp]) -> Floats:
    """Return the IT power at which facility power meets the cap: the inverse of :func:`facility_kw`."""
    overhead = plan.site.overhead_ratio[hours]
    fixed = plan.site.fixed_fraction
    allowed: Floats = (cap_kw - overhead * fixed * rated_kw(plan)) / (1.0 + overhead * (1.0 - fixed))
    return np.maximum(allowed, 0.0)


def throttle(plan: Plan, used: Floats, nodes: Floats, hours: NDArray[np.intp]) -> Floats:
    """Return node-equivalents that may work in hours over the cap, shape (clusters, hours).

    Clusters give up work in the site's order until IT power fits; a cluster without work left is switched off when idle
    power alone is too much. No cluster may take on more than it had, so that moved work cannot break the cap again.
    """
    assert plan.site.cap_kw is not None
    excess = it_kw(plan, used, nodes).sum(axis=0) - allowed_it_kw(plan, plan.site.cap_kw[hours], hours)
    allowed = used.copy()
    for cluster in plan.site.throttle_order:
        power = plan.clusters[cluster].node_power
        load = np.divide(used[cluster], nodes[cluster], out=np.zeros_like(excess), where=nodes[cluster] > 0)
        drawn = power.node_kw(load) * nodes[cluster]
        target = np.maximum(drawn - np.maximum(excess, 0.0), power.idle_kw * nodes[cluster])
        each = np.divide(target, nodes[cluster], out=np.zeros_like(excess), where=nodes[cluster] > 0)
        kept = np.interp(each, power.load_kw, np.linspace(0.0, 1.0, power.load_kw.size))
        throttled = excess > 0
        allowed[cluster] = np.where(throttled, np.minimum(used[cluster], kept * nodes[cluster]), allowed[cluster])
        excess -= np.where(throttled, drawn - target, 0.0)
    for cluster in plan.site.throttle_order:  # even idle power is too much: switch off
        off = excess > 1e-9
        idle = plan.clusters[cluster].node_power.idle_kw * nodes[cluster]
        allowed[cluster] = np.where(off, 0.0, allowed[cluster])
        excess -= np.where(off, idle, 0.0)
    return allowed
