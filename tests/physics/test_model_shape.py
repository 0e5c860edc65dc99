from __future__ import annotations

import dataclasses

import pytest

from planner.physics.model_on_part import ModelShape
from tests.physics.cases import DEEPSEEK, GPT_OSS, LLAMA_8B, LLAMA_70B, LLAMA_405B, MIXTRAL


def _total_parameters(shape: ModelShape) -> float:
    """Return all parameters, the input embedding included (once more than the head, unless they are tied)."""
    embedding = 0.0 if shape.tied_embeddings else float(shape.vocabulary * shape.hidden_size)
    return shape.shared_parameters + shape.routed_parameters + embedding


@pytest.mark.parametrize(
    ("shape", "published_billions", "tolerance"),
    [
        # Parameter counts from the model cards.
        (LLAMA_8B, 8.03, 0.002),
        (LLAMA_70B, 70.55, 0.002),
        (LLAMA_405B, 405.85, 0.003),
        (MIXTRAL, 46.70, 0.002),
        (DEEPSEEK, 671.0, 0.002),
        (GPT_OSS, 116.8, 0.005),
    ],
)
def test_parameters_match_the_model_card(
    shape: ModelShape, published_billions: float, tolerance: float
) -> None:
    assert _total_parameters(shape) / 1e9 == pytest.approx(published_billions, rel=tolerance)


@pytest.mark.parametrize(
    ("shape", "published_billions", "tolerance"),
    [(MIXTRAL, 12.9, 0.02), (DEEPSEEK, 37.0, 0.02), (GPT_OSS, 5.1, 0.02), (LLAMA_70B, 69.5, 0.01)],
)
def test_active_parameters_match_the_model_card(
    shape: ModelShape, published_billions: float, tolerance: float
) -> None:
    assert shape.active_parameters / 1e9 == pytest.approx(published_billions, rel=tolerance)


def test_grouped_queries_cache_two_vectors_per_head() -> None:
    assert (
        LLAMA_70B.kv_bytes_per_token(2.0) == 80 * 2 * 8 * 128 * 2
    )  # 327,680 bytes: the usual figure for 70B


def test_latent_attention_caches_one_vector() -> None:
    assert (
        DEEPSEEK.kv_bytes_per_token(2.0) == 61 * (512 + 64) * 2
    )  # 70 kB (DeepSeek-V3 report, table 1)


def test_queries_and_output_of_low_rank_over_stored_keys() -> None:
    """Of 32 heads of 128 beside a hidden width of 4,096: down to rank 512 and up, twice; keys and values of 8 heads."""
    low_rank = dataclasses.replace(LLAMA_8B, q_lora_rank=512)
    assert low_rank.layer_attention_parameters == 2 * (4096 * 512 + 512 * 4096) + 2 * 4096 * 1024
    assert LLAMA_8B.layer_attention_parameters == 2 * 4096 * 4096 + 2 * 4096 * 1024


def test_one_shared_vector_serves_as_key_and_value() -> None:
    shape = dataclasses.replace(LLAMA_8B, kv_heads=1, head_dim=512, q_lora_rank=1024)
    assert shape.kv_bytes_per_token(1.0) == 32 * 512


def test_tied_embeddings_are_counted_once() -> None:
    tied = dataclasses.replace(LLAMA_8B, tied_embeddings=True)
    assert _total_parameters(LLAMA_8B) - _total_parameters(tied) == 128256 * 4096
