"""Prompts on accelerators of their own: what two pools keep in time, beside requests simulated one by one."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from planner.catalog.load import load_catalog, part_of, shape_of
from planner.errors import CapacityError
from planner.physics.replica import ReplicaSpec, price_replicas
from planner.physics.slo_model import MissCurve
from planner.plan import disaggregation
from planner.plan.candidates import replica_specs as candidates_of
from planner.plan.candidates import traffic_of
from planner.plan.choice import Service, service_of
from planner.plan.disaggregation import worker_counts
from planner.plan.reuse import Reuse
from planner.plan.slo_capacity import LayoutSearch
from planner.requests.outcome import outcomes
from planner.requests.zoom import ZoomRequest, simulate_zoom
from planner.scenario.workload import Workload
from tests.engine.worlds import SHARED, merged, scenario_of
from tests.plan.test_load_tables import long_prompts
from tests.shipped import shipped_calibration

CHAT: dict[str, Any] = {
    "model": "llama-3.1-70b", "lengths": {"input": {"mean": 1200, "p95": 4000}, "output": {"mean": 300, "p95": 900}},
    "slo": {"ttft_s": 2.0, "tpot_s": 0.05},
}  # fmt: skip
LARGE = {**CHAT, "model": "llama-3.1-405b", "slo": {"ttft_s": 3.0, "tpot_s": 0.06}}


def service(load: dict[str, Any], **cluster: Any) -> Service:
    scenario = scenario_of(
        merged(long_prompts(1.0, **load), {"clusters": {"h200": SHARED | cluster}})
    )
    found = service_of(
        scenario.clusters["h200"], scenario.workloads["chat"], scenario, Reuse(scenario)
    )
    assert isinstance(found, Service)
    return found


def candidates(
    network_bytes_per_s: float | None = None, ttft_s: float = 2.0
) -> tuple[LayoutSearch, list[Any], Any]:
    """Return workers of two accelerators, of a part with a network of its own or one that is stated, and their work."""
    stated = {**CHAT, "slo": {**CHAT["slo"], "ttft_s": ttft_s}}
    scenario = scenario_of(
        merged(long_prompts(1.0, **stated), {"clusters": {"h200": SHARED | {"tensor_parallel": 2}}})
    )
    cluster = scenario.clusters["h200"]
    load = scenario.workloads["chat"]
    catalog = load_catalog()
    part = part_of("H200", catalog)
    if network_bytes_per_s is not None:
        part = dataclasses.replace(part, network_bytes_per_s=network_bytes_per_s)
    specs = candidates_of(cluster, part, shape_of(load.model, catalog), "fp8", 1500)
    replicas = price_replicas(specs, shipped_calibration())
    nodes = {"router_pool": "cluster", "nodes": 4, "accelerators_per_node": 8}
    return LayoutSearch(replicas=replicas, mean_rates=np.ones(1), **nodes), specs, load  # type: ignore[arg-type]


def within_slo(
    some: LayoutSearch, specs: list[ReplicaSpec], load: Workload, speed: float, growth: float
) -> tuple[disaggregation.PoolPair, MissCurve, MissCurve]:
    """Return the pools of a workload, which they serve."""
    pools = disaggregation.pools_within_slo(some, specs, load, speed, growth)
    assert pools is not None
    return pools


def test_a_prompts_cache_moves_over_the_network_before_the_first_token() -> None:
    """Two accelerators of 0.1 GB/s each take 1,200 tokens of 80 layers, 8 heads of keys and values of 128 at a byte.

    What is left of two seconds is what a network without limits leaves of as much less.
    """
    some, specs, load = candidates(1e8)
    transfer_s = 1200 * 2 * 80 * 8 * 128 / (2 * 1e8)
    assert disaggregation.pools_by_mean_times(
        specs, some, traffic_of(load), load.slo
    ).transfer_s == pytest.approx(transfer_s)
    assert 0.5 < transfer_s < 1.5
    _, slow, _ = within_slo(some, specs, load, 1.0, 1.0)
    at_once, specs, load = candidates(1e18, ttft_s=2.0 - transfer_s)
    _, sooner, _ = within_slo(at_once, specs, load, 1.0, 1.0)
    assert slow.capacity_requests_per_s == pytest.approx(sooner.capacity_requests_per_s)
    _, free, _ = within_slo(*candidates(1e18), 1.0, 1.0)
    assert slow.capacity_requests_per_s < 0.97 * free.capacity_requests_per_s


def curves(
    monkeypatch: pytest.MonkeyPatch, prefill_share: float
) -> tuple[MissCurve, MissCurve, float]:
    """Return the late shares of workers of one accelerator, of a node of nine that has a share of them for prompts.

    Last what transfer and handover leave of two seconds.
    """
    scenario = scenario_of(
        merged(long_prompts(1.0, **CHAT), {"clusters": {"h200": SHARED | {"tensor_parallel": 1}}})
    )
    cluster = scenario.clusters["h200"]
    load = scenario.workloads["chat"]
    catalog = load_catalog()
    specs = candidates_of(
        cluster, part_of("H200", catalog), shape_of(load.model, catalog), "fp8", 1500
    )
    replicas = price_replicas(specs, shipped_calibration())
    whole = LayoutSearch(
        replicas=replicas, mean_rates=np.ones(1), router_pool="cluster", nodes=1, accelerators_per_node=9
    )  # fmt: skip
    by_mean = disaggregation.pools_by_mean_times
    monkeypatch.setattr(
        disaggregation,
        "pools_by_mean_times",
        lambda *asked: dataclasses.replace(by_mean(*asked), prefill_share=prefill_share),
    )
    pools, prefill, decode = within_slo(whole, specs, load, 1.0, 1.0)
    return prefill, decode, 2.0 - pools.transfer_s - pools.handover_s


def missed(load: dict[str, Any], requests_per_s: float, ttft_s: float, *, first: bool) -> float:
    """Return the share of requests that eight such replicas miss, by their first token or their time per token."""
    stated = long_prompts(requests_per_s, **load, admission="queue")
    zoomed = simulate_zoom(
        scenario_of(merged(stated, {"clusters": {"h200": SHARED | {"tensor_parallel": 1}}})),
        ZoomRequest(start=datetime(2026, 1, 10, 12), minutes=2, requests=6_000),
    )
    (outcome,) = outcomes(zoomed)
    attainment = outcome.ttft_s <= ttft_s if first else outcome.attainment
    return 1.0 - float(attainment.mean())


@pytest.mark.prove
def test_workers_that_only_decode_keep_the_time_per_token_as_request_by_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replica that finds every prompt in its cache is one: steep, so capacity lies between two loads close by."""
    _, decode, _ = curves(monkeypatch, prefill_share=1 / 9)
    bare = {**CHAT, "prefix_cache_hit_fraction": 0.9999, "slo": {"ttft_s": 60.0, "tpot_s": 0.05}}
    below, above = (
        missed(bare, load * 8 * decode.capacity_requests_per_s, 60.0, first=False)
        for load in (0.95, 1.1)
    )
    assert below < 0.002
    assert above > 0.2


