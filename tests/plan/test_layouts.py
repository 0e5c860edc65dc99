"""Layouts a cluster may choose: attention in data parallel, separate pools, batch limits, speculation."""

from __future__ import annotations

import dataclasses
import datetime
import math
from typing import Any

import numpy as np
import pytest

from planner.catalog.load import load_catalog, part_of, shape_of
from planner.errors import ScenarioError
from planner.physics.model_on_part import candidate_degrees
from planner.physics.replica import (
    ReplicaSpec,
    Traffic,
    at_objective,
    disaggregated,
    price_replicas,
)
from planner.plan import choice
from planner.plan.build import build_plan
from planner.plan.choice import Service, build_services, service_of
from planner.plan.reuse import Reuse
from planner.plan.software import dated_log_gain
from planner.scenario.loading import load_scenario
from tests.conftest import WriteScenario
from tests.shipped import shipped_calibration

SCENARIO = """\
name: layouts
start: 2026-01-01
horizon_months: 3
workloads:
  chat:
    model: {model}
    precisions: [{precision}]
    requests_per_s: 5
    lengths: {{input: {{mean: {prompt}}}, output: {{mean: 1000}}}}
    slo: {{ttft_s: {ttft}, tpot_s: {tpot}}}
clusters:
  one:
    accelerator: {accelerator}
    engine: {engine}
    nodes: 4
"""


@pytest.fixture
def serve(write: Any) -> Any:
    """Return the service of one cluster with these keys."""

    def made(*keys: str, **change: object) -> Service:
        names = {
            "model": "deepseek-r1", "precision": "fp8", "prompt": 1000, "ttft": 5, "tpot": 0.1, "accelerator": "B200",
            "engine": "sglang",
        } | change  # fmt: skip
        text = SCENARIO.format(**names) + "".join(f"    {key}\n" for key in keys)
        scenario = load_scenario(write(text))
        services, _ = build_services(scenario, Reuse(scenario), {})
        return services["one", "chat"]

    return made


def test_auto_takes_the_better_attention_and_says_which(serve: Any) -> None:
    split, apart, auto = (
        serve(f"attention: {how}") for how in ("tensor-parallel", "data-parallel", "auto")
    )
    assert auto.requests_per_s == max(split.requests_per_s, apart.requests_per_s)
    assert (
        apart.requests_per_s > 1.3 * split.requests_per_s
    )  # latent caches are not copied to every rank
    assert "attention in" in auto.layout
    assert "attention in" not in split.layout


def test_speculation_pays_at_a_strict_objective(serve: Any) -> None:
    drafted = "speculation: {drafted_tokens: 3, mean_acceptance_length: 2.7}"
    strict = serve(drafted, tpot=0.02).requests_per_s / serve(tpot=0.02).requests_per_s
    loose = serve(drafted, tpot=0.1).requests_per_s / serve(tpot=0.1).requests_per_s
    assert strict > loose
    assert "3 tokens drafted" in serve(drafted).layout


def test_more_accepted_than_checked_is_refused(serve: Any) -> None:
    with pytest.raises(ScenarioError, match="yields at most 2"):
        serve("speculation: {drafted_tokens: 1, mean_acceptance_length: 2.5}")


def test_auto_pools_are_never_worse_and_say_so(serve: Any) -> None:
    strict = {"prompt": 8000, "ttft": 2, "tpot": 0.03}
    shared, separate, auto = (
        serve(f"prefill_decode: {how}", **strict) for how in ("colocated", "disaggregated", "auto")
    )
    assert auto.requests_per_s == max(shared.requests_per_s, separate.requests_per_s)
    assert "prompts on a pool" in separate.layout


