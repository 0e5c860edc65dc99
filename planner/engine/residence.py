"""What the models of a plan held of its clusters, month by month, read off the hours that were evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.engine.hourly import WindowResult
from planner.plan.plan import Placement, Plan
from planner.plan.pools import ROUNDING
from planner.plan.quantities import machine_time, shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Residence:
    """What the deployments of a plan held, by month; shape (months, deployments)."""

    replicas: Floats
    """Most at once, whole."""
    held_node_h: Floats
    """Node-hours that may serve it: of its replicas, or of the cluster where any share of it may."""
    load_node_h: Floats
    """Node-hours in which weights were loaded."""


def residence(plan: Plan, placement: Placement, windows: Sequence[WindowResult]) -> Residence:
    """Return what was placed month by month; on clusters where any share serves any model, what the work amounts to.

    There replicas are those of the highest hour, ceil(nodes at work on it / nodes of a replica), and what is loaded is
    the rise from hour to hour, in months whose highest hours do not all fit at once; it was not taken off what served.
    """
    starts, lengths = plan.month_edges_h[:-1], np.diff(plan.month_edges_h)
    served, nodes, busy, placed, loading = (
        _hourly(windows, name) for name in ("served_requests", "nodes", "busy_nodes", "replicas", "loading_nodes")
    )
    deployments, size = (
        placement.deployments,
        np.array([deployment.nodes_per_replica for deployment in placement.deployments]),
    )
    replicas, held, load = (np.zeros((size.size, plan.hours)) for _ in range(3))
    rates = np.moveaxis(plan.requests_per_node_h, 2, 0)
    for c, whole_replicas in enumerate(placement.placed):
        there = [d for d, deployment in enumerate(deployments) if deployment.cluster == c]
        if whole_replicas:
            replicas[there], held[there], load[there] = placed[there], placed[there] * size[there, None], loading[there]
            continue
        hourly = np.repeat(rates[:, c], lengths, axis=0) if len(rates) > 1 else rates[:, c]
        share = shares(machine_time(served[c].T, hourly)).T  # of the nodes at work, shape (workloads, hours)
        for d in there:
            work = share[list(deployments[d].workloads)].sum(axis=0) * busy[c]
            replicas[d] = np.ceil(work / size[d] - ROUNDING)
            held[d] = nodes[c]
            load[d] = np.maximum(np.diff(replicas[d], prepend=replicas[d, :1]), 0.0) * size[d] * deployments[d].load_h
        highest = np.maximum.reduceat(replicas[there], starts, axis=1)
        fits = (highest * size[there, None]).sum(axis=0) <= np.minimum.reduceat(nodes[c], starts)
        load[there] *= ~np.repeat(fits, lengths)
    return Residence(
        replicas=np.maximum.reduceat(replicas, starts, axis=1).T,
        held_node_h=np.add.reduceat(held, starts, axis=1).T,
        load_node_h=np.add.reduceat(load, starts, axis=1).T,
    )


def _hourly(windows: Sequence[WindowResult], name: str) -> Floats:
    """Return the hours of all windows one after the other, to be read alone: those of a single window are its own."""
    parts: list[Floats] = [getattr(window, name) for window in windows]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)


def never_placed(plan: Plan, windows: Sequence[WindowResult]) -> list[int]:
    """Return the workloads that were asked for and whose model was never resident anywhere."""
    placement = plan.placement
    if placement is None:
        return []
    never = []
    for w, workload in enumerate(placement.pools.workloads):
        held = [placement.pool_deployment[pool] for pool in workload.cluster_order]
        placed = [d for d in held if d is not None]
        if len(placed) < len(held) or not any(window.demand_requests[w].max() > 0.0 for window in windows):
            continue
        if not any(window.replicas[d].max() > 0.0 for window in windows for d in placed):
            never.append(w)
    return never
