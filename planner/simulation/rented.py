"""Burst rental: accelerators rented by the hour for what the fleet would shed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan
from planner.simulation.driver import Run

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """What rented accelerators served."""

    requests: Floats
    """Shape (months, workloads)."""
    accelerator_h: Floats
    """Shape (months,)."""


def rent_for_shed(plan: Plan, run: Run) -> Rented:
    """Serve what would be shed on rented accelerators, as far as there are enough in the hour.

    A request takes as long on a rented accelerator as on the plan's best for its workload. Where an hour needs more
    accelerators than there are, every workload gets the same share of its need.
    """
    months = plan.month_edges_h.size - 1
    requests, hours_used = np.zeros((months, len(plan.workloads))), np.zeros(months)
    burst = plan.money.market.burst
    if burst is None:
        return Rented(requests=requests, accelerator_h=hours_used)
    for window in run.windows:
        shed = window.shed_requests
        first, hours = window.first_hour, shed.shape[1]
        month = plan.months.hour_periods[first : first + hours]
        each = burst.accelerator_h_per_request
        needed = shed * (each[:, month] if each.shape[1] > 1 else each)
        needed[shed <= 0] = 0.0
        servable = np.isfinite(needed)
        needed[~servable] = 0.0
        wanted = needed.sum(axis=0)
        share = np.minimum(1.0, np.divide(burst.most_accelerators, wanted, out=np.ones(hours), where=wanted > 0))
        edges = np.clip(plan.month_edges_h - first, 0, hours)
        inside = np.flatnonzero(np.diff(edges) > 0)
        requests[inside] += np.add.reduceat(np.where(servable, shed, 0.0) * share, edges[inside], axis=1).T
        hours_used[inside] += np.add.reduceat(wanted * share, edges[inside])
    return Rented(requests=requests, accelerator_h=hours_used)
