"""Releases, incidents, bring-ups, and the engineers who deal with them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simpy

import planner
from planner.engine.driver import Simulation
from planner.engine.log import ChangeLog, SpeedChange, streams
from planner.engine.software import IncidentProcess
from planner.errors import ScenarioError
from planner.plan.parts import Headcount, IncidentPlan, MaturityPlan, SoftwarePlan, StepPlan, TeamPlan
from planner.plan.plan import Plan
from planner.run.measures import measures
from planner.run.simulate import run_engine
from planner.scenario.loading import load_scenario
from planner.units import HOURS_PER_YEAR
from tests.engine.plans import (
    certain,
    cluster_plan,
    incident_plans,
    make_plan,
    order_plan,
    software_plan,
    stack_plan,
    workload_plan,
)
from tests.engine.worlds import plan_of

REGRESSION, WRONG_NUMERICS, _ = incident_plans()


def plan_with(months: int = 12, workloads: Any = None, clusters: Any = None, **changes: Any) -> Plan:
    """A plan with one stack; ``changes`` go to the software plan, ``stack`` to the stack."""
    stack = stack_plan(**changes.pop("stack", {}))
    plan = make_plan(clusters, workloads, months=months)
    sizes = (len(plan.clusters), len(plan.workloads))
    return dataclasses.replace(plan, software=software_plan(*sizes, stacks=(stack,), **changes))


def speeds_of(plan: Plan, seed: int = 1) -> list[SpeedChange]:
    run, _ = run_engine(plan, seed)
    return run.log.speeds()


def known_speeds(simulation: Simulation) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return speeds of the whole run, and what incidents take of them."""
    hours = simulation.plan.hours
    simulation.histories.take_up(hours)
    return simulation.histories.speeds(0, hours)


def test_nothing_happens_to_a_quiet_stack() -> None:
    assert speeds_of(plan_with()) == []


COURSE = {"dense": MaturityPlan(gain=certain(0.5), months=certain(6.0))}
CADENCE = {"releases_per_year": 4.0, "release_delay_h": 0.0, "maturity": COURSE}


def levels_of(changes: list[SpeedChange]) -> list[float]:
    """The logarithm of speed after each change."""
    return list(itertools.accumulate(change.log_factor for change in changes))


def test_releases_come_on_their_cadence_and_close_the_gap_to_a_ceiling() -> None:
    """Four a year, each half to one and a half intervals after the last; 50% to gain, half a year's time constant."""
    plan = plan_with(36, stack=CADENCE)
    releases = speeds_of(plan)
    times = np.array([change.time_h for change in releases])
    interval_h = HOURS_PER_YEAR / 4
    assert np.all((np.diff(times) >= 0.5 * interval_h) & (np.diff(times) <= 1.5 * interval_h))
    assert 9 <= len(releases) <= 16
    assert all(change.kind == "release" for change in releases)
    assert levels_of(releases) == pytest.approx(math.log(1.5) * (1 - np.exp(-times / (HOURS_PER_YEAR / 2))))
    simulation = Simulation(plan, streams(1))
    simulation.env.run(until=plan.hours)
    speed, incidents = known_speeds(simulation)
    assert 1.49 < speed[0, 0][-1] < 1.5
    assert incidents == {}


def test_ten_years_of_releases_do_not_pass_the_ceiling_or_the_roofline() -> None:
    """Whatever releases scatter by: the best there will be is the most, and the part's peak before that."""
    for roofline, most in ((10.0, math.log(1.5)), (0.1, 0.1)):
        plan = plan_with(120, stack={**CADENCE, "release_sigma": 0.2}, roofline_log_gain=np.full((1, 1), roofline))
        levels = levels_of(speeds_of(plan))
        assert max(levels) == pytest.approx(most)
        assert min(levels) < most - 0.07  # and poor releases are over with the next
        assert np.mean(levels) > most - 0.25


def test_a_shipped_stack_gains_what_was_seen_and_not_seven_times() -> None:
    """Ten years of the catalogue's course: compounding releases made 7.7 times of it, twice the part's peak."""
    plan = plan_of({"horizon_months": 120, "software": {"incident_multiplier": 0}})
    ends = [
        levels_of([c for c in speeds_of(plan, seed) if (c.cluster, c.workload) == (1, 0)])[-1] for seed in range(40)
    ]
    assert math.exp(max(ends)) < 1.6
    assert -0.1 < np.median(ends) < 0.2
    assert max(ends) <= plan.software.roofline_log_gain[1, 0]


