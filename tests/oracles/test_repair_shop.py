"""The repair shop against a textbook model of it, and both against queueing theory."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.engine.failures import HARD, MEDIUM, SOFT, Failures, draw_failures
from planner.engine.log import Outage, streams
from planner.engine.repair_shop import RepairShop
from planner.plan.plan import ClusterPlan
from planner.plan.reliability import ReliabilityPlan
from planner.plan.staffing import Headcount
from planner.run.simulate import simulate
from tests.engine.plans import cause_plan, cluster_plan, make_plan, reliability_plan
from tests.engine.worlds import scenario_of
from tests.oracles.erlang import erlang_c
from tests.oracles.repair_model import Loss, RepairModel

Floats = NDArray[np.float64]


def shop_losses(
    plan: ReliabilityPlan,
    clusters: tuple[ClusterPlan, ...],
    drawn: list[Failures],
) -> list[Loss]:
    """What the shop makes of the failures, one entry a group."""
    env = simpy.Environment()
    shop = RepairShop(env, plan, clusters)
    for index, failures in enumerate(drawn):
        shop.admit(index, np.zeros(clusters[index].nodes))
        shop.expect(index, failures)
    env.run()
    return by_group(clusters, shop.outages())


def by_group(clusters: tuple[ClusterPlan, ...], outages: list[Outage]) -> list[Loss]:
    """Outages, one entry a group."""
    losses = []
    for outage in outages:
        groups = outage.accelerators // clusters[outage.cluster].group_accelerators
        loss = Loss(outage.cluster, outage.node, outage.start_h, outage.end_h, outage.wait_h)
        losses += [loss] * groups if outage.end_h > outage.start_h else []
    return sorted(losses)


def failures_of(**columns: Any) -> Failures:
    order = np.argsort(columns["time_h"])
    count = order.size
    plain = {"cause": np.zeros(count, dtype=int), **columns}
    return Failures(**{name: np.asarray(column)[order] for name, column in plain.items()})


def random_failures(
    random: np.random.Generator, cluster: ClusterPlan, count: int, hours: float
) -> Failures:
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
)
def test_the_same_failures_give_the_same_outages_as_simpy(
    seed: int, crews: int, spare_fraction: float, rma_h: float, hours: float
) -> None:
    """Overlapping failures, queues for crews, parts that run out, node failures over nodes already half down."""
    random = np.random.default_rng(seed)
    plan = reliability_plan(crews=crews, spare_fraction=spare_fraction, rma_h=rma_h)
    clusters = tuple(
        cluster_plan(f"c{index}", nodes=int(random.integers(1, 6)), group_accelerators=size)
        for index, size in enumerate(random.choice((1, 2, 4, 8), 2).tolist())
    )
    drawn = [
        random_failures(random, cluster, int(random.integers(0, 40)), hours) for cluster in clusters
    ]
    expected = RepairModel(plan, clusters).run(drawn)
    found = shop_losses(plan, clusters, drawn)
    assert [loss[:2] for loss in found] == [loss[:2] for loss in expected]
    times = [(loss.start_h, loss.end_h) for loss in found]
    np.testing.assert_allclose(times, [(loss.start_h, loss.end_h) for loss in expected], rtol=1e-9)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    crews=st.integers(1, 3),
    spare_fraction=st.sampled_from((0.0, 0.2)),
    rma_h=st.sampled_from((30.0, 300.0)),
)
def test_crews_that_come_and_go_are_never_at_work_twice(
    seed: int, crews: int, spare_fraction: float, rma_h: float
) -> None:
    """Machines, crews and parts come in lots while others wait, and some leave again with their outages."""
    random = np.random.default_rng(seed)
    rate = Headcount(fixed=crews, per_accelerator=1 / 40, rounding="down")
    plan = reliability_plan(crews=rate, spare_fraction=spare_fraction, rma_h=rma_h)
    clusters = tuple(cluster_plan(f"c{index}", nodes=6, group_accelerators=8) for index in range(2))
    env = simpy.Environment()
    shop = RepairShop(env, plan, clusters)
    for begin_h, cluster in [(0.0, 0), (0.0, 1), (150.0, 0), (260.0, 1)]:
        if begin_h > env.now:
            env.run(until=begin_h)
        first_node = shop.admit(cluster, begin_h + np.arange(6.0) * 3.0 + 1.0)
        failures = random_failures(random, clusters[cluster], 30, 500.0)
        time_h = failures.time_h + begin_h + 20.0
        node = failures.node + first_node
        shop.expect(cluster, dataclasses.replace(failures, time_h=time_h, node=node))
    env.run(until=400.0)
    shop.drop(0, 3)
    env.run(until=5000.0)
    outages = shop.outages()
    for outage in outages:
        if outage.cluster == 0 and outage.node < 3:
            assert outage.end_h <= 400.0
    repairs = [outage for outage in outages if outage.severity != "soft"]
    under_way = [(o.start_h + o.wait_h, o.end_h) for o in repairs if o.start_h + o.wait_h < o.end_h]
    for hour, _ in under_way:
        nodes = 12 + 6 * (hour >= 151.0) + 6 * (hour >= 261.0)
        most = plan.crews.number(8 * nodes)
        assert sum(begin_h <= hour < end_h for begin_h, end_h in under_way) <= most
    assert shop.crews.free == plan.crews.number(8 * 21)
    assert shop.crews.leaving == 0


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    crews=st.integers(1, 3),
    spare_fraction=st.sampled_from((0.0, 0.3)),
)
def test_waits_are_the_same_too(seed: int, crews: int, spare_fraction: float) -> None:
    random = np.random.default_rng(seed)
    plan = reliability_plan(crews=crews, spare_fraction=spare_fraction, rma_h=100.0)
    clusters = (cluster_plan(nodes=20),)
    drawn = [random_failures(random, clusters[0], 60, 800.0)]
    expected = RepairModel(plan, clusters).run(drawn)
    found = shop_losses(plan, clusters, drawn)
    np.testing.assert_allclose(
        [x.wait_h for x in found], [x.wait_h for x in expected], rtol=1e-9, atol=1e-9
    )


def drawn_for(plan: ReliabilityPlan, cluster: ClusterPlan, hours: float, seed: int = 1) -> Failures:
    failures = draw_failures(plan, cluster, np.zeros(cluster.nodes), 0, hours, streams(seed), "a")
    return failures.where(np.argsort(failures.time_h))


def steady(per_node_h: float, severity: int, mean_h: float, **changes: Any) -> ReliabilityPlan:
    """One cause of one severity at a constant rate."""
    shares = {SOFT: (1.0, 0.0), MEDIUM: (0.0, 1.0), HARD: (0.0, 0.0)}[severity]
    cause = cause_plan(per_node_h=per_node_h, soft_fraction=shares[0], medium_fraction=shares[1])
    return reliability_plan(causes=(cause,), repair_h=(mean_h, mean_h, mean_h), **changes)


def down_by_slice(losses: list[Loss], hours: float, slices: int = 40) -> Floats:
    """Mean number of nodes down in each slice of the horizon."""
    edges = np.linspace(0, hours, slices + 1)
    start = np.array([x.start_h for x in losses])
    end = np.array([x.end_h for x in losses])
    overlap = np.minimum(end[:, None], edges[1:]) - np.maximum(start[:, None], edges[:-1])
    return np.asarray(np.maximum(overlap, 0.0).sum(axis=0) / (hours / slices))


def assert_mean(values: Floats, expected: float) -> None:
    """|z| < 4 by the standard error over independent slices."""
    mean = float(values.mean())
    error = float(values.std(ddof=1) / math.sqrt(values.size))
    assert abs(mean - expected) < 4 * error, (mean, expected, error)
    assert error < 0.1 * expected  # a test that could not fail would show nothing


def test_availability_is_mtbf_over_mtbf_plus_mttr() -> None:
    """A node that is down cannot fail, so up and down alternate: 1000 / (1000 + 100), any distribution of repairs."""
    cluster = cluster_plan(nodes=50)
    hours = 200_000.0
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
    cluster = cluster_plan(nodes=10)
    hours = 400_000.0
    plan = steady(1 / 500, MEDIUM, 60.0, crews=crews)
    failures = exponential(drawn_for(plan, cluster, hours), 60.0, 3)
    losses = shop_losses(plan, (cluster,), [failures])
    assert_mean(down_by_slice(losses, hours), repairman(10, crews, 1 / 500, 1 / 60))


def test_machine_repairman_with_parts_in_plenty_or_none() -> None:
    """With parts in plenty only crews count; with none, and crews without end, a node is down for RMA and repair."""
    cluster = cluster_plan(nodes=10)
    hours = 400_000.0
    many = steady(1 / 500, HARD, 60.0, crews=1, spare_fraction=1.0, rma_h=1e-3)
    failures = exponential(drawn_for(many, cluster, hours), 60.0, 4)
    assert_mean(
        down_by_slice(shop_losses(many, (cluster,), [failures]), hours),
        repairman(10, 1, 1 / 500, 1 / 60),
    )
    none = steady(1 / 500, HARD, 60.0, crews=100, spare_fraction=0.0, rma_h=240.0)
    losses = shop_losses(none, (cluster,), [drawn_for(none, cluster, hours)])
    assert_mean(down_by_slice(losses, hours) / 10, 300 / 800)


def test_machine_repairman_whose_one_spare_runs_out() -> None:
    """Three machines, one spare, repairs in no time: a Markov chain whose RMA takes twelve exponential stages."""
    cluster = cluster_plan(nodes=3)
    hours = 600_000.0
    plan = steady(
        1 / 400, HARD, 1e-6, crews=100, spare_fraction=0.1, rma_h=300.0
    )  # a tenth of three: at least one
    losses = shop_losses(plan, (cluster,), [drawn_for(plan, cluster, hours)])
    assert_mean(down_by_slice(losses, hours), base_stock_down(3, 1 / 400, 300.0, stages=12))


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


def stationary_mean(
    states: dict[tuple[int, ...], dict[tuple[int, ...], float]], reward: Any
) -> float:
    from scipy.sparse import coo_array  # noqa: PLC0415
    from scipy.sparse.linalg import spsolve  # noqa: PLC0415

    place = {state: index for index, state in enumerate(states)}
    rows = []
    columns = []
    values = []
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


def open_stream(severity: int, mean_h: float, **changes: Any) -> tuple[Floats, Floats, Floats]:
    """Failures at 0.01 an hour over so many nodes that they are a Poisson stream: times, repairs and waits."""
    cluster = cluster_plan(nodes=5000)
    hours = 4_000_000.0
    plan = steady(0.01 / 5000, severity, mean_h, **changes)
    failures = drawn_for(plan, cluster, hours)
    if changes.get("repair_cv") is None:
        failures = exponential(failures, mean_h, 5)
    losses = shop_losses(plan, (cluster,), [failures])
    waits = dict(
        zip((loss.start_h for loss in losses), (loss.wait_h for loss in losses), strict=True)
    )
    kept = np.array([time_h in waits for time_h in failures.time_h.tolist()])
    assert kept.mean() > 0.99
    return (
        failures.time_h[kept],
        failures.repair_h[kept],
        np.array([waits[t] for t in failures.time_h[kept].tolist()]),
    )


def slices(values: Floats) -> Floats:
    """Means of forty stretches: long against the queue's memory, so all but independent."""
    return np.array([part.mean() for part in np.array_split(values, 40)])


