from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.physics.coefficients import MAX_SEQUENCES, Calibration, prior_calibration
from planner.physics.replica import (
    OperatingPoint,
    Replicas,
    ReplicaSpec,
    Traffic,
    at_concurrency,
    at_objective,
    at_saturation,
    price_replicas,
)
from tests.physics.cases import (
    B200,
    DEEPSEEK,
    GPT_OSS,
    H200,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B,
    MIXTRAL,
)

SPECS = [
    ReplicaSpec(part=H200, shape=LLAMA_70B, precision="fp8", accelerators=1, engine="vllm"),
    ReplicaSpec(part=H200, shape=LLAMA_8B, precision="bf16", accelerators=1, engine="vllm"),
    ReplicaSpec(part=B200, shape=DEEPSEEK, precision="fp4", accelerators=8, engine="sglang"),
    ReplicaSpec(part=H200, shape=GPT_OSS, precision="fp4", accelerators=2, engine="tensorrt-llm"),
    ReplicaSpec(part=H200, shape=MIXTRAL, precision="fp8", accelerators=2, engine="vllm"),
]
REPLICAS = price_replicas(SPECS, prior_calibration())
lengths = st.floats(16, 32_000)
replica_index = st.integers(0, len(SPECS) - 1)


def _at(
    concurrency: float, replica: int = 0, replicas: Replicas = REPLICAS, **traffic: float
) -> OperatingPoint:
    asked = Traffic(**{"input_tokens": 1024.0, "output_tokens": 512.0, **traffic})
    return at_concurrency(replicas, np.array([replica]), asked, np.array([concurrency]))


def _context(spec: ReplicaSpec, prompt: float, output: float, output_cv: float) -> float:
    tokens = prompt + output / 2 * (
        1 + output_cv**2
    )  # of a token of a reply: those of long replies are more
    windowed = spec.shape.sliding_layers_fraction
    return tokens - windowed * max(tokens - spec.shape.sliding_window_tokens, 0)


spreads = st.floats(0.0, 2.5)


@settings(deadline=None)
@given(
    replica=replica_index,
    concurrency=st.floats(1, 300),
    prompt=lengths,
    output=lengths,
    spread=st.tuples(spreads, spreads),
    cached=st.floats(0.0, 0.9),
)
def test_the_step_is_the_sum_written_in_the_documentation(
    replica: int,
    concurrency: float,
    prompt: float,
    output: float,
    spread: tuple[float, float],
    cached: float,
) -> None:
    stated = {
        "input_tokens": prompt,
        "output_tokens": output,
        "input_cv": spread[0],
        "output_cv": spread[1],
    }
    point = _at(concurrency, replica, REPLICAS, **stated, cached_fraction=cached)
    batch = point.running_sequences[0]
    column = {name: figures[replica] for name, figures in REPLICAS.items()}
    half = prompt / 2 - column["windowed_fraction"] * max(prompt / 2 - column["window_tokens"], 0)
    attention = column["attention_s_per_token2"] * half * (1 + spread[0] ** 2) * (1 - cached**2)
    prefill = prompt * (column["prefill_s_per_token"] * (1 - cached) + attention)
    missed = np.exp(column["log_expert_missed"]) ** batch
    context = _context(SPECS[replica], prompt, output, spread[1])
    step = (
        column["fixed_s"]
        + column["routed_s"] * (1 - missed)
        + batch * (column["sequence_s"] + column["kv_s_per_token"] * context)
        + batch / output * prefill
    )
    assert point.tpot_s[0] == pytest.approx(step, rel=1e-9)


@settings(deadline=None)
@given(
    replica=replica_index,
    concurrency=st.floats(1, 2000),
    prompt=lengths,
    output=lengths,
    burst=st.sampled_from([0.0, 1.0]),
)
def test_little_s_law_holds(
    replica: int, concurrency: float, prompt: float, output: float, burst: float
) -> None:
    point = _at(
        concurrency, replica, input_tokens=prompt, output_tokens=output, burst_fraction=burst
    )
    if not point.fits[0]:
        return
    in_system = point.requests_per_s[0] * (point.ttft_s[0] + output * point.tpot_s[0])
    # Without bursts, five tangents leave the wait for prefills begun by others half a percent off at the very worst.
    assert in_system == pytest.approx(concurrency, rel=1e-9 if burst else 0.01)
    assert point.running_sequences[0] <= concurrency * (1 + 1e-9)


@settings(deadline=None)
@given(replica=replica_index, concurrency=st.floats(1, 500), prompt=lengths, output=lengths)
def test_more_load_is_slower_and_serves_more(
    replica: int, concurrency: float, prompt: float, output: float
) -> None:
    light = _at(concurrency, replica, input_tokens=prompt, output_tokens=output)
    heavy = _at(1.5 * concurrency, replica, input_tokens=prompt, output_tokens=output)
    if light.fits[0]:
        assert heavy.tpot_s[0] >= light.tpot_s[0] * (1 - 1e-9)
        assert heavy.ttft_s[0] >= light.ttft_s[0] * (1 - 1e-9)
        assert heavy.output_tokens_per_s_per_accelerator[
            0
        ] >= light.output_tokens_per_s_per_accelerator[0] * (1 - 1e-9)


