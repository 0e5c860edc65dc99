"""The reference scenario as a sheet: months in rows, mean demand against mean capacity, nothing that happens.

It has no hour, no failure, no queue and no chance: kept to show what a replication of all that costs beside it.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from planner.plan.plan import Plan
from planner.units import MONTHS_PER_YEAR, SECONDS_PER_HOUR

PRICE_USD = 30_000.0  # of an accelerator, in round figures
LIFE_YEARS = 5.0
USD_PER_KWH = 0.08


def monthly_sheet(plan: Plan) -> pd.DataFrame:
    """Return requests asked for, served and shed, node hours, energy and cost by month and cluster."""
    months = len(plan.month_edges_h) - 1
    hours = np.diff(plan.month_edges_h)
    owner = np.repeat(np.arange(months), hours.astype(int))
    demand = pd.DataFrame(
        plan.demand.expected_requests_per_s.T * SECONDS_PER_HOUR, columns=plan.demand.names
    )
    wanted = demand.groupby(owner).sum()
    rows = []
    free = pd.DataFrame(
        {
            cluster.name: cluster.nodes
            * np.clip(plan.month_edges_h[1:] - (cluster.online_h or 0.0), 0.0, hours)
            for cluster in plan.clusters
        }
    )
    present = free.copy()
    for w in plan.by_priority:
        left = wanted[plan.workloads[w].name].to_numpy(copy=True)
        for c in plan.workloads[w].cluster_order:
            name = plan.clusters[c].name
            rate = np.broadcast_to(plan.requests_per_node_h[c, w], months)
            served = np.minimum(free[name] * rate, left)
            free[name] -= served / rate
            left -= served
            rows.append(
                pd.DataFrame({"month": np.arange(months), "cluster": name, "served": served})
            )
        rows.append(pd.DataFrame({"month": np.arange(months), "cluster": "none", "shed": left}))
    sheet = pd.concat(rows).pivot_table(
        index="month", columns="cluster", aggfunc="sum", fill_value=0.0
    )
    more = {}
    for cluster in plan.clusters:
        used = (present[cluster.name] - free[cluster.name]).to_numpy()
        idle_kw, full_kw = (
            float(cluster.node_power.node_kw(np.array([load]))[0]) for load in (0.0, 1.0)
        )
        kwh = present[cluster.name].to_numpy() * idle_kw + used * (full_kw - idle_kw)
        more["used_node_h", cluster.name] = used
        more["kwh", cluster.name] = kwh
        bought = cluster.nodes * cluster.accelerators_per_node * PRICE_USD
        more["cost_usd", cluster.name] = bought / LIFE_YEARS / MONTHS_PER_YEAR + kwh * USD_PER_KWH
    return pd.concat([sheet, pd.DataFrame(more, index=sheet.index)], axis=1)