def test_pools_in_balance_by_hand() -> None:
    """One accelerator-second is spent on 1/r_p + 1/r_d of each: the rates of both pools multiply over their sum."""
    catalog = load_catalog()
    spec = ReplicaSpec(
        part=part_of("H200", catalog),
        shape=shape_of("llama-3.1-70b", catalog),
        precision="fp8",
        accelerators=2,
        engine="vllm",
    )
    replicas = price_replicas([spec], shipped_calibration())
    traffic = Traffic(input_tokens=4000.0, output_tokens=500.0)
    handover_s = 0.25
    prefills, decoding = disaggregated(replicas, traffic, (2.0, 0.05), np.array([0.01]), handover_s)
    prefill_s = float(
        4000 * replicas["prefill_s_per_token"][0]
        + 4000 * 2000 * replicas["attention_s_per_token2"][0]
    )
    decode = at_objective(
        replicas, np.array([0]), dataclasses.replace(traffic, cached_fraction=1.0), np.inf, 0.05
    )
    slack_s = (
        2.0
        - replicas["ttft_fixed_s"][0]
        - replicas["ttft_prefill"][0] * prefill_s
        - 0.01
        - handover_s
    )
    busy = slack_s / (slack_s + 0.5 * prefill_s)
    assert prefills[0] == pytest.approx(min(busy, 0.95) / prefill_s)
    assert decoding.requests_per_s[0] == pytest.approx(decode.requests_per_s[0])
    too_large = dataclasses.replace(spec, precision="bf16", accelerators=1)  # 140 GB of 141
    assert (
        disaggregated(
            price_replicas([too_large], shipped_calibration()),
            traffic,
            (2.0, 0.05),
            np.zeros(1),
            handover_s,
        )[0]
        == 0.0
    )
    # At that share of its time the M/D/1 queue of prefills keeps the objective exactly.
    if busy < 0.95:
        assert 0.5 * prefill_s * busy / (1 - busy) == pytest.approx(slack_s)


def test_a_racks_gain_over_a_node_rises_and_falls_with_speed_as_published() -> None:
    """DeepSeek-R1 in fp4 at 1k/1k, separate pools and drafts on both, GB200 over B200 at equal tokens/s a user.

    Published by InferenceX on 22 May 2026: 1.20, 1.35, 2.23, 4.39 and 0.97 at 60, 75, 100, 125 and 250; no row of it is
    in any fit.
    """
    speeds = np.array([60.0, 75.0, 100.0, 125.0, 250.0])
    rate = {
        part: np.array([_drafted_pools_rate(part, 1.0 / speed) for speed in speeds])
        for part in ("GB200", "B200")
    }
    gain = rate["GB200"] / rate["B200"]
    assert gain[:2] == pytest.approx([1.20, 1.35], rel=0.15)
    assert 1.3 < gain[2] < gain[3] < 4.5
    assert gain[4] == pytest.approx(0.97, rel=0.2)


def _drafted_pools_rate(name: str, tpot_s: float) -> float:
    """Return requests/s and accelerator of pools in balance, both in their best layout."""
    catalog = load_catalog()
    part = part_of(name, catalog)
    shape = shape_of("deepseek-r1", catalog)
    specs = [
        ReplicaSpec(
            part=part,
            shape=shape,
            precision="fp4",
            accelerators=degree,
            engine="tensorrt-llm",
            attention_data_parallel=groups,
            expert_parallel=groups > 1,
            drafted_tokens=3,
            mean_acceptance_length=2.5,
        )
        for degree in candidate_degrees(part, shape)
        if degree >= 4
        for groups in (1, degree)
    ]
    replicas = price_replicas(specs, shipped_calibration())
    traffic = Traffic(input_tokens=1024.0, output_tokens=1024.0)
    transfer_s = np.full(len(specs), 0.01)
    prefills, decoding = disaggregated(replicas, traffic, (3.0, tpot_s), transfer_s, 0.25)
    prefill = (prefills / replicas["accelerators"]).max()
    decode = (decoding.requests_per_s / replicas["accelerators"]).max()
    return float(prefill * decode / (prefill + decode))