def test_a_release_is_taken_after_its_delay_with_what_was_known_when_it_came_out() -> None:
    soon, late = (speeds_of(plan_with(36, stack={**CADENCE, "release_delay_h": delay})) for delay in (0.0, 1000.0))
    assert [change.time_h + 1000.0 for change in soon][: len(late)] == pytest.approx([c.time_h for c in late])
    assert levels_of(soon)[: len(late)] == pytest.approx(levels_of(late))


def test_an_image_of_a_later_date_has_that_much_less_to_gain() -> None:
    """Half a year, one time constant, ahead of the calibration: in the end both stand at the same ceiling."""
    ahead = math.log(1.5) * (1 - math.exp(-1))
    clock = {"clock_h": (HOURS_PER_YEAR / 2,), "dated_log_gain": np.full((1, 1), ahead)}
    dated = levels_of(speeds_of(plan_with(120, stack=CADENCE, **clock)))
    undated = levels_of(speeds_of(plan_with(120, stack=CADENCE)))
    assert dated[0] > 0.0
    assert dated[-1] + ahead == pytest.approx(undated[-1], abs=1e-6)
    assert all(early + ahead > late for early, late in zip(dated[:4], undated[:4], strict=True))


def test_steps_come_on_their_day_for_their_model_and_stop_at_the_roofline() -> None:
    steps = (
        StepPlan(time_h=100.0, model="", log_gain=math.log(1.2)),
        StepPlan(time_h=200.0, model="other", log_gain=math.log(3.0)),
        StepPlan(time_h=300.0, model="", log_gain=math.log(2.0)),
    )
    stack = {"release_delay_h": 24.0, "steps": steps}
    plan = plan_with(1, stack=stack, roofline_log_gain=np.full((1, 1), math.log(2.0)))
    changes = speeds_of(plan)
    assert [(change.kind, change.time_h) for change in changes] == [("step", 124.0), ("step", 324.0)]
    assert np.exp(levels_of(changes)) == pytest.approx([1.2, 2.0])
    assert speeds_of(plan_with(1, stack={**stack, "release_delay_h": None})) == []  # a pinned image has none


def test_a_new_model_has_more_incidents_that_cease() -> None:
    """Rate λ·(1 + (m − 1)·exp(−t/τ)): over three years λ·(T + (m − 1)·τ·(1 − exp(−T/τ))) of them, |z| < 4."""
    stack = {"incidents": incident_plans(regression=20.0), "maturity": COURSE, "new_model_incident_multiplier": 3.0}
    new = workload_plan("new", months=36, launch_h=0.0)
    counts, early = {}, 0
    for name, load in (("old", workload_plan("old", months=36)), ("new", new)):
        plan = plan_with(36, workloads=[load], stack={**stack, "bring_up_weeks": certain(0.0)}, engineers=1e6)
        begun = [[c.time_h for c in speeds_of(plan, seed) if c.kind == "regression"] for seed in range(10)]
        counts[name] = sum(map(len, begun))
        early = sum(time_h < HOURS_PER_YEAR for times in begun for time_h in times)
    years = plan.hours / HOURS_PER_YEAR
    expected = {"old": 200 * years, "new": 200 * (years + 2 * 0.5 * (1 - math.exp(-2 * years)))}
    for name, count in counts.items():
        assert abs(count - expected[name]) < 4 * math.sqrt(expected[name])
    first = 200 * (1 + 2 * 0.5 * (1 - math.exp(-2)))
    assert abs(early - first) < 4 * math.sqrt(first)


