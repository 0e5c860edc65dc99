"""Unit economics: what the tokens of each workload earn and cost on each cluster, by month.

Running cost follows use: rent by the hour, credits, and of power what follows load. It goes to
workloads by use. Idle power is there whether anyone comes or not: with all else that capacity costs it goes by the
policy of ``finance.allocation``, to those at work in the hours that size the fleet, or by use. What no workload uses
is unallocated idle capacity; gains and losses that come once are a line of their own. Lines are whole cents and sum to
the accrued cost of the ledger, in every month and cluster.
"""

from __future__ import annotations

import numpy as np

from planner.arrays import Bools, Cents, Floats
from planner.elementwise import in_hours
from planner.engine.hourly import joined
from planner.engine.power import load_fraction
from planner.finance.accounting.booked_run import BookedRun, per_run
from planner.finance.accounting.posting import credited_tokens
from planner.finance.accounts import ACCOUNT_CODES, Account, Driver
from planner.finance.ledger import MONTH_CLUSTER_ACCOUNT, split_cents, zero_cents
from planner.finance.present_value import ratio
from planner.plan import quantities
from planner.plan.plan import Plan
from planner.records import record

DEFERRABLE = 2
"""Priority of work that can wait."""
PEAK_FRACTION = 0.01
"""Share of a month's hours that size the fleet: those in which work that cannot wait needs most accelerators."""
IDLE_CAPACITY = "unallocated idle capacity"
LINES = ("workload", IDLE_CAPACITY, "one-off")
"""What a row of unit economics is: a workload, what no workload uses, or gains and losses that come once."""
_LOAD_STEP = 0.05
"""Share by which load is raised and lowered for the slope of power: wide beside the table's grid, narrow beside its
bend."""


@record
class UnitEconomics:
    """Unit economics in shape (months, clusters + 1, workloads + 2): the site last, then idle capacity and one-offs."""

    tokens: Floats
    """Tokens served by kind, shape (months, clusters + 1, workloads + 2, 3)."""
    accelerator_h: Floats
    """Accelerator-hours at work, and of idle capacity those on site that were not."""
    revenue_cents: Cents
    running_cents: Cents
    """Cost that follows use and load."""
    cost_cents: Cents
    """Running cost, and what the policy allots of the rest."""
    kind_cents: Cents
    """The cost by kind of token, where it is known which part took how long; shape as ``tokens``."""


@per_run
def urgent_accelerators(result: BookedRun) -> Floats:
    """Return the accelerators that demand needs which cannot wait, by hour; NaN where nothing was served.

    Of the machine time at work in an hour, urgent workloads have their share of what all requests served then take at
    full speed; what was refused takes as much as what was served.
    """
    plan = result.plan
    windows = result.run.windows
    hours = plan.months.hour_periods
    urgent = np.array([load.priority < DEFERRABLE for load in plan.workloads])
    served = joined("served_requests", windows)
    refused = joined("shed_requests", windows)
    requests_per_node_h = in_hours(plan.requests_per_node_h, hours)
    node_h = quantities.machine_time(served, requests_per_node_h)
    time = node_h * plan.accelerators_per_node[:, None, None]
    # Over clusters and workloads: hours are left.
    urgent_time = time[:, urgent].sum(axis=(0, 1))
    all_time = time.sum(axis=(0, 1))
    share = ratio(urgent_time, all_time)
    # Contiguous, since reading hours out of a transposed view is slow.
    tokens_per_request = np.ascontiguousarray(plan.tokens_per_request.T)
    tokens = in_hours(tokens_per_request, hours) * urgent[:, None]
    served_tokens = served.sum(axis=0) * tokens
    refused_tokens = refused * tokens
    return quantities.needed(
        plan.accelerators_per_node @ joined("busy_nodes", windows) * share,
        served_tokens.sum(axis=0),
        refused_tokens.sum(axis=0),
    )


@per_run
def peak_hours(result: BookedRun) -> Bools:
    """Return the hours that size the fleet: of each month, those in which urgent demand is within its highest 1%."""
    # An hour that served nothing sizes nothing.
    needed = np.nan_to_num(urgent_accelerators(result))
    is_peak = []
    edges = result.plan.month_edges_h[1:-1]
    for month in np.split(needed, edges):
        # An hour of the month itself, not a mean of two: at least one hour reaches it.
        threshold = np.quantile(month, 1.0 - PEAK_FRACTION, method="lower")
        is_peak.append(month >= threshold)
    return np.concatenate(is_peak)


