"""The throughput model's own error in a study: by pair, and shared where a model or a part was never measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from planner.plan.choice import build_services
from planner.plan.reuse import Reuse
from planner.scenario.loading import load_scenario
from planner.scenario.study import Lognormal, Percentiles
from planner.studies.distributions import is_smooth, quantile
from planner.studies.inputs import _throughput_errors, stated
from tests.shipped import shipped_calibration
from tests.studies.conftest import ON_VLLM


def _sigmas(write: Any, text: str) -> dict[str, float]:
    found = _throughput_errors({"a": stated("a", load_scenario(write(text)))})
    sigmas = {}
    for one in found:
        match one.distribution:
            case Lognormal(median=median, sigma=sigma):
                assert median == 1.0
            case Percentiles(
                p10=slow, p50=median, p90=fast, low=low
            ):  # may lack software: wider towards slow alone
                assert (median, low) == (1.0, 0.0)
                sigma = math.log(fast) / 1.2815515655446004
                assert -math.log(slow) > 1.2815515655446004 * sigma
                assert is_smooth(one.distribution)
            case other:
                raise AssertionError(other)
        sigmas[one.name] = sigma
    return sigmas


def test_the_slow_end_that_is_printed_is_drawn(write: Any) -> None:
    """Mixtral was never measured: its draws end where its interval does, on both sides, but for what pairs share."""
    text = ON_VLLM.replace("llama-3.1-8b", "mixtral-8x7b")
    found = {
        one.name: one.distribution
        for one in _throughput_errors({"a": stated("a", load_scenario(write(text)))})
    }
    scenario = load_scenario(write(text))
    services, _ = build_services(scenario, Reuse(scenario), {})
    for (cluster, _), service in services.items():
        evidence = service.evidence
        uncertainty = evidence.uncertainty if evidence else None
        part = scenario.clusters[cluster].accelerator
        assert uncertainty is not None
        assert uncertainty.lag > 0.0
        drawn = quantile(
            found[f"throughput_error.{part}.vllm.mixtral-8x7b"], np.array([0.05, 0.95])
        )
        wanted = np.exp(
            1.645 * np.array([-math.hypot(uncertainty.pair, uncertainty.lag), uncertainty.pair])
        )
        assert drawn == pytest.approx(wanted, rel=0.12)


def test_a_measured_pair_has_an_error_of_its_own(write: Any) -> None:
    sigmas = _sigmas(write, ON_VLLM)
    spread, wider = (shipped_calibration().spread[name] for name in ("dense", "amd dense"))
    assert sigmas["throughput_error.H200.vllm.llama-3.1-8b"] == pytest.approx(spread.setting)
    # Llama-8B was measured under vLLM, but not on an MI325X: that pair is doubted more, the model itself is not.
    assert sigmas["throughput_error.MI325X.vllm.llama-3.1-8b"] == pytest.approx(
        (wider.setting**2 + wider.pair**2) ** 0.5
    )
    assert len(sigmas) == 2


@pytest.mark.parametrize(
    ("attention", "is_measured"), [("tensor-parallel", True), ("data-parallel", False)]
)
def test_a_layout_without_rows_has_a_wider_error(
    write: Any, attention: str, is_measured: bool
) -> None:
    layout = f"attention: {attention}\n    tensor_parallel: 4"
    text = ON_VLLM.replace("llama-3.1-8b", "minimax-m2.5").replace(
        "nodes: 4", f"nodes: 4\n    {layout}"
    )
    sigma = _sigmas(write, text)["throughput_error.H200.vllm.minimax-m2.5"]
    spread = shipped_calibration().spread["mixture-of-experts"]
    assert sigma == pytest.approx(math.hypot(spread.setting, 0.0 if is_measured else spread.layout))
    assert spread.layout > 0.05


def test_what_is_unknown_of_a_model_is_shared_by_its_pairs(write: Any) -> None:
    sigmas = _sigmas(write, ON_VLLM.replace("llama-3.1-8b", "mixtral-8x7b"))
    spread = shipped_calibration().spread["mixture-of-experts"]
    assert sigmas["throughput_error.vllm.mixtral-8x7b"] == pytest.approx(spread.model)
    assert {name for name in sigmas if name.endswith("mixtral-8x7b")} == {
        "throughput_error.H200.vllm.mixtral-8x7b",
        "throughput_error.MI325X.vllm.mixtral-8x7b",
        "throughput_error.vllm.mixtral-8x7b",
    }


def test_of_an_engine_left_to_the_planner_the_error_is_that_of_the_one_it_takes(write: Any) -> None:
    text = ON_VLLM.replace("llama-3.1-8b", "minimax-m2.5").replace("engine: vllm", "engine: auto")
    scenario = load_scenario(write(text))
    services, _ = build_services(scenario, Reuse(scenario), {})
    chosen = {
        (scenario.clusters[cluster].accelerator, one.spec.engine)
        for (cluster, _), one in services.items()
    }
    drawn = [name.split(".", 1)[1] for name in _sigmas(write, text)]
    pairs = [
        name.removesuffix(".minimax-m2.5").split(".")
        for name in drawn
        if name.endswith(".minimax-m2.5")
    ]
    assert {(part, engine) for part, engine in (pair for pair in pairs if len(pair) == 2)} == chosen
    assert len(chosen) == 2


def test_a_latent_mixture_is_not_taken_as_exact(write: Any) -> None:
    """DeepSeek's architecture class once had no residual, so no error was drawn for it."""
    assert _sigmas(write, ON_VLLM.replace("llama-3.1-8b", "deepseek-r1"))
