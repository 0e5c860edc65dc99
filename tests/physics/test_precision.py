from __future__ import annotations

import pytest

from planner.physics.model_on_part import (
    canonical_precision,
    compute_flops_per_s,
    refusal,
    shared_weight_bytes,
)
from tests.physics.cases import B200, DEEPSEEK, FORMATS, GPT_OSS, H200, LLAMA_70B, MI300X


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("FP16", "bf16"), ("bfloat16", "bf16"), ("fp8", "fp8"), ("FP8-E4M3", "fp8"), ("fp8_e4m3", "fp8"),
        ("MXFP4", "fp4"), ("nvfp4", "fp4"), (" Fp4 ", "fp4"), ("INT8", "int8"), ("w4a16", "int4"),
    ],
)  # fmt: skip
def test_usual_spellings_are_understood(written: str, meant: str) -> None:
    assert canonical_precision(FORMATS, written) == meant


@pytest.mark.parametrize("written", ["", "int3", "fp2", "tf32"])
def test_other_words_are_not(written: str) -> None:
    assert canonical_precision(FORMATS, written) is None


@pytest.mark.parametrize("part", [H200, MI300X, B200])
def test_weights_published_at_fp4_run_everywhere(part: type) -> None:
    assert refusal(part, GPT_OSS, "fp4") is None  # type: ignore[arg-type]


def test_unpacked_fp4_computes_at_the_wider_rate() -> None:
    assert compute_flops_per_s(H200, GPT_OSS, "fp4") == 989e12
    assert compute_flops_per_s(B200, GPT_OSS, "fp4") == 4500e12
    assert compute_flops_per_s(B200, LLAMA_70B, "fp4") == 9000e12


def test_four_bit_mixtures_keep_attention_wider() -> None:
    assert shared_weight_bytes(FORMATS, GPT_OSS, "fp4") == 2.0
    assert shared_weight_bytes(FORMATS, DEEPSEEK, "fp4") == FORMATS["fp8"].weight_bytes
    assert shared_weight_bytes(FORMATS, LLAMA_70B, "fp4") == FORMATS["fp4"].weight_bytes