@pytest.mark.parametrize("launch_h", [-2000.0, 4000.0])
def test_a_models_further_incidents_come_from_its_launch_on(launch_h: float) -> None:
    """Rate λ·(m − 1)·exp(−(t − launch)/τ) from the launch, or the first day, to the last: its integral, |z| < 4."""
    stack = {"incidents": incident_plans(regression=40.0), "maturity": COURSE, "new_model_incident_multiplier": 3.0}
    load = workload_plan("new", launch_h=launch_h)
    plan = plan_with(12, workloads=[load], stack={**stack, "bring_up_weeks": certain(0.0)}, engineers=1e6)
    desk = Simulation(plan, streams(1, 0)).desk
    (young,), pairs, draw = plan.software.stacks, ((0, 0),), np.random.default_rng(1)
    times = [time_h for _ in range(50) for time_h in desk._youth(young, pairs, 40.0, draw)]
    tau_h = 0.5 * HOURS_PER_YEAR
    first_h = max(launch_h, 0.0)
    ages = (math.exp(-(at_h - launch_h) / tau_h) for at_h in (first_h, float(plan.hours)))
    begun, ended = ages
    expected = 50 * 40.0 * 2.0 * tau_h / HOURS_PER_YEAR * (begun - ended)
    assert abs(len(times) - expected) < 4 * math.sqrt(expected)
    assert first_h <= min(times) < first_h + 50.0
    assert max(times) < plan.hours


def test_a_pinned_stack_takes_no_releases() -> None:
    assert speeds_of(plan_with(36, stack={"releases_per_year": 4.0, "release_delay_h": None})) == []


@pytest.mark.parametrize("kind", ["regression", "wrong_numerics", "hang"])
def test_incidents_come_at_their_rate(kind: str) -> None:
    """Renewal counts over 30 replications of a year at 20 a year: |z| < 4."""
    plan = plan_with(12, stack={"incidents": incident_plans(**{kind: 20.0})}, engineers=0)
    plan = dataclasses.replace(
        plan, software=dataclasses.replace(plan.software, wide_precision_factor=np.full((1, 1), 0.6))
    )
    counts = [len({change.incident for change in speeds_of(plan, seed)}) for seed in range(30)]
    assert abs(np.mean(counts) - 20 * plan.hours / HOURS_PER_YEAR) < 4 * math.sqrt(20 / 30)


def test_a_regression_slows_until_it_is_fixed() -> None:
    plan = plan_with(12, stack={"incidents": incident_plans(regression=3.0)}, engineers=0)
    changes = speeds_of(plan, 2)
    begun = {change.incident: change for change in changes if change.kind == "regression"}
    fixed = {change.incident: change for change in changes if change.kind == "regression fixed"}
    assert begun
    for number, end in fixed.items():
        assert end.time_h - begun[number].time_h == pytest.approx(5 * 24.0)
        assert end.log_factor == -begun[number].log_factor == pytest.approx(-math.log(0.8))


@pytest.mark.parametrize(
    ("contract", "multiplier", "usd"), [("none", 1.5, 0.0), ("standard", 1.0, 300.0), ("premium", 0.6, 900.0)]
)
def test_a_fix_takes_as_long_and_costs_as_much_as_the_contract_says(
    contract: str, multiplier: float, usd: float
) -> None:
    plans = [
        plan_of({"software": {"support_contract": name, "engineers": 0, "incident_multiplier": 5}})
        for name in (contract, "standard")
    ]
    assert plans[0].software.fix_time_multiplier == multiplier
    assert plans[0].money.upkeep.support_usd_per_accelerator_year == usd

    def lengths(plan: Plan) -> dict[float, float]:
        """Hours from an incident's beginning to its fix, by its beginning."""
        changes = speeds_of(plan, 5)
        begun = {(c.incident, c.cluster, c.workload): c.time_h for c in changes if "fixed" not in c.kind}
        ends = [(begun[c.incident, c.cluster, c.workload], c.time_h) for c in changes if c.kind == "regression fixed"]
        return {begin_h: end_h - begin_h for begin_h, end_h in ends}

    these, usual = (lengths(plan) for plan in plans)
    both = these.keys() & usual.keys()
    assert both
    for begin_h in both:
        assert these[begin_h] == pytest.approx(multiplier * usual[begin_h])


def mended(engineers: int, incidents: list[tuple[float, float, float]]) -> list[float]:
    """Hours after which incidents (time, engineer's hours of work, the vendor's hours) are mended."""
    plan = plan_with(1, engineers=engineers)
    env, log = simpy.Environment(), ChangeLog()
    desk = IncidentProcess(env, plan, log, streams(1), {})
    for time_h, work_h, vendor_h in incidents:
        env.process(desk._incident(plan.software.stacks[0], ((0, 0),), REGRESSION, (time_h, 0.2, work_h, vendor_h)))
    env.run()
    changes = log.speeds()
    begun = {change.incident: change.time_h for change in changes if change.kind == "regression"}
    ends = {change.incident: change.time_h for change in changes if change.kind == "regression fixed"}
    return [ends[number] - begun[number] for number in sorted(begun)]


