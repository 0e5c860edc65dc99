"""What caches find in a plan: it lasts at the load planned, and more memory, affinity or reuse never serve less."""

from __future__ import annotations

import copy
import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from planner.errors import ScenarioError
from planner.physics.prefix_cache import GAPS_S, from_points, working_set
from planner.physics.replica import Lengths, ReplicaTimes
from planner.physics.slo_model import late_curve
from planner.plan.build import build_plan
from planner.plan.cache_hits import CacheTerms, SharingWorkload, replica_cache
from planner.plan.candidates import CandidateLayouts, maturity_factor
from planner.plan.choice import Service, build_services
from planner.plan.reuse import Reuse
from planner.plan.slo_capacity import (
    LayoutSearch,
    cut_prompts,
    lengths_of,
    rates_by_mean_times,
)
from planner.run.simulate import simulate
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario

AGENTS: dict[str, Any] = {
    "name": "agents",
    "start": datetime.date(2026, 1, 1),
    "horizon_months": 3,
    "workloads": {
        "agents": {
            "preset": "agentic",
            "model": "llama-3.1-70b",
            "reuse": "agentic",
            "requests_per_s": 3,
            # First turns of 100,000 tokens take several seconds by themselves.
            "slo": {"ttft_s": 15.0},
        }
    },
    "clusters": {
        "h200": {
            "accelerator": "H200",
            "nodes": 8,
            "engine": "vllm",
            "tensor_parallel": 8,
            "chunk_tokens": 2048,
            "kv_offload": "none",
        }
    },
}
STEP = 0.003
"""Relative: twice the distance at which the search for a load stops, and the grid of batches."""


def scenario_of(tmp_path: Path, *changes: tuple[str, Any]) -> Scenario:
    """Return the scenario of agents with changes by dotted path."""
    content = copy.deepcopy(AGENTS)
    for path, value in changes:
        *sections, key = path.split(".")
        place = content
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    file = tmp_path / "agents.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return load_scenario(file)


def served(tmp_path: Path, *changes: tuple[str, Any], load: str = "agents") -> Service:
    """Return how the cluster serves a workload."""
    scenario = scenario_of(tmp_path, *changes)
    services, _ = build_services(scenario, Reuse(scenario), {})
    return services["h200", load]


def with_found(lengths: Lengths, found: float, most: float) -> Lengths:
    """Return lengths of which turns find the square root of what is ever found, and the others nothing."""
    turn = float(np.sqrt(most))
    hit = found / turn
    prompts = lengths.prompt_tokens
    weights = lengths.prompt_weights
    return replace(
        lengths,
        prompt_tokens=np.append(prompts, prompts),
        prompt_weights=np.append((1.0 - hit) * weights, hit * weights),
        cached_fraction=np.append(np.zeros(prompts.size), np.full(prompts.size, turn)),
    )


def test_what_is_found_lasts_at_the_load_and_keeps_the_slo_no_further(tmp_path: Path) -> None:
    """Against the working set summed by hand, and the curve of misses with what that leaves."""
    scenario = scenario_of(tmp_path)
    workload = scenario.workloads["agents"]
    cluster = scenario.clusters["h200"].model_copy(update={"precision": "fp8"})
    service = served(tmp_path)
    assert service.cache is not None
    steps = maturity_factor(cluster, workload, Reuse(scenario).catalog)
    layouts, _, rates = rates_by_mean_times(cluster, workload, Reuse(scenario))
    layout = int(np.flatnonzero([spec.layout == service.spec.layout for spec in layouts.specs])[0])
    search = LayoutSearch(
        replicas=layouts.replicas,
        mean_rates=rates,
        router_pool="cluster",
        nodes=8,
        accelerators_per_node=8,
        # A session waits for its own replica.
        max_replicas=1,
    )
    terms = search.terms(layout, workload.slo)
    curve = workload.reuse_curve
    assert curve is not None
    of_turn_before = curve.reused_fraction[0]

    def in_time(load: float) -> tuple[bool, float]:
        """Return whether the SLO is kept at a multiple of the planned load, and what is found there."""
        served_rate = service.requests_per_s * load
        # What is known beyond the formula moves rates, not waits.
        rate = served_rate * steps / service.speed
        found = float(of_turn_before[-1])
        for _ in range(300):
            lengths = with_found(lengths_of(workload), found, float(of_turn_before[-1]))
            times = ReplicaTimes(layouts.replicas, layout, steps, lengths)
            batches = np.linspace(0.0, times.most_batch, 3000)[1:]
            batch = float(np.interp(rate, times.requests_per_s(batches), batches))
            prefilling = rate * float(times.alone_s @ times.prompt_weights)
            # The model attends to so many: longer prompts are cut.
            tokens = times.mean_prompt_tokens
            capacity = float(layouts.replicas["kv_capacity_tokens"][layout])
            free = capacity * (1.0 - (batch + prefilling) / times.room)
            # Seconds of new tokens that fit: a sum over small steps of the gap.
            gaps = np.linspace(0.0, 20_000.0, 400_001)
            unseen = 1.0 - np.interp(gaps, GAPS_S, of_turn_before)
            filled = np.cumsum(unseen) * (gaps[1] - gaps[0]) * served_rate * tokens
            residence = gaps[min(int(np.searchsorted(filled, free)), gaps.size - 1)]
            following = float(np.interp(residence, GAPS_S, of_turn_before))
            if abs(following - found) < 1e-7:
                break
            found = following
        kept = late_curve(times, terms).capacity_requests_per_s
        return kept >= rate, found

    kept_below, found = in_time(1.0 - STEP)
    kept_above, _ = in_time(1.0 + STEP)
    assert kept_below
    assert not kept_above
    assert found == pytest.approx(service.cache.found_fractions[-1], abs=0.002)


