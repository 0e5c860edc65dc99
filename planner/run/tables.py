"""A run as tables: columns by name, ready for a CSV file or a data frame."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.elementwise import in_hours
from planner.engine.hourly import WindowResult
from planner.engine.rented import rent_by_hour
from planner.engine.residence import Residence, residence
from planner.finance.accounts import ACCOUNT_ORDER, INCOME_ACCOUNTS, Account, View
from planner.finance.cents import split_cents, usd
from planner.finance.statements import Frequency, monthly_statements
from planner.finance.unit_costs import cumulative_per_million_tokens, per_million_tokens
from planner.plan import quantities
from planner.plan.plan import Deployment, Plan
from planner.run import event_table
from planner.run.cohorts import opening_of
from planner.run.measure_names import FLEET, SITE, TIMELINE
from planner.run.measures import sums_of, with_fleet
from planner.run.ownership import levelised_to_date, ownership
from planner.run.replication import Replication
from planner.run.slo_misses import REASONS, lost_requests
from planner.units import HOURS_PER_DAY

Columns = dict[str, Any]
events = event_table.events  # the one table in a module of its own


def _fleet_alone(fleet: Floats, clusters: int) -> Floats:
    """Return a figure that belongs to the fleet as a whole, its clusters' cells empty."""
    return np.column_stack((np.full((fleet.size, clusters), np.nan), fleet))


def timeline_monthly(result: Replication) -> Columns:
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


def _needed(result: Replication) -> tuple[Floats, Floats]:
    """Return accelerators that all work asked for would keep busy, each month's mean and highest hour."""
    plan, windows, starts = result.plan, result.run.windows, result.plan.month_edges_h[:-1]
    per_request = in_hours(np.ascontiguousarray(plan.tokens_per_request.T), plan.months.hour_periods)
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


def timeline_workloads(result: Replication) -> Columns:
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


def _shares(result: Replication, served_tokens: Floats, demand_tokens: Floats) -> tuple[Floats, Floats]:
    """Return each workload's accelerator-hours and its share of the cost, both of shape (months, workloads).

    A cluster's month is shared by the machine time that requests take there at full speed. What no machine time
    carries (a cluster without work, the site as a whole, rented machines) is shared by tokens served; where a month
    served none by tokens asked for, in it or else in all months. Whole cents, so workloads sum to the fleet.
    """
    monthly, plan = result.monthly, result.plan
    time = _machine_time(result)
    nobodys = np.zeros_like(time[:, :1])  # the site as a whole does no work
    others = (served_tokens[:, None], demand_tokens[:, None], demand_tokens.sum(axis=0))
    share = quantities.shares(np.concatenate([time, nobodys], axis=1), *others)
    busy_h = monthly.busy_node_h * plan.accelerators_per_node
    return (share[:, :-1] * busy_h[:, :, None]).sum(axis=1), usd(split_cents(result.cost_cents(), share).sum(axis=1))


def _machine_time(result: Replication) -> Floats:
    """Return node-hours that what was served takes at full speed, in the layouts in which it was served.

    Shape (months, clusters, workloads). In hours of overload more is served, late, than what keeps the objective, and
    these sum to more than the hours at work: it is their proportions that share those out.
    """
    plan, requests = result.plan, result.monthly.served_requests.copy()
    for window in result.run.windows:
        for (c, w), slower in window.slower_requests.items():
            periods = plan.months.hour_periods[window.first_hour : window.first_hour + slower.size]
            requests[:, c, w] += np.bincount(periods, slower, len(requests))
    return quantities.machine_time(requests, np.moveaxis(plan.requests_per_node_h, 2, 0))


def losses(result: Replication) -> Columns:
    """Node-hours by month and cluster: what was at work, and where the rest went; the parts sum to the whole."""
    monthly, plan = result.monthly, result.plan
    names = [cluster.name for cluster in plan.clusters]
    columns: Columns = {
        "month": [label for label in plan.months.labels for _ in names],
        "cluster": names * len(plan.months.labels),
        "present_node_h": monthly.present_node_h.ravel(),
    }
    return columns | {f"{fate}_node_h": node_h.ravel() for fate, node_h in monthly.fates_node_h.items()}


def late_reasons(result: Replication) -> Columns:
    """One row per month, workload and reason why requests were not in time, the worst kind of mend with it."""
    lost, plan = lost_requests(result), result.plan
    names = [workload.name for workload in plan.workloads]
    months, per_month = len(plan.months.labels), len(names) * len(REASONS)

    def by_row(figures: Floats) -> Floats:
        return np.moveaxis(figures, 0, -1).ravel()  # reasons within workloads within months

    return {
        "month": [label for label in plan.months.labels for _ in range(per_month)],
        "workload": [name for name in names for _ in REASONS] * months,
        "reason": [*REASONS] * (months * len(names)),
        "lost_fraction": by_row(lost.fraction),
        "lost_requests": by_row(lost.requests),
        "mend_amount": by_row(lost.mend_amount),
        "mend": [
            lost.mends[r][w].words[m] for m in range(months) for w in range(len(names)) for r in range(len(REASONS))
        ],
    }


