"""Releases, incidents, bring-ups, and the engineers who deal with them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pytest
import simpy
from scipy import stats

from planner.catalog.load import load_catalog
from planner.engine.driver import Simulation
from planner.engine.log import ChangeLog, SpeedChange, streams
from planner.engine.software import IncidentProcess
from planner.errors import ScenarioError
from planner.finance.accounts import Account
from planner.plan.distributions import ThreePoint
from planner.plan.plan import Plan
from planner.plan.software import MaturityPlan, StepPlan, TeamPlan
from planner.plan.stacks import compiled_stack
from planner.plan.staffing import Headcount
from planner.run.simulate import run_engine
from planner.scenario.loading import load_scenario
from planner.units import HOURS_PER_YEAR
from tests.conftest import WriteScenario
from tests.engine.plans import (
    certain,
    cluster_plan,
    incident_plans,
    make_plan,
    software_plan,
    stack_plan,
    workload_plan,
)
from tests.engine.worlds import plan_of, scenario_of


def plan_with(
    months: int = 12, workloads: Any = None, clusters: Any = None, **changes: Any
) -> Plan:
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
    simulation.histories.start_window(hours)
    return simulation.histories.speeds(0, hours)


def ran(plan: Plan, seed: int) -> Simulation:
    """Return the events of a run."""
    simulation = Simulation(plan, streams(seed))
    simulation.env.run(until=plan.hours)
    return simulation


COURSE = {"dense": MaturityPlan(gain=certain(0.5), months=certain(6.0))}
CADENCE = {"releases_per_year": 4.0, "upgrade_h": 100.0, "maturity": COURSE}


def levels_of(changes: list[SpeedChange]) -> list[float]:
    """The logarithm of speed after each change."""
    return list(itertools.accumulate(change.log_factor for change in changes))


def incident_process(plan: Plan, seed: int = 1) -> IncidentProcess:
    """The incident process of a plan, with all that is known ahead."""
    return Simulation(plan, streams(seed)).incidents


def test_releases_come_on_their_cadence_and_close_the_gap_to_a_ceiling() -> None:
    """Four a year, each half to one and a half intervals after the last; 50% to gain, half a year's time constant.

    A stack that is upgraded every hundred hours has each of them 150 hours after it is out at the latest.
    """
    plan = plan_with(36, stack=CADENCE)
    releases = speeds_of(plan)
    times = np.array([change.time_h for change in releases])
    interval_h = HOURS_PER_YEAR / 4
    assert np.all(
        (np.diff(times) >= 0.5 * interval_h - 150.0) & (np.diff(times) <= 1.5 * interval_h + 150.0)
    )
    assert 9 <= len(releases) <= 16
    assert all(change.kind == "upgrade" for change in releases)
    out_h = -np.log1p(-np.array(levels_of(releases)) / math.log(1.5)) * HOURS_PER_YEAR / 2
    assert np.all((times - out_h > 0.0) & (times - out_h < 150.0))
    assert np.all((np.diff(out_h) >= 0.5 * interval_h) & (np.diff(out_h) <= 1.5 * interval_h))
    simulation = Simulation(plan, streams(1))
    simulation.env.run(until=plan.hours)
    speed, incidents = known_speeds(simulation)
    assert 1.49 < speed[0, 0][-1] < 1.5
    assert incidents == {}


def test_upgrades_come_every_so_many_hours_from_a_random_phase() -> None:
    """Over 200 replications: the first uniform within an interval, the others 0.5 to 1.5 of it later, |z| < 4."""
    plan = plan_with(24, stack={"upgrade_h": 500.0})
    drawn = [incident_process(plan, seed).upgrades_h["cuda-vllm"] for seed in range(200)]
    first = np.array([times[0] for times in drawn])
    gaps = np.concatenate([np.diff(times) for times in drawn])
    for times, low, high in ((first, 0.0, 500.0), (gaps, 250.0, 750.0)):
        assert low <= times.min() < low + 25.0
        assert high - 25.0 < times.max() <= high
        spread = (high - low) / math.sqrt(12 * times.size)
        assert abs(times.mean() - 0.5 * (low + high)) < 4 * spread


def test_ten_years_of_releases_do_not_pass_the_ceiling_or_the_roofline() -> None:
    """Whatever releases scatter by: the best there will be is the most, and the part's peak before that."""
    for roofline, most in ((10.0, math.log(1.5)), (0.1, 0.1)):
        plan = plan_with(
            120,
            stack={**CADENCE, "release_sigma": 0.2},
            roofline_log_gain=np.full((1, 1), roofline),
        )
        levels = levels_of(speeds_of(plan))
        assert max(levels) == pytest.approx(most)
        assert min(levels) < most - 0.07  # and poor releases are over with the next
        assert np.mean(levels) > most - 0.25


