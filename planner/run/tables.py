"""A run as tables: columns by name, ready for a CSV file or a data frame; a function for each table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from planner.arrays import Floats
from planner.elementwise import in_hours
from planner.engine.hourly import joined, residence
from planner.engine.rental import rent_by_hour
from planner.errors import ConservationError
from planner.finance.accounting import unit_economics as units
from planner.finance.accounting.booked_run import BookedRun, per_run
from planner.finance.accounting.lender import statements_by
from planner.finance.accounting.measures import (
    SUMS,
    levelised_to_date,
    ownership,
    sums_of,
    with_fleet,
    workload_figures,
)
from planner.finance.accounting.measures import reconciliation as reconciled
from planner.finance.accounting.workload_costs import workload_costs as costs_of_workloads
from planner.finance.accounts import (
    ACCOUNT_ORDER,
    Account,
    Category,
    Driver,
    View,
)
from planner.finance.ledger import MONTH_CLUSTER_ACCOUNT, usd
from planner.finance.measure_names import SERVICE, SITE, TIMELINE
from planner.finance.money_plan import TOKEN_KINDS
from planner.finance.present_value import cumulative_per_million_tokens, per_million_tokens, ratio
from planner.finance.statements import Frequency, cover_ratio, fiscal_periods
from planner.plan import quantities
from planner.plan.plan import Placement, Plan
from planner.run.slo_misses import REASONS, lost_requests
from planner.units import HOURS_PER_YEAR

Columns = dict[str, Any]
INCOME_AND_TAX = "tax, less revenue"
"""Line of what belongs to net present cost and to no workload."""


def timeline_monthly(result: BookedRun, *, clusters: bool = False) -> Columns:
    """One row per month of the fleet, or per month and cluster; demand, shed and late work are the fleet's only."""
    plan = result.plan
    sums = sums_of(result)
    served = sums.served_tokens
    output = sums.served_output_tokens
    # Of the fleet: what came in, less what was refused and what was served, to date.
    accepted = sums.demand_tokens - sums.shed_tokens
    backlog = np.cumsum(accepted - served[:, -1])
    owner = ownership(result)
    starts = plan.month_edges_h[:-1]
    caps_kw = []
    for window in result.run.inputs:
        hours = window.nodes.shape[1]
        no_cap = np.full(hours, np.inf)
        caps_kw.append(no_cap if window.cap_kw is None else window.cap_kw)
    # The highest of a month, since a cap that holds for a few hours is not the month's.
    cap_kw = np.maximum.reduceat(np.concatenate(caps_kw), starts)
    mean_needed, peak_needed = _accelerators_needed(result)
    # What rounding leaves of a queue that is empty is no backlog.
    is_empty = np.abs(backlog) < 1e-9 * sums.demand_tokens.sum()
    cost_to_date = cumulative_per_million_tokens(sums.cost_usd, served)
    output_cost_to_date = cumulative_per_million_tokens(sums.cost_usd, output)
    rented_tokens = result.tokens(result.rented.requests)
    table = {
        **sums.fleet_figures(),
        "backlog_tokens": np.where(is_empty, 0.0, backlog),
        "peak_facility_kw": result.monthly.peak_facility_kw,
        "rented_tokens": rented_tokens.sum(axis=1),
        "facility_power_cap_kw": np.where(np.isfinite(cap_kw), cap_kw, np.nan),
        "accelerators_needed": mean_needed,
        "peak_accelerators_needed": peak_needed,
        **sums.figures(),
        "accelerators_in_service": sums.in_service_h / plan.months.period_hours[:, None],
        "on_site_accelerator_h": sums.on_site_h,
        "in_service_accelerator_h": sums.in_service_h,
        "accelerator_h": sums.busy_h,
        "cumulative_cost_per_million_tokens_usd": cost_to_date,
        "cumulative_cost_per_million_output_tokens_usd": output_cost_to_date,
        "levelised_cost_per_million_tokens_usd": levelised_to_date(owner, served),
        "levelised_cost_per_million_output_tokens_usd": levelised_to_date(owner, output),
    }
    # A figure without a place would be left out in silence; some belong to a run's service alone.
    no_sum = set(TIMELINE) - set(table)
    no_place = set(table) - {*TIMELINE, *SERVICE}
    if no_sum or no_place:
        raise ConservationError(
            "the timeline's figures and those of planner/finance/figures.csv differ: "
            + ", ".join(sorted(no_sum | no_place))
        )
    # In the order of the published columns.
    ordered = {name: table[name] for name in TIMELINE}
    names = _cluster_names(plan) if clusters else ()
    return _fleet_or_clusters(names, "month", plan.months.labels, ordered)


