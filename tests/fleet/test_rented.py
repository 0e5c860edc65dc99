"""Burst rental hour by hour."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from planner.fleet.rented import rent_by_hour


def test_what_no_accelerator_serves_is_not_rented_for() -> None:
    """A workload that has outgrown its objective: nothing is served of it, whether or not something is shed."""
    burst = SimpleNamespace(accelerator_h_per_request=np.array([[np.inf], [0.5]]), most_accelerators=8)
    months = SimpleNamespace(hour_periods=np.zeros(2, dtype=int))
    plan: Any = SimpleNamespace(money=SimpleNamespace(market=SimpleNamespace(burst=burst)), months=months)
    window = SimpleNamespace(first_hour=0, shed_requests=np.array([[0.0, 5.0], [4.0, 32.0]]))
    served, accelerators = rent_by_hour(plan, cast("Any", window))
    assert served.tolist() == [[0.0, 0.0], [4.0, 16.0]]
    assert accelerators.tolist() == [2.0, 8.0]
