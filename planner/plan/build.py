"""Compiles a scenario and the catalogue into a plan of arrays; no other package reads both."""

from __future__ import annotations

import dataclasses
import functools

from planner.arrays import Floats
from planner.demand.plan import DemandPlan, build_demand_plan
from planner.demand.shape import Horizon
from planner.finance.months import MonthGrid
from planner.finance.pricing import money_plan
from planner.plan.cache_hits import CacheUse, stated_hits
from planner.plan.choice import (
    PREFERRED_UTILISATION,
    Factors,
    Services,
    build_services,
    capacity_table,
    evidence_notes,
    token_time_table,
)
from planner.plan.clusters import cluster_plan
from planner.plan.contradictions import contradictions, slower_drafts
from planner.plan.demand import demand_of
from planner.plan.deployments import Compiler, deployments_of, sharing_notes
from planner.plan.expansion import expansion_plan
from planner.plan.miss_tables import load_tables
from planner.plan.placement import with_placement
from planner.plan.plan import ClusterPlan, Plan, ProcessPlan, WorkloadPlan
from planner.plan.reliability import reliability_plan
from planner.plan.reuse import Reuse
from planner.plan.routing import queue_outgrown, workload_plan
from planner.plan.site import site_plan
from planner.plan.slo_capacity import cut_prompts
from planner.plan.stacks import software_plan
from planner.scenario.scenario import Scenario


def build_plan(
    scenario: Scenario,
    reuse: Reuse | None = None,
    throughput_factors: Factors | None = None,
    *,
    is_placed: bool = True,
) -> Plan:
    """Compile a scenario into a plan; raise ScenarioError when a workload or a cluster cannot work.

    ``reuse`` keeps what the plans of one study share; ``throughput_factors`` multiply what the throughput model says,
    by accelerator, engine and model. One that is not placed has no replicas and no notes, and takes half as long.
    """
    reuse = Reuse(scenario) if reuse is None else reuse
    factors = throughput_factors or {}
    months = MonthGrid(start=scenario.start, horizon_months=scenario.horizon_months)
    horizon = Horizon(start=scenario.start, hours=months.hour_count)
    # Which cluster serves which workload, in which layout: most of what follows rests on it.
    services, refused = build_services(scenario, reuse, factors)
    clusters = tuple(
        cluster_plan(scenario, name, services, months, reuse) for name in scenario.clusters
    )
    workloads = tuple(
        workload_plan(scenario, name, clusters, services, months.mid_years)
        for name in scenario.workloads
    )
    capacity = capacity_table(scenario, services, months.mid_years)
    traffic = tuple(demand_of(scenario, name, horizon, reuse) for name in scenario.workloads)
    demand = _demand_plan(traffic, horizon)
    tables = load_tables(scenario, services, demand, reuse)
    # A router in proportion has no level up to which it fills one cluster first.
    fills_in_order = scenario.routing != "proportional"
    plan = Plan(
        seed=scenario.seed,
        start=scenario.start,
        hours=months.hour_count,
        months=months,
        month_edges_h=months.edge_hours,
        workloads=workloads,
        by_priority=_by_priority(workloads, clusters, capacity, demand),
        clusters=clusters,
        demand=demand,
        requests_per_node_h=capacity,
        token_time=token_time_table(scenario, services),
        **tables._asdict(),
        caches=_caches(scenario, services),
        preferred_utilisation=PREFERRED_UTILISATION if fills_in_order else 0.0,
        reliability=reliability_plan(scenario, reuse.catalog),
        software=software_plan(scenario, clusters, services, reuse),
        site=site_plan(scenario, clusters, months.hour_count),
        expansion=expansion_plan(scenario, months),
        money=money_plan(scenario, reuse.catalog, clusters, months, capacity),
        slo_target=scenario.slo_target,
        warnings=(),
        notes=(),
        throughput_factors=factors,
        processes=_process_plans(scenario),
    )
    # Placement divides the capacity that outgrown workloads still have, so they come first.
    plan = queue_outgrown(scenario, plan)
    if not is_placed:
        return plan
    compiler = Compiler(
        scenario=scenario,
        plan=plan,
        services=services,
        factors=factors,
        reuse=reuse,
    )
    plan = with_placement(plan, deployments_of(compiler))
    # Last, since they read the finished plan.
    warnings, notes = contradictions(scenario, plan, traffic)
    warnings += slower_drafts(scenario, services, reuse)
    calibration_notes = scenario.load_calibration().biased(
        service.spec for service in services.values()
    )
    notes = [
        *refused,
        *notes,
        *stated_hits(scenario),
        *cut_prompts(scenario, reuse.catalog),
        *sharing_notes(scenario, plan),
        *calibration_notes,
    ]
    notes += evidence_notes(scenario, services)
    return dataclasses.replace(plan, warnings=tuple(warnings), notes=tuple(notes))


def _caches(scenario: Scenario, services: Services) -> dict[tuple[int, int], CacheUse]:
    """Return what is found in the prefix cache, by cluster and workload where it follows from memory."""
    clusters = list(scenario.clusters)
    workloads = list(scenario.workloads)
    caches = {}
    for (cluster, workload), service in services.items():
        if service.cache is not None:
            caches[clusters.index(cluster), workloads.index(workload)] = service.cache
    return caches


def _process_plans(scenario: Scenario) -> tuple[ProcessPlan, ...]:
    """Return the user's processes with their code, which workers of a study run without the file."""
    processes = []
    for process, (file, source) in zip(scenario.processes, scenario.load_code(), strict=True):
        processes.append(ProcessPlan(function=process.function, file=file, source=source))
    return tuple(processes)


_demand_plan = functools.lru_cache(maxsize=1)(build_demand_plan)
"""The traffic of a plan; the last one is kept, since plans compiled one after another mostly share it."""


def _by_priority(
    workloads: tuple[WorkloadPlan, ...],
    clusters: tuple[ClusterPlan, ...],
    capacity: Floats,
    demand: DemandPlan,
) -> tuple[int, ...]:
    """Return the workloads in the order in which they are served.

    By priority, deadline, and the number of clusters that can serve each; the rest only makes the order a matter of
    figures, not of names or places in the file. Clusters are those that are there first: what is delivered later must
    not move what was.
    """
    first_h = min((cluster.earliest_h for cluster in clusters), default=0.0)
    first = [c for c, cluster in enumerate(clusters) if cluster.earliest_h <= first_h]

    def sort_key(index: int) -> tuple[float, ...]:
        workload = workloads[index]
        return (
            workload.priority,
            workload.deadline_h,
            len({*workload.cluster_order} & {*first}),
            float(workload.tokens_per_request[0]),
            *sorted(capacity[first, index, 0]),
            float(demand.expected_requests_per_s[index, 0]),
        )

    indices = range(len(workloads))
    return tuple(sorted(indices, key=sort_key))
