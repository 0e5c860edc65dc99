"""Idle nodes parked without a cap: by hand, against a loop of its own, and what holds for any fleet."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.answers.assumptions import assumptions
from planner.engine.hourly import WindowResult
from planner.engine.window import evaluate_window
from planner.errors import ScenarioError
from planner.finance.ledger import Account
from planner.plan.parts import IdlePowerDownPlan
from planner.plan.plan import LOAD_CELLS, MOST_LOAD, Plan
from planner.run.simulate import run_engine, simulate
from tests.engine.plans import cluster_plan, make_plan, workload_plan
from tests.engine.test_window import Recipe, built, sites, window_of
from tests.engine.worlds import QUIET, assert_same_months, plan_of, scenario_of

Floats = NDArray[np.float64]
HALF_HOUR = IdlePowerDownPlan(headroom_fraction=0.25, wake_h=0.5, parked_kw=0.1, wake_usd=2.0)


def parked(plan: Plan, idle_power_down: IdlePowerDownPlan | None) -> Plan:
    return dataclasses.replace(plan, site=dataclasses.replace(plan.site, idle_power_down=idle_power_down))


def by_hand(
    plan: Plan, used: Floats, nodes: Floats, idle_power_down: IdlePowerDownPlan
) -> tuple[Floats, Floats, Floats]:
    """Nodes on, woken, and IT power of the first cluster, hour by hour in a plain loop."""
    kw = plan.clusters[0].node_power.node_kw
    on_before, parked_before, rows = float(nodes[0]), 0.0, []
    for work, there in zip(used.tolist(), nodes.tolist(), strict=True):
        on = min(max(float(np.ceil(work * (1.0 + idle_power_down.headroom_fraction) - 1e-9)), 1.0), there)
        everything = there * float(kw(np.array([work / there]))[0])
        some = on * float(kw(np.array([work / on]))[0]) + (there - on) * idle_power_down.parked_kw
        if some >= everything:
            on, some = there, everything
        woken = min(max(on - on_before, 0.0), parked_before)
        rows.append((on, woken, some))
        on_before, parked_before = on, there - on
    on_nodes, woken_nodes, power = np.array(rows).T
    return on_nodes, woken_nodes, power


def test_nodes_are_parked_woken_and_draw_as_by_hand() -> None:
    """Twelve nodes, some of them broken at times, and work that comes and goes for a hundred hours."""
    random = np.random.default_rng(3)
    plan = parked(make_plan([cluster_plan(nodes=12)]), HALF_HOUR)
    nodes = np.where(random.random(100) < 0.2, 9.5, 12.0)
    work = np.clip(6.0 + 5.0 * np.sin(np.arange(100) / 4.0) + random.normal(0.0, 0.5, 100), 0.0, nodes)
    result = evaluate_window(plan, window_of(plan, work[None] * 3600.0, nodes[None]))
    on, woken, power = by_hand(plan, work, nodes, HALF_HOUR)
    assert woken.sum() > 20
    assert result.woken_nodes is not None
    assert result.awake_after is not None
    np.testing.assert_allclose(result.woken_nodes[0], woken, atol=1e-9)
    np.testing.assert_allclose(result.it_kw[0], power, rtol=1e-3)  # power is read from a table
    np.testing.assert_allclose(result.awake_after[:, 0], [on[-1], nodes[-1] - on[-1]])
    site = plan.site
    facility = result.it_kw[0] + 0.3 * (site.fixed_fraction * site.rated_kw + 0.7 * result.it_kw[0])
    np.testing.assert_allclose(result.facility_kw, facility)


def test_one_node_stays_on_wherever_something_can_be_served() -> None:
    """Each of two clusters serves one of two workloads, and nobody asks."""
    plan = make_plan([cluster_plan("a"), cluster_plan("b")], [workload_plan("x", [0]), workload_plan("y", [1])])
    rates = np.array([[[3600.0], [0.0]], [[0.0], [3600.0]]])
    plan = parked(dataclasses.replace(plan, requests_per_node_h=rates), HALF_HOUR)
    result = evaluate_window(plan, window_of(plan, np.zeros((2, 2)), np.full((2, 2), 10.0)))
    assert result.awake_after is not None
    assert result.awake_after.tolist() == [[1.0, 1.0], [9.0, 9.0]]


def with_refusals(plan: Plan) -> Plan:
    """The plan with tables by which a cluster serves just what it can: 1 − 1/load is refused."""
    load = np.linspace(0.0, MOST_LOAD, LOAD_CELLS + 1)
    share = np.where(load > 1.0, 1.0 - 1.0 / np.maximum(load, 1.0), 0.0)
    return dataclasses.replace(plan, refused_tables=np.broadcast_to(share, plan.refused_tables.shape).copy())


def figures_with(recipe: Recipe, idle_power_down: IdlePowerDownPlan | None) -> tuple[Plan, WindowResult]:
    plan, window = built(recipe)
    plan = parked(with_refusals(plan), idle_power_down)
    return plan, evaluate_window(plan, window)


def test_a_jump_finds_half_of_the_woken_nodes_awake() -> None:
    """From two at work, with three on, to ten of twelve: nine wake for half an hour, 7.5 serve, 2.5 are refused."""
    plan = parked(with_refusals(make_plan([cluster_plan(nodes=12)])), HALF_HOUR)
    window = window_of(plan, np.array([[2.0, 10.0, 10.0]]) * 3600.0, np.full((1, 3), 12.0))
    result = evaluate_window(plan, window)
    assert result.shed_requests[0] / 3600.0 == pytest.approx([0.0, 2.5, 0.0], abs=0.01)
    assert result.busy_nodes[0] == pytest.approx([2.0, 7.5, 10.0], abs=0.01)


policies = st.builds(
    IdlePowerDownPlan,
    headroom_fraction=st.sampled_from((0.0, 0.25, 1.0)),
    wake_h=st.sampled_from((0.0, 0.1, 0.5)),
    parked_kw=st.sampled_from((0.0, 0.5, 5.0)),
    wake_usd=st.just(0.0),
)


def holds_for_any_fleet(recipe: Recipe, idle_power_down: IdlePowerDownPlan) -> None:
    """No hour draws more than with all nodes on, and none serves less than the nodes that wake in it could."""
    plan, plain = figures_with(recipe, None)
    _, saving = figures_with(recipe, idle_power_down)
    assert (saving.it_kw.sum(axis=0) <= plain.it_kw.sum(axis=0) * (1.0 + 1e-9) + 1e-9).all()
    assert saving.woken_nodes is not None
    fastest = 1.2 * plan.requests_per_node_h.max(axis=(1, 2))  # software is at most a fifth faster
    lost = (saving.shed_requests - plain.shed_requests).sum(axis=0)
    cells = (
        2e-3 * plain.demand_requests.sum(axis=0) if idle_power_down.wake_h else 0.0
    )  # tables are read between their cells
    assert (lost <= idle_power_down.wake_h * fastest @ saving.woken_nodes + cells + 1e-6).all()


@settings(max_examples=15, deadline=None)
@given(sites(capped=False), policies)
def test_parking_never_draws_more_nor_serves_less_but_for_waking(
    recipe: Recipe, idle_power_down: IdlePowerDownPlan
) -> None:
    holds_for_any_fleet(recipe, idle_power_down)


@pytest.mark.prove
@settings(max_examples=2000, deadline=None)
@given(sites(capped=False), policies)
def test_parking_holds_for_thousands_of_fleets(recipe: Recipe, idle_power_down: IdlePowerDownPlan) -> None:
    holds_for_any_fleet(recipe, idle_power_down)


@settings(max_examples=10, deadline=None)
@given(sites(capped=True), policies)
def test_a_cap_is_not_passed_with_nodes_parked(recipe: Recipe, idle_power_down: IdlePowerDownPlan) -> None:
    plan, result = figures_with(recipe, idle_power_down)
    assert plan.site.cap_kw is not None
    bare = plan.site.overhead_ratio * plan.site.fixed_fraction * plan.site.rated_kw  # cooling that nothing can lower
    limit = np.maximum(plan.site.cap_kw, bare)[: result.facility_kw.size]
    assert (result.facility_kw <= limit * (1.0 + 1e-6) + 1e-6).all()


def test_windows_of_evaluation_change_nothing() -> None:
    traffic = {"clusters": {"h200": {"nodes": 30}}, "workloads": {"chat": {"requests_per_s": 3000}}}
    plan = plan_of(traffic, {"site": {"idle_power_down": {"headroom_fraction": 0.1, "wake_h": 0.5}}})
    (_, once), (_, daily) = (run_engine(plan, 2, window_h=window_h) for window_h in (None, 24))
    assert once.woken_nodes.sum() > 10
    assert_same_months(once, daily)


def test_a_wake_costs_what_is_stated_and_energy_falls() -> None:
    changes: dict[str, Any] = {"clusters": {"h200": {"nodes": 30}}, "workloads": {"chat": {"requests_per_s": 2000}}}
    plain = simulate(scenario_of(QUIET, changes))
    saving = simulate(scenario_of(QUIET, changes, {"site": {"idle_power_down": {"wake_usd": 3.0}}}))
    woken = saving.monthly.woken_nodes.sum()
    assert woken > 0
    assert saving.monthly.it_kwh.sum() < 0.8 * plain.monthly.it_kwh.sum()
    upkeep = [run.ledger_table().set_index("account").amount_usd[Account.MAINTENANCE].sum() for run in (saving, plain)]
    assert upkeep[0] - upkeep[1] == pytest.approx(3.0 * woken, abs=1.0)


def test_parked_power_is_the_catalogues_and_a_long_wake_is_refused() -> None:
    assert plan_of().site.idle_power_down is None
    stated = scenario_of({"site": {"idle_power_down": {}}})
    assert "catalog.priors.parked_node_power" in assumptions(stated).columns["path"]
    assert plan_of({"site": {"idle_power_down": {}}}).site.idle_power_down == IdlePowerDownPlan(
        headroom_fraction=0.25, wake_h=0.2, parked_kw=0.1, wake_usd=0.0
    )
    with pytest.raises(ScenarioError, match=r"site\.idle_power_down\.wake_h.*less than or equal to 0\.5"):
        scenario_of({"site": {"idle_power_down": {"wake_h": 2}}})
