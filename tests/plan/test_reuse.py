"""A plan compiled with memory equals one compiled without."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from planner.plan.build import build_plan
from planner.plan.reuse import Reuse
from planner.scenario.loading import load_scenario
from planner.scenario.scenario import Scenario


@pytest.fixture
def scenario(write: Any) -> Scenario:
    return load_scenario(write())


def differences(one: Any, two: Any, path: str = "") -> list[str]:
    """Return where two plans differ, bit for bit."""
    if dataclasses.is_dataclass(one):
        return [
            found
            for field in dataclasses.fields(one)
            for found in differences(
                getattr(one, field.name), getattr(two, field.name), f"{path}.{field.name}"
            )
        ]
    if isinstance(one, Mapping):
        assert list(one) == list(two)
        return differences(tuple(one.values()), tuple(two.values()), path)
    if isinstance(one, tuple):
        parts = [
            differences(a, b, f"{path}[{k}]") for k, (a, b) in enumerate(zip(one, two, strict=True))
        ]
        return [found for part in parts for found in part]
    same = (
        np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
        if isinstance(one, np.ndarray)
        else one == two
    )
    return [] if same else [path]


@pytest.mark.parametrize(
    "override",
    [
        "clusters.h200.accelerator_price_usd=20000",
        "clusters.h200.throughput_multiplier=0.9",
        "clusters.h200.nodes=9",
        "workloads.chat.lengths.output.mean=150",
        "workloads.chat.growth={kind: compound, per_year: 0.7}",
        "workloads.chat.load_profile={timezone: Asia/Tokyo}",
        "reliability.failure_multiplier=3",
        "site.pue_ratio=1.5",
        "site.facility_power_cap_kw=60",
        "software.upgrade_policy=pinned",
        "finance.residual_fraction=0.3",
    ],
)
def test_a_changed_scenario_compiles_to_the_same_plan_with_memory(
    scenario: Scenario, write: Any, override: str
) -> None:
    changed = load_scenario(write(), [override])
    reuse = Reuse(scenario)
    build_plan(scenario, reuse)
    fresh = build_plan(changed)
    kept = build_plan(changed, reuse)
    assert differences(fresh, kept) == []
    assert (
        differences(build_plan(scenario), build_plan(scenario, reuse)) == []
    )  # what changed leaves nothing behind


def test_throughput_factors_multiply_what_a_node_sustains(write: Any) -> None:
    scenario = load_scenario(
        write(), [f"clusters.{name}.engine=vllm" for name in ("h200", "mi325x")]
    )
    plain = build_plan(scenario)
    factors = {("H200", "vllm", "llama-3.1-8b"): 1.25, ("", "sglang", "llama-3.1-8b"): 9.0}
    faster = build_plan(scenario, throughput_factors=factors)
    ratio = faster.requests_per_node_h / plain.requests_per_node_h
    assert ratio[0] == pytest.approx(1.25)
    assert ratio[1] == pytest.approx(1.0)
    shared = build_plan(scenario, throughput_factors={**factors, ("", "vllm", "llama-3.1-8b"): 0.8})
    ratio = shared.requests_per_node_h / plain.requests_per_node_h
    assert ratio[0] == pytest.approx(1.25 * 0.8)
    assert ratio[1] == pytest.approx(0.8)


def test_each_catalogue_has_a_memory_of_its_own(write: Any) -> None:
    stated = load_scenario(write())
    other = load_scenario(write(), ["catalog.assumptions=articles-2024"])
    assert Reuse(stated).once("what", lambda: 1) == 1
    assert Reuse(other).once("what", lambda: 2) == 2
    assert Reuse(load_scenario(write())).once("what", lambda: 3) == 1
