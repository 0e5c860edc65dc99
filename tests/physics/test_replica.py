from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from planner.catalog.load import load_catalog, part_of, shape_of
from planner.physics.coefficients import NAMES, Calibration, prior_calibration
from planner.physics.model_on_part import AcceleratorSpec, ModelShape
from planner.physics.replica import (
    Lengths,
    Replicas,
    ReplicaSpec,
    ReplicaTimes,
    Traffic,
    all_reduce_hops,
    at_concurrency,
    describe,
    port_bytes_per_s,
    price,
    price_replicas,
)
from planner.requests.batching import StepTimes
from tests.physics.cases import B200, DEEPSEEK, GPT_OSS, H200, LLAMA_8B, LLAMA_70B, MI300X, MIXTRAL
from tests.shipped import shipped_calibration

PEAK = Calibration(
    common=dict.fromkeys(NAMES, 1.0)
    | dict.fromkeys(
        (
            "hop_s",
            "request_s",
            "step_s",
            "layer_s",
            "visit_s",
            "latent_layer_s",
            "normed_layer_s",
            "ttft_fixed_s",
        ),
        0.0,
    ),
    engine_log_deviation={},
    vendor_log_deviation={},
)


def _one(spec: ReplicaSpec, calibration: Calibration = PEAK) -> Replicas:
    return price_replicas([spec], calibration)


def test_decode_ceiling_is_bandwidth_over_weights() -> None:
    # "MI300X 38 tok/s for 70B FP16" (source articles): 5.3 TB/s over 139 GB read per token.
    spec = ReplicaSpec(part=MI300X, shape=LLAMA_70B, precision="bf16", accelerators=1)
    assert 1.0 / _one(spec)["fixed_s"][0] == pytest.approx(38, rel=0.01)


def test_prefill_at_peak_is_two_flops_per_parameter() -> None:
    spec = ReplicaSpec(part=H200, shape=LLAMA_8B, precision="bf16", accelerators=1)
    assert _one(spec)["prefill_s_per_token"][0] == pytest.approx(
        2 * LLAMA_8B.active_parameters / 989e12
    )


def test_tensor_parallel_divides_streams_and_adds_links() -> None:
    one = _one(ReplicaSpec(part=H200, shape=LLAMA_70B, precision="fp8", accelerators=1))
    four = _one(ReplicaSpec(part=H200, shape=LLAMA_70B, precision="fp8", accelerators=4))
    assert four["fixed_s"][0] == pytest.approx(one["fixed_s"][0] / 4)
    assert four["kv_s_per_token"][0] == pytest.approx(one["kv_s_per_token"][0] / 4)
    # Ring or switch, an all-reduce moves 2·(n − 1)/n of the tensor through each port, twice a layer.
    moved = 2 * 80 * 2 * (3 / 4) * 8192 * 2 / 450e9
    assert four["prefill_s_per_token"][0] == pytest.approx(
        one["prefill_s_per_token"][0] / 4 + moved
    )


def test_hops_are_logarithmic_through_a_switch_and_linear_without() -> None:
    assert [all_reduce_hops(H200, n) for n in (1, 2, 8)] == [0, 1, 3]
    assert [all_reduce_hops(MI300X, n) for n in (1, 2, 8)] == [0, 1, 7]


def test_expert_missed_is_the_chance_of_not_being_routed() -> None:
    work = describe([ReplicaSpec(part=H200, shape=MIXTRAL, precision="fp8", accelerators=1)])
    assert np.exp(work["log_expert_missed"][0]) == pytest.approx(6 / 8)


