"""Unit economics: what the tokens of each workload earn and cost on each cluster, by month.

Running cost (energy, cooling, carbon, rent by the hour, credits) goes to workloads by use. What capacity costs goes by
the policy of ``finance.allocation``: to those at work in the hours that size the fleet, by use, or to nobody. What no
workload bears is the reserve; gains and losses that come once are a line of their own. Lines are whole cents and sum to
the accrued cost of the ledger, in every month and cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import Bools, Cents, Floats
from planner.elementwise import in_hours
from planner.engine.hourly import joined
from planner.finance.ledger import ACCOUNT_CODES, Account, Dimension, split_cents
from planner.finance.present_value import ratio
from planner.plan import quantities
from planner.run.accounting import credited_tokens
from planner.run.simulate import RunResult, per_run

DEFERRABLE = 2
"""Priority of work that can wait."""
PEAK_FRACTION = 0.01
"""Share of a month's hours that size the fleet: those in which work that cannot wait needs most accelerators."""
LINES = ("workload", "reserve", "one-off")
"""What a row of unit economics is: a workload, what no workload bears, or gains and losses that come once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEconomics:
    """Unit economics in shape (months, clusters + 1, workloads + 2): the site last, then reserve and one-offs."""

    tokens: Floats
    """Tokens served by kind, shape (months, clusters + 1, workloads + 2, 3)."""
    accelerator_h: Floats
    """Accelerator-hours at work, and of the reserve those on site that were not."""
    revenue_cents: Cents
    running_cents: Cents
    """Cost that follows use: what one token more or less moves."""
    cost_cents: Cents
    """Running cost, and what the policy allots of the rest."""
    kind_cents: Cents
    """The cost by kind of token, where it is known which part took how long; shape as ``tokens``."""


@per_run
def urgent_accelerators(result: RunResult) -> Floats:
    """Return the accelerators that demand needs which cannot wait, by hour; NaN where nothing was served.

    Of the machine time at work in an hour, urgent workloads have their share of what all requests served then take at
    full speed; what was refused takes as much as what was served.
    """
    plan, windows, hours = result.plan, result.run.windows, result.plan.months.hour_periods
    urgent = np.array([load.priority < DEFERRABLE for load in plan.workloads])
    served, refused = (joined(name, windows) for name in ("served_requests", "shed_requests"))
    node_h = quantities.machine_time(served, in_hours(plan.requests_per_node_h, hours))
    time = node_h * plan.accelerators_per_node[:, None, None]
    share = ratio(time[:, urgent].sum(axis=(0, 1)), time.sum(axis=(0, 1)))
    tokens = in_hours(np.ascontiguousarray(plan.tokens_per_request.T), hours) * urgent[:, None]
    asked = ((requests * tokens).sum(axis=0) for requests in (served.sum(axis=0), refused))
    return quantities.needed(
        plan.accelerators_per_node @ joined("busy_nodes", windows) * share, *asked
    )


@per_run
def peak_hours(result: RunResult) -> Bools:
    """Return the hours that size the fleet: of each month, those in which urgent demand is within its highest 1%."""
    needed = np.nan_to_num(urgent_accelerators(result))
    edges = result.plan.month_edges_h[1:-1]
    months = np.split(needed, edges)
    return np.concatenate(
        [month >= np.quantile(month, 1.0 - PEAK_FRACTION, method="lower") for month in months]
    )


def machine_time(result: RunResult, wanted: Bools | None = None) -> Floats:
    """Return the node-hours of served requests at full speed, in the layouts that served them, in all or some hours.

    Shape (months, clusters, workloads). In hours of overload more is served, late, than what keeps the objective, and
    these sum to more than the hours at work: it is their proportions that share those out.
    """
    plan = result.plan
    counted = np.ones(plan.hours) if wanted is None else wanted.astype(np.float64)
    served = joined("served_requests", result.run.windows) * counted
    requests = np.moveaxis(np.add.reduceat(served, plan.month_edges_h[:-1], axis=-1), -1, 0).copy()
    for window in result.run.windows:
        for (c, w), slower in window.slower_requests.items():
            hours = slice(window.first_hour, window.first_hour + slower.size)
            requests[:, c, w] += np.bincount(
                plan.months.hour_periods[hours], slower * counted[hours], len(requests)
            )
    time = quantities.machine_time(requests, np.moveaxis(plan.requests_per_node_h, 2, 0))
    for c, cluster in enumerate(plan.clusters):  # an API's month is shared by what it asks for each
        if cluster.api is not None:
            time[:, c] = requests[:, c] * plan.api_request_usd(c)
    return time


def _peak_shares(result: RunResult) -> Floats:
    """Return the share of each cluster that workloads use in the peak hours, and last what is idle or down then.

    Shape (months, clusters + 1, workloads + 1); the site as a whole does no work.
    """
    plan = result.plan
    peak = peak_hours(result)
    busy, present = (
        np.add.reduceat(joined(name, parts) * peak, plan.month_edges_h[:-1], axis=-1).T
        for name, parts in (("busy_nodes", result.run.windows), ("present", result.run.node_hours))
    )
    share = np.nan_to_num(ratio(busy, present))[:, :, None]
    used = np.pad(quantities.shares(machine_time(result, peak)) * share, ((0, 0), (0, 1), (0, 0)))
    return np.concatenate([used, np.maximum(1.0 - used.sum(axis=2, keepdims=True), 0.0)], axis=2)


@per_run
def unit_economics(result: RunResult) -> UnitEconomics:
    """Return a run's unit economics by month, under the policy of its scenario."""
    plan = result.plan
    monthly = result.monthly
    rented = result.rented
    policy = result.scenario.finance.allocation
    table = result.ledger.totals_cents(Dimension.MONTH, Dimension.CLUSTER, Dimension.ACCOUNT)
    served = np.concatenate([monthly.served_requests, rented.requests[:, None]], axis=1)

    def of(behaviour: str) -> Cents:
        codes = [ACCOUNT_CODES[account] for account in Account if account.behaviour == behaviour]
        return np.asarray(table[:, :, codes].sum(axis=2), dtype=np.int64)

    def beside(weights: Floats, reserve: float = 0.0) -> Floats:
        """Return weights of workloads with the reserve's behind them."""
        return np.insert(weights, weights.shape[-1], reserve, axis=-1)

    by_the_hour = np.array([*(cluster.is_paid_by_the_hour for cluster in plan.clusters), False])
    used = of("use") + table[:, :, ACCOUNT_CODES[Account.RENT]] * by_the_hour
    capacity = of("capacity") + of("use") - used
    # Of the site as a whole it is what was served on rented machines; where nobody was at work, the reserve bears it.
    time = np.concatenate([machine_time(result), result.tokens(rented.requests)[:, None]], axis=1)
    nobody = beside(np.zeros(len(plan.workloads)), 1.0)
    tokens, asked = (
        result.tokens(served).sum(axis=1, keepdims=True),
        result.tokens(monthly.demand_requests),
    )
    others = (
        [beside(weights) for weights in (tokens, asked[:, None], asked.sum(axis=0))]
        if policy == "by-use"
        else []
    )
    by_use = by_capacity = quantities.shares(beside(time), *others, nobody)
    if policy != "by-use":
        at_peak = _peak_shares(result) if policy == "peak-responsibility" else np.zeros_like(by_use)
        by_capacity = quantities.shares(at_peak, nobody)
    credited = np.pad(
        table[:, -1:, ACCOUNT_CODES[Account.SLA_CREDITS]], ((0, 0), (len(plan.clusters), 0))
    )
    missed = quantities.shares(beside(credited_tokens(plan, monthly, rented))[:, None], nobody)
    running = split_cents(used - credited, by_use) + split_cents(
        credited, np.broadcast_to(missed, by_use.shape)
    )
    cost = running + split_cents(capacity, by_capacity)
    earned = served * (
        0.0
        if (price := plan.money.market.token_price) is None
        else plan.request_usd(price)[:, None]
    )
    revenue = split_cents(
        -table[:, :, ACCOUNT_CODES[Account.REVENUE]], quantities.shares(beside(earned), nobody)
    )
    node_h = np.stack([monthly.busy_node_h, monthly.present_node_h]) * plan.accelerators_per_node
    busy_h, on_site_h = np.pad(node_h, ((0, 0), (0, 0), (0, 1)))[..., None]
    busy_h[:, -1, 0] = on_site_h[:, -1, 0] = rented.accelerator_h
    at_work = beside(quantities.shares(time) * busy_h) + nobody * (on_site_h - busy_h)
    kinds = np.pad(
        served[..., None] * plan.request_tokens[:, None], ((0, 0), (0, 0), (0, 2), (0, 0))
    )
    split = np.zeros(kinds.shape, dtype=np.int64)
    if plan.token_time is not None:
        known = np.broadcast_to(plan.token_time, (len(table), *plan.token_time.shape))
        split[:, :-1, :-2] = split_cents(cost[:, :-1, :-1], quantities.shares(known))
    return UnitEconomics(
        tokens=kinds,
        accelerator_h=beside(at_work),
        revenue_cents=np.insert(revenue, revenue.shape[2], 0, axis=2),
        running_cents=np.insert(running, running.shape[2], 0, axis=2),
        cost_cents=np.concatenate([cost, of("one-off")[:, :, None]], axis=2),
        kind_cents=split,
    )
