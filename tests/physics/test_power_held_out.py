"""Board power predicted for measurements that were not fitted: steps of an H200, and AMD boards that serve."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from docs.generate.power_fit import read_power_measurements
from docs.generate.validation_page import serving_board_w
from planner.physics.power import BoardRating, board_power_w, power_fraction
from tests.calibration.probe_rows import CATALOG, SHAPES, ProbeRow, StackShape, read_rows
from tests.shipped import shipped_calibration

BANDWIDTH = 4.8e12
RATES = {"bf16": 989e12, "fp8": 1979e12}
RATING = BoardRating(tdp_w=700.0, idle_w=123.0)


def _work(
    shape: StackShape, phase: str, precision: str, sequences: int, tokens: int
) -> tuple[float, float]:
    """Return bytes and operations of a step, counted as for the fitted rows.

    Decode reads weights and KV cache; prefill reads the layers' weights and passes each token's hidden state eight
    times in 16 bits. Attention takes two products per query head and pair of positions, half of them in a causal
    prefill.
    """
    weight_bytes = 1 if precision == "fp8" else 2
    weights = shape.layers * shape.layer_weights
    width = shape.layers * shape.heads * shape.head_width
    if phase == "decode":
        cache_bytes = shape.layers * shape.kv_bytes(sequences * tokens)
        moved = weight_bytes * weights + cache_bytes + 2 * shape.head_weights
        products = 2.0 * sequences * (weights + shape.head_weights)
        return moved, products + 4.0 * sequences * tokens * width
    moved = weight_bytes * weights + 16 * sequences * tokens * shape.layers * shape.hidden
    return moved, 2.0 * sequences * tokens * weights + 2.0 * sequences * tokens**2 * width


def _activities(row: ProbeRow) -> tuple[float, float, float, float]:
    """Return memory, compute and clock fractions of a measured row, and its power in watts."""
    assert row.step_ms is not None
    assert row.sm_clock_mhz is not None
    assert row.board_power_w is not None
    step_s = row.step_ms / 1e3
    precision = (row.precision or "bf16").partition("_")[0]
    if row.model is not None:
        sequences = row.batch or row.sequences or 0
        tokens = row.context_tokens or row.sequence_tokens or 0
        moved, work = _work(SHAPES[row.model], row.phase, precision, sequences, tokens)
    elif row.phase == "gemm":
        operand_bytes = 1 if precision == "fp8" else 2
        size = row.batch or 0
        moved = (2.0 * operand_bytes + 2.0) * size**2
        work = 2.0 * size**3
    else:
        moved = (row.bandwidth_gb_per_s or 0.0) * 1e9 * step_s
        work = 0.0
    return (
        moved / step_s / BANDWIDTH,
        work / step_s / RATES[precision],
        row.sm_clock_mhz / 1980.0,
        row.board_power_w,
    )


def _table(phases: tuple[str, ...]) -> np.ndarray:
    """Return activities and power of the shipped rows of some phases, shape (4, rows)."""
    rows = [row for row in read_rows() if row.phase in phases and row.step_ms is not None]
    return np.array([_activities(row) for row in rows]).T


def test_work_is_counted_as_in_the_fitted_table() -> None:
    # Bytes over operations do not depend on the step's time, so the fitted table can be held against the formula.
    with (CATALOG / "power_measurements.csv").open(newline="", encoding="utf-8") as stream:
        lines = [line for line in csv.DictReader(stream) if line["record"] == "board"]
    assert len(lines) == 23
    for line in lines:
        precision = line["precision"]
        point = int(line["batch"]), int(line["context_tokens"])
        moved, work = _work(SHAPES[line["workload"]], line["scenario"], precision, *point)
        expected = float(line["memory_fraction"]) / float(line["compute_fraction"])
        assert (moved / BANDWIDTH) / (work / RATES[precision]) == pytest.approx(
            expected, rel=0.02
        ), line


def test_steps_not_fitted_are_right_to_five_percent_in_the_mean_and_twelve_at_worst() -> None:
    memory, compute, clock, power_w = _table(("decode", "prefill"))
    error = RATING.tdp_w * power_fraction(memory, compute, clock) / power_w - 1.0
    assert len(error) == 29
    assert np.abs(error).mean() == pytest.approx(0.044, abs=0.002)
    assert np.abs(error).max() < 0.121
    assert error.mean() == pytest.approx(-0.020, abs=0.002)


def test_power_as_planned_is_right_to_three_percent_where_assuming_the_limit_is_not() -> None:
    memory, compute, _, power_w = _table(("decode", "prefill"))
    error = np.abs(board_power_w(RATING, memory, compute) / power_w - 1.0)
    assert error.mean() == pytest.approx(0.030, abs=0.002)
    assert error.max() < 0.121
    below = power_w < 0.97 * RATING.tdp_w
    assert below.sum() == 12
    assert error[below].mean() == pytest.approx(0.050, abs=0.002)
    assert np.abs(RATING.tdp_w / power_w[below] - 1.0).mean() > 4.0 * error[below].mean()


def test_boards_of_amd_that_serve_are_right_to_twelve_percent() -> None:
    """Coefficients are an H200's by share of TDP; no AMD row was fitted.

    Prefill was stated by its peaks, so its mean lies below them; at the H200's share of the dense rate the board would
    be at its limit, 12% above the peaks.
    """
    rows = [
        row
        for row in read_power_measurements(CATALOG / "power_measurements.csv")
        if row.record == "serving"
    ]
    error = {
        (r.accelerator, r.scenario, r.grade): serving_board_w(r, shipped_calibration())
        / r.numbers["board_load_w"]
        - 1
        for r in rows
    }
    # The same MI325X run lies between its mean under load (B) and that over a window with idle edges (C).
    assert error["MI325X", "decode", "B"] == pytest.approx(-0.07, abs=0.02)
    assert error["MI325X", "decode", "C"] == pytest.approx(0.09, abs=0.02)
    assert error["MI300X", "decode", "C"] == pytest.approx(0.0, abs=0.02)
    assert error["MI300X", "prefill", "B"] == pytest.approx(-0.11, abs=0.02)
