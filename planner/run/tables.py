"""A run as tables: columns by name, ready for a CSV file or a data frame.

Of every event the table of events has the node-hours it took and the tokens they would have carried.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from planner.arrays import Floats
from planner.data_files import data_rows
from planner.elementwise import in_hours
from planner.engine.hourly import Residence, joined, residence
from planner.engine.rental import rent_by_hour
from planner.engine.repair_shop import PLANNED
from planner.errors import ConservationError
from planner.finance.ledger import (
    ACCOUNT_ORDER,
    INCOME_ACCOUNTS,
    NOT_COST_ACCOUNTS,
    Account,
    Dimension,
    View,
    usd,
)
from planner.finance.present_value import cumulative_per_million_tokens, per_million_tokens, ratio
from planner.finance.statements import Frequency, cover_ratio, fiscal_periods, monthly_statements
from planner.plan import quantities
from planner.plan.parts import TOKEN_KINDS
from planner.plan.plan import Placement, Plan
from planner.run import unit_economics as units
from planner.run.cohorts import opening_of
from planner.run.measure_names import SITE, TIMELINE
from planner.run.measures import (
    SUMS,
    levelised_to_date,
    ownership,
    sums_of,
    with_fleet,
    workload_figures,
)
from planner.run.measures import reconciliation as reconciled
from planner.run.monthly import slowed_hours
from planner.run.simulate import RunResult, per_run
from planner.run.slo_misses import REASONS, lost_requests
from planner.units import HOURS_PER_DAY, counted

Columns = dict[str, Any]


def timeline_monthly(result: RunResult, *, clusters: bool = False) -> Columns:
    """One row per month of the fleet, or per month and cluster; demand, shed and late work are the fleet's only."""
    plan = result.plan
    sums = sums_of(result)
    served = sums.served_tokens
    output = sums.served_output_tokens
    backlog = np.cumsum(sums.demand_tokens - sums.shed_tokens - served[:, -1])
    owner = ownership(result)
    starts = plan.month_edges_h[:-1]
    cap = np.concatenate(
        [
            np.full(g.nodes.shape[1], np.inf) if g.cap_kw is None else g.cap_kw
            for g in result.run.inputs
        ]
    )
    most_kw = np.maximum.reduceat(cap, starts)
    mean, peak = _accelerators_needed(result)
    table = {
        **sums.fleet_figures(),
        "backlog_tokens": np.where(np.abs(backlog) < 1e-9 * sums.demand_tokens.sum(), 0.0, backlog),
        "peak_facility_kw": result.monthly.peak_facility_kw,
        "rented_tokens": result.tokens(result.rented.requests).sum(axis=1),
        "facility_power_cap_kw": np.where(np.isfinite(most_kw), most_kw, np.nan),
        "accelerators_needed": mean,
        "peak_accelerators_needed": peak,
        **sums.figures(),
        "accelerators_in_service": sums.in_service_h / plan.months.period_hours[:, None],
        "on_site_accelerator_h": sums.on_site_h,
        "in_service_accelerator_h": sums.in_service_h,
        "accelerator_h": sums.busy_h,
        "cumulative_cost_per_million_tokens_usd": cumulative_per_million_tokens(
            sums.cost_usd, served
        ),
        "cumulative_cost_per_million_output_tokens_usd": cumulative_per_million_tokens(
            sums.cost_usd, output
        ),
        "levelised_cost_per_million_tokens_usd": levelised_to_date(owner, served),
        "levelised_cost_per_million_output_tokens_usd": levelised_to_date(owner, output),
    }
    ordered = {name: table[name] for name in TIMELINE}
    return _fleet_or(_names(plan, clusters=clusters), "month", plan.months.labels, ordered)


@per_run
def _accelerators_needed(result: RunResult) -> tuple[Floats, Floats]:
    """Return the accelerators that all demand would keep busy: the mean of each month, and its highest hour.

    An hour that served nothing says nothing about what its demand would take, and is passed over.
    """
    plan, windows, starts = result.plan, result.run.windows, result.plan.month_edges_h[:-1]
    busy = np.concatenate([plan.accelerators_per_node @ window.busy_nodes for window in windows])
    carried = _tokens_by_hour(result, (window.served_requests.sum(axis=0) for window in windows))
    refused = _tokens_by_hour(result, (window.shed_requests for window in windows))
    mean = quantities.needed(
        *(np.add.reduceat(hourly, starts) for hourly in (busy, carried, refused))
    )
    return mean / plan.months.period_hours, np.fmax.reduceat(
        quantities.needed(busy, carried, refused), starts
    )


