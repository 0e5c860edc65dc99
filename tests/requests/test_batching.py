"""The replica against a walk token by token, the core's own operating points, and its limits of memory."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import simpy

from docs.generate.by_request import closed_loop
from planner.catalog.load import load_catalog, part_of, shape_of
from planner.physics.replica import (
    Lengths,
    Replicas,
    ReplicaSpec,
    ReplicaTimes,
    Traffic,
    at_concurrency,
    price_replicas,
)
from planner.requests.batching import Replica, Request, StepTimes
from tests.shipped import shipped_calibration

PLAIN = StepTimes(
    fixed_s=0.01,
    stream_s=0.008,
    sequence_s=1e-4,
    kv_s_per_token=1e-7,
    prefill_s_per_token=5e-5,
    attention_s_per_token2=1e-8,
    chunk_tokens=512,
)


def replicas(model: str = "llama-3.1-70b", accelerator: str = "H200", count: int = 2) -> Replicas:
    catalog = load_catalog()
    spec = ReplicaSpec(
        part=part_of(accelerator, catalog),
        shape=shape_of(model, catalog),
        precision="fp8",
        accelerators=count,
        engine="vllm",
    )
    return price_replicas([spec], shipped_calibration())


def serve(
    times: StepTimes, requests: list[Request], pace_s: tuple[float, ...] = (math.inf,)
) -> Replica:
    """Let one replica serve requests as they arrive."""
    env = simpy.Environment()
    replica = Replica(env, times, list(pace_s), lambda _, __: None)

    def arrive() -> object:
        for request in sorted(requests, key=lambda one: one.arrived_s):
            yield env.timeout(request.arrived_s - env.now)
            replica.take(request)

    env.process(arrive())  # type: ignore[arg-type]
    env.run()
    return replica


def test_one_request_by_hand() -> None:
    request = Request(0, 0, 0, 3.0, (1000, 200, 3))
    serve(PLAIN, [request])
    # Two prompt steps of 512 and 288 tokens, each with the fixed part and one sequence.
    chunks_s = [
        tokens * 5e-5 + 1e-8 * 0.5 * (end**2 - (end - tokens) ** 2)
        for tokens, end in ((512, 712), (288, 1000))
    ]
    prompt_s = sum(0.002 + 1e-4 + (0.008**4 + chunk_s**4) ** 0.25 for chunk_s in chunks_s)
    assert request.first_token_s == pytest.approx(3.0 + prompt_s)
    decode_s = 2 * (0.01 + 1e-4) + 1e-7 * (1001 + 1002)
    assert request.finished_s == pytest.approx(3.0 + prompt_s + decode_s)


@pytest.mark.parametrize("model", ["llama-3.1-70b", "gpt-oss-120b", "qwen3-32b"])
@pytest.mark.parametrize("clients", [4, 48])
def test_a_steady_batch_takes_what_the_core_says(model: str, clients: int) -> None:
    priced = replicas(model)
    _, tpot_s = closed_loop(StepTimes.of_replica(priced, 0), clients, 1000, 500)
    traffic = Traffic(input_tokens=1000, output_tokens=500, burst_fraction=1.0)
    expected = at_concurrency(priced, np.zeros(1, dtype=np.intp), traffic, float(clients)).tpot_s[0]
    # Clients that start together prefill together, so their tokens wait for fewer prompts than in a mixed batch.
    assert tpot_s == pytest.approx(expected, rel=0.12)


def test_chunks_of_a_prompt_add_up_to_the_cores_prefill() -> None:
    times = StepTimes.of_replica(replicas("gpt-oss-120b"), 0)
    edges = [300.0, 1000.0, 4000.0, 9000.0]
    pieces = sum(times.chunk_s(9000.0, a, b) for a, b in itertools.pairwise(edges))
    assert pieces == pytest.approx(times.prefill_s(9000.0, 300.0))


@pytest.mark.parametrize(
    "model", ["llama-3.1-70b", "gpt-oss-120b", "deepseek-v3.2", "qwen3.5-397b-a17b"]
)
@pytest.mark.parametrize("prompt", [800.0, 9000.0])
def test_steps_of_equal_requests_are_those_of_the_hourly_model(model: str, prompt: float) -> None:
    """Whatever a model's attention: full, in windows, to some chosen tokens, or linear."""
    priced = replicas(model, count=8)
    one = np.ones(1)
    lengths = Lengths(
        prompt_tokens=prompt * one, prompt_weights=one, output_tokens=200.0 * one, output_weights=one,
        cached_fraction=0.25,
    )  # fmt: skip
    hourly = ReplicaTimes(priced, 0, 1.0, lengths)
    times = StepTimes.of_replica(priced, 0)
    compute_s = times.prefill_s(prompt, 0.25 * prompt)
    beside_s = times.beside_s(compute_s, 1e6, 0.75 * prompt)  # with every expert touched
    sharing = (
        1.5 + 0.5 * (times.fixed_s + times.routed_s) / compute_s
    )  # prompts of a step, which hides weights once
    assert compute_s - (compute_s - beside_s) / sharing == pytest.approx(float(hourly.prefill_s[0]))
    halfway = times.kept_tokens(prompt + 100.0)
    assert times.decode_s(32.0, 32.0 * halfway) == pytest.approx(
        float(hourly.decode_s(np.array([32.0]))[0])
    )
    assert times.max_sequences == priced["max_sequences"][0]


