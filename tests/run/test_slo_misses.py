"""Why requests were late: each rung against a run in which the scenario itself leaves the cause out."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

from planner.plan import quantities
from planner.run import tables
from planner.run.simulate import RunResult, simulate
from planner.run.slo_misses import REASONS, lost_requests, worst_reasons
from planner.scenario.loading import load_scenario

BUSY = """\
name: busy
start: 2026-01-01
horizon_months: 2
workloads:
  chat:
    model: llama-3.1-70b
    requests_per_s: 55
    lengths: {input: {mean: 1200, p95: 4000}, output: {mean: 300, p95: 900}}
    slo: {ttft_s: 1.0, tpot_s: 0.05}
  batch:
    model: llama-3.1-8b
    requests_per_s: 20
    lengths: {input: {mean: 900}, output: {mean: 250}}
    priority: deferrable
clusters:
  h200: {accelerator: H200, nodes: 4}
  mi325x: {accelerator: MI325X, nodes: 3}
site: {facility_power_cap_kw: 60, outages_per_year: 6}
reliability: {failure_multiplier: 5}
software: {incident_multiplier: 10, software_speedup_multiplier: 0}
"""
LEFT_OUT = {
    "power_cap": "site.facility_power_cap_kw=null",
    "outage": "site.outages_per_year=0",
    "incident": "software.incident_multiplier=0",
    "bursts": "workloads.chat.burst_index_of_dispersion=1",
}


@functools.cache
def run(*overrides: str) -> RunResult:
    import yaml  # noqa: PLC0415 - the scenario as a dict, so that no file is written

    return simulate(load_scenario(yaml.safe_load(BUSY), overrides))


def test_the_reasons_sum_to_all_that_was_not_in_time() -> None:
    result = run()
    lost = lost_requests(result)
    assert lost.fraction.shape == (len(REASONS), 2, 2)
    assert np.all(lost.fraction >= 0.0)
    attainment = quantities.attainment(result.missed_requests(), result.settled_requests())
    assert lost.fraction.sum(axis=0) == pytest.approx(1.0 - attainment, abs=1e-15)
    assert np.all(
        lost.requests[:, :, 0].sum(axis=1)[1 : 1 + len(LEFT_OUT)] > 0.0
    )  # each of what happens takes something


def test_each_cause_takes_what_a_run_without_it_misses_less() -> None:
    """The ladder against simulations of the scenario with causes left out, one more each time."""
    missed = [run().missed_requests()]
    overrides = []
    for reason, left_out in LEFT_OUT.items():
        overrides.append(left_out)
        if reason == "outage":
            overrides.append("reliability.failure_multiplier=0")
        missed.append(run(*overrides).missed_requests())
    ladder = np.minimum.accumulate(missed, axis=0)
    apart = [higher - lower for higher, lower in itertools.pairwise(ladder)]
    assert lost_requests(run()).requests[1 : 1 + len(LEFT_OUT)] == pytest.approx(
        np.array(apart), rel=1e-6, abs=1.0
    )


def test_what_is_left_is_the_tables_at_capacity_and_at_no_load() -> None:
    calm = run(
        *LEFT_OUT.values(),
        "reliability.failure_multiplier=0",
        "clusters.mi325x=null",
        "workloads.batch=null",
    )
    lost = lost_requests(calm)
    plan = calm.plan
    asked = calm.monthly.demand_requests[:, 0]
    assert lost.requests[-1, :, 0] == pytest.approx(asked * plan.late_tables[0, 0, 0])
    assert np.all(lost.requests[-2:, :, 0].sum(axis=0) <= asked * (1.0 - 0.99) * (1.0 + 1e-9))
    short = run(
        *LEFT_OUT.values(), "reliability.failure_multiplier=0", "clusters.mi325x=null", "workloads.batch=null",
        "clusters.h200.nodes=1",
    )  # fmt: skip
    no_capacity = lost_requests(short).fraction[[*REASONS].index("no_capacity"), :, 0]
    assert np.all(no_capacity > 0.2)  # 55 requests/s on a node that sustains some 20


def test_a_workload_past_its_objective_is_too_long_for_it() -> None:
    growth = (
        "workloads.chat.lengths.growth_per_year=10",
        "workloads.chat.slo.ttft_s=0.1",
        "horizon_months=9",
    )
    grown = run(
        *growth, "site.facility_power_cap_kw=null", "workloads.batch=null", "clusters.mi325x=null"
    )
    outgrown = np.all(grown.plan.requests_per_node_h[:, 0] <= 0.0, axis=0)
    assert outgrown.any()
    lost = lost_requests(grown).fraction[:, outgrown, 0]
    assert np.all(lost[-1] > 0.5)
    assert lost[4:7] == pytest.approx(0.0)


def test_rented_machines_are_not_lost() -> None:
    rent = "finance.burst_rental={usd_per_accelerator_h: 4, most_accelerators: 8}"
    rented = run(
        rent, "workloads.chat.lengths.growth_per_year=0.5"
    )  # so that a request takes longer month by month
    assert rented.rented.requests.sum() > 0
    assert lost_requests(rented).requests.sum(axis=0) == pytest.approx(rented.missed_requests())


def test_the_table_sums_to_what_was_missed_and_the_worst_come_first() -> None:
    result = run()
    table = tables.slo_misses(result)
    assert {len(column) for column in table.values()} == {2 * 2 * len(REASONS)}
    sums: dict[tuple[str, str], float] = {}
    for month, workload, share in zip(
        table["month"], table["workload"], table["missed_fraction"], strict=True
    ):
        sums[month, workload] = sums.get((month, workload), 0.0) + share
    attainment = tables.timeline_workloads(result)["slo_attainment_fraction"]
    assert [*sums.values()] == pytest.approx(1.0 - attainment, abs=1e-12)
    worst = worst_reasons(result)
    assert 0 < len(worst) <= 3
    assert np.all(np.diff([miss.missed_fraction for miss in worst]) <= 0.0)
