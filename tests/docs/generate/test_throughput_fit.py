from __future__ import annotations

import dataclasses
import datetime

import numpy as np
import pytest

from docs.generate.throughput_fit import (
    Measurements,
    cross_validate,
    fit,
    fit_calibration,
    middle_date,
    predict_with,
)
from planner.catalog.calibration import SHIPPED_MEASUREMENTS, shipped_file
from planner.physics.coefficients import (
    SATURATED,
    SERVING,
    Calibration,
    prior_calibration,
)
from planner.physics.replica import ReplicaSpec, Traffic, describe
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
        groups=[
            spec.groups(SATURATED if np.isnan(case[6]) else SERVING)
            for spec, case in zip(specs, grid, strict=True)
        ],
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
    found = predict_with(rows, fit(rows).calibration)
    for name in ("tpot_s", "output_tokens_per_s_per_accelerator"):
        error = np.abs(found[name] / rows.measured[name] - 1)
        assert np.nanmax(error) < 0.02, name


def test_one_wild_row_does_not_bend_the_rest() -> None:
    rows = _measurements(noise=0.02)
    wild = {name: values.copy() for name, values in rows.measured.items()}
    wild["tpot_s"][5] *= 20
    straight = fit(rows).calibration
    bent = fit(dataclasses.replace(rows, measured=wild)).calibration
    before = predict_with(rows, straight)["tpot_s"]
    after = predict_with(rows, bent)["tpot_s"]
    assert np.max(np.abs(after / before - 1)) < 0.05


def test_left_out_groups_are_predicted_by_the_others() -> None:
    rows = _measurements(noise=0.02)
    whole = fit(rows)
    held = cross_validate(rows, list(rows.engine), whole.unknowns)
    assert held.unseen[
        :, :4
    ].all()  # without an engine's rows nothing is known of its models, parts and campaigns
    error = np.abs(np.expm1(held.log_errors(rows, "tpot_s")))
    error = error[np.isfinite(error)]
    assert 0.005 < np.median(error) < 0.1
    fitted = np.abs(predict_with(rows, whole.calibration)["tpot_s"] / rows.measured["tpot_s"] - 1)
    assert np.mean(fitted) < np.mean(error)


def _slowed(rows: Measurements, slow: np.ndarray, log_factor: float) -> Measurements:
    measured = dict(rows.measured)
    factor = np.where(slow, np.exp(log_factor), 1.0)
    measured["tpot_s"] = measured["tpot_s"] * factor
    measured["output_tokens_per_s_per_accelerator"] = (
        measured["output_tokens_per_s_per_accelerator"] / factor
    )
    return dataclasses.replace(rows, measured=measured)


def test_what_one_campaign_shows_stays_with_its_groups() -> None:
    """A campaign 15% slower than the formula is learned as its groups' effect; the coefficients hardly move."""
    rows = _measurements()
    campaign = rows.groups[0].campaign
    slow = np.array([group.campaign == campaign for group in rows.groups])
    plain = fit(rows).calibration
    slowed = fit(_slowed(rows, slow, 0.15)).calibration
    moved = np.log(predict_with(rows, slowed)["tpot_s"] / predict_with(rows, plain)["tpot_s"])
    assert np.median(moved[slow]) > 0.1
    others = ~slow & (np.asarray(rows.vendor) == "amd")
    assert np.max(np.abs(moved[others])) < 0.03
    effect = sum(
        slowed.group_log_effect[label] - plain.group_log_effect[label] for label in rows.groups[0]
    )
    assert effect == pytest.approx(0.15, abs=0.06)


def test_the_shipped_calibration_is_what_the_shipped_measurements_give() -> None:
    shipped = shipped_file()
    again = fit_calibration(SHIPPED_MEASUREMENTS, cross_validation=False)
    assert again.rows == shipped.rows == 1886
    assert again.measured_on == shipped.measured_on
    assert again.common == pytest.approx(shipped.common, rel=1e-5)
    for kind in ("engines", "vendors"):
        before = getattr(shipped, kind)
        after = getattr(again, kind)
        assert before.keys() == after.keys()
        for name in before:
            assert after[name] == pytest.approx(before[name], abs=1e-5)
    assert again.fitted["tpot_s"]["dense"].mean_fraction == pytest.approx(
        shipped.fitted["tpot_s"]["dense"].mean_fraction, abs=2e-4
    )


def test_dates_are_read_as_tables_write_them() -> None:
    texts = ["", "2026-03", "<= 2026-04-17", "2026-01-01..2026-01-31", "2026-13-40", "soon"]
    assert middle_date(texts) == datetime.date(2026, 3, 15)  # of 16 January, 15 March and 17 April
    assert middle_date(["", "soon"]) is None