@per_run
def _accelerators_needed(result: BookedRun) -> tuple[Floats, Floats]:
    """Return the accelerators that all demand would keep busy: the mean of each month, and its highest hour.

    An hour that served nothing says nothing about what its demand would take, and is passed over.
    """
    plan = result.plan
    windows = result.run.windows
    starts = plan.month_edges_h[:-1]
    # Window by window: a product over all hours at once may round otherwise.
    by_window = [plan.accelerators_per_node @ window.busy_nodes for window in windows]
    busy = np.concatenate(by_window)
    served_requests = joined("served_requests", windows)
    served = _tokens_by_hour(result, served_requests.sum(axis=0))
    shed = _tokens_by_hour(result, joined("shed_requests", windows))
    busy_h = np.add.reduceat(busy, starts)
    served_tokens = np.add.reduceat(served, starts)
    shed_tokens = np.add.reduceat(shed, starts)
    # From a month's sums, which an hour without service leaves as they are.
    mean = quantities.needed(busy_h, served_tokens, shed_tokens) / plan.months.period_hours
    # fmax passes over NaN, which such an hour has.
    needed = quantities.needed(busy, served, shed)
    peak = np.fmax.reduceat(needed, starts)
    return mean, peak


@per_run
def peak_headroom(result: BookedRun) -> Floats:
    """Return the headroom of each month's tightest hour: 1 − accelerators that urgent demand needs / in service then.

    Deferrable work fills idle hours, so it is left out; below 0 some urgent demand is shed or late.
    """
    plan = result.plan
    in_service = plan.accelerators_per_node @ joined("nodes", result.run.windows)
    headroom = 1.0 - ratio(units.urgent_accelerators(result), in_service)
    return np.fmin.reduceat(headroom, plan.month_edges_h[:-1])


def _tokens_by_hour(result: BookedRun, requests: Floats) -> Floats:
    """Return the tokens of requests of shape (..., workloads, hours), summed over workloads."""
    plan = result.plan
    by_workload = np.ascontiguousarray(plan.tokens_per_request.T)
    per_request = in_hours(by_workload, plan.months.hour_periods)
    tokens: Floats = (requests * per_request).sum(axis=-2)
    return tokens


def _rows_by(
    stamp: str, labels: Sequence[str], kind: str, names: Sequence[str], table: Mapping[str, Any]
) -> Columns:
    """Return arrays of shape (periods, names) as columns, with a row for each period and name."""
    # Names run fastest, as in the rows of the arrays.
    columns: Columns = {
        stamp: np.repeat(labels, len(names)).tolist(),
        kind: [*names] * len(labels),
    }
    for name, figures in table.items():
        columns[name] = figures.ravel()
    return columns


def _fleet_or_clusters(
    names: Sequence[str], stamp: str, labels: Sequence[str], table: Mapping[str, Any]
) -> Columns:
    """Return the last column of each array, which is the fleet's, or those before it for the clusters named.

    So no file holds a total among its parts. An array of one dimension is the fleet's alone.
    """
    if names:
        parts = {name: cells[:, :-1] for name, cells in table.items() if cells.ndim > 1}
        return _rows_by(stamp, labels, "cluster", names, parts)
    columns: Columns = {stamp: [*labels]}
    for name, cells in table.items():
        columns[name] = cells
        if cells.ndim > 1:
            columns[name] = cells[:, -1]
    return columns