def test_a_model_that_attends_to_so_many_tokens_reads_no_more_as_it_goes_on() -> None:
    times = StepTimes(
        fixed_s=0.01, kv_s_per_token=1e-6, prefill_s_per_token=1e-9, attended_tokens=1000
    )
    short = Request(0, 0, 0, 0.0, (100, 0, 301))
    long = Request(0, 0, 0, 0.0, (5000, 0, 301))
    serve(times, [short])
    serve(times, [long])
    assert long.finished_s - long.first_token_s == pytest.approx(300 * (0.01 + 1e-6 * 1000))
    # Contexts of 101 to 400 tokens.
    assert short.finished_s - short.first_token_s == pytest.approx(300 * (0.01 + 1e-6 * 250.5))


@pytest.mark.parametrize("reserves", [False, True])
def test_cache_is_never_exceeded_and_everything_ends(reserves: bool) -> None:
    times = StepTimes(
        fixed_s=0.01,
        prefill_s_per_token=1e-5,
        kv_capacity_tokens=3000,
        reserves_output=reserves,
        chunk_tokens=512,
    )
    random = np.random.default_rng(3)
    requests = [
        Request(i, 0, 0, float(t), (int(p), 0, int(o)))
        for i, (t, p, o) in enumerate(
            zip(
                np.cumsum(random.exponential(0.2, 80)),
                random.integers(100, 900, 80),
                random.integers(50, 900, 80),
                strict=True,
            )
        )
    ]
    env = simpy.Environment()
    replica = Replica(env, times, [math.inf], lambda _, __: None)

    def arrive() -> object:
        for request in requests:
            yield env.timeout(request.arrived_s - env.now)
            replica.take(request)

    env.process(arrive())  # type: ignore[arg-type]
    most = 0.0
    while env.peek() < math.inf:
        env.step()
        most = max(most, replica.cached_tokens)
    assert all(request.finished_s > request.first_token_s for request in requests)
    # Steps that carry a prompt are not cut short, so what they write may lie a step's tokens beyond.
    assert most <= 3000 + (0 if reserves else 30)
    preemptions = sum(request.preemptions for request in requests)
    assert (preemptions == 0) if reserves else (preemptions > 0)
    assert replica.cached_tokens == pytest.approx(0.0, abs=1e-6)
    assert replica.requests == [0]


def test_a_lower_priority_waits_for_prompts_above_and_keeps_the_pace() -> None:
    times = StepTimes(fixed_s=0.01, sequence_s=1e-3, prefill_s_per_token=1e-4, chunk_tokens=8192)
    chat = [Request(i, 0, 0, 0.5 * i, (1000, 0, 200)) for i in range(40)]
    alone = [Request(i, 0, 0, 0.5 * i, (1000, 0, 200)) for i in range(40)]
    batch = [Request(100 + i, 1, 1, 0.0, (1000, 0, 200)) for i in range(60)]
    serve(times, alone)
    serve(times, [*chat, *batch], (math.inf, 0.030))
    for one, other in zip(chat, alone, strict=True):
        # A step under way when chat arrives has at most the pace's length more than chat's own.
        assert one.first_token_s <= other.first_token_s + 0.060
        assert (one.finished_s - one.first_token_s) / 199 <= 0.045
    assert all(math.isfinite(request.finished_s) for request in batch)


def test_requests_of_a_replica_that_fails_start_again_elsewhere() -> None:
    env = simpy.Environment()
    replica = Replica(env, PLAIN, [math.inf], lambda _, __: None)
    requests = [Request(i, 0, 0, 0.0, (100, 0, 500)) for i in range(5)]
    for request in requests:
        replica.take(request)
    env.run(until=1.0)
    lost = replica.fail()
    env.run(until=2.0)
    assert lost == requests
    assert all(request.retries == 1 and request.left_tokens == 500 for request in lost)
    assert all(
        math.isnan(request.first_token_s) and math.isnan(request.finished_s) for request in lost
    )
    assert replica.cached_tokens == 0.0


def test_clients_that_start_together_wait_for_one_another_by_hand() -> None:
    times = StepTimes(fixed_s=0.01, prefill_s_per_token=1e-4, chunk_tokens=112)
    # Each prompt fills a step of about 0.01 + 0.01 s; the second client's token comes after the first's and its own.
    ttft_s, tpot_s = closed_loop(times, 2, 100, 2)
    assert 0.021 < ttft_s < 0.042
    assert tpot_s >= 0.01
    alone_s, _ = closed_loop(times, 1, 100, 2)
    assert alone_s == pytest.approx(0.02, rel=0.05)