def test_an_upgrade_takes_the_newest_release_that_is_out_when_its_canary_has_baked() -> None:
    """Between two upgrades several releases come out; the stack has the last of them, two hours after the upgrade."""
    stack = {**CADENCE, "releases_per_year": 50.0, "upgrade_h": 2000.0}
    plan = plan_with(36, stack=stack, bake_h=2.0)
    upgrades_h = incident_process(plan).upgrades_h["cuda-vllm"]
    changes = speeds_of(plan)
    assert [change.time_h for change in changes] == pytest.approx(
        [time_h + 2.0 for time_h in upgrades_h]
    )
    out_h = -np.log1p(-np.array(levels_of(changes)) / math.log(1.5)) * HOURS_PER_YEAR / 2
    waits = np.array(upgrades_h) - out_h
    assert np.all((waits > 0.0) & (waits < 1.5 * HOURS_PER_YEAR / 50))


def test_an_image_of_a_later_date_has_that_much_less_to_gain() -> None:
    """Half a year, one time constant, ahead of the calibration: in the end both stand at the same ceiling."""
    ahead = math.log(1.5) * (1 - math.exp(-1))
    clock = {"clock_h": (HOURS_PER_YEAR / 2,), "dated_log_gain": np.full((1, 1), ahead)}
    dated = levels_of(speeds_of(plan_with(120, stack=CADENCE, **clock)))
    undated = levels_of(speeds_of(plan_with(120, stack=CADENCE)))
    assert dated[0] > 0.0
    assert dated[-1] + ahead == pytest.approx(undated[-1], abs=1e-6)
    assert all(early + ahead > late for early, late in zip(dated[:4], undated[:4], strict=True))


def test_steps_come_with_the_next_upgrade_for_their_model_and_stop_at_the_roofline() -> None:
    steps = (
        StepPlan(time_h=100.0, model="", log_gain=math.log(1.2)),
        StepPlan(time_h=200.0, model="other", log_gain=math.log(3.0)),
        StepPlan(time_h=300.0, model="", log_gain=math.log(2.0)),
    )
    stack = {"upgrade_h": 24.0, "steps": steps}
    plan = plan_with(1, stack=stack, roofline_log_gain=np.full((1, 1), math.log(2.0)))
    upgrades_h = incident_process(plan).upgrades_h["cuda-vllm"]
    changes = speeds_of(plan)
    expected = [min(time_h for time_h in upgrades_h if time_h >= day_h) for day_h in (100.0, 300.0)]
    assert [(change.kind, change.time_h) for change in changes] == [
        ("upgrade", time_h) for time_h in expected
    ]
    assert np.exp(levels_of(changes)) == pytest.approx([1.2, 2.0])
    assert (
        speeds_of(plan_with(1, stack={**stack, "upgrade_h": math.inf})) == []
    )  # an image that is never changed


def courses(
    plan: Plan, replications: int = 200
) -> Iterator[tuple[list[float], dict[int, list[SpeedChange]]]]:
    """By replication: when the stack is upgraded, and the changes of speed of each of its incidents."""
    for seed in range(replications):
        simulation = Simulation(plan, streams(seed))
        simulation.env.run(until=plan.hours)
        changes: dict[int, list[SpeedChange]] = defaultdict(list)
        for change in simulation.log.speeds():
            if change.incident >= 0:
                changes[change.incident].append(change)
        yield simulation.incidents.upgrades_h["cuda-vllm"], changes


def shifted(mean: float, expected: float, deviation: float, count: int) -> float:
    """Standard errors by which a mean of so many lies off what is expected."""
    return abs(mean - expected) / (deviation / math.sqrt(count))


