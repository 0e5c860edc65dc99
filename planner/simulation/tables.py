"""A run as tables: columns by name, ready for a CSV file or a data frame."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.finance.accounts import ACCOUNT_ORDER
from planner.simulation.event_table import events
from planner.simulation.ownership import levelised_to_date, ownership
from planner.simulation.result import FLEET, RunResult
from planner.units import HOURS_PER_DAY, MILLION

__all__ = ["events", "ledger", "losses", "timeline_daily", "timeline_hourly", "timeline_monthly", "timeline_workloads"]

Floats = NDArray[np.float64]
Columns = dict[str, Any]


def ratio(above: Floats, below: Floats) -> Floats:
    """Divide, leaving NaN (an empty cell) where there is nothing to divide by."""
    quotient: Floats = np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0)
    return quotient


def _with_fleet(per_cluster: Floats, fleet: Floats | None = None) -> Floats:
    """Append the whole fleet as a last column; the sum of clusters unless given."""
    whole = per_cluster.sum(axis=1) if fleet is None else fleet
    return np.column_stack((per_cluster, whole))


def timeline_monthly(result: RunResult) -> Columns:
    """One row per month and cluster, then the fleet; demand, shed and late work belong to the fleet as a whole."""
    monthly, plan = result.monthly, result.plan
    clusters = len(plan.clusters)
    hours = plan.months.period_hours.astype(float)[:, None]
    nowhere = np.full((len(hours), clusters), np.nan)
    per_node = np.array([cluster.accelerators_per_node for cluster in plan.clusters])
    in_service = _with_fleet(monthly.in_service_node_h * per_node)
    rented = result.tokens(result.rented.requests).sum(axis=1)
    rented_output = result.tokens(result.rented.requests, output_only=True).sum(axis=1)
    served = _with_fleet(result.tokens(monthly.served_requests).sum(axis=2))
    output = _with_fleet(result.tokens(monthly.served_requests, output_only=True).sum(axis=2))
    served[:, -1] += rented
    output[:, -1] += rented_output
    cost = _with_fleet(result.cost_usd(), result.fleet_cost_usd())
    demand = result.tokens(monthly.demand_requests).sum(axis=1)
    shed = result.tokens(result.shed_requests()).sum(axis=1)
    backlog = np.cumsum(demand - shed - served[:, -1])
    handled = monthly.demand_requests.sum(axis=1)
    missed = monthly.late_requests.sum(axis=1) + result.shed_requests().sum(axis=1)
    all_cost, owner = np.cumsum(cost, axis=0), ownership(result)
    table = {
        "accelerators_in_service": in_service / hours,
        "availability_fraction": ratio(in_service, _with_fleet(monthly.present_node_h * per_node)),
        "utilisation_fraction": ratio(_with_fleet(monthly.busy_node_h * per_node), in_service),
        "demand_tokens": _with_fleet(nowhere, demand),
        "served_tokens": served,
        "shed_tokens": _with_fleet(nowhere, shed),
        "energy_kwh": _with_fleet(monthly.facility_kwh),
        "cost_usd": cost,
        "cost_per_million_tokens_usd": ratio(cost, served / MILLION),
        "served_output_tokens": output,
        "cost_per_million_output_tokens_usd": ratio(cost, output / MILLION),
        "backlog_tokens": _with_fleet(nowhere, np.where(np.abs(backlog) < 1e-9 * demand.sum(), 0.0, backlog)),
        "slo_attainment_fraction": _with_fleet(nowhere, 1.0 - ratio(missed, handled)),
        "peak_facility_kw": _with_fleet(nowhere, monthly.peak_facility_kw),
        "cumulative_cost_per_million_tokens_usd": ratio(all_cost, np.cumsum(served, axis=0) / MILLION),
        "cumulative_cost_per_million_output_tokens_usd": ratio(all_cost, np.cumsum(output, axis=0) / MILLION),
        "levelised_cost_per_million_tokens_usd": levelised_to_date(owner, served),
        "levelised_cost_per_million_output_tokens_usd": levelised_to_date(owner, output),
        "rented_tokens": _with_fleet(nowhere, rented),
    }
    names = [*(cluster.name for cluster in plan.clusters), FLEET]
    columns: Columns = {
        "month": [label for label in plan.months.labels for _ in names],
        "cluster": names * len(plan.months.labels),
    }
    columns.update({name: values.ravel() for name, values in table.items()})
    return columns


def timeline_workloads(result: RunResult) -> Columns:
    """One row per month and workload."""
    monthly, plan = result.monthly, result.plan
    names = [workload.name for workload in plan.workloads]
    served = monthly.served_requests.sum(axis=1)
    missed = monthly.late_requests + result.shed_requests()
    columns: Columns = {
        "month": [label for label in plan.months.labels for _ in names],
        "workload": names * len(plan.months.labels),
    }
    table = {
        "demand_tokens": result.tokens(monthly.demand_requests),
        "served_tokens": result.tokens(served + result.rented.requests),
        "shed_tokens": result.tokens(result.shed_requests()),
        "late_tokens": result.tokens(monthly.late_requests),
        "slo_attainment_fraction": 1.0 - ratio(missed, monthly.demand_requests),
    }
    table["accelerator_h"], table["cost_usd"] = _shares(result, table["served_tokens"])
    table["cost_per_million_tokens_usd"] = ratio(table["cost_usd"], table["served_tokens"] / MILLION)
    columns.update({name: values.ravel() for name, values in table.items()})
    return columns


def _shares(result: RunResult, served_tokens: Floats) -> tuple[Floats, Floats]:
    """Return each workload's accelerator-hours and its share of the cost, both of shape (months, workloads).

    A cluster's month is shared by the machine time that requests take there at full speed. What no machine time
    carries (a cluster without work, the site as a whole, rented machines) is shared by tokens served; a month that
    served nothing is charged to nobody.
    """
    monthly, plan = result.monthly, result.plan
    rates = np.moveaxis(plan.requests_per_node_h, 2, 0)  # (months or 1, clusters, workloads)
    time = np.divide(monthly.served_requests, rates, out=np.zeros_like(monthly.served_requests), where=rates > 0)
    share = np.nan_to_num(ratio(time, np.broadcast_to(time.sum(axis=2, keepdims=True), time.shape)))
    per_node = np.array([cluster.accelerators_per_node for cluster in plan.clusters])
    hours = (share * (monthly.busy_node_h * per_node)[:, :, None]).sum(axis=1)
    carried = (share * result.cost_usd()[:, :, None]).sum(axis=1)
    rest = result.fleet_cost_usd() - carried.sum(axis=1)
    whole = np.broadcast_to(served_tokens.sum(axis=1, keepdims=True), served_tokens.shape)
    return hours, carried + rest[:, None] * np.nan_to_num(ratio(served_tokens, whole))


def losses(result: RunResult) -> Columns:
    """Node-hours by month and cluster: what was at work, and where the rest went; the parts sum to the whole."""
    monthly, plan = result.monthly, result.plan
    names = [cluster.name for cluster in plan.clusters]
    columns: Columns = {
        "month": [label for label in plan.months.labels for _ in names],
        "cluster": names * len(plan.months.labels),
        "present_node_h": monthly.present_node_h.ravel(),
        "working_node_h": (monthly.busy_node_h - monthly.drag_node_h).ravel(),
        "lost_to_failures_node_h": monthly.failed_node_h.ravel(),
        "lost_to_software_node_h": monthly.drag_node_h.ravel(),
        "lost_to_outages_node_h": monthly.dark_node_h.ravel(),
        "lost_to_power_cap_node_h": monthly.throttled_node_h.ravel(),
        "without_demand_node_h": monthly.idle_node_h.ravel(),
    }
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


def timeline_daily(result: RunResult) -> Columns:
    """One row per day and cluster, then the fleet."""
    return _by_hours(result, int(HOURS_PER_DAY), "date")


def timeline_hourly(result: RunResult) -> Columns:
    """One row per hour (UTC) and cluster, then the fleet."""
    return _by_hours(result, 1, "time")


def _by_hours(result: RunResult, step_h: int, stamp: str) -> Columns:
    """Sum hours into equal steps."""
    plan, windows, machines = result.plan, result.run.windows, result.run.node_hours

    def joined(arrays: list[Floats]) -> Floats:
        whole = np.concatenate(arrays, axis=-1)
        return np.add.reduceat(whole, np.arange(0, plan.hours, step_h), axis=-1)

    month = np.minimum(
        np.searchsorted(plan.month_edges_h, np.arange(plan.hours), side="right") - 1, plan.month_edges_h.size - 2
    )
    tokens = np.stack([workload.tokens_per_request[month] for workload in plan.workloads])
    served = joined(
        [w.served_requests * tokens[:, w.first_hour : w.first_hour + w.nodes.shape[1]] for w in windows]
    ).sum(axis=1)
    demand = joined(_tokens_by_hour(windows, tokens, "demand_requests"))
    shed = joined(_tokens_by_hour(windows, tokens, "shed_requests"))
    nodes = joined([w.nodes for w in windows])
    per_node = np.array([cluster.accelerators_per_node for cluster in plan.clusters])[:, None]
    busy = joined([w.busy_nodes for w in windows])
    present = joined([m.present for m in machines])
    failed = joined([m.failed for m in machines])
    it = joined([w.it_kw for w in windows])
    facility = joined([w.facility_kw for w in windows])
    steps = nodes.shape[1]
    nowhere = np.full((steps, len(plan.clusters)), np.nan)

    def fleet(per_cluster: Floats) -> Floats:
        return _with_fleet(per_cluster.T)

    table = {
        "accelerators_in_service": fleet((present - failed) * per_node) / step_h,
        "availability_fraction": ratio(fleet((present - failed) * per_node), fleet(present * per_node)),
        "utilisation_fraction": ratio(fleet(busy * per_node), fleet((present - failed) * per_node)),
        "demand_tokens": _with_fleet(nowhere, demand.sum(axis=0)),
        "served_tokens": fleet(served),
        "shed_tokens": _with_fleet(nowhere, shed.sum(axis=0)),
        "it_energy_kwh": fleet(it),
        "energy_kwh": _with_fleet(nowhere, facility),
    }
    names = [*(cluster.name for cluster in plan.clusters), FLEET]
    start = datetime.datetime.combine(plan.start, datetime.time())
    times = [start + datetime.timedelta(hours=step * step_h) for step in range(steps)]
    labels = [
        time.isoformat(timespec="minutes") if step_h < HOURS_PER_DAY else time.date().isoformat() for time in times
    ]
    columns: Columns = {stamp: [label for label in labels for _ in names], "cluster": names * steps}
    columns.update({name: values.ravel() for name, values in table.items()})
    return columns


def _tokens_by_hour(windows: Any, tokens: Floats, field: str) -> list[Floats]:
    """Return a window field of shape (workloads, hours) in tokens."""
    return [getattr(w, field) * tokens[:, w.first_hour : w.first_hour + w.nodes.shape[1]] for w in windows]
