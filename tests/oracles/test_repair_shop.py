"""The repair shop against a SimPy model of it, and both against queueing theory."""

from __future__ import annotations

import math
from typing import Any

import ciw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.demand.bursts import erlang_c
from planner.fleet.plan import ClusterPlan, ReliabilityPlan
from planner.simulation.failures import HARD, MEDIUM, SOFT, Failures, RepairShop, draw_failures
from tests.fleet.plans import cause_plan, cluster_plan, reliability_plan
from tests.oracles.repair_model import Loss, RepairModel

Floats = NDArray[np.float64]


def shop_losses(
    plan: ReliabilityPlan, clusters: tuple[ClusterPlan, ...], drawn: list[Failures], stops: tuple[float, ...] = ()
) -> list[Loss]:
    """What the shop makes of the failures, one entry a group."""
    shop = RepairShop(plan, clusters)
    for index, failures in enumerate(drawn):
        shop.admit(index, clusters[index].nodes)
        shop.expect(index, failures)
    for end_h in (*stops, 1e9):
        shop.work_until(end_h)
    losses = []
    for outage in shop.outages():
        groups = outage.accelerators // clusters[outage.cluster].group_accelerators
        loss = Loss(outage.cluster, outage.node, outage.start_h, outage.end_h, outage.wait_h)
        losses += [loss] * groups if outage.end_h > outage.start_h else []
    return sorted(losses)


def failures_of(**columns: Any) -> Failures:
    order = np.argsort(columns["time_h"])
    count = order.size
    plain = {"cause": np.zeros(count, dtype=int), **columns}
    return Failures(**{name: np.asarray(column)[order] for name, column in plain.items()})


def random_failures(random: np.random.Generator, cluster: ClusterPlan, count: int, hours: float) -> Failures:
    groups = cluster.accelerators_per_node // cluster.group_accelerators
    whole = (random.random(count) < 0.3) | (groups == 1)
    return failures_of(
        time_h=random.random(count) * hours,
        node=random.integers(0, max(cluster.nodes, 1), count),
        group=np.where(whole, -1, random.integers(0, groups, count)),
        severity=random.integers(0, 3, count),
        repair_h=random.exponential(20.0, count),
    )


@settings(max_examples=150)
@given(
    seed=st.integers(0, 2**32 - 1),
    crews=st.integers(1, 4),
    spare_fraction=st.sampled_from((0.0, 0.1, 0.5)),
    rma_h=st.sampled_from((0.5, 30.0, 300.0)),
    hours=st.sampled_from((50.0, 500.0, 5000.0)),
    stops=st.lists(st.floats(1.0, 5000.0), max_size=4).map(sorted),
)
def test_the_same_failures_give_the_same_outages_as_simpy(
    seed: int, crews: int, spare_fraction: float, rma_h: float, hours: float, stops: list[float]
) -> None:
    """Overlapping failures, queues for crews, parts that run out, node failures over nodes already half down."""
    random = np.random.default_rng(seed)
    plan = reliability_plan(crews=crews, spare_fraction=spare_fraction, rma_h=rma_h)
    clusters = tuple(
        cluster_plan(f"c{index}", nodes=int(random.integers(1, 6)), group_accelerators=size)
        for index, size in enumerate(random.choice((1, 2, 4, 8), 2).tolist())
    )
    drawn = [random_failures(random, cluster, int(random.integers(0, 40)), hours) for cluster in clusters]
    expected = RepairModel(plan, clusters).run(drawn)
    found = shop_losses(plan, clusters, drawn, tuple(stops))
    assert [loss[:2] for loss in found] == [loss[:2] for loss in expected]
    for column in ("start_h", "end_h"):
        np.testing.assert_allclose(
            [getattr(loss, column) for loss in found], [getattr(loss, column) for loss in expected], rtol=1e-9
        )


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), crews=st.integers(1, 3), spare_fraction=st.sampled_from((0.0, 0.3)))
def test_waits_are_the_same_too(seed: int, crews: int, spare_fraction: float) -> None:
    random = np.random.default_rng(seed)
    plan = reliability_plan(crews=crews, spare_fraction=spare_fraction, rma_h=100.0)
    clusters = (cluster_plan(nodes=20),)
    drawn = [random_failures(random, clusters[0], 60, 800.0)]
    expected = RepairModel(plan, clusters).run(drawn)
    found = shop_losses(plan, clusters, drawn)
    np.testing.assert_allclose([x.wait_h for x in found], [x.wait_h for x in expected], rtol=1e-9, atol=1e-9)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from((1, 2, 8)))
