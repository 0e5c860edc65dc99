"""The fleet that a zoom finds: the hourly model's replicas and layouts, and its use of each cluster."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pytest

from planner.engine.driver import run_plan
from planner.requests.outcome import Outcome, outcomes
from planner.requests.zoom import Zoom, ZoomRequest, simulate_zoom
from tests.engine.worlds import QUIET, merged, plan_of, scenario_of

NOON = datetime(2026, 1, 10, 12)
STEADY = {"load_profile": {"peak_to_mean": 1.0, "weekend_fraction": 1.0}, "noise": {"sigma": 0}}
CHAT = {
    "model": "llama-3.1-70b",
    "lengths": {"input": {"mean": 1200, "p95": 4000}, "output": {"mean": 300, "p95": 900}},
    "slo": {"ttft_s": 2.0, "tpot_s": 0.05},
}
OLD = {"engine": "vllm", "prefill_decode": "colocated", "chunk_tokens": 8192}
SMALL = {
    "model": "llama-3.1-8b",
    "lengths": {"input": {"mean": 800, "p95": 2500}, "output": {"mean": 150, "p95": 450}},
    "slo": {"ttft_s": 1.0, "tpot_s": 0.03},
}


def world(workloads: dict[str, Any], clusters: dict[str, Any], **top: Any) -> dict[str, Any]:
    """A fleet in which nothing fails, under steady traffic."""
    works = {name: merged(STEADY, load) for name, load in workloads.items()}
    gone: dict[str, Any] = {"chat": None, "nightly": None}
    none: dict[str, Any] = {"h200": None, "mi325x": None}
    return merged(
        QUIET, {"horizon_months": 1, "workloads": gone | works, "clusters": none | clusters}, top
    )


def zoomed(change: dict[str, Any], minutes: int = 2) -> tuple[Zoom, dict[str, Outcome]]:
    hour = simulate_zoom(scenario_of(change), ZoomRequest(start=NOON, minutes=minutes))
    return hour, {outcome.name: outcome for outcome in outcomes(hour)}


def accelerators(hour: Zoom) -> int:
    return sum(group.replicas * group.accelerators for group in hour.hour.replica_groups)


@pytest.mark.parametrize("routing", ["cheapest-marginal", "proportional"])
def test_clusters_are_used_as_by_the_hour(routing: str) -> None:
    """Two parts at four fifths of what they sustain together: by its batches the one was filled to half beyond."""
    clusters = {
        "one": {"accelerator": "H200", "nodes": 1},
        "two": {"accelerator": "MI325X", "nodes": 1},
    }
    asked = world(
        {"chat": CHAT | {"requests_per_s": 1.0, "burst_index_of_dispersion": 1.0}},
        clusters,
        routing=routing,
    )
    sustained = float(plan_of(asked).requests_per_node_h.sum()) / 3600
    hour, by_name = zoomed(
        merged(asked, {"workloads": {"chat": {"requests_per_s": 0.8 * sustained}}}), minutes=1
    )
    assert hour.utilisation_fraction == pytest.approx(hour.hour.utilisation_fraction, abs=0.05)
    assert by_name["chat"].attainment.mean() > 0.98


def test_models_stand_on_the_replicas_that_the_hour_has_placed() -> None:
    """A model that is asked a twentieth of a node stands there: it was given no replica, and nobody asked it."""
    workloads = {"chat": CHAT | {"requests_per_s": 7.0}, "small": SMALL | {"requests_per_s": 8.0}}
    hour, by_name = zoomed(world(workloads, {"one": {"accelerator": "H200", "nodes": 1}}))
    window = run_plan(hour.plan, hour.seed, 0).windows[0]
    placement = hour.plan.placement
    assert placement is not None
    placed = set()
    for d in np.flatnonzero(window.replicas[:, 0]):
        deployment = placement.deployments[d]
        model = hour.plan.workloads[deployment.workloads[0]].model
        width = round(8 * deployment.nodes_per_replica)
        placed.add((model, width, window.replicas[d, 0]))
    groups = hour.hour.replica_groups
    assert {(group.model, group.accelerators, group.replicas) for group in groups} == placed
    # Less than a replica of the larger model's layout is left over.
    widest = max(group.accelerators for group in groups)
    assert 8 - widest < accelerators(hour) <= 8
    assert by_name["small"].attainment.size > 500
    assert by_name["small"].attainment.mean() > 0.99


def test_who_finds_no_replica_is_refused() -> None:
    """One node holds one of two large models: requests for the other come, and are turned away."""
    words = {"input": {"mean": 800}, "output": {"mean": 200}}
    large = {"requests_per_s": 1.0, "lengths": words, "slo": {"ttft_s": 10, "tpot_s": 0.2}}
    workloads = {
        "big": large | {"model": "llama-3.1-405b"},
        "bigger": large | {"model": "deepseek-r1"},
    }
    hour, by_name = zoomed(world(workloads, {"one": {"accelerator": "H200", "nodes": 1}}))
    shed = dict(zip(by_name, hour.hour.shed_fraction.tolist(), strict=True))
    assert sorted(shed.values()) == [pytest.approx(0.0, abs=0.01), pytest.approx(1.0)]
    for name, outcome in by_name.items():
        assert outcome.attainment.size > 50
        assert outcome.refused.mean() == pytest.approx(shed[name], abs=0.01)


def test_an_engine_admits_no_more_sequences_than_its_cluster_states() -> None:
    asked = {"chat": CHAT | {"requests_per_s": 12.0, "admission": "queue"}}
    cluster = {"accelerator": "H200", "nodes": 1, "max_sequences": 12, **OLD}
    hour, by_name = zoomed(world(asked, {"one": cluster}), minutes=4)
    (group,) = hour.hour.replica_groups
    assert hour.seconds[:, 0, 1].max() <= 12 * group.replicas
    assert by_name["chat"].attainment.mean() < 0.9  # a tenth beyond what it sustains


def test_a_sample_has_the_traffic_of_the_replicas_it_holds() -> None:
    """Of one replica beside many a sample has the whole, and all that is asked of it: by the fleet's share it idled."""
    workloads = {"chat": CHAT | {"requests_per_s": 4.0}, "small": SMALL | {"requests_per_s": 900.0}}
    steady = {name: load | {"burst_index_of_dispersion": 1.0} for name, load in workloads.items()}
    change = world(steady, {"one": {"accelerator": "H200", "nodes": 3}})
    hour = simulate_zoom(scenario_of(change), ZoomRequest(start=NOON, minutes=1, requests=6000))
    assert hour.share < 0.3
    for w, outcome in enumerate(outcomes(hour)):
        pairs = zip(hour.hour.replica_groups, hour.replicas, strict=True)
        ((group, count),) = [pair for pair in pairs if w in pair[0].served]
        asked = 60 * float(hour.hour.demand_requests_per_s[w]) * count / group.replicas
        assert outcome.arrived_s.size == pytest.approx(asked, abs=4.0 * asked**0.5)
