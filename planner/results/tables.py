"""A run as tables: columns by name, ready for a CSV file or a data frame."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.finance.accounts import ACCOUNT_ORDER
from planner.finance.money import split_cents, usd
from planner.finance.unit_costs import cumulative_per_million_tokens, per_million_tokens
from planner.fleet import quantities
from planner.fleet.plan import Plan
from planner.fleet.rented import rent_by_hour
from planner.fleet.window import WindowResult
from planner.results.event_table import events
from planner.results.measure_names import FLEET, SITE, TIMELINE
from planner.results.measures import sums_of, with_fleet
from planner.results.ownership import levelised_to_date, ownership
from planner.results.result import RunResult
from planner.units import HOURS_PER_DAY

__all__ = ["events", "ledger", "losses", "timeline_daily", "timeline_hourly", "timeline_monthly", "timeline_workloads"]

Floats = NDArray[np.float64]
Columns = dict[str, Any]


def _fleet_alone(fleet: Floats, clusters: int) -> Floats:
    """Return a figure that belongs to the fleet as a whole, its clusters' cells empty."""
    return np.column_stack((np.full((fleet.size, clusters), np.nan), fleet))


def timeline_monthly(result: RunResult) -> Columns:
    """One row per month and cluster, then the fleet; demand, shed and late work belong to the fleet as a whole."""
    plan, sums = result.plan, sums_of(result)
    served, output = sums.served_tokens, sums.served_output_tokens
    backlog = np.cumsum(sums.demand_tokens - sums.shed_tokens - served[:, -1])
    owner, fleet_alone = ownership(result), sums.fleet_figures()
    fleet_alone |= {
        "backlog_tokens": np.where(np.abs(backlog) < 1e-9 * sums.demand_tokens.sum(), 0.0, backlog),
        "peak_facility_kw": result.monthly.peak_facility_kw,
        "rented_tokens": result.tokens(result.rented.requests).sum(axis=1),
        "power_limit_kw": _power_limit_kw(plan),
    }
    fleet_alone["accelerators_needed"], fleet_alone["peak_accelerators_needed"] = _needed(result)
    table = {
        **{name: _fleet_alone(figures, len(plan.clusters)) for name, figures in fleet_alone.items()},
        **sums.figures(),
        "accelerators_in_service": sums.in_service_h / plan.months.period_hours[:, None],
        "cumulative_cost_per_million_tokens_usd": cumulative_per_million_tokens(sums.cost_usd, served),
        "cumulative_cost_per_million_output_tokens_usd": cumulative_per_million_tokens(sums.cost_usd, output),
        "levelised_cost_per_million_tokens_usd": levelised_to_date(owner, served),
        "levelised_cost_per_million_output_tokens_usd": levelised_to_date(owner, output),
    }
    return _by_cluster(plan, "month", plan.months.labels, {name: table[name] for name in TIMELINE})


def _power_limit_kw(plan: Plan) -> Floats:
    """Return the highest limit of each month's hours, shape (months,); NaN where there is none."""
    if plan.site.cap_kw is None:
        return np.full(len(plan.months.labels), np.nan)
    most = np.maximum.reduceat(plan.site.cap_kw, plan.month_edges_h[:-1])
    return np.where(np.isfinite(most), most, np.nan)


def _needed(result: RunResult) -> tuple[Floats, Floats]:
    """Return accelerators that all work asked for would keep busy, each month's mean and highest hour."""
    plan, windows, starts = result.plan, result.run.windows, result.plan.month_edges_h[:-1]
    per_request = plan.tokens_per_request[plan.months.hour_periods].T
    busy = np.concatenate([plan.accelerators_per_node @ window.busy_nodes for window in windows])
    served, refused = (
        np.concatenate([(came * per_request[:, _hours(window)]).sum(axis=0) for came, window in parts])
        for parts in (
            [(window.served_requests.sum(axis=0), window) for window in windows],
            [(window.shed_requests, window) for window in windows],
        )
    )
    mean = quantities.needed(*(np.add.reduceat(hourly, starts) for hourly in (busy, served, refused)))
    # An hour that served nothing says nothing about what its work would take: fmax passes over it.
    return mean / plan.months.period_hours, np.fmax.reduceat(quantities.needed(busy, served, refused), starts)


def _by_cluster(plan: Plan, stamp: str, labels: Sequence[str], table: dict[str, Floats]) -> Columns:
    """Return a table of figures of shape (periods, clusters + 1) as columns, with a row for each of them."""
    names = [*(cluster.name for cluster in plan.clusters), FLEET]
    columns: Columns = {stamp: [label for label in labels for _ in names], "cluster": names * len(labels)}
    return columns | {name: figures.ravel() for name, figures in table.items()}


