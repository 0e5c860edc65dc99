"""A whole hour: the same bytes, conservation, samples that agree, batch beside chat, logs, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.demand.bursts import BURST_S
from planner.engine.log import streams
from planner.errors import ScenarioError
from planner.onramp.traffic_log import read_request_log
from planner.plan.build import build_plan
from planner.plan.choice import build_services
from planner.plan.reuse import Reuse
from planner.requests.hour import Breakdown, ZoomWindow, hour_at, minute_factors
from planner.requests.outcome import Outcome, outcomes
from planner.requests.zoom import Zoom, ZoomRequest, simulate_hour, simulate_zoom
from planner.requests.zoom_answer import summary_text
from planner.requests.zoom_summary import zoom_summary
from planner.run.simulate import run_engine
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from tests.conftest import Planner, WriteScenario, files_of
from tests.demand.shared_traces import trace
from tests.engine.worlds import merged, plan_of, scenario_of
from tests.plan.test_load_tables import long_prompts

CHAT = """\
name: chat-and-batch
start: 2026-01-01
horizon_months: 2
workloads:
  chat:
    model: llama-3.1-70b
    requests_per_s: {chat}
    load_profile: {{peak_to_mean: 1.0, weekend_fraction: 1.0}}
    noise: {{sigma: 0}}
    lengths: {{input: {{mean: 1200, p95: 4000}}, output: {{mean: 300, p95: 900}}}}
    slo: {{ttft_s: 2.0, tpot_s: 0.05}}
  batch:
    model: llama-3.1-70b
    requests_per_s: {batch}
    load_profile: {{peak_to_mean: 1.0, weekend_fraction: 1.0}}
    noise: {{sigma: 0}}
    lengths: {{input: {{mean: 1200, p95: 4000}}, output: {{mean: 300, p95: 900}}}}
    slo: {{ttft_s: 2.0, tpot_s: 0.05}}
    priority: deferrable
    completion_window_h: 24
clusters:
  h200: {{accelerator: H200, nodes: 10, engine: vllm, prefill_decode: colocated, chunk_tokens: 8192}}
