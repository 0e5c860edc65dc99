"""The router and its replicas against queueing theory and an independent library."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
import simpy

from planner.requests.batching import Request, StepTimes
from planner.requests.router import Group, LatencySlo, PrefillStage, ReplicaPool, RequestRouter
from tests.oracles.erlang import erlang_c

STEP_S = 1e-3


def arrive(router: RequestRouter, requests: list[Request]) -> Generator[simpy.Event, Any, None]:
    """Let requests come at their times."""
    for request in requests:
        yield router.env.timeout(request.arrived_s - router.env.now)
        router.arrive(request)


def one_at_a_time(servers: int, rate: float, mean_s: float, count: int, seed: int) -> np.ndarray:
    """Return the waits of requests with exponential work on replicas that take one each: M/M/c, steps apart."""
    random = np.random.default_rng(seed)
    env = simpy.Environment()
    router = RequestRouter(
        env, [LatencySlo(name="chat", level=0, ttft_s=1.0, tpot_s=1.0, refuses=False)], [0], 0.85
    )
    times = StepTimes(fixed_s=STEP_S, max_sequences=1)
    pool = ReplicaPool(router, times, servers, {0: math.inf})
    group = Group(pools=[pool], capacity_requests_per_s={0: 1.0 / mean_s})
    router.groups, router.tiers, router.deferred = [group], {0: [[group]]}, {0: deque()}
    arrived = np.cumsum(random.exponential(1.0 / rate, count))
    tokens = np.maximum(np.rint(random.exponential(mean_s / STEP_S, count)), 1.0).astype(int)
    requests = [
        Request(i, 0, 0, t, (1, 0, o))
        for i, (t, o) in enumerate(zip(arrived.tolist(), tokens.tolist(), strict=True))
    ]

    env.process(arrive(router, requests))
    env.run()
    assert router.arrived == router.completed == count
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


def _held(group: Group) -> int:
    """Return the requests waiting or being served."""
    return len(group.pools[0].queue) + sum(group.pools[0].loads)


def taken(
    tiers: list[list[int]], rates: list[float], by_rank: list[int], preferred_use: float
) -> list[list[int]]:
    """Return how many requests of each workload groups took that sustain one a second and replica, in 300 seconds.

    Groups have so many replicas, tier by tier; requests come evenly and none ends.
    """
    env = simpy.Environment()
    slo_target = LatencySlo(name="chat", level=0, ttft_s=1.0, tpot_s=1.0, refuses=False)
    router = RequestRouter(env, [slo_target] * len(rates), by_rank, preferred_use)
    sustained = dict.fromkeys(range(len(rates)), 1.0)
    times = StepTimes(fixed_s=1.0, max_sequences=10_000)
    laid_out = [
        [
            Group(
                pools=[ReplicaPool(router, times, size, sustained)],
                capacity_requests_per_s=sustained,
            )
            for size in tier
        ]
        for tier in tiers
    ]
    router.groups = [group for tier in laid_out for group in tier]
    router.tiers = dict.fromkeys(range(len(rates)), laid_out)
    rows = sorted(
        ((n + 0.5) / rate, w) for w, rate in enumerate(rates) for n in range(round(300 * rate))
    )
    counts = np.zeros((len(router.groups), len(rates)), dtype=int)
    for number, (time_s, w) in enumerate(rows):
        env.run(until=time_s)
        before = [_held(group) for group in router.groups]
        router.arrive(Request(number, w, 0, time_s, (1, 0, 1_000_000)))
        counts[:, w] += [
            _held(group) - had for group, had in zip(router.groups, before, strict=True)
        ]
    return [row.tolist() for row in counts]


def test_groups_that_are_alike_share_and_the_next_tier_has_what_is_beyond_their_preferred_use() -> (
    None
):
    first, twin, other = (row[0] for row in taken([[1, 2], [1]], [3.0], [0], 0.85))
    assert [first, twin, other] == pytest.approx(
        [255, 510, 135], abs=12
    )  # 85% of what each sustains, and the rest


def test_beyond_the_preferred_use_of_all_and_where_there_is_none_all_are_used_alike() -> None:
    for rate, preferred_use in ((3.8, 0.85), (2.0, 0.0)):
        first, twin, other = (row[0] for row in taken([[1, 2], [1]], [rate], [0], preferred_use))
        assert [first, twin, other] == pytest.approx([75 * rate, 150 * rate, 75 * rate], abs=12)


def test_a_group_of_few_and_slow_requests_is_not_taken_as_full_for_one_of_them() -> None:
    """By the last half minute alone one request is more than what it sustains."""
    router = RequestRouter(
        simpy.Environment(), [LatencySlo(name="chat", level=0, ttft_s=1.0, tpot_s=1.0)], [0], 0.85
    )
    pool = ReplicaPool(router, StepTimes(fixed_s=1.0), 1, {0: math.inf})
    group = Group(pools=[pool], capacity_requests_per_s={0: 0.03})
    group.take(0, 0, 50.0)
    assert group.use(0, 51.0, 0.0) == pytest.approx(1 / 51 / 0.03, rel=0.02)


def test_a_workload_does_not_see_those_that_clusters_are_offered_after_it() -> None:
    first, other = taken([[1], [1]], [0.8, 0.5], [1, 0], 0.85)
    assert first == pytest.approx(
        [105, 150], abs=12
    )  # the second of the file comes first, and all of it finds room
    assert other == pytest.approx([135, 0], abs=12)


def test_a_full_pool_refuses_what_would_be_late_and_serves_the_rest_in_time() -> None:
    env = simpy.Environment()
    router = RequestRouter(
        env, [LatencySlo(name="chat", level=0, ttft_s=1.0, tpot_s=0.05)], [0], 0.85
    )
    times = StepTimes(fixed_s=0.02, sequence_s=1e-3, prefill_s_per_token=1e-4)
    group = Group(
        pools=[ReplicaPool(router, times, 4, {0: 0.0425})], capacity_requests_per_s={0: 1.0}
    )
    router.groups = [group]
    router.tiers = {0: [[group]]}
    random = np.random.default_rng(4)
    arrived = np.cumsum(random.exponential(0.02, 6000))
    output = np.maximum(random.exponential(200.0, 6000), 20.0).astype(int)
    requests = [
        Request(i, 0, 0, t, (500, 0, o))
        for i, (t, o) in enumerate(zip(arrived.tolist(), output.tolist(), strict=True))
    ]

    env.process(arrive(router, requests))
    env.run(until=60.0)
    assert router.arrived == router.completed + router.refused + router.in_flight
    env.run()
    assert router.refused > 1000
    served = [request for request in requests if np.isfinite(request.finished_s)]
    assert len(served) + router.refused == 6000
    keeps = [(r.finished_s - r.first_token_s) / (r.output_tokens - 1) <= 0.05 for r in served]
    answers = [r.first_token_s - r.arrived_s <= 1.0 for r in served]
    assert np.mean(keeps) > 0.99
    assert np.mean(answers) > 0.95


def test_a_prompt_prefilled_apart_moves_before_its_first_token() -> None:
    """By hand: a step of the worker with 800 fresh tokens, their cache on its way, handover, a step that decodes."""
    env = simpy.Environment()
    router = RequestRouter(
        env, [LatencySlo(name="chat", level=0, ttft_s=9.0, tpot_s=1.0)], [0], 0.85
    )
    worker = StepTimes(fixed_s=0.02, prefill_s_per_token=1e-4)
    stage = PrefillStage(
        times=worker, replicas=1.0, share=0.5, transfer_s_per_token=1e-3, handover_s=0.2
    )
    pool = ReplicaPool(router, StepTimes(fixed_s=0.01), 2, {0: math.inf}, stage)
    group = Group(pools=[pool], capacity_requests_per_s={0: 1.0})
    router.groups, router.tiers, router.deferred = [group], {0: [[group]]}, {0: deque()}
    request = Request(0, 0, 0, 0.0, (1000, 200, 3))
    router.arrive(request)
    env.run()
    first_s = 0.02 + 800 * 1e-4 + 800 * 1e-3 + 0.2 + 0.01
    assert request.first_token_s == pytest.approx(first_s)
    assert request.finished_s == pytest.approx(first_s + 2 * 0.01)
    assert (router.completed, router.in_flight, pool.loads) == (1, 0, [0, 0])
