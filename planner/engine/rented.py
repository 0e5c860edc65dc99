"""Burst rental: accelerators rented by the hour for what the fleet would shed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.arrays import Floats
from planner.engine.hourly import WindowResult
from planner.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """What rented accelerators served."""

    requests: Floats
    """Shape (months, workloads)."""
    accelerator_h: Floats
    """Shape (months,)."""


def rent_by_hour(plan: Plan, window: WindowResult) -> tuple[Floats, Floats]:
    """Return requests served on rented accelerators, shape (workloads, hours), and their accelerators, shape (hours,).

    A request takes as long on a rented accelerator as on the plan's best for its workload. Where an hour needs more
    accelerators than there are, every workload gets the same share of its need.
    """
    burst, shed = plan.money.market.burst, window.shed_requests
    first, hours = window.first_hour, shed.shape[1]
    if burst is None:
        return np.zeros_like(shed), np.zeros(hours)
    month = plan.months.hour_periods[first : first + hours]
    per_request = burst.accelerator_h_per_request
    with np.errstate(invalid="ignore"):  # 0 · ∞: nothing is shed of what no accelerator serves
        needed = shed * (per_request[:, month] if per_request.shape[1] > 1 else per_request)
    needed[shed <= 0] = 0.0
    servable = np.isfinite(needed)
    needed[~servable] = 0.0
    wanted = needed.sum(axis=0)
    share = np.minimum(1.0, np.divide(burst.most_accelerators, wanted, out=np.ones(hours), where=wanted > 0))
    return np.where(servable, shed, 0.0) * share, wanted * share


def rent_for_shed(plan: Plan, windows: Sequence[WindowResult]) -> Rented:
    """Serve what would be shed on rented accelerators, as far as there are enough in the hour; sums by month."""
    months = plan.month_edges_h.size - 1
    requests, accelerator_h = np.zeros((months, len(plan.workloads))), np.zeros(months)
    for window in windows if plan.money.market.burst is not None else ():
        served, used = rent_by_hour(plan, window)
        edges = np.clip(plan.month_edges_h - window.first_hour, 0, used.size)
        inside = np.flatnonzero(np.diff(edges) > 0)
        requests[inside] += np.add.reduceat(served, edges[inside], axis=1).T
        accelerator_h[inside] += np.add.reduceat(used, edges[inside])
    return Rented(requests=requests, accelerator_h=accelerator_h)