def test_a_team_mends_one_thing_at_a_time_together() -> None:
    """Forty hours of work are a week for one engineer and half a week for two; three at once queue."""
    three = [(10.0, 40.0, 5000.0)] * 3
    assert mended(1, three) == pytest.approx([168.0, 336.0, 504.0])
    assert mended(2, three) == pytest.approx([84.0, 168.0, 252.0])


def test_the_vendor_mends_what_is_faster_so_and_everything_without_engineers() -> None:
    assert mended(0, [(10.0, 40.0, 120.0)] * 3) == pytest.approx([120.0] * 3)
    # The first is mended by the vendor at 100 h, which frees the engineer for the second from then on; the third is
    # mended by the vendor before it is taken up, and the fourth begins when the second ends.
    queue = [(0.0, 40.0, 100.0), (0.0, 20.0, 500.0), (0.0, 40.0, 150.0), (0.0, 10.0, 5000.0)]
    assert mended(1, queue) == pytest.approx([100.0, 184.0, 150.0, 226.0])


def test_waits_for_engineers_are_those_of_m_g_1() -> None:
    """Pollaczek and Khinchine: W = λ E[S²] / (2 (1 − ρ)), exponential work of a mean of 20 h, two engineers."""
    random = np.random.default_rng(5)
    count, mean_h, rate = 20_000, 20.0 * 168 / 40 / 2, 0.6 / (20.0 * 168 / 40 / 2)
    arrivals = np.cumsum(random.exponential(1 / rate, count))
    work = random.exponential(20.0, count)
    took = mended(2, [(t, w, math.inf) for t, w in zip(arrivals.tolist(), work.tolist(), strict=True)])
    waits = np.array(took) - work * 168 / 40 / 2
    slices = np.array([part.mean() for part in np.array_split(waits, 40)])
    expected = rate * 2 * mean_h**2 / (2 * (1 - 0.6))
    error = slices.std(ddof=1) / math.sqrt(40)
    assert abs(slices.mean() - expected) < 4 * error
    assert error < 0.1 * expected


def rocm_trouble_h(engineers: int) -> tuple[float, list[SpeedChange]]:
    """Hours for which ROCm incidents are open over a year with so many ROCm engineers, and every change of speed."""
    plan = plan_of({"horizon_months": 12, "software": {"engineers": {"amd": engineers}, "incident_multiplier": 4}})
    changes = speeds_of(plan, 3)
    own = [change for change in changes if change.cluster == 1 and change.incident >= 0]
    ends = {(c.incident, c.workload): c.time_h for c in own if c.kind.endswith("fixed")}
    begun = [change for change in own if not change.kind.endswith("fixed")]
    return sum(ends.get((c.incident, c.workload), plan.hours) - c.time_h for c in begun), changes


def test_more_rocm_engineers_lose_less_to_rocm_incidents_and_nothing_else_changes() -> None:
    losses, changes = zip(*(rocm_trouble_h(count) for count in (0, 1, 2, 8)), strict=True)
    assert losses[0] >= losses[1] > losses[2] > losses[3] > 0.0
    cuda = [[change for change in own if change.cluster == 0] for own in changes]
    times = [[(change.time_h, change.kind) for change in own] for own in cuda]
    assert times[0] == times[1] == times[2] == times[3] != []


def test_engineers_grow_with_the_accelerators_on_site() -> None:
    """1 per 400: none at first, two once the hundred nodes of the second cluster are there."""
    clusters = [cluster_plan("a", nodes=20), cluster_plan("b", nodes=100, online_h=300.0)]
    plan = plan_with(1, clusters=clusters)
    team = TeamPlan(name="all", clusters=(0, 1), engineers=Headcount(per_accelerator=1 / 400, rounding="down"))
    plan = dataclasses.replace(plan, software=dataclasses.replace(plan.software, teams=(team,)))
    simulation = Simulation(plan, streams(1))
    desk = simulation.desk
    simulation.env.run(until=200.0)
    assert desk._mended_after_h(plan.software.stacks[0], 40.0, 5000.0) == 5000.0
    simulation.env.run(until=400.0)
    assert desk._mended_after_h(plan.software.stacks[0], 40.0, 5000.0) == pytest.approx(84.0)


