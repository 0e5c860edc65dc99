from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from planner.calibration.benchmarks import read_benchmarks
from planner.calibration.calibrate import posterior, update_calibration
from planner.calibration.check import update_table
from planner.calibration.predictions import predict_rows, prepare
from planner.catalog.calibration import (
    SHIPPED_CALIBRATION,
    Bias,
    CalibrationFile,
    read_calibration,
    shipped_file,
    write_calibration,
)
from planner.catalog.load import load_catalog
from planner.errors import ScenarioError
from planner.physics.coefficients import NAMES, groups_of
from planner.physics.replica import ReplicaSpec
from tests.benchmarks.tables import write_table
from tests.physics.cases import DEEPSEEK, MI300X


@pytest.fixture(scope="module")
def shipped() -> CalibrationFile:
    return read_calibration(SHIPPED_CALIBRATION)


def test_campaigns_left_out_meet_their_bars(shipped: CalibrationFile) -> None:
    times = shipped.cross_validated["campaign"]["tpot_s"]
    assert times["dense"].mean_fraction <= 0.09
    assert times["mixture-of-experts"].median_fraction <= 0.12
    assert times["amd dense"].mean_fraction <= 0.09
    assert times["amd mixture-of-experts"].median_fraction <= 0.105
    for group, most in (("model on a vendor", 0.15), ("engine on a vendor", 0.145)):
        assert (
            shipped.cross_validated[group]["tpot_s"]["mixture-of-experts"].median_fraction <= most
        )


def test_intervals_hold_nine_times_in_ten_whatever_is_left_out(shipped: CalibrationFile) -> None:
    """By vendor and class; the slow ends of AMD's new mixtures also hold what leave-outs do not show."""
    for left_out, cells in shipped.coverage.items():
        assert set(cells) == {
            "nvidia dense",
            "nvidia mixture-of-experts",
            "amd dense",
            "amd mixture-of-experts",
        }
        for label, found in cells.items():
            assert 0.85 <= found.covered_fraction <= 0.995, (left_out, label)
            assert found.median_half_width_fraction <= (0.4 if "dense" in label else 0.7), (
                left_out,
                label,
            )


def test_no_sign_between_vendors(shipped: CalibrationFile) -> None:
    """Of AMD's mixtures at FP8 no band of concurrency with twenty rows is promised more than 12% too fast or slow."""
    cells = {
        name: one
        for name, one in shipped.bias.items()
        if name.startswith("amd mixture-of-experts fp8")
    }
    assert sum(one.rows for one in cells.values()) == 147
    assert all(abs(one.median_fraction) <= 0.12 for one in cells.values() if one.rows >= 20)


def test_coefficients_are_physical(shipped: CalibrationFile) -> None:
    # Streams and products cannot beat the part by more than its datasheet rounds; the fixed cost per layer lies where
    # public runs put it, 45 to 70 µs.
    assert 0.95 < shipped.common["weight_stream"] < 1.5
    assert 1.0 < shipped.common["compute"] < 2.5
    assert 1.0 < shipped.common["kv_stream"] < 2.5
    assert (
        45e-6 < shipped.common["layer_s"] + shipped.common["step_s"] / 80 < 70e-6
    )  # of an 80-layer model's step


def test_a_new_model_is_doubted_more_than_a_new_setting(shipped: CalibrationFile) -> None:
    for spread in (shipped.spread["dense"], shipped.spread["mixture-of-experts"]):
        assert 0.03 < spread.setting < 0.2
        assert spread.model > spread.setting


def test_a_coefficient_left_out_or_made_up_is_an_error(
    tmp_path: Path, shipped: CalibrationFile
) -> None:
    common = {name: number for name, number in shipped.common.items() if name != NAMES[0]} | {
        "magic": 1.0
    }
    write_calibration(shipped.model_copy(update={"common": common}), tmp_path / "c.yaml")
    with pytest.raises(ScenarioError) as caught:
        read_calibration(tmp_path / "c.yaml")
    text = str(caught.value)
    assert f"common.{NAMES[0]}: is required" in text
    assert "common.magic: is not a coefficient" in text