def _cluster_names(plan: Plan) -> list[str]:
    return [cluster.name for cluster in plan.clusters]


@per_run
def workload_sums(result: BookedRun) -> dict[str, Floats]:
    """Return the figures of workloads with their machine time and full cost, shape (months, workloads) each."""
    table = workload_figures(result)
    economics = units.unit_economics(result)
    # Not a column of this table.
    del table["served_output_tokens"]
    # Without the site as a whole, whose hours are rented; its cost is the workloads' all the same.
    accelerator_h = economics.accelerator_h[:, :-1, :-2]
    cost_cents = economics.cost_cents[:, :, :-2]
    table["accelerator_h"] = accelerator_h.sum(axis=1)
    table["cost_usd"] = usd(cost_cents.sum(axis=1))
    return table


def timeline_workloads(result: BookedRun) -> Columns:
    """One row per month and workload."""
    table = dict(workload_sums(result))
    per_million = per_million_tokens(table["cost_usd"], table["served_tokens"])
    table["cost_per_million_tokens_usd"] = per_million
    names = [workload.name for workload in result.plan.workloads]
    return _rows_by("month", result.plan.months.labels, "workload", names, table)


def cluster_rows(result: BookedRun) -> Iterator[tuple[Any, ...]]:
    """Yield what each cluster is made of, and how it is had."""
    for cluster in result.plan.clusters:
        # A cluster without a contract is bought.
        stated = result.scenario.clusters[cluster.name]
        contract = getattr(stated.contract, "kind", "bought")
        yield (
            cluster.name,
            cluster.accelerator,
            cluster.vendor,
            cluster.accelerators_per_node,
            contract,
        )


def unit_economics(result: BookedRun, frequency: Frequency = Frequency.MONTH) -> Columns:
    """One row per period, cluster and workload that took or earned something, and what is idle and one-off."""
    plan = result.plan
    economics = units.unit_economics(result)
    periods = fiscal_periods(plan.months, plan.money.capital.fiscal_year_start_month, frequency)
    labels = [*periods]
    starts = [*periods.values()]

    def by_period(monthly: Any) -> Any:
        return np.add.reduceat(monthly, starts, axis=0)

    tokens = by_period(economics.tokens)
    hours = by_period(economics.accelerator_h)
    revenue = by_period(economics.revenue_cents)
    cost = by_period(economics.cost_cents)
    has_money = (revenue != 0) | (cost != 0)
    # A pair that took and earned nothing has no row.
    has_tokens = tokens.any(axis=3)
    rows = np.nonzero(has_tokens | (hours != 0) | has_money)
    kind_cost = by_period(economics.kind_cents)
    tokens = dict(zip(TOKEN_KINDS, tokens[rows].T, strict=True))
    token_cost = dict(zip(TOKEN_KINDS, kind_cost[rows].T, strict=True))
    hours = hours[rows]
    revenue = revenue[rows]
    cost = cost[rows]
    margin = revenue - cost
    period_numbers, cluster_numbers, line_numbers = rows
    workload_line, *further_lines = units.LINES
    lines = [(workload_line, load.name, load.model) for load in plan.workloads]
    lines += [(line, "", "") for line in further_lines]
    clusters = [*_cluster_names(plan), SITE]
    columns: Columns = {}
    if frequency is Frequency.MONTH:
        columns["month"] = [labels[period] for period in period_numbers]
    else:
        dates = [plan.months.edges[month].isoformat() for month in starts]
        columns["date"] = [dates[period] for period in period_numbers]
        columns["period"] = [labels[period] for period in period_numbers]
    columns["cluster"] = [clusters[number] for number in cluster_numbers]
    for position, name in enumerate(("line", "workload", "model")):
        columns[name] = [lines[number][position] for number in line_numbers]
    for kind, served in tokens.items():
        columns[f"{kind}_tokens"] = served
    columns |= {
        "accelerator_h": hours,
        "revenue_usd": revenue,
        "running_cost_usd": by_period(economics.running_cents)[rows],
        "cost_usd": cost,
        "margin_usd": margin,
    }
    # Two loops, since the order of columns is published: all costs, then all unit costs.
    for kind, paid in token_cost.items():
        columns[f"{kind}_cost_usd"] = paid
    for kind, paid in token_cost.items():
        per_million = per_million_tokens(usd(paid), tokens[kind])
        columns[f"{kind}_cost_per_million_tokens_usd"] = per_million
    columns["cost_per_accelerator_h_usd"] = ratio(usd(cost), hours)
    columns["margin_per_accelerator_h_usd"] = ratio(usd(margin), hours)
    return columns


