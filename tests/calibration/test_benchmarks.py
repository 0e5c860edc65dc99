"""What a benchmark table means: its cells, its names and layouts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from planner.calibration.benchmarks import (
    CannotPredictError,
    find_engine,
    find_model,
    find_part,
    find_precision,
    lay_out,
    read_benchmarks,
)
from planner.calibration.columns import COLUMNS
from planner.catalog.load import load_catalog
from planner.errors import ScenarioError
from tests.benchmarks.tables import write_table


def _problems(path: Path) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        read_benchmarks(path)
    return [str(problem) for problem in caught.value.problems]


def test_numbers_are_numbers_and_blanks_are_nan(tmp_path: Path) -> None:
    frame = read_benchmarks(write_table(tmp_path / "t.csv", {}, {"tp": "", "concurrency": "35.7"}))
    assert list(frame.index) == [2, 3]
    assert frame.at[2, "tp"] == 1.0
    assert np.isnan(frame["tp"].to_numpy()[1])
    assert frame.at[3, "concurrency"] == 35.7


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("input_tokens", "0", "must be a number above zero, not '0'"),
        ("concurrency", "1e300", "must be at most 1e+12, not '1e300'"),
        ("output_tokens", "-5", "must be a number above zero, not '-5'"),
        ("input_tokens", "nan", "must be a number above zero, not 'nan'"),
        ("concurrency", "inf", "must be at most 1e+12, not 'inf'"),
        ("tpot_ms", "fast", "must be a number above zero, not 'fast'"),
        ("tp", "1.5", "must be a whole number above zero, not '1.5'"),
        ("scenario", "Conkurrency", "did you mean Concurrency?"),
    ],
)
def test_a_bad_cell_is_named_by_row_and_column(
    tmp_path: Path, column: str, cell: str, message: str
) -> None:
    path = write_table(tmp_path / "t.csv", {}, {column: cell})
    (problem,) = _problems(path)
    assert problem.startswith(f"{path}:3: {column}: ")
    assert message in problem


def test_all_problems_come_at_once_in_order(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"tpot_ms": "x"}, {}, {"input_tokens": "-1", "tp": "0"})
    assert [problem.split(": ")[0].rsplit(":", 1)[1] for problem in _problems(path)] == [
        "2",
        "4",
        "4",
    ]


def test_very_many_problems_are_cut(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", *[{"tp": "0"}] * 200)
    problems = _problems(path)
    assert len(problems) == 51
    assert problems[-1].startswith("and at least")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("model,acelerator,engine\nx,y,z\n")
    problems = _problems(path)
    assert len(problems) == len(COLUMNS) - 2
    assert any(
        "'accelerator' is missing (did you mean acelerator?)" in problem for problem in problems
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "the file is empty"), (",".join(COLUMNS) + "\n", "a header and no rows")],
)
def test_an_empty_file_is_an_error(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    assert message in _problems(path)[0]


def test_what_is_no_csv_is_an_error(tmp_path: Path) -> None:
    assert "no such file" in _problems(tmp_path / "absent.csv")[0]
    assert "is a folder" in _problems(tmp_path)[0]
    binary = tmp_path / "b.csv"
    binary.write_bytes(b"\xff\xfe\x00\x01" * 20)
    assert _problems(binary)


def test_a_blank_scenario_follows_from_the_concurrency(tmp_path: Path) -> None:
    frame = read_benchmarks(
        write_table(
            tmp_path / "t.csv",
            {"scenario": ""},
            {"scenario": "", "concurrency": ""},
            {"scenario": "SERVER"},
        )
    )
    assert list(frame["scenario"]) == ["Concurrency", "Offline", "Server"]


def test_a_byte_order_mark_and_spaces_do_no_harm(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {"model": " llama-3.1-70b "})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert list(read_benchmarks(path)["model"]) == ["llama-3.1-70b"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda lines: [lines[0], *(line + ",surplus" for line in lines[1:])],
            "more cells than the header",
        ),
        (
            lambda lines: [lines[0] + ",model ", *(line + ",x" for line in lines[1:])],
            "the column 'model' is there twice",
        ),
    ],
)
def test_a_table_out_of_shape_is_refused(
    tmp_path: Path, spoil: Callable[[list[str]], list[str]], message: str
) -> None:
    path = write_table(tmp_path / "t.csv", {})
    path.write_text("\n".join(spoil(path.read_text().splitlines())) + "\n")
    with pytest.raises(ScenarioError, match=message):
        read_benchmarks(path)


CATALOG = load_catalog()


@pytest.mark.parametrize(
    "written",
    [
        "llama-3.1-70b",
        "LLAMA-3.1-70B",
        "meta-llama/Llama-3.1-70B-Instruct",
        "Llama-3.1-70B-Instruct-FP8",
        "llama_3.1_70b",
    ],
)
def test_models_are_found_as_people_write_them(written: str) -> None:
    assert find_model(written, CATALOG).name == "llama-3.1-70b"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *((name, "H200") for name in ("H200", "h200", "H200 SXM", "NVIDIA H200-SXM-141GB")),
        ("GB200 NVL72", "GB200"),
        ("AMD Instinct MI325X", "MI325X"),
    ],
)
def test_accelerators_are_found_as_people_write_them(written: str, meant: str) -> None:
    assert find_part(written, CATALOG).name == meant


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("TRT-LLM", "tensorrt-llm"),
        ("TensorRT_LLM", "tensorrt-llm"),
        ("vLLM", "vllm"),
        ("mine", "mine"),
    ],
)
def test_engines(written: str, meant: str) -> None:
    assert find_engine(written) == meant


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(CannotPredictError, match=r"did you mean llama-3.1-70b\?"):
        find_model("lama-3.1-70b", CATALOG)
    with pytest.raises(CannotPredictError, match="unknown accelerator 'A100'"):
        find_part("A100", CATALOG)


def test_precisions() -> None:
    h200 = find_part("H200", CATALOG)
    llama = find_model("llama-3.1-70b", CATALOG)
    oss = find_model("gpt-oss-120b", CATALOG)
    assert find_precision("FP16", h200, llama) == "bf16"
    assert find_precision("", h200, llama) == "fp8"
    assert find_precision("", h200, oss) == "fp4"
    with pytest.raises(CannotPredictError, match="no fp4"):
        find_precision("nvfp4", h200, llama)
    with pytest.raises(CannotPredictError, match="unknown precision 'int3'"):
        find_precision("int3", h200, llama)


@pytest.mark.parametrize(
    ("part", "model", "precision", "tp", "ep", "accelerators", "factor"),
    [
        ("H200", "llama-3.1-70b", "fp8", 4, 1, 4, 1.0),
        ("H200", "llama-3.1-70b", "fp8", None, None, 1, 1.0),
        ("H100", "llama-3.1-70b", "bf16", None, None, 2, 2.0),
        ("H100", "llama-3.1-405b", "fp8", None, None, 8, 8.0),
        ("B200", "deepseek-v3", "fp4", 64, 8, 8, 1.0),  # tp × ep written as a product
        ("B200", "deepseek-v3", "fp4", 16, 4, 4, 1.0),
        ("H200", "gpt-oss-120b", "fp4", 4, 2, 2, 1.0),
        ("H200", "qwen3-235b-a22b", "fp8", 2, 2, 2, 1.0),
        ("H200", "deepseek-v3", "fp8", 8, 8, 8, 1.0),
        (
            "H200",
            "qwen3-235b-a22b",
            "fp8",
            1,
            1,
            2,
            2.0,
        ),  # groups of one within an expert-parallel pair
    ],
)
def test_parallelism(
    part: str,
    model: str,
    precision: str,
    tp: int | None,
    ep: int | None,
    accelerators: int,
    factor: float,
) -> None:
    found = lay_out(find_part(part, CATALOG), find_model(model, CATALOG), precision, tp, ep)
    assert (found[0].accelerators, found[0].replicas_per_concurrency) == (accelerators, factor)


def test_tp_must_divide_the_heads() -> None:
    with pytest.raises(CannotPredictError, match="tp 3 does not divide the 64 heads"):
        lay_out(find_part("H200", CATALOG), find_model("llama-3.1-70b", CATALOG), "fp8", 3, None)


@pytest.mark.parametrize(
    ("tp", "ep", "attention_dp", "expected"),
    [
        (8, 8, None, [(8, 1), (8, 8)]),  # not stated: saturation takes the better
        (8, 8, 1, [(8, 1)]),
        (8, 8, 8, [(8, 8)]),
        (1, 8, 8, [(8, 8)]),  # eight groups of one
        (4, 8, 2, [(8, 2)]),  # ep says that the groups multiply tp
        (8, None, 2, [(8, 2)]),
    ],
)
def test_attention_in_data_parallel(
    tp: int, ep: int | None, attention_dp: int | None, expected: list[tuple[int, int]]
) -> None:
    part = find_part("B200", CATALOG)
    shape = find_model("deepseek-v3", CATALOG)
    found = lay_out(part, shape, "fp4", tp, ep, attention_dp)
    assert [(layout.accelerators, layout.attention_data_parallel) for layout in found] == expected


def test_groups_that_cannot_hold_the_model_are_refused() -> None:
    with pytest.raises(CannotPredictError, match="does not fit 2 × H100"):
        lay_out(find_part("H100", CATALOG), find_model("deepseek-v3", CATALOG), "fp8", 1, None, 2)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("deepseek-v4", "deepseek-v4-pro"),
        ("GLM-5.1-FP8", "glm-5"),
        ("MiniMaxAI/MiniMax-M2.7", "minimax-m2.5"),
        ("Kimi-K2.6", "kimi-k2.5"),
    ],
)
def test_releases_of_one_shape_are_one_model(written: str, meant: str) -> None:
    assert find_model(written, CATALOG).name == meant


def test_a_router_before_the_engine_is_not_the_engine() -> None:
    assert [find_engine(name) for name in ("dynamo-trt", "Dynamo SGLang", "atom", "dynamo")] == [
        "tensorrt-llm", "sglang", "atom", "dynamo",
    ]  # fmt: skip
    assert [find_engine(name) for name in ("vllm-disagg", "mooncake-atom", "atom-mesh", "mori-sglang")] == [
        "vllm", "atom", "atom", "sglang",
    ]  # fmt: skip


# Made by hand in the form of a published result: one replica, times in seconds.
