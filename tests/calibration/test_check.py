from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from planner.calibration.benchmarks import read_benchmarks
from planner.calibration.check import check_benchmarks, check_report, entries, summary
from planner.calibration.columns import COLUMNS
from planner.catalog.calibration import SHIPPED_MEASUREMENTS
from planner.catalog.load import load_catalog
from tests.benchmarks.tables import write_table
from tests.shipped import shipped_calibration

SHARED = Path(os.environ.get("PLANNER_SHARED", Path(__file__).resolve().parents[3] / "shared"))


def _check(path: Path) -> pd.DataFrame:
    return check_benchmarks(read_benchmarks(path), load_catalog(), shipped_calibration())


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    return _check(SHIPPED_MEASUREMENTS)


def _rows(checked: pd.DataFrame) -> pd.DataFrame:
    """Return the table that was checked, each of its rows once."""
    return checked[~checked.index.duplicated()].sort_index()


def test_the_bars_hold_on_the_shipped_measurements(shipped: pd.DataFrame) -> None:
    """Bars of rows that are in no fit, so met with room on rows that are."""
    quantities = summary(shipped)["quantities"]
    tpot = quantities["tpot_ms"]
    throughput = quantities["output_tokens_per_s_per_gpu"]
    assert tpot["dense"]["mean_absolute_error_fraction"] <= 0.06
    assert tpot["mixture-of-experts"]["median_absolute_error_fraction"] <= 0.08
    assert throughput["all"]["median_absolute_error_fraction"] <= 0.06
    for label in ("dense", "mixture-of-experts"):
        assert quantities["ttft_ms"][label]["median_absolute_error_fraction"] <= 0.30
    assert tpot["mixture-of-experts"]["worst_absolute_error_fraction"] <= 0.60
    assert tpot["disaggregated"]["median_absolute_error_fraction"] <= 0.20
    times = (shipped.quantity != "ttft_ms") & (shipped.kind != "disaggregated")
    assert np.mean(np.abs(shipped.error_fraction[times]) > 0.40) < 0.015


@pytest.mark.parametrize(
    ("quantity", "mixture", "bar"),
    [
        ("output_tokens_per_s_per_gpu", False, 0.08),
        ("tpot_ms", False, 0.07),
        ("tpot_ms", True, 0.08),
    ],
)
def test_the_bars_hold_on_amd_alone(
    shipped: pd.DataFrame, quantity: str, mixture: bool, bar: float
) -> None:
    kind = "mixture-of-experts" if mixture else "dense"
    chosen = (
        shipped.accelerator.str.startswith("MI")
        & (shipped.quantity == quantity)
        & (shipped.kind == kind)
    )
    assert chosen.sum() >= 15
    assert np.median(np.abs(shipped.error_fraction[chosen])) <= bar
    assert abs(np.mean(shipped.error_fraction[chosen])) <= 0.03  # neither vendor is flattered


def test_every_measurement_has_one_entry(shipped: pd.DataFrame) -> None:
    listed = list(entries(shipped))
    table = _rows(shipped)
    measured = sum(
        int(table[name].notna().sum())
        for name in ("ttft_ms", "tpot_ms", "output_tokens_per_s_per_gpu")
    )
    assert len(listed) == measured == 3021
    assert all("predicted" in entry for entry in listed)
    sizes = [abs(entry["error_fraction"]) for entry in listed]
    assert sizes == sorted(sizes, reverse=True)