def incident_factors(software: SoftwarePlan, incident: IncidentPlan, last_gain: float = 0.0) -> list[float]:
    plan = dataclasses.replace(make_plan(), software=software)
    env, log = simpy.Environment(), ChangeLog()
    desk = IncidentProcess(env, plan, log, streams(1), {})
    desk.releases["cuda-vllm"] = {(0, 0): [(0.0, last_gain), (1.0, 9.0)]}  # the second is still to come
    return list(desk._factors(software.stacks[0], ((0, 0),), incident, 0.3))


def test_wrong_numerics_roll_back_or_widen() -> None:
    rolled_back = incident_factors(software_plan(), WRONG_NUMERICS, last_gain=math.log(1.08))
    assert rolled_back == [pytest.approx(-math.log(1.08))]
    assert incident_factors(software_plan(), WRONG_NUMERICS, last_gain=-0.1) == [0.0]  # nothing to lose
    wide = software_plan(wide_precision_factor=np.full((1, 1), 0.55))
    assert incident_factors(wide, WRONG_NUMERICS) == [pytest.approx(math.log(0.55))]


def test_a_hang_costs_its_fraction_and_never_everything() -> None:
    for stated, kept in ((0.05, 0.95), (1.0, 0.05)):
        software = {"hang_loss_fraction": stated, "incident_multiplier": 50, "engineers": 0}
        hangs = [change for change in speeds_of(plan_of({"software": software})) if change.kind == "hang"]
        assert hangs
        assert all(change.log_factor == pytest.approx(math.log(kept)) for change in hangs)


def test_clusters_on_one_stack_widen_by_their_own_factors() -> None:
    """Two clusters, one stack and model, different precision: the hours must keep them apart."""
    clusters = [cluster_plan("a"), cluster_plan("b")]
    wide = np.array([[0.5], [0.8]])
    plan = plan_with(
        12, clusters=clusters, stack={"incidents": incident_plans(wrong_numerics=6.0)}, wide_precision_factor=wide
    )
    simulation = Simulation(plan, streams(4))
    simulation.env.run(until=plan.hours)
    speed, incidents = known_speeds(simulation)
    assert speed[0, 0].min() < 0.51
    assert 0.6 < speed[1, 0].min() < 0.81
    np.testing.assert_allclose(np.log(speed[1, 0]) / math.log(0.8), np.log(speed[0, 0]) / math.log(0.5), atol=0.2)
    assert incidents[0, 0].lost_fraction.max() > incidents[1, 0].lost_fraction.max()


def test_a_new_model_is_slow_until_it_is_brought_up() -> None:
    """From its launch at hour 100, half the speed, closing over three weeks; the model's other workload is old.

    Four kernels land: after each the gap in log speed is (e^−3s − e^−3)/(1 − e^−3) of what it was.
    """
    loads = [workload_plan("old", months=3), workload_plan("new", months=3, launch_h=100.0)]
    plan = plan_with(3, workloads=loads, engineers=1)
    simulation = Simulation(plan, streams(1))
    simulation.env.run(until=plan.hours)
    speed, _ = known_speeds(simulation)
    assert (0, 0) not in speed
    gaps = [(math.exp(-3 * s) - math.exp(-3)) / (1 - math.exp(-3)) for s in (0.25, 0.5, 0.75)]
    hours = [99, 100, 100 + 125, 100 + 126, 100 + 252, 100 + 378, 100 + 503, 100 + 504]
    expected = [1.0, 0.5, 0.5, *(0.5**gap for gap in gaps), 0.5 ** gaps[2], 1.0]
    assert speed[0, 1][hours] == pytest.approx(expected)


@pytest.mark.parametrize(("launch_h", "left_h"), [(-168.0, 336.0), (-504.0, None), (-9000.0, None)])
def test_a_bring_up_that_began_before_the_start_has_part_of_it_behind(launch_h: float, left_h: float | None) -> None:
    plan = plan_with(1, workloads=[workload_plan("new", launch_h=launch_h)], engineers=1)
    times = [(change.kind, change.time_h) for change in speeds_of(plan) if "eased" not in change.kind]
    assert times == ([("bring-up", 0.0), ("bring-up done", left_h)] if left_h else [])