@per_run
def peak_headroom(result: RunResult) -> Floats:
    """Return the headroom of each month's tightest hour: 1 − accelerators that urgent demand needs / in service then.

    Deferrable work fills idle hours, so it is left out; below 0 some urgent demand is shed or late.
    """
    plan = result.plan
    in_service = plan.accelerators_per_node @ joined("nodes", result.run.windows)
    headroom = 1.0 - ratio(units.urgent_accelerators(result), in_service)
    return np.fmin.reduceat(headroom, plan.month_edges_h[:-1])


def _tokens_by_hour(result: RunResult, requests: Iterable[Floats]) -> Floats:
    """Return the tokens of requests in spans that follow each other, hours last, summed over workloads."""
    plan = result.plan
    left = in_hours(np.ascontiguousarray(plan.tokens_per_request.T), plan.months.hour_periods)
    parts: list[Floats] = []
    for came in requests:
        per_request, left = np.split(left, [came.shape[-1]], axis=1)
        parts.append((came * per_request).sum(axis=-2))
    return np.concatenate(parts, axis=-1)


def _rows_by(
    stamp: str, labels: Sequence[str], kind: str, names: Sequence[str], table: Mapping[str, Any]
) -> Columns:
    """Return arrays of shape (periods, names) as columns, with a row for each period and name."""
    columns: Columns = {
        stamp: [label for label in labels for _ in names],
        kind: [*names] * len(labels),
    }
    return columns | {name: figures.ravel() for name, figures in table.items()}


def _fleet_or(
    names: Sequence[str], stamp: str, labels: Sequence[str], table: Mapping[str, Any]
) -> Columns:
    """Return what arrays hold last, the fleet, or what they hold before it of the clusters named.

    So no file holds a total among its parts. An array of one dimension is the fleet's alone.
    """
    if not names:
        return {stamp: [*labels]} | {
            name: cells if cells.ndim == 1 else cells[:, -1] for name, cells in table.items()
        }
    parts = {name: cells[:, :-1] for name, cells in table.items() if cells.ndim > 1}
    return _rows_by(stamp, labels, "cluster", names, parts)


def _names(plan: Plan, *, clusters: bool) -> list[str]:
    return [cluster.name for cluster in plan.clusters] if clusters else []


@per_run
def workload_sums(result: RunResult) -> dict[str, Floats]:
    """Return the figures of workloads with their machine time and full cost, shape (months, workloads) each."""
    table = workload_figures(result)
    economics = units.unit_economics(result)
    del table["served_output_tokens"]
    table["accelerator_h"] = economics.accelerator_h[:, :-1, :-2].sum(axis=1)
    table["cost_usd"] = usd(economics.cost_cents[:, :, :-2].sum(axis=1))
    return table


def timeline_workloads(result: RunResult) -> Columns:
    """One row per month and workload."""
    table = dict(workload_sums(result))
    table["cost_per_million_tokens_usd"] = per_million_tokens(
        table["cost_usd"], table["served_tokens"]
    )
    names = [workload.name for workload in result.plan.workloads]
    return _rows_by("month", result.plan.months.labels, "workload", names, table)


def cluster_rows(result: RunResult) -> Iterator[tuple[Any, ...]]:
    """Yield what each cluster is made of, and how it is had."""
    for cluster in result.plan.clusters:
        contract = getattr(result.scenario.clusters[cluster.name].contract, "kind", "bought")
        yield (
            cluster.name,
            cluster.accelerator,
            cluster.vendor,
            cluster.accelerators_per_node,
            contract,
        )


