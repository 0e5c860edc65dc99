from __future__ import annotations

import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from planner.calibration.calibrate import _factor, calibrate, middle_date
from planner.calibration.fit import Held, Measurements
from planner.catalog.calibration import (
    SHIPPED_CALIBRATION,
    SHIPPED_MEASUREMENTS,
    CalibrationFile,
    read_calibration,
    write_calibration,
)
from planner.errors import ScenarioError
from planner.physics.coefficients import NAMES
from tests.benchmarks.tables import write_table


@pytest.fixture(scope="module")
def shipped() -> CalibrationFile:
    return read_calibration(SHIPPED_CALIBRATION)


def test_the_shipped_calibration_is_what_the_shipped_measurements_give(shipped: CalibrationFile) -> None:
    again = calibrate(SHIPPED_MEASUREMENTS, cross_validation=False)
    assert again.rows == shipped.rows == 1624
    assert again.measured_on == shipped.measured_on
    assert again.common == pytest.approx(shipped.common, rel=1e-3)
    for kind in ("engines", "vendors"):
        before, after = getattr(shipped, kind), getattr(again, kind)
        assert before.keys() == after.keys()
        for name in before:
            assert after[name] == pytest.approx(before[name], abs=1e-3)
    assert again.fitted["tpot_s"]["dense"].mean_fraction == pytest.approx(
        shipped.fitted["tpot_s"]["dense"].mean_fraction, abs=2e-4
    )


def test_campaigns_left_out_meet_their_bars(shipped: CalibrationFile) -> None:
    times = shipped.cross_validated["campaign"]["tpot_s"]
    assert times["dense"].mean_fraction <= 0.12
    assert times["mixture-of-experts"].median_fraction <= 0.22
    assert times["amd dense"].mean_fraction <= 0.12


def test_intervals_hold_nine_times_in_ten(shipped: CalibrationFile) -> None:
    for label, widest in (("dense", 0.25), ("mixture-of-experts", 0.40), ("amd", 0.40)):
        found = shipped.coverage[label]
        assert 0.85 <= found.covered_fraction <= 0.95, label
        assert found.median_half_width_fraction <= widest, label


def test_one_factor_makes_nine_in_ten_left_out_rows_lie_inside() -> None:
    """Errors drawn 1.5 times as wide as the terms of model, part and pair say: the factor finds it."""
    random, rows = np.random.default_rng(3), 4000
    unseen = random.random((rows, 4)) < 0.5
    unseen[:, 2:] = True
    terms, setting = np.array([0.2, 0.1, 0.15]), 0.1
    sigma = np.sqrt(setting**2 + 1.5**2 * (unseen[:, :3] @ terms**2))
    rate = "output_tokens_per_s_per_accelerator"
    held = Held({"tpot_s": np.exp(sigma * random.standard_normal(rows)), rate: np.full(rows, np.nan)}, unseen)
    data = cast(Measurements, SimpleNamespace(measured={"tpot_s": np.ones(rows), rate: np.ones(rows)}))
    assert _factor(held, data, np.ones(rows, dtype=bool), setting, terms) == pytest.approx(1.5, abs=0.05)


def test_fewer_coefficients_than_a_hundred(shipped: CalibrationFile) -> None:
    tables = [shipped.common, *shipped.engines.values(), *shipped.vendors.values()]
    assert sum(map(len, tables)) < 100


def test_coefficients_are_physical(shipped: CalibrationFile) -> None:
    # Streams and products cannot beat the part by more than its datasheet rounds; the fixed cost per layer lies where
    # public runs put it, 45 to 70 µs.
    assert 0.95 < shipped.common["weight_stream"] < 1.5
    assert 1.0 < shipped.common["compute"] < 2.5
    assert 1.0 < shipped.common["kv_stream"] < 2.5
    assert 45e-6 < shipped.common["layer_s"] + shipped.common["step_s"] / 80 < 70e-6  # of an 80-layer model's step


def test_a_new_model_is_doubted_more_than_a_new_setting(shipped: CalibrationFile) -> None:
    for spread in (shipped.spread["dense"], shipped.spread["mixture-of-experts"]):
        assert 0.03 < spread.setting < 0.2
        assert spread.model > spread.setting


def test_a_file_reads_back_as_written(tmp_path: Path, shipped: CalibrationFile) -> None:
    write_calibration(shipped, tmp_path / "c.yaml")
    assert read_calibration(tmp_path / "c.yaml") == shipped
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, shipped: CalibrationFile) -> None:
    with pytest.raises(ScenarioError, match="cannot be written"):
        write_calibration(shipped, tmp_path / "absent" / "c.yaml")


def test_a_coefficient_left_out_or_made_up_is_an_error(tmp_path: Path, shipped: CalibrationFile) -> None:
    common = {name: number for name, number in shipped.common.items() if name != NAMES[0]} | {"magic": 1.0}
    write_calibration(shipped.model_copy(update={"common": common}), tmp_path / "c.yaml")
    with pytest.raises(ScenarioError) as caught:
        read_calibration(tmp_path / "c.yaml")
    text = str(caught.value)
    assert f"common.{NAMES[0]}: is required" in text
    assert "common.magic: is not a coefficient" in text


def test_rows_that_cannot_be_fitted_are_named(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {}, {"model": "llama-9"}, {"tp": "3"})
    with pytest.raises(ScenarioError) as caught:
        calibrate(path)
    assert [problem.line for problem in caught.value.problems] == [3, 4]


def test_a_table_without_measurements_is_an_error(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"ttft_ms": "", "tpot_ms": ""})
    with pytest.raises(ScenarioError, match="no row has a measured quantity"):
        calibrate(path)


def test_dates_are_read_as_tables_write_them() -> None:
    texts = ["", "2026-03", "<= 2026-04-17", "2026-01-01..2026-01-31", "2026-13-40", "soon"]
    assert middle_date(texts) == datetime.date(2026, 3, 15)  # of 16 January, 15 March and 17 April
    assert middle_date(["", "soon"]) is None
