"""What must hold in every run, over random scenarios."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.engine.monthly import Monthly
from planner.finance.accounts import ACCOUNT_ORDER, Account
from planner.finance.ledger import Dimension
from planner.plan.site import facility_kw
from planner.run.simulate import RunResult, run_engine, simulate
from tests.engine.worlds import (
    BASE,
    QUIET,
    assert_same_months,
    merged,
    plan_of,
    scenario_from,
    scenario_of,
)

FEW = settings().max_examples // 2
"""Of the examples of the profile: each is a run or two."""
ORDER = {"placed": "2025-12-01", "lead_weeks": 5, "slip_weeks": {"low": 0, "base": 1, "high": 3}}


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """A change of the base scenario: sizes, rates, routing, power, supply, review."""
    change: dict[str, Any] = {
        "seed": draw(st.integers(0, 1000)),
        "horizon_months": draw(st.integers(1, 3)),
        "start": draw(st.sampled_from(["2026-01-01", "2026-02-14"])),
        "routing": draw(st.sampled_from(["cheapest-marginal", "proportional"])),
        "workloads": {
            "chat": {"requests_per_s": draw(st.sampled_from([0, 100, 2000]))},
            "nightly": {
                "requests_per_s": draw(st.sampled_from([0, 10, 200])),
                "completion_window_h": draw(st.sampled_from([1, 12, 100])),
            },
        },
        "clusters": {
            "h200": {
                "nodes": draw(st.integers(0, 6)),
                "retire": draw(st.sampled_from([None, "2026-03-02"])),
            },
            "mi325x": {
                "nodes": draw(st.integers(0, 6)),
                "order": draw(st.sampled_from([None, ORDER])),
            },
        },
        "reliability": {
            "failure_multiplier": draw(st.sampled_from([0, 5, 200])),
            "repair_crews": draw(st.integers(1, 3)),
            "spare_fraction": draw(st.sampled_from([0, 0.3])),
            "failure_domains": draw(st.sampled_from([{}, {"rack": {"failures_per_year": 20}}])),
        },
        "software": {
            "incident_multiplier": draw(st.sampled_from([0, 10])),
            "accuracy_regression_response": draw(
                st.sampled_from(["roll-back", "higher_precision"])
            ),
            "upgrade_policy": draw(st.sampled_from(["latest", "staged", "pinned"])),
        },
        "site": {"outages_per_year": draw(st.sampled_from([0, 50]))},
    }
    if draw(st.booleans()):
        change["site"]["curtailments"] = [
            {"date": "2026-01-10", "length_days": 9, "cut_fraction": 0.6}
        ]
    if draw(st.booleans()):
        rule = {
            "when": "utilisation_above",
            "threshold_fraction": 0.1,
            "months": 1,
            "lead_weeks": 1,
        }
        change["expansion"] = {
            "rules": [{**rule, "cluster": "h200", "nodes": 2, "cooldown_months": 0}]
        }
    return change


def tokens_add_up(result: RunResult) -> None:
    demand = result.monthly.demand_requests.sum(axis=0)
    served = result.monthly.served_requests.sum(axis=(0, 1))
    shed = result.monthly.shed_requests.sum(axis=0)
    waiting = np.array([row.sum() for row in result.run.windows[-1].waiting_requests])
    np.testing.assert_allclose(served + shed + waiting, demand, rtol=1e-9, atol=1e-3)


def machines_add_up(result: RunResult) -> None:
    """In service = delivered − failed + repaired − retired, at the end of every window's last hour."""
    for window, machines in zip(result.run.windows, result.run.node_hours, strict=True):
        np.testing.assert_allclose(
            machines.present - machines.failed - machines.dark,
            machines.healthy,
            atol=1e-9,
            rtol=1e-12,
        )
        assert machines.healthy.min() >= -1e-9
        last = window.first_hour + window.nodes.shape[1]
        for index, cluster in enumerate(result.plan.clusters):
            changes = [c for c in result.run.log.changes if c.cluster == index]
            if any(last - 1 < change.time_h <= last for change in changes):
                continue  # the last hour is a mean over a change
            present = sum(change.accelerators for change in changes if change.time_h < last)
            assert machines.present[index, -1] * cluster.accelerators_per_node == pytest.approx(
                present, abs=1e-6
            )


def energy_adds_up(result: RunResult) -> None:
    for window in result.run.windows:
        np.testing.assert_allclose(
            window.facility_kw,
            facility_kw(result.plan, window.it_kw.sum(axis=0), slice_of(window)),
            rtol=1e-12,
        )
    kwh = sum(window.facility_kw.sum() for window in result.run.windows)
    assert result.monthly.facility_kwh.sum() == pytest.approx(kwh, rel=1e-9)


def slice_of(window: Any) -> slice:
    return slice(window.first_hour, window.first_hour + window.nodes.shape[1])


def capacity_adds_up(monthly: Monthly) -> None:
    parts = list(monthly.fates_node_h.values())
    np.testing.assert_allclose(sum(parts), monthly.present_node_h, rtol=1e-9, atol=1e-6)
    assert all(part.min() >= -1e-9 for part in parts)
    assert np.all(monthly.drag_node_h <= monthly.busy_node_h + 1e-9)


@settings(max_examples=FEW)
@given(worlds())
def test_everything_adds_up(change: dict[str, Any]) -> None:
    result = simulate(scenario_of(change))
    tokens_add_up(result)
    machines_add_up(result)
    energy_adds_up(result)
    capacity_adds_up(result.monthly)
    losses = result.losses()
    whole = losses["present_node_h"]
    split = losses[
        [name for name in losses.columns if name.endswith("_node_h") and name != "present_node_h"]
    ]
    np.testing.assert_allclose(split.sum(axis=1), whole, rtol=1e-9, atol=1e-6)
    assert (result.events()["duration_h"] >= 0).all()


