from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from planner.physics.calibration import (
    Measurements,
    cross_validate,
    fit,
    predict_with,
    residual_spread,
)
from planner.physics.coefficients import NAMES, Calibration, prior_calibration
from planner.physics.operating import Traffic
from planner.physics.replica import ReplicaSpec, describe
from tests.physics.cases import B200, DEEPSEEK, H200, LLAMA_8B, LLAMA_70B, MI300X


def _truth() -> Calibration:
    prior = prior_calibration()
    common = dict(prior.common)
    common |= {"weight_stream": 1.2, "compute": 1.8, "layer_s": 50e-6, "kv_stream": 1.5}
    return Calibration(
        common=common,
        engine_log_deviation={"vllm": {"request_s": 0.3}, "tensorrt-llm": {"request_s": -0.3}},
        vendor_log_deviation={"amd": {"compute": 0.2}},
    )


def _measurements(noise: float = 0.0, seed: int = 1) -> Measurements:
    """Return runs that the formula itself produced with known coefficients, with log-normal noise."""
    grid = [
        (part, shape, degree, engine, prompt, output, concurrency)
        for part, shape, degree in (
            (H200, LLAMA_70B, 1), (H200, LLAMA_70B, 4), (B200, LLAMA_70B, 2), (MI300X, LLAMA_70B, 1),
            (H200, LLAMA_8B, 1), (MI300X, LLAMA_8B, 2), (B200, DEEPSEEK, 8),
        )
        for engine in ("vllm", "tensorrt-llm")
        for prompt, output in ((128, 1024), (1024, 1024), (8192, 512))
        for concurrency in (2.0, 16.0, 128.0, np.nan)
    ]  # fmt: skip
    specs = [
        ReplicaSpec(part=part, shape=shape, precision="fp8", accelerators=degree, engine=engine)
        for part, shape, degree, engine, *_ in grid
    ]
    rows = Measurements(
        work=describe(specs),
        engine=[spec.engine for spec in specs],
        vendor=[spec.part.vendor for spec in specs],
        traffic=Traffic(
            input_tokens=np.array([case[4] for case in grid], dtype=float),
            output_tokens=np.array([case[5] for case in grid], dtype=float),
            burst_fraction=1.0,
        ),
        concurrency=np.array([case[6] for case in grid]),
        measured={},
    )
    made = predict_with(rows, _truth())
    generator = np.random.default_rng(seed)
    factor = {name: np.exp(noise * generator.standard_normal(len(grid))) for name in made}
    made["ttft_s"][np.isnan(rows.concurrency)] = np.nan
    return dataclasses.replace(rows, measured={name: made[name] * factor[name] for name in made})


def test_the_fit_recovers_what_made_the_runs() -> None:
    rows = _measurements()
    found = predict_with(rows, fit(rows))
    for name in ("tpot_s", "output_tokens_per_s_per_accelerator"):
        error = np.abs(found[name] / rows.measured[name] - 1)
        assert np.nanmax(error) < 0.02, name


def test_the_fit_finds_the_coefficients_that_matter() -> None:
    found = fit(_measurements()).common
    for name in ("weight_stream", "compute", "kv_stream", "layer_s"):
        assert found[name] == pytest.approx(_truth().common[name], rel=0.08), name


def test_coefficients_cannot_be_negative() -> None:
    found = fit(_measurements(noise=0.3))
    assert all(found.common[name] > 0 for name in NAMES)


def test_one_wild_row_does_not_bend_the_rest() -> None:
    rows = _measurements(noise=0.02)
    wild = {name: values.copy() for name, values in rows.measured.items()}
    wild["tpot_s"][5] *= 20
    straight, bent = fit(rows), fit(dataclasses.replace(rows, measured=wild))
    before, after = predict_with(rows, straight)["tpot_s"], predict_with(rows, bent)["tpot_s"]
    assert np.max(np.abs(after / before - 1)) < 0.05


def test_the_same_rows_give_the_same_fit() -> None:
    rows = _measurements(noise=0.05)
    assert fit(rows) == fit(rows)


def test_left_out_groups_are_predicted_by_the_others() -> None:
    rows = _measurements(noise=0.02)
    held = cross_validate(rows, list(rows.engine))
    error = np.abs(held["tpot_s"] / rows.measured["tpot_s"] - 1)
    assert 0.005 < np.median(error) < 0.1
    fitted = np.abs(predict_with(rows, fit(rows))["tpot_s"] / rows.measured["tpot_s"] - 1)
    assert np.mean(fitted) < np.mean(error)


def test_an_engine_without_rows_takes_the_common_value() -> None:
    rows = _measurements()
    keep = np.asarray(rows.engine) == "vllm"
    found = fit(rows, keep)
    assert found.engine_log_deviation["tensorrt-llm"] == pytest.approx(dict.fromkeys(NAMES, 0.0), abs=1e-9)


def test_spread_of_known_noise_is_recovered() -> None:
    generator = np.random.default_rng(3)
    predicted = np.full(4000, 10.0)
    measured = predicted * np.exp(0.1 + 0.2 * generator.standard_normal(4000))
    median, sigma = residual_spread(predicted, measured)
    # Standard errors: 0.2·√(π/2)/√4000 for the median, about 1.17·0.2/√4000 for the scaled MAD.
    assert abs(median - 0.1) < 4 * 0.2 * np.sqrt(np.pi / 2) / np.sqrt(4000)
    assert abs(sigma - 0.2) < 4 * 1.17 * 0.2 / np.sqrt(4000)


def test_spread_of_nothing_is_not_a_number() -> None:
    median, sigma = residual_spread(np.array([1.0]), np.array([np.nan]))
    assert median == 0.0
    assert np.isnan(sigma)
