"""What one accelerator does over another at the same engine and precision, held to public measurements of both."""

from __future__ import annotations

import numpy as np
import pytest

from planner.catalog.load import load_catalog, part_of, shape_of
from planner.physics.replica import ReplicaSpec, Traffic, at_objective, price_replicas
from tests.shipped import shipped_calibration


def tokens_per_s(accelerator: str, engine: str, lengths: tuple[int, int]) -> float:
    """Output tokens per second and accelerator at 30 ms each, in the best of the tensor-parallel degrees measured."""
    catalog = load_catalog()
    part = part_of(accelerator, catalog)
    shape = shape_of("llama-3.1-70b", catalog)
    specs = [
        ReplicaSpec(part=part, shape=shape, precision="fp8", accelerators=count, engine=engine)
        for count in (1, 2, 4, 8)
    ]
    replicas = price_replicas(specs, shipped_calibration())
    traffic = Traffic(input_tokens=float(lengths[0]), output_tokens=float(lengths[1]))
    return float(
        at_objective(
            replicas, np.arange(4), traffic, np.inf, 0.03
        ).output_tokens_per_s_per_accelerator.max()
    )


@pytest.mark.parametrize("lengths", [(1024, 1024), (8192, 1024)])
def test_h200_over_mi325x_with_vllm_is_as_measured(lengths: tuple[int, int]) -> None:
    """InferenceX runs of 2025, Llama 70B in 8 bits at 30 ms a token: 1.17 to 1.40 by lengths."""
    assert (
        1.17 / 1.1
        < tokens_per_s("H200", "vllm", lengths) / tokens_per_s("MI325X", "vllm", lengths)
        < 1.40 * 1.1
    )


def test_b200_over_h200_with_tensorrt_llm_is_as_measured() -> None:
    """The same runs: at least 1.85."""
    for lengths in ((1024, 1024), (8192, 1024)):
        assert tokens_per_s("B200", "tensorrt-llm", lengths) > 1.85 * tokens_per_s(
            "H200", "tensorrt-llm", lengths
        )
