"""Layouts are priced once for whoever shares them, and anew for whoever does not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from planner.physics.coefficients import Calibration, roofline_calibration
from planner.physics.replica import ReplicaSpec, at_objective, price_replicas
from planner.plan.candidates import traffic_of
from planner.plan.choice import Service, service_of
from planner.plan.reuse import Reuse
from tests.engine.worlds import scenario_of


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
