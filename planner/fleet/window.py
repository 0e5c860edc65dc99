"""What a window of hours yields: who is served where, what waits, what is shed, how much power it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan
from planner.fleet.scan import clamp_scan
from planner.units import SECONDS_PER_HOUR

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Deferrable work carried from one window to the next."""

    waiting_requests: tuple[Floats, ...]
    """Per workload, requests still waiting by hour of arrival, oldest first, shape (deadline,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """Hourly arrays of one window."""

    demand_requests: Floats
    """Arrivals, shape (workloads, hours)."""
    served_requests: Floats
    """Shape (clusters, workloads, hours)."""
    shed_requests: Floats
    """Refused or expired, shape (workloads, hours)."""
    busy_nodes: Floats
    """Node-equivalents at work, shape (clusters, hours)."""
    nodes: Floats
    """Nodes in service, shape (clusters, hours)."""
    it_kw: Floats
    """IT power, shape (clusters, hours)."""
    backlog: Backlog


def empty_backlog(plan: Plan) -> Backlog:
    """Return the backlog of a fleet on its first day."""
    return Backlog(waiting_requests=tuple(np.zeros(workload.deadline_h) for workload in plan.workloads))


def evaluate_window(plan: Plan, demand_requests: Floats, nodes: Floats, backlog: Backlog) -> WindowResult:
    """Route a window's demand over the nodes in service.

    ``demand_requests`` has shape (workloads, hours), ``nodes`` (clusters, hours). Workloads are taken by priority;
    each is offered to its clusters in order and fills what is free; deferrable work fills what all others left.
    """
    clusters, hours = nodes.shape
    free = nodes.copy()
    served = np.zeros((clusters, len(plan.workloads), hours))
    shed = np.zeros((len(plan.workloads), hours))
    waiting: list[Floats] = [*backlog.waiting_requests]
    hourly = plan.requests_per_s_per_node * SECONDS_PER_HOUR
    for index in sorted(range(len(plan.workloads)), key=lambda w: plan.workloads[w].priority):
        workload = plan.workloads[index]
        wanted = demand_requests[index]
        if workload.deadline_h:
            spare = sum((free[c] * hourly[c, index] for c in workload.cluster_order), np.zeros(hours))
            wanted, shed[index], waiting[index] = defer(wanted, spare, waiting[index])
        left = wanted.copy()
        for cluster in workload.cluster_order:
            rate = hourly[cluster, index]
            taken = np.minimum(left, free[cluster] * rate)
            served[cluster, index] = taken
            left -= taken
            free[cluster] -= taken / rate
        if not workload.deadline_h:
            shed[index] = left
    np.maximum(free, 0.0, out=free)
    busy = nodes - free
    return WindowResult(
        demand_requests=demand_requests,
        served_requests=served,
        shed_requests=shed,
        busy_nodes=busy,
        nodes=nodes,
        it_kw=_it_kw(plan, busy, nodes),
        backlog=Backlog(waiting_requests=tuple(waiting)),
    )


def defer(arrivals: Floats, spare: Floats, waiting: Floats) -> tuple[Floats, Floats, Floats]:
    """Serve deferrable work first come, first served from spare capacity; what outlives its deadline is shed.

    With A the cumulative arrivals (those still waiting included), d the deadline and c the spare capacity, the work
    that has left by the end of hour t, served or expired, is G[t] = min(max(G[t−1] + c[t], A[t−d]), A[t]): the queue
    serves what it can, drops what arrived d hours ago, and never gets ahead of arrivals. Returns served and shed
    by hour, and what still waits by hour of arrival.
    """
    deadline = waiting.size
    cumulative = np.cumsum(np.concatenate((waiting, arrivals)))
    arrived = cumulative[deadline:]
    expired = cumulative[:-deadline] if deadline else cumulative
    gone = clamp_scan(spare, expired, arrived, 0.0)
    before = np.concatenate(([0.0], gone[:-1]))
    served = np.minimum(before + spare, arrived) - before
    shed = np.maximum(gone - before - served, 0.0)
    still = np.maximum(cumulative[-deadline:] - gone[-1], 0.0)
    return served, shed, np.diff(still, prepend=0.0)


def _it_kw(plan: Plan, busy: Floats, nodes: Floats) -> Floats:
    """Return IT power: nodes in service idle or at work, shape (clusters, hours)."""
    idle = np.array([cluster.node_idle_kw for cluster in plan.clusters])[:, None]
    full = np.array([cluster.node_full_kw for cluster in plan.clusters])[:, None]
    power: Floats = idle * nodes + (full - idle) * busy
    return power
