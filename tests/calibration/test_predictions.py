"""Rows as arrays, what first tokens show beyond a prediction, and benchmarks request by request."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from docs.generate.by_request import (
    closed_loop,
    open_loop,
    predict_by_request,
    rows_by_request,
    slo_tokens_per_s,
)
from docs.generate.throughput_fit import _disaggregated, fit_effects, measurements, predict_with
from planner.calibration.benchmarks import acceptance_length, find_draft, read_benchmarks
from planner.calibration.check import check_benchmarks
from planner.calibration.predictions import (
    FORMULA,
    drafting,
    factors,
    first_token_labels,
    labels_of,
    lag_speeds,
    predict_rows,
    prepare,
    priced_rows,
)
from planner.catalog.calibration import SHIPPED_MEASUREMENTS, shipped_file
from planner.catalog.load import load_catalog
from planner.physics.coefficients import groups_of
from planner.physics.model_on_part import CHUNK_TOKENS
from planner.requests.batching import StepTimes
from tests.benchmarks.tables import write_table
from tests.shipped import shipped_calibration

SHIPPED = shipped_calibration()
OFFLINE = {
    "scenario": "Offline", "concurrency": "", "ttft_ms": "", "tpot_ms": "", "output_tokens_per_s_per_gpu": "3000",
}  # fmt: skip


def _prepared(path: Path, *changes: dict[str, str]):  # type: ignore[no-untyped-def]
    frame = read_benchmarks(write_table(path / "t.csv", *changes))
    return frame, prepare(frame, load_catalog())


def test_concurrency_without_tp_is_per_accelerator(tmp_path: Path) -> None:
    _, rows = _prepared(
        tmp_path, {"accelerator": "H100", "precision": "bf16", "tp": "", "concurrency": "10"}
    )
    assert list(rows.concurrency) == [20.0]  # 70B at 16 bits takes two H100


def test_a_round_prompt_length_predicts_what_its_neighbours_do(tmp_path: Path) -> None:
    """4,000 tokens are no more cached than 4,001: only a declared hit fraction spares prefill."""
    changes = [
        {"input_tokens": tokens, "output_tokens": "500", "concurrency": "128"}
        for tokens in ("4000", "4001")
    ]
    _, rows = _prepared(tmp_path, *changes)
    at_4000, at_4001 = predict_rows(rows, SHIPPED)["tpot_s"]
    assert at_4001 == pytest.approx(at_4000, rel=1e-3)


@pytest.mark.parametrize(
    ("engine", "version", "source", "stated", "hit"),
    [
        (
            "vllm",
            "0.12.0",
            "runs as published in aiconfigurator-core 0.12.0",
            "",
            1 - 100 / (10 * 64),
        ),
        ("vllm", "0.12.0", "runs as published in aiconfigurator-core 0.12.0", "0.25", 0.25),
        ("vllm", "0.12.0", "our own", "", 0.0),
        ("vllm", "0.15.1", "runs as published in aiconfigurator-core 0.12.0", "", 0.0),
        ("sglang", "0.12.0", "runs as published in aiconfigurator-core 0.12.0", "", 0.0),
    ],
)
def test_a_published_campaign_that_repeats_prompts_is_known_by_source_and_version(
    tmp_path: Path, engine: str, version: str, source: str, stated: str, hit: float
) -> None:
    path = write_table(tmp_path / "t.csv", {"engine": engine, "concurrency": "64"})
    header, row = path.read_text().splitlines()
    path.write_text(
        f"{header},engine_version,source,prefix_hit_fraction\n{row},{version},{source},{stated}\n"
    )
    assert prepare(read_benchmarks(path), load_catalog()).cached_fraction == pytest.approx([hit])


def test_the_shipped_table_declares_what_is_known_of_its_sources() -> None:
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    declared = prepare(frame, load_catalog()).cached_fraction
    undeclared = prepare(frame.assign(prefix_hit_fraction=np.nan), load_catalog()).cached_fraction
    assert undeclared == pytest.approx(declared, abs=1e-4)


def test_fewer_admitted_sequences_serve_less(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", OFFLINE, OFFLINE)
    lines = path.read_text().splitlines()
    path.write_text(f"{lines[0]},max_num_seqs\n{lines[1]},\n{lines[2]},16\n")
    rows = prepare(read_benchmarks(path), load_catalog())
    free, limited = predict_rows(rows, SHIPPED)["tokens_per_s_per_accelerator"]
    assert limited < 0.5 * free


def test_independent_arrivals_wait_less_than_a_burst(tmp_path: Path) -> None:
    _, rows = _prepared(tmp_path, {}, {"scenario": "Server"})
    burst_s, independent_s = predict_rows(rows, SHIPPED)["ttft_s"]
    assert independent_s < burst_s


def test_an_objective_without_a_load_is_met(tmp_path: Path) -> None:
    change = {"scenario": "Server", "concurrency": "", "slo_ttft_ms": "2000", "slo_tpot_ms": "50"}
    _, rows = _prepared(
        tmp_path, change, {**change, "slo_ttft_ms": ""}, {**change, "slo_tpot_ms": ""}
    )
    found = predict_rows(rows, SHIPPED)
    assert found["tpot_s"][0] == pytest.approx(0.05, rel=2e-3)
    assert found["tpot_s"][1] == pytest.approx(0.05, rel=2e-3)
    assert found["ttft_s"][2] <= 2.0
    assert np.all(found["tokens_per_s_per_accelerator"] > 0)


def test_the_fit_sees_what_the_check_predicts(tmp_path: Path) -> None:
    frame, rows = _prepared(
        tmp_path, {}, {"scenario": "Server", "engine": "trtllm"}, OFFLINE, {**OFFLINE, "tp": ""}
    )
    data = measurements(frame, rows, SHIPPED)
    fitted = predict_with(data, SHIPPED)
    checked = predict_rows(rows, SHIPPED)
    assert fitted["tpot_s"] == pytest.approx(checked["tpot_s"])
    assert fitted["output_tokens_per_s_per_accelerator"] == pytest.approx(
        checked["tokens_per_s_per_accelerator"]
    )
    assert data.engine == ["vllm", "tensorrt-llm", "vllm", "vllm"]


def test_case_and_order_of_rows_do_not_matter(tmp_path: Path) -> None:
    changes = [
        {"tp": "4"},
        {"engine": "TRTLLM"},
        {"model": "gpt-oss-120b", "precision": "MXFP4"},
        OFFLINE,
    ]
    _, rows = _prepared(tmp_path, *changes)
    _, turned = _prepared(tmp_path, *changes[::-1])
    forward = predict_rows(rows, SHIPPED)
    backward = predict_rows(turned, SHIPPED)
    for name in forward:
        assert np.array_equal(forward[name], backward[name][::-1])


POOLS = (
    "model,accelerator,engine,precision,input_tokens,output_tokens,concurrency,prefill_workers,prefill_tp,"
    "decode_workers,tp,ep,ttft_ms,tpot_ms,scenario,slo_ttft_ms,slo_tpot_ms,output_tokens_per_s_per_gpu\n"
)


def _pools(path: Path, *lines: str):  # type: ignore[no-untyped-def]
    rows = "".join(f"{line},Disaggregated,,,\n" for line in lines)
    (path / "pools.csv").write_text(POOLS + rows, encoding="utf-8")
    frame = read_benchmarks(path / "pools.csv")
    return frame, prepare(frame, load_catalog())


def test_a_row_of_separate_pools_is_its_decode_workers(tmp_path: Path) -> None:
    same = "deepseek-r1,GB200,tensorrt-llm,fp4,1024,1024"
    _, rows = _pools(
        tmp_path,
        f"{same},64,1,4,4,8,4,300,9",  # four workers of eight, stated
        f"{same},64,,4,,8,4,300,9",  # not stated: 32 accelerators
        f"{same},64,,36,,36,1,300,9",  # the whole deployment's accelerators
        f"{same},2252,,4,,8,4,5000,32",  # crowded: one worker
    )
    assert rows.reasons == [""] * 4
    assert list(rows.concurrency) == [16, 16, 16, 2252]
    found = predict_rows(rows, replace(SHIPPED, group_log_effect={}))["tpot_s"]
    assert found[:3] == pytest.approx(
        found[0], rel=0.03
    )  # without ep its experts are sliced, not placed
    assert found[3] > 2 * found[0]


def test_a_decode_worker_prefills_nothing(tmp_path: Path) -> None:
    same = "deepseek-r1,B200,tensorrt-llm,fp8"
    _, rows = _pools(
        tmp_path, f"{same},8192,64,512,1,8,1,8,8,300,9", f"{same},1024,64,512,1,8,1,8,8,300,9"
    )
    long_s, short_s = predict_rows(rows, SHIPPED)["tpot_s"]
    assert (
        long_s < 1.5 * short_s
    )  # more cache to read; 8,192 tokens of prefill for 64 of output would cost far more


def test_the_first_token_of_separate_pools_follows_their_prefill_workers(tmp_path: Path) -> None:
    """A pool that keeps up, one that does not, and one that is not stated and so is taken to keep up."""
    same = "deepseek-r1,GB200,sglang,fp8,8192,1024,6144"
    _, rows = _pools(
        tmp_path,
        f"{same},80,8,1,32,32,4000,20",
        f"{same},5,8,1,32,32,75000,20",
        f"{same},,8,,32,32,4000,20",
    )
    plain = replace(SHIPPED, group_log_effect={})
    found = predict_rows(rows, plain)
    priced = priced_rows(rows, plain)
    replicas = priced.replicas
    index = priced.index
    prefill_s = (
        replicas["prefill_s_per_token"] * 8192 + replicas["attention_s_per_token2"] * 8192**2 / 2
    )
    round_s = 6144 * (prefill_s * replicas["accelerators"])[index[:2]] / np.array([80 * 8, 5 * 8])
    decode_s = 1024 * found["tpot_s"]
    enough, short, unstated = found["ttft_s"].tolist()
    assert round_s[0] < 0.6 * decode_s[0] < decode_s[1] < round_s[1]
    assert enough < 0.25 * decode_s[0]
    assert short == pytest.approx(
        round_s[1] - decode_s[1], rel=0.3
    )  # what is left of a round, and little else
    assert enough < unstated < short
    assert list(rows.prefill_busy_fraction) == [np.inf, np.inf, 0.7]


def test_runs_that_draft_and_do_not_say_so_are_told_apart() -> None:
    """Half of the rows are made to draft, all 10% slower than predicted: the effect and the share are found."""
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    frame = frame[(frame["scenario"] == "Disaggregated") & (frame["accelerator"] == "H200")].copy()
    frame = frame[frame["decode_workers"].notna()]
    rows = prepare(frame, load_catalog())
    plain = replace(SHIPPED, group_log_effect={}, drafted_share={})
    certain, drafted = (predict_rows(one, plain)["tpot_s"] for one in (rows, drafting(rows)))
    assert np.median(drafted / certain) < 0.75
    for share, pick in (
        (0.0, np.zeros(len(frame), dtype=bool)),
        (0.5, np.arange(len(frame)) % 2 == 0),
    ):
        frame["tpot_ms"] = 1.1e3 * np.where(pick, drafted, certain)
        effects, shares, spread = _disaggregated(frame, rows, plain)
        ((campaign, effect),) = effects.items()
        assert effect == pytest.approx(np.log(1.1), abs=0.06)
        assert shares.get(campaign, 0.0) == pytest.approx(share, abs=0.15)
        assert spread.setting <= (0.3 if share else 0.05)
    told = replace(plain, drafted_share={campaign: 0.5})
    assert predict_rows(rows, told)["tpot_s"] == pytest.approx(np.sqrt(certain * drafted))
    frame["speculative"] = "none"  # a row that says so is no mixture
    assert predict_rows(prepare(frame, load_catalog()), told)["tpot_s"] == pytest.approx(certain)


def test_a_column_says_which_rows_draft_tokens(tmp_path: Path) -> None:
    texts = ("", "none", "mtp", "MTP k=1", "eagle3", "4", "nextn-2")
    assert [find_draft(text) for text in texts] == [0, 0, 3, 1, 3, 4, 2]
    assert [acceptance_length(count) for count in (0, 3)] == [1.0, 2.49]
    lengths = [acceptance_length(count) for count in range(9)]
    assert all(
        now < then <= count + 1
        for count, (now, then) in enumerate(itertools.pairwise(lengths), start=1)
    )
    _, rows = _prepared(tmp_path, {}, {"speculative": "mtp"}, {"speculative": "off"})
    certain, drafted, off = predict_rows(rows, SHIPPED)["tpot_s"]
    assert certain / 2.49 < drafted < certain == off


def test_a_new_model_is_slower_on_a_stack_that_still_learns_it(tmp_path: Path) -> None:
    """On ROCm's vLLM a model begins at 0.35 of full speed, and no longer lags after half a year; nor where measured."""
    new = {
        "model": "kimi-k2.5",
        "accelerator": "MI355X",
        "precision": "fp4",
        "tp": "8",
        "concurrency": "16",
    }
    dates = ("2026-01-27", "2026-02-24", "2026-08-01", "", "2025-09-29..2026-07-18")
    _, rows = _prepared(tmp_path, *({**new, "measured_date": date} for date in dates))
    speeds = lag_speeds(rows, priced_rows(rows, SHIPPED), SHIPPED)
    fraction = load_catalog().stack("amd", "vllm").bring_up_throughput_fraction.base
    weeks = 8.0
    assert speeds[0] == pytest.approx(fraction, abs=0.02)
    assert speeds[1] == pytest.approx(1 - (1 - fraction) * np.exp(-3 * 4 / weeks), abs=0.01)
    assert speeds[2] == pytest.approx(1.0, abs=0.001)
    assert speeds[3] == 1.0
    assert (
        0.9 < speeds[4] < 0.95
    )  # from the launch on: (1 − f)·τ over the 24.6 weeks to the last day
    tpot_s = predict_rows(rows, SHIPPED)["tpot_s"]
    assert tpot_s * speeds == pytest.approx(tpot_s[3])
    seen = {
        "model": "minimax-m2.5",
        "accelerator": "MI355X",
        "precision": "fp8",
        "tp": "8",
        "concurrency": "16",
    }
    _, rows = _prepared(tmp_path, {**seen, "measured_date": "2026-02-20"})
    assert list(lag_speeds(rows, priced_rows(rows, SHIPPED), SHIPPED)) == [1.0]