@pytest.mark.parametrize(("kind", "often"), [("regression", 0.08), ("wrong_numerics", 0.3)])
def test_a_share_of_upgrades_brings_an_incident_and_none_comes_without_one(
    kind: str, often: float
) -> None:
    """Bernoulli by upgrade over 200 replications of two years: |z| < 4; every one begins or is noticed after one."""
    wide = {"wide_precision_factor": np.full((1, 1), 0.6)}
    stack = {"incidents": incident_plans(**{kind: often}), "upgrade_h": 1800.0}
    plan = plan_with(24, stack=stack, engineers=0, **wide)
    upgrades = incidents = 0
    for times_h, changes in courses(plan):
        upgrades += sum(time_h < plan.hours - 4.0 for time_h in times_h)
        incidents += len(changes)
        # A regression strikes with the upgrade; wrong output is noticed, and served in a wider precision, 4 h later.
        later_h = 4.0 if kind == "wrong_numerics" else 0.0
        starts = {round(time_h + later_h, 6) for time_h in times_h}
        assert all(round(own[0].time_h, 6) in starts for own in changes.values())
    assert shifted(incidents / upgrades, often, math.sqrt(often * (1 - often)), upgrades) < 4
    assert incidents > 100


def test_a_new_model_has_incidents_with_its_launch_and_more_with_the_upgrades_after() -> None:
    """Probability p·(1 + (m − 1)·exp(−age/τ)) at the launch and each upgrade after it, none before: |z| < 4."""
    stack = {
        "incidents": incident_plans(regression=0.1),
        "maturity": COURSE,
        "new_model_incident_multiplier": 3.0,
        "upgrade_h": 700.0,
        "bring_up_weeks": certain(0.0),
    }
    plan = plan_with(12, workloads=[workload_plan("new", months=12, launch_h=3000.0)], stack=stack)
    at_launch = 0
    came = 0
    expected = 0.0
    variance = 0.0
    for times_h, changes in courses(plan):
        began = [own[0].time_h for own in changes.values() if own[0].kind == "regression"]
        assert all(time_h >= 3000.0 for time_h in began)
        at_launch += began.count(3000.0)
        came += sum(time_h > 3000.0 for time_h in began)
        ages_h = np.array([time_h - 3000.0 for time_h in times_h if time_h > 3000.0])
        likely = 0.1 * (1 + 2 * np.exp(-ages_h / (HOURS_PER_YEAR / 2)))
        expected = expected + likely.sum()
        variance = variance + (likely * (1 - likely)).sum()
    assert abs(at_launch - 200 * 0.3) < 4 * math.sqrt(200 * 0.3 * 0.7)
    assert abs(came - expected) < 4 * math.sqrt(variance)


def test_a_canary_loses_its_share_until_the_rest_has_the_release_too() -> None:
    """A tenth of the stack for two hours, then all of it; noticed after four hours and rolled back in three."""
    stack = {"incidents": incident_plans(regression=1.0), "upgrade_h": 2000.0}
    plan = plan_with(12, stack=stack, bake_h=2.0)
    for times_h, changes in courses(plan, 5):
        for begin_h, own in zip(times_h, changes.values(), strict=True):
            if begin_h + 7.0 >= plan.hours:
                continue
            assert [change.time_h - begin_h for change in own] == pytest.approx([0.0, 2.0, 7.0])
            assert np.exp(levels_of(own)) == pytest.approx([0.98, 0.8, 1.0])
            assert [change.kind for change in own] == [
                "regression",
                "regression spread",
                "regression rolled back",
            ]


def test_what_is_noticed_while_it_bakes_never_reaches_the_rest() -> None:
    """Noticed after four hours of twelve; the canary is rolled back in its share of the three, though others cannot."""
    stack = {
        "incidents": incident_plans(regression=1.0),
        "upgrade_h": 2000.0,
        "rollback_impossible_fraction": 1.0,
    }
    plan = plan_with(12, stack=stack, bake_h=12.0)
    for times_h, changes in courses(plan, 5):
        for begin_h, own in zip(times_h, changes.values(), strict=True):
            if begin_h + 5.0 < plan.hours:
                assert [change.time_h - begin_h for change in own] == pytest.approx([0.0, 4.3])
                assert np.exp(levels_of(own)) == pytest.approx([0.98, 1.0])