@pytest.mark.parametrize(
    ("online_h", "launch_h", "begin_h"),
    [(0.0, 100.0, 100.0), (300.0, 100.0, 300.0), (300.0, 700.0, 700.0), (300.0, -9000.0, 300.0)],
)
def test_a_model_is_brought_up_once_it_is_out_and_machines_are_there(
    online_h: float, launch_h: float, begin_h: float
) -> None:
    """Three weeks from the launch or from the first machines of the part, whichever comes later."""
    loads = [workload_plan("new", months=3, launch_h=launch_h)]
    plan = plan_with(3, clusters=[cluster_plan(online_h=online_h)], workloads=loads, engineers=1)
    times = [(change.kind, change.time_h) for change in speeds_of(plan) if "eased" not in change.kind]
    assert times == [("bring-up", begin_h), ("bring-up done", begin_h + 504.0)]


def test_machines_of_an_order_bring_the_model_up_when_they_are_in_service() -> None:
    order = order_plan(lead_h=400.0, deliveries=2, interval_h=600.0)
    clusters = [cluster_plan(online_h=None, order=order)]
    plan = plan_with(3, clusters=clusters, workloads=[workload_plan("new", months=3, launch_h=0.0)], engineers=1)
    times = [(change.kind, change.time_h) for change in speeds_of(plan) if "eased" not in change.kind]
    assert times == [("bring-up", 406.0), ("bring-up done", 406.0 + 504.0)]  # commissioning takes six hours


def test_each_part_of_a_stack_is_brought_up_when_its_own_machines_come() -> None:
    clusters = [cluster_plan("a"), cluster_plan("b", accelerator="H100", online_h=300.0), cluster_plan("c", nodes=0)]
    loads = [workload_plan("new", [0, 1, 2], months=3, launch_h=100.0)]
    plan = plan_with(3, clusters=clusters, workloads=loads, engineers=1)
    simulation = Simulation(plan, streams(1))
    simulation.env.run(until=plan.hours)
    speed, _ = known_speeds(simulation)
    assert speed[0, 0][[99, 100, 604]] == pytest.approx([1.0, 0.5, 1.0])
    assert speed[1, 0][[299, 300, 804]] == pytest.approx([1.0, 0.5, 1.0])
    assert speed[0, 0][603] < 1.0 > speed[1, 0][803]
    np.testing.assert_array_equal(speed[2, 0], speed[0, 0])  # the part's, though it has no machines of its own


def test_nothing_is_asked_of_a_model_before_its_launch() -> None:
    launched = {"workloads": {"chat": {"model_launch": "2026-01-15"}}}
    for change, hours in ((launched, 14 * 24), ({}, 0)):
        run, _ = run_engine(plan_of(change), 1)
        demand = np.concatenate([window.demand_requests[0] for window in run.windows])
        served = np.concatenate([window.served_requests[:, 0] for window in run.windows], axis=1)
        assert not demand[:hours].any()
        assert not served[:, :hours].any()
        assert (demand[hours:] > 0).all()
    late = plan_of({"workloads": {"chat": {"model_launch": "2026-03-01"}}})
    assert [text for text in late.warnings if "workloads.chat.model_launch" in text and "2026-03-01" in text]


def test_a_model_launched_on_day_one_is_not_confused_with_an_old_one() -> None:
    loads = [workload_plan("new", launch_h=0.0), workload_plan("old")]
    plan = plan_with(1, workloads=loads, stack={"incidents": incident_plans(regression=100.0)}, engineers=0)
    simulation = Simulation(plan, streams(1))
    simulation.env.run(until=plan.hours)
    speed, _ = known_speeds(simulation)
    np.testing.assert_allclose(speed[0, 0][:126], 0.5 * speed[0, 1][:126])


def test_bring_up_takes_weeks_on_rocm_and_next_to_nothing_on_cuda() -> None:
    change = {
        "workloads": {"chat": {"model_launch": "2026-01-15"}},
        "software": {"incident_multiplier": 0, "software_speedup_multiplier": 0},
    }
    plan = plan_of(change)
    lengths: dict[str, list[float]] = {}
    for seed in range(20):
        changes = speeds_of(plan, seed)
        for cluster in range(2):
            own = [c.time_h for c in changes if c.cluster == cluster and c.kind.startswith("bring-up")]
            length = own[-1] - own[0] if len(own) > 1 else plan.hours - own[0] if own else 0.0
            lengths.setdefault(plan.clusters[cluster].vendor, []).append(length)
    assert np.median(lengths["amd"]) > 168.0
    assert np.median(lengths["nvidia"]) < 0.5 * np.median(lengths["amd"])


