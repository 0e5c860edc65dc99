"""The ends of a capacity are what slower and faster steps serve."""

from __future__ import annotations

import copy
import dataclasses

import pytest

from planner.plan.candidates import as_first_bought
from planner.plan.capacity_interval import capacity_interval
from planner.plan.choice import Service, build_services, served_by
from planner.plan.reuse import Reuse
from planner.scenario.cluster import Cluster
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from tests.conftest import ROOT

CHAT = ("h200", "chat")


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(ROOT / "scenarios" / "mixed-fleet.yaml")


@pytest.fixture(scope="module")
def reuse(scenario: Scenario) -> Reuse:
    return Reuse(scenario)


def stated(scenario: Scenario, reuse: Reuse) -> tuple[Service, Cluster, Workload]:
    """Return the service of chat on H200, and the cluster with its layout stated."""
    cluster_name, name = CHAT
    service = build_services(scenario, reuse, {})[0][CHAT]
    cluster = as_first_bought(scenario, cluster_name).model_copy(update=service.as_keys())
    return service, cluster, scenario.workloads[name]


def on_stack(speed: float, cluster: Cluster, workload: Workload, scenario: Scenario) -> float:
    """Return what a node serves where the catalogue says that the stack runs at a share of the formula's speed."""
    reuse = Reuse(scenario)
    catalog = reuse.catalog
    vendor = catalog.accelerator(cluster.accelerator).vendor.value
    stack = catalog.stack(vendor, cluster.engine)
    (name,) = (name for name, one in catalog.stacks.items() if one is stack)
    multiplier = stack.dense_multiplier
    slower = multiplier.model_copy(update={"value": multiplier.value * speed})
    stacks = catalog.stacks | {name: stack.model_copy(update={"dense_multiplier": slower})}
    changed = copy.copy(reuse)
    changed.catalog = catalog.model_copy(update={"stacks": stacks})
    service = served_by(cluster, workload, scenario, changed, {})
    return service.requests_per_s if isinstance(service, Service) else 0.0


def test_ends_are_what_a_slower_and_a_faster_stack_serves(scenario: Scenario, reuse: Reuse) -> None:
    service, cluster, workload = stated(scenario, reuse)
    assert service.evidence is not None
    interval = capacity_interval(service, cluster, workload, scenario, reuse)
    assert interval is not None
    low, high = interval
    slow, fast = service.evidence.interval(1.0)
    by_mean_times = workload.model_copy(update={"priority": "deferrable"})
    kinds = (workload, by_mean_times)
    expected = min(on_stack(slow, cluster, kind, scenario) for kind in kinds)
    assert low == pytest.approx(expected, rel=0.005)
    assert high == pytest.approx(on_stack(fast, cluster, workload, scenario), rel=0.005)
    # Within an objective throughput changes by more than speed.
    assert low < service.requests_per_s * slow
    assert high > service.requests_per_s * fast


def test_a_time_per_token_that_slower_steps_never_keep_promises_nothing(
    scenario: Scenario, reuse: Reuse
) -> None:
    service, cluster, workload = stated(scenario, reuse)
    slo = workload.slo.model_copy(update={"tpot_s": service.single_tpot_s * 1.05})
    tight = workload.model_copy(update={"slo": slo})
    barely = served_by(cluster, tight, scenario, reuse, {})
    assert isinstance(barely, Service)
    interval = capacity_interval(barely, cluster, tight, scenario, reuse)
    assert interval is not None
    assert interval[0] == 0.0
    assert barely.requests_per_s < interval[1]


def test_a_stated_throughput_scales_and_no_evidence_gives_no_interval(
    scenario: Scenario, reuse: Reuse
) -> None:
    service, cluster, workload = stated(scenario, reuse)
    assert service.evidence is not None
    claimed = cluster.model_copy(update={"throughput_tokens_per_s_per_accelerator": 1000.0})
    interval = capacity_interval(service, claimed, workload, scenario, reuse)
    assert interval == service.evidence.interval(service.requests_per_s)
    unknown = dataclasses.replace(service, evidence=None)
    assert capacity_interval(unknown, cluster, workload, scenario, reuse) is None
