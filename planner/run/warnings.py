"""Warnings of a finished run: figures that are hardly meant, machines that never served, overloaded teams."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from planner.engine.hourly import never_placed
from planner.engine.monthly import Monthly
from planner.finance.accounting.booked_run import BookedRun, per_run
from planner.finance.accounting.lender import lender_view
from planner.plan.contradictions import all_warnings
from planner.plan.plan import Plan
from planner.units import counted

ABSURD_SHED_FRACTION = 0.9
"""Share of tokens shed beyond which a run is hardly meant; assumption: even a fleet kept at full load sheds less."""
OVERLOAD_FRACTION = 0.9
"""Load of a queue beyond which it is named; with one server waits are then nine times the work (M/M/1)."""


@per_run
def run_warnings(result: BookedRun) -> tuple[str, ...]:
    """Return what a reader of a run must know before its figures.

    The share shed stands first, since every other figure of such a run is of the little that was served.
    """
    return (
        *_absurd_shedding(result),
        *all_warnings(result.scenario, result.plan),
        *_workloads_never_served(result),
        *_nodes_never_in_service(result),
        *overloaded_teams(result.plan, result.monthly),
        *_broken_covenants(result),
    )


def _absurd_shedding(result: BookedRun) -> Iterator[str]:
    demand = result.tokens(result.monthly.demand_requests).sum()
    shed = result.tokens(result.shed_requests()).sum()
    shed_fraction = shed / demand if demand > 0 else 0.0
    if shed_fraction > ABSURD_SHED_FRACTION:
        yield f"{shed_fraction:.1%} of tokens are shed: the fleet is far too small for this traffic"


def _workloads_never_served(result: BookedRun) -> Iterator[str]:
    plan = result.plan
    placement = plan.placement
    groups = placement.groups if placement is not None else ()
    for w in never_placed(plan, result.run.windows):
        # The model found no room beside the others: the warning says how much each cluster would need.
        sizes = []
        for group in groups:
            assert placement is not None  # or there would be no group
            # The smallest pool of the model comes first.
            deployment = placement.deployments[group[0]]
            if w in deployment.workloads:
                cluster = plan.clusters[deployment.cluster]
                sizes.append(f"{deployment.min_nodes:g} of {cluster.nodes} nodes of {cluster.name}")
        workload = plan.workloads[w]
        yield (
            f"workload {workload.name} was never served: {workload.model} takes at least "
            f"{', '.join(sizes)}, and no cluster has that much room; add nodes"
        )


def _nodes_never_in_service(result: BookedRun) -> Iterator[str]:
    for index, cluster in enumerate(result.plan.clusters):
        # In service at infinity is never.
        idle = [
            cohort
            for cohort in result.cohorts
            if cohort.cluster == index and not np.isfinite(cohort.in_service_h)
        ]
        if idle:
            nodes = sum(cohort.machines for cohort in idle)
            paid_usd = sum(cohort.nodes * sum(cohort.prices_usd) for cohort in idle)
            yield (
                f"{counted(nodes, 'node')} of cluster {cluster.name}, delivered and paid ({paid_usd:,.0f} USD), "
                "did not enter service: there was too little power, or they came too late"
            )


def overloaded_teams(plan: Plan, monthly: Monthly) -> Iterator[str]:
    """Yield the queues for crews and engineers whose load exceeds 0.9 in some month, where waits grow fast."""
    per_node = plan.accelerators_per_node
    loads_by_queue: dict[str, list[tuple[float, int]]] = {}
    # A team's size is the same in many months, and its load takes an integral to work out.
    engineer_load = functools.cache(plan.engineer_load)
    for nodes in monthly.present_node_h / plan.months.period_hours[:, None]:
        on_site = float((nodes * plan.on_site) @ per_node)
        crews = plan.reliability.crews.number(on_site)
        if crews:
            name = "repair crews (reliability.repair_crews)"
            load = plan.crew_load(nodes, crews)
            loads_by_queue.setdefault(name, []).append((load, crews))
        for number, team in enumerate(plan.software.teams):
            members = list(team.clusters)
            team_accelerators = float(nodes[members] @ per_node[members])
            engineers = team.engineers.number(team_accelerators)
            if engineers:
                name = f"engineers of {team.name} (software.engineers)"
                load = engineer_load(number, engineers)
                loads_by_queue.setdefault(name, []).append((load, engineers))
    for name, loads in loads_by_queue.items():
        # The month of the highest load, and the team's size then.
        load, people = max(loads)
        if load > OVERLOAD_FRACTION:
            yield (
                f"the {people} {name} are at a load of {load:.2f}: "
                f"above {OVERLOAD_FRACTION:g} waiting times grow fast"
            )


def _broken_covenants(result: BookedRun) -> Iterator[str]:
    loan = result.plan.money.capital.loan
    if loan is None:
        return
    view = lender_view(result)
    above = np.flatnonzero(view.is_above_cap)
    if above.size:
        month = result.plan.months.labels[above[0]]
        highest = int(np.nanargmax(view.balance_usd - view.base_usd))
        yield (
            f"the loan's balance exceeds its borrowing base in {above.size} months, the first {month}. In "
            f"{result.plan.months.labels[highest]} the balance is {view.balance_usd[highest]:,.0f} USD against a base "
            f"of {view.base_usd[highest]:,.0f} USD, which is {loan.ltv_cap_fraction:g} of what an orderly sale of the "
            "machines would bring"
        )
    if loan.least_cover_ratio is None:
        return
    cover = view.quarter_cover
    # A quarter without debt service has no ratio (NaN) and breaks nothing.
    broken = np.count_nonzero(cover < loan.least_cover_ratio)
    if broken:
        worst = int(np.nanargmin(cover))
        yield (
            f"the loan's covenant is broken in {broken} of {np.isfinite(cover).sum()} fiscal quarters: "
            f"cash for debt service is {cover[worst]:.2f} times debt service in "
            f"{view.quarters[worst]}, and the covenant requires {loan.least_cover_ratio:g}"
        )