def test_one_crew_waits_as_in_m_g_1() -> None:
    """Pollaczek and Khinchine: W = λ E[S²] / (2 (1 − ρ)) with λ = 0.01, E[S] = 60 h and a cv of 0.6."""
    _, _, waits = open_stream(MEDIUM, 60.0, crews=1, repair_cv=0.6)
    assert_mean(slices(waits), 0.01 * 60.0**2 * (1 + 0.6**2) / (2 * (1 - 0.6)))


def erlang_c_by_sums(servers: int, load: float) -> float:
    """Erlang's own sums, against which the recursion is held too."""
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(load**k / math.factorial(k) for k in range(servers)) + last)


def test_several_crews_wait_as_in_erlang_c() -> None:
    crews = 3
    load = 0.01 * 240.0
    _, _, waits = open_stream(MEDIUM, 240.0, crews=crews)
    chance = erlang_c_by_sums(crews, load)
    assert float(erlang_c(crews, load)) == pytest.approx(chance)
    assert_mean(slices((waits > 0).astype(float)), chance)
    assert_mean(slices(waits), chance * 240.0 / (crews - load))


def test_parts_run_out_as_palm_says() -> None:
    """Orders outstanding are M/G/∞: with four spares and λ·RMA = 3, a part is missing as often as Poisson(3) ≥ 4."""
    _, _, waits = open_stream(
        HARD, 1e-3, crews=10_000, spare_fraction=4 / 5000, rma_h=300.0, repair_cv=0.1
    )
    missing = 1 - math.exp(-3) * sum(3**k / math.factorial(k) for k in range(4))
    assert_mean(slices((waits > 0.1).astype(float)), missing)


