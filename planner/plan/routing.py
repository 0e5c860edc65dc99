"""Workloads, compiled for routing: the clusters that can serve each, in the order in which they are offered it."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats
from planner.plan.choice import Services
from planner.plan.plan import ClusterPlan, Plan, WorkloadPlan
from planner.scenario.scenario import Scenario
from planner.units import HOURS_PER_DAY

_SAME_POWER = 0.02
"""Difference in power at which machines are the same to a router."""
_PRIORITY = {"interactive": 0, "standard": 1, "deferrable": 2}
"""Lower is served first."""
_DEFAULT_DEADLINE_H = 24.0
"""Completion window of deferrable work that states none."""
_MOST_IDLE_MISSES = 0.5
"""Share of what an SLO target allows that may be late on an idle cluster which goes by its energy; assumption."""


def workload_plan(
    scenario: Scenario,
    name: str,
    clusters: Sequence[ClusterPlan],
    services: Services,
    years: Floats,
) -> WorkloadPlan:
    """Compile one workload for routing and accounting; ``years`` are times to the middle of each month."""
    workload = scenario.workloads[name]
    deadline_h = 0
    if workload.priority == "deferrable":
        window_h = workload.completion_window_h
        if window_h is None:
            window_h = _DEFAULT_DEADLINE_H
        # At least one hour: 0 would mean work that is shed at once.
        deadline_h = max(1, round(window_h))
    # Prompts and replies grow alike.
    growth = (1.0 + workload.lengths.growth_per_year) ** years
    preference = workload.cluster_preference if scenario.routing == "preference" else ()
    places = {cluster: place for place, cluster in enumerate(preference)}
    # Clusters that the user does not name come after those named, all of one rank.
    unranked = len(places)
    ranks = [places.get(cluster.name, unranked) for cluster in clusters]
    tiers = _tiers(scenario, name, clusters, services, ranks)
    launch_h = None
    if workload.model_launch is not None:
        launch_h = _hours_from(scenario, workload.model_launch, 0.0)
    return WorkloadPlan(
        name=name,
        model=workload.model,
        input_tokens=workload.lengths.input.mean * growth,
        output_tokens=workload.lengths.output.mean * growth,
        priority=_PRIORITY[workload.priority],
        deadline_h=deadline_h,
        cluster_tiers=tuple(map(tuple, tiers)),
        # They are at the end, unless the user has ranked them.
        rented_tiers=sum(
            clusters[cluster].is_paid_by_the_hour and ranks[cluster] == unranked
            for cluster, *_ in tiers
        ),
        launch_h=launch_h,
        begins_h=_hours_from(scenario, workload.begins, 0.0),
        ends_h=_hours_from(scenario, workload.ends, math.inf),
        is_wanted=workload.requests_per_s > 0.0,
        cached_input_fraction=_cached_input(scenario, name, services),
    )


def _hours_from(scenario: Scenario, day: datetime.date | None, absent_h: float) -> float:
    """Return the hours from the scenario's start to a day, or those of a day that is not stated."""
    if day is None:
        return absent_h
    return (day - scenario.start).days * HOURS_PER_DAY


def _cached_input(scenario: Scenario, name: str, services: Services) -> float:
    """Return the share of a workload's prompts in the prefix cache: as stated, or the mean of the nodes bought for it.

    An API is taken to find as much as they do.
    """
    workload = scenario.workloads[name]
    weights = []
    found = []
    for (cluster, served), service in services.items():
        if served == name and service.cache is not None:
            weights.append(max(scenario.clusters[cluster].nodes, 1) * service.requests_per_s)
            found.append(service.cache.found_fractions[-1])
    if not found:
        return workload.prefix_cache_hit_fraction
    return float(np.average(found, weights=weights))


