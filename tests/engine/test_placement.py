"""Whole replicas: never more than nodes hold, never more work than they carry, and what loading them costs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given, settings

from planner.engine.hourly import WindowInput, residence
from planner.engine.placement import place_window, whole_nodes
from planner.engine.window import evaluate_window
from planner.plan.placement import with_placement
from planner.plan.plan import Deployment, Placement, Plan
from planner.plan.site import facility_kw
from tests.engine.naive import Naive, assert_same
from tests.engine.plans import cluster_plan, demand_plan, make_plan, workload_plan
from tests.engine.test_window import Recipe, built, either, scale, sites, window_of


def deployment(
    cluster: int, workloads: tuple[int, ...], nodes: float = 1.0, **changes: object
) -> Deployment:
    plain = Deployment(
        cluster=cluster,
        workloads=workloads,
        nodes_per_replica=nodes,
        speed=1.0,
        resident_bytes=1.0,
        memory_bytes=2.0,
        load_h=0.1,
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


def short(recipe: Recipe) -> Recipe:
    """The same site for a few hours."""
    return recipe._replace(hours=min(recipe.hours, 8))


def placed_plan(recipe: Recipe) -> tuple[Plan, Placement, WindowInput]:
    """A random site whose workloads hold replicas of random sizes, some of them together."""
    plan, window = built(recipe)
    random = np.random.default_rng(recipe.seed + 1)
    found = []
    for c in range(len(plan.clusters)):
        able = [w for w in plan.by_priority if c in plan.workloads[w].cluster_order]
        while able:
            together = int(random.integers(1, 3))
            nodes = float(random.choice([0.125, 0.25, 0.5, 1.0, 2.0]))
            speed = float(random.uniform(0.5, 1.0))
            members = tuple(able[:together])
            able = able[together:]
            found.append(
                deployment(c, members, nodes, speed=speed, load_h=float(random.uniform(0, 1)))
            )
    for place, each in enumerate(found):  # some hold a model of which others wait for work
        others = [other for other in found if other.cluster == each.cluster and other is not each]
        best = {
            w: other.speed
            for other in others
            for w in other.workloads
            if plan.workloads[w].deadline_h
        }
        idle = {w: random.uniform(0.3, 1.0, 1) * speed / each.speed for w, speed in best.items()}
        if random.random() < 0.5:
            found[place] = dataclasses.replace(each, waiting_speed=idle)
    mean = window.demand_requests.mean(axis=1) / 3600.0
    plan = dataclasses.replace(plan, demand=demand_plan(plan.workloads, plan.hours, mean.tolist()))
    plan = with_placement(plan, found)
    assert plan.placement is not None
    return plan, plan.placement, window


@settings(max_examples=4)
@given(either)
def test_replicas_are_whole_and_fit(recipe: Recipe) -> None:
    plan, placement, window = placed_plan(short(recipe))
    result = evaluate_window(plan, window)
    if not any(placement.placed):
        return
    np.testing.assert_array_equal(result.replicas, np.round(result.replicas))
    held = np.zeros_like(window.nodes)
    whole = whole_nodes(plan, window)
    placed = place_window(plan, placement, window)
    placement = placed.placement
    pools = placed.window
    on = np.divide(window.nodes, whole, out=np.zeros_like(whole), where=whole > 0)
    of_pools = evaluate_window(dataclasses.replace(placement.pools, placement=None), pools)
    for pool, g in enumerate(placement.pool_group):
        if g is None:
            continue
        (d,) = placement.groups[g]
        each = placement.deployments[d]
        carried = np.zeros(held.shape[1])
        held[each.cluster] += result.replicas[d] * each.nodes_per_replica
        for w in {*each.workloads, *each.waiting_speed}:
            speed = (
                each.speed
                * each.waiting_speed.get(w, np.ones(1))
                * window.speed.get((each.cluster, w), np.ones(1))
            )
            carried += of_pools.served_requests[pool, w] / (
                plan.requests_per_node_h[each.cluster, w] * speed
            )
        room = (result.replicas[d] * each.nodes_per_replica) * on[
            each.cluster
        ] - result.loading_nodes[d]
        assert np.all(carried <= room + 1e-6)
    assert np.all(held <= whole + 1e-6)
    waiting = np.array([row.sum() for row in result.waiting_requests])
    left = result.served_requests.sum(axis=(0, 2)) + result.shed_requests.sum(axis=1) + waiting
    np.testing.assert_allclose(left, window.demand_requests.sum(axis=1), rtol=1e-9, atol=1e-6)
    assert np.all(result.busy_nodes <= window.nodes + 1e-6)


@settings(max_examples=4)
@given(sites(capped=True))
def test_pools_stay_under_the_cap_and_energy_is_power_times_time(recipe: Recipe) -> None:
    plan, _, window = placed_plan(short(recipe))
    result = evaluate_window(plan, window)
    assert plan.site.cap_kw is not None
    hours = result.facility_kw.size
    nothing = facility_kw(
        plan, np.zeros(hours), window.hours
    )  # overhead that runs even with everything off
    assert np.all(
        result.facility_kw
        <= np.maximum(plan.site.cap_kw[:hours] * (1 + 1e-8), nothing * (1 + 1e-12))
    )
    np.testing.assert_allclose(
        result.facility_kw, facility_kw(plan, result.it_kw.sum(axis=0), window.hours), rtol=1e-12
    )


def check_against_programs(recipe: Recipe) -> None:
    """Given what is placed, each priority is served what a linear program of another library serves."""
    plan, placement, window = placed_plan(recipe)
    assume(any(placement.placed))
    placed = place_window(plan, placement, window)
    pools = placed.window
    in_pools = placed.placement.pools
    naive = Naive(in_pools)
    assert_same(naive, naive.run(pools), evaluate_window(dataclasses.replace(in_pools, placement=None), pools),
                scale(plan, window))  # fmt: skip


@settings(max_examples=4, deadline=None)
@given(either)
def test_given_the_placement_an_hour_is_served_as_a_linear_program_would(recipe: Recipe) -> None:
    check_against_programs(recipe._replace(hours=min(recipe.hours, 4)))


@pytest.mark.prove
@settings(max_examples=1500, deadline=None)
@given(either)
def test_given_the_placement_thousands_of_sites_are_served_as_a_linear_program_would(
    recipe: Recipe,
) -> None:
    check_against_programs(recipe)


def two_models(
    nodes: int, deployments: list[Deployment], chat: float = 0.5, code: float = 0.5
) -> Plan:
    """Chat and code on one cluster, each node serving a request a second of either."""
    work = [workload_plan("chat", model="a"), workload_plan("code", model="b")]
    plan = make_plan(
        [cluster_plan(nodes=nodes)], work, requests_per_s=[chat, code], preferred_utilisation=0.85
    )
    return with_placement(plan, deployments)


def test_a_node_that_holds_one_model_serves_no_other() -> None:
    """On one node the first model is held and the other shed; on two both are; together on one, at its speed."""
    alone = [deployment(0, (0,)), deployment(0, (1,))]
    demand = np.full((2, 3), 1800.0)
    for nodes, held, served in ((1, alone, [1800, 0]), (2, alone, [1800, 1800])):
        plan = two_models(nodes, held)
        result = evaluate_window(plan, window_of(plan, demand, np.full((1, 3), float(nodes))))
        assert result.served_requests[0, :, 0].tolist() == pytest.approx(served)
    shared = two_models(1, [deployment(0, (0,), 0.5), deployment(0, (1,), 0.75)])
    result = evaluate_window(shared, window_of(shared, demand, np.full((1, 3), 1.0)))
    assert result.served_requests[0, :, 0].tolist() == pytest.approx(
        [1800, 0]
    )  # 1.25 nodes do not fit on one
    together = two_models(1, [deployment(0, (0, 1), speed=0.8)])
    result = evaluate_window(together, window_of(together, demand, np.full((1, 3), 1.0)))
    assert result.served_requests[0, :, 0].sum() == pytest.approx(0.8 * 3600)


def test_an_hour_whose_need_passes_what_is_placed_loads_what_it_needs() -> None:
    """Of four nodes the review gives each model two; an hour with 3 nodes' worth of chat takes one from code."""
    plan = two_models(4, [deployment(0, (0,), load_h=0.25), deployment(0, (1,), load_h=0.25)])
    demand = np.array([[1800.0, 3 * 3600.0, 1800.0], [1800.0] * 3])
    result = evaluate_window(plan, window_of(plan, demand, np.full((1, 3), 4.0)))
    assert result.replicas.tolist() == [[2, 3, 2], [2, 1, 2]]
    assert result.loading_nodes.tolist() == [[0, 0.25, 0], [0, 0, 0.25]]
    assert result.served_requests[0, 0].tolist() == pytest.approx(
        [1800, 2.75 * 3600, 1800]
    )  # a quarter hour of one
    assert result.served_requests[0, 1].tolist() == pytest.approx([1800] * 3)
    assert result.nodes.tolist() == [[4, 4, 4]]


