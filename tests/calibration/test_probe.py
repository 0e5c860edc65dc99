from __future__ import annotations

import csv
import dataclasses
import importlib.util
from pathlib import Path

import pytest

from planner.calibration.probe import ProbeOptions, ProbeRow, main, measure_machine, write_rows
from planner.calibration.probe_kernels import LLAMA_8B, LLAMA_70B
from planner.errors import ScenarioError
from tests.calibration.probe_rows import read_rows

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch (the extra [gpu]) is not installed"
)


@pytest.fixture(scope="module")
def rows() -> list[ProbeRow]:
    return measure_machine(ProbeOptions(device="cpu", quick=True))


@needs_torch
def test_a_host_processor_is_measured_at_toy_size(rows: list[ProbeRow]) -> None:
    assert [row.phase for row in rows] == ["idle", "copy", "read", *["gemm"] * 3, *["decode"] * 2, *["prefill"] * 2]
    assert all(row.device == "cpu" and row.date and row.torch_version for row in rows)


@needs_torch
def test_measured_numbers_are_consistent(rows: list[ProbeRow]) -> None:
    for row in rows:
        if row.phase in ("copy", "read"):
            moved_bytes = (2 if row.phase == "copy" else 1) * (1 << 20)
            assert row.step_ms is not None
            assert row.bandwidth_gb_per_s == pytest.approx(moved_bytes / row.step_ms / 1e6)
        if row.phase in ("decode", "prefill"):
            assert row.step_ms is not None
            assert row.layer_ms is not None
            assert 0.0 <= row.layer_ms * 4 <= row.step_ms
            assert (row.layers, row.layers_measured) == (4, 4)


@needs_torch
def test_what_the_part_lacks_is_a_row_with_the_reason(rows: list[ProbeRow]) -> None:
    lacking = {row.precision: row for row in rows if row.phase == "gemm" and row.rate_tflops is None}
    assert set(lacking) == {"fp8", "fp4"}
    assert all((row.note or "").startswith("skipped: ") for row in lacking.values())


@needs_torch
def test_the_command_writes_a_file_that_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "probe.csv"
    assert main(["--device", "cpu", "--quick", "--seconds", "0.01", "--out", str(path)]) == 0
    assert len(read_rows(path)) == 10
    assert "10 rows" in capsys.readouterr().out


@needs_torch
def test_products_and_fused_attention_agree() -> None:
    import torch  # noqa: PLC0415

    from planner.calibration.probe_kernels import (  # noqa: PLC0415
        TOY,
        LayerStack,
        open_machine,
    )

    machine = open_machine("cpu")
    stack = LayerStack(machine, TOY, "fp32", 1)
    fused, products = stack.attentions(3)
    qkv, cache = torch.randn(3, 8 * 16), torch.randn(2, 3, 2, 32, 16)
    torch.testing.assert_close(fused(qkv, cache), products(qkv, cache))
    # Against attention written out for one sequence and one query head, which shares KV head 1 with another.
    query = qkv[2].view(8, 16)[3]
    weights = torch.softmax(cache[0, 2, 1] @ query / 16**0.5, dim=0)
    torch.testing.assert_close(products(qkv, cache)[2].view(4, 16)[3], weights @ cache[1, 2, 1])


@needs_torch
@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_point_must_take_some_time(seconds: float) -> None:
    with pytest.raises(ScenarioError, match="not a positive number"):
        measure_machine(ProbeOptions(device="cpu", seconds=seconds))


@needs_torch
def test_without_a_gpu_the_command_says_so_and_exits_with_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch  # noqa: PLC0415

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert main(["--out", str(tmp_path / "probe.csv")]) == 2
    assert "sees no GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_shapes_have_the_published_parameter_counts() -> None:
    # Embeddings count once more beside the vocabulary product: 8.03 and 70.6 billion in all.
    for shape, published in ((LLAMA_8B, 8.03e9), (LLAMA_70B, 70.6e9)):
        total = shape.layers * shape.layer_weights + 2 * shape.head_weights
        assert total == pytest.approx(published, rel=0.002)


def test_kv_bytes_per_token_of_llama_70b() -> None:
    assert LLAMA_70B.layers * LLAMA_70B.kv_bytes(1) == 327_680


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
        assert next(csv.reader(stream)) == [field.name for field in dataclasses.fields(ProbeRow)]
    assert [entry.name for entry in path.parent.iterdir()] == ["probe.csv"]


def test_the_columns_of_the_kernel_measurements_are_all_there() -> None:
    needed = "phase,model,precision,batch,context_tokens,sequences,sequence_tokens,step_ms,board_power_w,sm_clock_mhz"
    columns = {field.name for field in dataclasses.fields(ProbeRow)}
    assert {"date", "device", "torch_version", "driver_version", *needed.split(",")} <= columns


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "probe.csv"
    target.mkdir()
    with pytest.raises(ScenarioError, match="cannot be written"):
        write_rows([ROW], target)
    assert list(tmp_path.iterdir()) == [target]
