"""Hours summed into months."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.engine.driver import NodeHours, Run
from planner.engine.hourly import WindowResult
from planner.plan.plan import Plan
from planner.plan.quantities import fates, in_service, shares


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
    woken_nodes: Floats
    """Nodes woken from parking."""
    served_requests: Floats
    """Shape (months, clusters, workloads)."""
    it_kwh: Floats
    facility_kwh: Floats
    """IT, and cooling and distribution in proportion to it; by rated power where a month has none."""
    peak_facility_kw: Floats
    """Highest hour of each month, shape (months,)."""
    demand_requests: Floats
    """Shape (months, workloads)."""
    shed_requests: Floats
    """Shape (months, workloads)."""
    late_requests: Floats
    """Shape (months, workloads)."""

    @property
    def fates_node_h(self) -> dict[str, Floats]:
        """What became of the node-hours on site, by cause; the parts sum to them."""
        return fates(
            present=self.present_node_h, failed=self.failed_node_h, dark=self.dark_node_h,
            busy=self.busy_node_h, drag=self.drag_node_h, throttled=self.throttled_node_h,
        )  # fmt: skip

    @property
    def in_service_node_h(self) -> Floats:
        """Healthy, powered or not."""
        return in_service(self.present_node_h, self.failed_node_h)


def sum_months(plan: Plan, run: Run) -> Monthly:
    """Sum a run's hours into months."""
    sums = _sums(plan, *_joined(run))
    sums["facility_kwh"] = sums["facility_kwh"][:, None] * shares_of_power(plan, sums["it_kwh"])
    return Monthly(**sums)


def shares_of_power(plan: Plan, it_kwh: Floats) -> Floats:
    """Return the share of each cluster in what the site draws beside IT, shape (months, clusters).

    By IT energy; in a month in which nothing ran by rated power, of which machines at a provider's have none here.
    """
    rated = np.array([cluster.nodes * cluster.node_power.full_kw for cluster in plan.clusters]) * plan.on_site
    return shares(it_kwh, rated)


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
        "woken_nodes": np.zeros_like(it_kwh) if window.woken_nodes is None else by_month(window.woken_nodes),
        "served_requests": by_month(window.served_requests),
        "it_kwh": it_kwh,
        "facility_kwh": by_month(window.facility_kw),
        "peak_facility_kw": np.maximum.reduceat(window.facility_kw, starts),
        "demand_requests": by_month(window.demand_requests),
        "shed_requests": by_month(window.shed_requests),
        "late_requests": by_month(window.late_requests),
    }