def test_policies_trade_gains_for_regressions() -> None:
    stacks = {
        policy: plan_of({"software": {"upgrade_policy": policy}}).software.stacks[0]
        for policy in ("latest", "staged", "pinned")
    }
    assert stacks["latest"].release_delay_h == 0.0
    assert stacks["staged"].release_delay_h == 8 * 168.0
    assert stacks["pinned"].release_delay_h is None
    rates = [stacks[policy].incidents[0].per_year for policy in ("latest", "staged", "pinned")]
    assert rates[0] == pytest.approx(2 * rates[1]) == pytest.approx(4 * rates[2])
    wrong, hangs = ([stacks[policy].incidents[place].per_year for policy in stacks] for place in (1, 2))
    assert wrong[0] == pytest.approx(2 * wrong[1]) == pytest.approx(4 * wrong[2])
    assert hangs[0] == hangs[1] == hangs[2] > 0  # a hang comes with no release


def test_vendors_differ_as_the_catalogue_says() -> None:
    """An 8B model runs on one accelerator: on NVIDIA one is lost with it, on AMD all eight."""
    plan = plan_of({"clusters": {"h200": {"tensor_parallel": 2}}, "software": {"engineers_per_800": {"nvidia": 1.2}}})
    nvidia, amd = plan.clusters
    assert (nvidia.group_accelerators, amd.group_accelerators) == (2, 8)
    assert (nvidia.failure_multiplier, amd.failure_multiplier) == (1.0, 1.3)
    assert [(team.name, team.clusters) for team in plan.software.teams] == [("amd", (1,)), ("nvidia", (0,))]
    assert [team.engineers.per_accelerator * 800 for team in plan.software.teams] == pytest.approx([2.0, 1.2])
    assert [stack.team for stack in plan.software.stacks] == [1, 0]  # cuda-vllm, rocm-vllm; amd, nvidia


def test_a_vendors_software_can_turn_a_purchase_either_way() -> None:
    """DeepSeek on MI325X costs about as much per token as on H200; a stack that matures makes it less, one that stalls
    under more incidents more."""

    def usd_per_million_tokens(accelerator: str, **software: dict[str, float]) -> float:
        slo, tokens = {"ttft_s": 10, "tpot_s": 0.1}, {"input": {"mean": 1000}, "output": {"mean": 500}}
        load = {"model": "deepseek-v3", "requests_per_s": 4000, "lengths": tokens, "slo": slo}
        scenario = {
            "name": "story",
            "start": "2026-01-01",
            "horizon_months": 12,
            "workloads": {"chat": load},
            "clusters": {"one": {"accelerator": accelerator, "nodes": 20, "engine": "sglang"}},
            "software": software,
        }
        return measures(planner.simulate(scenario))["cost_per_million_tokens_usd"] or math.inf

    h200, mi325x = usd_per_million_tokens("H200"), usd_per_million_tokens("MI325X")
    matures = {"vendor_software_speedup_multiplier": {"amd": 2.0}, "vendor_incident_multiplier": {"amd": 0.3}}
    stalls = {"vendor_software_speedup_multiplier": {"amd": 0.0}, "vendor_incident_multiplier": {"amd": 5.0}}
    assert mi325x == pytest.approx(h200, rel=0.1)
    assert usd_per_million_tokens("MI325X", **matures) < 0.9 * h200
    assert usd_per_million_tokens("MI325X", **stalls) > 1.1 * h200
    assert usd_per_million_tokens("H200", **stalls) == h200


def test_a_step_before_the_first_day_or_of_nobody_is_refused(write: Callable[..., Path]) -> None:
    steps = "software.steps=[{date: 2025-12-31, gain_fraction: 0.2}, {date: 2026-02-01, gain_fraction: 1, vendor: adm}]"
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(), [steps])
    assert "software.steps[0].date: 2025-12-31 lies before the first day" in str(caught.value)
    assert "software.steps[1].vendor: unknown vendor 'adm'" in str(caught.value)
