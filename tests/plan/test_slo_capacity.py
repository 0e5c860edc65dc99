"""What keeps its objective: scaling, closed forms, and the search for a layout against trying every one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from planner.catalog.load import load_catalog, part_of, shape_of
from planner.physics.model_on_part import memory_fit
from planner.physics.replica import (
    Lengths,
    OperatingPoint,
    ReplicaSpec,
    ReplicaTimes,
    at_objective,
    price_replicas,
)
from planner.physics.slo_model import MissCurve, late_curve
from planner.plan.candidates import replica_specs as candidates_of
from planner.plan.candidates import traffic_of
from planner.plan.overload import queueing_lateness
from planner.plan.routing import queue_outgrown
from planner.plan.slo_capacity import (
    LayoutSearch,
    Speed,
    as_tokens_grow,
    lengths_of,
    slo_point,
)
from planner.scenario.workload import Workload
from tests.engine.plans import make_plan, workload_plan
from tests.engine.worlds import SHARED, scenario_of
from tests.shipped import shipped_calibration


def workload(**changes: Any) -> Workload:
    """Chat, with these keys."""
    tokens = {"input": {"mean": 2000, "p95": 7000}, "output": {"mean": 300}}
    stated = {"model": "qwen3-32b", "lengths": tokens, "slo": {"ttft_s": 1.0, "tpot_s": 0.05}}
    return scenario_of({"workloads": {"chat": stated | changes, "nightly": None}}).workloads["chat"]


def layouts(part: str = "B200", model: str = "qwen3-32b") -> list[ReplicaSpec]:
    """One, two, four and eight accelerators."""
    catalog = load_catalog()
    return [
        ReplicaSpec(
            part=part_of(part, catalog),
            shape=shape_of(model, catalog),
            precision="fp8",
            accelerators=wide,
            engine="vllm",
        )
        for wide in (1, 2, 4, 8)
    ]


def candidates(of: Workload) -> tuple[LayoutSearch, OperatingPoint]:
    """Those layouts on four nodes, and their points by mean times."""
    replicas = price_replicas(layouts(), shipped_calibration())
    point = at_objective(replicas, np.arange(4), traffic_of(of), of.slo.ttft_s, of.slo.tpot_s)
    rates = point.requests_per_s / replicas["accelerators"]
    pooled = {"router_pool": "cluster", "nodes": 4, "accelerators_per_node": 8}
    return LayoutSearch(replicas=replicas, mean_rates=rates, **pooled), point  # type: ignore[arg-type]


def curve_of(tried: LayoutSearch, index: int, of: Workload) -> MissCurve:
    """Late shares of one of them."""
    return late_curve(
        ReplicaTimes(tried.replicas, index, 1.0, lengths_of(of)), tried.terms(index, of.slo)
    )


def _best(tried: LayoutSearch, asked: Workload, lengths: Lengths) -> tuple[int, MissCurve, float]:
    best = tried.best(1.0, asked.slo, lengths)
    assert best is not None
    return best.layout, best.curve, best.rate


@pytest.mark.parametrize(
    ("prompt", "p95", "ttft_s", "tpot_s"), [(2000, 7000, 1.0, 0.05), (8000, 29000, 2.0, 0.03)]
)
def test_the_layout_chosen_is_the_best_of_all(
    prompt: int, p95: int, ttft_s: float, tpot_s: float
) -> None:
    """Though by mean times another ranks first, and few are tried."""
    tokens = {"input": {"mean": prompt, "p95": p95}, "output": {"mean": 300}}
    asked = workload(lengths=tokens, slo={"ttft_s": ttft_s, "tpot_s": tpot_s})
    tried, _ = candidates(asked)
    lengths = lengths_of(asked)
    rates = [curve_of(tried, index, asked).capacity_requests_per_s / 2**index for index in range(4)]
    best, _, rate, *_ = _best(tried, asked, lengths)
    assert best == np.argmax(rates) != np.argmax(tried.mean_rates)
    assert rate == pytest.approx(max(rates))


@pytest.mark.parametrize(
    ("ttft_s", "keeping"), [(0.4, []), (0.8, [3]), (1.0, [2, 3]), (2.0, [1, 2, 3])]
)
def test_a_layout_that_keeps_the_objective_goes_before_one_that_serves_more(
    ttft_s: float, keeping: list[int]
) -> None:
    """On one accelerator a prompt takes eight times as long: more of them than may be late are so when it idles."""
    asked = workload(
        lengths={"input": {"mean": 8000, "p95": 29000}, "output": {"mean": 300}},
        slo={"ttft_s": ttft_s},
    )
    tried, _ = candidates(asked)
    curves = [curve_of(tried, index, asked) for index in range(4)]
    rates = [curve.capacity_requests_per_s / 2**index for index, curve in enumerate(curves)]
    assert [
        index for index, curve in enumerate(curves) if curve.too_long_fraction <= 0.01
    ] == keeping
    best, curve, rate, *_ = _best(tried, asked, lengths_of(asked))
    nearest = min(range(4), key=lambda index: curves[index].too_long_fraction)
    assert best == (max(keeping, key=lambda index: rates[index]) if keeping else nearest)
    assert (curve.too_long_fraction, rate) == (curves[best].too_long_fraction, rates[best])
    assert rates[0] > rate or ttft_s == 2.0


def test_steps_twice_as_fast_serve_twice_as_much_in_half_the_time() -> None:
    """But for what is no step, what the engine does about a request once: here nothing."""
    usual = workload()
    strict = workload(slo={"ttft_s": 0.5, "tpot_s": 0.025})
    tried, _ = candidates(usual)
    at_once = {**tried.replicas, "ttft_fixed_s": np.zeros(4)}
    tried = dataclasses.replace(tried, replicas=at_once)
    slow, fast = (
        slo_point(tried, asked, 12, Speed(speed, 1.0))
        for asked, speed in ((usual, 1.0), (strict, 2.0))
    )
    assert slow is not None
    assert fast is not None
    assert fast[0] == slow[0]
    assert fast[1].yearly == pytest.approx(2 * slow[1].yearly, rel=1e-6)
    for name in (
        "batch",
        "tpot_s",
        "admission_tpot_s",
        "prefill_fraction",
    ):  # at the formula's speed
        assert getattr(fast[1], name) == pytest.approx(getattr(slow[1], name), rel=1e-6)


def test_who_queues_is_never_refused_and_late_beyond_what_a_replica_takes() -> None:
    asked = workload(admission="queue")
    tried, _ = candidates(asked)
    curve = curve_of(tried, 1, asked)
    lateness = queueing_lateness(*curve.by_load(), curve)
    assert np.all(np.diff(lateness.loads) > 0.0)
    late, refused = lateness.at(np.array([0.5, 10.0]))
    assert late[0] < 0.01
    assert late[1] == 1.0
    assert refused.tolist() == [0.0, 0.0]


def test_the_month_in_which_requests_are_too_long_is_the_first_whole_one() -> None:
    """Doubling every year and too long after 7.2 months: from the eighth on, at the rate of the seventh until then."""
    tokens = {"input": {"mean": 100}, "output": {"mean": 100}, "growth_per_year": 1.0}
    rates, years = as_tokens_grow(
        workload(lengths=tokens),
        24,
        lambda growth: 1.0 / growth if growth < 2 ** (7.2 / 12) else 0.0,
    )
    assert years * 12 == pytest.approx(8)
    assert rates == pytest.approx([1.0, *[2 ** (-7 / 12)] * 3])


def test_in_data_parallel_attention_each_group_holds_a_sequence_and_experts_are_split() -> None:
    catalog = load_catalog()
    part = part_of("B200", catalog)
    shape = shape_of("deepseek-r1", catalog)
    cluster = scenario_of({"clusters": {"h200": SHARED}}).clusters["h200"]
    room = memory_fit(part, shape, "fp8", 8, 8).kv_capacity_tokens / 8
    for tokens, groups in ((0.99 * room, [1, 8]), (1.01 * room, [1])):
        wide = cluster.model_copy(update={"tensor_parallel": 8})
        specs = candidates_of(wide, part, shape, "fp8", tokens)
        assert [spec.attention_data_parallel for spec in specs] == groups
    small = shape_of("gpt-oss-120b", catalog)
    pairs = {(spec.accelerators, spec.attention_data_parallel, spec.expert_parallel)
             for spec in candidates_of(cluster, part, small, "fp4", 1000.0)}  # fmt: skip
    assert {(2, 1, False), (2, 2, True), (8, 8, True)} <= pairs


def test_what_outgrew_its_objective_is_served_at_the_tokens_of_the_last_month_that_met_it() -> None:
    """100 and 80 requests of 150 and 300 tokens, then none of 600 and 1,200: 80 · 300 / 600, and half of that."""
    tokens = np.array([100.0, 200.0, 400.0, 800.0])
    load = workload_plan(months=4, input_tokens=tokens, output_tokens=tokens / 2)
    rates = np.array([[[100.0, 80.0, 0.0, 0.0]]])
    scenario = scenario_of({"workloads": {"chat": {"admission": "queue"}}})
    late = queue_outgrown(
        scenario, make_plan(workloads=[load], months=4, requests_per_node_h=rates)
    )
    assert late.requests_per_node_h[0, 0].tolist() == [100.0, 80.0, 40.0, 20.0]
    share = late.workloads[0].overdue_share
    assert share is not None
    assert share.tolist() == [0.0, 0.0, 1.0, 1.0]
