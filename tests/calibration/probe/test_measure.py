from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from planner.calibration.probe import __main__ as command
from planner.calibration.probe.measure import ProbeOptions, measure_machine
from planner.calibration.probe.rows import read_rows
from planner.calibration.probe.stack import LLAMA_8B, LLAMA_70B
from planner.errors import ScenarioError

if TYPE_CHECKING:
    from planner.calibration.probe.rows import ProbeRow

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
    assert command.main(["--device", "cpu", "--quick", "--seconds", "0.01", "--out", str(path)]) == 0
    assert len(read_rows(path)) == 10
    assert "10 rows" in capsys.readouterr().out


@needs_torch
def test_products_and_fused_attention_agree() -> None:
    import torch  # noqa: PLC0415

    from planner.calibration.probe.machine import open_machine  # noqa: PLC0415
    from planner.calibration.probe.stack import TOY, Stack  # noqa: PLC0415

    machine = open_machine("cpu")
    stack = Stack(machine, TOY, "fp32", 1)
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
    assert command.main(["--out", str(tmp_path / "probe.csv")]) == 2
    assert "sees no GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_shapes_have_the_published_parameter_counts() -> None:
    # Embeddings count once more beside the vocabulary product: 8.03 and 70.6 billion in all.
    for shape, published in ((LLAMA_8B, 8.03e9), (LLAMA_70B, 70.6e9)):
        total = shape.layers * shape.layer_weights + 2 * shape.head_weights
        assert total == pytest.approx(published, rel=0.002)


def test_kv_bytes_per_token_of_llama_70b() -> None:
    assert LLAMA_70B.layers * LLAMA_70B.kv_bytes(1) == 327_680
