from __future__ import annotations

import dataclasses

import pytest

from planner.calibration.throughput import (
    DEFAULT_CONCURRENCY,
    OperatingPoints,
    evaluate_grid,
    throughput_table,
)
from planner.catalog.load import load_catalog
from planner.errors import ScenarioError
from tests.shipped import shipped_calibration

GRID = OperatingPoints(
    models=["llama-3.1-70b"], accelerators=["H200"], engines=["vllm"], precisions=[""], tensor_parallel=[None],
    input_tokens=[1024], output_tokens=[1024],
)  # fmt: skip


def _evaluate(**changes: object) -> list[dict[str, object]]:
    grid = dataclasses.replace(GRID, **changes)  # type: ignore[arg-type]
    return evaluate_grid(grid, load_catalog(), shipped_calibration())


def test_without_a_load_the_usual_range_is_shown() -> None:
    assert [record["concurrency"] for record in _evaluate()] == list(DEFAULT_CONCURRENCY)


def test_the_pareto_front_falls() -> None:
    records = _evaluate()
    interactivity = [record["tokens_per_s_per_user"] for record in records]
    throughput = [record["output_tokens_per_s_per_gpu"] for record in records]
    assert interactivity == sorted(interactivity, reverse=True)  # type: ignore[type-var]
    assert throughput == sorted(throughput)  # type: ignore[type-var]


def test_what_cannot_be_is_told_at_once() -> None:
    with pytest.raises(ScenarioError) as caught:
        _evaluate(input_tokens=[0], output_tokens=[-1], cached_fraction=2.0)
    assert len(caught.value.problems) == 3


def test_a_table_marks_what_waits_for_memory() -> None:
    text = throughput_table(_evaluate(input_tokens=[8192], concurrency=[8, 128]))
    assert " yes " in text.splitlines()[-1]
    assert text.splitlines()[-1].endswith("validated on this pair, ±14%")
    assert not text.splitlines()[-2].endswith("yes")
