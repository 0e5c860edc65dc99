"""Tables by load: how far they reach, and what a cluster far beyond its capacity serves."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import numpy as np
import pytest

from planner.demand.bursts import Bursts, Lateness, shares_with_bursts
from planner.engine.dispatch import allowed_loads
from planner.plan.choice import build_services
from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD, load_grid
from planner.plan.miss_tables import _most_load
from planner.plan.reuse import Reuse
from planner.run.simulate import simulate
from tests.engine.worlds import QUIET, SHARED, merged, plan_of, scenario_of
from tests.plan.burst_rates import at_rate


def long_prompts(requests_per_s: float, **load: Any) -> dict[str, Any]:
    """A model of 405 billion weights, asked with long prompts, on one node of H200."""
    steady = {"load_profile": {"peak_to_mean": 1.0, "weekend_fraction": 1.0}, "noise": {"sigma": 0}}
    asked = {
        "model": "llama-3.1-405b",
        "requests_per_s": requests_per_s,
        "burst_index_of_dispersion": 1.0,
        "lengths": {"input": {"mean": 12000}, "output": {"mean": 343}},
        "slo": {"ttft_s": 30.0, "tpot_s": 0.1},
    }
    works = {"chat": steady | asked | load, "nightly": None}
    clusters = {"mi325x": None, "h200": SHARED | {"nodes": 1}}
    return merged(QUIET, {"workloads": works, "clusters": clusters, "horizon_months": 1})


def attainment(change: dict[str, Any]) -> float:
    """Return the share of requests in time over the run."""
    result = simulate(scenario_of(change))
    return 1.0 - float(result.missed_requests().sum() / result.settled_requests().sum())


@pytest.mark.parametrize(("requests_per_s", "by_request"), [(0.1, 0.939), (0.13, 0.924)])
def test_a_node_far_beyond_its_capacity_serves_what_it_does_request_by_request(
    requests_per_s: float, by_request: float
) -> None:
    """Two to three times what it sustains, as the zoom has it; all beyond twice that was shed before."""
    change = long_prompts(requests_per_s)
    assert requests_per_s * 3600 > MOST_LOAD * plan_of(change).requests_per_node_h.item()
    assert attainment(change) == pytest.approx(by_request, abs=0.045)


GROWN_REQUESTS_PER_S = 9.9


def grown(
    times: float, follow: str = "pooled", rate: float = GROWN_REQUESTS_PER_S
) -> dict[str, Any]:
    """Chat on a node of H200 whose traffic is that of the first month times a factor from February on."""
    steps = {"kind": "steps", "steps": [{"date": datetime.date(2026, 2, 1), "multiplier": times}]}
    works = {
        "chat": {
            "model": "llama-3.1-70b",
            "lengths": {"input": {"mean": 2500}, "output": {"mean": 300}},
            "requests_per_s": rate / times,
            "growth": steps,
            "burst_scaling": follow,
            "load_profile": {"peak_to_mean": 1.0, "weekend_fraction": 1.0},
            "noise": {"sigma": 0},
        },
        "nightly": None,
    }
    clusters = {"mi325x": None, "h200": SHARED | {"nodes": 1}}
    return merged(
        QUIET,
        {"start": "2026-01-01", "workloads": works, "clusters": clusters, "horizon_months": 2},
    )


def missed_when_grown(change: dict[str, Any]) -> tuple[float, float, Any]:
    """Return the share of requests missed in the last month, the load then, and the plan."""
    result = simulate(scenario_of(change))
    window = result.run.windows[-1]
    hour = -1
    missed = window.late_requests[0, hour] + window.shed_requests[0, hour]
    load = window.demand_requests[0, hour] / result.plan.requests_per_node_h[0, 0, -1]
    return float(missed / window.demand_requests[0, hour]), float(load), result


@pytest.mark.parametrize("times", [0.5, 3.0, 10.0])
def test_grown_traffic_misses_what_minutes_of_its_own_rate_do(times: float) -> None:
    """E[G ℓ(ρG)] by draws of minutes whose counts have the stated index at the rate that is then; by no table."""
    missed, load, result = missed_when_grown(grown(times))
    lateness = build_services(result.scenario, Reuse(result.scenario), {})[0][
        "h200", "chat"
    ].lateness
    variance = 11.0 / (60.0 * GROWN_REQUESTS_PER_S)
    minutes = np.random.default_rng(1).gamma(1.0 / variance, variance, 200_000)
    by_minute = minutes * sum(lateness.at(load * minutes))
    error = by_minute.std() / np.sqrt(minutes.size)
    assert 0.5 < load < 1.0
    assert missed == pytest.approx(by_minute.mean(), abs=4.0 * error + 0.004)
    client, _, _ = missed_when_grown(grown(times, "proportional"))
    assert (
        client > missed + 0.005 if times > 1.0 else client < missed
    )  # as large beside the mean as on day one


def test_waits_allow_the_more_the_more_requests_even_out() -> None:
    plan = plan_of(merged(grown(10.0), {"slo_target": {"attainment": 0.985}}))
    hours = np.array([[0.5, 1.0, 4.0, GROWN_REQUESTS_PER_S, 1e3]]) * 3600.0
    (allowed,) = allowed_loads(dataclasses.replace(plan, preferred_utilisation=0.0), hours)
    assert np.all(np.diff(allowed) >= 0.0)
    # No hour is taken for more bursty than at the lowest measured rate.
    assert allowed[0] == allowed[2] < allowed[3]
    (by_rate,) = plan.burst_tables.values()
    assert plan.no_burst_tables is not None
    missed = plan.no_burst_tables[:, 0, 0].sum(axis=0) + at_rate(by_rate, 4.0 * 3600.0).sum(axis=0)
    kept = np.flatnonzero(missed[: LOAD_CELLS // 2 + 1] <= 0.015)[
        -1
    ]  # the last cell before too many are missed
    assert allowed[2] == pytest.approx(kept / (LOAD_CELLS // 2))


def test_between_two_rates_the_tables_are_nearly_those_of_the_rate_itself() -> None:
    plan = plan_of(grown(10.0))
    scenario = scenario_of(grown(10.0))
    lateness = build_services(scenario, Reuse(scenario), {})[0]["h200", "chat"].lateness
    (by_rate,) = plan.burst_tables.values()
    loads = load_grid(LOAD_CELLS)
    for rate in (0.9, 4.0, 6.0, 7.0, 8.0, 9.5):
        exact = np.array(
            shares_with_bursts(lateness, Bursts(requests_per_s=rate), loads)
        ) - np.array(lateness.at(loads))
        gap = np.abs(at_rate(by_rate, rate * 3600.0)[:, : loads.size] - exact)
        assert gap.max() < (1e-9 if rate == 8.0 else 0.001)
    assert plan.no_burst_tables is not None
    for row in range(
        by_rate.added.shape[1]
    ):  # up to the cells said to be calm, bursts make nobody late and nobody is refused
        until = by_rate.calm_cells[:, row].astype(int) + 1
        refused = by_rate.added[1, row] + plan.no_burst_tables[1, 0, 0]
        assert (
            np.abs(by_rate.added[0, row, : until[0]]).max()
            <= 1e-4
            < np.abs(by_rate.added[0, row, until[0]])
        )
        assert refused[: until[1]].max() <= 1e-6 < refused[until[1]]
    even = plan.no_burst_tables[1, 0, 0]
    assert even[: int(by_rate.even_cells) + 1].max() <= 1e-6 < even[int(by_rate.even_cells) + 1]
    assert not plan_of(grown(10.0, "proportional")).burst_tables
    assert not plan_of(grown(10.0, rate=0.0)).burst_tables


def test_work_that_queues_is_offered_what_a_replica_takes_at_all() -> None:
    def queue(most: float) -> Lateness:
        return Lateness(loads=(0.0, most, most * 1.000001), late_fractions=(0, 0, 1), refuses=False)

    assert _most_load(queue(1.3)) == MOST_LOAD
    assert _most_load(queue(5.0)) == 5.0
    assert _most_load(queue(500.0)) == 8 * MOST_LOAD
    assert _most_load(Lateness()) == 1.0