site: {{outages_per_year: 0}}
reliability: {{failure_multiplier: 0}}
software: {{incident_multiplier: 0, software_speedup_multiplier: 0}}
"""
NOON = datetime(2026, 1, 10, 12)


def chat_scenario(folder: Path, chat: float, batch: float, *overrides: str) -> Scenario:
    path = folder / "chat.yaml"
    path.write_text(CHAT.format(chat=chat, batch=batch), encoding="utf-8")
    return load_scenario(path, overrides)


def hour(
    scenario: Scenario, requests: int = 5000, minutes: int = 2, **options: Any
) -> tuple[Zoom, dict[str, Outcome]]:
    request = ZoomRequest(start=NOON, minutes=minutes, requests=requests, **options)
    result = simulate_zoom(scenario, request)
    return result, {outcome.name: outcome for outcome in outcomes(result)}


def beside_batch(folder: Path, chat: float, nodes: int, minutes: int) -> list[dict[str, Outcome]]:
    """Zoom at all of some of ten nodes, with as much of their chat, alone and beside a batch that fills them."""
    share = nodes / 10
    there = f"clusters.h200.nodes={nodes}"
    scenarios = (
        chat_scenario(folder, chat * share, batch * share, there) for batch in (0.0, 170.0)
    )
    return [hour(scenario, requests=10**6, minutes=minutes)[1] for scenario in scenarios]


def test_about_as_many_requests_are_simulated_as_are_asked_for(tmp_path: Path) -> None:
    """Of chat and batch together; a few more come while the last replies end. All of them where they are fewer."""
    found, _ = hour(chat_scenario(tmp_path, 16.0, 32.0), requests=6000, minutes=6)
    assert found.share < 0.5
    assert 0.8 * 6000 < found.counts[0] < 1.4 * 6000
    assert "were requested" not in summary_text(zoom_summary(found, outcomes(found)))
    complete, _ = hour(chat_scenario(tmp_path, 4.0, 12.0), requests=12_000, minutes=1)
    assert complete.share == 1.0


def test_a_sample_that_has_to_be_larger_than_asked_for_says_so(tmp_path: Path) -> None:
    """Of eighty replicas four are the least."""
    found, _ = hour(chat_scenario(tmp_path, 70.9, 0.0), requests=100, minutes=1)
    assert found.counts[0] > 500
    assert "100 were requested, but a sample has at least 4 replicas" in summary_text(
        zoom_summary(found, outcomes(found))
    )


def test_deferrable_work_does_not_make_chat_late(tmp_path: Path) -> None:
    alone, beside = beside_batch(tmp_path, 70.9, nodes=1, minutes=2)
    shares = [float((~found["chat"].attainment).mean()) for found in (alone, beside)]
    assert shares[1] - shares[0] < 0.001
    assert np.array_equal(
        alone["chat"].arrived_s[:50], beside["chat"].arrived_s[:50]
    )  # the same requests


def test_lengths_drawn_are_those_of_the_stated_quantiles(tmp_path: Path) -> None:
    stated = "{quantiles: {0.1: 207, 0.5: 1020, 0.75: 1189, 0.9: 2734, 0.99: 4142}, mean: null, p95: null}"
    scenario = chat_scenario(tmp_path, 70.9, 0.0, f"workloads.chat.lengths.input={stated}")
    found, _ = hour(scenario, requests=4000)
    prompts = found.arrivals[0].prompt_tokens
    assert np.quantile(prompts, [0.5, 0.75, 0.9]) == pytest.approx([1020, 1189, 2734], rel=0.1)
    assert prompts.mean() == pytest.approx(found.plan.workloads[0].input_tokens[0], rel=0.1)


def test_requests_are_neither_lost_nor_made(tmp_path: Path) -> None:
    found, by_name = hour(chat_scenario(tmp_path, 260.0, 50.0))
    arrived, finished, refused, in_flight = found.counts
    assert arrived == finished + refused + in_flight
    chat = by_name["chat"]
    ended = np.isfinite(chat.total_s)
    assert not np.any(ended & chat.refused)
    assert np.all(ended | chat.refused | chat.in_flight)
    assert (~chat.attainment).sum() == sum(chat.reasons().values())


def test_an_overloaded_hour_refuses_some_and_keeps_time_for_the_rest(tmp_path: Path) -> None:
    _, by_name = hour(chat_scenario(tmp_path, 330.0, 0.0))
    chat = by_name["chat"]
    assert chat.refused.mean() > 0.1
    assert chat.attainment[~chat.refused].mean() > 0.95
    _, queued = hour(chat_scenario(tmp_path, 330.0, 0.0, "workloads.chat.admission=queue"))
    assert queued["chat"].refused.sum() == 0
    assert queued["chat"].attainment.mean() < chat.attainment.mean()


def test_replicas_behind_one_router_keep_more_in_time_than_alone(tmp_path: Path) -> None:
    p95_s = []
    for pool in ("cluster", "replica"):
        override = (f"router_pool={pool}", "workloads.chat.admission=queue")
        _, by_name = hour(chat_scenario(tmp_path, 190.0, 0.0, *override), requests=1500)
        p95_s.append(by_name["chat"].percentile("ttft_s", 0.95).value)
    assert p95_s[1] > 1.5 * p95_s[0]


@pytest.mark.prove
def test_a_sample_twice_as_large_lies_within_the_intervals(tmp_path: Path) -> None:
    scenario = chat_scenario(tmp_path, 200.0, 0.0)
    small, large = (hour(scenario, requests=size, minutes=2)[1]["chat"] for size in (1_500, 3_000))
    for name in ("attainment", "refused"):
        one = small.share(getattr(small, name))
        two = large.share(getattr(large, name))
        assert one.low <= two.high
        assert two.low <= one.high
    for quantity in ("ttft_s", "tpot_s"):
        one = small.percentile(quantity, 0.99)
        two = large.percentile(quantity, 0.99)
        assert one.low <= two.high
        assert two.low <= one.high


@pytest.mark.parametrize(
    ("follow", "rate", "expected"), [("pooled", 40.0, 12.0), ("pooled", 400.0, 12.0), ("pooled", 8.0, 12.0),
                                     ("proportional", 40.0, 12.0), ("proportional", 400.0, 111.0)]
)  # fmt: skip
def test_minutes_have_the_stated_dispersion_and_the_hours_own_rate(
    tmp_path: Path, follow: str, rate: float, expected: float
) -> None:
    """At any rate where bursts are of many users; as large beside the mean as on day one where they are a client's."""
    workload = (
        chat_scenario(tmp_path, 40.0, 0.0)
        .workloads["chat"]
        .model_copy(update={"burst_scaling": follow})
    )
    span = ZoomWindow(warm_up=0, minutes=60, drain=0)
    factors = np.concatenate(
        [minute_factors(workload, rate, span, streams(1, r)("minutes")) for r in range(200)]
    )
    assert factors.reshape(200, 60).mean(axis=1) == pytest.approx(1.0)
    # Counts per minute of rate λG: variance over mean = 1 + 60 λ Var[G]; 12 is the default. Scaling each hour to its
    # own rate takes a sixtieth of the variance away.
    dispersion = 1.0 + BURST_S * rate * factors.var() / (1.0 - 1.0 / 60.0)
    assert dispersion == pytest.approx(expected, rel=4.0 * np.sqrt(2.0 / factors.size) + 0.01)


