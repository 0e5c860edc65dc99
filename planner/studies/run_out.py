"""When capacity runs out where nothing more is ordered: the plan's run again, with what is there on the first day."""

from __future__ import annotations

from planner.finance.accounting.booked_run import per_run
from planner.plan.build import build_plan
from planner.run.simulate import RunResult, simulate_plan
from planner.run.slo_misses import without_long_prompts
from planner.scenario.scenario import Scenario


@per_run
def missed_without_orders(result: RunResult) -> tuple[str, ...]:
    """Return the months that miss the SLO target in a run's replication if nothing further is ordered."""
    scenario = _without_orders(result)
    plan = build_plan(scenario, throughput_factors=result.plan.throughput_factors)
    rerun = simulate_plan(scenario, plan, result.seed, result.replication, result.processes)
    labels = plan.months.labels
    # Orders do not shorten prompts that no idle replica serves in time.
    return tuple(labels[month] for month in without_long_prompts(rerun).missed_months)


def _without_orders(result: RunResult) -> Scenario:
    """Return the scenario that was run, with what a study drew for it, without nodes or rules to come."""
    # A rule adds to a cluster that may have nodes on the first day: taking the rules away leaves these.
    ordered = {order.cluster for order in result.run.log.orders if order.is_stated}
    scenario = result.scenario
    clusters = dict(scenario.clusters)
    for place in ordered:
        name = result.plan.clusters[place].name
        clusters[name] = clusters[name].model_copy(update={"nodes": 0})
    expansion = scenario.expansion.model_copy(update={"rules": ()})
    return scenario.model_copy(update={"clusters": clusters, "expansion": expansion})
