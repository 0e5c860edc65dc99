"""A run's tables agree with the run and with one another."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from planner.simulation.event_table import tokens_per_node_h
from planner.simulation.result import RunResult
from planner.simulation.run import simulate
from tests.simulation.worlds import scenario_of


@pytest.fixture(scope="module")
def result() -> RunResult:
    order = {"placed": "2026-01-01", "lead_weeks": 1, "slip_weeks": {"low": 0, "base": 0, "high": 0}}
    return simulate(scenario_of({"site": {"outages_per_year": 60}, "clusters": {"mi325x": {"order": order}}}))


def fleet(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["cluster"] == "fleet"]


def test_days_and_hours_sum_to_months(result: RunResult) -> None:
    monthly, daily, hourly = (
        fleet(f()) for f in (result.timeline_monthly, result.timeline_daily, result.timeline_hourly)
    )
    for name in ("demand_tokens", "served_tokens", "shed_tokens", "energy_kwh"):
        assert daily[name].sum() == pytest.approx(monthly[name].sum(), rel=1e-9)
        assert hourly[name].sum() == pytest.approx(monthly[name].sum(), rel=1e-9)
    assert len(hourly) == result.plan.hours
    assert len(daily) == result.plan.hours // 24


def test_clusters_sum_to_the_fleet(result: RunResult) -> None:
    frame = result.timeline_monthly()
    for name in ("served_tokens", "energy_kwh", "cost_usd"):
        parts = frame[frame["cluster"] != "fleet"].groupby("month")[name].sum()
        np.testing.assert_allclose(parts, fleet(frame).set_index("month")[name], rtol=1e-9)


def test_workloads_sum_to_the_fleet(result: RunResult) -> None:
    frame = result.timeline_workloads().groupby("month")[["demand_tokens", "served_tokens", "shed_tokens"]].sum()
    whole = fleet(result.timeline_monthly()).set_index("month")[frame.columns]
    np.testing.assert_allclose(frame, whole, rtol=1e-9)


def test_workloads_share_all_of_the_cost_and_all_machine_time(result: RunResult) -> None:
    frame = result.timeline_workloads().groupby("month")[["cost_usd", "accelerator_h"]].sum()
    months = fleet(result.timeline_monthly()).set_index("month")
    np.testing.assert_allclose(frame["cost_usd"], months["cost_usd"], rtol=1e-9)
    per_node = np.array([cluster.accelerators_per_node for cluster in result.plan.clusters])
    np.testing.assert_allclose(frame["accelerator_h"], (result.monthly.busy_node_h * per_node).sum(axis=1), rtol=1e-9)


def test_the_backlog_closes_the_books_of_each_month(result: RunResult) -> None:
    frame = fleet(result.timeline_monthly())
    change = frame["backlog_tokens"].diff().fillna(frame["backlog_tokens"])
    rest = frame["demand_tokens"] - frame["served_tokens"] - frame["shed_tokens"] - change
    assert np.abs(rest).max() < 1e-9 * frame["demand_tokens"].max()


def test_every_event_is_there_with_what_it_cost(result: RunResult) -> None:
    events = result.events()
    assert events["time"].is_monotonic_increasing
    assert set(events["event"]) == {"delivered", "failure", "software", "outage"}
    failures = events[events["event"] == "failure"]
    inside = [outage for outage in result.run.shop.outages() if outage.start_h < result.plan.hours]
    assert len(failures) == len(inside)
    carried = dict(zip((c.name for c in result.plan.clusters), tokens_per_node_h(result), strict=True))
    expected = failures["duration_h"] * failures["accelerators"] / 8 * failures["cluster"].map(carried)
    np.testing.assert_allclose(failures["lost_capacity_tokens"], expected, rtol=1e-9)
    lost_h = failures["duration_h"] * failures["accelerators"] / 8
    assert lost_h.sum() == pytest.approx(result.monthly.failed_node_h.sum(), rel=1e-6)
    outages = events[events["event"] == "outage"]
    assert len(outages) == len(result.run.log.site) > 0


def test_availability_is_what_the_outages_leave(result: RunResult) -> None:
    frame = result.timeline_monthly()
    own = frame[frame["cluster"] == "h200"]["availability_fraction"].to_numpy()
    failed, present = result.monthly.failed_node_h[:, 0], result.monthly.present_node_h[:, 0]
    np.testing.assert_allclose(own, 1 - failed / present)
    assert 0.3 < own.min() < 1.0
