"""What support costs: hours that are paid for, people as many as there are, spare parts, those of hard failures."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats
from planner.engine.driver import Run
from planner.engine.log import ChangeLog
from planner.plan.plan import Plan
from planner.plan.quantities import shares
from planner.plan.software_plan import Headcount
from planner.run.monthly import Monthly

MOST_LOAD = 0.9
"""Load of a queue beyond which it is named; with one server waits are then nine times the work (M/M/1)."""


def paid_node_h(plan: Plan, monthly: Monthly) -> Floats:
    """Return the node-hours that are paid for, shape (months, clusters): all, or by the hour those at work."""
    by_the_hour = np.array([cluster.is_paid_by_the_hour for cluster in plan.clusters])
    return np.where(by_the_hour, monthly.busy_node_h, monthly.present_node_h)


def people(plan: Plan, log: ChangeLog, headcount: Headcount, clusters: Sequence[int], accelerators: Floats) -> Floats:
    """Return people by month and cluster: ∫ number(accelerators on site) dt / hours · share, shape (months, clusters).

    They grow with the accelerators of some clusters together, and are the cost of each by its share of them, or of all
    alike in a month without any. ``accelerators`` are means of each month, shape (months, clusters).
    """
    edges = plan.month_edges_h.astype(np.float64)
    changes = sorted(change for change in log.changes if change.cluster in clusters and change.time_h < plan.hours)
    moments = np.array([0.0, *(change.time_h for change in changes), float(plan.hours)])
    on_site = np.cumsum([0, *(change.accelerators for change in changes)])
    level = np.array([headcount.number(count) for count in on_site.tolist()])
    spent = np.concatenate(([0.0], np.cumsum(level * np.diff(moments))))  # linear between moments, so read by interp
    by_month = np.diff(np.interp(edges, moments, spent)) / np.diff(edges)
    belongs = np.isin(np.arange(len(plan.clusters)), clusters).astype(np.float64)
    return np.asarray(by_month[:, None] * shares(accelerators * belongs, belongs), dtype=np.float64)


def overloaded(plan: Plan, monthly: Monthly) -> list[str]:
    """Name the queues for crews and engineers whose load passes 0.9 in some month, where waits grow without bound."""
    nodes = monthly.present_node_h / plan.months.period_hours[:, None]
    reliability, per_node = plan.reliability, plan.accelerators_per_node
    queues: dict[str, list[tuple[float, int]]] = {}
    engineer_load = functools.cache(plan.engineer_load)  # of a team and its number, which is the same for many months
    for month in nodes:
        if crews := reliability.crews.number(float((month * plan.on_site) @ per_node)):
            name = "repair crews (reliability.repair_crews)"
            queues.setdefault(name, []).append((plan.crew_load(month, crews), crews))
        for number, team in enumerate(plan.software.teams):
            members = list(team.clusters)
            if engineers := team.engineers.number(float(month[members] @ per_node[members])):
                name = f"engineers of {team.name} (software.engineers)"
                queues.setdefault(name, []).append((engineer_load(number, engineers), engineers))
    warnings = []
    for name, loads in queues.items():
        load, people_there = max(loads)
        if load > MOST_LOAD:
            warnings.append(f"the {people_there} {name} are at a load of {load:.2f}: above {MOST_LOAD:g} work piles up")
    return warnings


def spares_usd(plan: Plan, run: Run) -> Floats:
    """Return the spare parts bought with each delivery, as the stock grows with it, shape (months, clusters).

    The stock of machines owned before the start is owned with them.
    """
    cost = np.zeros((plan.months.period_count, len(plan.clusters)))
    nodes, stock = [0] * len(plan.clusters), [0] * len(plan.clusters)
    for purchase in sorted(run.log.purchases):
        index = purchase.cluster
        nodes[index] += purchase.nodes
        wanted = plan.reliability.spares.number(nodes[index] * plan.clusters[index].accelerators_per_node, nodes[index])
        if purchase.time_h >= 0:
            month = int(plan.months.period_of_hour(np.array(purchase.time_h)))
            cost[month, index] += (wanted - stock[index]) * plan.money.upkeep.part_usd[index]
        stock[index] = wanted
    return cost


def rma_usd(plan: Plan, run: Run) -> Floats:
    """Return freight of every hard failure's part, and the part itself once the warranty is over.

    Shape (months, clusters). A failure that found its machine already down broke nothing and costs nothing.
    """
    upkeep, grid = plan.money.upkeep, plan.months
    cost = np.zeros((grid.period_count, len(plan.clusters)))
    time_h, cluster, node = run.shop.hard_failures()
    bought_h = np.zeros(time_h.shape)
    for index in range(len(plan.clusters)):
        # Nodes are numbered in the order of the log; the warranty runs from delivery.
        entered = [change for change in run.log.changes if change.cluster == index and change.purchase >= 0]
        nodes = [change.accelerators // plan.clusters[index].accelerators_per_node for change in entered]
        paid_h = np.repeat([run.log.purchases[change.purchase].time_h for change in entered], nodes)
        bought_h[cluster == index] = paid_h[node[cluster == index]]
    expired = time_h - bought_h >= upkeep.warranty_h
    unit_usd = upkeep.rma_usd + np.where(expired, upkeep.replacement_usd[cluster], 0.0)
    np.add.at(cost, (grid.period_of_hour(time_h), cluster), unit_usd)
    return cost
