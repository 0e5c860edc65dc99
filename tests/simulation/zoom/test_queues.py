"""The router and its replicas against queueing theory and an independent library."""

from __future__ import annotations

import math
from collections import deque

import ciw
import numpy as np
import pytest
import simpy

from planner.simulation.zoom.request import Request
from planner.simulation.zoom.router import Group, Pool, Promise, Router
from planner.simulation.zoom.steps import StepTimes
from tests.oracles.erlang import erlang_c

STEP_S = 1e-3


def one_at_a_time(servers: int, rate: float, mean_s: float, count: int, seed: int) -> np.ndarray:
    """Return the waits of requests with exponential work on replicas that take one each: M/M/c, steps apart."""
    random = np.random.default_rng(seed)
    env = simpy.Environment()
    router = Router(env, [Promise(name="chat", level=0, ttft_s=1.0, tpot_s=1.0, refuses=False)])
    times = StepTimes(fixed_s=STEP_S, most_sequences=1)
    group = Group(
        name="g",
        pools=[Pool(router, times, servers, {0: math.inf})],
        most_sequences={0: 1.0},
        preferred_sequences={0: 1.0},
    )
    router.groups, router.ways, router.deferred = [group], {0: [[group]]}, {0: deque()}
    arrived = np.cumsum(random.exponential(1.0 / rate, count))
    tokens = np.maximum(np.rint(random.exponential(mean_s / STEP_S, count)), 1.0).astype(int)
    requests = [
        Request(i, 0, 0, t, (1, 0, o)) for i, (t, o) in enumerate(zip(arrived.tolist(), tokens.tolist(), strict=True))
    ]

    def arrive() -> object:
        for request in requests:
            yield env.timeout(request.arrived_s - env.now)
            router.arrive(request)

    env.process(arrive())  # type: ignore[arg-type]
    env.run()
    assert router.arrived == router.done == count
    return np.array([request.started_s - request.arrived_s for request in requests])


def batch_error(waits: np.ndarray, batches: int = 30) -> float:
    """Return the standard error of the mean of correlated waits, from batch means."""
    means = np.array([part.mean() for part in np.array_split(waits, batches)])
    return float(means.std(ddof=1) / np.sqrt(batches))


@pytest.mark.parametrize(("servers", "load"), [(1, 0.6), (4, 0.8)])
def test_one_token_prompts_without_batching_are_erlangs_queue(servers: int, load: float) -> None:
    mean_s = 1.0
    rate = servers * load / mean_s
    waits = one_at_a_time(servers, rate, mean_s, 6_000, seed=1)
    waiting = float(erlang_c(servers, servers * load))
    expected_s = waiting * mean_s / (servers * (1.0 - load))
    assert abs(waits.mean() - expected_s) < 4.0 * batch_error(waits) + 2 * STEP_S
    share = (waits > 1e-9).astype(float)
    assert abs(share.mean() - waiting) < 4.0 * batch_error(share)


def test_the_same_queue_in_an_independent_library() -> None:
    servers, load, count = 3, 0.75, 5_000
    own = one_at_a_time(servers, servers * load, 1.0, count, seed=2)
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(servers * load)],
        service_distributions=[ciw.dists.Exponential(1.0)],
        number_of_servers=[servers],
    )
    ciw.seed(5)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(count)
    other = np.array([record.waiting_time for record in simulation.get_all_records()])
    error = float(np.hypot(batch_error(own), batch_error(other)))
    assert abs(own.mean() - other.mean()) < 4.0 * error + 2 * STEP_S


def test_groups_that_are_alike_share_and_the_next_tier_waits_until_they_are_full() -> None:
    env = simpy.Environment()
    router = Router(env, [Promise(name="chat", level=0, ttft_s=1.0, tpot_s=1.0, refuses=False)])
    times = StepTimes(fixed_s=STEP_S, most_sequences=64)
    groups = [
        Group(
            name=name,
            pools=[Pool(router, times, size, {0: math.inf})],
            most_sequences={0: 64.0},
            preferred_sequences={0: 4.0},
        )
        for name, size in (("first", 1), ("twin", 2), ("other", 1))
    ]
    router.groups, router.ways = groups, {0: [groups[:2], groups[2:]]}
    for number in range(14):
        router.arrive(Request(number, 0, 0, 0.0, (1, 0, 1000)))
    assert [group.sequences() for group in groups] == [4, 4, 2]  # requests on each of their replicas


def test_a_full_pool_refuses_what_would_be_late_and_serves_the_rest_in_time() -> None:
    env = simpy.Environment()
    router = Router(env, [Promise(name="chat", level=0, ttft_s=1.0, tpot_s=0.05)])
    times = StepTimes(fixed_s=0.02, sequence_s=1e-3, prefill_s_per_token=1e-4)
    group = Group(
        name="g", pools=[Pool(router, times, 4, {0: 0.0425})], most_sequences={0: 1.0}, preferred_sequences={0: 1.0}
    )
    router.groups, router.ways = [group], {0: [[group]]}
    random = np.random.default_rng(4)
    arrived = np.cumsum(random.exponential(0.02, 6000))
    output = np.maximum(random.exponential(200.0, 6000), 20.0).astype(int)
    requests = [
        Request(i, 0, 0, t, (500, 0, o)) for i, (t, o) in enumerate(zip(arrived.tolist(), output.tolist(), strict=True))
    ]

    def arrive() -> object:
        for request in requests:
            yield env.timeout(request.arrived_s - env.now)
            router.arrive(request)

    env.process(arrive())  # type: ignore[arg-type]
    env.run(until=60.0)
    assert router.arrived == router.done + router.refused + router.in_flight
    env.run()
    assert router.refused > 1000
    served = [request for request in requests if np.isfinite(request.finished_s)]
    assert len(served) + router.refused == 6000
    keeps = [(r.finished_s - r.first_token_s) / (r.output_tokens - 1) <= 0.05 for r in served]
    answers = [r.first_token_s - r.arrived_s <= 1.0 for r in served]
    assert np.mean(keeps) > 0.99
    assert np.mean(answers) > 0.95