def test_rows_that_cannot_be_fitted_are_named(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {}, {"model": "llama-9"}, {"tp": "3"})
    with pytest.raises(ScenarioError) as caught:
        update_calibration(path, shipped_file())
    assert [problem.line for problem in caught.value.problems] == [3, 4]


PAIR = "llama-3.1-70b / H200 / vllm / fp8 / serving"
NEW = {"model": "qwen3-32b", "accelerator": "MI325X", "concurrency": "16"}
NEW_GROUPS = groups_of("qwen3-32b", "MI325X", "vllm", "fp8")


def _tpot_ms(path: Path, file: CalibrationFile, **change: str) -> float:
    frame = read_benchmarks(write_table(path / "p.csv", change))
    return float(
        predict_rows(prepare(frame, load_catalog()), file.calibration())["tpot_s"][0] * 1e3
    )


def test_the_posterior_is_the_textbooks_for_one_effect() -> None:
    # Normal mean, known variances: precision n/σ² + 1/τ², weight n·τ²/(n·τ² + σ²).
    shown = np.array([0.3, 0.1, 0.2])
    noise = np.full(3, 0.1)
    prior = np.array([0.2])
    mean, covariance = posterior(np.ones((3, 1)), shown, noise, prior)
    assert mean[0] == pytest.approx(0.2 * 3 * 0.04 / (3 * 0.04 + 0.01))
    assert covariance[0, 0] == pytest.approx(1 / (3 / 0.01 + 1 / 0.04))


def test_the_posterior_agrees_with_conditioning_a_joint_normal() -> None:
    # Another route to the same: u | y = ΛHᵀ(HΛHᵀ + R)⁻¹y, covariance Λ − ΛHᵀ(HΛHᵀ + R)⁻¹HΛ.
    random = np.random.default_rng(1)
    slope = random.normal(size=(6, 3))
    noise = random.uniform(0.1, 1, 6)
    prior = random.uniform(0.1, 1, 3)
    shown = random.normal(size=6)
    joint = (
        np.diag(prior**2)
        @ slope.T
        @ np.linalg.inv(slope @ np.diag(prior**2) @ slope.T + np.diag(noise**2))
    )
    mean, covariance = posterior(slope, shown, noise, prior)
    assert mean == pytest.approx(joint @ shown)
    assert covariance == pytest.approx(np.diag(prior**2) - joint @ slope @ np.diag(prior**2))


def test_one_row_of_a_measured_pair_moves_it_by_what_its_noise_allows(tmp_path: Path) -> None:
    shipped = shipped_file()
    predicted = _tpot_ms(tmp_path, shipped)
    path = write_table(tmp_path / "t.csv", {"tpot_ms": f"{predicted * 1.2}", "ttft_ms": ""})
    found = update_calibration(path, shipped)
    drift = 0.1
    setting = shipped.spread["dense"].setting
    moved = math.log(1.2) * drift**2 / (drift**2 + setting**2)
    assert found.groups[PAIR] - shipped.groups[PAIR] == pytest.approx(moved, abs=2e-4)
    assert {name for name in found.groups if found.groups[name] != shipped.groups.get(name)} == {
        PAIR
    }
    assert found.own is not None
    assert found.own.groups[PAIR].sigma == pytest.approx(
        1 / math.hypot(1 / drift, 1 / setting), abs=3e-4
    )
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
    before = shipped.calibration().uncertainty(NEW_GROUPS, False, "amd")
    predicted = _tpot_ms(tmp_path, shipped, **NEW)
    row = {**NEW, "tpot_ms": f"{predicted * 0.8}", "ttft_ms": ""}
    found = update_calibration(write_table(tmp_path / "t.csv", row), shipped)
    after = found.calibration().uncertainty(NEW_GROUPS, False, "amd")
    assert before is not None
    assert after is not None
    assert not before.is_validated
    assert after.is_validated
    spread = shipped.spread["amd dense"]
    prior = before.sigma**2 - spread.setting**2
    # Of the pair a row in one layout shows less than of that layout.
    noise = spread.setting**2 + spread.layout**2
    left = 1 / (1 / prior + 1 / noise)
    assert after.sigma == pytest.approx(math.sqrt(spread.setting**2 + left), abs=2e-4)
    in_layout = prior + spread.layout**2
    share = in_layout / (in_layout + spread.setting**2)
    moved = _tpot_ms(tmp_path, found, **NEW)
    assert moved == pytest.approx(predicted * math.exp(math.log(0.8) * share), rel=2e-3)


