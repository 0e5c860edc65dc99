"""A run's tables agree with the run and with one another."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from planner.engine.driver import Run, Simulation
from planner.engine.log import SoftwareEvent, streams
from planner.engine.monthly import sum_months
from planner.engine.rental import rent_for_shed
from planner.finance.accounting.cohorts import cohorts_of
from planner.finance.accounting.posting import write_ledger
from planner.finance.accounting.unit_economics import machine_time
from planner.plan.plan import Plan
from planner.run.events import tokens_per_node_h
from planner.run.simulate import RunResult, simulate
from planner.scenario.loading import load_scenario
from tests.engine.plans import cluster_plan, make_plan, workload_plan
from tests.engine.worlds import QUIET, scenario_of


@pytest.fixture(scope="module")
def result() -> RunResult:
    order = {
        "placed": "2026-01-01",
        "lead_weeks": 1,
        "slip_weeks": {"low": 0, "base": 0, "high": 0},
    }
    return simulate(
        scenario_of({"site": {"outages_per_year": 60}, "clusters": {"mi325x": {"order": order}}})
    )


def test_hours_sum_to_months(result: RunResult) -> None:
    monthly = result.timeline_monthly()
    hourly = result.timeline_hourly()
    for name in ("demand_tokens", "served_tokens", "shed_tokens", "energy_kwh"):
        assert hourly[name].sum() == pytest.approx(monthly[name].sum(), rel=1e-9)
    assert len(hourly) == result.plan.hours


def test_clusters_sum_to_the_fleet(result: RunResult) -> None:
    fleet = result.timeline_monthly().set_index("month")
    clusters = result.timeline_monthly(clusters=True)
    hours = [name for name in map(str, clusters) if name.endswith("accelerator_h")]
    assert len(hours) == 3
    for name in ("served_tokens", "energy_kwh", "cost_usd", *hours):
        np.testing.assert_allclose(clusters.groupby("month")[name].sum(), fleet[name], rtol=1e-9)
    on_site = 8 * result.monthly.present_node_h.sum(axis=1)
    np.testing.assert_allclose(fleet.on_site_accelerator_h, on_site, rtol=1e-9)
    np.testing.assert_allclose(
        fleet.accelerator_h / fleet.in_service_accelerator_h, fleet.utilisation_fraction
    )
    np.testing.assert_allclose(
        fleet.in_service_accelerator_h / fleet.on_site_accelerator_h, fleet.availability_fraction
    )


def test_workloads_sum_to_the_fleet(result: RunResult) -> None:
    frame = (
        result.timeline_workloads()
        .groupby("month")[["demand_tokens", "served_tokens", "shed_tokens"]]
        .sum()
    )
    whole = result.timeline_monthly().set_index("month")[frame.columns]
    np.testing.assert_allclose(frame, whole, rtol=1e-9)


def test_workloads_and_what_none_bears_have_all_of_the_cost_and_all_machine_time(
    result: RunResult,
) -> None:
    frame = result.timeline_workloads().groupby("month")[["cost_usd", "accelerator_h"]].sum()
    months = result.timeline_monthly().set_index("month")
    others = result.unit_economics().query("line != 'workload'").groupby("month")["cost_usd"].sum()
    np.testing.assert_allclose(frame["cost_usd"] + others, months["cost_usd"], rtol=1e-9)
    per_node = np.array([cluster.accelerators_per_node for cluster in result.plan.clusters])
    np.testing.assert_allclose(
        frame["accelerator_h"], (result.monthly.busy_node_h * per_node).sum(axis=1), rtol=1e-9
    )


def test_the_backlog_closes_the_books_of_each_month(result: RunResult) -> None:
    frame = result.timeline_monthly()
    change = frame["backlog_tokens"].diff().fillna(frame["backlog_tokens"])
    rest = frame["demand_tokens"] - frame["served_tokens"] - frame["shed_tokens"] - change
    assert np.abs(rest).max() < 1e-9 * frame["demand_tokens"].max()


def test_every_event_is_there_with_what_it_cost(result: RunResult) -> None:
    events = result.events()
    assert events["time"].is_monotonic_increasing
    assert set(events["event"]) == {"ordered", "delivered", "failure", "software", "outage"}
    failures = events[events["event"] == "failure"]
    inside = [outage for outage in result.run.shop.outages() if outage.start_h < result.plan.hours]
    assert len(failures) == len(inside)
    carried = dict(
        zip((c.name for c in result.plan.clusters), tokens_per_node_h(result), strict=True)
    )
    expected = (
        failures["duration_h"] * failures["accelerators"] / 8 * failures["cluster"].map(carried)
    )
    np.testing.assert_allclose(failures["lost_capacity_tokens"], expected, rtol=1e-9)
    outages = events[events["event"] == "outage"]
    assert len(outages) == len(result.run.log.site) > 0


LOST = {"failure": "failures", "software": "software", "outage": "outages"}


def test_events_and_losses_tell_of_the_same_node_hours(result: RunResult) -> None:
    """Events and months tell of the same node-hours, and tokens follow from them."""
    events = result.events()
    losses = result.losses()
    for event, name in LOST.items():
        taken = events[events["event"] == event]["lost_node_h"]
        lost = losses[f"lost_to_{name}_node_h"]
        assert taken.sum() == pytest.approx(lost.sum(), rel=1e-9, abs=1e-9)
        assert (taken >= 0.0).all()
    carried = dict(
        zip((c.name for c in result.plan.clusters), tokens_per_node_h(result), strict=True)
    )
    own = events[events["cluster"] != "site"]
    tokens = own["lost_node_h"] * own["cluster"].map(carried)
    np.testing.assert_allclose(own["lost_capacity_tokens"], tokens, rtol=1e-9)
    for name in carried:  # cluster by cluster where the row names one
        for event in ("failure", "software"):
            by_event = own[(own["event"] == event) & (own["cluster"] == name)]["lost_node_h"]
            by_month = losses[losses["cluster"] == name][f"lost_to_{LOST[event]}_node_h"]
            assert by_event.sum() == pytest.approx(by_month.sum(), rel=1e-9, abs=1e-9)


def test_incidents_that_are_open_together_share_what_they_cost() -> None:
    """Speeds of 0.8 and 0.5 together cost 0.6: shared as ln 0.8 to ln 0.5 for as long as both are open."""
    plan = make_plan([cluster_plan(nodes=10)], requests_per_s=[2.0])
    simulation = Simulation(plan, streams(1))
    both = (("regression", 1, math.log(0.8), 10.0, 30.0), ("hang", 2, math.log(0.5), 20.0, 40.5))
    for kind, number, factor, start_h, end_h in both:
        simulation.log.software.append(SoftwareEvent(start_h, ((0, 0),), (factor,), kind, number))
        simulation.log.software.append(
            SoftwareEvent(end_h, ((0, 0),), (-factor,), kind + " fixed", number)
        )
    run = simulation.run([0, 25, plan.hours])
    came = np.concatenate([window.demand_requests[0] for window in run.windows]) / 3600.0
    drawn = result_of(plan, run).events()
    lost = drawn[drawn["event"] == "software"].set_index("cause")["lost_node_h"]
    alone = came[10:20].sum() * (1 / 0.8 - 1)
    together = came[20:30].sum() * (1 / 0.4 - 1)
    share = math.log(0.8) / math.log(0.4)
    assert lost["regression"] == pytest.approx(alone + share * together)
    after = came[30:40].sum() * (1 / 0.5 - 1) + came[40] / 0.75 * 0.25
    assert lost["hang"] == pytest.approx((1 - share) * together + after)


def result_of(plan: Plan, run: Run) -> RunResult:
    monthly = sum_months(plan, run)
    cohorts = cohorts_of(plan, run.log)
    return RunResult(
        scenario=scenario_of({"finance": {"allocation": "by-use"}}),
        plan=plan,
        seed=1,
        replication=0,
        monthly=monthly,
        run=run,
        cohorts=cohorts,
        rented=rent_for_shed(plan, run.windows),
        ledger=write_ledger(plan, run, monthly, cohorts, rent_for_shed(plan, run.windows)),
    )


def two_workloads(**changes: Any) -> Plan:
    """Cluster a serves both, b neither; a long request takes twice the machine time and four times the tokens."""
    long = {"input_tokens": np.full(2, 400.0), "output_tokens": np.full(2, 200.0)}
    work = [
        workload_plan("short", [0], months=2),
        workload_plan("long", [0], months=2, **long, **changes),
    ]
    plan = make_plan(
        [cluster_plan("a", nodes=5), cluster_plan("b", nodes=3)],
        work,
        months=2,
        requests_per_s=[3.0, 2.0],
    )
    rates = np.array([[[3600.0], [1800.0]], [[3600.0], [1800.0]]])
    return dataclasses.replace(plan, requests_per_node_h=rates)


def test_a_workload_pays_its_machine_time_and_its_tokens_share_of_what_is_idle() -> None:
    """Five nodes, where short requests need three and long ones four: 5/7 of both, of 450 and 1,200 tokens a second."""
    plan = two_workloads()
    drawn = result_of(plan, Simulation(plan, streams(1)).run([0, plan.hours]))
    cents = drawn.cost_cents()
    paid = (
        drawn.timeline_workloads().pivot(index="month", columns="workload", values="cost_usd") * 100
    )
    assert cents[:, 1].min() > 0  # the idle cluster costs
    for name, time, tokens in (("short", 3 / 7, 3 / 11), ("long", 4 / 7, 8 / 11)):
        np.testing.assert_allclose(paid[name], cents[:, 0] * time + cents[:, 1] * tokens, atol=1.5)
    assert paid.sum(axis=1).round(6).tolist() == cents.sum(axis=1).tolist()
    hours = drawn.timeline_workloads().pivot(
        index="month", columns="workload", values="accelerator_h"
    )
    np.testing.assert_allclose(hours["long"], 8 * 5 * 4 / 7 * plan.months.period_hours)


def test_a_demand_charge_is_borne_by_clusters_as_they_draw_power() -> None:
    """14 USD for each kW of the site's highest hour, split by IT energy: neither evenly nor by nodes."""
    site = {"electricity": {"demand_charge_usd_per_kw_month": 14}, "outages_per_year": 0}
    drawn = simulate(scenario_of(QUIET, {"site": site}))
    ledger = drawn.ledger_table()
    charged = ledger[ledger["account"] == "demand_charge"].pivot(
        index="month", columns="cluster", values="amount_usd"
    )
    energy = np.concatenate([window.it_kw for window in drawn.run.windows], axis=1)
    edges = drawn.plan.month_edges_h
    peak = np.concatenate([w.facility_kw for w in drawn.run.windows])
    for month, (first, last) in enumerate(itertools.pairwise(edges)):
        share = energy[:, first:last].sum(axis=1) / energy[:, first:last].sum()
        expected = peak[first:last].max() * 14 * share
        np.testing.assert_allclose(
            charged[["h200", "mi325x"]].to_numpy()[month], expected, atol=0.02
        )
        assert abs(share[0] - 4 / 7) > 0.01 < abs(share[0] - 0.5)