def test_crews_and_spares_grow_with_the_nodes_and_shrink_with_them() -> None:
    """One crew for two nodes of eight and a part for four: each is there with the node that needs it, by hand."""
    plan = reliability_plan(
        crews=Headcount(per_accelerator=1 / 16, rounding="down", minimum=1),
        spares=Headcount(per_node=0.25),
    )
    env = simpy.Environment()
    shop = RepairShop(env, plan, (cluster_plan("a"), cluster_plan("b")))
    assert [pool.free for pool in (shop.crews, *shop.spares)] == [0, 0, 0]
    shop.admit(0, np.array([0.0, 10.0, 20.0, 30.0]))
    shop.admit(1, np.array([40.0, 50.0]))
    free = []
    for hour in (1.0, 9.0, 11.0, 29.0, 31.0, 49.0, 51.0):
        env.run(until=hour)
        free.append([pool.free for pool in (shop.crews, *shop.spares)])
    assert free == [*[[1, 0, 0]] * 2, *[[1, 1, 0]] * 2, *[[2, 1, 0]] * 2, [3, 1, 1]]
    shop.drop(0, 4)
    assert shop.crews.free == 1


@pytest.mark.parametrize(
    ("rounding", "whole"),
    [("nearest", [0, 1, 1, 2, 3]), ("up", [1, 1, 2, 2, 3]), ("down", [0, 1, 1, 1, 2])],
)
def test_people_come_whole(rounding: str, whole: list[int]) -> None:
    """2.5 per 1,000 of 100, 400, 480, 600 and 1,000 accelerators: 0.25, 1, 1.2, 1.5 and 2.5 people."""
    rate = Headcount(per_accelerator=2.5 / 1000, rounding=rounding)
    assert [rate.number(accelerators) for accelerators in (100, 400, 480, 600, 1000)] == whole