def test_no_group_is_down_twice_at_once(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    cluster = cluster_plan(nodes=3, group_accelerators=size)
    plan = reliability_plan(crews=2, spare_fraction=0.1, rma_h=50.0)
    losses = shop_losses(plan, (cluster,), [random_failures(random, cluster, 60, 400.0)])
    for moment in random.uniform(0, 500.0, 50):
        down = [loss.node for loss in losses if loss.start_h <= moment < loss.end_h]
        for node in range(3):
            assert down.count(node) <= 8 // size


def test_a_queue_for_one_crew_by_hand() -> None:
    """Three medium faults an hour apart, ten hours each, one crew: they wait 0, 9 and 18 hours."""
    drawn = failures_of(
        time_h=[0.0, 1.0, 2.0], node=[0, 1, 2], group=[-1] * 3, severity=[MEDIUM] * 3, repair_h=[10.0] * 3
    )
    losses = shop_losses(reliability_plan(crews=1), (cluster_plan(),), [drawn])
    assert [loss.end_h for loss in losses] == [10.0, 20.0, 30.0]
    assert [loss.wait_h for loss in losses] == [0.0, 9.0, 18.0]


def test_parts_run_out_by_hand() -> None:
    """One spare, RMA of 100 h: the second hard fault waits for the first one's replacement, the third for its own."""
    drawn = failures_of(
        time_h=[0.0, 10.0, 20.0], node=[0, 1, 2], group=[-1] * 3, severity=[HARD] * 3, repair_h=[5.0] * 3
    )
    plan = reliability_plan(spare_fraction=0.1, rma_h=100.0)
    losses = shop_losses(plan, (cluster_plan(nodes=10),), [drawn])
    assert [loss.end_h for loss in losses] == [5.0, 105.0, 115.0]


def test_a_node_failure_keeps_a_group_down_that_would_have_come_back() -> None:
    cluster = cluster_plan(group_accelerators=4)
    drawn = failures_of(
        time_h=[0.0, 5.0], node=[0, 0], group=[1, -1], severity=[SOFT, SOFT], repair_h=[10.0, 20.0]
    )
    losses = shop_losses(reliability_plan(), (cluster,), [drawn])
    assert [(loss.start_h, loss.end_h) for loss in losses] == [(0.0, 10.0), (5.0, 25.0), (10.0, 25.0)]


def test_a_group_that_is_down_cannot_fail_again() -> None:
    drawn = failures_of(time_h=[0.0, 5.0], node=[0, 0], group=[-1, -1], severity=[SOFT, HARD], repair_h=[10.0, 99.0])
    assert len(shop_losses(reliability_plan(), (cluster_plan(),), [drawn])) == 1


def drawn_for(plan: ReliabilityPlan, cluster: ClusterPlan, hours: float, seed: int = 1) -> Failures:
    return draw_failures(plan, cluster, np.zeros(cluster.nodes), 0, hours, np.random.default_rng(seed))


def steady(per_node_h: float, severity: int, mean_h: float, **changes: Any) -> ReliabilityPlan:
    """One cause of one severity at a constant rate."""
    shares = {SOFT: (1.0, 0.0), MEDIUM: (0.0, 1.0), HARD: (0.0, 0.0)}[severity]
    cause = cause_plan(per_node_h=per_node_h, soft_fraction=shares[0], medium_fraction=shares[1])
    return reliability_plan(causes=(cause,), repair_h=(mean_h, mean_h, mean_h), **changes)


def batches(values: Floats, count: int = 40) -> tuple[float, float]:
    """Mean and its standard error by batch means, which bear the correlation of neighbours."""
    means = np.array([part.mean() for part in np.array_split(values, count)])
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(count))