def test_what_is_needed_is_the_highest_hour_of_what_is_at_work_and_refused(
    result: RunResult,
) -> None:
    """Held against the hourly table: at work · (served + shed) / served, of each month's hours and of the month."""
    monthly = result.timeline_monthly().set_index("month")
    hourly = result.timeline_hourly()
    busy = hourly.utilisation_fraction * hourly.accelerators_in_service
    assert (result.rented.requests == 0).all()
    needed = (
        busy * (1 + hourly.shed_tokens / hourly.served_tokens.where(hourly.served_tokens > 0))
    ).groupby(hourly.time.str[:7])
    assert monthly.peak_accelerators_needed.tolist() == pytest.approx(needed.max().tolist())
    sums = pd.DataFrame(
        {"busy": busy, "served": hourly.served_tokens, "shed": hourly.shed_tokens}
    ).groupby(hourly.time.str[:7])
    mean = sums.busy.mean() * (1 + sums.shed.sum() / sums.served.sum())
    assert monthly.accelerators_needed.tolist() == pytest.approx(mean.tolist())
    assert monthly.facility_power_cap_kw.isna().all()
    capped = simulate(scenario_of({"site": {"facility_power_cap_kw": 50, "curtailments": [
        {"date": "2026-02-03", "length_days": 2, "cut_fraction": 0.5}]}}))  # fmt: skip
    assert capped.timeline_monthly().facility_power_cap_kw.unique().tolist() == [50.0]


