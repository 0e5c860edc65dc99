"""The site: outages, curtailments, caps, and cooling that depends on load and season."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from planner.engine.hourly import WindowInput
from planner.engine.window import evaluate_window
from planner.plan.load_tables import LOAD_CELLS, MOST_LOAD
from planner.run.simulate import run_engine
from planner.units import HOURS_PER_YEAR
from tests.engine.plans import cluster_plan, make_plan, site_plan, workload_plan
from tests.engine.worlds import QUIET, merged, plan_of


def test_outages_are_a_renewal_process() -> None:
    """Gaps of a mean year / 50 and lengths of 10 h: the number over a year by renewal theory, |z| < 4."""
    plan = make_plan(months=12)
    plan = make_plan(months=12, site=site_plan(plan.hours, outages_per_year=50.0, outage_h=10.0))
    counts = []
    lengths = []
    for seed in range(40):
        run, monthly = run_engine(plan, seed)
        counts.append(len(run.log.site))
        lengths += [event.end_h - event.start_h for event in run.log.site]
        dark = sum(min(event.end_h, plan.hours) - event.start_h for event in run.log.site)
        assert monthly.dark_node_h.sum() == pytest.approx(10 * dark, rel=1e-9)
    cycle = HOURS_PER_YEAR / 50 + 10.0
    variance = (HOURS_PER_YEAR / 50) ** 2 + 10.0**2
    spread = math.sqrt(plan.hours * variance / cycle**3 / 40)
    assert (
        abs(np.mean(counts) - plan.hours / cycle) < 4 * spread + 0.5
    )  # 0.5: what renewal theory leaves to constants
    assert abs(np.mean(lengths) - 10.0) < 4 * 10.0 / math.sqrt(len(lengths))


def test_in_an_outage_nothing_runs_and_nothing_draws_power_but_overhead() -> None:
    plan = make_plan(months=12)
    plan = make_plan(months=12, site=site_plan(plan.hours, outages_per_year=20.0, outage_h=30.0))
    run, _ = run_engine(plan, 1)
    window = run.windows[0]
    inside = [
        hour
        for event in run.log.site
        for hour in range(math.ceil(event.start_h), min(math.floor(event.end_h), plan.hours))
    ]
    assert len(inside) > 50
    assert np.all(window.it_kw[:, inside] == 0.0)
    assert np.all(window.served_requests[:, :, inside] == 0.0)
    assert window.shed_requests[0, inside] == pytest.approx([3600.0] * len(inside))


@pytest.mark.parametrize("outage_h", [1 / 12, 0.25, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("load", [0.1, 0.3, 0.6, 0.95])
def test_an_outage_sheds_what_arrives_in_it_and_nothing_else(outage_h: float, load: float) -> None:
    """Rate × dark time, whatever the load leaves free in the rest of the hour, and wherever windows end."""
    hours = make_plan().hours
    site = site_plan(hours, outages_per_year=200.0, outage_h=outage_h)
    plan = make_plan([cluster_plan(nodes=10)], requests_per_s=[10.0 * load], site=site)
    for window_h in (None, 1, 7, 100) if (outage_h, load) == (0.25, 0.3) else (None,):
        run, monthly = run_engine(plan, 3, window_h=window_h)
        came = np.concatenate([window.demand_requests[0] for window in run.windows])
        lost = 0.0
        for event in run.log.site:
            for hour in range(math.floor(event.start_h), min(math.ceil(event.end_h), hours)):
                lost += came[hour] * (min(event.end_h, hour + 1) - max(event.start_h, hour))
        assert len(run.log.site) > 5
        assert monthly.shed_requests.sum() == pytest.approx(lost, rel=1e-9)
        assert monthly.served_requests.sum() == pytest.approx(came.sum() - lost, rel=1e-9)


def test_work_that_can_wait_is_not_lost_to_a_short_outage() -> None:
    hours = make_plan(months=3).hours
    work = [workload_plan("batch", months=3, priority=2, deadline_h=24)]
    site = site_plan(hours, outages_per_year=60.0, outage_h=0.25)
    plan = make_plan([cluster_plan(nodes=10)], work, months=3, requests_per_s=[9.0], site=site)
    run, monthly = run_engine(plan, 3)
    assert len(run.log.site) > 5
    assert monthly.shed_requests.sum() == 0.0


def test_the_lit_part_of_an_hour_is_as_loaded_as_any_other() -> None:
    """Half an hour dark: half the energy, and no more requests late than in an hour of full light."""
    plan = make_plan([cluster_plan(nodes=10)], requests_per_s=[6.0])
    demand = np.full((1, 2), 6 * 3600.0)
    nodes = np.array([[10.0, 5.0]])
    steep = np.zeros((1, 1, LOAD_CELLS + 1))
    steep[:, :, int(0.7 * LOAD_CELLS / MOST_LOAD) :] = 1.0  # late from 70% utilisation on
    window = WindowInput(
        first_hour=0,
        demand_requests=demand,
        nodes=nodes,
        speed={},
        incidents={},
        waiting_requests=(np.zeros(0),),
        lit_fraction=np.array([1.0, 0.5]),
    )
    result = evaluate_window(dataclasses.replace(plan, late_tables=steep), window)
    assert result.served_requests[0, 0] == pytest.approx([6 * 3600.0, 3 * 3600.0])
    assert result.shed_requests[0] == pytest.approx([0.0, 3 * 3600.0])
    assert result.late_requests[0] == pytest.approx([0.0, 0.0])
    assert result.it_kw[0, 1] == pytest.approx(0.5 * result.it_kw[0, 0])


def test_pue_is_the_stated_one_at_rated_load_and_worse_below() -> None:
    """At full load in a mean season PUE is 1.3; at rest the fixed share of cooling is spread over less."""
    level = {"site": {"pue_ratio": 1.3, "pue_season_fraction": 0.0}}
    still = {"workloads": {"chat": {"requests_per_s": 0}, "nightly": {"requests_per_s": 0}}}
    full = {"workloads": {"chat": {"requests_per_s": 1e5}}}

    def pue(*changes: dict[str, Any]) -> float:
        monthly = run_engine(plan_of(merged(QUIET, level, *changes)), 1)[1]
        return float(monthly.facility_kwh.sum() / monthly.it_kwh.sum())

    assert pue(full) == pytest.approx(1.3, rel=1e-6)
    plan = plan_of(merged(QUIET, level, still))
    rated = sum(c.nodes * c.node_power.full_kw for c in plan.clusters)
    idle = sum(c.nodes * c.node_power.idle_kw for c in plan.clusters)
    assert pue(still) == pytest.approx(1 + 0.3 * (0.3 * rated / idle + 0.7), rel=1e-6)
