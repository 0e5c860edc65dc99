from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import CapacityError
from planner.physics.model_on_part import (
    CHUNK_TOKENS,
    USABLE_FRACTION,
    AcceleratorSpec,
    activation_bytes,
    candidate_degrees,
    kv_shards,
    memory_fit,
    smallest_fit,
    streamed_shared_bytes,
    weight_bytes,
)
from planner.units import GIB
from tests.physics.cases import (
    B200,
    DEEPSEEK,
    FORMATS,
    GPT_OSS,
    H200,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B,
    MI300X,
    MIXTRAL,
)

H100 = dataclasses.replace(H200, name="H100", hbm_bytes=80 * GIB)


@pytest.mark.parametrize(
    ("part", "precision", "accelerators"),
    # "70B FP16 = 140 GB: 1 MI300X, 2 H100" (source articles); 141 GB do not fit one H200.
    [(MI300X, "bf16", 1), (H100, "bf16", 2), (H200, "bf16", 2), (H200, "fp8", 1)],
)
def test_smallest_replica_of_llama_70b(
    part: AcceleratorSpec, precision: str, accelerators: int
) -> None:
    assert smallest_fit(part, LLAMA_70B, precision, 8192).accelerators == accelerators


def test_405b_on_eight_h100_needs_fp8() -> None:
    assert smallest_fit(H100, LLAMA_405B, "fp8").accelerators == 8
    with pytest.raises(CapacityError, match="fp8 would fit"):
        smallest_fit(H100, LLAMA_405B, "bf16")


def test_a_model_that_fits_nowhere_says_how_many_would() -> None:
    small = dataclasses.replace(H100, scaleup_accelerators=2)
    with pytest.raises(CapacityError, match=re.escape("2 × H100 offer 155 GB: ")) as caught:
        smallest_fit(small, LLAMA_405B, "fp8")
    needed = int(re.search(r": (\d+) would hold it", str(caught.value)).group(1))  # type: ignore[union-attr]
    assert needed >= weight_bytes(FORMATS, LLAMA_405B, "fp8") / (USABLE_FRACTION * 80 * GIB)


def test_a_precision_the_part_lacks_is_refused() -> None:
    with pytest.raises(CapacityError, match="H200 has no fp4 arithmetic"):
        smallest_fit(H200, LLAMA_70B, "fp4")


def test_cache_room_matches_the_queue_in_public_runs() -> None:
    # One H200 with llama-70b at fp8 and 8,192/1,024 tokens ran 46 to 47 sequences before requests queued (TTFT and
    # TPOT of the runs at concurrency 64 and 128, Little's law); lengths there average 0.9 of nominal.
    fit = memory_fit(H200, LLAMA_70B, "fp8", 1)
    assert fit.kv_capacity_tokens // (0.9 * (8192 + 1024 / 2)) == pytest.approx(47, abs=4)


def test_latent_cache_is_copied_on_every_rank() -> None:
    assert kv_shards(DEEPSEEK, 8) == 1
    assert kv_shards(LLAMA_70B, 4) == 4
    assert kv_shards(LLAMA_70B, 16) == 8  # eight key-value heads: ranks beyond share them
    fit = memory_fit(B200, DEEPSEEK, "fp4", 8)
    assert fit.kv_bytes_per_token == 8 * 61 * 576


def test_streamed_bytes_leave_out_embedding_and_experts() -> None:
    everything = weight_bytes(FORMATS, LLAMA_8B, "bf16")
    assert everything - streamed_shared_bytes(FORMATS, LLAMA_8B, "bf16") == 2 * 128256 * 4096
    assert streamed_shared_bytes(FORMATS, GPT_OSS, "fp4") < 0.1 * weight_bytes(
        FORMATS, GPT_OSS, "fp4"
    )


def test_gpt_oss_weighs_what_is_published() -> None:
    assert weight_bytes(FORMATS, GPT_OSS, "fp4") / GIB == pytest.approx(
        60.8, rel=0.02
    )  # model card: 60.8 GiB checkpoint


def test_degrees_divide_the_heads_and_stay_in_the_domain() -> None:
    assert candidate_degrees(H200, LLAMA_70B) == [1, 2, 4, 8]
    odd = dataclasses.replace(LLAMA_8B, heads=12)
    assert candidate_degrees(H200, odd) == [1, 2, 4]


@given(degree=st.sampled_from([1, 2, 4]), context=st.floats(1, 1e5))
def test_more_accelerators_never_hold_less(degree: int, context: float) -> None:
    fewer = memory_fit(H200, LLAMA_70B, "fp8", degree)
    more = memory_fit(H200, LLAMA_70B, "fp8", 2 * degree)
    assert more.kv_capacity_tokens > fewer.kv_capacity_tokens
    assert more.kv_capacity_tokens // context >= fewer.kv_capacity_tokens // context


def test_activations_of_a_chunk_are_whole_residuals_and_split_halves() -> None:
    """Of two bytes a number: 4 · 4,096 of the residual stream and its copy, 2 · 14,336 of gate and up over ranks."""
    for ranks in (1, 4):
        width = 4 * 4096 + 2 * 14336 / ranks
        assert activation_bytes(LLAMA_8B, ranks) == CHUNK_TOKENS * width * 2
    routed = dataclasses.replace(MIXTRAL, expert_intermediate_size=14336)  # two experts a token
    assert activation_bytes(routed, 2) == CHUNK_TOKENS * (4 * 4096 + 2 * 28672 / 2) * 2


def test_what_does_not_fit_has_no_batch() -> None:
    fit = memory_fit(H100, LLAMA_405B, "fp8", 1)
    assert not fit.fits
    assert fit.kv_capacity_tokens // 1000 <= 0