def rate(tmp_path: Path, *changes: tuple[str, Any]) -> float:
    """Return requests per second of a node."""
    return served(tmp_path, *changes).requests_per_s


CLUSTER = "clusters.h200"
LOAD = "workloads.agents"


def sessions(**changes: float) -> dict[str, Any]:
    """Return the reuse of sessions like those of the log, with changes."""
    usual: dict[str, Any] = {
        "turns": 40,
        "median_gap_s": 10.0,
        "p90_gap_s": 90.0,
        "growth_tokens": 4000,
    }
    return {"sessions": usual | changes}


@pytest.mark.parametrize(
    ("fewer", "more"),
    [
        pytest.param(
            [(f"{CLUSTER}.kv_offload", "none")],
            [(f"{CLUSTER}.kv_offload", "auto")],
            id="a second tier",
        ),
        pytest.param(
            [(f"{CLUSTER}.kv_offload", "auto"), (f"{CLUSTER}.host_memory_gb", 300)],
            [(f"{CLUSTER}.kv_offload", "auto"), (f"{CLUSTER}.host_memory_gb", 3000)],
            id="more host memory",
        ),
        pytest.param(
            [(f"{CLUSTER}.accelerator", "H100")],
            [(f"{CLUSTER}.accelerator", "H200")],
            id="more memory of a part",
        ),
        pytest.param(
            [(f"{LOAD}.prefix_routing", "random")],
            [(f"{LOAD}.prefix_routing", "session")],
            id="affinity",
        ),
        pytest.param(
            [(f"{LOAD}.reuse", sessions(median_gap_s=60.0, p90_gap_s=900.0))],
            [(f"{LOAD}.reuse", sessions())],
            id="shorter gaps",
        ),
        pytest.param(
            [(f"{LOAD}.reuse", sessions(turns=10, growth_tokens=16000))],
            [(f"{LOAD}.reuse", sessions())],
            id="fewer sessions of more turns",
        ),
    ],
)
def test_more_of_it_never_serves_less(
    tmp_path: Path, fewer: list[tuple[str, Any]], more: list[tuple[str, Any]]
) -> None:
    assert rate(tmp_path, *more) >= rate(tmp_path, *fewer) * (1.0 - STEP)


def test_who_shares_a_cache_shares_its_residence_time() -> None:
    quick = from_points({10.0: 1e-9, 10.001: 0.9})
    slow = from_points({1000.0: 1e-9, 1000.1: 0.9})
    other = SharingWorkload(tokens_ratio=0.5, requests_ratio=2.0, curve=slow, routing="session")
    terms = CacheTerms(
        curve=quick, routing="session", tiers=(False,), time_share=0.8, sharing=(other,)
    )
    together = terms.working_set(1.0)
    # 1,000 tokens a second of the one alone: of 800 beside 400, what each puts there adds up, at every residence time.
    needed = [800.0 * working_set(quick).distinct_s, 400.0 * working_set(slow).distinct_s]
    assert 1000.0 * together.distinct_s == pytest.approx(sum(needed))
    assert together.found_fraction == pytest.approx(working_set(quick).found_fraction)
    # Of its requests four fifths, and twice as many of the other's.
    assert terms.requests_share == pytest.approx(0.8 * 3.0)


