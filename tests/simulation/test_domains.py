"""Failure domains, maintenance and firmware against what their rates say, by hand."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
import simpy

from planner.results.run import run_engine
from planner.simulation import domains
from planner.simulation.processes import Process, World
from tests.simulation.worlds import QUIET, plan_of

Steps = Generator[simpy.Event, Any, None]


def racks(world: World) -> Steps:
    return domains.failures_of(world, "rack", nodes=2, per_year=40.0, repair_h=5.0)


def test_a_domain_takes_its_nodes_together_at_its_rate() -> None:
    """2 + 2 racks of two nodes (one of three has a rack of one): 40 a rack and year for a sixth of one, |z| < 4."""
    plan = plan_of(QUIET, {"reliability": {"repair_crews": 100}})
    counts = []
    for seed in range(12):
        run, _ = run_engine(plan, seed, processes=[racks])
        starts = {(o.cluster, o.start_h): 0 for o in run.shop.outages()}
        for outage in run.shop.outages():
            starts[outage.cluster, outage.start_h] += 1
            assert outage.cause == "rack"
            assert outage.end_h - outage.start_h < 5.0 + 1e-9  # less where a rack fails that is down already
        assert set(starts.values()) == {1, 2}
        counts.append(len(starts))
    expected = 4 * 40.0 * plan.hours / 8766.0
    assert abs(np.mean(counts) - expected) < 4 * np.sqrt(expected / 12), (np.mean(counts), expected)


def weekly(world: World) -> Steps:
    return domains.rounds(world, "firmware", every_h=168.0, length_h=3.0)


def test_a_rollout_drains_every_node_once_and_never_more_than_the_reserve() -> None:
    """59 days have eight rounds of 4 + 3 nodes for three hours; with failures about, nodes wait for one another."""
    quiet = plan_of(QUIET)
    _, monthly = run_engine(quiet, 1, processes=[weekly])
    assert monthly.failed_node_h.sum(axis=0) == pytest.approx([8 * 4 * 3.0, 8 * 3 * 3.0])
    run, _ = run_engine(plan_of(), 1, processes=[weekly])
    outages = run.shop.outages()
    drained = [o for o in outages if o.cause == "firmware"]
    assert drained
    for planned in drained:
        others = {o.node for o in outages if o.cluster == planned.cluster and o.start_h < planned.start_h < o.end_h}
        assert not others - {planned.node}


def often(world: World) -> Steps:
    return domains.windows(world, per_node_week=0.1, length_h=2.0)


def test_windows_drain_as_many_nodes_as_their_rate_says() -> None:
    """Eight windows, a tenth of seven nodes each: 5.6 nodes of two hours in a mean of 20 seeds, |z| < 4."""
    plan = plan_of(QUIET)
    lost = [run_engine(plan, seed, processes=[often])[1].failed_node_h.sum() / 2.0 for seed in range(20)]
    assert abs(np.mean(lost) - 5.6) < 4 * np.sqrt(5.6 / 20), lost


@pytest.mark.parametrize(
    "process",
    [
        domains.rack_failures,
        domains.switch_failures,
        domains.power_feed_failures,
        domains.cooling_loop_failures,
        domains.maintenance_windows,
        domains.firmware_rollout,
    ],
)
def test_the_shipped_figures_cost_little_and_something(process: Process) -> None:
    plan = plan_of(QUIET, {"horizon_months": 24, "clusters": {"h200": {"nodes": 200}}, "workloads": {"nightly": None}})
    _, monthly = run_engine(plan, 2, processes=[process])
    share = monthly.failed_node_h.sum() / monthly.present_node_h.sum()
    assert share < 0.003
    if process not in (domains.power_feed_failures, domains.cooling_loop_failures):  # one in two such runs has none
        assert share > 0.0
