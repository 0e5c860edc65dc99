from __future__ import annotations

import dataclasses

import pytest

from planner.errors import CapacityError
from planner.physics.coefficients import prior_calibration
from planner.physics.sizing import Service, best_replica, sized_replicas
from tests.physics.cases import H200, LLAMA_70B, LLAMA_405B

SERVICE = Service(input_tokens=1000, output_tokens=500, precision="fp8", ttft_s=2.0, tpot_s=0.05)
PRIOR = prior_calibration()


def test_degrees_come_smallest_first_and_meet_the_objective() -> None:
    found = sized_replicas(H200, LLAMA_70B, "vllm", SERVICE, PRIOR)
    assert [replica.tensor_parallel for replica in found] == [1, 2, 4, 8]
    assert all(replica.tpot_s <= 0.05 and replica.ttft_s <= 2.0 for replica in found)


def test_the_best_serves_most_per_accelerator() -> None:
    found = sized_replicas(H200, LLAMA_70B, "vllm", SERVICE, PRIOR)
    best = best_replica(H200, LLAMA_70B, "vllm", SERVICE, PRIOR)
    assert best.requests_per_s / best.tensor_parallel == max(r.requests_per_s / r.tensor_parallel for r in found)
    assert best.output_tokens_per_s == pytest.approx(500 * best.requests_per_s)


def test_a_tight_objective_takes_more_accelerators() -> None:
    tight = dataclasses.replace(SERVICE, tpot_s=0.015)
    assert best_replica(H200, LLAMA_70B, "vllm", tight, PRIOR).tensor_parallel > 1


def test_an_impossible_objective_says_what_is_possible() -> None:
    with pytest.raises(CapacityError, match=r"one sequence alone takes .* on 8 accelerators"):
        best_replica(H200, LLAMA_70B, "vllm", dataclasses.replace(SERVICE, tpot_s=0.001), PRIOR)


def test_a_model_that_does_not_fit_says_what_would() -> None:
    with pytest.raises(CapacityError, match="fp8 would fit"):
        best_replica(
            dataclasses.replace(H200, scaleup_accelerators=4),
            LLAMA_405B,
            "vllm",
            dataclasses.replace(SERVICE, precision="bf16"),
            PRIOR,
        )


def test_a_precision_the_part_lacks_is_refused() -> None:
    with pytest.raises(CapacityError, match="no fp4 arithmetic"):
        best_replica(H200, LLAMA_70B, "vllm", dataclasses.replace(SERVICE, precision="fp4"), PRIOR)


def test_wider_lengths_serve_fewer() -> None:
    wide = dataclasses.replace(SERVICE, input_p95_tokens=3000, output_p95_tokens=1500)
    even = best_replica(H200, LLAMA_70B, "vllm", SERVICE, PRIOR)
    assert best_replica(H200, LLAMA_70B, "vllm", wide, PRIOR).requests_per_s < even.requests_per_s


def test_cached_prefixes_serve_more() -> None:
    cached = dataclasses.replace(SERVICE, prefix_cache_hit_fraction=0.9)
    even = best_replica(H200, LLAMA_70B, "vllm", SERVICE, PRIOR)
    assert best_replica(H200, LLAMA_70B, "vllm", cached, PRIOR).requests_per_s > even.requests_per_s
