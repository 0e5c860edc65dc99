"""What nobody measured counts by how well it is known: less than predicted, and by no more at a looser objective."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from planner.physics.coefficients import Calibration
from planner.physics.replica import at_speed
from planner.plan.candidates import CHUNKS, engine_options, maturity_factor, traffic_of
from planner.plan.choice import (
    SECOND_ENGINE,
    Service,
    build_services,
    evidence_notes,
    served_by,
    service_of,
)
from planner.plan.reuse import Reuse
from planner.plan.shrinkage import (
    _LOG_SPEEDS,
    AS_PREDICTED,
    LEAD_SPREAD,
    TPOT_S,
    _shrunk,
    belief,
)
from planner.plan.slo_capacity import mean_rates, rates_by_mean_times
from planner.scenario.cluster import Cluster
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario
from planner.scenario.workload import Workload
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(ROOT / "scenarios" / "mixed-fleet.yaml")


@pytest.fixture(scope="module")
def reuse(scenario: Scenario) -> Reuse:
    return Reuse(scenario)


def option(part: str, engine: str, workload: Workload, reuse: Reuse) -> Cluster:
    stated = Cluster(accelerator=part, nodes=8, engine=engine, precision="fp8")
    (only,) = engine_options(stated, workload, reuse.catalog)
    return only


def frontier(
    of: Cluster, workload: Workload, reuse: Reuse, *, as_predicted: bool = True
) -> np.ndarray:
    """Best rate of an engine at each time per token by mean times, 0 where none keeps it."""
    maturity = maturity_factor(of, workload, reuse.catalog)
    rates = []
    for tpot_s in TPOT_S:
        slo = workload.slo.model_copy(update={"ttft_s": 1e6, "tpot_s": tpot_s})
        in_time = workload.model_copy(update={"slo": slo})
        layouts, _, _ = rates_by_mean_times(of, in_time, reuse)
        replicas = layouts.predicted if as_predicted else layouts.replicas
        replicas = at_speed(replicas, maturity)
        rates.append(mean_rates(replicas, traffic_of(in_time), slo)[1].max())
    return np.array(rates)


def test_a_lead_counts_by_how_well_it_is_known() -> None:
    """By hand: where throughput rises with the square of the speed, τ²/(τ² + 4·σ²) of a lead of ln(1.5) is left.

    A lag is kept whole, and so is what nothing better is known to stand beside.
    """
    anchor = np.array([0.0, 1.0, 2.0, 3.0])
    by_speed = np.exp(2.0 * _LOG_SPEEDS)[:, None] * anchor
    lead = math.log(1.5)
    for excess in (0.05, 0.1, 0.2):
        kept = LEAD_SPREAD**2 / (LEAD_SPREAD**2 + (2.0 * excess) ** 2)
        log_speed = _shrunk(1.5 * by_speed, anchor, 0.0, excess)
        assert log_speed == pytest.approx(-0.5 * (1.0 - kept) * lead)
        # Where the prediction itself stands at slower steps, less is ahead.
        slower = _shrunk(1.5 * by_speed, anchor, -0.1, excess)
        assert slower == pytest.approx(-0.1 - 0.5 * (1.0 - kept) * (lead - 0.2))
    assert _shrunk(by_speed / 1.5, anchor, 0.0, 0.1) == 0.0
    assert _shrunk(np.zeros((5, 4)), anchor, 0.0, 0.1) == 0.0
    assert _shrunk(1.5 * by_speed, np.zeros(4), 0.0, 0.1) == 0.0
    # Where the batch costs little time, an error of it is a larger one of throughput, and less counts.
    flatter = np.exp(6.0 * _LOG_SPEEDS)[:, None] * anchor
    steep_left = 2.0 * _shrunk(1.5 * by_speed, anchor, 0.0, 0.1) + lead
    flat_left = 6.0 * _shrunk(1.5 * flatter, anchor, 0.0, 0.1) + lead
    assert 0.0 < flat_left < 0.5 * steep_left


def test_no_lead_over_what_is_measured_counts_whole(scenario: Scenario, reuse: Reuse) -> None:
    """Of each engine without rows of the model, against the best of those that have some, at each time per token."""
    chat = scenario.workloads["chat"]
    leads = 0
    for part, measured in (("MI325X", ("vllm",)), ("H200", ("vllm", "tensorrt-llm"))):
        stated = {"layouts": "measured"}
        known = [
            frontier(option(part, engine, chat, reuse).model_copy(update=stated), chat, reuse)
            for engine in measured
        ]
        anchor = np.max(known, axis=0)
        for engine in ("sglang", "tgi"):
            other = option(part, engine, chat, reuse)
            predicted = frontier(other, chat, reuse)
            believed = frontier(other, chat, reuse, as_predicted=False)
            is_ahead = (predicted > 1.02 * anchor) & (anchor > 0.0)
            leads += int(is_ahead.sum())
            lead = np.log(predicted[is_ahead] / anchor[is_ahead])
            left = np.log(believed[is_ahead] / anchor[is_ahead])
            assert (left < 0.8 * lead).all()
            assert (believed <= predicted * (1.0 + 1e-9)).all()
    assert leads >= 4


def test_what_is_measured_counts_as_predicted(scenario: Scenario, reuse: Reuse) -> None:
    """And what was measured in other degrees nearly does; attention in groups, of which no row is, by far less."""
    chat = scenario.workloads["chat"]
    for part, engine in (("H200", "tensorrt-llm"), ("H200", "vllm"), ("B200", "tensorrt-llm")):
        of = option(part, engine, chat, reuse)
        believed = belief(of, chat, reuse).colocated
        layouts, _, _ = rates_by_mean_times(of, chat, reuse)
        for spec in layouts.specs:
            evidence = spec.evidence(reuse.calibration)
            assert evidence is not None
            log_gain = believed[engine, spec.accelerators, 1]
            if evidence.grade == "measured":
                assert log_gain == 0.0
            else:
                assert -0.05 < log_gain <= 0.0
    mixture = chat.model_copy(update={"model": "deepseek-v3"})
    of = option("H200", "sglang", mixture, reuse)
    believed = belief(of, mixture, reuse).colocated
    assert believed["sglang", 8, 1] == 0.0
    assert believed["sglang", 8, 8] < -0.05


def test_what_a_user_states_needs_no_belief(scenario: Scenario, reuse: Reuse) -> None:
    chat = scenario.workloads["chat"]
    at = {"input_tokens": 1000, "output_tokens": 300}
    claim = {"throughput_tokens_per_s_per_accelerator": 700.0, "throughput_measured_at": at}
    stated = Cluster.model_validate(
        {"accelerator": "MI325X", "nodes": 8, "engine": "sglang", "precision": "fp8", **claim}
    )
    assert belief(stated, chat, reuse) == AS_PREDICTED
    without = option("MI325X", "sglang", chat, reuse)
    assert belief(without, chat, reuse) != AS_PREDICTED


def test_without_spreads_every_prediction_counts(scenario: Scenario) -> None:
    chat = scenario.workloads["chat"]
    fresh = Reuse(scenario)
    bare: Calibration = dataclasses.replace(fresh.calibration, spread={})
    fresh.calibration = bare
    # Kept under the catalogue and the file, so asked of lengths that no other test has.
    lengths = chat.lengths.model_copy(update={"growth_per_year": 0.123})
    other = chat.model_copy(update={"lengths": lengths})
    assert belief(option("MI325X", "sglang", other, fresh), other, fresh) == AS_PREDICTED


def test_beliefs_know_neither_objective_nor_size_nor_layout(
    scenario: Scenario, reuse: Reuse
) -> None:
    """So that what serves more by prediction is reported to serve more."""
    chat = scenario.workloads["chat"]
    sglang = option("MI325X", "sglang", chat, reuse)
    believed = belief(sglang, chat, reuse)
    loose = chat.model_copy(update={"slo": chat.slo.model_copy(update={"tpot_s": 0.2})})
    large = sglang.model_copy(update={"nodes": 64, "tensor_parallel": 8, "chunk_tokens": 2048})
    assert belief(sglang, loose, reuse) == believed
    assert belief(large, chat, reuse) == believed


@pytest.mark.parametrize("part", ["MI325X", "H200"])
def test_a_looser_objective_or_a_larger_cluster_never_serves_less(
    part: str, scenario: Scenario, reuse: Reuse
) -> None:
    for name in ("chat", "long-context"):
        workload = scenario.workloads[name]
        rates = []
        for factor in (0.7, 1.0, 1.5, 3.0):
            slo = workload.slo.model_copy(update={"tpot_s": workload.slo.tpot_s * factor})
            looser = workload.model_copy(update={"slo": slo})
            best = served_by(Cluster(accelerator=part, nodes=4), looser, scenario, reuse, {})
            rates.append(best.requests_per_s if isinstance(best, Service) else 0.0)
        assert rates == sorted(rates)
        sizes = []
        for nodes in (1, 2, 8, 32):
            best = served_by(Cluster(accelerator=part, nodes=nodes), workload, scenario, reuse, {})
            sizes.append(best.requests_per_s if isinstance(best, Service) else 0.0)
        assert sizes == sorted(sizes)


def test_a_number_that_is_reported_is_the_one_that_ranks(scenario: Scenario, reuse: Reuse) -> None:
    """The service of an engine on auto is that of a cluster that states it, believed or not."""
    chat = scenario.workloads["chat"]
    sglang = option("MI325X", "sglang", chat, reuse).model_copy(
        update={"prefill_decode": "colocated"}
    )
    service = service_of(sglang, chat, scenario, reuse)
    assert isinstance(service, Service)
    (log_gain,) = belief(sglang, chat, reuse).of([service.spec])
    assert log_gain < 0.0
    assert service.speed == pytest.approx(math.exp(log_gain))
    on_auto = served_by(
        Cluster(accelerator="MI325X", nodes=8, precision="fp8"), chat, scenario, reuse, {}
    )
    assert isinstance(on_auto, Service)
    assert on_auto.requests_per_s >= service.requests_per_s


def test_a_cluster_has_one_engine_where_a_second_saves_less_than_it_costs(
    scenario: Scenario, reuse: Reuse
) -> None:
    """By trying all sets of engines: none needs less nodes, at 5% for each engine beyond the first."""
    services, _ = build_services(scenario, reuse, {})
    for name in ("h200", "mi325x", "b200"):
        cluster = scenario.clusters[name]
        vendor = reuse.catalog.accelerator(cluster.accelerator).vendor.value
        rates: dict[str, dict[str, float]] = {}
        for engine in reuse.catalog.engines(vendor):
            stated = cluster.model_copy(update={"engine": engine})
            rates[engine] = {}
            for load, workload in scenario.workloads.items():
                best = served_by(stated, workload, scenario, reuse, {})
                rates[engine][load] = best.requests_per_s if isinstance(best, Service) else 0.0

        def cost(engines: tuple[str, ...], table: dict[str, dict[str, float]]) -> float:
            nodes = 0.0
            for load, workload in scenario.workloads.items():
                fastest = max(table[engine][load] for engine in engines)
                nodes += workload.requests_per_s / fastest if fastest else math.inf
            return nodes * (1.0 + SECOND_ENGINE) ** (len(engines) - 1)

        singles = [(engine,) for engine in rates]
        pairs = [(one, two) for one in rates for two in rates if one < two]
        least = min(cost(engines, rates) for engines in (*singles, *pairs))
        chosen = {services[name, load].spec.engine for load in scenario.workloads}
        spent = sum(
            workload.requests_per_s / services[name, load].requests_per_s
            for load, workload in scenario.workloads.items()
        )
        assert spent * (1.0 + SECOND_ENGINE) ** (len(chosen) - 1) <= least * (1.0 + 1e-6)


def test_layouts_that_nobody_measured_and_edges_of_the_grid_are_named(
    scenario: Scenario, reuse: Reuse
) -> None:
    services, _ = build_services(scenario, reuse, {})
    notes = list(evidence_notes(scenario, services))
    assert CHUNKS == (1024, 2048, 4096, 8192, 16_384, 32_768)
    unmeasured = [note for note in notes if note.startswith("throughput is extrapolated")]
    named = {
        pair
        for pair, one in services.items()
        if one.evidence and one.evidence.grade == "extrapolated"
    }
    assert len(unmeasured) == bool(named)
    for cluster, workload in named:
        assert f"{workload} on {cluster} (" in unmeasured[0]
    at_edge = {
        pair for pair, one in services.items() if one.spec.chunk_tokens == 1024 and not one.prefill
    }
    edges = [
        note for note in notes if note.startswith("chunk_tokens: the smallest value tried, 1,024")
    ]
    assert len(edges) == bool(at_edge)
    for cluster, workload in at_edge:
        assert f"{workload} on {cluster}" in edges[0]


def test_measured_layouts_alone_are_taken_where_there_are_any(
    scenario: Scenario, reuse: Reuse
) -> None:
    """Llama-70B was measured on MI325X under vLLM, 405B was not; what is measured serves no more than the best."""
    chat = scenario.workloads["chat"]
    free = Cluster(accelerator="MI325X", nodes=8)
    measured = Cluster(accelerator="MI325X", nodes=8, layouts="measured")
    best = served_by(free, chat, scenario, reuse, {})
    known = served_by(measured, chat, scenario, reuse, {})
    assert isinstance(best, Service)
    assert isinstance(known, Service)
    assert known.spec.engine == "vllm"
    assert known.evidence is not None
    assert known.evidence.grade == "measured"
    assert known.requests_per_s <= best.requests_per_s
    long_context = scenario.workloads["long-context"]
    on_any = served_by(free, long_context, scenario, reuse, {})
    without = served_by(measured, long_context, scenario, reuse, {})
    assert isinstance(on_any, Service)
    assert isinstance(without, Service)
    assert without.requests_per_s == on_any.requests_per_s
