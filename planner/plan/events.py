"""How many events a run would have: refused before it starts where it could not hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from planner.plan.plan import ClusterPlan, Plan
from planner.units import HOURS_PER_YEAR
from planner.yaml_io import KeyPath

MOST_EVENTS = 2_000_000
"""A run keeps every event, in about half a kilobyte: this many fill a gigabyte."""


def refuse_floods(plan: Plan, refuse: Callable[[KeyPath, str], None]) -> None:
    """Refuse rates that would bring more events than a run can hold, with the number expected."""
    for path, what, count in expected_events(plan):
        if count > MOST_EVENTS:
            refuse(path, f"about {count:,.0f} {what} are to be expected in this run; at most {MOST_EVENTS:,} are kept")


def expected_events(plan: Plan) -> Iterator[tuple[KeyPath, str, float]]:
    """Yield which figure causes events, what they are, and how many to expect over the horizon."""
    failures = sum(expected_failures(plan, cluster) for cluster in plan.clusters)
    yield ("reliability", "failure_multiplier"), "failures", failures
    years = plan.hours / HOURS_PER_YEAR
    models = {workload.model for workload in plan.workloads}
    incidents = sum(
        sum(incident.per_year for incident in stack.incidents) * years * len(models) for stack in plan.software.stacks
    )
    yield ("software", "incident_multiplier"), "incidents", incidents
    site = plan.site
    if site.outages_per_year > 0:
        outages = plan.hours / (HOURS_PER_YEAR / site.outages_per_year + site.outage_h)
        yield ("site", "outages_per_year"), "outages", outages
    for name, tenants in zip(plan.demand.names, plan.demand.tenants, strict=True):
        for index, tenant in enumerate(tenants):
            switches = 2.0 * plan.hours / (tenant.mean_on_h + tenant.mean_off_h)
            yield ("workloads", name, "tenants", index), "starts and stops", switches


def expected_failures(plan: Plan, cluster: ClusterPlan) -> float:
    """Return n·λ·(T + (m − 1)·τ·(1 − exp(−T/τ))) for a cluster's n nodes, in service for T hours."""
    reliability, order = plan.reliability, cluster.order
    start_h = order.placed_h + order.lead_h + order.slip_h.low if order else cluster.online_h or 0.0
    hours = max(0.0, min(plan.hours, cluster.retire_h) - max(0.0, start_h))
    early = (reliability.early_life_multiplier - 1.0) * reliability.early_life_h
    exposure_h = hours - early * np.expm1(-hours / reliability.early_life_h)
    per_node_h = sum(cause.per_node_h for cause in reliability.causes) * cluster.failure_multiplier
    return float(cluster.nodes * per_node_h * exposure_h)
