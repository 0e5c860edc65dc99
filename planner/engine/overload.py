"""Workloads that have outgrown their objective and queue all the same: served late, and never beyond their share."""

from __future__ import annotations

import dataclasses

import numpy as np

from planner.arrays import Floats
from planner.engine.hourly import WindowInput, WindowResult
from planner.engine.router import ways_of
from planner.plan.plan import Plan


def beyond_share(plan: Plan, window: WindowInput) -> Floats | None:
    """Return the requests that workloads past their objective have no share for, shape (workloads, hours).

    max(0, arrivals − share · Σ over its clusters of nodes · requests per node and hour), its share being of what the
    fleet can serve of it; None where no workload is past its objective.
    """
    if all(workload.overdue_share is None for workload in plan.workloads):
        return None
    beyond, ways = np.zeros_like(window.demand_requests), ways_of(plan, window)
    for w, workload in enumerate(plan.workloads):
        share = _share(plan, w, window.hours)
        most = sum((window.nodes[c] * ways[w].rate(c, slice(None)) for c in workload.cluster_order), start=0.0 * share)
        beyond[w] = np.where(share > 0.0, np.maximum(window.demand_requests[w] - share * most, 0.0), 0.0)
    return beyond


def _share(plan: Plan, w: int, hours: slice) -> Floats:
    """Return the share of the fleet that a workload past its objective is served within, shape (hours,); 0 before."""
    counts = np.diff(np.clip(plan.month_edges_h, hours.start, hours.stop)).astype(np.intp)
    share = plan.workloads[w].overdue_share
    return np.zeros(int(counts.sum())) if share is None else np.repeat(share, counts)


def with_overdue(plan: Plan, window: WindowInput, beyond: Floats, result: WindowResult) -> WindowResult:
    """Return a window's result with what had no share shed, and what no batch could serve in time late."""
    late = result.late_requests.copy()
    for w in range(len(plan.workloads)):
        past = _share(plan, w, window.hours) > 0.0
        late[w][past] = result.served_requests[:, w][:, past].sum(axis=0)
    shed = result.shed_requests + beyond
    return dataclasses.replace(result, demand_requests=window.demand_requests, shed_requests=shed, late_requests=late)