@pytest.mark.parametrize("least_replicas", [1, 2])
def test_a_model_that_nobody_asks_for_takes_no_room(least_replicas: int) -> None:
    """Neither as one of three, nor where it would leave one alone, which any share of a cluster may serve."""
    work = [workload_plan(name) for name in ("chat", "code", "other")]
    fine_tunes = deployment(0, (0,), least_replicas=least_replicas)
    held = [fine_tunes, deployment(0, (1,)), deployment(0, (2,))]
    plan = with_placement(
        make_plan([cluster_plan("a", nodes=2)], work, requests_per_s=[0.0, 0.5, 0.5]), held
    )
    demand = np.array([[0.0], [1800.0], [1800.0]])
    result = evaluate_window(plan, window_of(plan, demand, np.full((1, 1), 2.0)))
    assert result.replicas.tolist() == [[0], [1], [1]]
    alone = two_models(1, [deployment(0, (0,)), deployment(0, (1,))], chat=0.0)
    assert alone.placement is not None
    assert alone.placement.placed == (False,)


def test_every_model_of_a_priority_is_held_before_any_is_held_twice() -> None:
    plan = two_models(2, [deployment(0, (0,)), deployment(0, (1,))], chat=5.0)
    result = evaluate_window(
        plan, window_of(plan, np.array([[5 * 3600.0], [360.0]]), np.full((1, 1), 2.0))
    )
    assert result.replicas.tolist() == [[1], [1]]
    first = dataclasses.replace(
        plan.workloads[1], priority=1
    )  # but a lower priority waits for all of a higher
    plan = with_placement(
        dataclasses.replace(plan, workloads=(plan.workloads[0], first), placement=None),
        [deployment(0, (0,)), deployment(0, (1,))],
    )
    result = evaluate_window(
        plan, window_of(plan, np.array([[5 * 3600.0], [360.0]]), np.full((1, 1), 2.0))
    )
    assert result.replicas.tolist() == [[2], [0]]


