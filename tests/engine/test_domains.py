"""Failure domains, maintenance and firmware as stated, against closed forms and a model of their own."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

import planner
from planner.answers.assumptions import assumptions
from planner.engine import processes
from planner.engine.log import Outage
from planner.engine.processes import SimulationContext
from planner.errors import ScenarioError
from planner.plan.reliability import DomainPlan, PlannedWork
from planner.run.simulate import run_engine
from planner.scenario.loading import load_scenario
from planner.scenario.study import load_study
from tests.conftest import csv_rows
from tests.engine.worlds import QUIET, plan_of, scenario_of

YEAR_H = 8766.0
MANY_CREWS = {"reliability": {"repair_crews": 100}}


def stated(**reliability: Any) -> dict[str, Any]:
    """A change of the reliability section."""
    return {"reliability": reliability}


def apart(outages: Iterable[Outage]) -> dict[tuple[int, float], list[Outage]]:
    """Outages that begin together in a cluster."""
    found: dict[tuple[int, float], list[Outage]] = {}
    for outage in outages:
        found.setdefault((outage.cluster, outage.start_h), []).append(outage)
    return found


def test_a_domain_takes_its_nodes_together_at_its_rate() -> None:
    """2 + 2 racks of two nodes (one of three has a rack of one): 40 a rack and year for a sixth of one, |z| < 4."""
    rack = {"rack": {"nodes": 2, "failures_per_year": 40, "repair_h": 5}}
    plan = plan_of(QUIET, MANY_CREWS, stated(failure_domains=rack))
    counts = []
    for seed in range(12):
        outages = run_engine(plan, seed)[0].shop.outages()
        assert {outage.cause for outage in outages} == {"rack"}
        assert all(
            min(o.end_h, plan.hours) - o.start_h < 5.0 + 1e-9 for o in outages
        )  # less where a rack fails that is down already
        together = apart(outages)
        assert {len(group) for group in together.values()} == {1, 2}
        counts.append(len(together))
    expected = 4 * 40.0 * plan.hours / YEAR_H
    assert abs(np.mean(counts) - expected) < 4 * np.sqrt(expected / 12), (np.mean(counts), expected)


def busy_share(rate_per_h: float, repair_h: float) -> float:
    """Share of time in which an M/G/∞ queue is not empty, 1 − exp(−λ·E[S]): a domain may fail while down."""
    return 1.0 - float(np.exp(-rate_per_h * repair_h))


def alternating(
    rate_per_h: float, repair_h: float, crews: int, racks: int, hours: float, seed: int
) -> float:
    """Rack-hours down by a SimPy model of its own: racks that fail at their rate, down or not, and wait for crews."""
    env = simpy.Environment()
    random = np.random.default_rng(seed)
    pool = simpy.Resource(env, crews)
    down = [0] * racks
    lost = 0.0
    since = [0.0] * racks

    def mend(rack: int) -> Any:
        nonlocal lost
        if not down[rack]:
            since[rack] = env.now
        down[rack] += 1
        with pool.request() as turn:
            yield turn
            yield env.timeout(repair_h)
        down[rack] -= 1
        if not down[rack]:
            lost += env.now - since[rack]

    def fail(rack: int) -> Any:
        while True:
            yield env.timeout(random.exponential(1.0 / rate_per_h))
            env.process(mend(rack))

    for rack in range(racks):
        env.process(fail(rack))
    env.run(hours)
    return lost + sum(hours - since[rack] for rack in range(racks) if down[rack])


def down_shares(crews: int, seeds: Sequence[int], per_year: float, repair_h: float) -> list[float]:
    """Share of node-hours down in runs of six months with racks of two nodes and so many crews."""
    domain = {"rack": {"nodes": 2, "failures_per_year": per_year, "repair_h": repair_h}}
    sizes = {"clusters": {"h200": {"nodes": 8}, "mi325x": {"nodes": 4}}, "horizon_months": 6}
    plan = plan_of(QUIET, sizes, stated(failure_domains=domain, repair_crews=crews))
    found = []
    for seed in seeds:
        _, monthly = run_engine(plan, seed)
        found.append(float(monthly.failed_node_h.sum() / monthly.present_node_h.sum()))
    return found


def holds_against_both(seeds: int, models: int) -> None:
    """Availability of six racks: with crews enough the closed form, with one the model of its own; |z| < 4."""
    per_year = 120.0
    repair_h = 12.0
    hours = 181 * 24.0
    free = down_shares(50, range(1, seeds + 1), per_year, repair_h)
    error = np.std(free) / np.sqrt(seeds)
    assert abs(np.mean(free) - busy_share(per_year / YEAR_H, repair_h)) < 4 * error, (
        np.mean(free),
        error,
    )
    short = down_shares(1, range(1, seeds + 1), per_year, repair_h)
    model = [
        alternating(per_year / YEAR_H, repair_h, 1, 6, hours, seed) / (6 * hours)
        for seed in range(models)
    ]
    error = np.hypot(np.std(short) / np.sqrt(seeds), np.std(model) / np.sqrt(models))
    assert abs(np.mean(short) - np.mean(model)) < 4 * error, (np.mean(short), np.mean(model), error)
    assert np.mean(short) > 1.5 * np.mean(
        free
    )  # six racks with one crew wait for it: the test can tell them apart


def test_availability_of_racks_is_that_of_theory() -> None:
    holds_against_both(12, 60)


@pytest.mark.prove
def test_availability_of_racks_is_that_of_theory_over_hundreds_of_seeds() -> None:
    holds_against_both(300, 1000)


def test_a_rollout_drains_every_node_once_and_never_more_than_the_reserve() -> None:
    """59 days have eight weekly rounds of 4 + 3 nodes for three hours; with failures about, nodes wait for them."""
    weekly = stated(firmware={"rollouts_per_year": YEAR_H / 168.0, "length_h": 3})
    run, monthly = run_engine(plan_of(QUIET, weekly), 1)
    assert monthly.failed_node_h.sum(axis=0) == pytest.approx([8 * 4 * 3.0, 8 * 3 * 3.0])
    assert [note.text for note in run.log.notes] == [
        f"round {n} done after 0.5 days" for n in range(1, 9)
    ]
    outages = run_engine(plan_of(weekly), 1)[0].shop.outages()
    drained = [o for o in outages if o.cause == "firmware"]
    assert drained
    for planned in drained:
        others = {
            o.node
            for o in outages
            if o.cluster == planned.cluster and o.start_h < planned.start_h < o.end_h
        }
        assert not others - {planned.node}


@pytest.mark.parametrize(
    ("reserve", "at_once"),
    [
        ({}, 2),
        ({"reserve_nodes": 1}, 1),
        ({"reserve_fraction": 0.2}, 8),
        ({"reserve_nodes": 5, "reserve_fraction": 0.01}, 5),
    ],
)
def test_the_reserve_is_the_larger_of_a_number_and_a_share(
    reserve: dict[str, Any], at_once: int
) -> None:
    """Of forty nodes, one or 5% by default; a round of forty nodes of three hours takes 40 · 3 / reserve hours."""
    work = stated(firmware={"rollouts_per_year": 12, "length_h": 3}, **reserve)
    run, _ = run_engine(plan_of(QUIET, {"clusters": {"h200": {"nodes": 40}}}, work), 1)
    own = [outage for outage in run.shop.outages() if outage.cluster == 0]
    first = [outage for outage in own if outage.start_h < YEAR_H / 12 + 300]
    edges = sorted([(o.start_h, 1) for o in first] + [(o.end_h, -1) for o in first])
    assert max(itertools.accumulate(step for _, step in edges)) == at_once
    assert max(o.end_h for o in first) - min(o.start_h for o in first) == pytest.approx(
        40 * 3 / at_once
    )


def test_windows_drain_as_many_nodes_as_their_rate_says() -> None:
    """Eight windows, a tenth of seven nodes each: 5.6 nodes of two hours in a mean of 20 seeds, |z| < 4."""
    plan = plan_of(QUIET, stated(maintenance={"per_1000_node_days": 100 / 7, "length_h": 2}))
    lost = [run_engine(plan, seed)[1].failed_node_h.sum() / 2.0 for seed in range(20)]
    assert abs(np.mean(lost) - 5.6) < 4 * np.sqrt(5.6 / 20), lost
    rarely = plan_of(
        QUIET, stated(maintenance={"per_1000_node_days": 100 / 7, "length_h": 2, "every_weeks": 4})
    )
    starts = {
        o.start_h
        for seed in range(5)
        for o in run_engine(rarely, seed)[0].shop.outages()
        if o.node == 0
    }
    assert starts <= {672.0, 1344.0} | {
        time_h + 2.0 * n for time_h in (672.0, 1344.0) for n in range(7)
    }


def test_domains_that_remain_when_nodes_retire_still_fail() -> None:
    """Four of eight nodes leave after a month: the rack of the others, with the higher numbers, goes on failing."""

    def retiring(world: SimulationContext) -> Any:
        yield world.timeout(31 * 24.0)
        world.retire("h200", 4)

    rack = {"rack": {"nodes": 4, "failures_per_year": 500, "repair_h": 1}}
    plan = plan_of(
        QUIET, {"clusters": {"h200": {"nodes": 8}}}, stated(failure_domains=rack, repair_crews=50)
    )
    run, _ = run_engine(plan, 1, processes=[retiring])
    later = {
        outage.node
        for outage in run.shop.outages()
        if outage.cluster == 0 and outage.start_h > 32 * 24.0
    }
    assert later == {4, 5, 6, 7}


def pdu(world: SimulationContext) -> Any:
    return processes.failures_of(
        world, DomainPlan(name="pdu", nodes=2, per_year=40.0, repair_h=5.0)
    )


def test_a_process_of_ones_own_may_call_them() -> None:
    run, _ = run_engine(plan_of(QUIET), 1, processes=[pdu])
    assert {outage.cause for outage in run.shop.outages()} == {"pdu"}


def test_the_catalogue_stands_for_what_is_left_open() -> None:
    both = stated(
        failure_domains={"rack": {}, "switch": {"repair_h": 2}}, maintenance={}, firmware={}
    )
    plan = plan_of(both).reliability
    assert plan.domains[0] == DomainPlan(name="rack", nodes=4, per_year=0.03, repair_h=8.0)
    assert plan.domains[1] == DomainPlan(name="switch", nodes=8, per_year=0.05, repair_h=2.0)
    assert plan.firmware == PlannedWork(every_h=YEAR_H / 3, length_h=1.5)
    assert plan.maintenance is not None
    assert plan.maintenance.nodes_fraction == pytest.approx(0.43 / 1000 * 7)
    assert (plan.reserve(7), plan.reserve(40), plan.reserve(41)) == (1, 2, 3)
    columns = assumptions(scenario_of(both)).columns
    rows = {path: row for path, *row in zip(*columns.values(), strict=True)}
    assert rows["catalog.priors.rack_failure_rate"][-1] == "D"
    assert rows["catalog.priors.switch_failure_rate"][-1] == "B"
    assert "catalog.priors.spare_pool" in rows
    assert "catalog.priors.switch_repair" not in rows  # stated


def test_a_domain_that_nobody_knows_states_its_figures(tmp_path: Path, tiny: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario_of(stated(failure_domains={"pdu": {"nodes": 12, "repair_h": 5}, "rak": {}}))
    text = str(caught.value)
    assert "reliability.failure_domains.pdu: states no failures_per_year" in text
    assert "rack" in text
    path = tmp_path / "tiny.yaml"
    path.write_text(tiny)
    with pytest.raises(ScenarioError, match=r"reserve_nodes.*greater than or equal to 1"):
        load_scenario(path, ["reliability.reserve_nodes=0"])
    with pytest.raises(ScenarioError, match="every_week"):
        load_scenario(path, ["reliability.maintenance={every_week: 2}"])


def test_figures_left_open_are_drawn_in_a_study(tmp_path: Path, tiny: str) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(tiny)
    study, _ = load_study(
        path, ("reliability.failure_domains={rack: {repair_h: 3}}", "reliability.firmware={}")
    )
    drawn = {key for key in study.uncertain if "domains" in key or "firmware" in key}
    assert drawn == {
        "reliability.failure_domains.rack.failures_per_year",
        "reliability.firmware.rollouts_per_year",
        "reliability.firmware.length_h",
    }


def test_they_show_in_events_and_losses(tmp_path: Path, tiny: str) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(tiny)
    keys = "{failure_domains: {rack: {failures_per_year: 30}}, firmware: {rollouts_per_year: 24}, failure_multiplier: 0}"  # noqa: E501
    planner.run(path, tmp_path / "out", overrides=[f"reliability={keys}"], replications=1)
    rows = csv_rows(tmp_path / "out" / "events.csv")
    kinds = {
        (row["event"], row["cause"])
        for row in rows
        if row["event"] in ("failure", "maintenance", "process")
    }
    assert kinds == {("failure", "rack"), ("maintenance", "firmware"), ("process", "firmware")}
    assert "domain repair, waited" in next(row["detail"] for row in rows if row["cause"] == "rack")
    taken = sum(
        float(row["lost_node_h"]) for row in rows if row["event"] in ("failure", "maintenance")
    )
    lost = csv_rows(tmp_path / "out" / "losses.csv")
    assert taken == pytest.approx(
        sum(float(row["lost_to_failures_node_h"]) for row in lost), rel=1e-4
    )


def test_domains_load_the_crews() -> None:
    """Four nodes that fail ten times a year for 8.766 hours take a hundredth of a crew, each a quarter of it."""
    rack = {"rack": {"nodes": 4, "failures_per_year": 10, "repair_h": 8.766}}
    plan = plan_of(QUIET, stated(failure_domains=rack))
    assert plan.crew_load(np.array([100.0, 0.0]), 1) == pytest.approx(0.25)


def test_a_reserve_as_large_as_a_cluster_is_told() -> None:
    warned = plan_of(stated(firmware={}, reserve_nodes=3)).warnings
    assert [text for text in warned if "drain every node of cluster mi325x" in text]
    assert not [
        text
        for text in (*warned, *plan_of(stated(reserve_nodes=3)).warnings)
        if "of cluster h200" in text
    ]