@pytest.mark.parametrize(
    ("coefficient", "part", "shape", "precision", "accelerators", "is_felt"),
    [
        ("fp4_weight", B200, LLAMA_70B, "fp4", 1, True),
        ("fp4_weight", B200, LLAMA_70B, "fp8", 1, False),
        ("emulated_fp4", H200, GPT_OSS, "fp4", 1, True),
        ("emulated_fp4", B200, GPT_OSS, "fp4", 1, False),
        ("moe_compute", B200, DEEPSEEK, "fp8", 8, True),
        ("moe_compute", B200, LLAMA_70B, "fp8", 8, False),
        ("latent_kv", B200, DEEPSEEK, "fp8", 8, True),
        ("latent_kv", B200, GPT_OSS, "fp4", 1, False),
        ("fp4_compute", B200, GPT_OSS, "fp4", 1, False),
        ("fp4_compute", B200, DEEPSEEK, "fp4", 8, True),
    ],
)
def test_class_factors_act_where_they_belong(
    coefficient: str,
    part: AcceleratorSpec,
    shape: ModelShape,
    precision: str,
    accelerators: int,
    is_felt: bool,
) -> None:
    spec = ReplicaSpec(part=part, shape=shape, precision=precision, accelerators=accelerators)
    prior = prior_calibration()
    doubled = Calibration(
        common={**prior.common, coefficient: 2 * prior.common[coefficient]},
        engine_log_deviation={},
        vendor_log_deviation={},
    )
    before = _one(spec, prior)
    after = _one(spec, doubled)
    changed = any(
        before[name][0] != after[name][0]
        for name in ("fixed_s", "routed_s", "sequence_s", "kv_s_per_token", "prefill_s_per_token")
    )
    assert changed == is_felt


def test_every_coefficient_is_used() -> None:
    specs = [
        ReplicaSpec(part=B200, shape=LLAMA_70B, precision="fp4", accelerators=4),
        ReplicaSpec(part=H200, shape=GPT_OSS, precision="fp4", accelerators=2),
        ReplicaSpec(
            part=B200,
            shape=dataclasses.replace(DEEPSEEK, qk_norm=True, index_heads=64, index_head_dim=128),
            precision="fp8",
            accelerators=8,
            expert_parallel=True,
            drafted_tokens=1,
        ),
    ]
    work = describe(specs)
    base = prior_calibration().coefficients([""] * 3, ["nvidia"] * 3)
    before = price(work, base)
    for name in NAMES:
        after = price(work, {**base, name: base[name] * 1.5})
        assert any(not np.array_equal(before[column], after[column]) for column in before), name


def test_an_engine_reserves_cache_by_its_habit_unless_told() -> None:
    habits = [
        ReplicaSpec(part=H200, shape=LLAMA_8B, precision="fp8", accelerators=1, engine=engine)
        for engine in ("tensorrt-llm", "vllm", "unheard-of")
    ]
    told = ReplicaSpec(
        part=H200,
        shape=LLAMA_8B,
        precision="fp8",
        accelerators=1,
        engine="vllm",
        reserved_output_fraction=0.7,
    )
    assert list(describe([*habits, told])["reserved_output_fraction"]) == [1.0, 0.5, 0.5, 0.7]


def _deepseek(attention_data_parallel: int = 1, max_sequences: int | None = None) -> ReplicaSpec:
    return ReplicaSpec(
        part=B200,
        shape=DEEPSEEK,
        precision="fp8",
        accelerators=8,
        engine="sglang",
        attention_data_parallel=attention_data_parallel,
        max_sequences=max_sequences,
    )


def test_attention_in_data_parallel_holds_each_sequence_once() -> None:
    """By hand: eight groups hold eight times the latent cache, less the weights of attention they copy."""
    together, apart = describe([_deepseek(), _deepseek(attention_data_parallel=8)])[
        "kv_capacity_tokens"
    ]
    per_token = DEEPSEEK.layers * (
        DEEPSEEK.kv_lora_rank + DEEPSEEK.qk_rope_head_dim
    )  # one byte each
    copied = 7 * DEEPSEEK.layers * DEEPSEEK.layer_attention_parameters * (1 + 4 / 128**2)
    assert together * 8 * per_token - apart * per_token == pytest.approx(copied, rel=1e-9)