def test_published_deployments_of_separate_pools_are_predicted() -> None:
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    frame = frame[frame["scenario"] == "Disaggregated"]
    rows = prepare(frame, load_catalog())
    error = np.abs(predict_rows(rows, SHIPPED)["tpot_s"] / (frame["tpot_ms"].to_numpy() * 1e-3) - 1)
    assert error.size == 555
    assert np.median(error) <= 0.20
    first = np.abs(predict_rows(rows, SHIPPED)["ttft_s"] / (frame["ttft_ms"].to_numpy() * 1e-3) - 1)
    is_stated = frame["prefill_workers"].notna().to_numpy()
    assert np.nanmedian(first[is_stated]) <= 0.35
    assert np.nanmedian(first[~is_stated]) <= 0.45


def labels(model: str, part: str, engine: str, prompt: float) -> tuple[str, ...]:
    return labels_of(groups_of(model, part, engine, "fp8"), engine, prompt)


def test_one_row_moves_its_groups_by_their_share_of_the_variance() -> None:
    # Six normal effects of these spreads and noise of 0.2: the posterior mean of their sum, and of each.
    sigma2 = np.array([0.5, 0.3, 0.3, 0.15, 0.2, 0.3]) ** 2
    row = labels("a", "H200", "vllm", 1000)
    effects = fit_effects([row], np.array([0.01]))
    expected = 0.01 * sigma2 / (sigma2.sum() + 0.2**2)
    assert [effects[label] for label in row] == pytest.approx(
        expected, abs=6e-5
    )  # they are kept to four digits