def test_as_many_crews_per_accelerator_keep_a_fleet_of_any_size_in_service() -> None:
    """The same availability at one and at eight times the machines; four crews for the larger are overloaded."""
    small, large = (
        {"clusters": {"h200": {"nodes": 250 * size}, "mi325x": {"nodes": 6}}} for size in (1, 8)
    )
    rates = {
        "horizon_months": 3,
        "reliability": {"failure_multiplier": 2},
        "workloads": {"nightly": None},
    }
    results = [simulate(scenario_of(rates, change)) for change in (small, large)]
    share = [
        float(r.monthly.in_service_node_h.sum() / r.monthly.present_node_h.sum()) for r in results
    ]
    assert share[0] == pytest.approx(share[1], abs=0.02)  # some 200 failures in the smaller
    assert not any("repair crews" in text for result in results for text in result.warnings)
    four = simulate(scenario_of(rates, large, {"reliability": {"repair_crews": 4}}))
    assert (
        float(four.monthly.in_service_node_h.sum() / four.monthly.present_node_h.sum())
        < share[1] - 0.05
    )
    load = four.plan.crew_load(np.array([2000.0, 6.0]), 4)
    assert load > 1.0
    assert any(
        f"the 4 repair crews (reliability.repair_crews) are at a load of {load:.2f}" in t
        for t in four.warnings
    )


def test_the_load_of_the_crews_is_work_over_people() -> None:
    """By hand: 0.01 failures an hour, half of them 12 h and a fifth 60 h of a crew's work: 0.18 crews' worth."""
    cause = cause_plan(per_node_h=0.001, soft_fraction=0.3, medium_fraction=0.5)
    plan = make_plan([cluster_plan(nodes=10)], reliability=reliability_plan(causes=(cause,)))
    assert plan.crew_load(np.array([10.0]), 2) == pytest.approx(0.01 * (0.5 * 12 + 0.2 * 60) / 2)
