"""A window's hours: against an hour-by-hour walk, and by what must hold."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.engine.allocation import Demand, _speeds
from planner.engine.dispatch import Room, routes_of
from planner.engine.hourly import SpeedLoss, WindowInput, WindowResult
from planner.engine.scan import defer
from planner.engine.window import beyond_share, evaluate_window, missed_under
from planner.plan.parts import SitePlan
from planner.plan.plan import LOAD_CELLS, MOST_LOAD, Plan, facility_kw
from tests.engine.naive import Naive, assert_same
from tests.engine.plans import cluster_plan, make_plan, node_power, site_plan, workload_plan

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


@settings(max_examples=20)
@given(either, st.integers(1, 29))
def test_two_windows_are_one(recipe: Recipe, cut: int) -> None:
    plan, window = built(recipe)
    hours = window.nodes.shape[1]
    assume(cut < hours)
    whole = evaluate_window(plan, window)

    def part(first: int, last: int, waiting: tuple[Floats, ...]) -> WindowResult:
        piece = dataclasses.replace(
            window,
            first_hour=first,
            demand_requests=window.demand_requests[:, first:last],
            nodes=window.nodes[:, first:last],
            speed={pair: series[first:last] for pair, series in window.speed.items()},
            lit_fraction=None if window.lit_fraction is None else window.lit_fraction[first:last],
            cap_kw=None if window.cap_kw is None else window.cap_kw[first:last],
            waiting_requests=waiting,
        )
        return evaluate_window(plan, piece)

    early = part(0, cut, window.waiting_requests)
    late = part(cut, hours, early.waiting_requests)
    for name in (
        "served_requests",
        "shed_requests",
        "busy_nodes",
        "throttled_nodes",
        "it_kw",
        "facility_kw",
    ):
        joined = np.concatenate([getattr(early, name), getattr(late, name)], axis=-1)
        tolerance = (
            1e-3 if name.endswith("kw") else 1e-6 * scale(plan, window)
        )  # power is read from a table
        np.testing.assert_allclose(
            joined, getattr(whole, name), atol=tolerance, rtol=1e-6, err_msg=name
        )


@settings(max_examples=30)
@given(sites(capped=True))
def test_power_stays_under_the_cap(recipe: Recipe) -> None:
    plan, window = built(recipe)
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


def test_interactive_work_comes_before_standard_and_deferrable() -> None:
    work = [
        workload_plan("batch", priority=2, deadline_h=4),
        workload_plan("standard", priority=1),
        workload_plan("chat", priority=0),
    ]
    plan = make_plan([cluster_plan(nodes=2)], work)
    demand = np.array([[3600.0] * 5, [5400.0] * 5, [5400.0] * 5])  # in nodes: 1, 1.5, 1.5 of 2
    result = evaluate_window(plan, window_of(plan, demand, np.full((1, 5), 2.0)))
    served = result.served_requests[0] / 3600
    assert served[2] == pytest.approx([1.5] * 5)
    assert served[1] == pytest.approx([0.5] * 5)
    assert served[0] == pytest.approx([0.0] * 5)
    assert result.shed_requests[0] == pytest.approx(
        [0, 0, 0, 0, 3600]
    )  # the first hour's work, four hours late
    assert result.waiting_requests[0] == pytest.approx([3600] * 4)


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


def test_capped_hours_push_deferrable_work_on_hour_by_hour() -> None:
    """A cap that binds for a day: the backlog is worked off hour by hour at what power allows."""
    work = [workload_plan("batch", priority=2, deadline_h=48)]
    cap = np.full(744, 100.0)
    cap[:24] = 40.0
    site = site_plan(744, 1, overhead_ratio=np.zeros(744), cap_kw=cap)
    plan = make_plan([cluster_plan()], work, site=site)
    demand = np.zeros((1, 30))
    demand[0, 0] = 20 * 3600.0
    result = evaluate_window(plan, window_of(plan, demand, np.full((1, 30), 10.0)))
    each = 10 * (2 / 8) ** 0.4  # 4 kW a node
    assert result.busy_nodes[0, :3] == pytest.approx([each] * 3, rel=0.01)
    assert result.facility_kw[:24].max() <= 40.0 * (1 + 1e-9)
    assert result.served_requests.sum() == pytest.approx(20 * 3600.0)


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=40),
    st.lists(st.integers(0, 9), min_size=8, max_size=8),
)
def test_deferral_is_a_first_come_first_served_queue(
    deadline: int, hours: list[tuple[int, int]], old: list[int]
) -> None:
    queue = deque([hour - deadline, float(old[hour])] for hour in range(deadline))
    served = []
    shed = []
    for hour, (arrivals, room) in enumerate(hours):
        queue.append([hour, float(arrivals)])
        left = float(room)
        for job in queue:
            part = min(left, job[1])
            job[1] -= part
            left -= part
        served.append(room - left)
        shed.append(0.0)
        while queue and hour - queue[0][0] >= deadline:
            shed[-1] += queue.popleft()[1]
    arrays = np.array(hours, dtype=float)
    found = defer(arrays[:, 0], arrays[:, 1], np.array(old[:deadline], dtype=float))
    np.testing.assert_allclose(found[0], served, atol=1e-9)
    np.testing.assert_allclose(found[1], shed, atol=1e-9)
    np.testing.assert_allclose(found[2], [requests for _, requests in queue][-deadline:], atol=1e-9)


def served_tokens(plan: Plan, window: WindowInput) -> Floats:
    """Tokens served by the end, by priority."""
    result = evaluate_window(plan, window)
    tokens = [load.tokens_per_request[0] for load in plan.workloads] * result.served_requests.sum(
        axis=(0, 2)
    )
    totals = np.zeros(3)
    np.add.at(totals, [load.priority for load in plan.workloads], tokens)
    return totals


@settings(max_examples=40)
@given(either, st.floats(1.0, 3.0), st.booleans())
def test_more_nodes_or_more_power_never_serve_less(
    recipe: Recipe, more: float, power: bool
) -> None:
    """A priority may lose only to one before it; with a single workload of each kind."""
    plan, window = built(recipe._replace(deadlines=(0, 0, *[d for d in recipe.deadlines if d][:1])))
    less = served_tokens(plan, window)
    if power and plan.site.cap_kw is not None:
        plan = dataclasses.replace(
            plan, site=dataclasses.replace(plan.site, cap_kw=plan.site.cap_kw * more)
        )
    else:
        window = dataclasses.replace(window, nodes=window.nodes * more)
    after = served_tokens(plan, window)
    for priority in range(3):
        if after[priority] > less[priority] * (1 + 1e-6):
            return
        assert after[priority] >= less[priority] * (1 - 1e-6) - 1e-3


@settings(max_examples=30)
@given(either)
def test_neither_names_nor_places_in_the_file_matter(recipe: Recipe) -> None:
    plan, window = built(recipe)
    result = evaluate_window(plan, window)
    clusters = np.arange(len(plan.clusters))[::-1]
    workloads = np.arange(len(plan.workloads))[::-1]
    place = {int(old): new for new, old in enumerate(clusters)}
    turned = dataclasses.replace(
        plan,
        clusters=tuple(plan.clusters[c] for c in clusters),
        workloads=tuple(
            dataclasses.replace(
                plan.workloads[w],
                cluster_tiers=tuple((place[c],) for c in plan.workloads[w].cluster_order),
            )
            for w in workloads
        ),
        requests_per_node_h=plan.requests_per_node_h[np.ix_(clusters, workloads)],
        late_tables=plan.late_tables[np.ix_(clusters, workloads)],
        refused_tables=plan.refused_tables[np.ix_(clusters, workloads)],
        most_loads=plan.most_loads[np.ix_(clusters, workloads)],
        by_priority=tuple(len(workloads) - 1 - w for w in plan.by_priority),
    )
    other = dataclasses.replace(
        window,
        demand_requests=window.demand_requests[workloads],
        nodes=window.nodes[clusters],
        waiting_requests=window.waiting_requests[::-1],
        speed={
            (place[c], len(workloads) - 1 - w): series for (c, w), series in window.speed.items()
        },
    )
    found = evaluate_window(turned, other)
    tolerance = 1e-6 * scale(plan, window)
    np.testing.assert_allclose(found.shed_requests[workloads], result.shed_requests, atol=tolerance)
    np.testing.assert_allclose(
        found.served_requests[np.ix_(clusters, workloads)],
        result.served_requests,
        atol=tolerance,
        rtol=1e-6,
    )


def test_movable_work_makes_way_for_work_that_can_go_nowhere_else() -> None:
    """Whichever comes first in the file: nothing is shed or crowded while another cluster stands free."""
    for names in (("big", "small"), ("z-big", "a-small")):
        clusters = [cluster_plan("a"), cluster_plan("b", nodes=30)]
        work = [workload_plan(names[0], [0]), workload_plan(names[1], [0, 1])]
        for by_priority in ((0, 1), (1, 0)):
            plan = make_plan(clusters, work, by_priority=by_priority, preferred_utilisation=0.85)
            window = window_of(
                plan, np.array([[5 * 3600.0], [9 * 3600.0]]), np.array([[10.0], [30.0]])
            )
            result = evaluate_window(plan, window)
            assert result.shed_requests.sum() == 0.0
            assert result.busy_nodes[:, 0].sum() == pytest.approx(14.0)
            assert result.busy_nodes[0, 0] <= 8.5 * (1 + 1e-9)


def test_alike_workloads_share_what_there_is_by_their_demand() -> None:
    plan = make_plan([cluster_plan(nodes=6)], [workload_plan("x"), workload_plan("y")])
    result = evaluate_window(
        plan, window_of(plan, np.array([[8 * 3600.0], [4 * 3600.0]]), np.full((1, 1), 6.0))
    )
    assert result.served_requests[0, :, 0] / 3600 == pytest.approx([4.0, 2.0])


def test_alike_workloads_share_beside_another() -> None:
    work = [workload_plan("x"), workload_plan("y"), workload_plan("later", priority=1)]
    plan = make_plan([cluster_plan(nodes=6)], work)
    demand = np.array([[8 * 3600.0], [4 * 3600.0], [3600.0]])
    result = evaluate_window(plan, window_of(plan, demand, np.full((1, 1), 6.0)))
    assert result.served_requests[0, :, 0] / 3600 == pytest.approx([4.0, 2.0, 0.0])


def test_movable_work_makes_way_for_work_that_waits_on_two_clusters() -> None:
    work = [workload_plan("chat", [0, 1]), workload_plan("batch", [0], priority=2, deadline_h=1)]
    plan = make_plan([cluster_plan("a"), cluster_plan("b")], work)
    window = window_of(plan, np.array([[5 * 3600.0], [8 * 3600.0]]), np.full((2, 1), 10.0))
    result = evaluate_window(plan, window)
    assert result.served_requests.sum(axis=(0, 2)) / 3600 == pytest.approx([5.0, 8.0])


def test_movable_work_makes_way_also_where_other_work_is_not_asked_for() -> None:
    """Code may go where chat goes, and in this hour there is none: nothing of it is left undone."""
    work = [
        workload_plan("chat", [0, 1]),
        workload_plan("code", [0, 1]),
        workload_plan("batch", [0], priority=2, deadline_h=1),
    ]
    plan = make_plan([cluster_plan("a"), cluster_plan("b")], work)
    window = window_of(plan, np.array([[5 * 3600.0], [0.0], [8 * 3600.0]]), np.full((2, 1), 10.0))
    result = evaluate_window(plan, window)
    assert result.served_requests.sum(axis=(0, 2)) / 3600 == pytest.approx([5.0, 0.0, 8.0])


def outgrown_on_the_second(**power: Any) -> Plan:
    """Two workloads on two clusters; in February the first has grown too long for the second cluster."""
    clusters = [cluster_plan("a", nodes=10), cluster_plan("b", nodes=10, **power)]
    work = [workload_plan(name, [0, 1], months=2) for name in ("long", "short")]
    rates = np.full((2, 2, 2), 3600.0)
    rates[1, 0, 1] = 0.0
    return make_plan(
        clusters, work, months=2, requests_per_node_h=rates, preferred_utilisation=0.85
    )


def test_where_all_is_served_the_routing_policy_decides_and_not_the_power() -> None:
    """Beside hours that are all but full; the second cluster would draw a fifth."""
    plan = outgrown_on_the_second(node_power=node_power(1.0, 2.0))
    demand = np.array([[2.0, 18.0, 18.0], [2.0, 1.0, 1.0]]) * 3600.0
    result = evaluate_window(plan, window_of(plan, demand, np.full((2, 3), 10.0)))
    assert result.shed_requests.sum() == 0.0
    assert result.busy_nodes[:, 0] == pytest.approx([4.0, 0.0])


def test_work_too_long_for_one_cluster_is_made_room_for_on_another() -> None:
    plan = dataclasses.replace(outgrown_on_the_second(), by_priority=(1, 0))
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


def test_hours_are_crowded_where_one_cluster_is_beyond_what_is_preferred_beside_one_that_is_not() -> (
    None
):
    room = Room(usable=np.full((2, 5), 10.0), preferred_utilisation=0.8, used=np.zeros((2, 5)))
    room.used[:] = [[9.0, 9.0, 8.0, 7.0, 0.0], [9.0, 7.0, 0.0, 9.0, 0.0]]
    assert room.crowded(np.array([0, 1])).tolist() == [False, True, False, True, False]


def test_each_hour_is_planned_at_its_own_speeds() -> None:
    """Also where a speed comes back after another."""
    plan = make_plan(
        [cluster_plan("a"), cluster_plan("b")],
        [workload_plan("x", [0, 1]), workload_plan("y", [1])],
    )
    speed = {(1, 0): np.array([1.0, 0.5, 1.0, 1.0]), (1, 1): np.array([1.0, 1.0, 1.0, 0.25])}
    window = window_of(plan, np.ones((2, 4)), np.ones((2, 4)), speed=speed)
    hours = np.arange(4)
    wants = Demand(workloads=[0, 1], levels=[0, 0], requests=np.ones((2, 4)), hours=hours)
    program, rates, tokens = _speeds(routes_of(plan, window), wants, np.array([0, 1]))
    assert program.tolist() == [0, 1, 2, 3]
    for (c, w), factor in ({(0, 0): np.ones(4)} | speed).items():
        assert rates[program, c, w].tolist() == (3600.0 * factor).tolist()
    assert np.all(tokens == 150.0)


def test_a_workload_is_outgrown_where_no_cluster_meets_its_objective() -> None:
    """The last hour of January and the first of February, when one or both of its clusters are too slow."""
    clusters = [cluster_plan(name) for name in "abc"]
    work = [workload_plan(clusters=[0, 1], months=2), workload_plan("one", [0], months=2)]
    rates = np.full((3, 2, 2), 3600.0)
    rates[0, :, 1] = rates[2] = rates[1, 1] = 0.0
    plan = make_plan(clusters, work, months=2, requests_per_node_h=rates)
    window = window_of(plan, np.ones((2, 2)), np.ones((3, 2)), first_hour=743)
    outgrown = [route.outgrown for route in routes_of(plan, window)]
    assert [None if each is None else each.tolist() for each in outgrown] == [
        [False, False],
        [False, True],
    ]


def test_work_without_end_takes_what_is_left_also_where_it_has_outgrown_a_cluster() -> None:
    """The last hour of January and the first of February, when batch is too long for the second of three clusters."""
    clusters = [cluster_plan(name, nodes=10) for name in "abc"]
    work = [workload_plan(name, [0, 2], months=2) for name in ("x", "y")]
    work.append(workload_plan("batch", [0, 1, 2], months=2, priority=2, deadline_h=1))
    rates = np.full((3, 3, 2), 3600.0)
    rates[2, 1] = 1800.0
    rates[1, 2, 1] = 0.0
    plan = make_plan(clusters, work, months=2, requests_per_node_h=rates)
    demand = np.array([[5.0, 5.0], [3.0, 3.0], [100.0, 100.0]]) * 3600.0
    window = window_of(
        plan, demand, np.full((3, 2), 10.0), first_hour=int(plan.month_edges_h[1]) - 1
    )
    served = evaluate_window(plan, window).served_requests.sum(axis=0) / 3600.0
    assert served.tolist() == [
        pytest.approx([5.0, 5.0]),
        pytest.approx([3.0, 3.0]),
        pytest.approx([22.0, 12.0]),
    ]
