"""Results of the InferenceX project as rows of measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from docs.generate.inferencex import csv_of, main, read_inferencex
from planner.calibration.benchmarks import read_benchmarks
from tests.conftest import Planner

ONE = {
    "hw": "mi325x-amd", "conc": 64, "image": "rocm/vllm:0.18", "model": "amd/DeepSeek-R1-0528",
    "infmax_model_prefix": "dsr1", "framework": "sglang", "precision": "fp8", "spec_decoding": "none",
    "disagg": False, "isl": 1024, "osl": 1024, "is_multinode": False, "tp": 8, "ep": 1, "dp_attention": "false",
    "tput_per_gpu": 400.0, "output_tput_per_gpu": 200.0, "mean_ttft": 0.61, "median_ttft": 0.5,
    "mean_tpot": 0.0375, "median_tpot": 0.036,
}  # fmt: skip
POOLS = {
    "hw": "gb200", "conc": 512, "model": "deepseek-r1-fp4", "framework": "dynamo-trt", "precision": "fp4",
    "disagg": True, "isl": "8192", "osl": "1024", "is_multinode": True, "prefill_tp": 4, "prefill_ep": 4,
    "prefill_dp_attention": True, "prefill_num_workers": 2, "decode_tp": 8, "decode_ep": 8,
    "decode_dp_attention": "true", "decode_num_workers": 3, "output_tput_per_gpu": 900.0, "median_ttft": 1.5,
    "median_tpot": 0.012,
}  # fmt: skip
API = {
    "hardware": "h200", "conc": 16, "model": "70b", "framework": "trt", "precision": "fp8", "spec_method": "none",
    "disagg": False, "isl": 1024, "osl": 8192, "decode_tp": 2, "decode_ep": 1, "date": "2026-05-01",
    "metrics": {"mean_ttft": 0.2, "mean_tpot": 0.02, "output_tput_per_gpu": 390.0},
}  # fmt: skip


def _write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def test_a_replica_a_pair_of_pools_and_a_row_of_the_api_are_read(tmp_path: Path) -> None:
    rows, left_out = read_inferencex(_write(tmp_path / "r.json", [ONE, POOLS, API]))
    assert not left_out
    (tmp_path / "r.csv").write_text(csv_of(rows))
    frame = read_benchmarks(tmp_path / "r.csv")
    replica, pools, api = frame.to_dict("records")
    assert (replica["model"], replica["accelerator"], replica["engine"]) == (
        "deepseek-r1",
        "MI325X",
        "sglang",
    )
    assert (replica["tp"], replica["concurrency"], replica["scenario"]) == (8, 64, "Concurrency")
    assert replica["input_tokens"] == pytest.approx(
        0.9 * 1024
    )  # lengths are drawn evenly from 0.8 to 1
    assert (replica["ttft_ms"], replica["tpot_ms"]) == pytest.approx(
        (610, 37.5)
    )  # means, in milliseconds
    assert replica["output_tokens_per_s_per_gpu"] == 200
    assert (pools["scenario"], pools["tp"], pools["ep"]) == ("Disaggregated", 8, 8)
    assert (pools["attention_dp"], pools["prefill_workers"], pools["decode_workers"]) == (8, 2, 3)
    assert (pools["engine"], pools["tpot_ms"]) == ("tensorrt-llm", pytest.approx(12))
    assert (api["model"], api["accelerator"], api["tp"]) == ("llama-3.3-70b", "H200", 2)
    assert (api["measured_date"], api["tpot_ms"]) == ("2026-05-01", pytest.approx(20))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": "llama-9", "infmax_model_prefix": ""}, "unknown model 'llama-9'"),
        ({"hw": "tpu-v7"}, "unknown accelerator 'tpu-v7'"),
        ({"isl": 0}, "isl is not a number above zero"),
        ({"mean_tpot": "fast"}, "mean_tpot is not a number above zero"),
    ],
)
def test_what_cannot_be_used_is_left_out_with_its_reason(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    rows, left_out = read_inferencex(_write(tmp_path / "r.json", [ONE, {**ONE, **change}]))
    assert len(rows) == 1
    assert list(left_out.values()) == [1]
    assert reason in next(iter(left_out))


def test_a_table_is_written_that_calibrate_reads(
    planner: Planner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path / "r.json", [ONE, {**ONE, "spec_decoding": "mtp"}, {**ONE, "hw": "tpu-v7"}])
    assert main(str(tmp_path / "r.json"), str(tmp_path / "r.csv")) == 0
    said = capsys.readouterr()
    assert "2 rows written" in said.out
    assert "left out 1: unknown accelerator" in said.err
    assert read_benchmarks(tmp_path / "r.csv")["speculative"].tolist() == ["none", "mtp"]
    assert (
        planner("calibrate", str(tmp_path / "r.csv"), "--out", str(tmp_path / "c.yaml")).code == 0
    )
    (tmp_path / "bad.json").write_text("{")
    assert main(str(tmp_path / "bad.json"), str(tmp_path / "b.csv")) == 2
    assert "is not JSON" in capsys.readouterr().err
    assert not (tmp_path / "b.csv").exists()
