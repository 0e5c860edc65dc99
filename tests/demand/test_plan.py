from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from zlib import crc32

import numpy as np
import pytest

from planner.demand.plan import (
    CompoundGrowth,
    DemandPlan,
    LaunchSpike,
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


def test_same_replication_repeats_and_another_differs() -> None:
    plan = build_demand_plan([CHAT], HORIZON)
    first = hourly_requests_per_s(plan, _streams(1))
    np.testing.assert_array_equal(first, hourly_requests_per_s(plan, _streams(1)))
    assert not np.allclose(first, hourly_requests_per_s(plan, _streams(2)))


def test_doubling_the_rate_doubles_every_hour() -> None:
    one = hourly_requests_per_s(build_demand_plan([CHAT], HORIZON), _streams(5))
    two = hourly_requests_per_s(
        build_demand_plan([replace(CHAT, requests_per_s=80.0)], HORIZON), _streams(5)
    )
    np.testing.assert_allclose(two, 2.0 * one, rtol=1e-12)


def test_no_demand_is_no_demand() -> None:
    plan = build_demand_plan([replace(CHAT, requests_per_s=0.0)], HORIZON)
    np.testing.assert_array_equal(hourly_requests_per_s(plan, _streams(0)), 0.0)


def test_a_spike_multiplies_the_expectation() -> None:
    spiked = build_demand_plan(
        [replace(CODE, spikes=(LaunchSpike(hour_h=48, multiple=3, decay_days=7),))], HORIZON
    )
    ratio = (
        spiked.expected_requests_per_s[0]
        / build_demand_plan([CODE], HORIZON).expected_requests_per_s[0]
    )
    assert ratio[47] == 1.0
    assert ratio[48] == pytest.approx(3.0, rel=0.01)


def test_a_plan_cannot_be_written_to() -> None:
    plan = build_demand_plan([CODE], HORIZON)
    with pytest.raises(ValueError, match="read-only"):
        plan.expected_requests_per_s[0, 0] = 1.0


def test_two_tenants_of_one_name_are_refused() -> None:
    twice = TenantStream(name="t", share_fraction=0.3, mean_on_h=1, mean_off_h=1)
    with pytest.raises(ScenarioError, match=r"workloads.x: two tenants named 't'"):
        WorkloadDemand(name="x", requests_per_s=1.0, tenants=(twice, twice))


def _best_s(call: Callable[[], object], repeats: int) -> float:
    best = np.inf
    for _ in range(repeats):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return best


def test_a_replication_costs_little_more_than_its_random_numbers() -> None:
    """Three years, four workloads: 2.4 times the bare draw on a quiet machine; the bound leaves room for a busy one."""
    horizon = Horizon(start=date(2026, 1, 1), hours=26_280)
    plan: DemandPlan = build_demand_plan(
        [replace(CODE, name=f"w{i}", shape=SHAPE) for i in range(4)], horizon
    )
    generator = np.random.default_rng(0)
    bare_s = _best_s(lambda: generator.standard_normal((26_280, 4)), 20)
    whole_s = _best_s(lambda: hourly_requests_per_s(plan, lambda _: generator), 20)
    assert whole_s < 4.0 * bare_s
