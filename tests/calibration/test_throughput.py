from __future__ import annotations

import dataclasses

import pytest

from planner.calibration.throughput import DEFAULT_CONCURRENCY, OperatingPoints, evaluate_grid, throughput_table
from planner.catalog.load import load_catalog
from planner.errors import ScenarioError
from tests.shipped import shipped_calibration

GRID = OperatingPoints(
    models=["llama-3.1-70b"], accelerators=["H200"], engines=["vllm"], precisions=[""], tensor_parallel=[None],
    input_tokens=[1024], output_tokens=[1024],
)  # fmt: skip


def _evaluate(**changes: object) -> list[dict[str, object]]:
    return evaluate_grid(dataclasses.replace(GRID, **changes), load_catalog(), shipped_calibration())  # type: ignore[arg-type]


def test_without_a_load_the_usual_range_is_shown() -> None:
    assert [record["concurrency"] for record in _evaluate()] == list(DEFAULT_CONCURRENCY)


def test_the_pareto_front_falls() -> None:
    records = _evaluate()
    interactivity = [record["tokens_per_s_per_user"] for record in records]
    throughput = [record["output_tokens_per_s_per_gpu"] for record in records]
    assert interactivity == sorted(interactivity, reverse=True)  # type: ignore[type-var]
    assert throughput == sorted(throughput)  # type: ignore[type-var]


def test_published_precision_is_the_default() -> None:
    (oss, *_) = _evaluate(models=["gpt-oss-120b"])
    assert oss["precision"] == "fp4"


def test_the_fewest_accelerators_that_hold_the_context_are_taken() -> None:
    (short, *_) = _evaluate(precisions=["bf16"])
    assert short["tp"] == 2


def test_what_cannot_be_is_told_at_once() -> None:
    with pytest.raises(ScenarioError) as caught:
        _evaluate(input_tokens=[0], output_tokens=[-1], cached_fraction=2.0)
    assert len(caught.value.problems) == 3


def test_a_table_marks_what_waits_for_memory() -> None:
    text = throughput_table(_evaluate(input_tokens=[8192], concurrency=[8, 128]))
    assert " yes " in text.splitlines()[-1]
    assert text.splitlines()[-1].endswith("validated on this pair, ±14%")
    assert not text.splitlines()[-2].endswith("yes")


def test_layouts_are_those_of_a_scenarios_cluster() -> None:
    """DeepSeek on eight H200 at a concurrency of 1,024: attention in groups holds more sequences at once."""
    load = {"models": ["deepseek-v3"], "engines": ["sglang"], "tensor_parallel": [8], "concurrency": [1024]}
    (whole,), (groups,) = _evaluate(**load), _evaluate(**load, attention_data_parallel=8)
    assert groups["output_tokens_per_s_per_gpu"] > 1.2 * whole["output_tokens_per_s_per_gpu"]  # type: ignore[operator]
    assert (whole["attention_dp"], groups["attention_dp"]) == (1, 8)
    assert "attention in 8" in throughput_table([groups])
    (few,) = _evaluate(**load, max_sequences=64)
    assert few["running_sequences"] == 64


def test_speculation_pays_less_as_the_batch_grows() -> None:
    load = {"tensor_parallel": [4], "concurrency": [4, 256]}
    plain, drafted = _evaluate(**load), _evaluate(**load, drafted_tokens=3, mean_acceptance_length=2.5)
    gains = [one["tpot_ms"] / other["tpot_ms"] for one, other in zip(plain, drafted, strict=True)]  # type: ignore[operator]
    assert 2.5 > gains[0] > gains[1]


def test_a_decode_worker_is_faster_and_has_no_first_token_of_its_own() -> None:
    load = {"models": ["deepseek-r1"], "engines": ["sglang"], "tensor_parallel": [8], "concurrency": [64]}
    (shared,), (apart,) = (
        _evaluate(**load, input_tokens=[8192]),
        _evaluate(**load, input_tokens=[8192], disaggregated=True),
    )
    assert apart["tpot_ms"] < shared["tpot_ms"]  # type: ignore[operator]
    assert apart["ttft_ms"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attention_data_parallel": 0}, "--attention-dp: must be at least 1"),
        ({"max_sequences": 0}, "--max-sequences: must be at least 1"),
        (
            {"drafted_tokens": 2, "mean_acceptance_length": 4.0},
            "--accepted: a step that checks 2 drafts yields 1 to 3 tokens",
        ),
        ({"disaggregated": True, "offline": True}, "--disaggregated: a decode worker has no prompts"),
        ({"attention_data_parallel": 2}, "llama-3.1-70b is dense"),
        ({"models": ["deepseek-v3"], "tensor_parallel": [8], "attention_data_parallel": 3}, "3 groups of attention"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        _evaluate(**change)
