"""When capacity runs out where nothing more is ordered: the plan's run again, with what is there on the first day."""

from __future__ import annotations

from planner.errors import CapacityError, ScenarioError
from planner.finance.accounting.booked_run import per_run
from planner.plan.build import build_plan
from planner.run.simulate import RunResult, simulate_plan
from planner.run.slo_misses import without_long_prompts


@per_run
def missed_without_orders(result: RunResult) -> tuple[str, ...]:
    """Return the months that miss the SLO target in a run's replication if nothing further is ordered."""
    overrides = [
        f"clusters.{result.plan.clusters[order.cluster].name}.nodes=0"
        for order in result.run.log.orders
        # A rule adds to a cluster that may have nodes on the first day: taking the rules away leaves these.
        if order.is_stated
    ]
    if result.plan.expansion.rules:
        overrides.append("expansion.rules=[]")
    try:
        scenario = result.scenario.laid_over(overrides)
        plan = build_plan(scenario)
    except (ScenarioError, CapacityError):
        # Nothing that could serve is left: the first month is missed.
        return (result.plan.months.labels[0],)
    rerun = simulate_plan(scenario, plan, result.seed, result.replication, result.processes)
    labels = plan.months.labels
    # Orders do not shorten prompts that no idle replica serves in time.
    return tuple(labels[month] for month in without_long_prompts(rerun).missed_months)