def test_memory_tells_where_contexts_are_many(tmp_path: Path) -> None:
    stated = [(f"{LOAD}.reuse", None), (f"{LOAD}.prefix_cache_hit_fraction", 0.963)]
    by_memory = served(tmp_path)
    assert by_memory.cache is not None
    assert 0.8 < by_memory.cache.found_fractions[-1] < 0.963
    assert by_memory.requests_per_s < 0.9 * rate(tmp_path, *stated)
    # Less load leaves more of it, up to what an endless cache finds.
    assert by_memory.cache.found_fractions[0] == pytest.approx(0.963, abs=0.003)
    assert (np.diff(by_memory.cache.found_fractions) <= 0.0).all()


def test_who_shares_replicas_leaves_less_to_each_and_lower_classes_nothing(tmp_path: Path) -> None:
    chat = {"preset": "chat", "model": "llama-3.1-70b", "requests_per_s": 30}
    alone = rate(tmp_path)
    beside = rate(tmp_path, ("workloads.chat", chat))
    assert beside < alone
    batch = {"preset": "batch", "model": "llama-3.1-70b", "requests_per_s": 30}
    assert rate(tmp_path, ("workloads.night", batch)) == alone


def test_reuse_and_a_stated_share_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario_of(tmp_path, (f"{LOAD}.prefix_cache_hit_fraction", 0.9))
    message = str(raised.value)
    assert "workloads.agents.prefix_cache_hit_fraction" in message
    assert "state only one of the two" in message
    assert "agents.yaml:" in message


@pytest.mark.parametrize(
    ("reuse", "message"),
    [
        ("agentc", "agentic"),
        ({}, "needs one of"),
        ({"points": {"60": 0.5, "30": 0.7}}, "points must rise"),
        ({"points": {"soon": 0.5}}, "seconds above 0"),
        (sessions(turns=400), "begin with"),
        (sessions(p90_gap_s=1.0), "swapped?"),
        ({"curve": "chat", "points": {"60": 0.5}}, "needs one of"),
    ],
)
def test_what_cannot_be_reused_so_is_one_message(
    tmp_path: Path, reuse: object, message: str
) -> None:
    with pytest.raises(ScenarioError, match=message.replace("?", r"\?")):
        scenario_of(tmp_path, (f"{LOAD}.reuse", reuse))


def test_without_host_memory_a_cold_cache_stays_cold_at_the_capacity_of_a_warm_one(
    tmp_path: Path,
) -> None:
    warm = served(tmp_path).cache
    assert warm is not None
    # All memory is taken by sequences that are prefilled from their beginnings.
    assert warm.found_fractions[-1] > 0.9
    assert warm.cold_fraction < 0.05
    # With enough of it what was prefilled once is there, however long it takes.
    tiered = served(tmp_path, (f"{CLUSTER}.kv_offload", "host")).cache
    assert tiered is not None
    assert tiered.cold_fraction == pytest.approx(tiered.found_fractions[-1], abs=0.001)


def agents_on_h200(scenario: Scenario) -> tuple[CandidateLayouts, CacheTerms, Lengths]:
    """Return the layouts of agents on H200 in FP8, the terms of their caches in its own memory, and their lengths."""
    workload = scenario.workloads["agents"]
    cluster = scenario.clusters["h200"].model_copy(update={"precision": "fp8"})
    layouts, _, _ = rates_by_mean_times(cluster, workload, Reuse(scenario))
    curve = workload.reuse_curve
    assert curve is not None
    terms = CacheTerms(curve=curve, routing="session", tiers=(False,))
    return layouts, terms, lengths_of(workload)