@settings(max_examples=FEW)
@given(worlds(), st.sampled_from([24, 100, 337, 744]))
def test_results_do_not_depend_on_the_window(change: dict[str, Any], window_h: int) -> None:
    plan = plan_of(change)
    _, whole = run_engine(plan, plan.seed)
    _, pieces = run_engine(plan, plan.seed, window_h=window_h)
    assert_same_months(pieces, whole)


def by_name(result: RunResult) -> dict[tuple[str, str], Any]:
    """Monthly figures under the names of clusters and workloads."""
    plan = result.plan
    monthly = result.monthly
    figures: dict[tuple[str, str], Any] = {}
    for c, cluster in enumerate(plan.clusters):
        for name in ("present", "failed", "busy", "drag", "throttled"):
            figures[cluster.name, name] = getattr(monthly, f"{name}_node_h")[:, c]
        figures[cluster.name, "kwh"] = monthly.facility_kwh[:, c]
        for w, workload in enumerate(plan.workloads):
            figures[cluster.name, workload.name] = monthly.served_requests[:, c, w]
    for w, workload in enumerate(plan.workloads):
        figures[workload.name, "shed"] = monthly.shed_requests[:, w]
        figures[workload.name, "late"] = monthly.late_requests[:, w]
    return figures


def turned(change: dict[str, Any]) -> dict[str, Any]:
    """The same scenario with clusters and workloads in the opposite order."""
    whole = merged(BASE, change)
    return whole | {key: dict(reversed(whole[key].items())) for key in ("clusters", "workloads")}


@settings(max_examples=FEW)
@given(worlds())
def test_the_order_in_the_file_does_not_matter(change: dict[str, Any]) -> None:
    one = by_name(simulate(scenario_of(change)))
    other = by_name(simulate(scenario_from(turned(change))))
    assert one.keys() == other.keys()
    for key, figures in one.items():
        np.testing.assert_allclose(other[key], figures, rtol=1e-7, atol=1e-6, err_msg=str(key))


def test_two_orders_at_once_do_not_depend_on_the_file_either() -> None:
    """Both clusters want the same crew and the same power block on the same day."""
    order = {
        "placed": "2026-01-01",
        "lead_weeks": 1,
        "slip_weeks": {"low": 0, "base": 0, "high": 0},
    }
    change = {
        "clusters": {"h200": {"order": order}, "mi325x": {"order": order}},
        "site": {"power_blocks": [{"date": "2026-01-01", "it_kw": 40.0}], "commissioning_crews": 1},
    }
    one = simulate(scenario_of(change))
    other = simulate(scenario_from(turned(change)))
    for key, figures in by_name(one).items():
        np.testing.assert_allclose(
            by_name(other)[key], figures, rtol=1e-7, atol=1e-6, err_msg=str(key)
        )


def test_without_demand_only_fixed_cost_is_left() -> None:
    still = {"workloads": {"chat": {"requests_per_s": 0}, "nightly": {"requests_per_s": 0}}}
    result = simulate(scenario_of(QUIET, still))
    assert result.monthly.served_requests.sum() == 0.0
    assert result.monthly.busy_node_h.sum() == 0.0
    idle = sum(c.nodes * c.node_power.idle_kw for c in result.plan.clusters)
    assert result.monthly.it_kwh.sum() == pytest.approx(idle * result.plan.hours, rel=1e-9)
    busy = simulate(scenario_of(QUIET))
    accounts = [(str(a), a) for a in Account]
    for name, account in accounts:
        if account in {Account.ENERGY, Account.COOLING}:
            continue
        amounts = [amount_of(r, account) for r in (result, busy)]
        assert amounts[0] == amounts[1], (
            name
        )  # what does not depend on use is the same with and without it
    assert amount_of(result, Account.ENERGY) < amount_of(busy, Account.ENERGY)


def amount_of(result: RunResult, account: Account) -> int:
    book = result.ledger
    chosen = book.account_code == ACCOUNT_ORDER.index(account)
    return int(np.abs(book.amount_cents[chosen]).sum())


def test_without_failures_and_incidents_the_run_is_the_closed_form() -> None:
    """One cluster, one steady workload that fits: served = demand, busy = demand / rate, energy = power × hours."""
    steady = {
        "workloads": {
            "chat": {
                "load_profile": {"weekly_profile": [1.0] * 168},
                "noise": {"sigma": 0.0},
            },
            "nightly": None,
        },
        "clusters": {"mi325x": None},
    }
    result = simulate(scenario_of(QUIET, steady))
    plan, monthly, hours = result.plan, result.monthly, result.plan.hours
    demand = 300.0 * 3600.0
    assert monthly.served_requests.sum() == pytest.approx(demand * hours, rel=1e-9)
    busy = demand / plan.requests_per_node_h[0, 0, 0]
    assert monthly.busy_node_h.sum() == pytest.approx(busy * hours, rel=1e-9)
    node_kw = float(plan.clusters[0].node_power.node_kw(np.array([busy / 4]))[0])
    assert monthly.it_kwh.sum() == pytest.approx(4 * node_kw * hours, rel=1e-9)
    rated = 4 * plan.clusters[0].node_power.full_kw
    overhead = 0.3 * (0.3 * rated + 0.7 * 4 * node_kw)
    expected = 4 * node_kw * hours + overhead * float(plan.site.overhead_ratio.sum()) / 0.3
    assert monthly.facility_kwh.sum() == pytest.approx(expected, rel=1e-9)
    assert result.ledger.totals_cents(Dimension.CLUSTER).sum() != 0