def test_attention_in_data_parallel_reads_less_cache_and_more_weights() -> None:
    together, apart = (
        describe([spec]) for spec in (_deepseek(), _deepseek(attention_data_parallel=8))
    )
    assert apart["kv_stream_s_per_token"][0] == pytest.approx(
        together["kv_stream_s_per_token"][0] / 8
    )
    copied = 7 * DEEPSEEK.layers * DEEPSEEK.layer_attention_parameters * (1 + 4 / 128**2)
    more_s = apart["shared_stream_s"][0] - together["shared_stream_s"][0]
    assert more_s == pytest.approx(copied / (8 * B200.hbm_bytes_per_s), rel=1e-9)
    assert apart["routed_stream_s"][0] == together["routed_stream_s"][0]


def test_attention_in_data_parallel_sends_tokens_to_their_experts_alone() -> None:
    """Two all-reduces become one dispatch of a token to eight experts at 8 bits and back at 16, over eight ports."""
    together, apart = (
        describe([spec]) for spec in (_deepseek(), _deepseek(attention_data_parallel=8))
    )
    width = DEEPSEEK.layers * DEEPSEEK.hidden_size
    assert together["link_s_per_token"][0] == pytest.approx(
        2 * 2 * 2 * width * 7 / 8 / B200.link_bytes_per_s
    )
    dispatch = 8 * 3 * width * 7 / 8 / 8
    assert apart["link_s_per_token"][0] == pytest.approx(dispatch / B200.link_bytes_per_s)
    # In pairs, an all-reduce of half of the tensor besides, of a quarter of the tokens.
    pairs = describe([_deepseek(attention_data_parallel=4)])["link_s_per_token"][0]
    assert pairs == pytest.approx((dispatch + 2 * 2 * width / 2 / 4) / B200.link_bytes_per_s)


def test_an_effect_slows_every_step_and_not_the_first_token() -> None:
    work = describe([_deepseek()])
    prior = prior_calibration().coefficients(["sglang"], ["nvidia"])
    plain = price(work, prior)
    slowed = price(work, prior, np.log(1.3))
    for name in ("fixed_s", "routed_s", "sequence_s", "kv_s_per_token", "prefill_s_per_token"):
        assert slowed[name] == pytest.approx(1.3 * plain[name]), name
    assert slowed["ttft_prefill"] * slowed["prefill_s_per_token"] == pytest.approx(
        plain["ttft_prefill"] * plain["prefill_s_per_token"]
    )


@pytest.mark.parametrize(
    ("part", "accelerators", "published"),
    [
        ("B200", 8, (1.80, 1.70, 1.55, 1.39, 1.25, 1.16, 1.115)),
        ("MI355X", 4, (1.74, 1.57, 1.39, 1.34, 1.14, 0.92)),
    ],
)
def test_the_gain_of_speculation_falls_with_the_batch_as_published(
    part: str, accelerators: int, published: tuple[float, ...]
) -> None:
    """GLM-5 under SGLang with multi-token prediction over without, 8k/1k, concurrency 4, 8, ... (InferenceX, May 2026).

    Three drafts and 2.7 tokens a step are what published acceptance (2.5 to 3.1) says of prose; none of these ratios is
    in the calibration.
    """
    catalog = load_catalog()
    certain, drafted = (
        price_replicas(
            [
                ReplicaSpec(
                    part=part_of(part, catalog),
                    shape=shape_of("glm-5", catalog),
                    precision="fp8",
                    accelerators=accelerators,
                    engine="sglang",
                    drafted_tokens=drafts,
                    mean_acceptance_length=accepted,
                )
            ],
            shipped_calibration(),
        )
        for drafts, accepted in ((0, 1.0), (3, 2.7))
    )
    concurrency = 4.0 * 2.0 ** np.arange(len(published))
    index = np.zeros(len(published), dtype=int)
    traffic = Traffic(input_tokens=7373.0, output_tokens=922.0)
    gain = (
        at_concurrency(drafted, index, traffic, concurrency).output_tokens_per_s_per_accelerator
        / at_concurrency(certain, index, traffic, concurrency).output_tokens_per_s_per_accelerator
    )
    assert gain == pytest.approx(published, rel=0.32)
    assert np.median(np.abs(gain / published - 1)) < 0.10
    assert gain[-1] < 0.75 * gain[0]


