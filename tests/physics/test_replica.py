from __future__ import annotations

import numpy as np
import pytest

from planner.physics.coefficients import NAMES, Calibration, prior_calibration
from planner.physics.replica import Replicas, ReplicaSpec, all_reduce_hops, describe, price, price_replicas
from tests.physics.cases import B200, DEEPSEEK, GPT_OSS, H200, LLAMA_8B, LLAMA_70B, MI300X, MIXTRAL

PEAK = Calibration(
    common=dict.fromkeys(NAMES, 1.0)
    | dict.fromkeys(("hop_s", "request_s", "layer_s", "moe_layer_s", "ttft_fixed_s"), 0.0),
    engine_log_deviation={},
    vendor_log_deviation={},
)


def _one(spec: ReplicaSpec, calibration: Calibration = PEAK) -> Replicas:
    return price_replicas([spec], calibration)


def test_decode_ceiling_is_bandwidth_over_weights() -> None:
    # "MI300X 38 tok/s for 70B FP16" (source articles): 5.3 TB/s over 139 GB read per token.
    spec = ReplicaSpec(part=MI300X, shape=LLAMA_70B, precision="bf16", accelerators=1)
    assert 1.0 / _one(spec).fixed_s[0] == pytest.approx(38, rel=0.01)


def test_prefill_at_peak_is_two_flops_per_parameter() -> None:
    spec = ReplicaSpec(part=H200, shape=LLAMA_8B, precision="bf16", accelerators=1)
    assert _one(spec).prefill_s_per_token[0] == pytest.approx(2 * LLAMA_8B.active_parameters / 989e12)


def test_tensor_parallel_divides_streams_and_adds_links() -> None:
    one = _one(ReplicaSpec(part=H200, shape=LLAMA_70B, precision="fp8", accelerators=1))
    four = _one(ReplicaSpec(part=H200, shape=LLAMA_70B, precision="fp8", accelerators=4))
    assert four.fixed_s[0] == pytest.approx(one.fixed_s[0] / 4)
    assert four.kv_s_per_token[0] == pytest.approx(one.kv_s_per_token[0] / 4)
    # Ring or switch, an all-reduce moves 2·(n − 1)/n of the tensor through each port, twice a layer.
    moved = 2 * 80 * 2 * (3 / 4) * 8192 * 2 / 450e9
    assert four.prefill_s_per_token[0] == pytest.approx(one.prefill_s_per_token[0] / 4 + moved)


def test_hops_are_logarithmic_through_a_switch_and_linear_without() -> None:
    assert [all_reduce_hops(H200, n) for n in (1, 2, 8)] == [0, 1, 3]
    assert [all_reduce_hops(MI300X, n) for n in (1, 2, 8)] == [0, 1, 7]


def test_expert_missed_is_the_chance_of_not_being_routed() -> None:
    work = describe([ReplicaSpec(part=H200, shape=MIXTRAL, precision="fp8", accelerators=1)])
    assert np.exp(work.log_expert_missed[0]) == pytest.approx(6 / 8)


def test_dense_models_have_no_experts_to_stream() -> None:
    work = describe([ReplicaSpec(part=H200, shape=LLAMA_8B, precision="fp8", accelerators=1)])
    assert work.routed_stream_s[0] == 0
    assert work.log_expert_missed[0] == 0


@pytest.mark.parametrize(
    ("coefficient", "spec", "is_felt"),
    [
        ("fp4_weight", ReplicaSpec(part=B200, shape=LLAMA_70B, precision="fp4", accelerators=1), True),
        ("fp4_weight", ReplicaSpec(part=B200, shape=LLAMA_70B, precision="fp8", accelerators=1), False),
        ("emulated_fp4", ReplicaSpec(part=H200, shape=GPT_OSS, precision="fp4", accelerators=1), True),
        ("emulated_fp4", ReplicaSpec(part=B200, shape=GPT_OSS, precision="fp4", accelerators=1), False),
        ("moe_compute", ReplicaSpec(part=B200, shape=DEEPSEEK, precision="fp8", accelerators=8), True),
        ("moe_compute", ReplicaSpec(part=B200, shape=LLAMA_70B, precision="fp8", accelerators=8), False),
        ("latent_kv", ReplicaSpec(part=B200, shape=DEEPSEEK, precision="fp8", accelerators=8), True),
        ("latent_kv", ReplicaSpec(part=B200, shape=GPT_OSS, precision="fp4", accelerators=1), False),
        ("fp4_compute", ReplicaSpec(part=B200, shape=GPT_OSS, precision="fp4", accelerators=1), False),
        ("fp4_compute", ReplicaSpec(part=B200, shape=DEEPSEEK, precision="fp4", accelerators=8), True),
    ],
)
def test_class_factors_act_where_they_belong(coefficient: str, spec: ReplicaSpec, is_felt: bool) -> None:
    prior = prior_calibration()
    doubled = Calibration(
        common={**prior.common, coefficient: 2 * prior.common[coefficient]},
        engine_log_deviation={},
        vendor_log_deviation={},
    )
    before, after = _one(spec, prior), _one(spec, doubled)
    changed = any(
        getattr(before, name)[0] != getattr(after, name)[0]
        for name in ("fixed_s", "routed_s", "sequence_s", "kv_s_per_token", "prefill_s_per_token")
    )
    assert changed == is_felt


def test_every_coefficient_is_used() -> None:
    specs = [
        ReplicaSpec(part=B200, shape=LLAMA_70B, precision="fp4", accelerators=4),
        ReplicaSpec(part=H200, shape=GPT_OSS, precision="fp4", accelerators=2),
        ReplicaSpec(part=B200, shape=DEEPSEEK, precision="fp8", accelerators=8),
    ]
    work = describe(specs)
    base = prior_calibration().coefficients([""] * 3, ["nvidia"] * 3)
    before = price(work, base).table()
    for name in NAMES:
        after = price(work, {**base, name: base[name] * 1.5}).table()
        assert not np.array_equal(before, after), name


def test_an_engine_reserves_cache_by_its_habit_unless_told() -> None:
    habits = [
        ReplicaSpec(part=H200, shape=LLAMA_8B, precision="fp8", accelerators=1, engine=engine)
        for engine in ("tensorrt-llm", "vllm", "unheard-of")
    ]
    told = ReplicaSpec(
        part=H200, shape=LLAMA_8B, precision="fp8", accelerators=1, engine="vllm", reserved_output_fraction=0.7
    )
    assert list(describe([*habits, told]).reserved_output_fraction) == [1.0, 0.5, 0.5, 0.7]