@pytest.mark.parametrize("fix_days", [5.0, 500.0])
def test_a_release_that_is_rolled_back_takes_its_gain_with_it_until_it_is_fixed_or_the_next_is_out(
    fix_days: float,
) -> None:
    """Caught in the bake it is never had; found later it is lost from the roll-back on."""
    for bake_h, lost_from_h in ((12.0, 12.0), (2.0, 7.0)):
        stack = {
            **CADENCE,
            "releases_per_year": 50.0,
            "incidents": incident_plans(regression=1.0, fix_days=certain(fix_days)),
            "upgrade_h": 2000.0,
        }
        plan = plan_with(24, stack=stack, bake_h=bake_h, engineers=0)
        for seed in range(5):
            simulation = Simulation(plan, streams(seed))
            simulation.env.run(until=plan.hours)
            times_h = simulation.incidents.upgrades_h["cuda-vllm"]
            gains = simulation.incidents.gains[0, 0]
            changes = simulation.log.speeds()
            for number, (begin_h, next_h) in enumerate(itertools.pairwise(times_h), start=1):
                own = [change for change in changes if change.incident == number]
                assert levels_of(own)[-2] == pytest.approx(-gains[number - 1])
                assert own[-2].time_h == pytest.approx(begin_h + lost_from_h)
                again_h = min(next_h + bake_h, begin_h + 4.0 + 24.0 * fix_days)
                assert own[-1].time_h == pytest.approx(again_h)
                assert levels_of(own)[-1] == pytest.approx(0.0)


def test_a_release_that_gains_more_than_its_fault_costs_is_kept_until_it_is_fixed() -> None:
    """Slower by a hundredth where the release before was slower by more: 124 h after the upgrade that is over."""
    stack = {
        "maturity": {"dense": MaturityPlan(gain=certain(0.5), months=certain(0.01))},
        "releases_per_year": 50.0,
        "incidents": incident_plans(regression=1.0, loss=certain(0.01)),
        "upgrade_h": 2000.0,
    }
    plan = plan_with(24, stack=stack, bake_h=2.0, engineers=0)
    (times_h, changes), *_ = courses(plan, 1)
    first, second, *_ = changes.values()
    # The first upgrade brings all there is to gain, the second nothing.
    assert first[-1].kind == "regression fixed"
    assert first[-1].time_h == pytest.approx(times_h[0] + 124.0)
    assert levels_of(first)[-2:] == pytest.approx([math.log(0.99), 0.0])
    assert second[-1].kind == "regression rolled back"
    assert second[-1].time_h == pytest.approx(times_h[1] + 7.0)


def capacity_h(plan: Plan, seed: int) -> float:
    """Hours of the first pair's speed over a replication."""
    simulation = Simulation(plan, streams(seed))
    simulation.env.run(until=plan.hours)
    speed, _ = known_speeds(simulation)
    return float(speed[0, 0].sum())


@pytest.mark.parametrize("engineers", [0, 1, 2, 400])
@pytest.mark.parametrize("days", [30.0, 200.0])
def test_that_releases_can_be_rolled_back_never_costs_capacity(engineers: int, days: float) -> None:
    """In any replication, however many engineers there are, how fast they mend and how much releases gain."""
    for engineer_h in (2.0, 40.0):
        for sigma in (0.0, 0.05):
            stack = {
                **CADENCE,
                "releases_per_year": 12.0,
                "release_sigma": sigma,
                "incidents": incident_plans(regression=0.3, **STATED),
                "upgrade_h": 24.0 * days,
            }
            plan = plan_with(
                24,
                stack=stack,
                bake_h=2.0,
                engineers=engineers,
                rollback_h=ROLLBACK_H,
                engineer_h=engineer_h,
            )
            (planned,) = plan.software.stacks
            stuck = dataclasses.replace(planned, rollback_impossible_fraction=1.0)
            without = dataclasses.replace(
                plan, software=dataclasses.replace(plan.software, stacks=(stuck,))
            )
            for seed in range(10):
                # Two faults at once multiply, so that what ends sooner and what gains may differ by a hair.
                assert capacity_h(plan, seed) >= capacity_h(without, seed) * (1.0 - 1e-5)


