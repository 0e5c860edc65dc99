"""Burst rental hour by hour."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from planner.fleet.allocation import _rents
from planner.fleet.money import RentPlan
from planner.fleet.rented import rent_by_hour
from tests.fleet.plans import cluster_plan, make_plan


def test_what_no_accelerator_serves_is_not_rented_for() -> None:
    """A workload that has outgrown its objective: nothing is served of it, whether or not something is shed."""
    burst = SimpleNamespace(accelerator_h_per_request=np.array([[np.inf], [0.5]]), most_accelerators=8)
    months = SimpleNamespace(hour_periods=np.zeros(2, dtype=int))
    plan: Any = SimpleNamespace(money=SimpleNamespace(market=SimpleNamespace(burst=burst)), months=months)
    window = SimpleNamespace(first_hour=0, shed_requests=np.array([[0.0, 5.0], [4.0, 32.0]]))
    served, accelerators = rent_by_hour(plan, cast("Any", window))
    assert served.tolist() == [[0.0, 0.0], [4.0, 16.0]]
    assert accelerators.tolist() == [2.0, 8.0]


def test_only_rent_that_is_paid_by_the_hour_makes_work_dearer_on_a_cluster() -> None:
    """Hours at 3 and 6 dollars are in a ratio of two; what is reserved, or owned, is paid whether it works or not."""

    def rented(name: str, usd: float, *, when_used: bool) -> Any:
        return cluster_plan(
            name, rent=RentPlan(usd_per_accelerator_h=np.full(1, usd), when_used=when_used, is_hosted=True)
        )

    hourly = [rented("dear", 6.0, when_used=True), rented("cheap", 3.0, when_used=True)]
    plan = make_plan([cluster_plan("owned"), rented("reserved", 2.0, when_used=False), *hourly])
    assert _rents(plan).tolist() == [0.0, 0.0, 2.0, 1.0]
    assert _rents(make_plan([cluster_plan("owned")])).tolist() == [0.0]