def test_breakdowns_send_requests_elsewhere(tmp_path: Path) -> None:
    scenario = chat_scenario(tmp_path, 100.0, 0.0)
    plan = build_plan(scenario)
    asked = ZoomRequest(start=NOON, minutes=1, requests=1)
    services, _ = build_services(scenario, Reuse(scenario), {})
    calm = hour_at(scenario, plan, run_engine(plan, 1)[0], services, NOON)
    assert calm.breakdowns == ()
    dark = Breakdown(cluster=None, accelerators=0, start_s=30.0, end_s=40.0)
    found = simulate_hour(scenario, plan, replace(calm, breakdowns=(dark,)), asked, 1)
    chat = outcomes(found)[0]
    assert chat.retries.sum() > 0
    lit = (chat.arrived_s < 30.0) | (chat.arrived_s >= 40.0)
    assert chat.refused[~lit].all()  # a dark site takes nothing
    assert chat.refused[chat.arrived_s >= 40.0].mean() < 0.01
    assert chat.reasons()["breakdown"] > 0


@pytest.mark.parametrize(
    "name", ["AzureLLMInferenceTrace_conv.csv", "mooncake_conversation_trace.jsonl"]
)
def test_public_logs_are_replayed_as_they_were(tmp_path: Path, name: str) -> None:
    log = read_request_log(trace(name), in_order=True)
    scenario = chat_scenario(tmp_path, 5.0, 0.0)
    found, by_name = hour(scenario, requests=1_000_000, minutes=5, log=log)
    wanted = log.times_s - log.times_s[0]
    kept = wanted < 300.0
    assert found.share == 1.0
    assert by_name["chat"].arrived_s == pytest.approx(wanted[kept])
    assert by_name["chat"].prompt_tokens == pytest.approx(np.maximum(log.input_tokens[kept], 1))
    if log.cached_tokens is not None:
        assert by_name["chat"].cached_tokens.sum() > 0


def test_lengths_beyond_the_context_are_refused(tmp_path: Path) -> None:
    log = read_request_log(_log(tmp_path, [(0, 100, 10), (1, 140_000, 10)]), in_order=True)
    with pytest.raises(ScenarioError, match=r"1 of 2 requests are longer than the 131,072 tokens"):
        hour(chat_scenario(tmp_path, 5.0, 0.0), log=log)
    long = "workloads.chat.lengths.input={mean: 90000, p95: 150000}"
    with pytest.raises(
        ScenarioError, match=r"workloads.chat.lengths: \d+% of its requests are longer"
    ):
        hour(chat_scenario(tmp_path, 0.5, 0.0, long, "workloads.chat.slo.ttft_s=120"))