def lognormal_share(figure: ThreePoint, below: float) -> float:
    """The share of a lognormal with this median and this P90 / P10 that lies below a figure."""
    sigma = math.log(figure.high / figure.low) / (stats.norm.ppf(0.9) - stats.norm.ppf(0.1))
    return float(stats.lognorm(sigma, scale=figure.base).cdf(below))


STATED: dict[str, Any] = {
    "loss": ThreePoint(low=0.05, base=0.18, high=0.38),
    "detection_h": ThreePoint(low=0.25, base=4.0, high=24.0),
    "subtle_detection_h": ThreePoint(low=24.0, base=96.0, high=336.0),
    "subtle_below": 0.1,
}
ROLLBACK_H = ThreePoint(low=0.5, base=3.0, high=12.0)


def test_losses_detection_and_roll_backs_last_as_stated() -> None:
    """Over 200 replications: shares below P10, the median and P90 of what was drawn, each with |z| < 4.

    Losses are those of the stack once the release is everywhere; detection is told by the end less a certain roll-back,
    and the roll-back by the end less a certain detection.
    """
    stack = {"incidents": incident_plans(regression=1.0, **STATED), "upgrade_h": 2000.0}
    plan = plan_with(12, stack=stack, rollback_h=certain(3.0))
    losses = list[float]()
    noticed = list[float]()
    sharp = list[float]()
    subtle = list[float]()
    for times_h, changes in courses(plan):
        for begin_h, own in zip(times_h, changes.values(), strict=True):
            level = levels_of([change for change in own if change.time_h == begin_h])[-1]
            losses.append(-math.expm1(level))
            if begin_h < plan.hours - 2000.0:
                end_h = own[-1].time_h if own[-1].kind == "regression rolled back" else math.inf
                (subtle if losses[-1] < 0.1 else sharp).append(end_h - begin_h - 3.0)
                noticed.append(end_h - begin_h)
    certainly = {**STATED, "detection_h": certain(4.0), "subtle_detection_h": certain(4.0)}
    stack["incidents"] = incident_plans(regression=1.0, **certainly)
    plan = plan_with(12, stack=stack, rollback_h=ROLLBACK_H)
    back = [
        own[-1].time_h - begin_h - 4.0
        for times_h, changes in courses(plan)
        for begin_h, own in zip(times_h, changes.values(), strict=True)
        if begin_h < plan.hours - 2000.0
    ]
    for drawn, figure in (
        (losses, STATED["loss"]),
        (sharp, STATED["detection_h"]),
        (subtle, STATED["subtle_detection_h"]),
        (back, ROLLBACK_H),
    ):
        for bound in (figure.low, figure.base, figure.high):
            share = lognormal_share(figure, bound)
            below = float(np.mean([one < bound for one in drawn]))
            assert shifted(below, share, math.sqrt(share * (1 - share)), len(drawn)) < 4
    assert abs(stats.spearmanr(noticed, back).statistic) < 4 / math.sqrt(
        len(back)
    )  # the same incidents, both runs
    assert max(losses) == pytest.approx(0.65)
    cut = float(np.mean([loss > 0.65 - 1e-9 for loss in losses]))
    share = 1.0 - lognormal_share(STATED["loss"], 0.65)
    assert shifted(cut, share, math.sqrt(share * (1 - share)), len(losses)) < 4


def test_what_cannot_be_rolled_back_lasts_until_it_is_fixed() -> None:
    """A share of one in five over 200 replications: |z| < 4; those end with their vendor's five days."""
    stack = {
        "incidents": incident_plans(regression=1.0),
        "upgrade_h": 2000.0,
        "rollback_impossible_fraction": 0.2,
    }
    plan = plan_with(12, stack=stack, engineers=0)
    lengths = [
        own[-1].time_h - begin_h
        for times_h, changes in courses(plan)
        for begin_h, own in zip(times_h, changes.values(), strict=True)
        if begin_h < plan.hours - 200.0
    ]
    stuck = [length for length in lengths if length > 7.1]
    assert stuck == pytest.approx([4.0 + 120.0] * len(stuck))
    assert shifted(len(stuck) / len(lengths), 0.2, 0.4, len(lengths)) < 4


