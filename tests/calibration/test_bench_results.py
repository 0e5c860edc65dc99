"""Results of the usual load generators, by their documented layouts, are rows of a benchmark table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.calibration.bench_results import parse_run
from planner.calibration.benchmarks import read_benchmarks
from planner.errors import ScenarioError
from tests.conftest import Planner, WriteScenario

RUN = {"accelerator": "H200", "tp": "4", "precision": "fp8"}
MODEL = "meta-llama/Llama-3.1-70B-Instruct"


def _vllm(**changes: Any) -> dict[str, Any]:
    """Return what vllm bench serve --save-result writes."""
    return {
        "date": "20260105-101500",
        "endpoint_type": "vllm",
        "backend": "vllm",
        "label": None,
        "model_id": MODEL,
        "tokenizer_id": MODEL,
        "num_prompts": 320,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 32,
        "duration": 100.0,
        "completed": 320,
        "total_input_tokens": 320 * 1024,
        "total_output_tokens": 320 * 512,
        "request_throughput": 3.2,
        "output_throughput": 1638.4,
        "total_token_throughput": 4915.2,
        "mean_ttft_ms": 210.0,
        "median_ttft_ms": 180.0,
        "p99_ttft_ms": 600.0,
        "mean_tpot_ms": 18.5,
        "median_tpot_ms": 18.0,
        "p99_tpot_ms": 25.0,
    } | changes


def _sglang() -> dict[str, Any]:
    """Return a line of sglang.bench_serving --output-file."""
    kept = [
        "request_rate",
        "max_concurrency",
        "duration",
        "completed",
        "total_input_tokens",
        "total_output_tokens",
        "output_throughput",
        "median_ttft_ms",
        "median_tpot_ms",
    ]
    own = {"backend": "sglang-oai", "dataset_name": "random", "random_input_len": 1024}
    return own | {key: _vllm()[key] for key in kept}


def _statistics(unit: str, middle: float) -> dict[str, Any]:
    return {"unit": unit, "avg": 1.05 * middle, "p50": middle, "p99": 3.0 * middle}


def _perf(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the summary of GenAI-Perf and AIPerf, which differ in their settings."""
    return {
        "request_throughput": {"unit": "requests/sec", "avg": 3.2},
        "time_to_first_token": _statistics("ms", 180.0),
        "inter_token_latency": _statistics("ms", 18.0),
        "output_token_throughput": {"unit": "tokens/sec", "avg": 1638.4},
        "input_sequence_length": {"unit": "tokens", "avg": 1024.0},
        "output_sequence_length": {"unit": "tokens", "avg": 512.0},
        "input_config": settings,
    }


GENAI_PERF = _perf({"model": [MODEL], "perf_analyzer": {"stimulus": {"concurrency": 32}}})
AIPERF = _perf({"endpoint": {"model_names": [MODEL]}, "loadgen": {"concurrency": 32}})


@pytest.mark.parametrize(
    ("result", "run"),
    [
        (_vllm(), {}),
        (_vllm(max_concurrency=None, num_prompts=32), {}),
        (_vllm(tensor_parallel_size="4", gpu="H200"), {}),
        (_sglang(), {"model": MODEL}),
        (GENAI_PERF, {"engine": "vllm"}),
        (AIPERF, {"engine": "vllm"}),
    ],
)
def test_a_result_is_a_row(tmp_path: Path, result: dict[str, Any], run: dict[str, str]) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result, indent=2))
    row = read_benchmarks(path, RUN | run).iloc[0]
    assert (row["model"], row["accelerator"], row["tp"]) == (MODEL, "H200", 4)
    assert (row["input_tokens"], row["output_tokens"], row["concurrency"]) == (1024, 512, 32)
    assert (row["ttft_ms"], row["tpot_ms"]) == (180, 18)
    assert row["output_tokens_per_s_per_gpu"] == pytest.approx(1638.4 / 4)
    assert row["scenario"] == "Concurrency"


def test_runs_one_after_another_are_rows_of_one_table(tmp_path: Path) -> None:
    """As several files joined by cat, as lines, or as a list."""
    runs = [_vllm(max_concurrency=load) for load in (8, 16, 32)]
    texts = [json.dumps(run) for run in runs]
    for number, text in enumerate(("".join(texts), "\n".join(texts), json.dumps(runs))):
        path = tmp_path / f"results-{number}.json"
        path.write_text(text)
        assert read_benchmarks(path, RUN)["concurrency"].tolist() == [8, 16, 32]


def test_the_commands_take_results(planner: Planner, write: WriteScenario) -> None:
    write("\n".join(json.dumps(_vllm(max_concurrency=load)) for load in (8, 32)), "runs.jsonl")
    run = ("--run", "accelerator=H200,tp=4,precision=fp8")
    told = planner("check-benchmarks", "runs.jsonl", *run, "--json")
    assert told.code == 0, told.err
    assert len(json.loads(told.out)["rows"]) >= 2
    assert planner("calibrate", "runs.jsonl", *run, "--out", "own.yaml").code == 0
    planner("check-benchmarks", "runs.jsonl").refused(
        "runs.jsonl:1: accelerator: is not in the result", "add --run tp=...", "runs.jsonl:2"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps(_vllm(completed=0)), "f.json:1: is not a result.*completed must be"),
        (json.dumps(_vllm(request_rate=4.0, max_concurrency=None)), "4.0 requests/s without"),
        (json.dumps({"hello": 1}), "no completed"),
        ("[1, 2]", "f.json:1: is not a result"),
        ("[]", "holds no result"),
        (json.dumps(_vllm(), indent=1)[:90], "is not JSON"),
        (json.dumps(GENAI_PERF | {"inter_token_latency": 5}), "f.json:1: is not a result"),
    ],
)
def test_what_is_no_result_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "f.json"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=message):
        read_benchmarks(path, RUN)


def test_what_is_stated_of_a_run_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="did you mean accelerator"):
        parse_run(["acelerator=H200"])
    table = tmp_path / "table.csv"
    table.write_text("model\nx\n")
    with pytest.raises(ScenarioError, match="--run: is for results"):
        read_benchmarks(table, RUN)
    result = tmp_path / "result.json"
    result.write_text(json.dumps(_vllm()))
    with pytest.raises(ScenarioError, match="tp: must be a whole number"):
        read_benchmarks(result, RUN | {"tp": "4.5"})
