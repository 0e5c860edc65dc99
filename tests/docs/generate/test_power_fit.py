from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import planner.catalog
from docs.generate.power_fit import (
    PowerMeasurement,
    board_power_residuals,
    cap_residuals,
    column,
    fit_board_power,
    fit_cap_curve,
    fit_host_slope,
    read_power_measurements,
)
from planner.physics.power import (
    CAP_EXPONENT,
    CAP_FLOOR_FRACTION,
    FITTED,
    HOST_SLOPE_AIR,
)

HOST_SLOPE_LIQUID = 0.0230

TABLE = Path(planner.catalog.__path__[0]) / "power_measurements.csv"


@pytest.fixture(scope="module")
def rows() -> list[PowerMeasurement]:
    return read_power_measurements(TABLE)


def _of(rows: list[PowerMeasurement], record: str) -> list[PowerMeasurement]:
    return [row for row in rows if row.record == record]


def test_refitting_the_shipped_table_gives_the_shipped_coefficients(
    rows: list[PowerMeasurement],
) -> None:
    refitted = dataclasses.asdict(fit_board_power(rows))
    for name, number in dataclasses.asdict(FITTED).items():
        assert refitted[name] == pytest.approx(number, abs=2e-3), name


def test_board_power_is_right_to_three_percent_in_the_mean_and_ten_at_worst(
    rows: list[PowerMeasurement],
) -> None:
    board = _of(rows, "board")
    error = np.abs(board_power_residuals(board, FITTED)) / column(board, "power_fraction")
    assert len(board) == 23
    assert error.mean() < 0.03
    assert error.max() < 0.10


def test_leaving_out_each_model_the_other_still_predicts_it(rows: list[PowerMeasurement]) -> None:
    for model in ("llama-3.1-8b", "llama-3.1-70b"):
        left_out = [row for row in _of(rows, "board") if row.workload == model]
        coefficients = fit_board_power([row for row in rows if row.workload != model])
        error = np.abs(board_power_residuals(left_out, coefficients)) / column(
            left_out, "power_fraction"
        )
        assert error.mean() < 0.05, model


def test_throughput_kept_at_500_of_700_watts_is_right_to_four_points(
    rows: list[PowerMeasurement],
) -> None:
    assert np.abs(cap_residuals(_of(rows, "cap"), FITTED)).max() < 0.04


def test_refitting_the_measured_caps_gives_the_shipped_curve(rows: list[PowerMeasurement]) -> None:
    assert fit_cap_curve(_of(rows, "throttle")) == pytest.approx(
        (CAP_FLOOR_FRACTION, CAP_EXPONENT), abs=1e-3
    )


def kept_errors(rows: list[PowerMeasurement], floor: float, exponent: float) -> NDArray[np.float64]:
    cap = column(rows, "power_fraction")
    uncapped = column(rows, "uncapped_power_fraction")
    kept = 1.0 - (1.0 - np.clip((cap - floor) / (uncapped - floor), 0.0, 1.0)) ** exponent
    return np.abs(kept - column(rows, "throughput_fraction"))


def test_throughput_under_measured_caps_is_right_to_three_points_in_the_mean_and_eight_at_worst(
    rows: list[PowerMeasurement],
) -> None:
    caps = _of(rows, "throttle")
    errors = kept_errors(caps, CAP_FLOOR_FRACTION, CAP_EXPONENT)
    assert len(caps) == 34
    assert errors.mean() < 0.03
    assert errors.max() < 0.081


def test_a_curve_learnt_from_one_part_predicts_another(rows: list[PowerMeasurement]) -> None:
    learnt = fit_cap_curve([row for row in _of(rows, "throttle") if row.accelerator == "H200"])
    others = [row for row in _of(rows, "throttle") if row.accelerator != "H200"]
    assert kept_errors(others, *learnt).max() < 0.07


def test_the_host_slope_of_air_is_that_shipped(rows: list[PowerMeasurement]) -> None:
    assert fit_host_slope(rows, "air") == pytest.approx(HOST_SLOPE_AIR, abs=1e-3)
    assert fit_host_slope(rows, "liquid") == pytest.approx(HOST_SLOPE_LIQUID, abs=1e-3)


def test_every_node_row_is_right_to_five_percent(rows: list[PowerMeasurement]) -> None:
    slopes = {"air": HOST_SLOPE_AIR, "liquid": HOST_SLOPE_LIQUID}
    errors = {}
    for row in _of(rows, "node"):
        node = row.numbers
        rise_w = node["boards"] * (node["board_load_w"] - node["board_idle_w"])
        predicted_w = node["wall_idle_w"] + (1.0 + slopes[row.cooling]) * rise_w
        errors[row.accelerator, row.workload, row.scenario] = (
            predicted_w / node["wall_load_w"] - 1.0
        )
    assert len(errors) == 10
    assert max(map(abs, errors.values())) < 0.051
    assert np.mean(np.abs(list(errors.values()))) < 0.02
