"""The precision in which a cluster serves a workload, and what follows from it for power."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.catalog.load import part_of, shape_of
from planner.physics.power import power_fraction
from planner.physics.replica import ReplicaSpec, Traffic, at_concurrency, describe, price_replicas
from planner.plan.candidates import traffic_of
from planner.plan.choice import Service, build_services, stream_s
from planner.plan.reuse import Reuse
from tests.engine.worlds import plan_of, scenario_of
from tests.shipped import shipped_calibration

DENSE_70B_FLOP = (
    2 * 70.55e9 - 2 * 128_256 * 8_192
)  # two a parameter, without the table of embeddings
B200_RATES = {"bf16": 2_250e12, "fp8": 4_500e12, "fp4": 9_000e12}


def b200(
    precision: str | None, model: str = "llama-3.1-70b", allowed: tuple[str, ...] = ()
) -> dict[str, Any]:
    """One B200 cluster and one workload."""
    chat = {"model": model, "precisions": list(allowed)}
    cluster = {"accelerator": "B200", "nodes": 4, "precision": precision}
    return {
        "workloads": {"chat": chat, "nightly": None},
        "clusters": {"h200": None, "mi325x": None, "b": cluster},
    }


def service_of(change: dict[str, Any]) -> Service:
    scenario = scenario_of(change)
    services, _ = build_services(scenario, Reuse(scenario), {})
    return services["b", "chat"]


@pytest.mark.parametrize("precision", ["bf16", "fp8", "fp4"])
def test_arithmetic_is_counted_at_the_rate_of_the_precision_served(precision: str) -> None:
    service = service_of(b200(precision))
    expected = DENSE_70B_FLOP / B200_RATES[precision] / service.tensor_parallel
    assert service.compute_s_per_token == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("precision", ["bf16", "fp8", "fp4"])
def test_a_full_node_draws_the_power_of_its_precision(precision: str) -> None:
    """By hand: decode at the full batch and prefill at the limit, each for its share of time; host and fans on top."""
    service = service_of(b200(precision))
    plan = plan_of(b200(precision))
    share = service.prefill_fraction
    step_s = service.tpot_s * (1 - share)
    arithmetic = (
        service.batch * DENSE_70B_FLOP / B200_RATES[precision] / service.tensor_parallel / step_s
    )
    decode_w = min(
        1000.0, 1000.0 * float(power_fraction(min(service.stream_s / step_s, 1.0), arithmetic))
    )
    board_w = share * 1000.0 + (1 - share) * decode_w
    wall_kw = (1800.0 + 8 * (board_w + 0.1055 * (board_w - 140.0))) / 1000.0
    assert plan.clusters[0].node_power.full_kw == pytest.approx(wall_kw, rel=0.01)


def test_a_mixture_reads_the_experts_its_batch_touches_and_draws_what_was_measured() -> None:
    """DeepSeek-R1 in fp8 on eight MI325X, four sequences of 1k/1k: 505 W a board, amd-smi (InferenceX, March 2026).

    Each token takes 8 of 256 experts. Were all of them read in each step, power would come out half as high again.
    """
    tokens = {"input": {"mean": 1024}, "output": {"mean": 1024}}
    scenario = scenario_of({"workloads": {"chat": {"model": "deepseek-r1", "lengths": tokens}}})
    catalog = scenario.load_catalog()
    spec = ReplicaSpec(
        part=part_of("MI325X", catalog),
        shape=shape_of("deepseek-r1", catalog),
        precision="fp8",
        accelerators=8,
        engine="sglang",
    )
    replicas = price_replicas([spec], shipped_calibration())
    traffic = Traffic(input_tokens=1024, output_tokens=1024)
    step_s = float(at_concurrency(replicas, np.zeros(1, dtype=int), traffic, 4.0).tpot_s[0])
    moved_s = stream_s(
        describe([spec]), 0, spec, traffic_of(scenario.workloads["chat"]), np.array([4.0])
    )[0]
    computed_s = 4 * float(describe([spec])["flops_s_per_token"][0])
    assert 1000.0 * float(power_fraction(moved_s / step_s, computed_s / step_s)) == pytest.approx(
        505.0, rel=0.1
    )
