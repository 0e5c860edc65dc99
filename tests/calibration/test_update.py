from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from planner.calibration.rows import predict_rows, prepare
from planner.calibration.table import read_benchmarks
from planner.calibration.update import posterior, update_calibration
from planner.catalog.calibration import CalibrationFile, read_calibration, shipped_file, write_calibration
from planner.catalog.load import load_catalog
from planner.errors import ScenarioError
from planner.physics.coefficients import Calibration, groups_of
from tests.benchmarks.tables import write_table

PAIR = "llama-3.1-70b / H200 / vllm / fp8 / serving"
NEW = {"model": "qwen3-32b", "accelerator": "MI325X", "concurrency": "16"}
NEW_GROUPS = groups_of("qwen3-32b", "MI325X", "vllm", "fp8")


def _tpot_ms(path: Path, file: CalibrationFile, **change: str) -> float:
    frame = read_benchmarks(write_table(path / "p.csv", change))
    return float(predict_rows(prepare(frame, load_catalog()), file.calibration())["tpot_s"][0] * 1e3)


def test_the_posterior_is_the_textbooks_for_one_effect() -> None:
    # Normal mean, known variances: precision n/σ² + 1/τ², weight n·τ²/(n·τ² + σ²).
    shown, noise, prior = np.array([0.3, 0.1, 0.2]), np.full(3, 0.1), np.array([0.2])
    mean, covariance = posterior(np.ones((3, 1)), shown, noise, prior)
    assert mean[0] == pytest.approx(0.2 * 3 * 0.04 / (3 * 0.04 + 0.01))
    assert covariance[0, 0] == pytest.approx(1 / (3 / 0.01 + 1 / 0.04))


def test_the_posterior_agrees_with_conditioning_a_joint_normal() -> None:
    # Another route to the same: u | y = ΛHᵀ(HΛHᵀ + R)⁻¹y, covariance Λ − ΛHᵀ(HΛHᵀ + R)⁻¹HΛ.
    random = np.random.default_rng(1)
    slope, noise, prior = random.normal(size=(6, 3)), random.uniform(0.1, 1, 6), random.uniform(0.1, 1, 3)
    shown = random.normal(size=6)
    joint = np.diag(prior**2) @ slope.T @ np.linalg.inv(slope @ np.diag(prior**2) @ slope.T + np.diag(noise**2))
    mean, covariance = posterior(slope, shown, noise, prior)
    assert mean == pytest.approx(joint @ shown)
    assert covariance == pytest.approx(np.diag(prior**2) - joint @ slope @ np.diag(prior**2))


def test_one_row_of_a_measured_pair_moves_it_by_what_its_noise_allows(tmp_path: Path) -> None:
    shipped = shipped_file()
    predicted = _tpot_ms(tmp_path, shipped)
    path = write_table(tmp_path / "t.csv", {"tpot_ms": f"{predicted * 1.2}", "ttft_ms": ""})
    found = update_calibration(path, shipped)
    drift, setting = 0.1, shipped.spread["dense"].setting
    moved = math.log(1.2) * drift**2 / (drift**2 + setting**2)
    assert found.groups[PAIR] - shipped.groups[PAIR] == pytest.approx(moved, abs=2e-4)
    assert {name for name in found.groups if found.groups[name] != shipped.groups.get(name)} == {PAIR}
    assert found.own is not None
    assert found.own.groups[PAIR].sigma == pytest.approx(1 / math.hypot(1 / drift, 1 / setting), abs=3e-4)
    assert _tpot_ms(tmp_path, found) == pytest.approx(predicted * math.exp(moved), rel=1e-3)
    assert found.common == shipped.common


def test_many_rows_count_as_ten_and_close_most_of_the_gap(tmp_path: Path) -> None:
    shipped = shipped_file()
    predicted = _tpot_ms(tmp_path, shipped)
    row = {"tpot_ms": f"{predicted * 1.2}", "ttft_ms": ""}
    moves = []
    for count in (10, 40):
        found = update_calibration(write_table(tmp_path / "t.csv", *[row] * count), shipped)
        moves.append(found.groups[PAIR] - shipped.groups[PAIR])
    variance = shipped.spread["dense"].setting ** 2 / 10
    assert moves[0] == pytest.approx(math.log(1.2) * 0.01 / (0.01 + variance), rel=0.01)
    assert moves[1] == pytest.approx(moves[0], abs=2e-4)


def test_a_new_pairs_doubt_falls_from_extrapolation_to_what_the_rows_leave(tmp_path: Path) -> None:
    shipped = shipped_file()
    before = shipped.calibration().doubt(NEW_GROUPS, False)
    predicted = _tpot_ms(tmp_path, shipped, **NEW)
    row = {**NEW, "tpot_ms": f"{predicted * 0.8}", "ttft_ms": ""}
    found = update_calibration(write_table(tmp_path / "t.csv", row), shipped)
    after = found.calibration().doubt(NEW_GROUPS, False)
    assert before is not None
    assert after is not None
    assert not before.is_validated
    assert after.is_validated
    spread = shipped.spread["dense"]
    prior = before.sigma**2 - spread.setting**2
    left = 1 / (1 / prior + 1 / spread.setting**2)
    assert after.sigma == pytest.approx(math.sqrt(spread.setting**2 + left), abs=2e-4)
    assert _tpot_ms(tmp_path, found, **NEW) == pytest.approx(
        predicted * math.exp(math.log(0.8) * prior / (prior + spread.setting**2)), rel=2e-3
    )


def test_the_file_reads_back_and_can_be_updated_again(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"tpot_ms": "30", "ttft_ms": ""})
    first = update_calibration(path, shipped_file())
    write_calibration(first, tmp_path / "c.yaml")
    again = read_calibration(tmp_path / "c.yaml")
    assert again == first
    second = update_calibration(path, again)
    assert first.own is not None
    assert second.own is not None
    # The second row meets what the first left: the spread of a mean of two.
    drift, setting = 0.1, shipped_file().spread["dense"].setting
    assert second.own.groups[PAIR].sigma == pytest.approx((drift**-2 + 2 * setting**-2) ** -0.5, abs=2e-4)


def test_rows_without_a_time_or_a_rate_are_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"tpot_ms": "", "ttft_ms": "300"})
    with pytest.raises(ScenarioError, match="no row has a tpot_ms or output_tokens_per_s_per_gpu"):
        update_calibration(path, shipped_file())


def test_a_calibration_of_unknown_spread_cannot_be_updated(tmp_path: Path) -> None:
    bare = shipped_file().model_copy(update={"spread": {}})
    with pytest.raises(ScenarioError, match="without cross-validation"):
        update_calibration(write_table(tmp_path / "t.csv", {}), bare)


def test_without_updates_doubt_is_what_it_was() -> None:
    assert isinstance(shipped_file().calibration(), Calibration)
    assert shipped_file().calibration().group_log_sigma == {}