def test_a_share_of_wrong_output_is_subtle() -> None:
    """Three in ten are noticed after a hundred hours and not after four: |z| < 4."""
    wide = {"wide_precision_factor": np.full((1, 1), 0.6)}
    stack = {
        "incidents": incident_plans(wrong_numerics=1.0, subtle_fraction=0.3),
        "upgrade_h": 2000.0,
    }
    delays = [
        own[0].time_h - begin_h
        for times_h, changes in courses(plan_with(12, stack=stack, engineers=0, **wide))
        for begin_h, own in zip(times_h, changes.values(), strict=False)
    ]
    assert {round(delay, 6) for delay in delays} == {4.0, 100.0}
    late = float(np.mean([delay > 50.0 for delay in delays]))
    assert shifted(late, 0.3, math.sqrt(0.21), len(delays)) < 4


def test_two_vendors_with_the_same_figures_are_the_same() -> None:
    """No figure is a vendor's but through its catalogue entry: with CUDA's, ROCm is compiled to the same stack."""
    shared = {"rollback_impossible_fraction": {"amd": 0.1, "nvidia": 0.1}}
    scenario = scenario_of({"software": shared})
    catalog = load_catalog()
    cuda = catalog.stacks["cuda-vllm"]
    rocm = catalog.stacks["rocm-vllm"]
    alike = cuda.model_copy(update={"platform": rocm.platform, "vendor": rocm.vendor})
    both = [compiled_stack(scenario, catalog, stack, 0) for stack in (cuda, alike)]
    assert [stack.name for stack in both] == ["cuda-vllm", "rocm-vllm"]
    assert dataclasses.replace(both[1], name="cuda-vllm") == both[0]
    assert (
        dataclasses.replace(compiled_stack(scenario, catalog, rocm, 0), name="cuda-vllm") != both[0]
    )


@pytest.mark.parametrize(
    ("contract", "multiplier", "usd"),
    [("none", 1.5, 0.0), ("standard", 1.0, 300.0), ("premium", 0.6, 900.0)],
)
def test_a_fix_takes_as_long_and_costs_as_much_as_the_contract_says(
    contract: str, multiplier: float, usd: float
) -> None:
    plans = [
        plan_of({"software": {"support_contract": name, "engineers": 0, "incident_multiplier": 5}})
        for name in (contract, "standard")
    ]
    assert plans[0].software.fix_time_multiplier == multiplier
    assert plans[0].money.upkeep.yearly_usd[Account.SUPPORT_CONTRACTS] == usd

    def lengths(plan: Plan) -> dict[float, float]:
        """Hours from a hang to its fix, by its beginning."""
        changes = speeds_of(plan, 5)
        begun = {(c.incident, c.cluster, c.workload): c.time_h for c in changes if c.kind == "hang"}
        ends = [
            (begun[c.incident, c.cluster, c.workload], c.time_h)
            for c in changes
            if c.kind == "hang fixed"
        ]
        return {begin_h: end_h - begin_h for begin_h, end_h in ends}

    these, usual = (lengths(plan) for plan in plans)
    both = these.keys() & usual.keys()
    assert both
    for begin_h in both:
        assert these[begin_h] == pytest.approx(multiplier * usual[begin_h])


def mended(engineers: int, incidents: list[tuple[float, float, float]]) -> list[float]:
    """Hours after which incidents (time, engineer's hours of work, the vendor's hours) are mended."""
    plan = plan_with(1, engineers=engineers)
    env = simpy.Environment()
    process = IncidentProcess(env, plan, ChangeLog(), streams(1), {})
    took = [0.0] * len(incidents)

    def comes(
        place: int, time_h: float, work_h: float, vendor_h: float
    ) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(time_h)
        took[place] = process._fix_h(plan.software.stacks[0], work_h, vendor_h)

    for place, figures in enumerate(incidents):
        env.process(comes(place, *figures))
    env.run()
    return took