def workload_costs(result: BookedRun) -> Columns:
    """Return what each workload costs in present value, and last what none bears."""
    costs = costs_of_workloads(result)
    loads = result.plan.workloads
    rates = dict(zip(TOKEN_KINDS, costs.rates().T, strict=True))
    nothing = np.zeros(1, dtype=np.int64)
    absorbed = costs.absorbed_cents
    columns: Columns = {
        "line": [*("workload" for _ in loads), INCOME_AND_TAX],
        "workload": [*(load.name for load in loads), ""],
        "model": [*(load.model for load in loads), ""],
        "marginal_usd": np.append(costs.marginal_cents, nothing),
        "own_capacity_usd": np.append(costs.own_capacity_cents, nothing),
        "idle_capacity_usd": np.append(costs.idle_capacity_cents, nothing),
        "absorbed_usd": np.append(absorbed, costs.income_and_tax_cents),
        "marginal_cost_per_million_tokens_usd": costs.per_million(costs.marginal_cents),
        "absorbed_cost_per_million_tokens_usd": costs.per_million(absorbed),
        "absorbed_cost_per_million_output_tokens_usd": costs.per_million(
            absorbed, output_only=True
        ),
    }
    for kind, rate in rates.items():
        columns[f"{kind}_rate_usd_per_million_tokens"] = rate
    for name, figures in columns.items():
        # What no workload bears has no tokens, and no price of them.
        if len(figures) == len(loads):
            columns[name] = np.append(figures, np.nan)
    return columns


def losses(result: BookedRun) -> Columns:
    """Node-hours by month and cluster: busy, and lost by cause; the parts sum to the whole."""
    plan = result.plan
    table = {"present_node_h": result.monthly.present_node_h}
    for use, node_h in result.monthly.fates_node_h.items():
        table[f"{use}_node_h"] = node_h
    return _rows_by("month", plan.months.labels, "cluster", _cluster_names(plan), table)


def slo_misses(result: BookedRun) -> Columns:
    """One row per month, workload and cause of missed requests."""
    lost = lost_requests(result)
    plan = result.plan
    names = [workload.name for workload in plan.workloads]
    keys = itertools.product(plan.months.labels, names, REASONS)
    months, workloads, causes = zip(*keys, strict=True)
    # Causes are the first axis of the arrays, and the last of the rows.
    return {
        "month": months,
        "workload": workloads,
        "cause": causes,
        "missed_fraction": np.moveaxis(lost.fraction, 0, -1).ravel(),
        "missed_requests": np.moveaxis(lost.requests, 0, -1).ravel(),
    }


def placement(result: BookedRun) -> Columns:
    """One row per month, cluster and workload that the cluster can serve: its model's replicas there."""
    placed = _placement(result.plan)
    resident = residence(result.plan, placed, result.run.windows)
    pairs = sorted(placed.group_of)
    numbers = [placed.group_of[pair] for pair in pairs]
    deployments = [placed.deployments[placed.groups[g][-1]] for g in numbers]
    replicas = resident.replicas[:, numbers]
    nodes = resident.nodes[:, numbers]
    fractions = [deployment.resident_bytes / deployment.memory_bytes for deployment in deployments]
    months = len(result.plan.months.labels)
    models = [result.plan.workloads[w].model for _, w in pairs]
    return _pair_columns(result.plan, pairs) | {
        "model": models * months,
        "replicas": replicas.ravel(),
        "nodes": nodes.ravel(),
        "memory_fraction": fractions * months,
        "weight_load_node_h": resident.weight_load_node_h[:, numbers].ravel(),
    }