def test_an_entry_carries_its_row(tmp_path: Path) -> None:
    found = list(entries(_check(write_table(tmp_path / "t.csv", {}))))
    assert {entry["quantity"] for entry in found} == {"ttft_ms", "tpot_ms"}
    for entry in found:
        assert set(COLUMNS) <= set(entry)
        assert entry["row"] == 2
        assert entry["error_fraction"] == pytest.approx(entry["predicted"] / entry["measured"] - 1)
        json.dumps(entry, allow_nan=False)
    assert found[0]["tp"] == 1
    assert found[0]["slo_ttft_ms"] is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "llama-9"}, "unknown model 'llama-9'"),
        ({"accelerator": "A100"}, "unknown accelerator 'A100'"),
        ({"precision": "nvfp4"}, "H200 has no fp4 arithmetic"),
        ({"tp": "3"}, "tp 3 does not divide the 64 heads"),
        ({"concurrency": ""}, "a concurrency or an objective"),
        ({"input_tokens": ""}, "input_tokens and output_tokens are needed"),
        ({"ttft_ms": "", "tpot_ms": ""}, "nothing was measured"),
        (
            {"scenario": "Offline", "concurrency": "", "tpot_ms": ""},
            "an offline run has no time to first token",
        ),
    ],
)
def test_what_cannot_be_predicted_has_a_reason(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    check = _check(write_table(tmp_path / "t.csv", {}, change))
    told = [entry for entry in entries(check) if entry["row"] == 3]
    assert told
    for entry in told:
        assert reason in entry["reason"]
        assert "predicted" not in entry
    assert "not predicted\nrow 3: " in check_report(check, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"accelerator": "H200 SXM", "precision": "FP8", "engine": "vLLM"},
        {"engine": "some-new-engine"},
        {"engine": ""},
        {"precision": "fp16", "tp": "4"},
        {"tp": "", "ep": ""},
        {"accelerator": "MI355X", "engine": "sglang", "precision": "mxfp4"},
        {"model": "gpt-oss-120b", "accelerator": "MI300X", "precision": "MXFP4"},
        {"model": "deepseek-r1", "accelerator": "MI325X", "engine": "sglang", "tp": "8"},
        {"model": "mixtral-8x7b", "accelerator": "GB200", "tp": "2"},
        {"tp": "16", "model": "llama-3.1-405b"},
        {"scenario": "Server", "concurrency": "", "slo_ttft_ms": "2000", "slo_tpot_ms": "200"},
        {"scenario": "Interactive", "tp": "", "concurrency": "100"},
    ],
)
def test_unusual_rows_are_predicted_all_the_same(tmp_path: Path, change: dict[str, str]) -> None:
    for entry in entries(_check(write_table(tmp_path / "t.csv", change))):
        assert entry["predicted"] > 0


def test_a_file_of_nothing_but_unknowns_is_still_answered(tmp_path: Path) -> None:
    check = _check(write_table(tmp_path / "t.csv", {"model": "x"}, {"accelerator": "y"}))
    found = summary(check)
    assert (found["predicted"], found["unpredicted"]) == (0, 4)


def test_only_a_declared_hit_spares_prefill(tmp_path: Path) -> None:
    change = {
        "input_tokens": "8000",
        "output_tokens": "100",
        "concurrency": "64",
        "model": "llama-3.1-8b",
    }
    path = write_table(tmp_path / "t.csv", change)
    plain = _check(path)
    lines = path.read_text().splitlines()
    path.write_text(f"{lines[0]},prefix_hit_fraction\n{lines[1]},0\n")
    assert _check(path).predicted.to_numpy() == pytest.approx(plain.predicted.to_numpy())
    path.write_text(f"{lines[0]},prefix_hit_fraction\n{lines[1]},0.9\n")
    assert _check(path).predicted.iloc[1] < plain.predicted.iloc[1] / 1.5


def test_every_prediction_has_an_interval_and_says_how_it_stands(tmp_path: Path) -> None:
    rows = [{}, {"model": "qwen3-32b", "accelerator": "GB300"}]
    seen, *_, unseen = sorted(
        (
            entry
            for entry in entries(_check(write_table(tmp_path / "t.csv", *rows)))
            if entry["quantity"] == "tpot_ms"
        ),
        key=lambda entry: entry["row"],
    )
    for entry in (seen, unseen):
        assert entry["low"] < entry["predicted"] < entry["high"]
        assert entry["low"] * entry["high"] == pytest.approx(entry["predicted"] ** 2)
    assert seen["standing"].startswith("validated on this pair")
    assert unseen["standing"].startswith("extrapolating")
    assert unseen["high"] / unseen["low"] > seen["high"] / seen["low"]


def test_an_open_degree_saturates_at_the_best(tmp_path: Path) -> None:
    measured = {
        "scenario": "Offline",
        "concurrency": "",
        "ttft_ms": "",
        "tpot_ms": "",
        "output_tokens_per_s_per_gpu": "3000",
    }
    check = _check(
        write_table(
            tmp_path / "t.csv", *[{**measured, "tp": tp} for tp in ("", "1", "2", "4", "8")]
        )
    )
    assert check.predicted.iloc[0] == pytest.approx(check.predicted.iloc[1:].max())


def test_the_shipped_table_is_the_public_one(shipped: pd.DataFrame) -> None:
    names = (
        "throughput_measured.csv", "throughput_measured_2.csv", "throughput_measured_amd.csv",
        "disaggregated_measured.csv", "disaggregated_measured_2.csv",
    )  # fmt: skip
    if not (SHARED / "facts" / names[-1]).exists():
        pytest.skip("the shared measurements are not on this machine")
    tables = [pd.read_csv(SHARED / "facts" / name) for name in names]
    assert sum(map(len, tables)) == len(_rows(shipped)) == 1886
    for name in ("tpot_ms", "ttft_ms", "output_tokens_per_s_per_gpu", "concurrency"):
        public = np.concatenate(
            [table.reindex(columns=[name])[name].to_numpy(dtype=float) for table in tables]
        )
        assert public == pytest.approx(_rows(shipped)[name].to_numpy(), rel=1e-5, nan_ok=True)
