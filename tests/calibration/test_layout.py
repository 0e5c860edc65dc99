from __future__ import annotations

import pytest

from planner.calibration.layout import (
    CannotPredictError,
    find_engine,
    find_model,
    find_part,
    find_precision,
    lay_out,
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
    assert (found[0].accelerators, found[0].replicas_per_concurrency) == (accelerators, factor)


def test_tp_must_divide_the_heads() -> None:
    with pytest.raises(CannotPredictError, match="tp 3 does not divide the 64 heads"):
        lay_out(find_part("H200", CATALOG), find_model("llama-3.1-70b", CATALOG), "fp8", 3, None)


def test_an_open_degree_is_one_that_holds_the_model() -> None:
    found = lay_out(find_part("H100", CATALOG), find_model("llama-3.1-405b", CATALOG), "fp8", None, None)
    assert [(layout.accelerators, layout.attention_data_parallel) for layout in found] == [(8, 1)]


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
    part, shape = find_part("B200", CATALOG), find_model("deepseek-v3", CATALOG)
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