def routing_monthly(result: BookedRun) -> Columns:
    """One row per month, cluster and workload that the cluster can serve: tokens served, and utilisation."""
    placed = _placement(result.plan)
    resident = residence(result.plan, placed, result.run.windows)
    pairs = sorted(placed.group_of)
    numbers = [placed.group_of[pair] for pair in pairs]
    # The node-hours of a workload's own replicas, and of those it uses while it waits.
    node_h = resident.held_node_h[:, numbers]
    for column, (c, w) in enumerate(pairs):
        # On a cluster without placement every node serves every workload.
        if not placed.placed[c]:
            continue
        for g, group in enumerate(placed.groups):
            largest = placed.deployments[group[-1]]
            is_borrowed = largest.cluster == c and w in largest.waiting_speed
            if is_borrowed and g != numbers[column]:
                node_h[:, column] += resident.held_node_h[:, g]
    clusters = [c for c, _ in pairs]
    loads = [w for _, w in pairs]
    # Work of a cluster is split by the machine time that its workloads took.
    time_share = quantities.shares(units.machine_time(result))
    busy_node_h = result.monthly.busy_node_h[:, clusters]
    work = time_share[:, clusters, loads] * busy_node_h
    tokens = result.tokens(result.monthly.served_requests)
    utilisation = quantities.utilisation(work, node_h)
    requests = result.monthly.served_requests[:, clusters, loads]
    # Of all workloads: a plan of APIs alone has no pairs.
    inputs = np.stack([load.input_tokens for load in result.plan.workloads], axis=1)[:, loads]
    found, host, contexts = _found_in_caches(result, pairs, utilisation)
    prompt_tokens = requests * inputs
    return _pair_columns(result.plan, pairs) | {
        "replicas": resident.replicas[:, numbers].ravel(),
        "served_tokens": tokens[:, clusters, loads].ravel(),
        "utilisation_fraction": utilisation.ravel(),
        "hit_fraction": found.ravel(),
        "hbm_hit_tokens": (prompt_tokens * (found - host)).ravel(),
        "host_hit_tokens": (prompt_tokens * host).ravel(),
        "computed_tokens": (prompt_tokens * (1.0 - found)).ravel(),
        "cached_contexts": (contexts * resident.replicas[:, numbers]).ravel(),
    }


def usd_per_node_year(result: BookedRun) -> dict[str, float]:
    """Return what a node of each cluster costs a year, of the hours it is there; without clusters that never are."""
    node_h = result.monthly.present_node_h.sum(axis=0)
    cost_usd = sums_of(result).cost_usd.sum(axis=0)
    return {
        cluster.name: float(cost_usd[place] / node_h[place]) * HOURS_PER_YEAR
        for place, cluster in enumerate(result.plan.clusters)
        if node_h[place] > 0.0
    }