def test_workers_that_only_prefill_keep_first_tokens_as_request_by_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replica whose replies have hardly a token is one."""
    prefill, _, left_s = curves(monkeypatch, prefill_share=8 / 9)
    bare = {**CHAT, "lengths": {**CHAT["lengths"], "output": {"mean": 1}}}
    below, above = (
        missed(bare, load * 8 * prefill.capacity_requests_per_s, left_s, first=True)
        for load in (0.85, 1.4)
    )
    assert below < 0.01
    assert above > 0.05


def test_two_pools_keep_the_stated_share_in_time_at_capacity() -> None:
    """Where prompts are too long by themselves, workers for prompts leave half of their share to the others."""
    for ttft_s in (2.0, 6.0):
        load = {**CHAT, "slo": {**CHAT["slo"], "ttft_s": ttft_s}}
        pools = service(load, nodes=4, prefill_decode="disaggregated")
        late, refused = pools.lateness.at(np.array([0.5, 1.0, 1.5]))
        too_long = pools.lateness.too_long_fraction
        assert late[0] == pytest.approx(too_long, abs=0.0005)
        prompts_in_time = min(0.992, (1.0 - too_long) * 0.996)
        assert late[1] == pytest.approx(1.0 - prompts_in_time * 0.998, abs=0.0005)
        assert refused[2] == pytest.approx(1 / 3, abs=0.01)
    assert too_long < 0.001


def test_two_pools_take_no_more_than_the_one_that_is_full_first() -> None:
    """Late by half at its last load, the one at 1.2 times what it keeps, the other at 1.5."""
    prefill, decode = (
        MissCurve(
            requests_per_s=2.0 * np.array([0.0, 1.0, last]), late_fraction=np.array([0.0, 0.1, 0.5]),
            batch=np.ones(3), tpot_s=np.ones(3), capacity_requests_per_s=2.0, too_long_fraction=0.0, alone_s=1.0,
        )
        for last in (1.2, 1.5)
    )  # fmt: skip
    for pools in ((prefill, decode), (decode, prefill)):
        lateness = disaggregation.pool_pair_lateness(*pools)
        assert lateness.loads[-2:] == pytest.approx((1.2, 1.2))
        assert lateness.late_fractions[-2:] == pytest.approx(
            (1.0 - 0.5 * (1.0 - 0.1 - 0.4 * 0.2 / 0.5), 1.0)
        )


@pytest.mark.slow
def test_two_pools_keep_in_time_what_they_do_request_by_request() -> None:
    """Steep, so capacity lies between two loads close by."""
    pools = {"nodes": 2, "prefill_decode": "disaggregated"}
    sustained = 2 * service(CHAT, **pools).requests_per_s
    late = []
    for load in (0.9, 1.5):
        stated = long_prompts(load * sustained, **CHAT, admission="queue")
        scenario = scenario_of(merged(stated, {"clusters": {"h200": SHARED | pools}}))
        (outcome,) = outcomes(
            simulate_zoom(
                scenario, ZoomRequest(start=datetime(2026, 1, 10, 12), minutes=2, requests=6_000)
            )
        )
        late.append(1.0 - float(outcome.attainment.mean()))
    below, above = late
    assert below < 0.01
    assert above > 0.1


@pytest.mark.parametrize(("nodes", "wide"), [(1, None), (2, None), (1, 4), (3, 8)])
def test_workers_of_both_kinds_stand_on_the_accelerators_there_are(
    nodes: int, wide: int | None
) -> None:
    """A model that takes four of the eight of a node: two workers of four, never one of four beside one of eight."""
    pools = service(LARGE, nodes=nodes, tensor_parallel=wide, prefill_decode="disaggregated")
    assert pools.prefill is not None
    prompts = pools.prefill.share * 8 * nodes / pools.prefill.spec.accelerators
    assert prompts == pytest.approx(round(prompts))
    assert round(prompts) * pools.prefill.spec.accelerators + pools.spec.accelerators <= 8 * nodes
    assert worker_counts(5, (2, 4), (1.0, 1.0)) == (0, 0)  # half a prefill worker is none


def test_where_no_two_workers_fit_prompts_are_prefilled_beside_replies() -> None:
    beside = service(LARGE, nodes=1, tensor_parallel=8, prefill_decode="auto")
    assert beside.prefill is None
    scenario = scenario_of(long_prompts(1.0, **LARGE))
    stated = SHARED | {"tensor_parallel": 8, "prefill_decode": "disaggregated"}
    cluster = scenario.clusters["h200"].model_copy(update=stated)
    assert isinstance(
        service_of(cluster, scenario.workloads["chat"], scenario, Reuse(scenario)), CapacityError
    )


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_looser_time_per_token_never_lowers_what_pools_serve(deferrable: bool) -> None:
    """Long prompts with short replies: first tokens decide, and the objective on the rest must not delay them."""
    long = {
        "model": "llama-3.1-405b",
        "lengths": {"input": {"mean": 4000, "p95": 6000}, "output": {"mean": 30, "p95": 60}},
    }
    served = []
    for tpot_s in (0.04, 0.08, 0.2, 1.0):
        stated = {**long, "slo": {"ttft_s": 6.0, "tpot_s": tpot_s}}
        if deferrable:
            stated["priority"] = "deferrable"
        served.append(service(stated, nodes=4, prefill_decode="disaggregated").requests_per_s)
    assert served[0] > 0.0
    assert np.diff(served).min() >= -1e-9 * served[0]