def test_the_date_of_an_image_moves_speed_along_the_stacks_course(
    write: WriteScenario,
) -> None:
    """ROCm on dense models: 5% to gain with a time constant of a year, from when the calibration was measured."""
    measured_on = shipped_calibration().measured_on
    assert measured_on is not None

    def speed(*overrides: str) -> float:
        scenario = load_scenario(write(), ["clusters.mi325x.engine=vllm", *overrides])
        services, _ = build_services(scenario, Reuse(scenario), {})
        return services["mi325x", "chat"].requests_per_s

    plain = speed()
    for days, moved in (
        (0, 0.0),
        (365, math.log(1.05) * (1 - math.exp(-1))),
        (-365, math.log(1.05) * (1 - math.e)),
    ):
        date = measured_on + datetime.timedelta(days=days)
        assert speed(f"clusters.mi325x.engine_date={date}") / plain == pytest.approx(
            math.exp(moved), rel=1e-4
        )
    scenario = load_scenario(
        write(), ["workloads.chat.model=deepseek-v3", "clusters.mi325x.engine_date=2024-01-01"]
    )
    cluster = scenario.clusters["mi325x"]
    load = scenario.workloads["chat"]
    gain = dated_log_gain(cluster, "vllm", load, shipped_calibration(), load_catalog())
    assert math.exp(gain) == pytest.approx(0.3)  # first light


@pytest.mark.parametrize(
    ("year", "headroom", "gain"), [(2040, 0.5, 1.0), (2041, 1.02, 1.02), (2042, 9.0, 1.05)]
)
def test_no_image_is_faster_than_the_roofline(
    write: WriteScenario, monkeypatch: pytest.MonkeyPatch, year: int, headroom: float, gain: float
) -> None:
    """By 2040 all of ROCm's 5% is gained, where the part has that much left; a later image is never slower.

    Each case has a year of its own: what an image serves is worked out once.
    """
    stated = ["clusters.mi325x.engine=vllm", "clusters.mi325x.precision=fp8"]
    plain = load_scenario(write(), stated)
    reuse = Reuse(plain)
    found = service_of(plain.clusters["mi325x"], plain.workloads["chat"], plain, reuse)
    assert isinstance(found, Service)
    near = dataclasses.replace(found, roofline_factor=headroom * found.speed)
    monkeypatch.setattr(choice, "service_of", lambda *_, **__: near)
    late = load_scenario(write(), [*stated, f"clusters.mi325x.engine_date={year}-01-01"])
    services, _ = build_services(late, reuse, {})
    assert services["mi325x", "chat"].requests_per_s / found.requests_per_s == pytest.approx(
        gain, rel=1e-4
    )


def test_prompts_use_the_tensor_cores_for_the_share_of_time_that_the_peak_would_take(
    serve: Any,
) -> None:
    service = serve()
    prefill_s = price_replicas([service.spec], shipped_calibration())["prefill_s_per_token"][0]
    assert 0.1 < service.prefill_compute_fraction < 0.9
    assert service.prefill_compute_fraction == pytest.approx(
        service.compute_s_per_token / prefill_s
    )


def test_speculation_on_auto_is_taken_only_where_it_serves_more(serve: Any) -> None:
    def kept(use: str, tpot: float) -> Service:
        found: Service = serve(
            f"speculation: {{drafted_tokens: 3, mean_acceptance_length: 1.2, use: {use}}}",
            tpot=tpot,
        )
        return found

    plain = serve(tpot=0.1)
    always = kept("always", 0.1)
    auto = kept("auto", 0.1)
    assert (
        always.requests_per_s < plain.requests_per_s
    )  # three drafts checked for a fifth of a token
    assert auto.requests_per_s == plain.requests_per_s
    assert "drafted" in always.layout
    assert "drafted" not in auto.layout
    good = "speculation: {drafted_tokens: 3, mean_acceptance_length: 3.5, use: auto}"
    assert serve(good, tpot=0.02).requests_per_s > serve(tpot=0.02).requests_per_s
    assert "3 tokens drafted" in serve(good, tpot=0.02).layout


def test_a_stated_speculation_that_serves_less_is_a_warning(write: Any) -> None:
    text = SCENARIO.format(
        model="llama-3.1-70b",
        precision="fp8",
        prompt=1000,
        ttft=5,
        tpot=0.1,
        accelerator="H200",
        engine="vllm",
    )
    for use, warned in (("always", True), ("auto", False)):
        key = f"    speculation: {{drafted_tokens: 3, mean_acceptance_length: 1.2, use: {use}}}\n"
        plan = build_plan(load_scenario(write(text + key)))
        told = [
            warning
            for warning in plan.warnings
            if "clusters.one.speculation: chat is served worse" in warning
        ]
        assert bool(told) == warned
