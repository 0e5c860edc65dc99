"""Layouts are priced once for whoever shares them, and anew for whoever does not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from planner.errors import CapacityError
from planner.physics.coefficients import Calibration, roofline_calibration
from planner.physics.replica import ReplicaSpec, at_objective, price_replicas
from planner.plan.capacity import Service, build_services, layouts_of, service_of, traffic_of
from planner.plan.placement import laid_out
from planner.plan.plan import Reuse
from tests.engine.worlds import scenario_of


def test_workloads_of_a_model_share_its_layouts_and_other_layouts_are_their_own() -> None:
    scenario = scenario_of({})
    reuse = Reuse(scenario)
    cluster = scenario.clusters["h200"]
    short, long = (
        layouts_of(cluster, "llama-3.1-70b", "fp8", tokens, reuse) for tokens in (500.0, 900.0)
    )
    assert short.replicas is long.replicas
    assert short.is_allowed.all()
    narrow = layouts_of(
        cluster.model_copy(update={"tensor_parallel": 2, "chunk_tokens": 512}),
        "llama-3.1-70b",
        "fp8",
        500.0,
        reuse,
    )
    assert narrow.replicas is short.replicas  # the same, of which it may serve in some
    assert [
        spec.layout[2:] for spec, may in zip(narrow.specs, narrow.is_allowed, strict=True) if may
    ] == [(2, 1, 512, 0)]
    drafting = scenario_of(
        {
            "clusters": {
                "h200": {
                    "speculation": {
                        "drafted_tokens": 3,
                        "mean_acceptance_length": 2.0,
                        "use": "always",
                    }
                }
            }
        }
    ).clusters["h200"]
    few = cluster.model_copy(update={"max_sequences": 7})
    odd = cluster.model_copy(
        update={"chunk_tokens": 3000}
    )  # nothing among which the planner chooses
    for other, model, precision in (
        (odd, "llama-3.1-70b", "fp8"),
        (drafting, "llama-3.1-70b", "fp8"),
        (few, "llama-3.1-70b", "fp8"),
        (cluster, "llama-3.1-70b", "bf16"),
        (cluster, "qwen3-32b", "fp8"),
    ):
        apart = layouts_of(other, model, precision, 500.0, reuse)
        expected = price_replicas(apart.specs, reuse.calibration)
        np.testing.assert_equal(apart.replicas, expected)
        assert {(spec.shape.name, spec.precision) for spec in apart.specs} == {(model, precision)}
        assert apart.replicas is not short.replicas
        assert apart.is_allowed.any()


def test_beside_a_service_stand_perfect_software_and_the_next_wider_precision() -> None:
    scenario = scenario_of({})
    reuse = Reuse(scenario)
    load = scenario.workloads["chat"]
    service = service_of(
        scenario.clusters["h200"].model_copy(update={"engine": "vllm", "precision": "fp8"}),
        load,
        scenario,
        reuse,
    )
    assert isinstance(service, Service)
    wider = dataclasses.replace(service.spec, precision="bf16")

    def rate(spec: ReplicaSpec, calibration: Calibration) -> float:
        priced = price_replicas([spec], calibration)
        return float(
            at_objective(
                priced, np.arange(1), traffic_of(load), load.slo.ttft_s, load.slo.tpot_s
            ).requests_per_s[0]
        )

    plain = rate(service.spec, reuse.calibration)
    assert service.roofline_factor == pytest.approx(
        rate(service.spec, roofline_calibration()) / plain
    )
    assert service.wide_factor == pytest.approx(rate(wider, reuse.calibration) / plain)
    assert service.wide_factor < 1.0 < service.roofline_factor


def test_a_model_that_no_layout_holds_is_refused_each_time() -> None:
    scenario = scenario_of({})
    reuse = Reuse(scenario)
    single = scenario.clusters["h200"].model_copy(update={"tensor_parallel": 1})
    for _ in range(2):
        with pytest.raises(CapacityError):
            layouts_of(single, "llama-3.1-405b", "bf16", 500.0, reuse)


@pytest.mark.parametrize("degree", [1, 2, 4])
def test_a_cluster_laid_out_otherwise_serves_as_one_that_states_it(degree: int) -> None:
    scenario = scenario_of({})
    stated = scenario_of({"clusters": {"h200": {"tensor_parallel": degree}}})
    factors = {("H200", engine, ""): 0.9 for engine in scenario.load_catalog().engines("nvidia")}
    services, _ = build_services(stated, Reuse(stated), factors)
    for name in scenario.workloads:
        service = laid_out(
            scenario, factors, Reuse(scenario), "h200", name, {"tensor_parallel": degree}
        )
        assert service == services.get(("h200", name))