def machine_time(result: BookedRun, is_counted: Bools | None = None) -> Floats:
    """Return the node-hours of served requests at full speed, in the layouts that served them, in all or some hours.

    Shape (months, clusters, workloads). In hours of overload more is served, late, than what keeps the objective, and
    these sum to more than the hours at work: it is their proportions that share those out.
    """
    plan = result.plan
    weight = np.ones(plan.hours)
    if is_counted is not None:
        weight = is_counted.astype(np.float64)
    served = joined("served_requests", result.run.windows) * weight
    starts = plan.month_edges_h[:-1]
    by_month = np.add.reduceat(served, starts, axis=-1)
    requests = np.moveaxis(by_month, -1, 0).copy()
    for window in result.run.windows:
        # A request on a slower layout takes longer: it counts as that many more at full speed.
        for (c, w), slower in window.slower_requests.items():
            hours = slice(window.first_hour, window.first_hour + slower.size)
            months = plan.months.hour_periods[hours]
            weights = slower * weight[hours]
            requests[:, c, w] += np.bincount(months, weights, len(requests))
    requests_per_node_h = np.moveaxis(plan.requests_per_node_h, 2, 0)
    time = quantities.machine_time(requests, requests_per_node_h)
    for c, cluster in enumerate(plan.clusters):
        # An API has no machine time: its month is shared by what it charges for each request.
        if cluster.api is not None:
            time[:, c] = requests[:, c] * plan.api_request_usd(c)
    return time


def _peak_shares(result: BookedRun) -> Floats:
    """Return the share of each cluster that workloads use in the peak hours, and last what is idle or down then.

    Shape (months, clusters + 1, workloads + 1); the site as a whole does no work.
    """
    starts = result.plan.month_edges_h[:-1]
    peak = peak_hours(result)
    busy_nodes = joined("busy_nodes", result.run.windows) * peak
    present_nodes = joined("present", result.run.node_hours) * peak
    busy_h = np.add.reduceat(busy_nodes, starts, axis=-1).T
    present_h = np.add.reduceat(present_nodes, starts, axis=-1).T
    # A cluster that is not there in the peak hours is used by nobody: its cost is idle capacity's.
    busy_fraction = np.nan_to_num(ratio(busy_h, present_h))
    share = busy_fraction[:, :, None]
    used = quantities.shares(machine_time(result, peak)) * share
    # A row of zeros for the site as a whole.
    used = np.pad(used, ((0, 0), (0, 1), (0, 0)))
    idle = 1.0 - used.sum(axis=2, keepdims=True)
    # Shares of a cluster wholly at work may sum to a hair above one.
    idle = np.maximum(idle, 0.0)
    return np.concatenate([used, idle], axis=2)


