"""The series of a run that months which happened can be held against."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.arrays import Floats
from planner.finance.accounts import ACCOUNT_CODES, Account
from planner.finance.cents import usd
from planner.finance.ledger import Dimension
from planner.plan import quantities
from planner.run.measures import Sums, sums_of, with_fleet
from planner.run.result import RunResult
from planner.scenario.actuals import FLEET, Seen


def observed(result: RunResult, series: Sequence[Seen]) -> Floats:
    """Return a run's series by month, shape (series, months); NaN where there is nothing to divide."""
    accounts = usd(result.ledger.totals_cents(Dimension.MONTH, Dimension.ACCOUNT))
    by_cluster = _by_cluster(result, sums_of(result))
    by_workload = _by_workload(result)
    clusters = [*(cluster.name for cluster in result.plan.clusters), FLEET]
    workloads = [workload.name for workload in result.plan.workloads]

    def one(seen: Seen) -> Floats:
        match seen.kind:
            case "account":
                return np.asarray(accounts[:, ACCOUNT_CODES[Account(seen.name)]])
            case "workload":
                return by_workload[seen.name][:, workloads.index(seen.of)]
        table = by_cluster[seen.name]
        return table if table.ndim == 1 else table[:, clusters.index(seen.of)]

    months = len(result.plan.months.labels)
    return np.stack([one(seen) for seen in series]) if series else np.zeros((0, months))


def _by_cluster(result: RunResult, sums: Sums) -> dict[str, Floats]:
    """Return the figures of clusters and the fleet, and those that only the fleet has."""
    hours = result.plan.months.period_hours[:, None]
    return {
        **sums.figures(),
        **sums.fleet_figures(),
        "accelerators_in_service": sums.in_service_h / hours,
        "peak_facility_kw": result.monthly.peak_facility_kw,
        "lost_to_failures_node_h": with_fleet(result.monthly.failed_node_h),
        "lost_to_software_node_h": with_fleet(result.monthly.drag_node_h),
    }


def _by_workload(result: RunResult) -> dict[str, Floats]:
    """Return the figures of workloads, shape (months, workloads) each."""
    monthly = result.monthly
    served = monthly.served_requests.sum(axis=1) + result.rented.requests
    return {
        "demand_tokens": result.tokens(monthly.demand_requests),
        "served_tokens": result.tokens(served),
        "served_output_tokens": result.tokens(served, output_only=True),
        "shed_tokens": result.tokens(result.shed_requests()),
        "late_tokens": result.tokens(monthly.late_requests),
        "slo_attainment_fraction": quantities.in_time(result.missed_requests(), result.settled_requests()),
    }
