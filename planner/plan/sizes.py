"""Clusters that rules enlarge or reduce: what a node of them sustains at each size.

A router over many replicas keeps each busier for the same waits, so what a node sustains, and how late requests are at
a load, follow the number of nodes. They are worked out for a few sizes; between two, the smaller's figures hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planner.arrays import Floats, Ints
from planner.elementwise import lengthened
from planner.plan.plan import Plan


def sizes_by_hour(plan: Plan, present: Floats) -> Ints:
    """Return which size each cluster has in each hour, −1 for that of the plan, shape (clusters, hours).

    ``present`` are its nodes, in service or not.
    """
    which = np.full(present.shape, -1, dtype=np.intp)
    for c, sizes in plan.sizes.items():
        which[c] = np.searchsorted([size.nodes for size in sizes], present[c], side="right") - 1
    return which


_kept: deque[tuple[Plan, dict[tuple[int, ...], Plan]]] = deque(maxlen=1)
"""The last plan that was asked for, and what it is at the sizes that it had: its replications go through the same."""


def at_sizes(plan: Plan, which: tuple[int, ...]) -> Plan:
    """Return the plan with clusters of some sizes, as :func:`sizes_by_hour` numbers them, one for each cluster."""
    if all(size < 0 for size in which):
        return plan
    by_sizes = next((sized for known, sized in tuple(_kept) if known is plan), None)
    if by_sizes is None:
        by_sizes = {}
        _kept.append((plan, by_sizes))
    if which not in by_sizes:
        by_sizes[which] = _sized(plan, which)
    return by_sizes[which]


def _sized(plan: Plan, which: tuple[int, ...]) -> Plan:
    """Work out the plan at some sizes."""
    chosen = {c: plan.sizes[c][size] for c, size in enumerate(which) if size >= 0}
    most = max(plan.late_tables.shape[-1], *(size.late_table.shape[-1] for size in chosen.values()))
    rows: dict[str, Any] = {
        "requests_per_node_h": plan.requests_per_node_h.copy(),
        "late_tables": lengthened(plan.late_tables, most),
        "refused_tables": lengthened(plan.refused_tables, most),
        "calm_tables": None if plan.calm_tables is None else lengthened(plan.calm_tables, most),
        "most_loads": plan.most_loads.copy(),
        "burst_tables": {pair: by_rate for pair, by_rate in plan.burst_tables.items() if pair[0] not in chosen},
    }
    for c, size in chosen.items():
        rows["requests_per_node_h"][c] *= size.speed[:, None]
        rows["late_tables"][c] = lengthened(size.late_table, most)
        rows["refused_tables"][c] = lengthened(size.refused_table, most)
        rows["most_loads"][c] = size.most_loads
        rows["burst_tables"] |= {(c, w): by_rate for w, by_rate in size.burst_tables.items()}
        if plan.calm_tables is not None:
            rows["calm_tables"][:, c] = lengthened(size.calm_tables, most)
    rows["burst_tables"] = {pair: by_rate.lengthened(most) for pair, by_rate in rows["burst_tables"].items()}
    sized = replace(plan, **rows)
    if (placement := plan.placement) is None:
        return sized
    pools = replace(placement.pools, **figures_in_pools(sized, placement.pool_cluster, placement.pool_speed))
    return replace(sized, placement=replace(placement, pools=pools))


def figures_in_pools(plan: Plan, pool_cluster: Sequence[int], speed: Floats) -> dict[str, Any]:
    """Return a plan's figures by pool in place of cluster; their speed has shape (pools, workloads, months or 1)."""
    at = list(pool_cluster)
    return {
        "requests_per_node_h": plan.requests_per_node_h[at] * speed,
        "late_tables": plan.late_tables[at],
        "refused_tables": plan.refused_tables[at],
        "most_loads": plan.most_loads[at],
        "calm_tables": None if plan.calm_tables is None else plan.calm_tables[:, at],
        "burst_tables": {
            (pool, w): by_rate for pool, c in enumerate(at) for (on, w), by_rate in plan.burst_tables.items() if on == c
        },
    }