def test_a_mesh_lends_a_replica_only_its_own_links() -> None:
    """An MI300X reaches each of seven others over one link of 64 GB/s; a pair has one link, a switch lends all."""
    pair, four, eight = (port_bytes_per_s(MI300X, count) for count in (2, 4, 8))
    assert (pair, four, eight) == pytest.approx((64e9, 192e9, 448e9))
    assert port_bytes_per_s(B200, 2) == B200.link_bytes_per_s


def test_a_mixture_layer_costs_by_the_experts_a_token_visits() -> None:
    """Eight routed experts and a shared one in 58 layers: nine visits each; fewer than four are never charged."""
    work = describe(
        [
            ReplicaSpec(part=B200, shape=DEEPSEEK, precision="fp8", accelerators=8),
            ReplicaSpec(part=H200, shape=MIXTRAL, precision="fp8", accelerators=1),
            ReplicaSpec(part=H200, shape=LLAMA_8B, precision="fp8", accelerators=1),
        ]
    )
    assert list(work["expert_visits"]) == [58 * 9, MIXTRAL.layers * 4, 0]


def test_an_indexer_is_charged_by_layer_by_token_and_over_the_context() -> None:
    """Sparse attention over 2,048 tokens: beyond them a longer context still costs what the indexer reads of it."""
    sparse = dataclasses.replace(DEEPSEEK, attended_tokens=2048, index_heads=64, index_head_dim=128)
    free = dataclasses.replace(sparse, index_heads=0, index_head_dim=0)
    specs = [
        ReplicaSpec(part=B200, shape=one, precision="fp8", accelerators=8) for one in (sparse, free)
    ]
    replicas = price_replicas(specs, prior_calibration())
    assert replicas["fixed_s"][0] - replicas["fixed_s"][1] == pytest.approx(61 * 100e-6)
    share = 128 / (512 + 64)
    capacity = [spec.memory().kv_capacity_tokens for spec in specs]
    assert capacity[1] / capacity[0] == pytest.approx(1 + share)
    # Queries of 64 heads from a rank of 1,536, keys and weights from the residual stream, whole on each of eight ranks.
    extra = 8 * 61 * (1536 * 64 * 128 + 7168 * (128 + 64))
    work = describe(specs)
    assert work["flops_s_per_token"][0] / work["flops_s_per_token"][1] == pytest.approx(
        1 + extra / DEEPSEEK.active_parameters
    )
    index = np.zeros(2, dtype=np.intp)
    traffic = Traffic(
        input_tokens=np.array([8192.0, 16384.0]), output_tokens=512.0, cached_fraction=1.0
    )
    slow, slower = at_concurrency(replicas, index, traffic, np.full(2, 16.0)).tpot_s
    assert (slower - slow) / 16 == pytest.approx(
        8192 * share * replicas["kv_s_per_token"][0], rel=0.02
    )
    level = at_concurrency(replicas, index + 1, traffic, np.full(2, 16.0)).tpot_s
    assert level[0] == pytest.approx(level[1], rel=1e-9)
    for prompt in (
        8192.0,
        16384.0,
    ):  # one formula in the hour, in the SLO model and request by request
        steps = StepTimes.of_replica(replicas, 0)
        context = prompt + 256.0
        hourly = replicas["sequence_s"][0] + replicas["kv_s_per_token"][0] * (
            2048 + share * context
        )
        assert steps.sequences_s(1.0, context) == pytest.approx(hourly)
        alone = Lengths(
            prompt_tokens=np.array([prompt]), prompt_weights=np.ones(1), output_tokens=np.array([512.0]),
            output_weights=np.ones(1), cached_fraction=0.0,
        )  # fmt: skip
        assert ReplicaTimes(replicas, 0, 1.0, alone).sequence_s == pytest.approx(hourly)