def unit_economics(result: RunResult, frequency: Frequency = Frequency.MONTH) -> Columns:
    """One row per period, cluster and workload that took or earned something, and its reserve and one-offs."""
    plan = result.plan
    by = units.unit_economics(result)
    periods = fiscal_periods(plan.months, plan.money.capital.fiscal_year_start_month, frequency)
    tables = (
        by.tokens,
        by.accelerator_h,
        by.revenue_cents,
        by.running_cents,
        by.cost_cents,
        by.kind_cents,
    )
    labels = [*periods]
    firsts = [*periods.values()]
    is_monthly = frequency is Frequency.MONTH
    tokens, hours, revenue, running, cost, parts = (
        np.add.reduceat(table, firsts, axis=0) for table in tables
    )
    row = np.nonzero(tokens.any(axis=3) | (hours != 0) | (revenue != 0) | (cost != 0))
    by_kind = [*zip(TOKEN_KINDS, tokens[row].T, parts[row].T, strict=True)]
    hours = hours[row]
    revenue = revenue[row]
    running = running[row]
    cost = cost[row]
    loads = [(units.LINES[0], load.name, load.model) for load in plan.workloads]
    loads += [(line, "", "") for line in units.LINES[1:]]
    clusters = [*(cluster.name for cluster in plan.clusters), SITE]
    money = {
        "revenue_usd": revenue,
        "running_cost_usd": running,
        "cost_usd": cost,
        "margin_usd": revenue - cost,
    }
    return {
        **(
            {}
            if is_monthly
            else {"date": [plan.months.edges[firsts[m]].isoformat() for m in row[0]]}
        ),
        "month" if is_monthly else "period": [labels[m] for m in row[0]],
        "cluster": [clusters[c] for c in row[1]],
        **{
            name: [loads[w][place] for w in row[2]]
            for place, name in enumerate(("line", "workload", "model"))
        },
        **{f"{kind}_tokens": served for kind, served, _ in by_kind},
        "accelerator_h": hours,
        **money,
        **{f"{kind}_cost_usd": paid for kind, _, paid in by_kind},
        **{
            f"{kind}_cost_per_million_tokens_usd": per_million_tokens(usd(paid), of)
            for kind, of, paid in by_kind
        },
        "cost_per_accelerator_h_usd": ratio(usd(cost), hours),
        "margin_per_accelerator_h_usd": ratio(usd(revenue - cost), hours),
    }


def losses(result: RunResult) -> Columns:
    """Node-hours by month and cluster: busy, and lost by cause; the parts sum to the whole."""
    table = {"present_node_h": result.monthly.present_node_h}
    table |= {f"{fate}_node_h": node_h for fate, node_h in result.monthly.fates_node_h.items()}
    return _rows_by(
        "month", result.plan.months.labels, "cluster", _names(result.plan, clusters=True), table
    )


def slo_misses(result: RunResult) -> Columns:
    """One row per month, workload and cause of missed requests."""
    lost = lost_requests(result)
    plan = result.plan
    keys = itertools.product(
        plan.months.labels, [workload.name for workload in plan.workloads], REASONS
    )
    figures = {
        f"missed_{of}": np.moveaxis(getattr(lost, of), 0, -1).ravel()
        for of in ("fraction", "requests")
    }
    return dict(zip(("month", "workload", "cause"), zip(*keys, strict=True), strict=True)) | figures


def placement(result: RunResult) -> Columns:
    """One row per month, cluster and workload that the cluster can serve: its model's replicas there."""
    placed, columns, of, held = _residents(result)
    replicas = held.replicas[:, of]
    months = len(result.plan.months.labels)
    deployments = [placed.deployments[d] for d in of]
    return columns | {
        "model": [result.plan.workloads[w].model for _, w in sorted(placed.deployment_of)] * months,
        "replicas": replicas.ravel(),
        "nodes": (
            replicas * np.array([deployment.nodes_per_replica for deployment in deployments])
        ).ravel(),
        "memory_fraction": [one.resident_bytes / one.memory_bytes for one in deployments] * months,
        "weight_load_node_h": held.weight_load_node_h[:, of].ravel(),
    }


def routing_monthly(result: RunResult) -> Columns:
    """One row per month, cluster and workload that the cluster can serve: tokens served, and utilisation."""
    monthly, (placed, columns, of, held) = result.monthly, _residents(result)
    pairs = sorted(placed.deployment_of)
    node_h = held.held_node_h[:, of]
    for place, (c, w) in enumerate(
        pairs
    ):  # of its own replicas, and of those it uses while it waits
        for other, deployment in enumerate(placed.deployments):
            if (
                placed.placed[c]
                and deployment.cluster == c
                and other != of[place]
                and w in deployment.waiting_speed
            ):
                node_h[:, place] += held.held_node_h[:, other]
    clusters = [c for c, _ in pairs]
    loads = [w for _, w in pairs]
    work = (
        quantities.shares(units.machine_time(result))[:, clusters, loads]
        * monthly.busy_node_h[:, clusters]
    )
    return columns | {
        "replicas": held.replicas[:, of].ravel(),
        "served_tokens": result.tokens(monthly.served_requests)[:, clusters, loads].ravel(),
        "utilisation_fraction": quantities.utilisation(work, node_h).ravel(),
    }