def _log(folder: Path, rows: list[tuple[float, int, int]]) -> Path:
    path = folder / "log.csv"
    lines = ["timestamp,input_tokens,output_tokens", *(f"{t},{i},{o}" for t, i, o in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


class TestCommand:
    """``planner zoom`` as users call it."""

    def test_writes_the_same_bytes_twice(
        self, planner: Planner, write: WriteScenario, tmp_path: Path
    ) -> None:
        words = ("zoom", write(), "--at", "2026-02-03T15:00", "--minutes", 1, "--quiet", "--out")
        assert planner(*words, tmp_path / "one").code == 0
        assert planner(*words, tmp_path / "two").code == 0
        files = files_of(tmp_path / "one")
        assert {
            "report.html",
            "requests.csv",
            "seconds.csv",
            "latencies.csv",
            "slo_miss_causes.csv",
        } <= set(files)
        for name, content in files.items():
            assert content == (tmp_path / "two" / name).read_bytes(), name

    @pytest.mark.parametrize(
        ("at", "message"),
        [
            (
                "2025-12-31T23:00",
                "lies outside the horizon of tiny (from 2026-01-01T00:00 to 2026-03-31T23:00)",
            ),
            ("2026-04-01T00:00", "lies outside the horizon"),
            ("yesterday", "must be a date and time such as 2027-03-04T15:00"),
        ],
    )
    def test_refuses_a_moment_it_cannot_zoom_at(
        self, planner: Planner, write: WriteScenario, tmp_path: Path, at: str, message: str
    ) -> None:
        planner("zoom", write(), "--at", at, "--out", tmp_path / "out").refused("--at", message)
        assert not (tmp_path / "out").exists()

    def test_refuses_an_hour_before_the_first_delivery(
        self, planner: Planner, write: WriteScenario, tmp_path: Path
    ) -> None:
        words = (
            "--set",
            "clusters.h200.online=2026-02-10",
            "--set",
            "clusters.mi325x.online=2026-03-01",
        )
        asked = planner(
            "zoom", write(), "--at", "2026-02-03T15:00", *words, "--out", tmp_path / "out"
        )
        asked.refused(
            "no machine is in service at 2026-02-03T15:00: the first come at 2026-02-10T00:00"
        )

    def test_refuses_a_log_that_goes_back_in_time(
        self, planner: Planner, write: WriteScenario, tmp_path: Path
    ) -> None:
        log = _log(tmp_path, [(5, 10, 10), (3, 10, 10), (9, 10, 10)])
        words = ("zoom", write(), "--at", "2026-02-03T15:00", "--trace", log)
        planner(*words, "--out", tmp_path / "out").refused(
            "log.csv:3: timestamp: goes back in time by 2 s"
        )
        good = _log(tmp_path, [(5, 10, 10), (9, 10, 10)])
        words = ("zoom", write(), "--at", "2026-02-03T15:00", "--trace", good)
        message = "--workload: there is no workload 'chad' (did you mean chat?)"
        planner(*words, "--workload", "chad", "--out", tmp_path / "out").refused(message)


def test_the_interval_of_a_share_is_that_of_a_ratio_of_sums() -> None:
    random = np.random.default_rng(0)
    scenario_free = Outcome(
        name="x", arrived_s=random.uniform(0, 3600, 20_000), prompt_tokens=np.ones(1),
        cached_tokens=np.ones(1), output_tokens=np.ones(1), ttft_s=random.exponential(1.0, 20_000),
        tpot_s=np.ones(1), total_s=np.ones(1), refused=np.zeros(1, dtype=bool), in_flight=np.zeros(1, dtype=bool),
        attainment=random.random(20_000) < 0.9, reason=np.zeros(1, dtype=np.intp), retries=np.zeros(1),
        preemptions=np.zeros(1), minutes=60, finished_s=np.zeros(0),
    )  # fmt: skip
    share = scenario_free.share(scenario_free.attainment)
    # Independent requests: the interval is the binomial's, to the error of its own estimate from sixty minutes.
    assert share.high - share.low == pytest.approx(2 * 1.96 * np.sqrt(0.09 / 20_000), rel=0.4)
    p99 = scenario_free.percentile("ttft_s", 0.99)
    assert p99.low < -np.log(0.01) < p99.high
    assert replace(scenario_free, minutes=1).share(scenario_free.attainment).low < share.value


@pytest.mark.parametrize(("load", "fewest", "most"), [(0.5, 0.0, 0.002), (2.0, 0.9, 1.0)])
def test_replies_that_take_minutes_are_waited_for_and_judged_by_their_pace(
    load: float, fewest: float, most: float
) -> None:
    """Replies of 4,000 tokens at half the capacity are all in time, as by the hour, and at twice hardly any."""
    words = {"input": {"mean": 800, "p95": 2500}, "output": {"mean": 4000, "p95": 12000}}
    slo = {"ttft_s": 3.0, "tpot_s": 0.05}
    cluster = {"clusters": {"h200": {"nodes": 1}}}
    asked = long_prompts(1.0, model="deepseek-r1", lengths=words, slo=slo, admission="queue")
    sustained = plan_of(merged(asked, cluster)).requests_per_node_h.item() / 3600
    change = merged(asked, cluster, {"workloads": {"chat": {"requests_per_s": load * sustained}}})
    zoomed = simulate_zoom(
        scenario_of(change), ZoomRequest(start=datetime(2026, 1, 10, 12), minutes=3)
    )
    (outcome,) = outcomes(zoomed)
    assert zoomed.span.warm_up >= 10
    assert zoomed.span.drain >= 15
    assert fewest <= 1.0 - outcome.attainment.mean() <= most
