"""One replication from a scenario to a checked result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.engine.driver import Run, run_plan
from planner.engine.processes import Process
from planner.engine.rented import rent_for_shed
from planner.errors import ScenarioError
from planner.plan.build import build_plan
from planner.plan.plan import Plan
from planner.run.accounting import write_ledger
from planner.run.caching import last_kept
from planner.run.checks import check_run
from planner.run.cohorts import cohorts_of
from planner.run.monthly import Monthly, sum_months
from planner.run.result import RunResult
from planner.scenario.scenario import Scenario


def simulate(
    scenario: Scenario, seed: int | None = None, replication: int = 0, processes: Sequence[Process] = ()
) -> RunResult:
    """Run a scenario once and return its checked result; ``seed`` takes the place of the scenario's own."""
    check_whole(seed=0 if seed is None else seed, replication=replication)
    plan = plan_of(scenario)
    return simulate_plan(scenario, plan, plan.seed if seed is None else seed, replication, processes)


@last_kept
def plan_of(scenario: Scenario) -> Plan:
    """Return a scenario's plan; the last one is kept, for a notebook that runs it with one seed after another."""
    return build_plan(scenario)


def check_whole(**stated: object) -> None:
    """Refuse a count or a seed that is not a whole number from 0 on."""
    for name, number in stated.items():
        if not isinstance(number, int | np.integer) or number < 0:
            raise ScenarioError(f"{name} must be a whole number from 0 on, not {number!r}")


def simulate_plan(
    scenario: Scenario, plan: Plan, seed: int, replication: int = 0, processes: Sequence[Process] = ()
) -> RunResult:
    """Run a compiled scenario once, and processes of the user's with it."""
    run, monthly = run_engine(plan, seed, replication, processes=processes)
    cohorts = cohorts_of(plan, run.log)
    rented = rent_for_shed(plan, run.windows)
    return RunResult(
        scenario=scenario,
        plan=plan,
        seed=seed,
        replication=replication,
        processes=tuple(processes),
        monthly=monthly,
        run=run,
        cohorts=cohorts,
        rented=rented,
        ledger=write_ledger(plan, run, monthly, cohorts, rented),
    )


def run_engine(
    plan: Plan, seed: int, replication: int = 0, window_h: int | None = None, processes: Sequence[Process] = ()
) -> tuple[Run, Monthly]:
    """Run the simulation alone: events, hours, months, and the checks that they add up."""
    run = run_plan(plan, seed, replication, window_h, processes)
    monthly = sum_months(plan, run)
    check_run(plan, run, monthly)
    return run, monthly