def _found_in_caches(
    result: BookedRun, pairs: Sequence[tuple[int, int]], utilisation: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the shares found in the prefix cache and in host memory, and the contexts that a replica holds.

    All of shape (months, pairs); NaN where the share is stated, or nothing served. A share is the mean over the prompts
    of a month. Load follows the hours: the utilisation of the month times what is served in the hour over the mean.
    """
    plan = result.plan
    found = np.full_like(utilisation, np.nan)
    host = np.full_like(utilisation, np.nan)
    contexts = np.full_like(utilisation, np.nan)
    served = joined("served_requests", result.run.windows)
    edges = plan.month_edges_h
    hours = np.diff(edges)
    for column, pair in enumerate(pairs):
        if pair not in plan.caches:
            continue
        cache = plan.caches[pair]
        requests = served[pair]
        monthly = np.add.reduceat(requests, edges[:-1])
        mean = np.repeat(np.maximum(monthly / hours, 1e-12), hours)
        load = np.repeat(utilisation[:, column], hours) * requests / mean
        for shares, by_hour in zip((found, host), cache.at(load), strict=True):
            in_month = np.add.reduceat(by_hour * requests, edges[:-1])
            shares[:, column] = np.where(
                monthly > 0.0, in_month / np.maximum(monthly, 1e-12), np.nan
            )
        contexts[:, column] = cache.contexts
    return found, host, contexts


def _placement(plan: Plan) -> Placement:
    if plan.placement is None:
        raise ValueError("a plan made by hand places no models")
    return plan.placement


def _pair_columns(plan: Plan, pairs: Sequence[tuple[int, int]]) -> Columns:
    """Return the first columns of a table with a row for each month, cluster and workload."""
    months = plan.months.labels
    clusters = [plan.clusters[c].name for c, _ in pairs]
    workloads = [plan.workloads[w].name for _, w in pairs]
    return {
        "month": np.repeat(months, len(pairs)).tolist(),
        "cluster": clusters * len(months),
        "workload": workloads * len(months),
    }


def reconciliation_rows(result: BookedRun) -> Iterator[tuple[Any, ...]]:
    """Yield how P&L cost, TCO and net present cost follow from one another: parts, sums so far, and what these are."""
    total = 0
    # A line of SUMS is the total of those before it, and so the name of the total that the last of them comes to.
    # The line that follows the last one, so that pairs reach it.
    lines = [*reconciled(result).items(), ("", 0)]
    for (line, cents), (following, _) in itertools.pairwise(lines):
        if line not in SUMS:
            total += cents
            name = following if following in SUMS else ""
            yield line, cents, total, name


def ledger(result: BookedRun) -> Columns:
    """One row per month, cluster, account and purchase cohort."""
    book = result.ledger
    # Index −1, of the site or of no cohort, is the last name.
    clusters = (*book.labels.clusters, SITE)
    cohorts = (*book.labels.cohorts, "")
    return {
        "month": [book.labels.months[index] for index in book.month_index],
        "cluster": [clusters[index] for index in book.cluster_index],
        "account": [str(ACCOUNT_ORDER[code]) for code in book.account_code],
        "amount_usd": book.amount_cents / 100.0,
        "cohort": [cohorts[index] for index in book.cohort_index],
    }


def focus_rows(result: BookedRun) -> Iterator[tuple[Any, ...]]:
    """Yield cost by month, cluster and account under the columns of FOCUS; billed is cash, effective is accrual.

    Without what nobody is billed for: charges for capital are imputed.
    """
    plan = result.plan
    monthly = result.monthly
    billed = result.ledger.totals_cents(*MONTH_CLUSTER_ACCOUNT, view=View.CASH)
    effective = result.ledger.totals_cents(*MONTH_CLUSTER_ACCOUNT, view=View.ACCRUAL)
    imputed = [
        code for code, account in enumerate(ACCOUNT_ORDER) if account.category is Category.IMPUTED
    ]
    effective[:, :, imputed] = 0
    used_kwh = {
        Driver.IT_ENERGY: monthly.it_kwh,
        Driver.OVERHEAD_ENERGY: monthly.facility_kwh - monthly.it_kwh,
    }
    edges = [f"{edge}T00:00:00Z" for edge in plan.months.edges]
    resources = [(cluster.name, cluster.accelerator) for cluster in plan.clusters]
    resources.append((SITE, ""))
    is_posted = (billed != 0) | (effective != 0)
    # Only what was posted: most accounts of most months are empty.
    for month, c, code in np.argwhere(is_posted).tolist():
        account = ACCOUNT_ORDER[code]
        if not account.in_cost:
            continue
        used = used_kwh.get(account.driver)
        yield (
            int(billed[month, c, code]),
            int(effective[month, c, code]),
            "USD",
            # The billing period and the charge period are the same month.
            *edges[month : month + 2] * 2,
            account.focus_charge,
            account.description,
            account.focus_service,
            str(account),
            None if used is None else used[month, c],
            "" if used is None else account.unit,
            *resources[c],
            result.scenario.name,
        )


def account_rows() -> Iterator[tuple[Any, ...]]:
    """Yield the chart of accounts of ledger and statements, the same for every run."""
    for account in Account:
        views = [view in account.views for view in View]
        # An account moves one or two positions of the balance sheet: two columns.
        positions = [position for position, _ in account.positions]
        moves = [*positions, "", ""][:2]
        kind = "income" if account.is_income else "cost"
        behaviour = account.behaviour
        yield account, *views, account.category, behaviour, kind, *moves, account.description


def statement(
    result: BookedRun, frequency: Frequency = Frequency.MONTH, *, clusters: bool = False
) -> Columns:
    """One row per period of the fleet, or per period and cluster with the site; the lines side by side, in cents."""
    plan = result.plan
    first_month = plan.money.capital.fiscal_year_start_month
    lines = statements_by(result, frequency)
    stamp = "month" if frequency is Frequency.MONTH else "period"
    names = [*_cluster_names(plan), SITE] if clusters else []
    served = sums_of(result).served_tokens
    # The site's tokens are those on rented machines: the fleet's less all clusters'.
    site_tokens = 2.0 * served[:, -1] - served.sum(axis=1)
    served = np.insert(served, -1, site_tokens, axis=1)
    starts = [*fiscal_periods(plan.months, first_month, frequency).values()]
    tokens = np.add.reduceat(served, starts, axis=0)
    cost_usd = usd(lines.lines_cents["cost_of_serving_usd"])
    per_million = per_million_tokens(cost_usd, tokens)
    columns = {
        **lines.lines_cents,
        "cover_ratio": cover_ratio(lines),
        "served_tokens": tokens,
        "cost_of_serving_per_million_tokens_usd": per_million,
    }
    table = _fleet_or_clusters(names, stamp, lines.periods, columns)
    if frequency is Frequency.MONTH:
        return table
    days = [plan.months.edges[start].isoformat() for start in starts]
    return {"date": np.repeat(days, len(names) or 1).tolist(), **table}


def timeline_hourly(result: BookedRun, *, clusters: bool = False) -> Columns:
    """One row per hour (UTC) of the fleet, or per hour and cluster."""
    plan = result.plan
    windows = result.run.windows
    machines = result.run.node_hours

    def accelerators(nodes: Floats) -> Floats:
        return with_fleet(nodes.T * plan.accelerators_per_node)

    def tokens(requests: Floats) -> Floats:
        return _tokens_by_hour(result, requests)

    refused = joined("shed_requests", windows)
    rented, _ = rent_by_hour(plan, refused, result.run.on_offer)
    present = joined("present", machines)
    serving = quantities.in_service(present, joined("failed", machines))
    on_site = accelerators(present)
    in_service = accelerators(serving)
    busy = accelerators(joined("busy_nodes", windows))
    served = tokens(joined("served_requests", windows))
    table = {
        "accelerators_in_service": in_service,
        "availability_fraction": quantities.availability(in_service, on_site),
        "utilisation_fraction": quantities.utilisation(busy, in_service),
        "demand_tokens": tokens(joined("demand_requests", windows)),
        "served_tokens": with_fleet(served.T, elsewhere=tokens(rented)),
        "shed_tokens": tokens(quantities.shed_requests(refused, rented)),
        "it_energy_kwh": with_fleet(joined("it_kw", windows).T),
        "energy_kwh": joined("facility_kw", windows),
    }
    # In hours first: a start of day has no hours to add to.
    times = np.datetime64(plan.start, "h") + np.arange(plan.hours)
    labels = times.astype("datetime64[m]").astype(str).tolist()
    names = _cluster_names(plan) if clusters else ()
    return _fleet_or_clusters(names, "time", labels, table)
