"""Contradictions in a compiled scenario: errors where the plan cannot be meant, warnings where it may be."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

import numpy as np

from planner.build.capacity import served_precision
from planner.build.clusters import order_date
from planner.build.events import refuse_floods
from planner.documents import KeyPath
from planner.errors import Problem, ScenarioError
from planner.finance.months import add_months
from planner.fleet.plan import ClusterPlan, Plan
from planner.fleet.power import allowed_it_kw
from planner.scenario.prices import dated_quotes, window_zone
from planner.scenario.scenario import Scenario
from planner.units import SECONDS_PER_HOUR


def contradictions(scenario: Scenario, plan: Plan) -> list[str]:
    """Raise ScenarioError for what cannot work; return warnings, each with the numbers that contradict."""
    problems: list[Problem] = []
    warnings: list[str] = []

    def refuse(path: KeyPath, message: str) -> None:
        problems.append(scenario.document.problem(path, message))

    for cluster in plan.clusters:
        late = _arrival(cluster, plan)
        if late is not None:
            earliest, latest = late
            if earliest >= plan.hours:
                message = (
                    f"arrives {earliest / 24:,.0f} days after the start at the earliest; "
                    f"the horizon is {plan.hours / 24:,.0f}"
                )
                refuse(("clusters", cluster.name, "order"), message)
            elif latest >= plan.hours:
                warnings.append(
                    f"cluster {cluster.name} may arrive after the horizon: up to {latest / 24:,.0f} days in, "
                    f"of {plan.hours / 24:,.0f}"
                )
    refuse_floods(plan, refuse)
    warnings += _power(plan, refuse)
    warnings += _blocks(plan)
    warnings += _demand(plan)
    warnings += _precisions(scenario, plan)
    warnings += [
        f"{scenario.document.problem(('workloads', name, 'model_launch'), str(scenario.workloads[name].model_launch))} "
        "is after the horizon: it brings no traffic"
        for name, workload in zip(scenario.workloads, plan.workloads, strict=True)
        if workload.launch_h is not None and workload.launch_h >= plan.hours
    ]
    warnings += _unused_quotes(scenario)
    warnings += _clock(scenario)
    warnings += _outgrown(plan)
    if problems:
        raise ScenarioError(problems)
    return warnings


def _arrival(cluster: ClusterPlan, plan: Plan) -> tuple[float, float] | None:
    """Return the earliest and the latest arrival of an order's first shipment."""
    order = cluster.order
    if order is None:
        return None
    promised = order.placed_h + order.lead_h + plan.site.commissioning_h
    return promised + order.slip_h.low, promised + order.slip_h.high + (order.deliveries - 1) * order.interval_h


def _power(plan: Plan, refuse: Callable[[KeyPath, str], None]) -> list[str]:
    """Hold the power cap against what one node and all of them draw at full load."""
    if plan.site.cap_kw is None:
        return []
    cap = float(np.min(plan.site.cap_kw))
    hours = np.array([int(np.argmin(plan.site.cap_kw))])
    allowed = float(allowed_it_kw(plan, plan.site.cap_kw[hours], hours)[0])
    one = min(cluster.node_power.full_kw for cluster in plan.clusters)
    full = sum(cluster.nodes * cluster.node_power.full_kw for cluster in plan.clusters)
    if np.min(plan.site.cap_kw) == np.max(plan.site.cap_kw) and one > allowed:
        message = (
            f"{cap:,.1f} kW of facility power carry {allowed:,.1f} kW of IT load, "
            f"but a single node draws {one:,.1f} kW at full load"
        )
        refuse(("site", "power_cap_kw"), message)
        return []
    if full > allowed:
        return [
            f"the site can carry {allowed:,.0f} kW of IT load at its tightest; "
            f"the clusters draw {full:,.0f} kW at full load"
        ]
    return []


def _blocks(plan: Plan) -> list[str]:
    """Hold energised power against nameplate power."""
    needed = sum(cluster.nodes * cluster.nameplate_kw for cluster in plan.clusters)
    if plan.site.block_kw.size and plan.site.block_kw[-1] < needed:
        return [
            f"power blocks energise {plan.site.block_kw[-1]:,.0f} kW in all; "
            f"the clusters' nameplate is {needed:,.0f} kW, "
            "so some nodes are paid for and will never serve"
        ]
    return []


