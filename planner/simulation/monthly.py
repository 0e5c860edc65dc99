"""Hours summed into months."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan
from planner.fleet.window import WindowResult
from planner.simulation.driver import NodeHours, Run

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Monthly:
    """Monthly sums; shape (months, clusters) unless stated.

    Node-hours are split so that the parts sum to the whole: present = failed + dark + busy + throttled + idle.
    """

    present_node_h: Floats
    """Delivered and not retired."""
    failed_node_h: Floats
    """Out of service for a hardware fault."""
    dark_node_h: Floats
    """Healthy, but the site had no power."""
    busy_node_h: Floats
    """At work."""
    drag_node_h: Floats
    """Of those at work, what slow software cost."""
    throttled_node_h: Floats
    """Had work and lost it to the power cap."""
    served_requests: Floats
    """Shape (months, clusters, workloads)."""
    it_kwh: Floats
    facility_kwh: Floats
    """IT, and cooling and distribution in proportion to it; evenly where a month has none."""
    peak_facility_kw: Floats
    """Highest hour of each month, shape (months,)."""
    demand_requests: Floats
    """Shape (months, workloads)."""
    shed_requests: Floats
    """Shape (months, workloads)."""
    late_requests: Floats
    """Shape (months, workloads)."""

    @property
    def idle_node_h(self) -> Floats:
        """Healthy and powered, without work."""
        taken = self.failed_node_h + self.dark_node_h + self.busy_node_h + self.throttled_node_h
        return np.maximum(self.present_node_h - taken, 0.0)

    @property
    def in_service_node_h(self) -> Floats:
        """Healthy, powered or not."""
        return self.present_node_h - self.failed_node_h


def in_proportion(amount: Floats, weights: Floats) -> Floats:
    """Spread monthly amounts over clusters by weights, evenly where all are zero, shape (months, clusters)."""
    whole = weights.sum(axis=1, keepdims=True)
    even = np.full(weights.shape, 1.0 / weights.shape[1])
    shares: Floats = np.divide(weights, whole, out=even, where=whole > 0)
    return amount[:, None] * shares


def sum_months(plan: Plan, run: Run) -> Monthly:
    """Sum a run's hours into months."""
    whole = _sums(plan, *_joined(run))
    whole["facility_kwh"] = _by_cluster(plan, whole["facility_kwh"], whole["it_kwh"])
    return Monthly(**whole)


def _joined(run: Run) -> tuple[WindowResult, NodeHours]:
    """Return a run's windows as one."""
    if len(run.windows) == 1:
        return run.windows[0], run.node_hours[0]

    def hours(name: str) -> Floats:
        return np.concatenate([getattr(window, name) for window in run.windows], axis=-1)

    first, last = run.windows[0], run.windows[-1]
    by_hour = [field.name for field in fields(WindowResult) if isinstance(getattr(first, field.name), np.ndarray)]
    changes: dict[str, Any] = {name: hours(name) for name in by_hour}
    window = replace(first, waiting_requests=last.waiting_requests, **changes)
    machines = NodeHours(
        **{
            field.name: np.concatenate([getattr(part, field.name) for part in run.node_hours], axis=-1)
            for field in fields(NodeHours)
        }
    )
    return window, machines


def _by_cluster(plan: Plan, facility_kwh: Floats, it_kwh: Floats) -> Floats:
    """Split a month's facility energy by IT energy, or by rated power in a month in which nothing ran."""
    rated = np.array([cluster.nodes * cluster.node_power.full_kw for cluster in plan.clusters])
    return in_proportion(facility_kwh, np.where(it_kwh.sum(axis=1, keepdims=True) > 0, it_kwh, rated))


def _sums(plan: Plan, window: WindowResult, machines: NodeHours) -> dict[str, Floats]:
    """Sum the hours of the whole horizon; facility energy is not yet split by cluster: its shape is (months,)."""
    starts = plan.month_edges_h[:-1]

    def by_month(hourly: Floats) -> Floats:
        return np.moveaxis(np.add.reduceat(hourly, starts, axis=-1), -1, 0)

    it_kwh = by_month(window.it_kw)
    return {
        "present_node_h": by_month(machines.present),
        "failed_node_h": by_month(machines.failed),
        "dark_node_h": by_month(machines.dark) if machines.dark.any() else np.zeros_like(it_kwh),
        "busy_node_h": by_month(window.busy_nodes),
        "drag_node_h": by_month(window.drag_nodes),
        "throttled_node_h": by_month(window.throttled_nodes) if plan.site.cap_kw is not None else np.zeros_like(it_kwh),
        "served_requests": by_month(window.served_requests),
        "it_kwh": it_kwh,
        "facility_kwh": by_month(window.facility_kw),
        "peak_facility_kw": np.maximum.reduceat(window.facility_kw, starts),
        "demand_requests": by_month(window.demand_requests),
        "shed_requests": by_month(window.shed_requests),
        "late_requests": by_month(window.late_requests),
    }
