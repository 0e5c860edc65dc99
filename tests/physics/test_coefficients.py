from __future__ import annotations

import numpy as np
import pytest

from planner.physics.coefficients import COEFFICIENTS, NAMES, Calibration, prior_calibration


def test_names_are_distinct_and_priors_positive() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(c.centre > 0 and c.pool_sigma > 0 and c.deviation_sigma > 0 and c.meaning for c in COEFFICIENTS)


def test_deviations_multiply() -> None:
    common = dict.fromkeys(NAMES, 2.0)
    calibration = Calibration(
        common=common,
        engine_log_deviation={"vllm": {"compute": np.log(3.0)}},
        vendor_log_deviation={"amd": {"compute": np.log(5.0)}},
    )
    found = calibration.coefficients(["vllm", "vllm", "other", "other"], ["amd", "nvidia", "amd", "nvidia"])
    assert found["compute"] == pytest.approx([30, 6, 10, 2])
    assert found["kv_stream"] == pytest.approx([2, 2, 2, 2])


def test_what_has_no_rows_takes_the_common_value() -> None:
    prior = prior_calibration()
    found = prior.coefficients(["tgi"], ["amd"])
    assert {name: values[0] for name, values in found.items()} == pytest.approx(dict(prior.common))
