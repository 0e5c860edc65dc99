"""What software incidents cost, and what the practice of upgrades is worth: closed forms against the simulation."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from planner.plan.distributions import ThreePoint
from planner.plan.plan import Plan
from planner.plan.software import StepPlan
from planner.run.incidents import _of_an_upgrade, incident_rows, outlooks, practice_rows, practices
from planner.run.slo_misses import INCIDENT, lost_requests
from planner.units import HOURS_PER_YEAR
from tests.engine.plans import certain, incident_plans, workload_plan
from tests.engine.test_software import CADENCE, COURSE, ROLLBACK_H, STATED, lost_in, plan_with, ran
from tests.run.test_slo_misses import run

FIGURES = ThreePoint(low=1.0, base=7.0, high=50.0)
SIGMA = math.log(50.0) / 2.5631


@pytest.mark.parametrize("most", [0.5, 7.0, 300.0])
def test_partial_moments_are_those_of_the_lognormal(most: float) -> None:
    lognormal = stats.lognorm(SIGMA, scale=7.0)
    for power, moment in enumerate(FIGURES.below(most)):
        exact, _ = integrate.quad(lambda x, n=power: x**n * lognormal.pdf(x), 0.0, most, limit=200)
        assert moment == pytest.approx(exact, rel=1e-6)
    assert FIGURES.lognormal_at(1.28155) == pytest.approx(7.0 * math.sqrt(50.0), rel=1e-4)
    reaching_zero = ThreePoint(low=0.0, base=4.0, high=10.0)  # a normal, cut at zero
    assert [reaching_zero.lognormal_at(z) for z in (-1.28155, 0.0, 1.28155)] == pytest.approx(
        [0.0, 4.0, 9.0], abs=1e-3
    )
    assert certain(4.0).below(4.0) == (0.0, 0.0, 0.0)
    assert certain(4.0).below(4.1) == (1.0, 4.0, 16.0)


def test_what_outlasts_the_run_counts_to_its_end() -> None:
    """E[min(X, U)], U uniform over the run; a certain time of 10 in a run of 100 is cut in the last tenth: 9.5."""
    assert certain(10.0).mean_within(100.0) == pytest.approx(9.5)
    assert certain(300.0).mean_within(100.0) == pytest.approx(50.0)
    generator = np.random.default_rng(3)
    drawn = 7.0 * np.exp(SIGMA * generator.standard_normal(400_000))
    parts = np.minimum(drawn, 365.0 * generator.random(drawn.size))
    assert abs(FIGURES.mean_within(365.0) - parts.mean()) < 4 * parts.std() / math.sqrt(drawn.size)


@pytest.mark.parametrize(
    ("bake_h", "stuck", "fault_h", "back", "late_h"),
    [
        (2.0, 0.0, 0.2 * (0.1 * 2.0 + 2.0 + 3.0), 1.0, 5.0),
        (12.0, 1.0, 0.2 * (0.1 * 4.0 + 0.1 * 0.1 * 3.0), 1.0, 0.0),
        (
            0.0,
            0.25,
            0.2 * (4.0 + 0.75 * 3.0 + 0.25 * (120.0 - 120.0**2 / 2 / 8760.0)),
            0.75,
            0.75 * 7.0,
        ),
    ],
)
def test_a_certain_incident_takes_what_its_steps_sum_to(
    bake_h: float, stuck: float, fault_h: float, back: float, late_h: float
) -> None:
    """A fifth of the speed, noticed after 4 h, rolled back in 3 or fixed in 120: on a tenth first, then on all."""
    stack = {"incidents": incident_plans(regression=1.0), "rollback_impossible_fraction": stuck}
    plan = plan_with(12, stack=stack, bake_h=bake_h, engineers=0)
    (stack_plan,) = plan.software.stacks
    fix_h = 120.0 - 120.0**2 / 2 / 8760.0
    until_fixed_h = 4.0 + fix_h - bake_h if bake_h > 4.0 else back * (fix_h - 3.0)
    assert _of_an_upgrade(plan, stack_plan, stack_plan.incidents[0], (0, 0)) == pytest.approx(
        (fault_h, back, late_h, until_fixed_h)
    )


def test_wrong_output_in_a_wider_precision_takes_what_that_costs_until_it_is_fixed() -> None:
    stack = {"incidents": incident_plans(wrong_numerics=1.0, subtle_fraction=0.3)}
    plan = plan_with(12, stack=stack, engineers=0, wide_precision_factor=np.full((1, 1), 0.6))
    kind = plan.software.stacks[0].incidents[1]
    fix_h = 120.0 - 120.0**2 / 2 / plan.hours
    assert _of_an_upgrade(plan, plan.software.stacks[0], kind, (0, 0)) == pytest.approx(
        (0.4 * fix_h, 0.0, 0.0, 0.0)
    )


WAYS: dict[str, dict[str, Any]] = {
    "usual": {},
    "canary": {"bake_h": 12.0, "canary_fraction": 0.25},
    "at once": {"bake_h": 0.0, "canary_fraction": 1.0},
    "stuck": {"stack": {"rollback_impossible_fraction": 0.5}},
    "gains": {"stack": {**CADENCE, "releases_per_year": 8.0, "release_sigma": 0.05}},
    "late": {
        "stack": {
            **CADENCE,
            "releases_per_year": 50.0,
            "incidents": incident_plans(
                regression=0.5,
                loss=certain(0.1),
                detection_h=certain(800.0),
                fix_days=certain(60.0),
            ),
        }
    },
    "steps": {
        "stack": {
            "steps": (
                StepPlan(time_h=3000.0, model="llama", log_gain=0.2),
                StepPlan(time_h=1000.0, model="another", log_gain=0.5),
            )
        }
    },
    "new": {
        "stack": {
            "maturity": COURSE,
            "new_model_incident_multiplier": 3.0,
            "bring_up_weeks": certain(0.0),
        }
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_the_expected_loss_is_the_simulated_mean(way: str) -> None:
    """Incidents and speed lost over 200 replications of two years: |z| < 4, and no more than a sixth off."""
    changes = {"bake_h": 2.0, **WAYS[way]}
    usual = {
        "incidents": incident_plans(regression=0.3, hang=1.0, **STATED),
        "rollback_impossible_fraction": 0.2,
    }
    stack = {**usual, **changes.pop("stack", {}), "upgrade_h": 1800.0}
    workloads = [workload_plan("new", months=24, launch_h=3000.0)] if way == "new" else None
    plan = plan_with(24, workloads, stack=stack, engineers=0, rollback_h=ROLLBACK_H, **changes)
    speedup, kinds = outlooks(plan)[0, 0]
    counts, gained, lost = simulated(plan, 200)
    expected = sum(share for _, share in kinds.values())
    assert abs(lost.mean() - expected) < 4 * lost.std(ddof=1) / math.sqrt(200)
    assert expected == pytest.approx(lost.mean(), rel=1 / 6)
    for kind, (number, _) in kinds.items():
        assert abs(np.mean(counts[kind]) - number) < 4 * (
            float(np.std(counts[kind], ddof=1)) + 0.01
        ) / math.sqrt(200)
    assert abs(np.mean(gained) - speedup) <= 4 * np.std(gained, ddof=1) / math.sqrt(200)


def simulated(
    plan: Plan, replications: int
) -> tuple[dict[str, list[int]], list[float], np.ndarray]:
    """The number of incidents by kind, the mean speed-up of upgrades and the speed lost, of each replication."""
    counts = defaultdict[str, list[int]](list)
    gained = list[float]()
    lost = list[float]()
    for seed in range(replications):
        simulation = ran(plan, seed)
        begun = {
            event.incident: event.kind
            for event in reversed(simulation.log.software)
            if event.incident >= 0
        }
        for kind in plan.software.stacks[0].incidents:
            counts[kind.kind].append([*begun.values()].count(kind.kind))
        level = since_h = gain_h = 0.0
        for change in simulation.log.speeds():
            if change.incident < 0:
                gain_h += math.expm1(level) * (change.time_h - since_h)
                level = level + change.log_factor
                since_h = change.time_h
        gained.append((gain_h + math.expm1(level) * (plan.hours - since_h)) / plan.hours)
        lost.append(lost_in(simulation)[0, 0])
    return counts, gained, np.array(lost)


def test_hangs_do_not_depend_on_how_releases_are_taken() -> None:
    """λ·T of them, each a twentieth of the speed for five days."""
    plan = plan_with(12, stack={"incidents": incident_plans(hang=3.0)}, engineers=0)
    number, share = outlooks(plan)[0, 0][1]["hang"]
    years = plan.hours / HOURS_PER_YEAR
    assert number == pytest.approx(3.0 * years)
    assert share == pytest.approx(
        3.0 * years * 0.05 * (120.0 - 120.0**2 / 2 / plan.hours) / plan.hours
    )


def test_each_practice_is_worth_what_it_limits() -> None:
    result = run()
    rows = {(vendor, practice): figures for vendor, practice, *figures in practice_rows(result)}
    assert rows.keys() == {
        (vendor, practice)
        for vendor in ("amd", "nvidia")
        for practice in ("planned", "latest", "staged", "pinned", "no_canary", "no_rollback")
    }
    assert practice_rows(result) == practice_rows(result)
    for vendor in ("amd", "nvidia"):
        days, number, lost, gained, change = zip(
            *(rows[vendor, p] for p in ("latest", "staged", "pinned", "no_canary", "no_rollback")),
            strict=True,
        )
        assert days == (30.0, 75.0, 200.0, 75.0, 75.0)
        assert number[0] > number[1] > number[2]
        assert number[1] == number[3] == number[4]
        assert lost[0] > lost[1] > lost[2]
        assert lost[3] > lost[1]
        assert lost[4] > lost[1]
        assert gained == (0.0,) * 5  # software_speedup_multiplier: 0
        assert rows[vendor, "planned"] == rows[vendor, "staged"]
        assert change[1] == 0.0
        assert change[4] == pytest.approx((1.0 - lost[4]) / (1.0 - lost[1]) - 1.0)


def test_a_practice_is_the_plan_with_its_keys() -> None:
    """What the table calls no_canary is canary_fraction: 1, and so on: the stacks of the scenario set so."""
    base = run()
    stated = {
        "latest": ("software.upgrade_policy=latest",),
        "pinned": ("software.upgrade_policy=pinned",),
        "no_canary": ("software.canary_fraction=1",),
        "no_rollback": ("software.rollback_impossible_fraction={amd: 1, nvidia: 1}",),
    }
    tried = dict(practices(base.scenario, base.plan))
    for practice, overrides in stated.items():
        software = run(*overrides).plan.software
        assert tried[practice].software.stacks == software.stacks
        assert tried[practice].software.canary_fraction == software.canary_fraction
        assert tried[practice].software.bake_h == software.bake_h


def test_incidents_by_kind_sum_to_the_losses_and_misses_of_the_run() -> None:
    result = run()
    rows = incident_rows(result)
    names = ("incidents", "expected", "open_h", "node_h", "lost", "missed", "attained")
    sums = {name: math.fsum(row[3 + place] for row in rows) for place, name in enumerate(names)}
    assert sums["node_h"] == pytest.approx(result.monthly.drag_node_h.sum())
    assert sums["missed"] == pytest.approx(lost_requests(result).requests[INCIDENT].sum())
    assert sums["missed"] > 0.0
    assert sums["attained"] == pytest.approx(sums["missed"] / result.settled_requests().sum())
    log = result.run.log.software
    assert sums["incidents"] == len({event.incident for event in log if event.incident >= 0})
    stacks = {str(name) for name in result.plan.software.stack_of.ravel()}
    assert {row[:2] for row in rows} == {
        ("amd" if name.startswith("rocm") else "nvidia", name) for name in stacks
    }