def test_machine_time_is_that_of_the_layouts_that_served() -> None:
    """Batch work uses what idles of other models' layouts, slower than in its own: its hours fill what is at work."""
    quiet = [
        "software.incident_multiplier=0",
        "software.software_speedup_multiplier=0",
        "horizon_months=1",
    ]
    pool = [
        "clusters.mi325x=null",
        "clusters.b200=null",
        "clusters.b200-2027=null",
        "clusters.h200.nodes=40",
    ]
    # So few that no hour is overloaded: what is served late beyond capacity takes no more hours at work.
    rates = {"chat": 150, "code-completion": 250, "long-context": 10, "overnight-batch": 300}
    traffic = [f"workloads.{name}.requests_per_s={rate}" for name, rate in rates.items()]
    traffic.append("workloads.long-context.model=llama-3.1-70b")
    result = simulate(load_scenario("scenarios/mixed-fleet.yaml", [*quiet, *pool, *traffic]))
    assert (
        sum(
            slower.sum()
            for window in result.run.windows
            for slower in window.slower_requests.values()
        )
        > 1e6
    )
    taken = machine_time(result).sum(axis=2)
    np.testing.assert_allclose(taken, result.monthly.busy_node_h, rtol=1e-6)
    hours = result.timeline_workloads()["accelerator_h"].sum()
    assert hours == pytest.approx(result.monthly.busy_node_h.sum() * 8)