def placement(result: Replication) -> Columns:
    """One row per month, cluster and workload that the cluster can serve: the replicas that its model held there."""
    pairs, held = _residents(result)
    names = ("model", "replicas", "nodes", "memory_fraction", "load_node_h")
    rows: list[tuple[Any, ...]] = []
    for m in range(len(result.plan.months.labels)):
        for _, w, d, deployment in pairs:
            replicas = held.replicas[m, d]
            memory = deployment.resident_bytes / deployment.memory_bytes
            nodes = replicas * deployment.nodes_per_replica
            rows.append((result.plan.workloads[w].model, replicas, nodes, memory, held.load_node_h[m, d]))
    return _by_pair(result.plan, pairs) | dict(zip(names, zip(*rows, strict=True), strict=True))


def routing_monthly(result: Replication) -> Columns:
    """One row per month, cluster and workload that the cluster can serve: what it served there, and how full it was."""
    plan, monthly = result.plan, result.monthly
    pairs, held = _residents(result)
    clusters, loads = [c for c, *_ in pairs], [w for _, w, *_ in pairs]
    columns = [d for _, _, d, _ in pairs]
    work = quantities.shares(_machine_time(result))[:, clusters, loads] * monthly.busy_node_h[:, clusters]
    return _by_pair(plan, pairs) | {
        "replicas": held.replicas[:, columns].ravel(),
        "served_tokens": result.tokens(monthly.served_requests)[:, clusters, loads].ravel(),
        "utilisation_fraction": quantities.utilisation(work, _serving_node_h(plan, pairs, held)).ravel(),
    }


def _serving_node_h(plan: Plan, pairs: Sequence[Pair], held: Residence) -> Floats:
    """Return the node-hours that may serve each pair, of its own replicas and of those it uses while it waits."""
    assert plan.placement is not None  # its pairs come from there
    node_h = held.held_node_h[:, [d for _, _, d, _ in pairs]]
    for place, (c, w, d, _) in enumerate(pairs):
        for other, deployment in enumerate(plan.placement.deployments):
            if plan.placement.placed[c] and deployment.cluster == c and other != d and w in deployment.waiting_speed:
                node_h[:, place] += held.held_node_h[:, other]
    return node_h


Pair = tuple[int, int, int, Deployment]
"""A cluster, a workload that it can serve, and the deployment that does, by its number and itself."""


def _residents(result: Replication) -> tuple[list[Pair], Residence]:
    """Return the pairs of cluster and workload, and what their deployments held."""
    plan = result.plan
    if plan.placement is None:
        raise ValueError("a plan made by hand places no models")
    of = plan.placement.deployment_of
    pairs = [(c, w, of[c, w], plan.placement.deployments[of[c, w]]) for c, w in sorted(of)]
    return pairs, residence(plan, plan.placement, result.run.windows)


def _by_pair(plan: Plan, pairs: Sequence[Pair]) -> Columns:
    """Return the first columns of a table by month, cluster and workload."""
    return {
        "month": [label for label in plan.months.labels for _ in pairs],
        "cluster": [plan.clusters[c].name for c, *_ in pairs] * len(plan.months.labels),
        "workload": [plan.workloads[w].name for _, w, *_ in pairs] * len(plan.months.labels),
    }


def ledger(result: Replication) -> Columns:
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


def accounts() -> Columns:
    """One row per account: the chart that ledger and statements are read with, the same for every run."""
    return {
        "account": [str(account) for account in Account],
        "view": [" ".join(str(view.name).lower() for view in View if view in account.views) for account in Account],
        "category": [str(account.category) for account in Account],
        "sign": ["income" if account in INCOME_ACCOUNTS else "cost" for account in Account],
        "position": [" ".join(str(line) for line, _ in account.positions) for account in Account],
        "description": [account.description for account in Account],
    }


def statement(result: Replication, frequency: Frequency = Frequency.MONTH) -> Columns:
    """One row per period and cluster, then the site and the fleet; the statements' lines side by side, in cents."""
    plan = result.plan
    monthly = monthly_statements(result.ledger, opening_of(plan, result.cohorts, result.run.log))
    lines = monthly.by(frequency, plan.months, plan.money.capital.fiscal_year_start_month)
    names = [*(cluster.name for cluster in plan.clusters), SITE, FLEET]
    columns: Columns = {
        "month" if frequency is Frequency.MONTH else "period": [label for label in lines.periods for _ in names],
        "cluster": names * len(lines.periods),
    }
    return columns | {name: amounts.ravel() for name, amounts in lines.lines_cents.items()}


def timeline_daily(result: Replication) -> Columns:
    """One row per day and cluster, then the fleet."""
    return _by_hours(result, int(HOURS_PER_DAY), "date")


def timeline_hourly(result: Replication) -> Columns:
    """One row per hour (UTC) and cluster, then the fleet."""
    return _by_hours(result, 1, "time")


def _by_hours(result: Replication, step_h: int, stamp: str) -> Columns:
    """Sum hours into equal steps."""
    plan, windows, machines = result.plan, result.run.windows, result.run.node_hours

    def joined(arrays: Iterable[Floats]) -> Floats:
        return np.add.reduceat(np.concatenate([*arrays], axis=-1), np.arange(0, plan.hours, step_h), axis=-1)

    per_request = in_hours(np.ascontiguousarray(plan.tokens_per_request.T), plan.months.hour_periods)

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
