"""Benchmarks request by request: clients that drift apart, and arrivals against the closed form of M/D/1."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner.calibration.check import check_benchmarks
from planner.calibration.clients import (
    Load,
    _share_in_time,
    closed_loop,
    predict_by_request,
    promised_tokens_per_s,
    rows_by_request,
)
from planner.calibration.rows import prepare
from planner.calibration.table import read_benchmarks
from planner.catalog.calibration import SHIPPED_MEASUREMENTS
from planner.catalog.load import load_catalog
from planner.physics.memory import PREFILL_CHUNK_TOKENS
from planner.requests.steps import StepTimes
from tests.shipped import shipped_calibration


def waits_at_most(t_over_d: float, busy: float) -> float:
    """Return P(W ≤ t) of M/D/1 (Erlang 1909): (1 − ρ)·Σ (ρ·(k − t/D))^k / k! · exp(−ρ·(k − t/D)), k ≤ t/D."""
    ahead = [busy * (k - t_over_d) for k in range(int(t_over_d) + 1)]
    return (1.0 - busy) * sum(x**k / math.factorial(k) * math.exp(-x) for k, x in enumerate(ahead))


@pytest.mark.parametrize(("busy", "t_over_d"), [(0.5, 2.0), (0.7, 3.5)])
def test_prompts_alone_on_one_replica_wait_as_in_m_d_1(busy: float, t_over_d: float) -> None:
    # Each prompt fills a step of 0.1 s and asks for one token: a queue with one server and constant service.
    times = StepTimes(fixed_s=0.02, prefill_s_per_token=0.08 / PREFILL_CHUNK_TOKENS)
    arrivals = 20_000
    load = (arrivals, PREFILL_CHUNK_TOKENS, 1)
    found = _share_in_time(times, 1, busy / 0.1, load, (0.1 * (1.0 + t_over_d) + 1e-9, math.inf))
    expected = waits_at_most(t_over_d, busy)
    # Waits are correlated over some 1/(1 − ρ)² requests, which leaves so many independent ones of the half counted.
    error = math.sqrt(expected * (1.0 - expected) / (0.5 * arrivals * (1.0 - busy) ** 2))
    assert abs(found - expected) < 4.0 * error


def test_a_second_replica_takes_what_the_first_would_keep_waiting() -> None:
    times = StepTimes(fixed_s=0.02, prefill_s_per_token=0.08 / PREFILL_CHUNK_TOKENS)
    load, objectives = (4000, PREFILL_CHUNK_TOKENS, 1), (0.25, math.inf)
    alone, pooled = (_share_in_time(times, count, 7.0, load, objectives) for count in (1, 2))
    assert pooled > alone + 0.05


def test_clients_drift_apart() -> None:
    # In step, eight prompts of one step each would come at once in every round, and each wait for all of them.
    times = StepTimes(fixed_s=0.01, prefill_s_per_token=1e-4)
    ttft_s, _ = closed_loop(times, Load(clients=8, prompt_tokens=1000, output_tokens=1000))
    together_s = 0.01 + 8 * 0.1
    assert ttft_s == pytest.approx(0.1 * together_s + 0.9 * (0.01 + 0.1), rel=0.15)


def test_rows_with_a_promise_are_compared_by_throughput_alone() -> None:
    frame = rows_by_request(read_benchmarks(SHIPPED_MEASUREMENTS))
    assert set(frame["scenario"]) == {"Concurrency", "Server", "Interactive"}
    promised = frame[frame["scenario"] != "Concurrency"]
    assert promised[["ttft_ms", "tpot_ms"]].isna().all(axis=None)
    assert (promised["output_tokens_per_s_per_gpu"] > 0).all()


def test_a_promise_is_kept_at_about_the_throughput_measured() -> None:
    frame = rows_by_request(read_benchmarks(SHIPPED_MEASUREMENTS))
    frame = frame[(frame["scenario"] == "Interactive") & (frame["accelerator"] == "B200")]
    found = check_benchmarks(frame, load_catalog(), shipped_calibration(), predict_by_request)
    assert found.quantity.tolist() == ["output_tokens_per_s_per_gpu"]
    assert abs(found.error_fraction[0]) < 0.2
    rows = prepare(frame, load_catalog())
    lengths = (float(rows.input_tokens[0]), float(rows.output_tokens[0]))
    # Prompts take a second alone: half of one cannot be kept.
    assert promised_tokens_per_s(rows.deployments[0], shipped_calibration(), lengths, (0.1, 0.08)) == 0.0


def test_a_sample_of_measured_rows_is_predicted_by_request() -> None:
    frame = rows_by_request(read_benchmarks(SHIPPED_MEASUREMENTS))
    frame = frame[(frame["scenario"] == "Concurrency") & frame["ttft_ms"].notna() & (frame["concurrency"] <= 64)]
    found = check_benchmarks(frame.iloc[::12], load_catalog(), shipped_calibration(), predict_by_request)
    first = found.is_predicted & (found.quantity == "ttft_ms")
    assert first.sum() > 40
    assert np.median(np.abs(found.error_fraction[first])) < 0.20
    tokens = found.is_predicted & (found.quantity == "tpot_ms")
    assert np.median(np.abs(found.error_fraction[tokens])) < 0.10