def test_a_few_engineers_mend_one_thing_together_and_more_of_them_more_at_once() -> None:
    """Forty hours of work are a week for one engineer and a third of it for three; four at once queue, or do not."""
    four = [(10.0, 40.0, 5000.0)] * 4
    assert mended(1, four) == pytest.approx([168.0, 336.0, 504.0, 672.0])
    assert mended(2, four) == pytest.approx([84.0, 168.0, 252.0, 336.0])
    assert mended(3, four) == pytest.approx([56.0, 112.0, 168.0, 224.0])
    assert mended(5, four) == mended(3, four)
    assert mended(6, four) == pytest.approx([56.0, 56.0, 112.0, 112.0])
    assert mended(1000, four) == pytest.approx([56.0] * 4)


def test_the_vendor_mends_what_is_faster_so_and_everything_without_engineers() -> None:
    assert mended(0, [(10.0, 40.0, 120.0)] * 3) == pytest.approx([120.0] * 3)
    # The first is mended by the vendor at 100 h, which frees the engineer for the second from then on; the third is
    # mended by the vendor before it is taken up, and the fourth begins when the second ends.
    queue = [(0.0, 40.0, 100.0), (0.0, 20.0, 500.0), (0.0, 40.0, 150.0), (0.0, 10.0, 5000.0)]
    assert mended(1, queue) == pytest.approx([100.0, 184.0, 150.0, 226.0])


def test_waits_for_engineers_are_those_of_m_g_1() -> None:
    """Pollaczek and Khinchine: W = λ E[S²] / (2 (1 − ρ)), exponential work of a mean of 20 h, two engineers."""
    random = np.random.default_rng(5)
    count = 20_000
    mean_h = 20.0 * 168 / 40 / 2
    rate = 0.6 / (20.0 * 168 / 40 / 2)
    arrivals = np.cumsum(random.exponential(1 / rate, count))
    work = random.exponential(20.0, count)
    took = mended(
        2, [(t, w, math.inf) for t, w in zip(arrivals.tolist(), work.tolist(), strict=True)]
    )
    waits = np.array(took) - work * 168 / 40 / 2
    slices = np.array([part.mean() for part in np.array_split(waits, 40)])
    expected = rate * 2 * mean_h**2 / (2 * (1 - 0.6))
    error = slices.std(ddof=1) / math.sqrt(40)
    assert abs(slices.mean() - expected) < 4 * error
    assert error < 0.1 * expected


def test_engineers_grow_with_the_accelerators_on_site() -> None:
    """1 per 400: none at first, two once the hundred nodes of the second cluster are there."""
    clusters = [cluster_plan("a", nodes=20), cluster_plan("b", nodes=100, online_h=300.0)]
    plan = plan_with(1, clusters=clusters)
    team = TeamPlan(
        name="all", clusters=(0, 1), engineers=Headcount(per_accelerator=1 / 400, rounding="down")
    )
    plan = dataclasses.replace(plan, software=dataclasses.replace(plan.software, teams=(team,)))
    simulation = Simulation(plan, streams(1))
    process = simulation.incidents
    simulation.env.run(until=200.0)
    assert process._fix_h(plan.software.stacks[0], 40.0, 5000.0) == 5000.0
    simulation.env.run(until=400.0)
    assert process._fix_h(plan.software.stacks[0], 40.0, 5000.0) == pytest.approx(84.0)


def test_wrong_output_is_rolled_back_or_served_in_a_wider_precision_once_it_is_noticed() -> None:
    """Rolled back it costs the release's gain until the vendor's fix; wider until then as well."""
    stack = {**CADENCE, "incidents": incident_plans(wrong_numerics=1.0), "upgrade_h": 4000.0}
    plan = plan_with(12, stack=stack, engineers=0)
    gain = incident_process(plan, 0).gains[0, 0][0]
    ((first_h, *_), changes), *_ = courses(plan, 1)
    assert gain > 0.0
    assert [change.time_h for change in changes[1]] == pytest.approx(
        [first_h + 7.0, first_h + 124.0]
    )
    assert levels_of(changes[1]) == pytest.approx([-gain, 0.0])
    wide = {"wide_precision_factor": np.full((1, 1), 0.55)}
    (_, changes), *_ = courses(plan_with(12, stack=stack, engineers=0, **wide), 1)
    assert [change.time_h for change in changes[1]] == pytest.approx(
        [first_h + 4.0, first_h + 124.0]
    )
    assert np.exp(levels_of(changes[1])) == pytest.approx([0.55, 1.0])


