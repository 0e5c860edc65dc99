from __future__ import annotations

import json

import pytest

from tests.conftest import Planner, WriteScenario


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
    done = planner(
        "throughput", "--model", "llama-3.1-8b", "--accelerator", "B200", "--offline", "--json"
    )
    (case,) = json.loads(done.out)["cases"]
    assert case["ttft_ms"] is None
    assert case["concurrency"] is None
    assert case["output_tokens_per_s_per_gpu"] > 10_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "llama-9"], "unknown model 'llama-9'"),
        (["--accelerator", "H2000"], "did you mean H200?"),
        (["--tp", "3"], "tp 3 does not divide the 64 heads"),
        (["--tp", "x"], "--tp: takes whole numbers separated by commas, not 'x'"),
        (["--precision", "fp4"], "H200 has no fp4 arithmetic"),
        (["--precision", "int7"], "unknown precision 'int7'"),
        (["--input", "0"], "--input: must be above zero"),
        (["--output", "-3"], "--output: must be above zero"),
        (["--concurrency", "nan"], "--concurrency: must be finite"),
        (["--cached", "1.5"], "--cached: must lie between 0 and 1"),
        (["--slo-tpot-ms", "-1"], "--slo-tpot-ms: must be above zero"),
        (
            ["--model", "llama-3.1-405b", "--precision", "bf16", "--tp", "2"],
            "do not fit 2 × H200; 8 would hold them",
        ),
        (
            ["--model", "llama-3.1-405b", "--precision", "bf16", "--accelerator", "H100"],
            "fp8 would fit",
        ),
        (["--calibration", "absent.yaml"], "absent.yaml"),
    ],
)
def test_bad_input_is_refused(planner: Planner, arguments: list[str], message: str) -> None:
    base = {"--model": "llama-3.1-70b", "--accelerator": "H200"} | dict(
        zip(arguments[::2], arguments[1::2], strict=True)
    )
    planner("throughput", *[word for pair in base.items() for word in pair]).refused(message)


def test_one_impossible_case_does_not_take_the_others_away(planner: Planner) -> None:
    arguments = ("throughput", "--model", "llama-3.1-405b,llama-3.1-70b", "--accelerator", "H100,H200,B200",
                 "--precision", "fp8,fp4", "--tp", "1,8", "--concurrency", "1,64")  # fmt: skip
    done = planner(*arguments)
    assert done.code == 0, done.err
    above, below = done.out.split("\ncannot be:\n")
    assert "llama-3.1-70b H200 × 1 vllm fp8" in above
    assert "H200 has no fp4 arithmetic" in below
    assert (
        "llama-3.1-405b H200 × 1 vllm fp8, 1024/1024: llama-3.1-405b at fp8 and 2,048 tokens do not fit"
        in below
    )
    cases = json.loads(planner(*arguments, "--json").out)["cases"]
    fine = [case for case in cases if case["problem"] is None]
    assert len(fine) == 2 * len([line for line in above.splitlines()[2:] if line.strip()]) / 2
    assert all(case["tpot_ms"] > 0 for case in fine)
    wrong = [case for case in cases if case["problem"] is not None]
    assert len(wrong) == len(below.strip().splitlines())
    assert all(case["tpot_ms"] is None and case["memory_limited"] is None for case in wrong)
    asked = [(case["model"], case["accelerator"]) for case in cases]
    assert asked == sorted(asked, key=lambda pair: (["llama-3.1-405b", "llama-3.1-70b"].index(pair[0]),
                                                    ["H100", "H200", "B200"].index(pair[1])))  # fmt: skip


def test_a_scenario_prints_how_each_workload_is_served_and_the_next_best(
    planner: Planner, write: WriteScenario
) -> None:
    file = str(write())
    choices = json.loads(planner("throughput", file, "--json").out)["layouts"]
    table = planner("throughput", file, "--set", "clusters.*.engine=vllm")
    assert table.code == 0
    assert "next best" in table.out
    for choice in choices:
        assert choice["next_best_requests_per_s"] <= choice["node_requests_per_s"]
        assert f"{choice['node_requests_per_s']:.4g}" in planner("throughput", file).out
        assert choice["workload"] in table.out


def test_neither_scenario_nor_model_is_refused(planner: Planner) -> None:
    planner("throughput", "--model", "llama-3.1-70b").refused(
        "takes a scenario file, or both --model and --accelerator"
    )
