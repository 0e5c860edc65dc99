"""A window's hours: against an hour-by-hour walk, and by what must hold."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.engine.hourly import SpeedLoss, WindowInput
from planner.engine.scan import defer
from planner.engine.window import beyond_share, evaluate_window, missed_under
from planner.finance.money_plan import RentPlan
from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD
from planner.plan.plan import Plan, SitePlan
from tests.engine.naive import Naive, Queue, assert_same
from tests.engine.plans import (
    cluster_plan,
    hourly_terms,
    make_plan,
    node_power,
    site_plan,
    workload_plan,
)

Floats = NDArray[np.float64]


def window_of(plan: Plan, demand: Floats, nodes: Floats, **changes: object) -> WindowInput:
    plain = WindowInput(
        first_hour=0,
        demand_requests=demand,
        nodes=nodes,
        speed={},
        incidents={},
        waiting_requests=tuple(np.zeros(workload.deadline_h) for workload in plan.workloads),
        cap_kw=None if plan.site.cap_kw is None else plan.site.cap_kw[: demand.shape[1]],
    )
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]


class Recipe(NamedTuple):
    """What a random site is made from."""

    seed: int
    hours: int
    clusters: int
    deadlines: tuple[int, ...]
    level: float
    tightest: float
    preferred_utilisation: float


def sites(*, capped: bool) -> st.SearchStrategy[Recipe]:
    """Up to three clusters and four workloads with demand around what the site can carry."""
    return st.builds(
        Recipe,
        seed=st.integers(0, 2**32 - 1),
        hours=st.integers(1, 30),
        clusters=st.integers(1, 3),
        deadlines=st.lists(st.sampled_from((0, 0, 1, 3, 12)), min_size=1, max_size=4).map(tuple),
        level=st.sampled_from((0.3, 0.8, 1.5)),
        tightest=st.sampled_from((0.15, 0.4, 0.7)) if capped else st.just(math.inf),
        preferred_utilisation=st.sampled_from((0.0, 0.5, 0.8, 1.0)),
    )


either = st.booleans().flatmap(lambda capped: sites(capped=capped))


def built(recipe: Recipe) -> tuple[Plan, WindowInput]:
    random = np.random.default_rng(recipe.seed)
    hours = recipe.hours
    clusters = [
        cluster_plan(
            f"c{index}",
            nodes=int(random.integers(1, 20)),
            node_power=node_power(
                float(random.uniform(1, 4)), float(random.uniform(5, 12)), points=1025
            ),
        )
        for index in range(recipe.clusters)
    ]
    workloads = []
    for index, deadline in enumerate(recipe.deadlines):
        able = random.permutation(len(clusters))[: random.integers(1, len(clusters) + 1)]
        priority = 2 if deadline else int(random.integers(0, 2))
        workloads.append(
            workload_plan(f"w{index}", able.tolist(), deadline_h=deadline, priority=priority)
        )
    shape = (len(clusters), len(workloads))
    rates = random.uniform(500, 4000, (*shape, 1))
    nodes = np.array([[cluster.nodes] * hours for cluster in clusters], dtype=float)
    nodes *= np.where(random.random(nodes.shape) < 0.1, 0.0, random.uniform(0.5, 1.0, nodes.shape))
    share = (
        recipe.level
        * float((nodes.mean(axis=1) * rates[:, :, 0].mean(axis=1)).sum())
        / len(workloads)
    )
    demand = random.exponential(share, (len(workloads), hours)) * random.integers(
        0, 2, (len(workloads), hours)
    )
    site = site_plan(744, len(clusters))
    if recipe.tightest < math.inf:
        full = 1.3 * sum(cluster.nodes * cluster.node_power.full_kw for cluster in clusters)
        site = dataclasses.replace(site, cap_kw=full * random.uniform(recipe.tightest, 1.0, 744))
    plan = make_plan(
        clusters,
        workloads,
        requests_per_node_h=rates,
        preferred_utilisation=recipe.preferred_utilisation,
        site=site,
    )
    speed = {
        pair: random.uniform(0.5, 1.2, hours)
        for pair in np.ndindex(*shape)
        if random.random() < 0.3
    }
    lit = None
    if random.random() < 0.5:
        lit = np.where(random.random(hours) < 0.3, random.choice([0.0, 0.25, 0.9], hours), 1.0)
        nodes *= lit
    return plan, window_of(plan, demand, nodes, speed=speed, lit_fraction=lit)


def check(recipe: Recipe) -> None:
    plan, window = built(recipe)
    naive = Naive(plan)
    assert_same(naive, naive.run(window), evaluate_window(plan, window), scale(plan, window))


def scale(plan: Plan, window: WindowInput) -> float:
    """Requests an hour that the site could carry."""
    return float((window.nodes.max(axis=1) * plan.requests_per_node_h.max(axis=(1, 2))).sum()) + 1.0


@settings(max_examples=8)
@given(either)
def test_every_hour_is_served_as_a_linear_program_would(recipe: Recipe) -> None:
    check(recipe._replace(hours=min(recipe.hours, 8)))


def test_a_cluster_that_is_full_but_for_rounding_makes_way() -> None:
    check(Recipe(510174, 18, 4, (0, 1), level=2, tightest=math.inf, preferred_utilisation=1.0))


@pytest.mark.prove
@settings(max_examples=2000, deadline=None)
@given(either)
def test_thousands_of_sites_are_served_as_a_linear_program_would(recipe: Recipe) -> None:
    check(recipe)


@settings(max_examples=30)
@given(either)
def test_nothing_is_made_or_lost(recipe: Recipe) -> None:
    plan, window = built(recipe)
    result = evaluate_window(plan, window)
    waiting = np.array([row.sum() for row in result.waiting_requests])
    came = window.demand_requests.sum(axis=1)
    left = result.served_requests.sum(axis=(0, 2)) + result.shed_requests.sum(axis=1) + waiting
    np.testing.assert_allclose(left, came, rtol=1e-9, atol=1e-6)
    for array in (
        result.served_requests,
        result.shed_requests,
        result.busy_nodes,
        result.throttled_nodes,
    ):
        assert array.min() >= -1e-6
    assert np.all(result.busy_nodes + result.throttled_nodes <= window.nodes + 1e-9)


def test_work_spills_to_the_next_cluster_before_the_first_is_full() -> None:
    plan = make_plan([cluster_plan("a"), cluster_plan("b")], preferred_utilisation=0.85)
    demand = np.array([[8.0, 10.0, 17.0, 19.0]]) * 3600
    result = evaluate_window(plan, window_of(plan, demand, np.full((2, 4), 10.0)))
    assert result.busy_nodes == pytest.approx(np.array([[8, 8.5, 8.5, 9.5], [0, 1.5, 8.5, 9.5]]))


def test_clusters_that_are_alike_work_as_one_of_all_their_nodes() -> None:
    """Ten nodes, split in three and seven, before ten of another kind: at 80%, full to the preferred, and beyond."""
    demand = np.array([[8.0, 10.0, 19.0, 30.0]]) * 3600
    work = workload_plan(cluster_tiers=((0, 1), (2,)))
    split = make_plan(
        [cluster_plan("a"), cluster_plan("b"), cluster_plan("c")],
        [work],
        preferred_utilisation=0.85,
    )
    result = evaluate_window(
        split, window_of(split, demand, np.array([[3.0], [7.0], [10.0]]) + np.zeros(4))
    )
    assert result.busy_nodes[0] / 3.0 == pytest.approx(result.busy_nodes[1] / 7.0)
    single = make_plan([cluster_plan("a"), cluster_plan("c")], preferred_utilisation=0.85)
    expected = evaluate_window(single, window_of(single, demand, np.full((2, 4), 10.0)))
    assert result.busy_nodes[:2].sum(axis=0) == pytest.approx(expected.busy_nodes[0])
    assert result.busy_nodes[2] == pytest.approx(expected.busy_nodes[1])
    assert result.shed_requests == pytest.approx(expected.shed_requests)


def test_in_proportion_every_cluster_has_the_same_utilisation() -> None:
    plan = make_plan([cluster_plan("a", 10), cluster_plan("b", 30)], preferred_utilisation=0.0)
    result = evaluate_window(
        plan, window_of(plan, np.array([[8.0 * 3600]]), np.array([[10.0], [30.0]]))
    )
    assert result.busy_nodes[:, 0] == pytest.approx([2, 6])


def test_slow_software_takes_nodes_and_says_how_many() -> None:
    plan = make_plan()
    slow = SpeedLoss(hours=np.array([0, 2]), lost_fraction=np.array([0.2, 0.5]))
    speed = np.array([0.8, 1.0, 0.5])
    window = window_of(
        plan,
        np.full((1, 3), 3600.0),
        np.full((1, 3), 10.0),
        speed={(0, 0): speed},
        incidents={(0, 0): slow},
    )
    result = evaluate_window(plan, window)
    assert result.busy_nodes[0] == pytest.approx([1.25, 1.0, 2.0])
    assert result.drag_nodes[0] == pytest.approx([0.25, 0.0, 1.0])


def capped_site(cap_kw: float, clusters: int = 1, **changes: object) -> SitePlan:
    """A site without overhead, so that its cap is on IT power."""
    return site_plan(
        744, clusters, overhead_ratio=np.zeros(744), cap_kw=np.full(744, cap_kw), **changes
    )


def test_under_a_loose_cap_clocks_fall_and_under_a_tight_one_nodes_are_parked() -> None:
    """A node of 2 to 10 kW keeps ((kW - 2) / 8)^0.4 of its work: most per watt at a sixth, 3.33 kW for 0.488.

    Ten nodes at 6 kW each keep 7.58. On 20 kW all ten would idle; six at 3.33 kW do 2.93 nodes' work.
    """
    for cap_kw, kept in ((60.0, 10 * 0.5**0.4), (20.0, 20 / (2 + 8 / 6) * (1 / 6) ** 0.4)):
        plan = make_plan(site=capped_site(cap_kw))
        result = evaluate_window(
            plan, window_of(plan, np.full((1, 2), 36_000.0), np.full((1, 2), 10.0))
        )
        assert result.busy_nodes[0] == pytest.approx([kept] * 2, rel=0.005)
        assert result.it_kw[0] == pytest.approx([cap_kw] * 2, rel=1e-6)
        assert result.throttled_nodes[0] == pytest.approx(10 - result.busy_nodes[0])


def test_power_that_is_left_keeps_nodes_on_for_headroom() -> None:
    """Ten nodes at 0.3 load draw 58.8 kW; on 50 kW all is served, at the utilisation that 50 kW allow."""
    late = np.zeros((1, 1, LOAD_CELLS + 1))
    late[:, :, int(0.9 * LOAD_CELLS / MOST_LOAD) :] = 1.0  # late from 90% utilisation on
    plan = make_plan(site=capped_site(50.0), late_tables=late)
    result = evaluate_window(
        plan, window_of(plan, np.full((1, 1), 3 * 3600.0), np.full((1, 1), 10.0))
    )
    assert result.served_requests.sum() == pytest.approx(3 * 3600.0)
    assert result.it_kw[0, 0] == pytest.approx(50.0, rel=1e-3)
    assert result.late_requests.sum() == 0.0


def test_at_the_cap_work_moves_to_the_pool_that_does_it_for_less() -> None:
    """Both clusters serve alike, but the second draws twice the power: at the cap it is left idle first."""
    clusters = [cluster_plan("a"), cluster_plan("b", node_power=node_power(4.0, 20.0))]
    plan = make_plan(clusters, [workload_plan("x", [1, 0])], site=capped_site(100.0, 2))
    result = evaluate_window(
        plan, window_of(plan, np.full((1, 1), 8 * 3600.0), np.full((2, 1), 10.0))
    )
    assert result.served_requests.sum() == pytest.approx(8 * 3600.0)
    assert result.busy_nodes[0, 0] > 5.0


def test_a_throttled_cluster_makes_no_other_late() -> None:
    clusters = [cluster_plan("a"), cluster_plan("b")]
    work = [workload_plan("x", [0]), workload_plan("y", [1])]
    steep = np.zeros((2, 2, LOAD_CELLS + 1))
    steep[:, :, int(0.9 * LOAD_CELLS / MOST_LOAD) :] = 1.0  # late from 90% utilisation on
    plan = make_plan(clusters, work, site=capped_site(140.0, 2), late_tables=steep)
    window = window_of(plan, np.array([[8 * 3600.0], [5 * 3600.0]]), np.full((2, 1), 10.0))
    result = evaluate_window(plan, window)
    assert result.busy_nodes[:, 0] == pytest.approx([8.0, 5.0])
    assert result.late_requests.sum() == 0.0  # both have the same headroom left


def _crowded(most_load: float, **changes: Any) -> Plan:
    """A cluster of ten nodes; of a load ρ the share ρ / 20 is late, and from 1 on (ρ − 1) / 4 refused."""
    load = np.linspace(0.0, MOST_LOAD, LOAD_CELLS + 1)
    return make_plan(
        late_tables=(load / 20.0)[np.newaxis, np.newaxis],
        refused_tables=(np.maximum(load - 1.0, 0.0) / 4.0)[np.newaxis, np.newaxis],
        most_loads=np.full((1, 1), most_load),
        **changes,
    )


def test_tables_are_read_between_their_cells() -> None:
    plan = _crowded(1.0)
    load = 0.7123456
    result = evaluate_window(
        plan, window_of(plan, np.full((1, 1), load * 36_000.0), np.full((1, 1), 10.0))
    )
    assert result.late_requests[0, 0] == pytest.approx(load * 36_000.0 * load / 20.0, rel=1e-12)
    assert result.shed_requests.sum() == 0.0


@pytest.mark.parametrize(("most_load", "offered"), [(1.0, 1.0), (1.2, 1.2), (2.0, 1.3)])
def test_an_overloaded_hour_serves_more_than_the_objective_allows_and_sheds_the_rest(
    most_load: float, offered: float
) -> None:
    """1.3 of capacity comes. Of what is offered, at most the stated load, the tables say what is late and refused."""
    plan = _crowded(most_load)
    came = 1.3 * 36_000.0
    result = evaluate_window(plan, window_of(plan, np.full((1, 1), came), np.full((1, 1), 10.0)))
    refused = offered * 36_000.0 * (offered - 1.0) / 4.0
    assert result.served_requests.sum() == pytest.approx(offered * 36_000.0 - refused)
    assert result.late_requests.sum() == pytest.approx(offered * 36_000.0 * offered / 20.0)
    assert result.shed_requests.sum() == pytest.approx(came - result.served_requests.sum())
    assert result.busy_nodes[0, 0] == pytest.approx(10.0)  # full, and no more


def test_overload_under_a_cap_takes_no_more_power() -> None:
    came = np.full((1, 1), 1.3 * 36_000.0)
    plain, crowded = (_crowded(most_load, site=capped_site(50.0)) for most_load in (1.0, 2.0))
    less, more = (
        evaluate_window(plan, window_of(plan, came, np.full((1, 1), 10.0)))
        for plan in (plain, crowded)
    )
    assert more.busy_nodes[0, 0] == pytest.approx(less.busy_nodes[0, 0])
    assert more.it_kw.sum() == pytest.approx(less.it_kw.sum()) == pytest.approx(50.0, rel=1e-3)
    assert (
        less.served_requests.sum() < more.served_requests.sum() < 2.0 * less.served_requests.sum()
    )


def test_what_arrives_in_the_dark_is_not_offered_later() -> None:
    plan = _crowded(2.0)
    window = window_of(
        plan, np.full((1, 1), 36_000.0), np.full((1, 1), 5.0), lit_fraction=np.array([0.5])
    )
    result = evaluate_window(plan, window)
    assert result.shed_requests.sum() == pytest.approx(18_000.0)


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=40),
    st.lists(st.integers(0, 9), min_size=8, max_size=8),
)
def test_deferral_is_a_first_come_first_served_queue(
    deadline: int, hours: list[tuple[int, int]], old: list[int]
) -> None:
    queue = Queue(deadline)
    queue.jobs.extend([hour - deadline, float(old[hour])] for hour in range(deadline))
    served = []
    shed = []
    for hour, (arrivals, room) in enumerate(hours):
        queue.jobs.append([hour, float(arrivals)])
        served.append(min(room, queue.waiting()))
        shed.append(queue.take(hour, served[-1]))
    arrays = np.array(hours, dtype=float)
    found = defer(arrays[:, 0], arrays[:, 1], np.array(old[:deadline], dtype=float))
    np.testing.assert_allclose(found[0], served, atol=1e-9)
    np.testing.assert_allclose(found[1], shed, atol=1e-9)
    np.testing.assert_allclose(found[2], [requests for _, requests in queue.jobs], atol=1e-9)


def levelled(plan: Plan, window: WindowInput) -> Floats:
    """Shares served of what cannot wait, by priority and the lowest first, shape (workloads, hours)."""
    came = window.demand_requests
    served = evaluate_window(plan, window).served_requests.sum(axis=0)
    shares = np.divide(served, came, out=np.ones_like(served), where=came > 0.0)
    priorities = np.array([load.priority for load in plan.workloads])
    return np.concatenate([np.sort(shares[priorities == rank], axis=0) for rank in range(2)])


@settings(max_examples=40)
@given(either, st.floats(1.0, 3.0), st.booleans())
def test_more_nodes_or_more_power_never_worsen_the_levelled_shares(
    recipe: Recipe, more: float, power: bool
) -> None:
    """A share may fall only where one before it rises: of a higher priority, or lower of its own."""
    plan, window = built(recipe._replace(deadlines=(0, 0, 0, *recipe.deadlines[:1])))
    before = levelled(plan, window)
    if power and plan.site.cap_kw is not None:
        site = dataclasses.replace(plan.site, cap_kw=plan.site.cap_kw * more)
        plan = dataclasses.replace(plan, site=site)
    else:
        window = dataclasses.replace(window, nodes=window.nodes * more)
    for change in (levelled(plan, window) - before).T:
        assert change[np.argmax(np.abs(change) > 1e-6)] >= -1e-6


@pytest.mark.parametrize(
    ("other_nodes", "priority", "shares"),
    [
        (0.0, 0, (0.4, 0.4)),
        (1.0, 0, (0.44, 0.44)),
        (3.0, 0, (0.5, 0.6)),
        (0.0, 1, (0.25, 1.0)),
    ],
)
def test_workloads_of_one_priority_that_lack_room_have_levelled_shares(
    other_nodes: float, priority: int, shares: tuple[float, float]
) -> None:
    """The work of 20 nodes and of 5, for 3 + 7 nodes and others that do the second alone; whoever does more a node."""
    clusters = [cluster_plan("a"), cluster_plan("b"), cluster_plan("c")]
    work = [workload_plan("x", [0, 1], priority=priority), workload_plan("y", [0, 1, 2])]
    nodes = np.array([[3.0], [7.0], [other_nodes]])
    for rates in ((3600.0, 900.0), (900.0, 3600.0)):
        plan = make_plan(clusters, work, requests_per_node_h=np.array([rates] * 3)[:, :, None])
        demand = np.array(rates)[:, None] * [[20.0], [5.0]]
        result = evaluate_window(plan, window_of(plan, demand, nodes))
        served = result.served_requests.sum(axis=0) / demand
        assert served[:, 0] == pytest.approx(shares)


def test_of_equal_plans_work_stands_where_least_else_could() -> None:
    """Beside work that lacks room elsewhere; the two clusters in either order."""
    for versatile, plain in ((0, 1), (1, 0)):
        work = [
            workload_plan("x", [versatile, plain]),
            workload_plan("y", [versatile, 2]),
            workload_plan("z", [2]),
        ]
        plan = make_plan([cluster_plan(name) for name in "abc"], work)
        demand = np.array([[5.0], [0.0], [12.0]]) * 3600.0
        result = evaluate_window(plan, window_of(plan, demand, np.full((3, 1), 10.0)))
        assert result.busy_nodes[[versatile, plain, 2], 0] == pytest.approx([0.0, 5.0, 10.0])


def test_where_all_is_served_the_routing_policy_decides_and_not_the_power() -> None:
    """Also in an hour in which a cluster is crowded by work that could only go to machines by the hour."""
    rent = RentPlan(usd_per_accelerator_h=np.ones(1), hourly=hourly_terms(), is_hosted=True)
    clusters = [
        cluster_plan("a"),
        cluster_plan("b"),
        cluster_plan("c", node_power=node_power(1.0, 2.0)),
        cluster_plan("d", rent=rent),
    ]
    work = [workload_plan("x", [0, 3], rented_tiers=1), workload_plan("y", [1, 2, 0])]
    plan = make_plan(clusters, work, preferred_utilisation=0.85)
    demand = np.array([[9.5, 2.0], [4.0, 2.0]]) * 3600.0
    result = evaluate_window(plan, window_of(plan, demand, np.full((4, 2), 10.0)))
    assert result.busy_nodes[:, 0] == pytest.approx([9.5, 4.0, 0.0, 0.0])
    assert result.busy_nodes[:, 1] == pytest.approx([2.0, 2.0, 0.0, 0.0])


def test_work_too_long_for_one_cluster_is_made_room_for_on_another() -> None:
    """In February the first workload has grown too long for the second cluster."""
    work = [workload_plan(name, [0, 1], months=2) for name in ("long", "short")]
    rates = np.full((2, 2, 2), 3600.0)
    rates[1, 0, 1] = 0.0
    plan = make_plan(
        [cluster_plan("a"), cluster_plan("b")],
        work,
        months=2,
        requests_per_node_h=rates,
        preferred_utilisation=0.85,
        by_priority=(1, 0),
    )
    first = int(plan.month_edges_h[1])
    demand = np.array([[9 * 3600.0], [9 * 3600.0]])
    result = evaluate_window(plan, window_of(plan, demand, np.full((2, 1), 10.0), first_hour=first))
    assert result.shed_requests.sum() == pytest.approx(0.0, abs=1e-6)
    assert result.served_requests[0, 0, 0] == pytest.approx(9 * 3600.0)


def test_work_past_its_objective_has_its_share_of_what_its_clusters_serve() -> None:
    """A quarter of what two nodes serve, 7,200 an hour; the other workload is asked for no share."""
    work = [workload_plan("late", overdue_share=np.array([0.25])), workload_plan("chat")]
    plan = make_plan([cluster_plan(nodes=2)], work)
    demand = np.array([[2000.0, 1500.0], [9000.0, 9000.0]])
    beyond = beyond_share(plan, window_of(plan, demand, np.full((1, 2), 2.0)))
    assert beyond is not None
    assert beyond.tolist() == [[200.0, 0.0], [0.0, 0.0]]


def test_what_is_missed_without_models_that_share_nodes_is_what_the_window_misses() -> None:
    plan = make_plan([cluster_plan(nodes=2)])
    assert plan.placement is None
    window = window_of(plan, np.array([[7000.0, 9000.0]]), np.full((1, 2), 2.0))
    missed = missed_under(plan, window, [lambda each: each])
    result = evaluate_window(plan, window)
    assert missed.shed_requests[0].tolist() == result.shed_requests.tolist() == [[0.0, 1800.0]]
    assert result.replicas.shape == result.loading_nodes.shape == (0, 2)