def down_by_slice(losses: list[Loss], hours: float, slices: int = 40) -> Floats:
    """Mean number of nodes down in each slice of the horizon."""
    edges = np.linspace(0, hours, slices + 1)
    start, end = np.array([x.start_h for x in losses]), np.array([x.end_h for x in losses])
    overlap = np.minimum(end[:, None], edges[1:]) - np.maximum(start[:, None], edges[:-1])
    return np.maximum(overlap, 0.0).sum(axis=0) / (hours / slices)


def assert_mean(values: Floats, expected: float) -> None:
    """|z| < 4 by the standard error over independent slices."""
    mean, error = float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))
    assert abs(mean - expected) < 4 * error, (mean, expected, error)
    assert error < 0.1 * expected  # a test that could not fail would show nothing


def test_availability_is_mtbf_over_mtbf_plus_mttr() -> None:
    """A node that is down cannot fail, so up and down alternate: 1000 / (1000 + 100), any distribution of repairs."""
    cluster, hours = cluster_plan(nodes=50), 200_000.0
    plan = steady(1 / 1000, SOFT, 100.0)
    losses = shop_losses(plan, (cluster,), [drawn_for(plan, cluster, hours)])
    assert_mean(1 - down_by_slice(losses, hours) / 50, 1000 / 1100)
    assert_mean(down_by_slice(losses, hours) / 50, 100 / 1100)


def repairman(nodes: int, crews: int, rate: float, mend: float) -> float:
    """Mean number down in the machine repairman model: birth rate (n − k)·λ, death rate min(k, c)·μ."""
    weight = [1.0]
    for k in range(nodes):
        weight.append(weight[-1] * (nodes - k) * rate / (min(k + 1, crews) * mend))
    return sum(k * w for k, w in enumerate(weight)) / sum(weight)


def exponential(failures: Failures, mean_h: float, seed: int) -> Failures:
    """The same failures with exponential repairs, which the Markov chains assume."""
    repair_h = np.random.default_rng(seed).exponential(mean_h, failures.time_h.size)
    return Failures(
        time_h=failures.time_h,
        node=failures.node,
        group=failures.group,
        cause=failures.cause,
        severity=failures.severity,
        repair_h=repair_h,
    )


@pytest.mark.parametrize("crews", [1, 2, 5])
def test_machine_repairman_with_finite_crews(crews: int) -> None:
    cluster, hours = cluster_plan(nodes=10), 400_000.0
    plan = steady(1 / 500, MEDIUM, 60.0, crews=crews)
    failures = exponential(drawn_for(plan, cluster, hours), 60.0, 3)
    losses = shop_losses(plan, (cluster,), [failures])
    assert_mean(down_by_slice(losses, hours), repairman(10, crews, 1 / 500, 1 / 60))


def chain_mean(rates: dict[tuple[int, int], dict[tuple[int, int], float]], reward: Any) -> float:
    """Solve π Q = 0 for a finite Markov chain and return the mean reward."""
    states = sorted(rates)
    place = {state: index for index, state in enumerate(states)}
    generator = np.zeros((len(states), len(states)))
    for state, leaving in rates.items():
        for target, rate in leaving.items():
            generator[place[state], place[target]] += rate
            generator[place[state], place[state]] -= rate
    matrix = np.vstack((generator.T, np.ones(len(states))))
    right = np.append(np.zeros(len(states)), 1.0)
    weight = np.linalg.lstsq(matrix, right, rcond=None)[0]
    return float(sum(w * reward(*state) for w, state in zip(weight, states, strict=True)))


