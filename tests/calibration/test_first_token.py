"""What first tokens show beyond a prediction: closed form for one row, recovery of known effects, where they apply."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from planner.calibration.first_token import FORMULA, corrected, factors, fit_effects, labels_of
from planner.calibration.rows import first_token_labels, predict_rows, prepare
from planner.calibration.table import read_benchmarks
from planner.catalog.calibration import SHIPPED_MEASUREMENTS, shipped_file
from planner.catalog.load import load_catalog
from planner.physics.coefficients import groups_of
from tests.shipped import shipped_calibration


def labels(model: str, part: str, engine: str, prompt: float) -> tuple[str, ...]:
    return labels_of(groups_of(model, part, engine, "fp8"), engine, prompt)


def test_one_row_moves_its_groups_by_their_share_of_the_variance() -> None:
    # Six normal effects of these spreads and noise of 0.2: the posterior mean of their sum, and of each.
    sigma2 = np.array([0.5, 0.3, 0.3, 0.15, 0.2, 0.3]) ** 2
    row = labels("a", "H200", "vllm", 1000)
    effects = fit_effects([row], np.array([0.01]))
    expected = 0.01 * sigma2 / (sigma2.sum() + 0.2**2)
    assert [effects[label] for label in row] == pytest.approx(expected, abs=6e-5)  # they are kept to four digits


def test_known_effects_of_engines_and_lengths_are_found_again() -> None:
    random = np.random.default_rng(5)
    true = {"vllm": 0.1, "sglang": 0.9}
    rows, shown = [], []
    for number in range(400):
        engine = ("vllm", "sglang")[number % 2]
        prompt = (1024, 8192)[number // 2 % 2]
        rows.append(labels(f"m{number % 7}", ("H200", "B200")[number % 3 % 2], engine, prompt))
        shown.append(true[engine] - (0.5 if prompt > 5000 and engine == "sglang" else 0.0) + 0.05 * random.normal())
    shown[0] += 5.0  # one wild row bends nothing
    found = np.log(factors(rows, fit_effects(rows, np.array(shown))))
    assert np.abs(found - np.array(shown))[1:].mean() < 0.06
    other = factors([labels("new", "MI300X", "sglang", 1024), labels("new", "MI300X", "tgi", 1024), ()], {**true})
    assert np.log(other) == pytest.approx([0.9, 0.0, 0.0])


def test_prompts_of_one_length_are_those_within_a_factor_of_root_two() -> None:
    assert labels("a", "H200", "vllm", 900) == labels("a", "H200", "vllm", 1024) == labels("a", "H200", "vllm", 1400)
    assert labels("a", "H200", "vllm", 1024) != labels("a", "H200", "vllm", 2048)


def test_rows_left_out_say_nothing() -> None:
    rows = [labels("a", "H200", "vllm", 1024), labels("b", "B200", "sglang", 1024)]
    measured, predicted = np.array([2.0, 3.0]), np.ones(2)
    kept = corrected(rows, predicted, measured, np.array([True, False]))
    assert kept[0] > 1.5
    assert kept[1] == 1.0


def test_effects_scale_first_tokens_of_clients_and_nothing_else() -> None:
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    frame = frame[frame["ttft_ms"].notna()]
    frame = frame[(frame["scenario"] != "Concurrency") | (np.arange(len(frame)) % 20 == 0)].iloc[:120]
    rows, shipped = prepare(frame, load_catalog()), shipped_calibration()
    bare = replace(shipped, first_token_log_effect={})
    with_effects, without = predict_rows(rows, shipped), predict_rows(rows, bare)
    row_labels = first_token_labels(rows, shipped)
    assert with_effects["ttft_s"] == pytest.approx(
        without["ttft_s"] * factors(row_labels, shipped.first_token_log_effect[FORMULA])
    )
    for name in ("tpot_s", "tokens_per_s_per_accelerator"):
        np.testing.assert_array_equal(with_effects[name], without[name])
    follows = np.array([bool(row) for row in row_labels])
    assert follows.any()
    assert not follows[(rows.is_open | rows.is_apart)].any()


def test_clients_that_wait_for_a_place_follow_no_recipe() -> None:
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    frame = frame[(frame["scenario"] == "Concurrency") & frame["ttft_ms"].notna()].iloc[:2].copy()
    frame["concurrency"] = [4.0, 1e5]
    found = first_token_labels(prepare(frame, load_catalog()), shipped_calibration())
    assert found[0]
    assert not found[1]


def test_first_tokens_meet_their_bars() -> None:
    file = shipped_file()
    fitted, held = file.fitted["ttft_s"], file.cross_validated
    assert fitted["dense"].median_fraction <= 0.12
    assert fitted["mixture-of-experts"].median_fraction <= 0.15
    assert held["setting"]["ttft_s"]["all"].median_fraction <= 0.20
    assert file.by_request is not None
    assert file.by_request.first_token["fitted"].median_fraction <= 0.15
    assert file.by_request.first_token["layout"].median_fraction <= 0.20
    off = [abs(one.predicted / one.measured - 1.0) for one in file.by_request.promised]
    assert len(off) == 12
    assert float(np.median(off)) <= 0.12
    assert math.isclose(file.by_request.promised[0].measured, 12701.3)
