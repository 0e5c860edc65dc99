"""Power of machines that are on site together, beside sums by hand."""

from __future__ import annotations

import pytest

from planner.plan.distributions import ThreePoint
from planner.plan.site import full_load_kw
from tests.engine.plans import cluster_plan, node_power, order_plan


@pytest.mark.parametrize(("retired_h", "kw"), [(4400.0, 10 * 8.0), (4600.0, 10 * 8.0 + 6 * 5.0)])
def test_what_comes_by_an_order_is_there_with_what_has_not_left_by_then(
    retired_h: float, kw: float
) -> None:
    """Ordered after 1,000 hours, it takes 3,000 and slips by 500 at least: it is there from hour 4,500 on."""
    order = order_plan(
        placed_h=1000.0, lead_h=3000.0, slip_h=ThreePoint(low=500.0, base=600.0, high=700.0)
    )
    clusters = [
        cluster_plan("before", nodes=10, node_power=node_power(2.0, 8.0), retire_h=retired_h),
        cluster_plan("after", nodes=6, node_power=node_power(1.0, 5.0), online_h=None, order=order),
    ]
    assert full_load_kw(clusters, 8760) == pytest.approx(kw)