def test_what_can_wait_uses_what_idles_and_an_hour_that_is_short_of_it_makes_room() -> None:
    """Four nodes: chat takes all of them by day and one by night, when batch works off the day.

    On chat's replicas at 0.8 of its speed; without a way onto these it is loaded onto all but two of the nodes, since
    what cannot wait is at 85%.
    """
    work = [workload_plan("chat"), workload_plan("batch", priority=2, deadline_h=24)]
    plan = make_plan(
        [cluster_plan(nodes=4)], work, requests_per_s=[3.4, 1.5], preferred_utilisation=0.85
    )
    demand = np.array([[4.0] * 12 + [1.0] * 12, [1.5] * 24]) * 3600.0
    for idle, replicas, served in (({1: np.full(1, 0.8)}, [4, 0], 3 * 0.8), ({}, [2, 2], 2.0)):
        held = [deployment(0, (0,), waiting_speed=idle), deployment(0, (1,), load_h=0.0)]
        placed = with_placement(plan, held)
        result = evaluate_window(placed, window_of(plan, demand, np.full((1, 24), 4.0)))
        assert result.replicas[:, 0].tolist() == [4, 0]
        assert result.replicas[:, 20].tolist() == replicas
        assert result.served_requests[0, 0] == pytest.approx(demand[0])
        assert result.served_requests[0, 1] == pytest.approx([0.0] * 12 + [served * 3600] * 12)


def test_work_finds_the_cluster_with_room_for_its_model() -> None:
    """Both prefer the first cluster, whose one node holds one of them: the other is served on the second."""
    clusters = [cluster_plan("a", 1), cluster_plan("b", 1)]
    work = [workload_plan("chat", [0, 1], model="a"), workload_plan("code", [0, 1], model="b")]
    plan = make_plan(clusters, work, requests_per_s=[0.3, 0.3])
    plan = with_placement(plan, [deployment(c, (w,)) for c in (0, 1) for w in (0, 1)])
    result = evaluate_window(plan, window_of(plan, np.full((2, 2), 1080.0), np.ones((2, 2))))
    assert result.shed_requests.sum() == 0.0


def test_requests_for_fine_tunes_that_are_held_nowhere_are_shed() -> None:
    """Four nodes hold all fine-tunes: three hold three in four, and on five the fifth is of use too."""
    for nodes, load, served in ((3, 2.0, 1.5), (4, 3.9, 3.9), (5, 4.9, 4.9)):
        plan = make_plan(
            [cluster_plan(nodes=nodes)], [workload_plan("tenants")], requests_per_s=[load]
        )
        plan = with_placement(plan, [deployment(0, (0,), least_replicas=4)])
        window = window_of(plan, np.full((1, 1), load * 3600), np.full((1, 1), float(nodes)))
        result = evaluate_window(plan, window)
        assert result.replicas.tolist() == [[nodes]]
        assert result.served_requests.sum() == pytest.approx(served * 3600)
        assert result.shed_requests.sum() == pytest.approx((load - served) * 3600)
        assert result.demand_requests.sum() == load * 3600


def test_a_node_out_for_part_of_an_hour_keeps_its_model() -> None:
    plan = two_models(2, [deployment(0, (0,)), deployment(0, (1,))])
    result = evaluate_window(
        plan, window_of(plan, np.full((2, 3), 1800.0), np.array([[2.0, 1.5, 2.0]]))
    )
    assert result.replicas.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert result.loading_nodes.sum() == 0.0


def test_one_model_alone_is_counted_in_whole_replicas_of_its_highest_hour() -> None:
    plan = with_placement(
        make_plan([cluster_plan(nodes=1000)], requests_per_s=[300.0]), [deployment(0, (0,))]
    )
    assert plan.placement is not None
    assert plan.placement.placed == (False,)
    demand = np.full((1, plan.hours), 300.2 * 3600)
    result = evaluate_window(plan, window_of(plan, demand, np.full((1, plan.hours), 1000.0)))
    held = residence(plan, plan.placement, [result])
    assert held.replicas.tolist() == [[301]]
    assert held.weight_load_node_h.tolist() == [[0]]