def test_a_cache_warms_up_as_stepping_through_the_seconds_says(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path)
    layouts, terms, lengths = agents_on_h200(scenario)
    cache = replica_cache(layouts.replicas, 0, terms, 1.0, lengths, has_host=False)
    rate = 0.5
    states = cache.states(1.0, np.array([rate]))
    found_warm = float(states.found_fraction[0])
    mean_prefill_s = {
        found: ReplicaTimes(
            layouts.replicas, 0, 1.0, replace(lengths, cached_fraction=found)
        ).mean_prefill_s
        for found in np.linspace(0.0, 1.0, 101).round(2).tolist()
    }
    traffic_s = 0.0
    passed_s = 0.0
    while True:
        found = float(np.interp(traffic_s, GAPS_S, terms.curve.reused_fraction[0]))
        if found >= found_warm - 0.01:
            break
        prefill_s = np.interp(found, list(mean_prefill_s), list(mean_prefill_s.values()))
        further_s = max(prefill_s - float(states.prefill_s[0]), 0.0)
        taken = rate / (1.0 + rate * further_s)
        traffic_s += taken / rate
        passed_s += 1.0
    assert cache.warm_up_s(1.0, states, 0) == pytest.approx(passed_s, rel=0.02)


def test_states_of_a_hybrid_model_take_memory_from_its_prompts(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, (f"{LOAD}.model", "qwen3.5-397b-a17b"))
    layouts, terms, lengths = agents_on_h200(scenario)
    layout = int(np.flatnonzero(layouts.replicas["accelerators"] == 8)[0])
    # 60 layers of two heads of 256, keys and values, in FP8, and four copies of each on eight accelerators.
    state_tokens = 195_400_000 / (60 * 2 * 2 * 256 * 4)
    assert layouts.replicas["state_tokens"][layout] == pytest.approx(state_tokens)
    no_states = np.zeros_like(layouts.replicas["state_tokens"])
    stateless = {**layouts.replicas, "state_tokens": no_states}
    with_states = replica_cache(layouts.replicas, layout, terms, 1.0, lengths, has_host=False)
    without = replica_cache(stateless, layout, terms, 1.0, lengths, has_host=False)
    # A quarter of the layers hold all of a prompt, the others as much as 1,024 tokens.
    held_tokens = with_states.times.prompt_tokens * with_states.times.kept_fraction
    assert held_tokens == pytest.approx(
        0.25 * with_states.times.prompt_tokens + 0.75 * 1024, rel=0.05
    )
    further_s = with_states.traffic.distinct_s - without.traffic.distinct_s
    assert further_s == pytest.approx(GAPS_S * state_tokens / held_tokens)
    rate = np.array([1.0])
    found = with_states.states(1.0, rate).found_fraction
    assert found < without.states(1.0, rate).found_fraction


def test_prompts_beyond_the_context_are_named(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path)
    (note,) = cut_prompts(scenario, scenario.load_catalog())
    assert "33% of the prompts of agents are longer than the 131,072 tokens" in note
    shorter = scenario_of(tmp_path, (f"{LOAD}.lengths", {"input": {"mean": 30_000, "p95": 90_000}}))
    assert not list(cut_prompts(shorter, scenario.load_catalog()))


def test_pools_apart_beside_reuse_say_what_to_state_instead(tmp_path: Path) -> None:
    apart = ("clusters.h200.prefill_decode", "disaggregated")
    with pytest.raises(ScenarioError, match="prefix_cache_hit_fraction in place of reuse"):
        build_plan(scenario_of(tmp_path, apart))


def test_a_larger_site_misses_no_more_where_any_replica_takes_a_request(tmp_path: Path) -> None:
    """What one node's cache finds, no node of a pool finds whose requests are sent anywhere."""
    anywhere = (f"{LOAD}.prefix_routing", "random")
    missed = []
    for nodes in (4, 8):
        pool = (CLUSTER, {"accelerator": "H200", "nodes": nodes})
        monthly = simulate(scenario_of(tmp_path, anywhere, pool)).monthly
        missed_requests = monthly.late_requests.sum() + monthly.shed_requests.sum()
        missed.append(missed_requests / monthly.demand_requests.sum())
    assert missed[1] < missed[0]


def test_where_requests_go_changes_nothing_of_a_workload_without_reuse(tmp_path: Path) -> None:
    pool = (CLUSTER, {"accelerator": "H200", "nodes": 8})
    stated = (f"{LOAD}.reuse", None)
    by_session = build_plan(scenario_of(tmp_path, pool, stated))
    anywhere = (f"{LOAD}.prefix_routing", "random")
    by_chance = build_plan(scenario_of(tmp_path, pool, stated, anywhere))
    assert by_chance.placement is not None
    assert by_session.placement is not None
    assert len(by_chance.placement.deployments) == len(by_session.placement.deployments) > 1
