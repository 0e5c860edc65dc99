from __future__ import annotations

import csv
from pathlib import Path

import pytest

from planner.calibration.probe.rows import COLUMNS, ProbeRow, read_rows, write_rows
from planner.errors import ScenarioError

ROW = ProbeRow(
    phase="decode",
    date="2026-01-31",
    device="NVIDIA H200",
    torch_version="2.11.0",
    driver_version="driver 580.1, CUDA 13.0",
    model="llama-3.1-8b",
    precision="bf16",
    layers=32,
    layers_measured=32,
    batch=32,
    context_tokens=1024,
    step_ms=5.7356,
    layer_ms=0.17,
    bandwidth_gb_per_s=3364.8,
    rate_tflops=87.0,
    board_power_w=631.32,
    sm_clock_mhz=1980.0,
    note="fused attention, graph",
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    skipped = ProbeRow(
        phase="gemm",
        date="2026-01-31",
        device="x",
        torch_version="1",
        driver_version="none",
        precision="fp4",
        note="skipped: no",
    )
    path = tmp_path / "deep" / "probe.csv"
    write_rows([ROW, skipped], path)
    assert read_rows(path) == [ROW, skipped]
    with path.open(newline="", encoding="utf-8") as stream:
        assert next(csv.reader(stream)) == list(COLUMNS)
    assert [entry.name for entry in path.parent.iterdir()] == ["probe.csv"]


def test_the_columns_of_the_kernel_measurements_are_all_there() -> None:
    needed = "phase,model,precision,batch,context_tokens,sequences,sequence_tokens,step_ms,board_power_w,sm_clock_mhz"
    assert set(needed.split(",")) <= set(COLUMNS)
    assert {"date", "device", "torch_version", "driver_version"} <= set(COLUMNS)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "probe.csv"
    target.mkdir()
    with pytest.raises(ScenarioError, match="cannot be written"):
        write_rows([ROW], target)
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize(
    ("column", "text"),
    [("phase", "decoding"), ("batch", "1.5"), ("step_ms", "fast"), ("board_power_w", "nan"), ("layers", "-1")],
)
def test_a_bad_cell_is_named_with_its_line(tmp_path: Path, column: str, text: str) -> None:
    path = tmp_path / "probe.csv"
    write_rows([ROW, ROW], path)
    lines = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    lines[2][COLUMNS.index(column)] = text
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(lines)
    with pytest.raises(ScenarioError) as caught:
        read_rows(path)
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [(3, column)]


def test_missing_columns_and_files_are_said(tmp_path: Path) -> None:
    path = tmp_path / "probe.csv"
    path.write_text("phase,date\nidle,2026-01-31\n", encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"missing columns: device, .*note"):
        read_rows(path)
    with pytest.raises(ScenarioError, match="cannot be read"):
        read_rows(tmp_path / "absent.csv")
