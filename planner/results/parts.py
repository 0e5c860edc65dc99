"""What repairs cost: the stock of spare parts, and the part of each hard failure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.fleet.plan import Plan
from planner.simulation.driver import Run
from planner.simulation.failures import HARD, Failures

Floats = NDArray[np.float64]


def spares_usd(plan: Plan, run: Run) -> Floats:
    """Return the spare parts bought with each cluster's first delivery, shape (months, clusters).

    The stock of machines owned before the start is owned with them.
    """
    cost = np.zeros((plan.months.period_count, len(plan.clusters)))
    seen: set[int] = set()
    for purchase in sorted(run.log.purchases):
        if purchase.cluster not in seen:
            seen.add(purchase.cluster)
            if purchase.time_h < 0:
                continue
            month = int(plan.months.period_of_hour(np.array(purchase.time_h)))
            cost[month, purchase.cluster] = (
                len(run.shop.spares[purchase.cluster]) * plan.money.upkeep.part_usd[purchase.cluster]
            )
    return cost


def rma_usd(plan: Plan, run: Run) -> Floats:
    """Return freight of every hard failure's part, and the part itself once the warranty is over.

    Shape (months, clusters). A failure that found its machine already down broke nothing and costs nothing.
    """
    upkeep, grid = plan.money.upkeep, plan.months
    cost = np.zeros((grid.period_count, len(plan.clusters)))
    if not run.shop.failed or not run.shop.failure:
        return cost
    whole = Failures.joined(run.shop.failed)
    numbers = np.unique(np.array(run.shop.failure))
    numbers = numbers[whole.severity[numbers] == HARD]
    cluster = np.concatenate(run.shop.owner)[numbers]
    time_h, node = whole.time_h[numbers], whole.node[numbers]
    bought_h = np.zeros(time_h.shape)
    for index in range(len(plan.clusters)):
        # Nodes are numbered in the order of the log; the warranty runs from delivery.
        entered = [change for change in run.log.changes if change.cluster == index and change.purchase >= 0]
        nodes = [change.accelerators // plan.clusters[index].accelerators_per_node for change in entered]
        paid_h = np.repeat([run.log.purchases[change.purchase].time_h for change in entered], nodes)
        bought_h[cluster == index] = paid_h[node[cluster == index]]
    expired = time_h - bought_h >= upkeep.warranty_h
    each = upkeep.rma_usd + np.where(expired, upkeep.replacement_usd[cluster], 0.0)
    np.add.at(cost, (grid.period_of_hour(time_h), cluster), each)
    return cost
