from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.finance.accounting.measures import measures
from planner.finance.bridge import CAUSE_MEANINGS, CAUSES, Factors, bridge
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from planner.studies.compare import factors_of
from tests.conftest import WriteScenario

amounts = st.floats(0.01, 100.0)
shares = st.floats(0.05, 1.0)
factors = st.builds(
    Factors,
    hardware_cost_usd=amounts, power_usd=amounts, people_usd=amounts, availability_usd=st.floats(0.0, 10.0),
    utilisation_usd=st.floats(0.0, 10.0), available_fraction=shares, utilised_fraction=shares,
    undragged_fraction=shares, throughput_tokens=st.floats(1e3, 1e7),
)  # fmt: skip


def run(path: Path, *overrides: str) -> RunResult:
    return simulate(load_scenario(path, overrides), seed=2)


def own(result: RunResult) -> Factors:
    found = factors_of(result)
    assert found is not None
    return found


@given(first=factors, second=factors)
def test_the_parts_sum_to_the_whole(first: Factors, second: Factors) -> None:
    parts = bridge(first, second)
    whole = second.usd_per_million_tokens - first.usd_per_million_tokens
    size = max(abs(part) for part in parts.values())
    assert sum(parts.values()) == pytest.approx(whole, abs=1e-9 * size + 1e-12)
    there_and_back = bridge(second, first)
    assert [there_and_back[cause] for cause in CAUSES] == pytest.approx(
        [-parts[cause] for cause in CAUSES], rel=1e-9, abs=1e-9 * size
    )


@given(same=factors, price=amounts)
def test_a_cause_that_does_not_differ_explains_nothing(same: Factors, price: float) -> None:
    parts = bridge(same, replace(same, hardware_cost_usd=price))
    assert all(
        part == pytest.approx(0, abs=1e-9)
        for cause, part in parts.items()
        if cause != "hardware_cost"
    )


def test_the_factors_multiply_to_the_runs_own_cost(write: WriteScenario) -> None:
    busy = [
        "workloads.chat.requests_per_s=3000",
        "finance.sla_credit_usd_per_million_tokens=3",
        "finance.rma_usd_per_repair=100",
        "reliability.failure_multiplier=5",
        "software.incident_multiplier=9",
    ]
    result = run(
        write(), *busy, "finance.burst_rental={usd_per_accelerator_h: 3, most_accelerators: 8}"
    )
    figures = measures(result)
    assert own(result).usd_per_million_tokens == pytest.approx(
        figures["cost_per_million_tokens_usd"]
    )


@pytest.mark.parametrize(
    ("change", "cause", "sign"),
    [
        ("clusters.h200.accelerator_price_usd=90000", "hardware_cost", 1),
        ("site.electricity_usd_per_kwh=0.5", "power", 1),
        ("site.colocation_usd_per_kw_month=0", "power", -1),
        ("software.engineers_per_800.amd=40", "people", 1),
        ("finance.spare_part_price_fraction=1", "availability", 1),
    ],
)
def test_one_changed_input_moves_its_own_cause_alone(
    write: WriteScenario, change: str, cause: str, sign: int
) -> None:
    path = write()
    parts = bridge(own(run(path)), own(run(path, change)))
    assert parts[cause] * sign > 0
    assert all(
        part == pytest.approx(0, abs=1e-9 * abs(parts[cause]))
        for name, part in parts.items()
        if name != cause
    )


def test_failures_move_failures_most(write: WriteScenario) -> None:
    path = write()
    load = "workloads.chat.requests_per_s=3000"
    parts = bridge(own(run(path, load)), own(run(path, load, "reliability.failure_multiplier=60")))
    assert parts["availability"] > 0
    assert parts["availability"] == max(parts.values())


def test_a_faster_fleet_under_the_same_traffic_is_used_less(write: WriteScenario) -> None:
    path = write()
    faster = ("clusters.h200.throughput_multiplier=2", "clusters.mi325x.throughput_multiplier=2")
    parts = bridge(own(run(path)), own(run(path, *faster)))
    assert parts["throughput"] < 0 < parts["utilisation"]
    assert parts["throughput"] == pytest.approx(-parts["utilisation"], rel=0.05)


def test_a_plan_that_serves_nothing_has_no_bridge(write: WriteScenario) -> None:
    assert factors_of(run(write(), "workloads.chat.requests_per_s=0")) is None


def test_every_cause_is_explained(root: Path) -> None:
    assert list(CAUSES) == list(CAUSE_MEANINGS)
    assert list(CAUSES) == [
        "hardware_cost",
        "throughput",
        "power",
        "software",
        "availability",
        "utilisation",
        "people",
    ]
    page = (root / "docs" / "explanation" / "finance.md").read_text(encoding="utf-8")
    assert all(f"\n| {cause} | " in page for cause in CAUSES)
