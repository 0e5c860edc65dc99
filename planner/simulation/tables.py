"""A run as tables: columns by name, ready for a CSV file or a data frame."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.finance.accounts import ACCOUNT_ORDER
from planner.simulation.result import FLEET, RunResult
from planner.units import MILLION

Columns = dict[str, list[Any] | NDArray[Any]]


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide, leaving NaN (an empty cell) where there is nothing to divide by."""
    quotient: NDArray[np.float64] = np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)
    return quotient


def _with_fleet(per_cluster: NDArray[np.float64], fleet: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Append the whole fleet as a last column; the sum of clusters unless given."""
    whole = per_cluster.sum(axis=1) if fleet is None else fleet
    return np.column_stack((per_cluster, whole))


def timeline_monthly(result: RunResult) -> Columns:
    """One row per month and cluster, then the fleet; demand and shed tokens belong to the fleet as a whole."""
    monthly, plan = result.monthly, result.plan
    clusters = len(plan.clusters)
    hours = plan.months.period_hours.astype(float)[:, None]
    nowhere = np.full((len(hours), clusters), np.nan)
    in_service = _with_fleet(monthly.accelerator_hours_in_service)
    served = _with_fleet(monthly.served_tokens)
    output = _with_fleet(monthly.served_output_tokens)
    cost = _with_fleet(result.cost_usd())
    table = {
        "accelerators_in_service": in_service / hours,
        "availability_fraction": _ratio(in_service, _with_fleet(monthly.accelerator_hours_delivered)),
        "utilisation_fraction": _ratio(_with_fleet(monthly.busy_accelerator_hours), in_service),
        "demand_tokens": _with_fleet(nowhere, monthly.demand_tokens.sum(axis=1)),
        "served_tokens": served,
        "shed_tokens": _with_fleet(nowhere, monthly.shed_tokens.sum(axis=1)),
        "energy_kwh": _with_fleet(monthly.energy_kwh) * plan.money.pue_ratio,
        "cost_usd": cost,
        "cost_per_million_tokens_usd": _ratio(cost, served / MILLION),
        "served_output_tokens": output,
        "cost_per_million_output_tokens_usd": _ratio(cost, output / MILLION),
        "backlog_tokens": _with_fleet(nowhere, monthly.backlog_tokens.sum(axis=1)),
    }
    names = [*(cluster.name for cluster in plan.clusters), FLEET]
    columns: Columns = {
        "month": [label for label in plan.months.labels for _ in names],
        "cluster": names * len(plan.months.labels),
    }
    columns.update({name: values.ravel() for name, values in table.items()})
    return columns


def ledger(result: RunResult) -> Columns:
    """One row per month, cluster, account and purchase cohort."""
    book = result.ledger
    clusters, cohorts = (*book.labels.clusters, FLEET), (*book.labels.cohorts, "")
    return {
        "month": [book.labels.months[index] for index in book.month_index],
        "cluster": [clusters[index] for index in book.cluster_index],
        "account": [str(ACCOUNT_ORDER[code]) for code in book.account_code],
        "amount_usd": book.amount_cents / 100.0,
        "cohort": [cohorts[index] for index in book.cohort_index],
    }


def events(result: RunResult) -> Columns:
    """One row per change of the fleet, in time order."""
    start = datetime.datetime.combine(result.plan.months.start, datetime.time())
    clusters = [cluster.name for cluster in result.plan.clusters]
    changes = result.changes
    stamps = [start + datetime.timedelta(hours=change.time_h) for change in changes]
    return {
        "time": [stamp.isoformat(timespec="seconds") for stamp in stamps],
        "time_h": np.array([change.time_h for change in changes], dtype=np.float64),
        "cluster": [clusters[change.cluster] for change in changes],
        "event": [str(change.kind) for change in changes],
        "cause": [change.cause for change in changes],
        "node": np.array([change.node for change in changes], dtype=np.int64),
        "nodes_in_service_change": np.array([change.nodes for change in changes], dtype=np.int64),
    }