@settings(deadline=None)
@given(
    replica=replica_index,
    prompt=st.floats(16, 8000),
    output=st.floats(16, 4000),
    tpot=st.floats(0.005, 0.2),
)
def test_an_objective_is_met_and_not_undershot(
    replica: int, prompt: float, output: float, tpot: float
) -> None:
    traffic = Traffic(input_tokens=prompt, output_tokens=output)
    point = at_objective(REPLICAS, np.array([replica]), traffic, 5.0, tpot)
    alone = at_objective(REPLICAS, np.array([replica]), traffic, np.inf, np.inf)
    if point.running_sequences[0] == 0:
        loads = at_concurrency(REPLICAS, np.full(40, replica), traffic, np.linspace(1, 80, 40))
        busy = loads.running_sequences >= 1
        assert np.all((loads.tpot_s[busy] > tpot) | (loads.ttft_s[busy] > 5.0))
        return
    assert point.tpot_s[0] <= tpot * (1 + 1e-6)
    assert point.ttft_s[0] <= 5.0 * (1 + 1e-6)
    reached = max(point.tpot_s[0] / tpot, point.ttft_s[0] / 5.0)
    assert reached > 0.998 or point.running_sequences[0] == pytest.approx(
        alone.running_sequences[0]
    )


def test_saturation_is_the_end_of_concurrency() -> None:
    traffic = Traffic(input_tokens=1000.0, output_tokens=500.0)
    index = np.arange(len(SPECS))
    full = at_saturation(REPLICAS, index, traffic)
    crowded = at_concurrency(REPLICAS, index, traffic, 1e6)
    assert crowded.output_tokens_per_s_per_accelerator == pytest.approx(
        full.output_tokens_per_s_per_accelerator
    )
    assert np.all(np.isinf(full.ttft_s))
    assert np.all(full.running_sequences <= MAX_SEQUENCES)


def test_a_cached_prefix_saves_prefill_but_not_memory() -> None:
    # Agentic traffic: 96% of a long prompt is cached. Ignoring that overstates prefill some 25-fold.
    cold = _at(16, input_tokens=20_000, output_tokens=200)
    warm = _at(16, input_tokens=20_000, output_tokens=200, cached_fraction=0.96)
    assert warm.tpot_s[0] < 0.5 * cold.tpot_s[0]
    full_cold = at_saturation(
        REPLICAS, np.array([0]), Traffic(input_tokens=20_000.0, output_tokens=200.0)
    )
    full_warm = at_saturation(
        REPLICAS,
        np.array([0]),
        Traffic(input_tokens=20_000.0, output_tokens=200.0, cached_fraction=0.96),
    )
    assert full_warm.running_sequences[0] == full_cold.running_sequences[0]
    assert (
        full_warm.output_tokens_per_s_per_accelerator[0]
        > 3 * full_cold.output_tokens_per_s_per_accelerator[0]
    )


def test_a_model_that_does_not_fit_serves_nothing() -> None:
    replicas = price_replicas(
        [ReplicaSpec(part=H200, shape=LLAMA_405B, precision="fp8", accelerators=1)],
        prior_calibration(),
    )
    for point in (
        _at(4, replicas=replicas),
        at_saturation(replicas, np.array([0]), Traffic(input_tokens=10.0, output_tokens=10.0)),
        at_objective(
            replicas, np.array([0]), Traffic(input_tokens=10.0, output_tokens=10.0), 1.0, 1.0
        ),
    ):
        assert not point.fits[0]
        assert point.output_tokens_per_s_per_accelerator[0] == 0
        assert np.isinf(point.tpot_s[0])


def test_doubling_every_rate_halves_every_time() -> None:
    prior = prior_calibration()
    seconds = {name: number * 2 for name, number in prior.common.items()}
    for name in (
        "fp4_weight",
        "emulated_fp4",
        "expert_imbalance",
        "fp4_compute",
        "moe_compute",
        "latent_kv",
        "draft",
    ):
        seconds[name] = prior.common[name]  # factors on the others
    for name in ("ttft_prefill", "ttft_burst", "ttft_burst_steps", "ttft_arrival_steps"):
        seconds[name] = prior.common[name]  # counts
    slow = price_replicas(
        SPECS, Calibration(common=seconds, engine_log_deviation={}, vendor_log_deviation={})
    )
    index = np.arange(len(SPECS))
    traffic = Traffic(input_tokens=1000.0, output_tokens=500.0)
    fast_point, slow_point = (at_concurrency(r, index, traffic, 64.0) for r in (REPLICAS, slow))
    assert slow_point.tpot_s == pytest.approx(2 * fast_point.tpot_s, rel=1e-9)
    assert slow_point.ttft_s == pytest.approx(2 * fast_point.ttft_s, rel=1e-9)