def _residents(result: RunResult) -> tuple[Placement, Columns, list[int], Residence]:
    """Return the placement, the first columns of each (cluster, workload) pair, its deployment, and residence.

    Residence is what each deployment held by month.
    """
    plan = result.plan
    if plan.placement is None:
        raise ValueError("a plan made by hand places no models")
    pairs = sorted(plan.placement.deployment_of)
    months = plan.months.labels
    columns: Columns = {
        "month": [label for label in months for _ in pairs],
        "cluster": [plan.clusters[c].name for c, _ in pairs] * len(months),
        "workload": [plan.workloads[w].name for _, w in pairs] * len(months),
    }
    of = [plan.placement.deployment_of[pair] for pair in pairs]
    return plan.placement, columns, of, residence(plan, plan.placement, result.run.windows)


def reconciliation_rows(result: RunResult) -> Iterator[tuple[Any, ...]]:
    """Yield how P&L cost, TCO and net present cost follow from one another: parts, sums so far, and what these are."""
    total = 0
    for (line, cents), (after, _) in itertools.pairwise([*reconciled(result).items(), ("", 0)]):
        if line not in SUMS:
            total += cents
            yield line, cents, total, after if after in SUMS else ""


def ledger(result: RunResult) -> Columns:
    """One row per month, cluster, account and purchase cohort."""
    book = result.ledger
    clusters = (*book.labels.clusters, SITE)
    cohorts = (*book.labels.cohorts, "")
    return {
        "month": [book.labels.months[index] for index in book.month_index],
        "cluster": [clusters[index] for index in book.cluster_index],
        "account": [str(ACCOUNT_ORDER[code]) for code in book.account_code],
        "amount_usd": book.amount_cents / 100.0,
        "cohort": [cohorts[index] for index in book.cohort_index],
    }


CHARGES = {line.pop("of"): tuple(line.values()) for line in data_rows(__file__, "charges.csv")}
"""Charge and service category of FOCUS by account, or by the category of all others."""


def focus_rows(result: RunResult) -> Iterator[tuple[Any, ...]]:
    """Yield cost by month, cluster and account under the columns of FOCUS; billed is cash, effective is accrual."""
    plan = result.plan
    monthly = result.monthly
    by = (Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT)
    billed, effective = (
        result.ledger.totals_cents(*by, view=view) for view in (View.CASH, View.ACCRUAL)
    )
    used_kwh = {
        Account.ENERGY: monthly.it_kwh,
        Account.COOLING: monthly.facility_kwh - monthly.it_kwh,
    }
    edges = [f"{edge}T00:00:00Z" for edge in plan.months.edges]
    resources = [*((cluster.name, cluster.accelerator) for cluster in plan.clusters), (SITE, "")]
    for month, c, code in np.argwhere((billed != 0) | (effective != 0)).tolist():
        if (account := ACCOUNT_ORDER[code]) not in NOT_COST_ACCOUNTS:
            charge, service = CHARGES.get(account) or CHARGES[account.category]
            consumed = (used_kwh[account][month, c], "kWh") if account in used_kwh else (None, "")
            paid = (
                int(billed[month, c, code]),
                int(effective[month, c, code]),
                "USD",
                *edges[month : month + 2] * 2,
            )
            of = (charge, account.description, service, str(account))
            yield *paid, *of, *consumed, *resources[c], result.scenario.name


def account_rows() -> Iterator[tuple[Any, ...]]:
    """Yield the chart of accounts of ledger and statements, the same for every run."""
    for account in Account:
        kind = (
            account.category,
            account.behaviour,
            "income" if account in INCOME_ACCOUNTS else "cost",
        )
        moves = [*(line for line, _ in account.positions), "", ""][:2]
        yield account, *(view in account.views for view in View), *kind, *moves, account.description