def test_machine_repairman_with_spares_and_rma() -> None:
    """Nodes fail for good, take a part (exponential RMA in place of ours) and are mended by one crew.

    Our RMA time is fixed, so this case keeps the part out of the way: with many spares only crews count, and with none
    and crews without end a node is down for RMA + repair, whatever the distribution.
    """
    cluster, hours = cluster_plan(nodes=10), 400_000.0
    many = steady(1 / 500, HARD, 60.0, crews=1, spare_fraction=1.0, rma_h=1e-3)
    failures = exponential(drawn_for(many, cluster, hours), 60.0, 4)
    assert_mean(
        down_by_slice(shop_losses(many, (cluster,), [failures]), hours), repairman(10, 1, 1 / 500, 1 / 60)
    )
    none = steady(1 / 500, HARD, 60.0, crews=100, spare_fraction=0.0, rma_h=240.0)
    losses = shop_losses(none, (cluster,), [drawn_for(none, cluster, hours)])
    assert_mean(down_by_slice(losses, hours) / 10, 300 / 800)


def test_spares_that_run_out_against_a_markov_chain() -> None:
    """S spares, RMA in k exponential stages ≈ fixed: Erlang's loss-free base stock with n machines.

    Parts on order and nodes down follow a chain in (failed since RMA began by stage): one stage suffices, because with
    crews without end and no repair time the number down depends on RMA times through their mean alone only as S = 0.
    For S = 1 the chain is solved with 12 stages.
    """
    nodes, rate, rma_h, stages = 3, 1 / 400, 300.0, 12
    cluster, hours = cluster_plan(nodes=nodes), 600_000.0
    plan = steady(rate, HARD, 1e-6, crews=100, spare_fraction=0.1, rma_h=rma_h)  # round(0.3) = 0, so at least one
    losses = shop_losses(plan, (cluster,), [drawn_for(plan, cluster, hours)])
    down = down_by_slice(losses, hours)
    expected = base_stock_down(nodes, rate, rma_h, stages)
    assert_mean(down, expected)


def base_stock_down(nodes: int, rate: float, rma_h: float, stages: int) -> float:
    """Mean nodes down with one spare: orders outstanding k in Erlang stages, max(0, k − 1) nodes down."""
    states: dict[tuple[int, ...], dict[tuple[int, ...], float]] = {}
    empty = (0,) * stages
    todo = [empty]
    stage_rate = stages / rma_h
    while todo:
        state = todo.pop()
        if state in states:
            continue
        outstanding = sum(state)
        down = max(0, outstanding - 1)
        leaving: dict[tuple[int, ...], float] = {}
        if down < nodes:
            leaving[(state[0] + 1, *state[1:])] = (nodes - down) * rate
        for stage, count in enumerate(state):
            if count:
                after = list(state)
                after[stage] -= 1
                if stage + 1 < stages:
                    after[stage + 1] += 1
                leaving[tuple(after)] = leaving.get(tuple(after), 0.0) + count * stage_rate
        states[state] = leaving
        todo += [target for target in leaving if target not in states]
    return stationary_mean(states, lambda state: max(0, sum(state) - 1))


def stationary_mean(states: dict[tuple[int, ...], dict[tuple[int, ...], float]], reward: Any) -> float:
    from scipy.sparse import coo_array  # noqa: PLC0415
    from scipy.sparse.linalg import spsolve  # noqa: PLC0415

    place = {state: index for index, state in enumerate(states)}
    rows, columns, values = [], [], []
    for state, leaving in states.items():
        for target, rate in leaving.items():
            rows += [place[target], place[state]]
            columns += [place[state], place[state]]
            values += [rate, -rate]
    matrix = coo_array((values, (rows, columns)), shape=(len(states),) * 2).tolil()
    matrix[0, :] = 1.0
    right = np.zeros(len(states))
    right[0] = 1.0
    weight = spsolve(matrix.tocsr(), right)
    return float(sum(weight[index] * reward(state) for state, index in place.items()))
