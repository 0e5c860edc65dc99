from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner.calibration.fit import predict_with
from planner.calibration.rows import measurements, predict_rows, prepare, priced_rows
from planner.calibration.table import read_benchmarks
from planner.catalog.calibration import SHIPPED_MEASUREMENTS
from planner.catalog.load import load_catalog
from tests.benchmarks.tables import write_table
from tests.shipped import shipped_calibration

SHIPPED = shipped_calibration()
OFFLINE = {
    "scenario": "Offline", "concurrency": "", "ttft_ms": "", "tpot_ms": "", "output_tokens_per_s_per_gpu": "3000",
}  # fmt: skip


def _prepared(path: Path, *changes: dict[str, str]):  # type: ignore[no-untyped-def]
    frame = read_benchmarks(write_table(path / "t.csv", *changes))
    return frame, prepare(frame, load_catalog())


def test_equal_deployments_are_resolved_once(tmp_path: Path) -> None:
    _, rows = _prepared(tmp_path, {}, {"concurrency": "32"}, {"tp": "4"}, {})
    assert len(rows.deployments) == 2
    assert list(rows.deployment) == [0, 0, 1, 0]


def test_concurrency_without_tp_is_per_accelerator(tmp_path: Path) -> None:
    _, rows = _prepared(tmp_path, {"accelerator": "H100", "precision": "bf16", "tp": "", "concurrency": "10"})
    assert list(rows.concurrency) == [20.0]  # 70B at 16 bits takes two H100


def test_a_round_prompt_length_predicts_what_its_neighbours_do(tmp_path: Path) -> None:
    """4,000 tokens are no more cached than 4,001: only a declared hit fraction spares prefill."""
    changes = [{"input_tokens": tokens, "output_tokens": "500", "concurrency": "128"} for tokens in ("4000", "4001")]
    _, rows = _prepared(tmp_path, *changes)
    at_4000, at_4001 = predict_rows(rows, SHIPPED)["tpot_s"]
    assert at_4001 == pytest.approx(at_4000, rel=1e-3)