@per_run
def unit_economics(result: BookedRun) -> UnitEconomics:
    """Return a run's unit economics by month, under the policy of its scenario."""
    plan = result.plan
    monthly = result.monthly
    rented = result.rented
    table = result.ledger.totals_cents(*MONTH_CLUSTER_ACCOUNT)
    rented_requests = rented.requests[:, None]
    served = np.concatenate([monthly.served_requests, rented_requests], axis=1)
    nobody = _with_idle(np.zeros(len(plan.workloads)), 1.0)
    hourly_rent = hourly_rent_cents(plan, table)
    loaded = loaded_cents(result)
    used = behaving(table, "use") + hourly_rent + loaded
    capacity = behaving(table, "capacity") - hourly_rent + behaving(table, "load") - loaded
    # Of the site as a whole it is what was served on rented machines.
    rented_tokens = result.tokens(rented.requests)[:, None]
    time = np.concatenate([machine_time(result), rented_tokens], axis=1)
    by_use, by_capacity = _allocation(result, time, served, nobody)
    # Credits go to those whose requests were missed, and not by use.
    credited = np.zeros_like(used)
    credited[:, -1] = table[:, -1, ACCOUNT_CODES[Account.SLA_CREDITS]]
    missed_tokens = credited_tokens(plan, monthly, rented)
    missed_weights = _with_idle(missed_tokens)[:, None]
    missed = quantities.shares(missed_weights, nobody)
    running = split_cents(used - credited, by_use)
    running += split_cents(credited, np.broadcast_to(missed, by_use.shape))
    cost = running + split_cents(capacity, by_capacity)
    price = plan.money.market.token_price
    revenue_usd = np.zeros_like(served)
    if price is not None:
        revenue_usd = served * plan.request_usd(price)[:, None]
    earning = quantities.shares(_with_idle(revenue_usd), nobody)
    sold = -table[:, :, ACCOUNT_CODES[Account.REVENUE]]
    revenue = split_cents(sold, earning)
    node_h = np.stack([monthly.busy_node_h, monthly.present_node_h])
    accelerator_h = node_h * plan.accelerators_per_node
    # A column for the site as a whole, whose machines are those rented for bursts: all of them at work.
    with_site_h = np.pad(accelerator_h, ((0, 0), (0, 0), (0, 1)))
    busy_h, on_site_h = with_site_h[..., None]
    busy_h[:, -1, 0] = rented.accelerator_h
    on_site_h[:, -1, 0] = rented.accelerator_h
    at_work = _with_idle(quantities.shares(time) * busy_h)
    at_work += nobody * (on_site_h - busy_h)
    kinds = served[..., None] * plan.request_tokens[:, None]
    # Idle capacity and one-offs serve no tokens.
    kinds = np.pad(kinds, ((0, 0), (0, 0), (0, 2), (0, 0)))
    kind_cents = zero_cents(kinds.shape)
    if plan.token_time is not None:
        by_kind = quantities.shares(_kind_weights(plan))
        # Of workloads on clusters alone: the site, idle capacity and one-offs serve no tokens of a known layout.
        workload_cost = cost[:, :-1, :-1]
        kind_cents[:, :-1, :-2] = split_cents(workload_cost, by_kind)
    one_offs = behaving(table, "one-off")[:, :, None]
    return UnitEconomics(
        tokens=kinds,
        accelerator_h=_with_idle(at_work),
        revenue_cents=np.insert(revenue, revenue.shape[2], 0, axis=2),
        running_cents=np.insert(running, running.shape[2], 0, axis=2),
        cost_cents=np.concatenate([cost, one_offs], axis=2),
        kind_cents=kind_cents,
    )


def _kind_weights(plan: Plan) -> Floats:
    """Return what a request costs by kind of token, in proportion: machine time, or an API's price of them.

    Shape (months, clusters, workloads, kinds).
    """
    assert plan.token_time is not None
    shape = (plan.months.period_count, *plan.token_time.shape)
    weights = np.broadcast_to(plan.token_time, shape).copy()
    for c, cluster in enumerate(plan.clusters):
        if cluster.api is not None:
            weights[:, c] = plan.request_tokens * cluster.api.prices
    return weights