def test_known_effects_of_engines_and_lengths_are_found_again() -> None:
    random = np.random.default_rng(5)
    true = {"vllm": 0.1, "sglang": 0.9}
    rows = []
    shown = []
    for number in range(400):
        engine = ("vllm", "sglang")[number % 2]
        prompt = (1024, 8192)[number // 2 % 2]
        rows.append(labels(f"m{number % 7}", ("H200", "B200")[number % 3 % 2], engine, prompt))
        shown.append(
            true[engine]
            - (0.5 if prompt > 5000 and engine == "sglang" else 0.0)
            + 0.05 * random.normal()
        )
    shown[0] += 5.0  # one wild row bends nothing
    found = np.log(factors(rows, fit_effects(rows, np.array(shown))))
    assert np.abs(found - np.array(shown))[1:].mean() < 0.06
    other = factors(
        [labels("new", "MI300X", "sglang", 1024), labels("new", "MI300X", "tgi", 1024), ()],
        {**true},
    )
    assert np.log(other) == pytest.approx([0.9, 0.0, 0.0])


def test_prompts_of_one_length_are_those_within_a_factor_of_root_two() -> None:
    assert (
        labels("a", "H200", "vllm", 900)
        == labels("a", "H200", "vllm", 1024)
        == labels("a", "H200", "vllm", 1400)
    )
    assert labels("a", "H200", "vllm", 1024) != labels("a", "H200", "vllm", 2048)


def test_rows_left_out_say_nothing() -> None:
    rows = [labels("a", "H200", "vllm", 1024), labels("b", "B200", "sglang", 1024)]
    measured = np.array([2.0, 3.0])
    predicted = np.ones(2)
    log_ratio = np.where([True, False], np.log(measured / predicted), np.nan)
    kept = predicted * factors(rows, fit_effects(rows, log_ratio))
    assert kept[0] > 1.5
    assert kept[1] == 1.0


def test_effects_scale_first_tokens_of_clients_and_nothing_else() -> None:
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    frame = frame[frame["ttft_ms"].notna()]
    frame = frame[(frame["scenario"] != "Concurrency") | (np.arange(len(frame)) % 20 == 0)].iloc[
        :120
    ]
    rows = prepare(frame, load_catalog())
    shipped = shipped_calibration()
    bare = replace(shipped, first_token_log_effect={})
    with_effects = predict_rows(rows, shipped)
    without = predict_rows(rows, bare)
    row_labels = first_token_labels(rows, priced_rows(rows, shipped))
    assert with_effects["ttft_s"] == pytest.approx(
        without["ttft_s"] * factors(row_labels, shipped.first_token_log_effect[FORMULA])
    )
    for name in ("tpot_s", "tokens_per_s_per_accelerator"):
        np.testing.assert_array_equal(with_effects[name], without[name])
    follows = np.array([bool(row) for row in row_labels])
    assert follows.any()
    assert not follows[(rows.is_open | rows.is_disaggregated)].any()


def test_clients_that_wait_for_a_place_follow_no_recipe() -> None:
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    frame = frame[(frame["scenario"] == "Concurrency") & frame["ttft_ms"].notna()].iloc[:2].copy()
    frame["concurrency"] = [4.0, 1e5]
    rows = prepare(frame, load_catalog())
    found = first_token_labels(rows, priced_rows(rows, shipped_calibration()))
    assert found[0]
    assert not found[1]


def test_first_tokens_meet_their_bars() -> None:
    file = shipped_file()
    fitted = file.fitted["ttft_s"]
    held = file.cross_validated
    assert fitted["dense"].median_fraction <= 0.12
    assert fitted["mixture-of-experts"].median_fraction <= 0.15
    assert held["setting"]["ttft_s"]["all"].median_fraction <= 0.20
    assert file.by_request is not None
    assert file.by_request.first_token["fitted"].median_fraction <= 0.15
    assert file.by_request.first_token["layout"].median_fraction <= 0.20
    off = [abs(one.predicted / one.measured - 1.0) for one in file.by_request.within_slo]
    assert len(off) == 12
    assert float(np.median(off)) <= 0.15
    assert math.isclose(file.by_request.within_slo[0].measured, 12701.3)


def waits_at_most(t_over_d: float, busy: float) -> float:
    """Return P(W ≤ t) of M/D/1 (Erlang 1909): (1 − ρ)·Σ (ρ·(k − t/D))^k / k! · exp(−ρ·(k − t/D)), k ≤ t/D."""
    ahead = [busy * (k - t_over_d) for k in range(int(t_over_d) + 1)]
    return (1.0 - busy) * sum(x**k / math.factorial(k) * math.exp(-x) for k, x in enumerate(ahead))


@pytest.mark.parametrize(("busy", "t_over_d"), [(0.5, 2.0), (0.7, 3.5)])
def test_prompts_alone_on_one_replica_wait_as_in_m_d_1(busy: float, t_over_d: float) -> None:
    # Each prompt fills a step of 0.1 s and asks for one token: a queue with one server and constant service.
    times = StepTimes(fixed_s=0.02, prefill_s_per_token=0.08 / CHUNK_TOKENS)
    arrivals = 20_000
    first_s, _ = open_loop(times, 1, busy / 0.1, arrivals, CHUNK_TOKENS, 1)
    found = float((first_s <= 0.1 * (1.0 + t_over_d) + 1e-9).mean())
    expected = waits_at_most(t_over_d, busy)
    # Waits are correlated over some 1/(1 − ρ)² requests, which leaves so many independent ones of the half counted.
    error = math.sqrt(expected * (1.0 - expected) / (0.5 * arrivals * (1.0 - busy) ** 2))
    assert abs(found - expected) < 4.0 * error


def test_a_second_replica_takes_what_the_first_would_keep_waiting() -> None:
    times = StepTimes(fixed_s=0.02, prefill_s_per_token=0.08 / CHUNK_TOKENS)
    waits = [open_loop(times, count, 7.0, 4000, CHUNK_TOKENS, 1)[0] for count in (1, 2)]
    alone, pooled = (float((first_s <= 0.25).mean()) for first_s in waits)
    assert pooled > alone + 0.05


def test_clients_drift_apart() -> None:
    # In step, eight prompts of one step each would come at once in every round, and each wait for all of them.
    times = StepTimes(fixed_s=0.01, prefill_s_per_token=1e-4)
    ttft_s, _ = closed_loop(times, 8, 1000, 1000)
    together_s = 0.01 + 8 * 0.1
    assert ttft_s == pytest.approx(0.1 * together_s + 0.9 * (0.01 + 0.1), rel=0.15)


def test_rows_with_a_slo_target_are_compared_by_throughput_alone() -> None:
    frame = rows_by_request(read_benchmarks(SHIPPED_MEASUREMENTS))
    assert set(frame["scenario"]) == {"Concurrency", "Server", "Interactive"}
    targeted = frame[frame["scenario"] != "Concurrency"]
    assert targeted[["ttft_ms", "tpot_ms"]].isna().all(axis=None)
    assert (targeted["output_tokens_per_s_per_gpu"] > 0).all()


def test_a_slo_target_is_met_at_about_the_throughput_measured() -> None:
    frame = rows_by_request(read_benchmarks(SHIPPED_MEASUREMENTS))
    frame = frame[(frame["scenario"] == "Interactive") & (frame["accelerator"] == "B200")]
    found = check_benchmarks(frame, load_catalog(), shipped_calibration(), predict_by_request)
    assert found.quantity.tolist() == ["output_tokens_per_s_per_gpu"]
    assert abs(found.error_fraction.iloc[0]) < 0.2
    rows = prepare(frame, load_catalog())
    lengths = (float(rows.input_tokens[0]), float(rows.output_tokens[0]))
    # Prompts take a second alone: half of one cannot be kept.
    assert slo_tokens_per_s(rows.deployments[0], shipped_calibration(), *lengths, 0.1, 0.08) == 0.0


def test_a_sample_of_measured_rows_is_predicted_by_request() -> None:
    frame = rows_by_request(read_benchmarks(SHIPPED_MEASUREMENTS))
    frame = frame[
        (frame["scenario"] == "Concurrency")
        & frame["ttft_ms"].notna()
        & (frame["concurrency"] <= 64)
    ]
    found = check_benchmarks(
        frame.iloc[::12], load_catalog(), shipped_calibration(), predict_by_request
    )
    first = found.predicted.notna() & (found.quantity == "ttft_ms")
    assert first.sum() > 40
    assert np.median(np.abs(found.error_fraction[first])) < 0.20
    tokens = found.predicted.notna() & (found.quantity == "tpot_ms")
    assert np.median(np.abs(found.error_fraction[tokens])) < 0.10
