"""How nodes get into service and out of it: orders, crews, power blocks, retirement."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import simpy

from planner.engine.log import ChangeLog, streams
from planner.engine.repair_shop import RepairShop
from planner.engine.supply import Supply
from planner.plan.distributions import ThreePoint
from planner.plan.plan import Plan
from planner.run.simulate import run_engine
from tests.engine.plans import (
    cause_plan,
    cluster_plan,
    make_plan,
    order_plan,
    reliability_plan,
    site_plan,
)


def deliveries(plan: Plan, seed: int = 1) -> list[tuple[float, str, int]]:
    """When nodes of which cluster enter or leave, in nodes."""
    run, _ = run_engine(plan, seed)
    return sorted(
        (change.time_h, plan.clusters[change.cluster].name, change.accelerators // 8)
        for change in run.log.changes
    )


def with_site(plan: Plan, **changes: Any) -> Plan:
    return dataclasses.replace(plan, site=dataclasses.replace(plan.site, **changes))


def ordered(nodes: int = 4, **changes: Any) -> Any:
    return cluster_plan(nodes=nodes, online_h=None, order=order_plan(**changes))


def test_a_cluster_with_a_date_is_there_on_that_date() -> None:
    plan = make_plan([cluster_plan(nodes=5, online_h=100.0)])
    assert deliveries(plan) == [(100.0, "a", 5)]
    _, monthly = run_engine(plan, 1)
    assert monthly.present_node_h.sum() == pytest.approx(5 * (744 - 100))


def test_an_order_arrives_after_its_lead_and_is_commissioned_by_crews() -> None:
    """Seven nodes, three crews, six hours each: three rounds."""
    plan = with_site(make_plan([ordered(7, placed_h=24.0, lead_h=100.0)]), commissioning_crews=3)
    assert deliveries(plan) == [(130.0, "a", 3), (136.0, "a", 3), (142.0, "a", 1)]


def test_an_order_placed_before_the_start_may_be_there_on_day_one() -> None:
    plan = make_plan([ordered(2, placed_h=-500.0, lead_h=100.0)])
    assert deliveries(plan) == [(0.0, "a", 2)]
    run, _ = run_engine(plan, 1)
    assert [purchase.time_h for purchase in run.log.purchases] == [-400.0]


def test_what_came_just_before_the_start_is_commissioned_after_it() -> None:
    plan = with_site(make_plan([ordered(4, placed_h=-110.0, lead_h=100.0)]), commissioning_crews=2)
    assert deliveries(plan) == [
        (0.0, "a", 2),
        (2.0, "a", 2),
    ]  # from 10 hours before the start on, six hours a round


def test_deliveries_come_in_equal_parts_at_intervals() -> None:
    plan = with_site(
        make_plan([ordered(10, deliveries=3, interval_h=200.0)]), commissioning_crews=100
    )
    assert deliveries(plan) == [(6.0, "a", 3), (206.0, "a", 4), (406.0, "a", 3)]


def test_two_deliveries_on_one_day_wait_for_the_same_crews() -> None:
    one = cluster_plan("a", nodes=4, online_h=None, order=order_plan())
    two = cluster_plan("b", nodes=4, online_h=None, order=order_plan())
    plan = with_site(make_plan([two, one]), commissioning_crews=4)
    assert deliveries(plan) == [
        (6.0, "b", 4),
        (12.0, "a", 4),
    ]  # of one accelerator, the first in the file


def test_slips_follow_their_triangle() -> None:
    """|z| < 4 of the mean of 400 replications: (0 + 2 + 13) / 3 weeks."""
    slip = ThreePoint(low=0.0, base=2 * 168.0, high=13 * 168.0)
    plan = make_plan([ordered(1, slip_h=slip)], months=6)
    slips = np.array([deliveries(plan, seed)[0][0] - 6.0 for seed in range(400)])
    error = slips.std(ddof=1) / 20
    assert abs(slips.mean() - 5 * 168.0) < 4 * error
    assert slips.min() >= 0.0
    assert slips.max() <= 13 * 168.0


def test_nodes_that_fail_acceptance_come_after_a_part_and_a_repair() -> None:
    reliability = reliability_plan(rma_h=100.0, repair_h=(2.0, 12.0, 60.0))
    plan = make_plan([ordered(200, acceptance_failure_fraction=0.25)], reliability=reliability)
    plan = with_site(plan, commissioning_crews=200)
    (first_h, _, sound), (second_h, _, refused) = deliveries(plan)
    assert (first_h, second_h) == (6.0, 6.0 + 160.0)
    assert sound + refused == 200
    assert abs(refused - 50) < 4 * math.sqrt(200 * 0.25 * 0.75)


def test_refused_nodes_and_later_batches_may_arrive_in_any_order() -> None:
    """The log knows arrivals ahead of their time; hours must not care."""
    reliability = reliability_plan(rma_h=400.0)
    plan = make_plan(
        [ordered(40, acceptance_failure_fraction=0.5, deliveries=4, interval_h=50.0)],
        reliability=reliability,
    )
    plan = with_site(plan, commissioning_crews=40)
    run, _ = run_engine(plan, 3)
    times = np.array([change.time_h for change in run.log.changes])
    assert np.any(np.diff(times) < 0)
    for hour in (10, 120, 300, 700):
        there = sum(change.accelerators for change in run.log.changes if change.time_h <= hour) / 8
        assert run.node_hours[0].present[0, hour] == pytest.approx(there)


def test_nodes_wait_for_power() -> None:
    """Ten-kilowatt nodes and blocks of 25 and 30 kW: two at once, three more on the date, the last never."""
    site = site_plan(744, block_h=np.array([0.0, 240.0]), block_kw=np.array([25.0, 55.0]))
    plan = make_plan([cluster_plan(nodes=6)], site=site)
    assert deliveries(plan) == [(0.0, "a", 2), (240.0, "a", 3)]


def test_dated_retirement_takes_everything_and_its_outages() -> None:
    reliability = reliability_plan(causes=(cause_plan(per_node_h=1 / 50),))
    plan = make_plan([cluster_plan(nodes=5, retire_h=300.0)], reliability=reliability)
    run, monthly = run_engine(plan, 1)
    assert monthly.present_node_h.sum() == pytest.approx(5 * 300)
    assert run.node_hours[0].failed[0, :300].sum() > 0
    assert run.node_hours[0].failed[0, 300:].sum() == 0.0
    assert run.node_hours[0].healthy[0, 300:].sum() == 0.0
    assert all(outage.end_h <= 300.0 for outage in run.shop.outages())


def supply_of(plan: Plan) -> Supply:
    env = simpy.Environment()
    log = ChangeLog()
    supply = Supply(env, plan, RepairShop(env, plan.reliability, plan.clusters), log, streams(1))
    supply.start()
    return supply


def test_only_what_has_arrived_can_be_retired() -> None:
    """Five nodes, twelve hours to install each by one crew: a review cannot retire what is not there yet."""
    supply = supply_of(
        with_site(make_plan([ordered(5)]), commissioning_crews=1, commissioning_h=12.0)
    )
    supply.env.run(until=25)
    assert supply.retire(0, 4) == 2
    assert supply.retire(0, 4) == 0
    supply.env.run(until=600)
    assert supply.retire(0, 9) == 3


def test_power_of_a_cluster_that_leaves_serves_another() -> None:
    """What waits of the cluster that leaves goes with it; a small node goes ahead of one too large for what is free."""
    site = site_plan(744, block_h=np.array([0.0]), block_kw=np.array([25.0]))
    old = cluster_plan("a", nodes=3, retire_h=300.0)
    large = cluster_plan("b", nodes=2, nameplate_kw=12.0)
    small = cluster_plan("c", nodes=2, nameplate_kw=4.0)
    assert deliveries(make_plan([old, large, small], site=site)) == [
        (0.0, "a", 2), (0.0, "c", 1), (300.0, "a", -2), (300.0, "b", 1), (300.0, "c", 1)
    ]  # fmt: skip


def test_a_delivery_is_paid_when_it_comes_though_crews_and_power_are_busy() -> None:
    """Two shipments a day apart, of which one takes four days to install; power for five of the eight nodes."""
    site = site_plan(744, block_h=np.array([0.0, 500.0]), block_kw=np.array([30.0, 50.0]))
    plan = make_plan([ordered(8, lead_h=50.0, deliveries=2, interval_h=24.0)], site=site)
    run, _ = run_engine(with_site(plan, commissioning_crews=1, commissioning_h=24.0), 1)
    assert [(p.time_h, p.nodes) for p in run.log.purchases] == [(50.0, 4), (74.0, 4)]
    assert [(c.time_h, c.purchase) for c in run.log.changes] == [
        (74.0, 0), (98.0, 0), (122.0, 0), (500.0, 0), (500.0, 1)
    ]  # fmt: skip


def test_a_shipment_that_would_come_after_the_cluster_is_gone_is_cancelled() -> None:
    cluster = dataclasses.replace(ordered(4, deliveries=2, interval_h=400.0), retire_h=300.0)
    run, _ = run_engine(make_plan([cluster]), 1)
    assert [(p.time_h, p.nodes) for p in run.log.purchases] == [(0.0, 2)]
    supply = supply_of(make_plan([cluster_plan(nodes=1, retire_h=110.0)]))
    supply.expand(0, 5, 0.0, 110.0, supply.plan.clusters[0].prices_usd)  # in the very hour
    supply.env.run(until=700)
    assert len(supply.log.purchases) == 1


def test_those_first_in_are_first_out() -> None:
    reliability = reliability_plan(causes=(cause_plan(per_node_h=1 / 20),))
    supply = supply_of(make_plan([cluster_plan(nodes=4)], reliability=reliability))
    supply.env.run(until=200)
    assert supply.retire(0, 3) == 3
    supply.env.run(until=744)
    later = {outage.node for outage in supply.shop.outages() if outage.start_h > 200}
    assert later == {3}
    assert all(outage.end_h <= 200 for outage in supply.shop.outages() if outage.node < 3)


def test_expansion_arrives_after_lead_and_commissioning() -> None:
    supply = supply_of(make_plan([cluster_plan(nodes=1)]))
    supply.env.run(until=10)
    cheaper = supply.plan.clusters[0].order_prices_usd(10.0, 5, 0.9)
    supply.expand(0, 5, 10.0, 110.0, cheaper)
    supply.env.run(until=700)
    assert [(c.time_h, c.accelerators) for c in supply.log.changes[1:]] == [(116.0, 32), (122.0, 8)]
    assert supply.log.purchases[-1].prices_usd == cheaper
    assert sum(cheaper) < sum(supply.log.purchases[0].prices_usd)