def _tiers(
    scenario: Scenario,
    name: str,
    clusters: Sequence[ClusterPlan],
    services: Services,
    ranks: list[int],
) -> list[list[int]]:
    """Return the clusters that can serve a workload in routing order, alike ones in one tier.

    Machines bought in several waves are one pool to a router: the same replica at the same speed, paid in the same way,
    at about the same power, which the mix that each was bought for moves a little.
    """

    def kind(index: int) -> tuple[object, ...]:
        cluster = clusters[index]
        service = services[cluster.name, name]
        return ranks[index], service.spec, service.speed, _rent_usd_per_h(cluster)

    def is_alike(index: int, tier: list[int]) -> bool:
        full_kw = clusters[index].node_power.full_kw
        # Its first member stands for a tier, so that small differences do not add up along it.
        tier_kw = clusters[tier[0]].node_power.full_kw
        is_as_strong = math.isclose(tier_kw, full_kw, rel_tol=_SAME_POWER)
        return is_as_strong and kind(tier[0]) == kind(index)

    order = _routing_order(scenario, name, clusters, services, ranks)
    tiers: list[list[int]] = []
    # The earliest first, so that what comes later neither parts those before it nor moves them.
    for index in sorted(order, key=lambda index: clusters[index].earliest_h):
        alike_tiers = [tier for tier in tiers if is_alike(index, tier)]
        if alike_tiers:
            alike_tiers[0].append(index)
        else:
            tiers.append([index])
    tiers.sort(key=lambda tier: order.index(tier[0]))
    return [sorted(tier, key=order.index) for tier in tiers]


def _routing_order(
    scenario: Scenario,
    name: str,
    clusters: Sequence[ClusterPlan],
    services: Services,
    ranks: list[int],
) -> list[int]:
    """Return the clusters that can serve a workload, in the order set by the routing policy.

    What another request costs decides: rent where only hours at work are paid, and energy among what is paid anyway.
    Clusters on which much of what the target allows is late even when they are idle come after others paid alike.
    """
    allowed_misses = 1.0 - scenario.slo_target.attainment_of(name)

    def sort_key(index: int) -> tuple[int, float, bool, float, str]:
        cluster = clusters[index]
        service = services[cluster.name, name]
        node_usd_per_h = _rent_usd_per_h(cluster) * cluster.accelerators_per_node
        rent_usd = node_usd_per_h / service.requests_per_s
        late_when_idle = service.lateness.late_fractions[0]
        is_slow = late_when_idle > _MOST_IDLE_MISSES * allowed_misses
        energy = cluster.node_power.full_kw / service.requests_per_s
        # Ranks are all the same unless the policy is preference.
        return ranks[index], rent_usd, is_slow, energy, cluster.name

    able = [index for index, cluster in enumerate(clusters) if (cluster.name, name) in services]
    return sorted(able, key=sort_key)


def _rent_usd_per_h(cluster: ClusterPlan) -> float:
    """Return the rent of an accelerator's busy hour at the start; 0 where idle hours are paid as well."""
    if cluster.rent is None or not cluster.is_paid_by_the_hour:
        return 0.0
    return float(cluster.rent.usd_per_accelerator_h[0])


def queue_outgrown(scenario: Scenario, plan: Plan) -> Plan:
    """Return the plan in which queueing workloads are served late once no batch meets their SLO.

    The share is that of its tokens in all tokens of the last month in which a cluster met the objective. A node then
    serves as many of its tokens as it last did in time: more would only make them later.
    """
    table = plan.requests_per_node_h.copy()
    workloads = list(plan.workloads)
    month_starts = plan.month_edges_h[:-1]
    hourly_requests = plan.demand.expected_requests_per_s
    # Sums of rates by month: only their shares are used, so the seconds of an hour cancel.
    demand_tokens = np.add.reduceat(hourly_requests, month_starts, axis=1)
    demand_tokens *= plan.tokens_per_request.T
    for w, workload in enumerate(plan.workloads):
        clusters = list(workload.cluster_order)
        is_outgrown = np.all(table[clusters, w] <= 0.0, axis=0)
        rejects = scenario.workloads[workload.name].admission == "reject"
        if rejects or workload.deadline_h or not is_outgrown.any():
            continue
        # In the first month there is none before it.
        final_month = max(int(is_outgrown.argmax()) - 1, 0)
        tokens = workload.tokens_per_request
        for c in clusters:
            # Each cluster has its own last month in which it met the objective.
            met_months = np.flatnonzero(table[c, w] > 0.0)
            month = int(met_months[-1])
            tokens_per_node_h = table[c, w, month] * tokens[month]
            table[c, w, is_outgrown] = tokens_per_node_h / tokens[is_outgrown]
        month_tokens = demand_tokens[:, final_month]
        share = month_tokens[w] / month_tokens.sum()
        overdue_share = np.where(is_outgrown, share, 0.0)
        workloads[w] = dataclasses.replace(workload, overdue_share=overdue_share)
    return dataclasses.replace(plan, workloads=tuple(workloads), requests_per_node_h=table)