def statement(
    result: RunResult, frequency: Frequency = Frequency.MONTH, *, clusters: bool = False
) -> Columns:
    """One row per period of the fleet, or per period and cluster with the site; the lines side by side, in cents."""
    plan = result.plan
    opening = opening_of(plan, result.cohorts, result.run.log)
    monthly = monthly_statements(result.ledger, opening, plan.money.capital.books)
    first_month = plan.money.capital.fiscal_year_start_month
    lines = monthly.by(frequency, plan.months, first_month)
    stamp = "month" if frequency is Frequency.MONTH else "period"
    names = [*_names(plan, clusters=True), SITE] if clusters else []
    served = sums_of(result).served_tokens
    served = np.insert(
        served, -1, 2.0 * served[:, -1] - served.sum(axis=1), axis=1
    )  # the site's: on rented machines
    tokens = np.add.reduceat(
        served, [*fiscal_periods(plan.months, first_month, frequency).values()], axis=0
    )
    cost = per_million_tokens(usd(lines.lines_cents["cost_of_serving_usd"]), tokens)
    more = {
        "cover_ratio": cover_ratio(lines),
        "served_tokens": tokens,
        "cost_of_serving_per_million_tokens_usd": cost,
    }
    return _fleet_or(names, stamp, lines.periods, {**lines.lines_cents, **more})


def timeline_daily(result: RunResult, *, clusters: bool = False) -> Columns:
    """One row per day of the fleet, or per day and cluster."""
    return _by_hours(result, int(HOURS_PER_DAY), "date", "D", clusters=clusters)


def timeline_hourly(result: RunResult, *, clusters: bool = False) -> Columns:
    """One row per hour (UTC) of the fleet, or per hour and cluster."""
    return _by_hours(result, 1, "time", "m", clusters=clusters)


def _by_hours(result: RunResult, step_h: int, stamp: str, unit: str, *, clusters: bool) -> Columns:
    """Return hours summed into equal steps, labelled by their start in a time unit."""
    plan = result.plan
    windows = result.run.windows
    machines = result.run.node_hours
    starts = np.arange(0, plan.hours, step_h)

    def summed(arrays: Iterable[Floats]) -> Floats:
        return np.add.reduceat(np.concatenate([*arrays], axis=-1), starts, axis=-1)

    def tokens(requests: Iterable[Floats]) -> Floats:
        return summed([_tokens_by_hour(result, requests)])

    refused = joined("shed_requests", windows)
    rented, _ = rent_by_hour(plan, refused, result.run.on_offer)
    shed = tokens([quantities.shed_requests(refused, rented)])
    present, serving = (
        [m.present for m in machines],
        [quantities.in_service(m.present, m.failed) for m in machines],
    )
    on_site, in_service, busy = (
        with_fleet(summed(nodes).T * plan.accelerators_per_node)
        for nodes in (present, serving, [w.busy_nodes for w in windows])
    )
    table = {
        "accelerators_in_service": in_service / step_h,
        "availability_fraction": quantities.availability(in_service, on_site),
        "utilisation_fraction": quantities.utilisation(busy, in_service),
        "demand_tokens": tokens(w.demand_requests for w in windows),
        "served_tokens": with_fleet(
            tokens(w.served_requests for w in windows).T, elsewhere=tokens([rented])
        ),
        "shed_tokens": shed,
        "it_energy_kwh": with_fleet(summed(w.it_kw for w in windows).T),
        "energy_kwh": summed(w.facility_kw for w in windows),
    }
    labels = (
        (np.datetime64(plan.start, "h") + starts).astype(f"datetime64[{unit}]").astype(str).tolist()
    )
    return _fleet_or(_names(plan, clusters=clusters), stamp, labels, table)


class _Row(NamedTuple):
    start_h: float
    end_h: float
    cluster: str
    event: str
    cause: str
    detail: str
    accelerators: int
    lost_node_h: float = 0.0
    lost_tokens: float = 0.0


_EVENTS = {"": "process", PLANNED: "maintenance"}
"""What a row is that is no failure, by what stands for the severity of its repair."""
_Events = tuple[list[_Row], Floats]
"""Events of one kind, and the node-hours they took of each cluster, shape (clusters,)."""


