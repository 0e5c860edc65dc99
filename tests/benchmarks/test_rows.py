from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.benchmarks.rows import DISTINCT_PROMPTS, REQUESTS_PER_CONCURRENCY, measurements, predict_rows, prepare
from planner.benchmarks.table import read_benchmarks
from planner.catalog.calibration import shipped_calibration
from planner.catalog.load import load_catalog
from planner.physics.calibration import predict_with
from tests.benchmarks.tables import write_table

SHIPPED = shipped_calibration()
OFFLINE = {
    "scenario": "Offline", "concurrency": "", "ttft_ms": "", "tpot_ms": "", "output_tokens_per_s_per_gpu": "3000",
}  # fmt: skip


def _prepared(path: Path, *changes: dict[str, str]):  # type: ignore[no-untyped-def]
    frame = read_benchmarks(write_table(path / "t.csv", *changes))
    return frame, prepare(frame, load_catalog())


def test_equal_deployments_are_resolved_once(tmp_path: Path) -> None:
    _, rows = _prepared(tmp_path, {}, {"concurrency": "32"}, {"tp": "4"}, {})
    assert len(rows.deployments) == 2
    assert list(rows.deployment) == [0, 0, 1, 0]


def test_concurrency_without_tp_is_per_accelerator(tmp_path: Path) -> None:
    _, rows = _prepared(tmp_path, {"accelerator": "H100", "precision": "bf16", "tp": "", "concurrency": "10"})
    assert list(rows.concurrency) == [20.0]  # 70B at 16 bits takes two H100


@pytest.mark.parametrize(("concurrency", "expected"), [(4, 0.0), (10, 0.0), (20, 0.5), (100, 0.9)])
def test_prompts_repeat_beyond_the_pool(tmp_path: Path, concurrency: int, expected: float) -> None:
    change = {"input_tokens": "2000", "output_tokens": "500", "concurrency": str(concurrency)}
    _, rows = _prepared(tmp_path, change, {"concurrency": str(concurrency)})
    sent = REQUESTS_PER_CONCURRENCY * concurrency
    assert rows.repeated_fraction[0] == pytest.approx(max(1 - DISTINCT_PROMPTS / sent, 0))
    assert rows.repeated_fraction[0] == pytest.approx(expected)
    assert rows.repeated_fraction[1] == 0.0  # 1,024 is no round length


def test_independent_arrivals_wait_less_than_a_burst(tmp_path: Path) -> None:
    _, rows = _prepared(tmp_path, {}, {"scenario": "Server"})
    burst_s, independent_s = predict_rows(rows, SHIPPED)["ttft_s"]
    assert independent_s < burst_s


def test_an_objective_without_a_load_is_met(tmp_path: Path) -> None:
    change = {"scenario": "Server", "concurrency": "", "slo_ttft_ms": "2000", "slo_tpot_ms": "50"}
    _, rows = _prepared(tmp_path, change, {**change, "slo_ttft_ms": ""}, {**change, "slo_tpot_ms": ""})
    found = predict_rows(rows, SHIPPED)
    assert found["tpot_s"][0] == pytest.approx(0.05, rel=2e-3)
    assert found["tpot_s"][1] == pytest.approx(0.05, rel=2e-3)
    assert found["ttft_s"][2] <= 2.0
    assert np.all(found["tokens_per_s_per_accelerator"] > 0)


def test_rows_with_a_reason_are_not_predicted(tmp_path: Path) -> None:
    _, rows = _prepared(tmp_path, {"model": "nothing"}, {}, {"output_tokens": ""})
    found = predict_rows(rows, SHIPPED)
    assert list(np.isnan(found["tpot_s"])) == [True, False, True]
    assert rows.reasons[0].startswith("unknown model")
    assert rows.reasons[1] == ""


def test_the_fit_sees_what_the_check_predicts(tmp_path: Path) -> None:
    frame, rows = _prepared(tmp_path, {}, {"scenario": "Server", "engine": "trtllm"}, OFFLINE, {**OFFLINE, "tp": ""})
    data = measurements(frame, rows, SHIPPED)
    fitted, checked = predict_with(data, SHIPPED), predict_rows(rows, SHIPPED)
    assert fitted["tpot_s"] == pytest.approx(checked["tpot_s"])
    assert fitted["output_tokens_per_s_per_accelerator"] == pytest.approx(checked["tokens_per_s_per_accelerator"])
    assert data.engine == ["vllm", "tensorrt-llm", "vllm", "vllm"]


def test_case_and_order_of_rows_do_not_matter(tmp_path: Path) -> None:
    changes = [{"tp": "4"}, {"engine": "TRTLLM"}, {"model": "gpt-oss-120b", "precision": "MXFP4"}, OFFLINE]
    _, rows = _prepared(tmp_path, *changes)
    _, turned = _prepared(tmp_path, *changes[::-1])
    forward, backward = predict_rows(rows, SHIPPED), predict_rows(turned, SHIPPED)
    for name in forward:
        assert np.array_equal(forward[name], backward[name][::-1])