def loaded_cents(result: BookedRun) -> Cents:
    """Return the part of power's cost that follows load, shape (months, clusters + 1); the site as a whole has none.

    Of power P at load u that part is u·dP/du: what raising all work by a hundredth adds, times a hundred. Power is
    concave in load, so the part is less than what is drawn above idle. Cooling follows IT power but for its fixed
    share, and the demand charge its hour of highest power.
    """
    plan = result.plan
    starts = plan.month_edges_h[:-1]
    windows = result.run.windows
    busy = joined("busy_nodes", windows)
    nodes = joined("nodes", windows)
    it_kw = joined("it_kw", windows)
    facility_kw = joined("facility_kw", windows)
    loaded_kw = np.zeros_like(it_kw)
    for c, cluster in enumerate(plan.clusters):
        if cluster.is_hosted:
            continue
        load = load_fraction(busy[c], nodes[c])
        curve = cluster.node_power.load_kw
        grid = np.linspace(0.0, 1.0, curve.size)
        # Interpolated: the nearest point would round away most of a small step.
        more_kw = np.interp(load * (1.0 + _LOAD_STEP), grid, curve)
        less_kw = np.interp(load * (1.0 - _LOAD_STEP), grid, curve)
        share = ratio(more_kw - less_kw, 2.0 * _LOAD_STEP * np.interp(load, grid, curve))
        # Times the power that was drawn, which is that of pools with loads of their own.
        loaded_kw[c] = np.nan_to_num(share) * it_kw[c]
    cooled_kw = loaded_kw * (plan.site.overhead_ratio * (1.0 - plan.site.fixed_fraction))
    # Energy is priced by the hour where a tariff is: hours weigh by their price.
    hourly_price = plan.money.power.hourly_usd_per_kwh
    price = np.ones(plan.hours) if hourly_price is None else hourly_price

    def by_month(hourly: Floats) -> Floats:
        return np.add.reduceat(hourly * price, starts, axis=-1).T

    site_it_kw = it_kw.sum(axis=0)
    loaded_site_kw = loaded_kw.sum(axis=0) + cooled_kw.sum(axis=0)
    # Clusters bear the site's overhead by their IT energy, and what of it follows load is theirs alike.
    peak_hours_of_months = [
        start + int(np.argmax(month))
        for start, month in zip(starts, np.split(facility_kw, starts[1:]), strict=True)
    ]
    at_peak = ratio(loaded_site_kw[peak_hours_of_months], facility_kw[peak_hours_of_months])
    overhead = ratio(by_month(cooled_kw.sum(axis=0)), by_month(facility_kw - site_it_kw))
    whole = ratio(by_month(loaded_site_kw), by_month(facility_kw))
    shares = {
        Driver.IT_ENERGY: ratio(by_month(loaded_kw), by_month(it_kw)),
        Driver.OVERHEAD_ENERGY: overhead[:, None],
        Driver.FACILITY_ENERGY: whole[:, None],
        Driver.PEAK_POWER: at_peak[:, None],
    }
    table = result.ledger.totals_cents(*MONTH_CLUSTER_ACCOUNT)
    loaded = zero_cents(table.shape[:2])
    for account in Account:
        if account.behaviour == "load":
            by_cluster = table[:, :-1, ACCOUNT_CODES[account]]
            share = np.clip(np.nan_to_num(shares[account.driver]), 0.0, 1.0)
            loaded[:, :-1] += np.rint(by_cluster * share).astype(np.int64)
    return loaded


def behaving(table: Cents, behaviour: str) -> Cents:
    """Return the cost of all accounts of a behaviour, shape (months, clusters + 1)."""
    codes = [ACCOUNT_CODES[account] for account in Account if account.behaviour == behaviour]
    cost: Cents = table[:, :, codes].sum(axis=2)
    return cost


def hourly_rent_cents(plan: Plan, table: Cents) -> Cents:
    """Return the rent that follows use, shape (months, clusters + 1): that by the hour; rent for a term is capacity."""
    is_hourly = [cluster.is_paid_by_the_hour for cluster in plan.clusters]
    by_the_hour = np.array([*is_hourly, False])
    rent: Cents = table[:, :, ACCOUNT_CODES[Account.RENT]] * by_the_hour
    return rent


def _with_idle(weights: Floats, idle: float = 0.0) -> Floats:
    """Return weights of workloads with that of idle capacity behind them."""
    return np.insert(weights, weights.shape[-1], idle, axis=-1)


def _allocation(
    result: BookedRun, time: Floats, served: Floats, nobody: Floats
) -> tuple[Floats, Floats]:
    """Return the shares of running and of capacity cost, shape (months, clusters + 1, workloads + 1).

    Each falls back on the next weights where its own are zero; in the end idle capacity bears it.
    """
    if result.scenario.finance.allocation == "peak-responsibility":
        by_use = quantities.shares(_with_idle(time), nobody)
        by_capacity = quantities.shares(_peak_shares(result), nobody)
        return by_use, by_capacity
    tokens = result.tokens(served).sum(axis=1, keepdims=True)
    demand = result.tokens(result.monthly.demand_requests)
    by_use = quantities.shares(
        _with_idle(time),
        _with_idle(tokens),
        _with_idle(demand[:, None]),
        _with_idle(demand.sum(axis=0)),
        nobody,
    )
    return by_use, by_use
