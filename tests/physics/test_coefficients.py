from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from planner.physics.coefficients import (
    NAMES,
    SATURATED,
    Calibration,
    ClassSpread,
    Uncertainty,
    groups_of,
    lag_sigma,
    prior_calibration,
)


def test_deviations_multiply() -> None:
    common = dict.fromkeys(NAMES, 2.0)
    calibration = Calibration(
        common=common,
        engine_log_deviation={"vllm": {"compute": np.log(3.0)}},
        vendor_log_deviation={"amd": {"compute": np.log(5.0)}},
    )
    found = calibration.coefficients(
        ["vllm", "vllm", "other", "other"], ["amd", "nvidia", "amd", "nvidia"]
    )
    assert found["compute"] == pytest.approx([30, 6, 10, 2])
    assert found["kv_stream"] == pytest.approx([2, 2, 2, 2])


def test_what_has_no_rows_takes_the_common_value() -> None:
    prior = prior_calibration()
    found = prior.coefficients(["tgi"], ["amd"])
    assert {name: values[0] for name, values in found.items()} == pytest.approx(dict(prior.common))


SPREAD = ClassSpread(setting=0.03, layout=0.035, pair=0.04, model=0.12, part=0.05, first_token=0.5)


SEEN_LAYOUT = groups_of("llama", "H200", "vllm", "fp8", layout="8 in 1")


def _calibration() -> Calibration:
    seen = groups_of("llama", "H200", "vllm", "fp8")
    prior = prior_calibration()
    return Calibration(
        common=prior.common,
        engine_log_deviation={},
        vendor_log_deviation={},
        group_log_effect={
            seen.model: 0.1,
            seen.part: 0.02,
            seen.campaign: -0.05,
            SEEN_LAYOUT.layout: 0.03,
        },
        spread={"dense": SPREAD},
    )


def test_effects_add_and_unmeasured_groups_add_nothing() -> None:
    groups = [
        groups_of("llama", "H200", "vllm", "fp8"),
        groups_of("llama", "B200", "vllm", "fp8"),
        groups_of("llama", "H200", "vllm", "fp8", SATURATED),
        SEEN_LAYOUT,
        groups_of("llama", "H200", "vllm", "fp8", layout="4 in 1"),
    ]
    assert _calibration().log_effects(groups) == pytest.approx([0.07, 0.1, 0.0, 0.1, 0.07])


@pytest.mark.parametrize(
    ("model", "part", "engine", "precision", "variance", "words"),
    [
        ("llama", "H200", "vllm", "fp8", 0.03**2, "validated on this pair, ±5%"),
        ("llama", "H200", "vllm", "fp4", 0.03**2 + 0.04**2, "extrapolating, ±8%"),
        ("llama", "B200", "vllm", "fp8", 0.03**2 + 0.04**2 + 0.05**2, "extrapolating, ±12%"),
        ("qwen", "H200", "vllm", "fp8", 0.03**2 + 0.04**2 + 0.12**2, "extrapolating, ±22%"),
        (
            "llama",
            "H200",
            "sglang",
            "fp8",
            0.03**2 + 0.04**2 + 0.05**2 + 0.12**2,
            "extrapolating, ±23%",
        ),
    ],
)
def test_doubt_grows_with_the_distance_from_measurements(
    model: str, part: str, engine: str, precision: str, variance: float, words: str
) -> None:
    uncertainty = _calibration().uncertainty(
        groups_of(model, part, engine, precision), is_mixture=False
    )
    assert uncertainty is not None
    assert uncertainty.sigma == pytest.approx(np.sqrt(variance))
    assert uncertainty.in_words() == words
    assert uncertainty.first_token == 0.5
    assert (
        _calibration().uncertainty(groups_of(model, part, engine, precision), is_mixture=True)
        is None
    )


@pytest.mark.parametrize(
    ("part", "layout", "variance"),
    [
        ("H200", "8 in 1", 0.03**2),
        ("H200", "4 in 1", 0.03**2 + 0.035**2),
        (
            "B200",
            "4 in 1",
            0.03**2 + 0.04**2 + 0.05**2,
        ),  # of a pair without rows no layout has any: told once
    ],
)
def test_a_layout_without_rows_is_doubted_more(part: str, layout: str, variance: float) -> None:
    uncertainty = _calibration().uncertainty(
        groups_of("llama", part, "vllm", "fp8", layout=layout), is_mixture=False
    )
    assert uncertainty is not None
    assert uncertainty.sigma == pytest.approx(np.sqrt(variance))


def test_the_interval_is_that_of_the_lognormal() -> None:
    """Its ends are the 5th and 95th percentiles: checked against draws."""
    low, high = Uncertainty(0.2, 0.0, 0.0, 0.5, True).interval(10.0)
    drawn = 10.0 * np.exp(0.2 * np.random.default_rng(5).standard_normal(200_000))
    assert np.quantile(drawn, [0.05, 0.95]) == pytest.approx([low, high], rel=0.01)


NEW = {
    "traits": ("fp8", "latent attention", "fp8 on parts without four-bit arithmetic", "vllm"),
    "vendor": "amd",
}


def test_a_model_that_a_vendors_engine_never_ran_may_be_slower_and_not_faster() -> None:
    """A stack on which new models begin at 0.4 of full speed: the slow end alone moves, until it is measured."""
    mixture = dataclasses.replace(_calibration(), spread={"mixture-of-experts": SPREAD})
    groups = groups_of("kimi", "MI325X", "vllm", "fp8", **NEW)  # type: ignore[arg-type]
    plain = mixture.uncertainty(groups, True, "amd")
    uncertainty = mixture.uncertainty(groups, True, "amd", new_model_speed=0.4)
    assert plain is not None
    assert uncertainty is not None
    assert uncertainty.interval(1.0)[1] == pytest.approx(plain.interval(1.0)[1])
    slow = np.hypot(plain.sigma, np.log(1 / 0.4) / 1.6448536269514722)
    assert uncertainty.interval(1.0)[0] == pytest.approx(np.exp(-1.6448536269514722 * slow))
    assert uncertainty.in_words() == "extrapolating, −61% to +26%"
    seen = dataclasses.replace(mixture, group_log_effect={groups.vendor_model: 0.0})
    measured = seen.uncertainty(groups, True, "amd", new_model_speed=0.4)
    assert measured is not None
    assert measured.lag == 0.0
    unlike = seen.uncertainty(groups, True, "amd", new_model_speed=0.4, is_unlike=True)
    assert unlike is not None
    assert unlike.lag == pytest.approx(lag_sigma(0.4))


@pytest.mark.parametrize(
    ("layout", "precision", "part", "expected"),
    [
        ("8 in 1", "fp8", "H200", ("measured", 3)),
        ("4 in 1", "fp8", "H200", ("interpolated", 5)),
        ("8 in 1", "fp4", "H200", ("extrapolated", 9)),
        ("8 in 1", "fp8", "B200", ("extrapolated", 0)),
    ],
)
def test_the_grade_is_of_the_nearest_rows(
    layout: str, precision: str, part: str, expected: tuple[str, int]
) -> None:
    rows = {SEEN_LAYOUT.layout: 3, SEEN_LAYOUT.campaign: 5, SEEN_LAYOUT.part: 9}
    calibration = dataclasses.replace(_calibration(), group_rows=rows)
    groups = groups_of("llama", part, "vllm", precision, layout=layout)
    assert calibration.grade(groups, is_unlike=False) == expected
    # Rows without drafts say nothing of a replica that drafts.
    assert calibration.grade(groups, is_unlike=True)[0] == "extrapolated"