def events(result: RunResult) -> dict[str, Any]:
    """One row per event in chronological order, with its node-hours and the tokens they would have served.

    An event takes the node-hours that ``losses.csv`` counts for its kind, so its rows sum to the columns there; a node
    that is not yet delivered loses nothing. Tokens are those node-hours in the cluster's usual mix of work.
    """
    tokens = tokens_per_node_h(result)
    monthly = result.monthly
    kinds = [
        ("software incidents", _software(result, tokens), monthly.drag_node_h),
        ("outages", _outages(result, tokens), monthly.dark_node_h),
        ("failures", _failures(result, tokens), monthly.failed_node_h),
    ]
    plan = result.plan
    log = result.run.log
    names = [cluster.name for cluster in plan.clusters]
    changes = [change for change in log.changes if change.time_h <= plan.hours]
    rows = [
        _Row(c.time_h, c.time_h, names[c.cluster], c.kind, "", c.detail, c.accelerators)
        for c in changes
    ]
    for cohort in (
        result.cohorts if plan.site.block_h.size else ()
    ):  # where power comes in blocks, some wait for theirs
        start_h = max(cohort.bought_h, 0.0)
        end_h = min(cohort.in_service_h, cohort.retired_h)
        if cohort.machines and cohort.in_service_h > start_h:
            told = f"{counted(cohort.nodes, 'node')} paid, not in service"
            waiting = cohort.nodes * plan.clusters[cohort.cluster].accelerators_per_node
            rows.append(
                _Row(start_h, end_h, names[cohort.cluster], "waiting", "site power", told, waiting)
            )
    notes = [note for note in log.notes if note.time_h <= plan.hours]
    rows += [
        _Row(n.time_h, n.time_h, n.cluster or SITE, "process", n.process, n.text, 0) for n in notes
    ]
    for kind, (times, taken), node_h in kinds:
        rows += times
        lost = node_h.sum(axis=0)
        if np.any(np.abs(taken - lost) > 1e-6 * lost + 1e-6):
            taken_h = taken.tolist()
            lost_h = lost.tolist()
            raise ConservationError(
                f"node-hours lost to {kind} by event are {taken_h}, by month {lost_h}"
            )
    rows.sort()
    # By columns, and times all at once: a million accelerators have half a million failures.
    start, end = (np.array([row[side] for row in rows], dtype=np.float64) for side in (0, 1))
    return {
        "time": _stamps(result, start),
        "end_time": _stamps(result, np.where(end == start, np.inf, end)),
        **{
            name: [row[place] for row in rows]
            for place, name in enumerate(("cluster", "event", "cause", "detail"), 2)
        },
        "accelerators": np.array([row.accelerators for row in rows], dtype=np.int64),
        "duration_h": np.minimum(end, plan.hours) - start,
        "lost_node_h": np.array([row.lost_node_h for row in rows], dtype=np.float64),
        "lost_capacity_tokens": np.array([row.lost_tokens for row in rows], dtype=np.float64),
    }


def _stamps(result: RunResult, hours: Floats) -> list[str]:
    """Return hours since the start as timestamps to the second, empty beyond the run."""
    within = hours <= result.plan.hours
    microseconds = np.rint(np.where(within, hours, 0.0) * 3.6e9).astype("timedelta64[us]")
    moments = np.datetime_as_string(np.datetime64(result.plan.start, "us") + microseconds, unit="s")
    stamps: list[str] = np.where(within, moments, "").tolist()
    return stamps


def tokens_per_node_h(result: RunResult) -> Floats:
    """Return the tokens per hour of one node of each cluster, averaged over months, shape (clusters,)."""
    plan = result.plan
    demand = plan.demand.expected_requests_per_s.mean(axis=1)
    tokens = plan.tokens_per_request.mean(axis=0)
    return quantities.usual_tokens_per_node_h(plan.requests_per_node_h.mean(axis=2), demand, tokens)