@pytest.mark.parametrize(
    ("engine", "version", "source", "stated", "hit"),
    [
        ("vllm", "0.12.0", "runs as published in aiconfigurator-core 0.12.0", "", 1 - 100 / (10 * 64)),
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
    path.write_text(f"{header},engine_version,source,prefix_hit_fraction\n{row},{version},{source},{stated}\n")
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
    _, rows = _prepared(tmp_path, change, {**change, "slo_ttft_ms": ""}, {**change, "slo_tpot_ms": ""})
    found = predict_rows(rows, SHIPPED)
    assert found["tpot_s"][0] == pytest.approx(0.05, rel=2e-3)
    assert found["tpot_s"][1] == pytest.approx(0.05, rel=2e-3)
    assert found["ttft_s"][2] <= 2.0
    assert np.all(found["tokens_per_s_per_accelerator"] > 0)


def test_rows_with_a_reason_are_not_predicted(tmp_path: Path) -> None:
    _, rows = _prepared(tmp_path, {"model": "nothing"}, {}, {"output_tokens": ""})
    found = predict_rows(rows, SHIPPED)
    assert list(np.isnan(found["tpot_s"])) == [True, False, True]
    assert rows.reasons[0].startswith("unknown model")
    assert rows.reasons[1] == ""


def test_the_fit_sees_what_the_check_predicts(tmp_path: Path) -> None:
    frame, rows = _prepared(tmp_path, {}, {"scenario": "Server", "engine": "trtllm"}, OFFLINE, {**OFFLINE, "tp": ""})
    data = measurements(frame, rows, SHIPPED)
    fitted, checked = predict_with(data, SHIPPED), predict_rows(rows, SHIPPED)
    assert fitted["tpot_s"] == pytest.approx(checked["tpot_s"])
    assert fitted["output_tokens_per_s_per_accelerator"] == pytest.approx(checked["tokens_per_s_per_accelerator"])
    assert data.engine == ["vllm", "tensorrt-llm", "vllm", "vllm"]


def test_case_and_order_of_rows_do_not_matter(tmp_path: Path) -> None:
    changes = [{"tp": "4"}, {"engine": "TRTLLM"}, {"model": "gpt-oss-120b", "precision": "MXFP4"}, OFFLINE]
    _, rows = _prepared(tmp_path, *changes)
    _, turned = _prepared(tmp_path, *changes[::-1])
    forward, backward = predict_rows(rows, SHIPPED), predict_rows(turned, SHIPPED)
    for name in forward:
        assert np.array_equal(forward[name], backward[name][::-1])


POOLS = (
    "model,accelerator,engine,precision,input_tokens,output_tokens,concurrency,prefill_workers,prefill_tp,"
    "prefill_attention_dp,prefill_ep,decode_workers,decode_tp,decode_attention_dp,decode_ep,ttft_ms,tpot_ms\n"
)


def _pools(path: Path, *lines: str):  # type: ignore[no-untyped-def]
    (path / "pools.csv").write_text(POOLS + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    frame = read_benchmarks(path / "pools.csv")
    return frame, prepare(frame, load_catalog())


def test_a_table_of_separate_pools_is_read_as_its_decode_workers(tmp_path: Path) -> None:
    same = "deepseek-r1,GB200,tensorrt-llm,fp4,1024,1024"
    _, rows = _pools(
        tmp_path,
        f"{same},64,1,4,1,4,4,8,1,4,300,9",  # four workers of eight, stated
        f"{same},64,,4,1,4,,8,1,4,300,9",  # not stated: 32 accelerators
        f"{same},64,,36,1,1,,36,1,1,300,9",  # the whole deployment's accelerators
        f"{same},2252,,4,1,4,,8,1,4,5000,32",  # crowded: one worker
    )
    assert rows.reasons == [""] * 4
    assert list(rows.concurrency) == [16, 16, 16, 2252]
    found = predict_rows(rows, SHIPPED)["tpot_s"]
    assert found[:3] == pytest.approx(found[0], rel=0.03)  # without ep its experts are sliced, not placed
    assert found[3] > 2 * found[0]


def test_a_decode_worker_prefills_nothing(tmp_path: Path) -> None:
    same = "deepseek-r1,B200,tensorrt-llm,fp8"
    _, rows = _pools(tmp_path, f"{same},8192,64,512,1,8,1,8,1,8,1,8,300,9", f"{same},1024,64,512,1,8,1,8,1,8,1,8,300,9")
    long_s, short_s = predict_rows(rows, SHIPPED)["tpot_s"]
    assert long_s < 1.5 * short_s  # more cache to read; 8,192 tokens of prefill for 64 of output would cost far more


def test_the_first_token_of_separate_pools_does_not_wait_for_decoding(tmp_path: Path) -> None:
    """A pool in balance prefills C requests while one decodes: κ·O·TPOT lie ahead, and no cache of a decode worker."""
    same = "deepseek-r1,GB200,tensorrt-llm,fp4,1024,8192"
    _, rows = _pools(tmp_path, f"{same},6144,,4,1,4,,16,1,4,4011,17", f"{same},64,,4,1,4,,16,1,4,400,17")
    found = predict_rows(rows, SHIPPED)
    replicas, index = priced_rows(rows, SHIPPED)
    first_s = replicas.ttft_fixed_s + replicas.ttft_prefill * (
        replicas.prefill_s_per_token * 1024 + replicas.attention_s_per_token2 * 1024**2 / 2
    )
    steps = replicas.ttft_burst * 8192 + replicas.ttft_burst_steps
    assert found["ttft_s"] == pytest.approx(first_s[index] + steps[index] * found["tpot_s"])
    assert found["ttft_s"][0] < 60.0  # an hour, when it waited for room in the decode worker's memory


def test_published_deployments_of_separate_pools_are_predicted() -> None:
    frame = read_benchmarks(SHIPPED_MEASUREMENTS)
    frame = frame[frame["scenario"] == "Disaggregated"]
    rows = prepare(frame, load_catalog())
    error = np.abs(predict_rows(rows, SHIPPED)["tpot_s"] / (frame["tpot_ms"].to_numpy() * 1e-3) - 1)
    assert error.size == 293
    assert np.median(error) <= 0.20
    first = np.abs(predict_rows(rows, SHIPPED)["ttft_s"] / (frame["ttft_ms"].to_numpy() * 1e-3) - 1)
    assert np.median(first) <= 0.55
    assert first.max() < 20