def timeline_workloads(result: RunResult) -> Columns:
    """One row per month and workload."""
    monthly, plan = result.monthly, result.plan
    names = [workload.name for workload in plan.workloads]
    served = monthly.served_requests.sum(axis=1)
    columns: Columns = {
        "month": [label for label in plan.months.labels for _ in names],
        "workload": names * len(plan.months.labels),
    }
    table = {
        "demand_tokens": result.tokens(monthly.demand_requests),
        "served_tokens": result.tokens(served + result.rented.requests),
        "shed_tokens": result.tokens(result.shed_requests()),
        "late_tokens": result.tokens(monthly.late_requests),
        "slo_attainment_fraction": quantities.in_time(result.missed_requests(), result.settled_requests()),
    }
    table["accelerator_h"], table["cost_usd"] = _shares(result, table["served_tokens"], table["demand_tokens"])
    table["cost_per_million_tokens_usd"] = per_million_tokens(table["cost_usd"], table["served_tokens"])
    columns.update({name: values.ravel() for name, values in table.items()})
    return columns


def _shares(result: RunResult, served_tokens: Floats, demand_tokens: Floats) -> tuple[Floats, Floats]:
    """Return each workload's accelerator-hours and its share of the cost, both of shape (months, workloads).

    A cluster's month is shared by the machine time that requests take there at full speed. What no machine time
    carries (a cluster without work, the site as a whole, rented machines) is shared by tokens served; where a month
    served none by tokens asked for, in it or else in all months. Whole cents, so workloads sum to the fleet.
    """
    monthly, plan = result.monthly, result.plan
    rates = np.moveaxis(plan.requests_per_node_h, 2, 0)  # (months or 1, clusters, workloads)
    time = quantities.machine_time(monthly.served_requests, rates)
    nobodys = np.zeros_like(time[:, :1])  # the site as a whole does no work
    others = (served_tokens[:, None], demand_tokens[:, None], demand_tokens.sum(axis=0))
    share = quantities.shares(np.concatenate([time, nobodys], axis=1), *others)
    busy_h = monthly.busy_node_h * plan.accelerators_per_node
    return (share[:, :-1] * busy_h[:, :, None]).sum(axis=1), usd(split_cents(result.cost_cents(), share).sum(axis=1))


def losses(result: RunResult) -> Columns:
    """Node-hours by month and cluster: what was at work, and where the rest went; the parts sum to the whole."""
    monthly, plan = result.monthly, result.plan
    names = [cluster.name for cluster in plan.clusters]
    columns: Columns = {
        "month": [label for label in plan.months.labels for _ in names],
        "cluster": names * len(plan.months.labels),
        "present_node_h": monthly.present_node_h.ravel(),
    }
    return columns | {f"{fate}_node_h": node_h.ravel() for fate, node_h in monthly.fates_node_h.items()}


def ledger(result: RunResult) -> Columns:
    """One row per month, cluster, account and purchase cohort."""
    book = result.ledger
    clusters, cohorts = (*book.labels.clusters, SITE), (*book.labels.cohorts, "")
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

    def joined(arrays: Iterable[Floats]) -> Floats:
        return np.add.reduceat(np.concatenate([*arrays], axis=-1), np.arange(0, plan.hours, step_h), axis=-1)

    per_request = plan.tokens_per_request[plan.months.hour_periods].T

    def tokens(requests: Iterable[Floats]) -> Floats:
        """Add up tokens over workloads, the axis before the hours."""
        parts = zip(requests, windows, strict=True)
        return joined((came * per_request[:, _hours(window)]).sum(axis=-2) for came, window in parts)

    rented = [rent_by_hour(plan, w)[0] for w in windows]
    shed = tokens(quantities.shed_requests(w.shed_requests, lent) for w, lent in zip(windows, rented, strict=True))
    facility, clusters = joined(w.facility_kw for w in windows), len(plan.clusters)
    on_site, in_service, busy = (
        with_fleet(joined(nodes).T * plan.accelerators_per_node)
        for nodes in (
            (m.present for m in machines),
            (quantities.in_service(m.present, m.failed) for m in machines),
            (w.busy_nodes for w in windows),
        )
    )
    table = {
        "accelerators_in_service": in_service / step_h,
        "availability_fraction": quantities.availability(in_service, on_site),
        "utilisation_fraction": quantities.utilisation(busy, in_service),
        "demand_tokens": _fleet_alone(tokens(w.demand_requests for w in windows), clusters),
        "served_tokens": with_fleet(tokens(w.served_requests for w in windows).T, elsewhere=tokens(rented)),
        "shed_tokens": _fleet_alone(shed, clusters),
        "it_energy_kwh": with_fleet(joined(w.it_kw for w in windows).T),
        "energy_kwh": _fleet_alone(facility, clusters),
    }
    start = datetime.datetime.combine(plan.start, datetime.time())
    times = [start + datetime.timedelta(hours=step * step_h) for step in range(facility.size)]
    labels = [
        time.isoformat(timespec="minutes") if step_h < HOURS_PER_DAY else time.date().isoformat() for time in times
    ]
    return _by_cluster(plan, stamp, labels, table)


def _hours(window: WindowResult) -> slice:
    """Return a window's hours within the horizon."""
    return slice(window.first_hour, window.first_hour + window.facility_kw.size)