def _failures(result: RunResult, tokens: Floats) -> _Events:
    """One row per outage of accelerators by a failure, or by a process that took a node out."""
    plan, shape = result.plan, len(result.plan.clusters)
    # One that begins after the end is of a group that would have stayed down with its node, had the run gone on.
    outages = [outage for outage in result.run.shop.outages() if outage.start_h < plan.hours]
    if not outages:
        return [], np.zeros(shape)
    start_h, end_h, index, node, accelerators, cause, severity, wait_h = zip(*outages, strict=True)
    clusters = np.array(index)
    hours = np.minimum(end_h, float(plan.hours)) - start_h
    lost = quantities.failure_node_h(
        hours, np.array(accelerators), plan.accelerators_per_node[clusters]
    )
    taken = np.bincount(clusters, lost, shape)
    for c in (
        result.run.offers
    ):  # of what is rented by the hour, what failed was held for a share of the time
        lost[clusters == c] *= result.monthly.failed_node_h[:, c].sum() / max(taken[c], 1e-9)
    events = [_EVENTS.get(repair, "failure") for repair in severity]
    details = [
        f"node {number}, {repair} repair, waited {waited:.1f} h"
        if event == "failure"
        else f"node {number}, taken out"
        for number, event, repair, waited in zip(node, events, severity, wait_h, strict=True)
    ]
    names = [plan.clusters[c].name for c in index]
    lost_tokens = (lost * tokens[clusters]).tolist()
    rows = map(
        _Row,
        start_h,
        end_h,
        names,
        events,
        cause,
        details,
        accelerators,
        lost.tolist(),
        lost_tokens,
    )
    return list(rows), np.bincount(clusters, lost, shape).astype(np.float64)


def _software(result: RunResult, tokens: Floats) -> _Events:
    """One row per incident and cluster, from its start to its end; an upgrade has no end.

    An incident spreads, eases and ends step by step. It has ended where its steps sum to nothing, and its size is the
    lowest that they come to.
    """
    plan = result.plan
    changes = result.run.log.speeds()
    level: dict[tuple[int, int, int], float] = defaultdict(float)
    lowest: dict[tuple[int, int], float] = defaultdict(float)
    ends = dict[tuple[int, int], float]()
    taken = defaultdict[tuple[int, int], float](float)
    for change in changes:
        if change.incident >= 0:
            key = (change.incident, change.cluster)
            here = (*key, change.workload)
            level[here] = round(level[here] + change.log_factor, 12)
            lowest[key] = min(lowest[key], level[here])
            ends[key] = math.inf if level[here] else change.time_h
    for _, _, slowing, share, worked, _ in slowed_hours(result.run):
        for change, node_h in zip(slowing, (share @ worked).tolist(), strict=True):
            taken[change.incident, change.cluster] += node_h
    rows = []
    seen = set[tuple[object, ...]]()
    lost_node_h = np.zeros(len(plan.clusters))
    for change in changes:
        key = (change.incident, change.cluster)
        model = plan.workloads[change.workload].model
        told = (
            key if change.incident >= 0 else (*key, change.time_h, model)
        )  # what eases an incident is no other
        if told in seen:
            continue
        seen.add(told)
        end_h, size = (
            (ends[key], lowest[key]) if change.incident >= 0 else (change.time_h, change.log_factor)
        )
        stack = change.process or plan.software.stack_of[change.cluster, change.workload]
        lost = taken.get(key, 0.0) if change.incident >= 0 else 0.0
        of = (
            plan.clusters[change.cluster].name,
            "process" if change.process else "software",
            change.kind,
        )
        detail = f"{stack}, {model}, {math.expm1(size):+.1%} throughput"
        rows.append(
            _Row(change.time_h, end_h, *of, detail, 0, lost, lost * float(tokens[change.cluster]))
        )
        lost_node_h[change.cluster] += lost
    return rows, lost_node_h


def _outages(result: RunResult, tokens: Floats) -> _Events:
    """One row per outage of the site: the healthy nodes on site, and its duration."""
    plan = result.plan
    log = result.run.log
    in_service = quantities.in_service(
        *(joined(state, result.run.node_hours) for state in ("present", "failed"))
    )
    rows = []
    taken = np.zeros(len(plan.clusters))
    for event in log.site:
        present = sum(
            change.accelerators for change in log.changes if change.time_h <= event.start_h
        )
        hours = np.arange(int(event.start_h), min(math.ceil(event.end_h), plan.hours))
        lost = in_service[:, hours] @ quantities.open_fraction(hours.astype(np.float64), *event)
        told = (SITE, "outage", "site power", "", present, float(lost.sum()), float(lost @ tokens))
        rows.append(_Row(event.start_h, event.end_h, *told))
        taken += lost
    return rows, taken