def test_wrong_output_that_is_served_because_nothing_can_be_rolled_back_costs_no_speed() -> None:
    stack = {
        **CADENCE,
        "incidents": incident_plans(wrong_numerics=1.0),
        "rollback_impossible_fraction": 1.0,
    }
    assert all(change.kind == "upgrade" for change in speeds_of(plan_with(12, stack=stack)))


def test_a_hang_costs_its_fraction_and_never_everything() -> None:
    for stated, kept in ((0.05, 0.95), (1.0, 0.05)):
        software = {"hang_loss_fraction": stated, "incident_multiplier": 50, "engineers": 0}
        hangs = [
            change for change in speeds_of(plan_of({"software": software})) if change.kind == "hang"
        ]
        assert hangs
        assert all(change.log_factor == pytest.approx(math.log(kept)) for change in hangs)


def test_clusters_on_one_stack_widen_by_their_own_factors() -> None:
    """Two clusters, one stack and model, different precision: the hours must keep them apart."""
    clusters = [cluster_plan("a"), cluster_plan("b")]
    wide = np.array([[0.5], [0.8]])
    plan = plan_with(
        12,
        clusters=clusters,
        stack={"incidents": incident_plans(wrong_numerics=1.0), "upgrade_h": 1500.0},
        wide_precision_factor=wide,
    )
    simulation = Simulation(plan, streams(4))
    simulation.env.run(until=plan.hours)
    speed, incidents = known_speeds(simulation)
    assert speed[0, 0].min() < 0.51
    assert 0.6 < speed[1, 0].min() < 0.81
    np.testing.assert_allclose(
        np.log(speed[1, 0]) / math.log(0.8), np.log(speed[0, 0]) / math.log(0.5), atol=0.2
    )
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
def test_a_bring_up_that_began_before_the_start_has_part_of_it_behind(
    launch_h: float, left_h: float | None
) -> None:
    plan = plan_with(1, workloads=[workload_plan("new", launch_h=launch_h)], engineers=1)
    times = [
        (change.kind, change.time_h) for change in speeds_of(plan) if "eased" not in change.kind
    ]
    assert times == ([("bring-up", 0.0), ("bring-up done", left_h)] if left_h else [])


@pytest.mark.parametrize(
    ("online_h", "launch_h", "begin_h"),
    [(0.0, 100.0, 100.0), (300.0, 100.0, 300.0), (300.0, 700.0, 700.0), (300.0, -9000.0, 300.0)],
)
def test_a_model_is_brought_up_once_it_is_out_and_machines_are_there(
    online_h: float, launch_h: float, begin_h: float
) -> None:
    """Three weeks from the launch or from the first machines of the part, whichever is later; halved by support."""
    loads = [workload_plan("new", months=3, launch_h=launch_h)]
    there = [cluster_plan(online_h=online_h)]
    plan = plan_with(3, clusters=there, workloads=loads, engineers=1, fix_time_multiplier=0.5)
    times = [
        (change.kind, change.time_h) for change in speeds_of(plan) if "eased" not in change.kind
    ]
    assert times == [("bring-up", begin_h), ("bring-up done", begin_h + 252.0)]


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
    assert [
        text
        for text in late.warnings
        if "workloads.chat.model_launch" in text and "2026-03-01" in text
    ]


def test_a_step_before_the_first_day_or_of_nobody_is_refused(write: WriteScenario) -> None:
    steps = "software.steps=[{date: 2025-12-31, gain_fraction: 0.2}, {date: 2026-02-01, gain_fraction: 1, vendor: adm}]"
    with pytest.raises(ScenarioError) as caught:
        load_scenario(write(), [steps])
    assert "software.steps[0].date: 2025-12-31 lies before the first day" in str(caught.value)
    assert "software.steps[1].vendor: unknown vendor 'adm'" in str(caught.value)