def _unused_quotes(scenario: Scenario) -> list[str]:
    """Name the offers that hold on no day on which the cluster can order: at first, or when a review buys."""
    found = []
    end = add_months(scenario.start, scenario.horizon_months)
    for name, cluster in scenario.clusters.items():
        first = order_date(scenario, cluster)
        rules = (rule for rule in scenario.expansion.rules if rule.cluster == name)
        reviewed = any(rule.when != "utilisation_below" for rule in rules)  # which retires; all others buy
        for quote in dated_quotes(cluster):
            begins, ends = quote.valid_from or date.min, quote.valid_until or date.max
            if quote.holds_on(first) or (reviewed and begins < end and ends >= scenario.start):
                continue
            held = f"from {begins} " if quote.valid_from else ""
            held += f"until {ends}" if quote.valid_until else "on"
            later = f", and a review buys from {scenario.start} on" if reviewed else ""
            found.append(
                f"cluster {name}: no order can use the quote {quote.name!r}, which holds {held}; its nodes are ordered "
                f"on {first}{later}, at the cluster's own price"
            )
    return found


def _clock(scenario: Scenario) -> list[str]:
    """Say that time-of-use windows are read on the clock of the run where nothing says where the site is."""
    tariff = scenario.load_catalog().tariff(scenario.site.tariff)
    if not scenario.site.electricity.windows or window_zone(scenario.site, tariff) is not None:
        return []
    return [
        "site.electricity.windows are read on UTC clocks: neither site.electricity.timezone nor the tariff "
        f"{scenario.site.tariff} names a time zone"
    ]


def _outgrown(plan: Plan) -> list[str]:
    """Name the workloads whose requests grow too long for their objective, and from which month on."""
    warnings = []
    for w, workload in enumerate(plan.workloads):
        for c in workload.cluster_order:
            months = np.flatnonzero(plan.requests_per_node_h[c, w] <= 0.0)
            if months.size:
                begins = add_months(plan.start, int(months[0]))
                warnings.append(
                    f"workload {workload.name} outgrows its objective on {plan.clusters[c].name} in {begins:%Y-%m}: "
                    "its requests are then so long that no batch meets it, and are refused there"
                )
    return warnings


def _demand(plan: Plan) -> list[str]:
    """Hold the last month's mean demand against all the nodes bought."""
    last = slice(int(plan.month_edges_h[-2]), int(plan.month_edges_h[-1]))
    wanted = plan.demand.expected_requests_per_s[:, last].mean(axis=1) * SECONDS_PER_HOUR
    rates = plan.requests_per_node_h[:, :, -1]
    share = 0.0
    for w in range(len(plan.workloads)):
        capacity = sum(plan.clusters[c].nodes * rates[c, w] for c in plan.workloads[w].cluster_order)
        share += wanted[w] / capacity if capacity > 0 else 0.0
    if share > 1.0 and not plan.expansion.rules:
        return [
            f"by the last month mean demand is {share:.2f} times what all clusters sustain with the software of day one"
        ]
    return []


def _precisions(scenario: Scenario, plan: Plan) -> list[str]:
    """Say where a workload's stated precision goes before a cluster's narrower one."""
    warnings = []
    catalog = scenario.load_catalog()
    for w, (name, workload) in enumerate(scenario.workloads.items()):
        for c, (cluster_name, cluster) in enumerate(scenario.clusters.items()):
            served = served_precision(cluster, workload, catalog)
            if cluster.precision not in (None, served) and c in plan.workloads[w].cluster_order:
                mine, other = ("workloads", name, "precision"), ("clusters", cluster_name, "precision")
                warnings.append(
                    f"{scenario.document.problem(mine, served)} goes before "
                    f"{scenario.document.problem(other, str(cluster.precision))}: "
                    f"{name} is served in {served} on {cluster_name}"
                )
    return warnings
