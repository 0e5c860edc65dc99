from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from zlib import crc32

import numpy as np
import pytest

from planner.demand.plan import (
    CompoundGrowth,
    LognormalNoise,
    TenantStream,
    WorkloadDemand,
    build_demand_plan,
    hourly_requests_per_s,
)
from planner.demand.shape import Horizon, Shape, weekly_profile
from planner.errors import ScenarioError

HORIZON = Horizon(start=date(2026, 1, 5), hours=24 * 7 * 4)
SHAPE = Shape(
    weekly_profile=weekly_profile(peak_to_mean=1.6, weekend_fraction=0.7), timezone="Europe/Berlin"
)
CHAT = WorkloadDemand(
    name="chat",
    requests_per_s=40.0,
    growth=CompoundGrowth(per_year=0.5),
    shape=SHAPE,
    noise=LognormalNoise(sigma=0.2, correlation_h=4.0),
    tenants=(TenantStream(name="big", share_fraction=0.4, mean_on_h=10.0, mean_off_h=5.0),),
)
CODE = WorkloadDemand(
    name="code", requests_per_s=10.0, noise=LognormalNoise(sigma=0.1, correlation_h=2.0)
)


def _streams(replication: int) -> Callable[[str], np.random.Generator]:
    return lambda name: np.random.default_rng([11, replication, crc32(name.encode())])


def test_without_chance_demand_is_rate_times_growth_times_shape() -> None:
    quiet = replace(CHAT, noise=LognormalNoise(), tenants=())
    plan = build_demand_plan([quiet], HORIZON)
    demand = hourly_requests_per_s(plan, _streams(0))
    assert demand.shape == (HORIZON.hours, 1)
    np.testing.assert_allclose(demand[:, 0], plan.expected_requests_per_s[0])
    weekly = demand[:, 0].reshape(4, 168).mean(axis=1)
    assert weekly[0] == pytest.approx(40.0, rel=0.01)
    assert weekly[1] / weekly[0] == pytest.approx(1.5 ** (168 / 8766), rel=1e-9)


def test_mean_over_replications_is_the_expectation() -> None:
    plan = build_demand_plan([CHAT, CODE], HORIZON)
    totals = np.array(
        [hourly_requests_per_s(plan, _streams(run)).sum(axis=0) for run in range(400)]
    )
    z = (totals.mean(axis=0) - plan.expected_requests_per_s.sum(axis=1)) / (
        totals.std(axis=0, ddof=1) / 20.0
    )
    assert np.abs(z).max() < 4


def test_another_workload_tenant_or_order_never_shifts_a_draw() -> None:
    alone = hourly_requests_per_s(build_demand_plan([CODE], HORIZON), _streams(3))[:, 0]
    together = hourly_requests_per_s(build_demand_plan([CHAT, CODE], HORIZON), _streams(3))
    np.testing.assert_array_equal(together[:, 1], alone)
    more = replace(
        CHAT,
        tenants=(
            *CHAT.tenants,
            TenantStream(name="two", share_fraction=0.1, mean_on_h=1, mean_off_h=1),
        ),
    )
    swapped = hourly_requests_per_s(build_demand_plan([CODE, more], HORIZON), _streams(3))
    np.testing.assert_array_equal(swapped[:, 0], alone)
    longer = replace(HORIZON, hours=HORIZON.hours + 100)
    extended = hourly_requests_per_s(build_demand_plan([CHAT, CODE], longer), _streams(3))
    np.testing.assert_allclose(extended[: HORIZON.hours], together, rtol=1e-12)


def test_doubling_the_rate_doubles_every_hour() -> None:
    one = hourly_requests_per_s(build_demand_plan([CHAT], HORIZON), _streams(5))
    two = hourly_requests_per_s(
        build_demand_plan([replace(CHAT, requests_per_s=80.0)], HORIZON), _streams(5)
    )
    np.testing.assert_allclose(two, 2.0 * one, rtol=1e-12)


def test_a_workload_without_requests_has_no_rate() -> None:
    plan = build_demand_plan([replace(CODE, requests_per_s=0.0)], HORIZON)
    assert plan.rates("code") == (0.0, 0.0, 0.0)


def test_two_tenants_of_one_name_are_refused() -> None:
    twice = TenantStream(name="t", share_fraction=0.3, mean_on_h=1, mean_off_h=1)
    with pytest.raises(ScenarioError, match=r"workloads.x: two tenants named 't'"):
        WorkloadDemand(name="x", requests_per_s=1.0, tenants=(twice, twice))
