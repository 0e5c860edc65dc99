"""A stated throughput holds at the lengths it was measured at, and is scaled by the formula to all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from planner.calibration.throughput import OperatingPoints, evaluate_grid
from planner.catalog.load import load_catalog
from planner.errors import ScenarioError
from planner.run.simulate import simulate
from tests.engine.worlds import QUIET, SHARED, merged, plan_of, scenario_of
from tests.shipped import shipped_calibration

STATED = 1000.0
LENGTHS = {"input_tokens": 1000, "output_tokens": 250}


def rate(
    lengths: Mapping[str, float],
    stated: float | None = STATED,
    priority: str = "interactive",
    **more: Any,
) -> float:
    """Return requests per second of one H200 node at the given lengths of the workload."""
    tokens = {name: {"mean": lengths[f"{name}_tokens"], "p95": lengths[f"{name}_tokens"] * 1.01}  # hardly a spread
              for name in ("input", "output")}  # fmt: skip
    cluster = {
        "throughput_tokens_per_s_per_accelerator": stated,
        "throughput_measured_at": stated and LENGTHS,
    }
    plan = plan_of(
        {
            "workloads": {
                "chat": {
                    "model": "llama-3.1-70b",
                    "lengths": tokens,
                    "slo": {"ttft_s": 5, "tpot_s": 0.1},
                    "priority": priority,
                }
            }
        },
        {"clusters": {"h200": {**SHARED, **cluster, **more}, "mi325x": None}},
    )
    return float(plan.requests_per_node_h[0, 0, 0]) / 3600


def test_at_the_lengths_measured_it_is_what_was_stated() -> None:
    assert rate(LENGTHS) == pytest.approx(STATED * 8 / 250)


@pytest.mark.parametrize("lengths", [{"input_tokens": 8000, "output_tokens": 250},
                                     {"input_tokens": 1000, "output_tokens": 1000}])  # fmt: skip
def test_at_other_lengths_it_moves_as_the_formula_does(lengths: Mapping[str, float]) -> None:
    stated = rate(lengths) / rate(LENGTHS)
    formula = rate(lengths, None) / rate(LENGTHS, None)
    assert stated == pytest.approx(formula)
    assert stated < 0.7  # longer requests, fewer of them


def test_prompts_eight_times_as_long_cost_about_what_the_grid_says() -> None:
    """The command ``throughput`` finds the same ratio by its own way through the formula, which is of mean times."""
    long = {"input_tokens": 8000, "output_tokens": 250}
    grid = OperatingPoints(models=["llama-3.1-70b"], accelerators=["H200"], engines=["vllm"], precisions=["fp8"],
                tensor_parallel=[1, 2, 4, 8], input_tokens=[1000, 8000], output_tokens=[250], ttft_objective_s=5,
                tpot_objective_s=0.1)  # fmt: skip
    records = evaluate_grid(grid, load_catalog(), shipped_calibration())
    best = {length: max(record["output_tokens_per_s_per_gpu"] for record in records if record["input_tokens"] == length)
            for length in (1000, 8000)}  # fmt: skip
    found = rate(long, priority="deferrable") / rate(LENGTHS, priority="deferrable")
    assert found == pytest.approx(best[8000] / best[1000], rel=0.02)


def test_a_claim_is_carried_along_as_requests_grow_longer() -> None:
    """Under growth g a year, the rate after k years is that of requests (1 + g)^k as long, even in ratio between."""
    growth = 0.4
    pinned: dict[str, Any] = {"tensor_parallel": 2}
    by_year = [
        rate({name: length * (1 + growth) ** k for name, length in LENGTHS.items()}, **pinned)
        for k in range(3)
    ]
    tokens = {name: {"mean": LENGTHS[f"{name}_tokens"], "p95": LENGTHS[f"{name}_tokens"] * 1.01}
              for name in ("input", "output")}  # fmt: skip
    claim = {
        "throughput_tokens_per_s_per_accelerator": STATED,
        "throughput_measured_at": LENGTHS,
        **pinned,
    }
    slo = {"ttft_s": 5, "tpot_s": 0.1}
    plan = plan_of(
        {"horizon_months": 24},
        {
            "workloads": {
                "chat": {
                    "model": "llama-3.1-70b",
                    "lengths": {**tokens, "growth_per_year": growth},
                    "slo": slo,
                }
            }
        },
        {"clusters": {"h200": SHARED | claim, "mi325x": None}},
    )
    found = plan.requests_per_node_h[0, 0] / 3600
    middles = (plan.month_edges_h[:-1] + plan.month_edges_h[1:]) / 2 / 8766
    expected = np.exp(np.interp(middles, range(3), np.log(by_year)))
    assert found == pytest.approx(expected, rel=1e-6)
    assert by_year[0] == pytest.approx(STATED * 8 / 250)
    assert by_year[2] < 0.7 * by_year[0]


def test_without_its_lengths_it_is_refused() -> None:
    with pytest.raises(
        ScenarioError, match=r"at which it was measured, e\.g\. throughput_measured_at"
    ) as caught:
        rate(LENGTHS, throughput_measured_at=None)
    assert len(caught.value.problems) == 1


def test_lengths_from_which_nothing_can_be_scaled_are_refused() -> None:
    """400,000 prompt tokens have no first token within five seconds, so the formula has no rate to scale by."""
    with pytest.raises(ScenarioError, match="cannot be scaled to 1000 and 250"):
        rate(LENGTHS, throughput_measured_at={"input_tokens": 400000, "output_tokens": 250})


@pytest.mark.parametrize("admission", ["reject", "queue"])
def test_an_overload_is_served_up_to_what_is_stated_and_no_more(admission: str) -> None:
    """Four nodes of eight that are asked for five times what they are said to generate: 1.6 times it was served."""
    tokens = {name: {"mean": LENGTHS[f"{name}_tokens"]} for name in ("input", "output")}
    chat = {
        "model": "llama-3.1-70b",
        "lengths": tokens,
        "slo": {"ttft_s": 5, "tpot_s": 0.1},
        "admission": admission,
    }
    stated = {"throughput_tokens_per_s_per_accelerator": STATED, "throughput_measured_at": LENGTHS}
    most = STATED * 32 / LENGTHS["output_tokens"]
    flat = {
        "load_profile": {"peak_to_mean": 1.0, "weekend_fraction": 1.0},
        "noise": {"sigma": 0},
        "requests_per_s": 5 * most,
    }
    change = {"horizon_months": 1, "workloads": {"chat": chat | flat, "nightly": None}}
    result = simulate(
        scenario_of(merged(QUIET, change, {"clusters": {"h200": stated, "mi325x": None}}))
    )
    served = result.monthly.served_requests.sum() / (result.plan.hours * 3600.0)
    assert 0.95 * most < served <= most * (1 + 1e-9)
