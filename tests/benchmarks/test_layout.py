from __future__ import annotations

import pytest

from planner.benchmarks.layout import (
    CannotPredictError,
    find_engine,
    find_model,
    find_part,
    find_precision,
    lay_out,
    open_degrees,
)
from planner.catalog.load import load_catalog

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


@pytest.mark.parametrize("written", ["H200", "h200", "H200 SXM", "NVIDIA H200-SXM-141GB"])
def test_accelerators_are_found_as_people_write_them(written: str) -> None:
    assert find_part(written, CATALOG).name == "H200"


def test_gb200_is_not_b200() -> None:
    assert find_part("GB200 NVL72", CATALOG).name == "GB200"
    assert find_part("AMD Instinct MI325X", CATALOG).name == "MI325X"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("TRT-LLM", "tensorrt-llm"), ("TensorRT_LLM", "tensorrt-llm"), ("vLLM", "vllm"), ("mine", "mine")],
)
def test_engines(written: str, meant: str) -> None:
    assert find_engine(written) == meant


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(CannotPredictError, match=r"did you mean llama-3.1-70b\?"):
        find_model("lama-3.1-70b", CATALOG)
    with pytest.raises(CannotPredictError, match="unknown accelerator 'A100'"):
        find_part("A100", CATALOG)


def test_precisions() -> None:
    h200, llama, oss = (
        find_part("H200", CATALOG),
        find_model("llama-3.1-70b", CATALOG),
        find_model("gpt-oss-120b", CATALOG),
    )
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
        ("B200", "deepseek-v3", "fp4", 64, 8, 8, 1.0),  # tp × ep written as a product
        ("B200", "deepseek-v3", "fp4", 16, 4, 4, 1.0),
        ("H200", "gpt-oss-120b", "fp4", 4, 2, 2, 1.0),
        ("H200", "qwen3-235b-a22b", "fp8", 2, 2, 2, 1.0),
        ("H200", "deepseek-v3", "fp8", 8, 8, 8, 1.0),
        ("H200", "qwen3-235b-a22b", "fp8", 1, 1, 2, 2.0),  # groups of one within an expert-parallel pair
    ],
)
def test_parallelism(
    part: str, model: str, precision: str, tp: int | None, ep: int | None, accelerators: int, factor: float
) -> None:
    found = lay_out(find_part(part, CATALOG), find_model(model, CATALOG), precision, tp, ep)
    assert found == (accelerators, factor)


def test_tp_must_divide_the_heads() -> None:
    with pytest.raises(CannotPredictError, match="tp 3 does not divide the 64 heads"):
        lay_out(find_part("H200", CATALOG), find_model("llama-3.1-70b", CATALOG), "fp8", 3, None)


def test_open_degrees_hold_the_model() -> None:
    assert open_degrees(find_part("H100", CATALOG), find_model("llama-3.1-405b", CATALOG), "fp8") == [8]