def _own_sigma(file: CalibrationFile, layout: str) -> float:
    groups = groups_of("qwen3-32b", "MI325X", "vllm", "fp8", layout=layout)
    found = file.calibration().uncertainty(groups, False, "amd")
    assert found is not None
    return found.sigma


def test_what_rows_show_of_a_layout_is_doubted_in_others(tmp_path: Path) -> None:
    """By hand, of one row: the sum of a pair's and a layout's effect, and the pair's with another layout's."""
    shipped = shipped_file()
    before = shipped.calibration().uncertainty(NEW_GROUPS, False, "amd")
    assert before is not None
    spread = shipped.spread["amd dense"]
    pair = before.sigma**2 - spread.setting**2
    row = {**NEW, "tpot_ms": "20", "ttft_ms": ""}
    found = update_calibration(write_table(tmp_path / "t.csv", row), shipped)
    in_layout = 1 / (1 / (pair + spread.layout**2) + 1 / spread.setting**2)
    assert _own_sigma(found, "1 in 1") == pytest.approx(
        math.sqrt(spread.setting**2 + in_layout), abs=2e-4
    )
    of_pair = 1 / (1 / pair + 1 / (spread.setting**2 + spread.layout**2))
    assert _own_sigma(found, "8 in 1") == pytest.approx(
        math.sqrt(spread.setting**2 + of_pair + spread.layout**2), abs=2e-4
    )
    # Further rows of the same layout narrow it further.
    again = update_calibration(tmp_path / "t.csv", found)
    assert _own_sigma(again, "1 in 1") < _own_sigma(found, "1 in 1") < _own_sigma(found, "8 in 1")
    table = update_table(again.own, shipped.calibration(), again.calibration()) if again.own else ""
    assert "qwen3-32b MI325X vllm fp8 serving 1 in 1" in table


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
    drift = 0.1
    setting = shipped_file().spread["dense"].setting
    assert second.own.groups[PAIR].sigma == pytest.approx(
        (drift**-2 + 2 * setting**-2) ** -0.5, abs=2e-4
    )


def test_rows_without_a_time_or_a_rate_are_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"tpot_ms": "", "ttft_ms": "300"})
    with pytest.raises(ScenarioError, match="no row has a tpot_ms or output_tokens_per_s_per_gpu"):
        update_calibration(path, shipped_file())


def test_a_calibration_of_unknown_spread_cannot_be_updated(tmp_path: Path) -> None:
    bare = shipped_file().model_copy(update={"spread": {}})
    with pytest.raises(ScenarioError, match="without cross-validation"):
        update_calibration(write_table(tmp_path / "t.csv", {}), bare)


def test_a_run_that_uses_a_biased_cell_is_told(shipped: CalibrationFile) -> None:
    cells = {
        "amd mixture-of-experts fp8, 5 to 16 at once": Bias(rows=20, median_fraction=-0.2),
        "amd mixture-of-experts fp8, 17 to 64 at once": Bias(rows=19, median_fraction=-0.3),
        "amd mixture-of-experts fp4, 5 to 16 at once": Bias(rows=40, median_fraction=0.4),
        "amd mixture-of-experts fp8, 1 to 4 at once": Bias(rows=40, median_fraction=0.1),
    }
    file = shipped.model_copy(update={"bias": cells})
    spec = ReplicaSpec(part=MI300X, shape=DEEPSEEK, precision="fp8", accelerators=8)
    told = list(file.biased([spec, spec]))
    assert len(told) == 1
    assert "5 to 16 at once: the throughput model is 20% too fast" in told[0]
