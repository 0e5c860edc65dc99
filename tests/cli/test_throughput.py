from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Planner


def test_a_grid_prints_one_line_per_case(planner: Planner) -> None:
    done = planner(
        "throughput",
        "--model",
        "llama-3.1-70b",
        "--accelerator",
        "H200,MI325X",
        "--tp",
        "1,4",
        "--concurrency",
        "1,16,64",
    )
    assert done.code == 0
    assert len(done.out.splitlines()) == 2 + 2 * 2 * 3
    assert "llama-3.1-70b MI325X × 4 vllm fp8" in done.out


def test_json_says_the_same(planner: Planner) -> None:
    done = planner("throughput", "--model", "llama-3.1-70b", "--accelerator", "H200", "--concurrency", "64", "--json")
    (case,) = json.loads(done.out)["cases"]
    # One H200 at FP8 under vLLM, 1,024/1,024 at a concurrency of 64: measured 37.4 ms.
    assert case["tpot_ms"] == pytest.approx(37.4, rel=0.15)
    throughput = case["output_tokens_per_s_per_gpu"]
    assert case["tpot_ms"] * throughput / case["high"] < 37.4 < case["tpot_ms"] * throughput / case["low"]
    assert case["standing"].startswith("validated on this pair")
    assert case["tokens_per_s_per_user"] == pytest.approx(1000 / case["tpot_ms"])
    assert case["output_tokens_per_s_per_gpu"] == pytest.approx(
        case["running_sequences"] * 1000 / case["tpot_ms"] / case["tp"]
    )


def test_an_objective_is_met(planner: Planner) -> None:
    done = planner(
        "throughput",
        "--model",
        "llama-3.1-8b",
        "--accelerator",
        "H200",
        "--slo-tpot-ms",
        "20",
        "--slo-ttft-ms",
        "500",
        "--json",
    )
    (case,) = json.loads(done.out)["cases"]
    assert case["tpot_ms"] <= 20.0001
    assert case["ttft_ms"] <= 500.0001
    assert max(case["tpot_ms"] / 20, case["ttft_ms"] / 500) > 0.99


def test_saturation_has_no_time_to_first_token(planner: Planner) -> None:
    done = planner("throughput", "--model", "llama-3.1-8b", "--accelerator", "B200", "--offline", "--json")
    (case,) = json.loads(done.out)["cases"]
    assert case["ttft_ms"] is None
    assert case["concurrency"] is None
    assert case["output_tokens_per_s_per_gpu"] > 10_000


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_chart_is_drawn(planner: Planner, tmp_path: Path, suffix: str) -> None:
    chart = tmp_path / f"pareto{suffix}"
    done = planner("throughput", "--model", "llama-3.1-70b", "--accelerator", "H200,B200", "--chart", str(chart))
    assert done.code == 0
    head = {".png": b"\x89PNG", ".svg": b"<?xml"}[suffix]
    assert chart.read_bytes().startswith(head)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "llama-9"], "unknown model 'llama-9'"),
        (["--accelerator", "H2000"], "did you mean H200?"),
        (["--tp", "3"], "tp 3 does not divide the 64 heads"),
        (["--tp", "x"], "--tp: takes whole numbers by comma, not 'x'"),
        (["--precision", "fp4"], "H200 has no fp4 arithmetic"),
        (["--precision", "int7"], "unknown precision 'int7'"),
        (["--input", "0"], "--input: must be above zero"),
        (["--output", "-3"], "--output: must be above zero"),
        (["--concurrency", "nan"], "--concurrency: must be finite"),
        (["--cached", "1.5"], "--cached: must lie between 0 and 1"),
        (["--slo-tpot-ms", "-1"], "--slo-tpot-ms: must be above zero"),
        (["--model", "llama-3.1-405b", "--precision", "bf16", "--tp", "2"], "do not fit 2 × H200; 8 would hold them"),
        (["--model", "llama-3.1-405b", "--precision", "bf16", "--accelerator", "H100"], "fp8 would fit"),
        (["--chart", "picture.docx"], "a chart is written as .png, .svg, .pdf"),
        (["--chart", "absent/picture.png"], "cannot be written"),
        (["--calibration", "absent.yaml"], "absent.yaml"),
    ],
)
def test_bad_input_is_refused(planner: Planner, arguments: list[str], message: str) -> None:
    base = {"--model": "llama-3.1-70b", "--accelerator": "H200"} | dict(
        zip(arguments[::2], arguments[1::2], strict=True)
    )
    planner("throughput", *[word for pair in base.items() for word in pair]).refused(message)


def test_all_problems_come_at_once(planner: Planner) -> None:
    done = planner("throughput", "--model", "llama-9,llama-3.1-70b", "--accelerator", "H200", "--precision", "fp4")
    done.refused("unknown model 'llama-9'", "H200 has no fp4 arithmetic")
